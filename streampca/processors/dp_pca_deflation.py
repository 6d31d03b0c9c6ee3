"""The centered ascent of DP-PCA: one component after another, on gradients about a private center.

Algorithms 3 to 5 of Liu, Kong, Jain and Oh 2022, and Algorithm 1 of Duengler
and Sanyal 2025 (k-DP-PCA) for more than one component.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from streampca.errors import BadParameterError
from streampca.linalg.eigen import orthonormal
from streampca.linalg.types import FloatArray
from streampca.mechanisms.eigenvalue import PrivateEigenvalue
from streampca.mechanisms.mean import BINS, ClippedMean, PrivateCenter
from streampca.privacy.budget import Budget
from streampca.privacy.outlet import Outlet
from streampca.processors.ascent import CHUNK, GAIN, GRID, Engine, Plan, Purpose, Segment, batches, check_horizon
from streampca.state import State

#: Fewest minibatches to a run: from a random start to a direction.
MIN_STEPS = 4
#: The least horizon is so many times what they need: on rows as in `dp_pca_tangent`, less than .98 of the variance was
#: captured in 5 of 40 runs without it, in 0 of 80 with it or more.
MARGIN = 2
#: Learning rates (c1, c2) that the search compares, for steps of c1 / (c2 + t).
CANDIDATES: tuple[tuple[float, float], ...] = ((2.0, 0.0), (8.0, 0.0), (32.0, 0.0), (2.0, 2.0), (8.0, 2.0), (32.0, 2.0))
#: Smallest radius and bin: the lattice of the rows.
_FINEST = 2.0**-20
#: Bins are this many (estimated) standard deviations wide.
_WIDTH = 1.2

Rate = tuple[float, float] | Literal["search"] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Ascent(State):
    """A direction on its way to an eigenvector, and what is known of the gradients there: an immutable value.

    Attributes
    ----------
    direction : (d,) unit vector.
    guess : gradient that earlier steps predict; ``doubt`` is its squared error, roughly.
    center, radius : the ball that the next mean clips to.
    value : latest private estimate of w^T E[a a^T] w.
    spread, range : private estimates of the gradients' top variance and of
        their largest squared distance from their mean; None where there was no answer.
    """

    kept = ("direction", "guess", "center", "radius", "doubt", "value", "spread", "range")

    direction: FloatArray
    guess: FloatArray
    center: FloatArray
    radius: float = 1.0
    doubt: float = math.inf
    value: float = 0.0
    spread: float | None = None
    range: float | None = None

    @classmethod
    def start(cls, direction: FloatArray) -> Ascent:
        """The ascent from a unit vector that is independent of the rows."""
        nowhere = np.zeros(direction.size)
        return cls(direction=direction, guess=nowhere, center=nowhere)

    @property
    def width(self) -> float:
        """Width of a bin of the center's histograms."""
        square = self.spread
        if square is None:
            square = 1.0 if self.range is None else 4.0 * self.range / math.sqrt(self.guess.size)
        return max(_WIDTH * math.sqrt(square), _FINEST)

    def placed(self, center: FloatArray, found: npt.NDArray[np.bool_]) -> Self:
        """The ascent with the ball for the mean set from a private center.

        A coordinate keeps the predicted center if that is believed to be the
        better one and its bin, or the next, is the popular one, or if no bin is.
        Without a range, the ball is the one that holds every gradient.
        """
        width, d = self.width, center.size
        doubt = d * width**2 / 12.0
        if self.range is None:
            return replace(self, center=np.zeros(d), radius=1.0)
        if self.doubt < doubt:
            keep = ~found | (np.abs(center - self.guess) <= 1.5 * width)
            center, doubt = np.where(keep, self.guess, center), self.doubt
        return replace(self, center=center, radius=min(max(math.sqrt(self.range + doubt), _FINEST), 1.0))

    def moved(
        self, gradient: FloatArray, std: float, count: int, step: int, used: int, rate: tuple[float, float] | None
    ) -> Self:
        """The ascent after a step on a private mean gradient.

        Parameters
        ----------
        gradient : (d,) array.
        std, count : standard deviation of the noise in the sum it is the mean of, and the number of vectors in it.
        step : minibatches before it in this run; ``used``: rows up to its end.
        rate : (c1, c2) for a step of c1 / (c2 + t), or None for `_share`.
        """
        w = self.direction
        along = float(w @ gradient)
        if rate is not None:
            moved = w + gradient * (rate[0] / (rate[1] + step + 1))
        else:
            share = 1.0 if step == 0 else self._share(gradient, along, std, count, used)
            moved = (1.0 - share) * along * w + share * gradient
        length = float(np.linalg.norm(moved))
        direction = moved / length if length > 0.0 else w
        guess = along * direction
        # A gradient says little of one in another direction: after a large move, any guess is bad.
        overlap = float(w @ direction)
        strayed = float(np.sum((gradient - guess) ** 2) + np.sum(gradient**2) * (1.0 - overlap**2))
        doubt = strayed / overlap**2 if overlap > 0.5 else math.inf
        return replace(self, direction=direction, value=along, guess=guess, doubt=doubt)

    def _share(self, gradient: FloatArray, along: float, std: float, count: int, used: int) -> float:
        """How far to go from the direction to the gradient's: 1 is a step of the power method.

        At least ``c / (1 + c)`` with c = 4 times the minibatch's share of all
        rows so far; and as far as is best for a direction whose error is what
        the gradient's angle to it shows beyond the noise in the gradient.
        """
        across = float(gradient @ gradient) - along**2
        if along <= 0.0 or across <= 0.0:
            return 1.0
        noise = gradient.size * (std / count) ** 2 + (self.range or 0.0) / count
        c = GAIN * count / used
        return max(c / (1.0 + c), 1.0 - noise / across)


@dataclass(frozen=True)
class DeflationPlan(Plan):
    """The schedule of the centered ascent. Each segment is one mechanism, (epsilon, delta)-DP in its own rows.

    - ``top``, ``range``: votes for the spread of gradients (`PrivateEigenvalue`).
    - ``center``: votes for where they gather (`PrivateCenter`).
    - ``mean``: their clipped mean (`ClippedMean`): mu-GDP.
    - ``compare``: scores of the search's finalists: mu-GDP.

    A component has horizon / k rows of its own; rows are projected off the
    components before it. Only the last part of a minibatch grows with n.

    Parameters
    ----------
    n_features, n_components, budget : as in `DPPCA`.
    rate : (c1, c2) for steps of c1 / (c2 + t), "search" among `CANDIDATES`, or None for `Ascent` to choose.
    top, range, center : mechanisms.
    segments : the schedule.
    """

    n_features: int
    n_components: int
    budget: Budget
    rate: Rate
    top: PrivateEigenvalue
    range: PrivateEigenvalue
    center: PrivateCenter
    segments: tuple[Segment, ...]

    @classmethod
    def make(
        cls, n_features: int, n_components: int, horizon: int, budget: Budget, batch_size: int | Literal["auto"],
        rate: Rate,
    ) -> DeflationPlan:  # fmt: skip
        """Lay out minibatches over ``horizon`` rows, or raise `BadParameterError` if they are too few to be of use."""
        candidates = len(CANDIDATES) if rate == "search" else 1
        epsilon, delta = budget.epsilon, budget.delta
        top = PrivateEigenvalue(epsilon, delta, pairs=8, statistic="top", bins_per_octave=2, split=2.5)
        ranges = PrivateEigenvalue(epsilon, delta, pairs=4, statistic="range", bins_per_octave=1, split=3.0)
        center = PrivateCenter(n_features, epsilon, delta, budget.adjacency)
        fixed = top.rows + ranges.rows + center.rows
        smallest = fixed + fixed // 2
        if batch_size != "auto":
            if batch_size < smallest:
                raise BadParameterError(
                    f"batch_size={batch_size} is too small: at epsilon={epsilon:g}, delta={delta:g} and {n_features} "
                    f"features a minibatch needs {top.rows} rows for the spread, {ranges.rows} for the range, "
                    f"{center.rows} for the center and half as many again to learn from: {smallest}; use 'auto'"
                )
            smallest = batch_size
        compare = 0 if candidates == 1 else math.ceil(20.0 * math.sqrt(candidates) / budget.mu)
        margin = MARGIN if batch_size == "auto" and candidates == 1 else 1
        needed = n_components * (compare + candidates * MIN_STEPS * smallest)
        check_horizon(horizon, needed, smallest, margin)
        per_run = (horizon // n_components - compare) // candidates
        fixed_rows: dict[Purpose, int] = {"top": top.rows, "range": ranges.rows, "center": center.rows}
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
        return cls(n_features, n_components, budget, rate, top, ranges, center, tuple(segments))

    def mean(self, radius: float) -> ClippedMean:
        """The mean of gradients clipped to a radius. Those of the unit ball, a (a^T w), fill a ball of diameter 1."""
        return ClippedMean(self.mu, self.n_features, radius, self.budget.adjacency, diameter=1.0)

    def compare_std(self, finalists: int) -> float:
        """Standard deviation of the noise in scores: a row adds at most 1 to each finalist's, zero-out or replace."""
        return math.sqrt(finalists) * (1.0 + 1e-9) / self.mu

    def constants(self) -> tuple[object, ...]:
        """Scales and thresholds of votes, standard deviations, lattice and rates."""
        votes = [mechanism.histogram for mechanism in (self.top, self.range)]
        center = self.center.histograms
        return (
            *(number for histogram in votes for number in (histogram.scale, histogram.threshold)),
            center.std, center.threshold, self.mean(1.0).std, self.compare_std(len(CANDIDATES)), GRID,
            GAIN, CANDIDATES, self.rate,
        )  # fmt: skip

    def begin(self, basis: FloatArray) -> Deflation:
        """The ascent before the first row."""
        d, k = basis.shape
        fallbacks = {"spread": 0, "range": 0, "center_coordinates": 0}
        return Deflation(
            plan=self, at=-1, tally=np.zeros(0), fallbacks=fallbacks, random=basis, found=np.zeros((d, 0)),
            values=np.zeros(k), finalists=np.zeros((0, d)), ascent=Ascent.start(basis[:, 0].copy()),
        ).opened()  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Deflation(Engine):
    """State of a centered ascent. All but the tally is private.

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

    kept = ("found", "values", "finalists", "ascent")

    def chunk(self, segment: Segment) -> int:
        """Rows to hand over at a time."""
        pairs = {"top": self.plan.top.pairs, "range": self.plan.range.pairs}.get(segment.purpose)
        return CHUNK if pairs is None else 2 * pairs

    def empty(self, segment: Segment) -> npt.NDArray[Any]:
        """The tally of no rows."""
        d = self.random.shape[0]
        if segment.purpose == "center":
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
        if segment.purpose == "center":
            return replace(self, tally=self.tally + plan.center.count(gradients, ascent.width, ascent.guess))
        if segment.purpose == "mean":
            return replace(self, tally=self.tally + plan.mean(ascent.radius).vectors(gradients, ascent.center))
        mechanism = plan.top if segment.purpose == "top" else plan.range
        return replace(self, tally=np.append(self.tally, mechanism.cast(gradients)))

    def close(self, segment: Segment, outlet: Outlet) -> Deflation:
        """Release the tally once; update the ascent from the answer."""
        plan, ascent = self.plan, self.ascent
        if segment.purpose == "top":
            spread = plan.top.decide(self.tally, outlet, "top")
            return self._answered("spread", spread is None, replace(ascent, spread=spread))
        if segment.purpose == "range":
            largest = plan.range.decide(self.tally, outlet, "range")
            return self._answered("range", largest is None, replace(ascent, range=largest))
        if segment.purpose == "center":
            center, found = plan.center.decide(self.tally, ascent.width, ascent.guess, outlet, "center")
            return self._answered("center_coordinates", int((~found).sum()), ascent.placed(center, found))
        if segment.purpose == "mean":
            return self._moved(segment, outlet)
        return self._chosen(segment, outlet)

    def _answered(self, name: str, missing: int, ascent: Ascent) -> Deflation:
        return self.opened(ascent=ascent, fallbacks=self.fallbacks | {name: self.fallbacks[name] + missing})

    def _moved(self, segment: Segment, outlet: Outlet) -> Deflation:
        """A step of the ascent, and the end of its run where it is the last."""
        plan, mean = self.plan, self.plan.mean(self.ascent.radius)
        gradient = self.ascent.center + mean.release(self.tally, segment.rows, outlet, "mean")
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


def _deflated(rows: FloatArray, found: FloatArray) -> FloatArray:
    """Rows without their part in the components found. Never longer than before."""
    if not found.shape[1]:
        return rows
    return rows - (rows @ found) @ found.T
