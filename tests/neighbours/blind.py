"""Releases that hold no row: every exact value is replaced by zero before it meets its noise.

Noise is a function of the seed and of public parameters then, so neighboring tables give equal bytes wherever anything
can be read: releases, files, standard output and error, warnings. A byte that differs depends on a raw row otherwise
than through an outlet. What does go into the outlets is watched: the admitted rows, and their exact sums.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest import mock

import numpy as np

from streampca.linalg.lattice import GramSum
from streampca.privacy.discrete_gaussian import LatticeGram
from streampca.privacy.outlet import LatticeSum, Outlet
from streampca.processors.leader import LeaderProcessor
from streampca.processors.private_fpl import FPLProcessor, GramWithRewards, RewardSum
from streampca.processors.tumbling import TumblingProcessor


class Watched:
    """What entered the processors of a run."""

    def __init__(self) -> None:
        self.rows: list[np.ndarray] = []  # admitted, block by block
        self.counts: list[int] = []  # rows of each block that was summed elsewhere, which `rows` lacks
        self.releases: list[str] = []  # JSON
        self.gram: GramSum | None = None  # the exact sum after the last row, of processors that keep one

    def matrix(self) -> np.ndarray:
        return np.concatenate(self.rows) if self.rows else np.empty((0, 0))

    def after(self, made: tuple[Any, Any]) -> tuple[Any, Any]:
        processor, release = made
        self.gram = getattr(processor, "gram", None)
        if release is not None:
            self.releases.append(release.to_json())
        return made


#: What watches at present; steps between two runs are not watched.
_watched = Watched()


@contextmanager
def watching() -> Iterator[Watched]:
    global _watched
    _watched, before = Watched(), _watched
    try:
        yield _watched
    finally:
        _watched = before


def emptied(exact: Any) -> Any:
    if isinstance(exact, GramSum):
        return GramSum(exact.n_features, further=exact.further)
    if isinstance(exact, LatticeGram):
        return LatticeGram(GramSum(exact.gram.n_features))
    if isinstance(exact, LatticeSum):
        return LatticeSum(np.zeros_like(exact.values), exact.grid)
    if isinstance(exact, GramWithRewards):
        sums = exact.rewards
        return GramWithRewards(emptied(exact.gram), RewardSum(0, sums.scoring, sums.scale))
    raise TypeError(f"no empty {type(exact).__name__} is known")


def _hidden(real: Any) -> Any:
    return lambda self, kind, *exact: real(self, kind)


def _blinded(real: Any) -> Any:
    return lambda self, kind, exact, *others, **named: real(self, kind, emptied(exact), *others, **named)


def _watched_step(real: Any) -> Any:
    def step(self: Any, rows: Any, outlet: Any) -> Any:
        _watched.rows.append(rows.copy())
        return _watched.after(real(self, rows, outlet))

    return step


def _watched_gram(real: Any) -> Any:
    def step_gram(self: Any, count: int, high: Any, low: Any, outlet: Any) -> Any:
        _watched.counts.append(count)
        return _watched.after(real(self, count, high, low, outlet))

    return step_gram


@contextmanager
def installed() -> Iterator[None]:
    """Blind outlets, and watched processors."""
    with ExitStack() as stack:
        for kind, name, wrap in (
            (Outlet, "hide", _hidden), (Outlet, "running", _blinded), (Outlet, "release", _blinded),
            (FPLProcessor, "step", _watched_step), (TumblingProcessor, "step", _watched_step),
            (LeaderProcessor, "step_gram", _watched_gram),
        ):  # fmt: skip
            real = vars(kind)[name]
            stack.enter_context(mock.patch.object(kind, name, wraps(real)(wrap(real))))
        yield
