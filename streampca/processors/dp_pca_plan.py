"""The public schedule of DP-PCA: which rows serve which purpose. Fixed before any row.

A row is in one segment and each segment is one mechanism with the full
budget, so all of them together cost that budget once: they compose in
parallel, adaptively, the segments being public.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from streampca.errors import BadParameter
from streampca.mechanisms.centre import PrivateCentre
from streampca.mechanisms.eigenvalue import PrivateEigenvalue
from streampca.privacy.budget import Budget

Purpose = Literal["top", "range", "centre", "mean", "compare", "norm", "inside", "across"]
#: Purposes with which a minibatch ends.
ENDS = ("mean", "compare", "across")

#: Fewest minibatches to a run: from a random start to a direction.
MIN_STEPS = 4
#: Learning rates (c1, c2) that the search compares, for steps of c1 / (c2 + t).
CANDIDATES: tuple[tuple[float, float], ...] = ((2.0, 0.0), (8.0, 0.0), (32.0, 0.0), (2.0, 2.0), (8.0, 2.0), (32.0, 2.0))
#: A minibatch is one part in so many of all rows of its run before it.
_GROWTH = 2


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


@dataclass(frozen=True)
class Plan:
    """The mechanisms of a minibatch of the centred ascent, and the schedule of all of them."""

    top: PrivateEigenvalue
    range: PrivateEigenvalue
    centre: PrivateCentre
    segments: tuple[Segment, ...]

    @classmethod
    def make(
        cls, n_features: int, n_components: int, horizon: int, budget: Budget,
        batch_size: int | Literal["auto"], candidates: int,
    ) -> Plan:  # fmt: skip
        """Lay out minibatches over ``horizon`` rows.

        Raises
        ------
        BadParameter
            If the rows are too few for the mechanisms to work: they would be
            private, but say nothing.
        """
        epsilon, delta = budget.epsilon, budget.delta
        top = PrivateEigenvalue(epsilon, delta, pairs=8, statistic="top", bins_per_octave=2, split=2.5)
        ranges = PrivateEigenvalue(epsilon, delta, pairs=4, statistic="range", bins_per_octave=1, split=3.0)
        centre = PrivateCentre(n_features, epsilon, delta, budget.adjacency)
        fixed = top.rows + ranges.rows + centre.rows()
        smallest = fixed + fixed // 2
        if batch_size != "auto":
            if batch_size < smallest:
                raise BadParameter(
                    f"batch_size={batch_size} is too small: at epsilon={epsilon:g}, delta={delta:g} and {n_features} "
                    f"features a minibatch needs {top.rows} rows for the spread, {ranges.rows} for the range, "
                    f"{centre.rows()} for the centre and half as many again to learn from: {smallest}; use 'auto'"
                )
            smallest = batch_size
        compare = 0 if candidates == 1 else math.ceil(20.0 * math.sqrt(candidates) / budget.mu)
        per_run = (horizon // n_components - compare) // candidates
        if per_run < MIN_STEPS * smallest:
            needed = n_components * (compare + candidates * MIN_STEPS * smallest)
            runs = "" if candidates == 1 else f" for each of {candidates} learning rates"
            raise BadParameter(
                f"horizon={horizon} rows are too few for DPPCA: {n_components} component(s) of at least {MIN_STEPS} "
                f"minibatches of {smallest} rows{runs} need {needed}. Pass more rows or a larger epsilon, or use "
                "GaussianCovariance or PrivateOja, which work at any n"
            )
        fixed_rows: dict[Purpose, int] = {"top": top.rows, "range": ranges.rows, "centre": centre.rows()}
        segments: list[Segment] = []
        for component in range(n_components):
            at = component * (horizon // n_components)
            for candidate in range(candidates):
                for step, (first, last) in enumerate(batches(per_run, smallest, batch_size == "auto")):
                    for purpose, rows in fixed_rows.items():
                        at += rows
                        segments.append(Segment(at, rows, purpose, component, candidate, step, last))
                    at += last - first - fixed
                    is_last = last == per_run
                    segments.append(
                        Segment(at, last - first - fixed, "mean", component, candidate, step, last, is_last)
                    )
            if candidates > 1:
                stop = (component + 1) * (horizon // n_components)
                segments.append(Segment(stop, stop - at, "compare", component))
        return cls(top, ranges, centre, tuple(segments))


def batches(rows: int, smallest: int, growing: bool, at_least: int = MIN_STEPS) -> Iterator[tuple[int, int]]:
    """Bounds of minibatches of one run: at least so many, the last one ending with it."""
    bounds = [rows]
    while True:
        end, before = bounds[0], bounds[0] - smallest
        if growing:
            spared = (at_least - len(bounds)) * smallest
            before = min(before, max(end * _GROWTH // (_GROWTH + 1), spared))
        if before < smallest:
            break
        bounds.insert(0, before)
    return itertools.pairwise([0, *bounds])
