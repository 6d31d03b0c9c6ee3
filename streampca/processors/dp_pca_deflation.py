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

from streampca.linalg.eigen import orthonormal
from streampca.linalg.types import FloatArray
from streampca.mechanisms.eigenvalue import PrivateEigenvalue
from streampca.mechanisms.mean import BINS, ClippedMean, PrivateCenter
from streampca.privacy.budget import Budget
from streampca.privacy.outlet import Outlet
from streampca.processors.ascent import CHUNK, GAIN, GRID, Engine, Plan, Purpose, Segment, batches, minibatch, step_size
from streampca.state import State

#: Least number of minibatches in a run, from a random start to a direction.
MIN_STEPS = 4
#: The least horizon, divided by the rows of `MIN_STEPS` minibatches. On rows as in `dp_pca_tangent`, no run of 80
#: captured less than .98 of the variance; without the margin 5 of 40 did.
MARGIN = 2
#: Learning rates (c1, c2) that the search compares, for steps of c1 / (c2 + t).
CANDIDATES: tuple[tuple[float, float], ...] = ((2.0, 0.0), (8.0, 0.0), (32.0, 0.0), (2.0, 2.0), (8.0, 2.0), (32.0, 2.0))
#: Smallest radius and bin: the lattice of the rows.
_FINEST = 2.0**-20
#: Width of a bin in (estimated) standard deviations.
_WIDTH = 1.2

Rate = tuple[float, float] | Literal["search"] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Ascent(State):
    """An iterate of the ascent to an eigenvector, and private estimates of the gradients there: an immutable value."""

    kept = ("direction", "guess", "center", "radius", "doubt", "value", "spread", "range")

    direction: FloatArray  # (d,) unit vector
    guess: FloatArray  # gradient predicted from earlier steps
    center: FloatArray  # of the ball that the next mean clips to
    radius: float = 1.0  # of that ball
    doubt: float = math.inf  # estimated squared error of the guess
    value: float = 0.0  # latest private estimate of w^T E[a a^T] w
    spread: float | None = None  # top variance of the gradients; None if the mechanism had no answer
    range: float | None = None  # largest squared distance of a gradient from the mean; None as above

    @classmethod
    def start(cls, direction: FloatArray) -> Ascent:
        """Return the ascent from a unit vector that is independent of the rows."""
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
        """Set the ball for the mean from a private center, whose coordinates are valid where ``found``."""
        width, d = self.width, center.size
        doubt = d * width**2 / 12.0  # variance of a uniform error within a bin, over d coordinates
        if self.range is None:
            # Every gradient is in this ball.
            return replace(self, center=np.zeros(d), radius=1.0)
        # A coordinate keeps the predicted center if that has the smaller estimated error, unless its bin is far from
        # the popular one.
        if self.doubt < doubt:
            keep = ~found | (np.abs(center - self.guess) <= 1.5 * width)
            center, doubt = np.where(keep, self.guess, center), self.doubt
        return replace(self, center=center, radius=min(max(math.sqrt(self.range + doubt), _FINEST), 1.0))

    def moved(
        self, gradient: FloatArray, std: float, count: int, step: int, used: int, rate: tuple[float, float] | None
    ) -> Self:
        """Make a step on a private mean gradient.

        Parameters
        ----------
        gradient : (d,) array.
        std, count : standard deviation of the noise in the sum of gradients, and their number.
        step : minibatches before it in this run.
        used : rows of the run up to its end.
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
        # The gradient at w does not predict the one at a distant direction, so a large move voids the guess.
        overlap = float(w @ direction)
        strayed = float(np.sum((gradient - guess) ** 2) + np.sum(gradient**2) * (1.0 - overlap**2))
        doubt = strayed / overlap**2 if overlap > 0.5 else math.inf
        return replace(self, direction=direction, value=along, guess=guess, doubt=doubt)

    def _share(self, gradient: FloatArray, along: float, std: float, count: int, used: int) -> float:
        """Step size, relative to a step of the power method."""
        across = float(gradient @ gradient) - along**2
        if along <= 0.0 or across <= 0.0:
            return 1.0
        noise = gradient.size * (std / count) ** 2 + (self.range or 0.0) / count
        return step_size(noise, across, count, used)


@dataclass(frozen=True)
class DeflationPlan(Plan):
    """The schedule of the centered ascent. Each segment is one mechanism, (epsilon, delta)-DP in its own rows.

    - ``top``, ``range``: votes for the spread of gradients (`PrivateEigenvalue`).
    - ``center``: votes for their center (`PrivateCenter`).
    - ``mean``: their clipped mean (`ClippedMean`): mu-GDP.
    - ``compare``: scores of the search's finalists: mu-GDP.

    A component has horizon / k rows of its own, which are projected off the components before it. Only ``mean`` grows
    with the length of a minibatch.
    """

    n_features: int
    n_components: int
    budget: Budget
    rate: Rate  # (c1, c2) for steps of c1 / (c2 + t), "search" among `CANDIDATES`, or None for `Ascent` to choose
    top: PrivateEigenvalue
    range: PrivateEigenvalue
    center: PrivateCenter
    segments: tuple[Segment, ...]

    @classmethod
    def make(
        cls, n_features: int, n_components: int, horizon: int, budget: Budget, batch_size: int | Literal["auto"],
        rate: Rate,
    ) -> DeflationPlan:  # fmt: skip
        """Lay out minibatches over ``horizon`` rows, or raise `BadParameterError` if they are too few."""
        candidates = len(CANDIDATES) if rate == "search" else 1
        epsilon, delta = budget.epsilon, budget.delta
        # `top` votes for the variance of the gradients, `range` for their largest distance from the mean.
        top = PrivateEigenvalue(epsilon, delta, pairs=8, statistic="top", bins_per_octave=2, split=2.5)
        ranges = PrivateEigenvalue(epsilon, delta, pairs=4, statistic="range", bins_per_octave=1, split=3.0)
        center = PrivateCenter(n_features, epsilon, delta, budget.adjacency)
        fixed = top.rows + ranges.rows + center.rows
        compare = 0 if candidates == 1 else math.ceil(20.0 * math.sqrt(candidates) / budget.mu)
        smallest = minibatch(
            batch_size, fixed + fixed // 2, n_components * candidates * MIN_STEPS, horizon,
            MARGIN if candidates == 1 else 1, budget, n_features, n_components * compare,
        )  # fmt: skip
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
        """Return the mechanism of the mean of gradients clipped to a radius."""
        # The gradients a (a^T w) of rows of the unit ball fill a ball of diameter 1.
        return ClippedMean(self.mu, self.n_features, radius, self.budget.adjacency, diameter=1.0)

    def compare_std(self, finalists: int) -> float:
        """Standard deviation of the noise in the scores of ``finalists`` directions."""
        # A row adds a number in [0, 1] to each score, so zero-out and replace move it by at most 1.
        return math.sqrt(finalists) * (1.0 + 1e-9) / self.mu

    def constants(self) -> tuple[object, ...]:
        votes = [mechanism.histogram for mechanism in (self.top, self.range)]
        center = self.center.histograms
        return (
            *(number for histogram in votes for number in (histogram.scale, histogram.threshold)),
            center.std, center.threshold, self.mean(1.0).std, self.compare_std(len(CANDIDATES)), GRID,
            GAIN, CANDIDATES, self.rate,
        )  # fmt: skip

    def begin(self, basis: FloatArray) -> Deflation:
        d, k = basis.shape
        fallbacks = {"spread": 0, "range": 0, "center_coordinates": 0}
        return Deflation(
            plan=self, at=-1, tally=np.zeros(0), fallbacks=fallbacks, random=basis, found=np.zeros((d, 0)),
            values=np.zeros(k), finalists=np.zeros((0, d)), ascent=Ascent.start(basis[:, 0].copy()),
        ).opened()  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Deflation(Engine):
    """State of a centered ascent."""

    plan: DeflationPlan
    random: FloatArray  # (d, k) orthonormal: the starts of the components
    found: FloatArray  # (d, j) orthonormal: the components that are done
    values: FloatArray  # (k,) latest private mean rewards of the components
    finalists: FloatArray  # (c, d) results of the search for the current component
    ascent: Ascent  # the current run

    kept = ("found", "values", "finalists", "ascent")

    def chunk(self, segment: Segment) -> int:
        pairs = {"top": self.plan.top.pairs, "range": self.plan.range.pairs}.get(segment.purpose)
        return CHUNK if pairs is None else 2 * pairs

    def empty(self, segment: Segment) -> npt.NDArray[Any]:
        d = self.random.shape[0]
        if segment.purpose == "center":
            return np.zeros((d, BINS), dtype=np.int64)
        if segment.purpose in ("top", "range"):
            return np.zeros(0, dtype=np.int64)
        return np.zeros(d if segment.purpose == "mean" else self.finalists.shape[0])

    def take(self, segment: Segment, rows: FloatArray) -> Deflation:
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
        plan, ascent = self.plan, self.ascent
        if segment.purpose == "mean":
            return self._moved(segment, outlet)
        if segment.purpose == "compare":
            # Keep the finalist that captures most of further rows, by noisy scores.
            scores = outlet.gaussian("compare", self.tally, plan.compare_std(self.tally.size), GRID)
            best = int(np.argmax(scores))
            return self.next_run(segment, float(scores[best]) / segment.rows, self.finalists[best])
        name, missing = "spread", 0
        if segment.purpose == "top":
            spread = plan.top.decide(self.tally, outlet, "top")
            ascent, missing = replace(ascent, spread=spread), int(spread is None)
        elif segment.purpose == "range":
            largest = plan.range.decide(self.tally, outlet, "range")
            name, ascent, missing = "range", replace(ascent, range=largest), int(largest is None)
        else:
            center, found = plan.center.decide(self.tally, ascent.width, ascent.guess, outlet, "center")
            name, ascent, missing = "center_coordinates", ascent.placed(center, found), int((~found).sum())
        return self.opened(ascent=ascent, fallbacks=self.fallbacks | {name: self.fallbacks[name] + missing})

    def _moved(self, segment: Segment, outlet: Outlet) -> Deflation:
        """Make a step of the ascent, and end its run if it is the last."""
        plan, mean = self.plan, self.plan.mean(self.ascent.radius)
        gradient = self.ascent.center + mean.release(self.tally, segment.rows, outlet, "mean")
        gradient = _deflated(gradient[None], self.found)[0]
        rate = CANDIDATES[segment.candidate] if plan.rate == "search" else plan.rate
        ascent = self.ascent.moved(gradient, mean.std, segment.rows, segment.step, segment.used, rate)
        after = replace(self, ascent=ascent)
        if segment.last and plan.rate == "search":
            finalists = np.vstack([self.finalists, ascent.direction])
            return replace(after, finalists=finalists).next_run(segment, ascent.value, None)
        if segment.last:
            return after.next_run(segment, ascent.value, ascent.direction)
        return after.opened(values=_with(self.values, segment.component, ascent.value))

    def next_run(self, segment: Segment, value: float, direction: FloatArray | None) -> Deflation:
        """Start the run of the next learning rate, or of the next component once ``direction`` is kept."""
        found, finalists, ascent = self.found, self.finalists, self.ascent
        if direction is not None:
            found, finalists = orthonormal(np.column_stack([found, direction])), np.zeros((0, direction.size))
        if found.shape[1] < self.values.size:  # else the last run stays
            start = _deflated(self.random[:, found.shape[1]][None], found)[0]
            ascent = Ascent.start(start / np.linalg.norm(start))
        values = _with(self.values, segment.component, value)
        return self.opened(found=found, values=values, finalists=finalists, ascent=ascent)

    def subspace(self) -> tuple[FloatArray, FloatArray]:
        columns, done = [self.found], self.found.shape[1]
        if done < self.values.size:
            columns += [self.ascent.direction[:, None], self.random[:, done + 1 :]]
        order = np.argsort(-self.values, kind="stable")
        return orthonormal(np.column_stack(columns))[:, order], np.maximum(self.values[order], 0.0)


def _with(values: FloatArray, place: int, value: float) -> FloatArray:
    """Return a copy of an array with another value at one place."""
    return np.where(np.arange(values.size) == place, value, values)


def _deflated(rows: FloatArray, found: FloatArray) -> FloatArray:
    """Subtract the part of rows in the components found. Their norms do not grow, which the sensitivity needs."""
    if not found.shape[1]:
        return rows
    return rows - (rows @ found) @ found.T
