"""Releases that hold no row: every exact value is replaced by zero before it meets its noise.

Noise is a function of the seed and of public parameters then, so neighboring tables give equal bytes wherever anything
can be read: releases, files, standard output and error, warnings. A byte that differs depends on a raw row otherwise
than through an outlet. What does go into the outlets is watched: the admitted rows, and their exact sums.

As a script: ``streampca`` in a process of its own, blind, with what was watched in a file:
``python blind.py WATCHED.npz run rows.csv ...``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np

from streampca.linalg.lattice import GramSum
from streampca.privacy.discrete_gaussian import LatticeGram
from streampca.privacy.outlet import LatticeSum, Outlet
from streampca.processors.leader import LeaderProcessor
from streampca.processors.private_fpl import FPLProcessor
from streampca.processors.rewards import GramWithRewards, RewardSum
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
        return exact.emptied()
    if isinstance(exact, LatticeGram):
        return LatticeGram(exact.gram.emptied())
    if isinstance(exact, LatticeSum):
        return LatticeSum(np.zeros_like(exact.values), exact.grid)
    if isinstance(exact, GramWithRewards):
        sums = exact.rewards
        return GramWithRewards(exact.gram.emptied(), RewardSum(0, sums.playing, sums.scale, sums.of_zeros))
    raise TypeError(f"no empty {type(exact).__name__} is known")


@contextmanager
def installed() -> Iterator[None]:
    """Blind outlets, and watched processors."""
    before: list[tuple[type, str, Any]] = []

    def patch(kind: type, name: str, wrap: Callable[[Any], Any]) -> None:
        before.append((kind, name, kind.__dict__[name]))
        setattr(kind, name, wraps(before[-1][2])(wrap(before[-1][2])))

    def hide(real: Any) -> Any:
        return lambda self, kind, *exact: real(self, kind)

    def blinded(real: Any) -> Any:
        return lambda self, kind, exact, *others, **named: real(self, kind, emptied(exact), *others, **named)

    def step(real: Any) -> Any:
        def watched(self: Any, rows: Any, outlet: Any) -> Any:
            _watched.rows.append(rows.copy())
            return _watched.after(real(self, rows, outlet))

        return watched

    def step_gram(real: Any) -> Any:
        def watched(self: Any, count: int, high: Any, low: Any, outlet: Any) -> Any:
            _watched.counts.append(count)
            return _watched.after(real(self, count, high, low, outlet))

        return watched

    try:
        patch(Outlet, "hide", hide)
        patch(Outlet, "running", blinded)
        patch(Outlet, "release", blinded)
        patch(FPLProcessor, "step", step)
        patch(TumblingProcessor, "step", step)
        patch(LeaderProcessor, "step_gram", step_gram)
        yield
    finally:
        for kind, name, real in before:
            setattr(kind, name, real)


def main(argv: list[str]) -> int:
    from streampca.cli import main as command

    with installed(), watching() as seen:
        code = command(argv[1:])
        np.savez(argv[0], rows=seen.matrix())
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
