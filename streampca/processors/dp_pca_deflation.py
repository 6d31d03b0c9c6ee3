"""The centred ascent of DP-PCA: one component after another, on gradients about a private centre.

Algorithms 3 to 5 of Liu, Kong, Jain and Oh 2022, and Algorithm 1 of Duengler
and Sanyal 2025 (k-DP-PCA) for more than one component.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streampca.errors import BadParameter
from streampca.linalg.eigen import orthonormal
from streampca.linalg.types import FloatArray
from streampca.mechanisms.centre import BINS, PrivateCentre
from streampca.mechanisms.eigenvalue import PrivateEigenvalue
from streampca.mechanisms.mean import ClippedMean
from streampca.privacy.budget import Budget
from streampca.privacy.outlet import Outlet
from streampca.processors.dp_pca_ascent import Ascent
from streampca.processors.dp_pca_engine import CHUNK, Engine, Plan, Purpose, Segment, batches
from streampca.processors.oja_steps import GAIN, GRID

#: Fewest minibatches to a run: from a random start to a direction.
MIN_STEPS = 4
#: Learning rates (c1, c2) that the search compares, for steps of c1 / (c2 + t).
CANDIDATES: tuple[tuple[float, float], ...] = ((2.0, 0.0), (8.0, 0.0), (32.0, 0.0), (2.0, 2.0), (8.0, 2.0), (32.0, 2.0))

Rate = tuple[float, float] | Literal["search"] | None


@dataclass(frozen=True)
class DeflationPlan(Plan):
    """The schedule of the centred ascent. Each segment is one mechanism, (epsilon, delta)-DP in its own rows.

    - ``top``, ``range``: votes for the spread of gradients (`PrivateEigenvalue`).
    - ``centre``: votes for where they gather (`PrivateCentre`).
    - ``mean``: their clipped mean (`ClippedMean`): mu-GDP.
    - ``compare``: scores of the search's finalists: mu-GDP.

    A component has horizon / k rows of its own; rows are projected off the
    components before it. (The paper splits a minibatch in half and its budget
    in two; four disjoint parts spend it in full each, and the first three do
    not grow with n.)

    Parameters
    ----------
    n_features, n_components, budget : as in `DPPCA`.
    rate : (c1, c2) for steps of c1 / (c2 + t), "search" among `CANDIDATES`, or None for `Ascent` to choose.
    top, range, centre : mechanisms.
    segments : the schedule.
    """

    n_features: int
    n_components: int
    budget: Budget
    rate: Rate
    top: PrivateEigenvalue
    range: PrivateEigenvalue
    centre: PrivateCentre
    segments: tuple[Segment, ...]

    @classmethod
    def make(
        cls, n_features: int, n_components: int, horizon: int, budget: Budget, batch_size: int | Literal["auto"],
        rate: Rate,
    ) -> DeflationPlan:  # fmt: skip
        """Lay out minibatches over ``horizon`` rows.

        Raises
        ------
        BadParameter
            If the rows are too few for the mechanisms to work: they would be
            private, but say nothing.
        """
        candidates = len(CANDIDATES) if rate == "search" else 1
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
                for step, (first, last) in enumerate(batches(per_run, smallest, batch_size == "auto", MIN_STEPS)):
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
        return cls(n_features, n_components, budget, rate, top, ranges, centre, tuple(segments))

    def mean(self, radius: float) -> ClippedMean:
        """The mean of gradients clipped to a radius. Those of the unit ball, a (a^T w), fill a ball of diameter 1."""
        return ClippedMean(self.mu, self.n_features, radius, self.budget.adjacency, diameter=1.0)

    def compare_std(self, finalists: int) -> float:
        """Sd of the noise in scores: a row adds one in [0, 1] to each finalist's, zero-out or replace."""
        return math.sqrt(finalists) * (1.0 + 1e-9) / self.mu

    def constants(self) -> tuple[object, ...]:
        """Scales and thresholds of votes, standard deviations, lattice and rates."""
        votes = [mechanism.histogram for mechanism in (self.top, self.range)]
        centre = self.centre.histograms
        return (
            *(number for histogram in votes for number in (histogram.scale, histogram.threshold)),
            centre.std, centre.threshold, self.mean(1.0).std, self.compare_std(len(CANDIDATES)), GRID,
            GAIN, CANDIDATES, self.rate,
        )  # fmt: skip

    def begin(self, basis: FloatArray) -> Deflation:
        """The ascent before the first row."""
        d, k = basis.shape
        fallbacks = {"spread": 0, "range": 0, "centre_coordinates": 0}
        return Deflation(
            plan=self, at=-1, tally=np.zeros(0), fallbacks=fallbacks, random=basis, found=np.zeros((d, 0)),
            values=np.zeros(k), finalists=np.zeros((0, d)), ascent=Ascent.start(basis[:, 0].copy()),
        ).opened()  # fmt: skip

    def resume(self, basis: FloatArray, snapshot: Mapping[str, Any]) -> Deflation:
        """The ascent of a snapshot."""
        learnt = snapshot["learnt"]
        return Deflation(
            plan=self, at=int(snapshot["at"]), tally=snapshot["tally"], fallbacks=dict(snapshot["fallbacks"]),
            random=basis, found=learnt["found"], values=learnt["values"], finalists=learnt["finalists"],
            ascent=Ascent.restored(learnt["ascent"]),
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Deflation(Engine):
    """Where a centred ascent stands. All but the tally is private.

    Attributes
    ----------
    random : (d, k) orthonormal array: where components start.
    found : (d, j) orthonormal array: the components that are done.
    values : (k,) array: latest private mean rewards of the components.
    finalists : (c, d) array: directions that the search has found for the component in progress.
    ascent : of the run in progress.
    """

    plan: DeflationPlan
    random: FloatArray
    found: FloatArray
    values: FloatArray
    finalists: FloatArray
    ascent: Ascent

    def chunk(self, segment: Segment) -> int:
        """Rows to hand over at a time."""
        pairs = {"top": self.plan.top.pairs, "range": self.plan.range.pairs}.get(segment.purpose)
        return CHUNK if pairs is None else 2 * pairs

    def empty(self, segment: Segment) -> npt.NDArray[Any]:
        """The tally of no rows."""
        d = self.random.shape[0]
        if segment.purpose == "centre":
            return np.zeros((d, BINS), dtype=np.int64)
        if segment.purpose in ("top", "range"):
            return np.zeros(0, dtype=np.int64)
        return np.zeros(d if segment.purpose == "mean" else self.finalists.shape[0])

    def take(self, segment: Segment, rows: FloatArray) -> Deflation:
        """Add rows to the tally."""
        plan, ascent = self.plan, self.ascent
        rows = _deflated(rows, self.found)
        if segment.purpose == "compare":
            scores = ((rows @ self.finalists.T) ** 2).sum(axis=0)
            return replace(self, tally=self.tally + np.rint(scores / GRID) * GRID)
        gradients = rows * (rows @ ascent.direction)[:, None]
        if segment.purpose == "centre":
            return replace(self, tally=self.tally + plan.centre.count(gradients, ascent.width, ascent.guess))
        if segment.purpose == "mean":
            return replace(self, tally=self.tally + plan.mean(ascent.radius).vectors(gradients, ascent.centre))
        mechanism = plan.top if segment.purpose == "top" else plan.range
        return replace(self, tally=np.append(self.tally, mechanism.cast(gradients)))

    def close(self, segment: Segment, outlet: Outlet) -> Deflation:
        """Release the tally and act on the answer."""
        plan, ascent = self.plan, self.ascent
        if segment.purpose == "top":
            spread = plan.top.decide(self.tally, outlet, "top")
            return self._answered("spread", spread is None, replace(ascent, spread=spread))
        if segment.purpose == "range":
            largest = plan.range.decide(self.tally, outlet, "range")
            return self._answered("range", largest is None, replace(ascent, range=largest))
        if segment.purpose == "centre":
            centre, found = plan.centre.decide(self.tally, ascent.width, ascent.guess, outlet, "centre")
            return self._answered("centre_coordinates", int((~found).sum()), ascent.placed(centre, found))
        if segment.purpose == "mean":
            return self._moved(segment, outlet)
        return self._chosen(segment, outlet)

    def _answered(self, name: str, missing: int, ascent: Ascent) -> Deflation:
        return self.opened(ascent=ascent, fallbacks=self.fallbacks | {name: self.fallbacks[name] + missing})

    def _moved(self, segment: Segment, outlet: Outlet) -> Deflation:
        """A step of the ascent, and the end of its run where it is the last."""
        plan, mean = self.plan, self.plan.mean(self.ascent.radius)
        gradient = self.ascent.centre + mean.release(self.tally, segment.rows, outlet, "mean")
        gradient = _deflated(gradient[None], self.found)[0]
        rate = CANDIDATES[segment.candidate] if plan.rate == "search" else plan.rate
        ascent = self.ascent.moved(gradient, mean.std, segment.rows, segment.step, segment.used, rate)
        values = self._valued(segment.component, ascent.value)
        if not segment.last:
            return self.opened(ascent=ascent, values=values)
        if plan.rate == "search":
            finalists = np.vstack([self.finalists, ascent.direction])
            return self.opened(ascent=self._restarted(self.found), values=values, finalists=finalists)
        return self._kept(ascent.direction, values)

    def _chosen(self, segment: Segment, outlet: Outlet) -> Deflation:
        """Keep the finalist that captures most of further rows, by noisy scores."""
        scores = outlet.gaussian("compare", self.tally, self.plan.compare_std(self.tally.size), GRID)
        best = int(np.argmax(scores))
        return self._kept(self.finalists[best], self._valued(segment.component, float(scores[best]) / segment.rows))

    def _valued(self, component: int, value: float) -> FloatArray:
        values = self.values.copy()
        values[component] = value
        return values

    def _kept(self, direction: FloatArray, values: FloatArray) -> Deflation:
        """One component more is done."""
        found = orthonormal(np.column_stack([self.found, direction]))
        return self.opened(
            found=found, values=values, finalists=np.zeros((0, direction.size)), ascent=self._restarted(found)
        )

    def _restarted(self, found: FloatArray) -> Ascent:
        """A fresh start for one component and one learning rate; the last run's where none is left."""
        if found.shape[1] == self.values.size:
            return self.ascent
        start = _deflated(self.random[:, found.shape[1]][None], found)[0]
        return Ascent.start(start / np.linalg.norm(start))

    def subspace(self) -> tuple[FloatArray, FloatArray]:
        """Basis and mean rewards."""
        columns, done = [self.found], self.found.shape[1]
        if done < self.values.size:
            columns += [self.ascent.direction[:, None], self.random[:, done + 1 :]]
        order = np.argsort(-self.values, kind="stable")
        return orthonormal(np.column_stack(columns))[:, order], np.maximum(self.values[order], 0.0)

    def learnt(self) -> dict[str, Any]:
        """What private answers have taught so far."""
        return {
            "found": self.found,
            "values": self.values,
            "finalists": self.finalists,
            "ascent": self.ascent.snapshot(),
        }


def _deflated(rows: FloatArray, found: FloatArray) -> FloatArray:
    """Rows without their part in the components found. Never longer than before."""
    if not found.shape[1]:
        return rows
    rest: FloatArray = rows - (rows @ found) @ found.T
    return rest
