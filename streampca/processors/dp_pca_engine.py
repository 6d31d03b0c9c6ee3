"""What `DPPCA` and its two ascents share: public segments of rows, and values that absorb them.

A row is in one segment and each segment is one mechanism with the full
budget, so all of them together cost that budget once: they compose in
parallel, adaptively, the segments being public.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from streampca.linalg.lazy import cached_property
from streampca.linalg.types import FloatArray
from streampca.privacy.budget import Budget
from streampca.privacy.outlet import Outlet

Purpose = Literal["top", "range", "centre", "mean", "compare", "norm", "inside", "across"]
#: Purposes with which a minibatch ends.
ENDS = ("mean", "compare", "across")
#: Rows handed over at a time, where votes do not fix it.
CHUNK = 64
#: A minibatch is one part in so many of all rows of its run before it.
GROWTH = 2


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of one purpose: the ``rows`` rows up to row ``stop``.

    ``used`` counts the rows of its run up to the end of its minibatch, which
    is the run's ``step``-th from 0, and maybe its ``last``.
    """

    stop: int
    rows: int
    purpose: Purpose
    component: int
    candidate: int = 0
    step: int = 0
    used: int = 0
    last: bool = False


class Plan(ABC):
    """The public schedule of an ascent and its mechanisms. Fixed before any row.

    Attributes
    ----------
    budget : of each segment's mechanism.
    segments : the schedule.
    """

    budget: Budget
    segments: tuple[Segment, ...]

    @cached_property
    def mu(self) -> float:
        """Gaussian-DP parameter that spends the budget."""
        return self.budget.mu

    @abstractmethod
    def constants(self) -> tuple[object, ...]:
        """Every number the noise is made with."""

    @abstractmethod
    def begin(self, basis: FloatArray) -> Engine:
        """The ascent before the first row, from a (d, k) basis that is independent of all rows."""

    @abstractmethod
    def resume(self, basis: FloatArray, snapshot: Mapping[str, Any]) -> Engine:
        """The ascent of a snapshot; ``basis`` as for `begin`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Engine(ABC):
    """Where an ascent stands: an immutable value.

    Attributes
    ----------
    plan : schedule and mechanisms.
    at : number of the segment in progress.
    tally : the exact statistic of the segment's rows so far. Curator only.
    fallbacks : how often private mechanisms had no answer. Publishable.
    """

    plan: Plan
    at: int
    tally: npt.NDArray[Any]
    fallbacks: dict[str, int]

    @property
    def segment(self) -> Segment | None:
        """The segment in progress; None after the last."""
        segments = self.plan.segments
        return segments[self.at] if self.at < len(segments) else None

    @abstractmethod
    def chunk(self, segment: Segment) -> int:
        """Rows to hand over at a time."""

    @abstractmethod
    def take(self, segment: Segment, rows: FloatArray) -> Self:
        """The ascent with rows of the segment added to the tally."""

    @abstractmethod
    def close(self, segment: Segment, outlet: Outlet) -> Self:
        """Release the segment's tally once, act on the answer, and open the next segment."""

    @abstractmethod
    def subspace(self) -> tuple[FloatArray, FloatArray]:
        """Orthonormal (d, k) basis and (k,) mean rewards, largest first. Publishable."""

    @abstractmethod
    def learnt(self) -> dict[str, Any]:
        """What private answers have taught so far, as plain values and arrays."""

    def snapshot(self) -> dict[str, Any]:
        """Plain values and arrays that `Plan.resume` continues from. Curator only."""
        return {"at": self.at, "tally": self.tally, "fallbacks": self.fallbacks, "learnt": self.learnt()}

    @abstractmethod
    def empty(self, segment: Segment) -> npt.NDArray[Any]:
        """The tally of no rows."""

    def opened(self, **changes: Any) -> Self:
        """The ascent after some changes, at the next segment."""
        after = replace(self, at=self.at + 1, **changes)
        following = after.segment
        return replace(after, tally=np.zeros(0) if following is None else after.empty(following))


def batches(rows: int, smallest: int, growing: bool, at_least: int) -> Iterator[tuple[int, int]]:
    """Bounds of minibatches of one run: at least so many, the last one ending with it."""
    bounds = [rows]
    while True:
        end, before = bounds[0], bounds[0] - smallest
        if growing:
            spared = (at_least - len(bounds)) * smallest
            before = min(before, max(end * GROWTH // (GROWTH + 1), spared))
        if before < smallest:
            break
        bounds.insert(0, before)
    return itertools.pairwise([0, *bounds])
