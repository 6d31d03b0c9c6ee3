"""The tangent ascent of DP-PCA: all components together, on the part of gradients that moves the subspace.

The gradient ``a a^T W`` is the sum of ``W (W^T a)(a^T W)``, which does not move the span of W, and of the product of
``(I - W W^T) a`` with ``a^T W``, which does. Near the optimum the second part is as small as the noise in the rows, for
any size of the first. Its norm is measured privately, it is clipped to that norm, and the noise is in proportion. The
first part, a k x k matrix, only sets the scale of the step.

So no center is needed, k components need no deflation and share all rows, and the noise falls with the noise in the
rows also for k > 1, where gradients of single rows differ within the span by their length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streampca.linalg.eigen import orthonormal
from streampca.linalg.svec import svec, svec_size, unsvec
from streampca.linalg.types import FloatArray
from streampca.mechanisms.eigenvalue import PrivateEigenvalue
from streampca.mechanisms.mean import ClippedMean
from streampca.privacy.budget import Budget
from streampca.privacy.outlet import Outlet
from streampca.processors.ascent import CHUNK, GAIN, GRID, Engine, Plan, Purpose, Segment, batches, minibatch, step_size

#: Least number of minibatches, from a random start to a subspace.
MIN_STEPS = 6
#: The least horizon, divided by the rows of `MIN_STEPS` minibatches. On rows N(0, v v^T + I / 100) / 4 no run of 560
#: captured less than .9 of the variance (d = 20, 50, 100; epsilon = 1, 8); at half the horizon 2 of 12 did.
MARGIN = 4
#: Bound on ||(I - W W^T) a|| ||a^T W|| for rows of the unit ball: sin x cos x <= 1/2.
_LARGEST = 0.5
#: All rows divided by the rows in which every step is one of the power method. Their noise is forgotten later.
_EARLY = 8
#: Rows of a minibatch divided by the rows for the scale of the step and the eigenvalues.
_INSIDE = 16
_FINEST = 2.0**-40


@dataclass(frozen=True)
class TangentPlan(Plan):
    """The schedule of the tangent ascent. Each segment is one mechanism, (epsilon, delta)-DP in its own rows.

    - ``norm``: votes for the largest squared norm of the moving part (`PrivateEigenvalue`).
    - ``inside``: the sum of ``(W^T a)(a^T W)``, whose svec has norm at most 1, with Gaussian noise: mu-GDP.
    - ``across``: the clipped sum of the moving parts (`ClippedMean`): mu-GDP.
    """

    n_features: int
    n_components: int
    budget: Budget
    rate: tuple[float, float] | None  # (c1, c2) for steps of c1 / (c2 + t), or None for `Tangent` to choose
    votes: PrivateEigenvalue  # for the norm
    segments: tuple[Segment, ...]

    @classmethod
    def make(
        cls, n_features: int, n_components: int, horizon: int, budget: Budget, batch_size: int | Literal["auto"],
        rate: tuple[float, float] | None,
    ) -> TangentPlan:  # fmt: skip
        """Lay out minibatches over ``horizon`` rows, or raise `BadParameterError` if they are too few."""
        votes = PrivateEigenvalue(budget.epsilon, budget.delta, pairs=2, statistic="norm", bins_per_octave=1, split=3.0)
        inside = math.ceil(40.0 * n_components / budget.mu)
        fixed = votes.rows + inside
        smallest = 2 * fixed + math.ceil(4.0 * math.sqrt(n_features * n_components) / budget.mu)
        smallest = minibatch(batch_size, smallest, MIN_STEPS, horizon, MARGIN, budget, n_features)
        segments, at = [], 0
        for step, (first, last) in enumerate(batches(horizon, smallest, batch_size == "auto", MIN_STEPS)):
            scale = max(inside, (last - first) // _INSIDE)
            voted = first + votes.rows
            stops: dict[Purpose, int] = {"norm": voted, "inside": voted + scale, "across": last}
            for purpose, stop in stops.items():
                segments.append(Segment(stop, stop - at, purpose, 0, 0, step, last, last == horizon))
                at = stop
        return cls(n_features, n_components, budget, rate, votes, tuple(segments))

    @property
    def inside_std(self) -> float:
        """Standard deviation of the noise in the sum of ``(W^T a)(a^T W)`` over rows of the unit ball."""
        # If k is 1, a row adds a number in [0, 1], and replacing it moves the sum by at most 1.
        exact = 1.0 if self.n_components == 1 else self.budget.sensitivity()
        return (exact * (1.0 + 1e-9) + math.sqrt(svec_size(self.n_components)) * GRID) / self.mu

    def across(self, radius: float) -> ClippedMean:
        """Return the mechanism of the mean of the moving parts, clipped to a radius."""
        return ClippedMean(self.mu, self.n_features * self.n_components, radius, self.budget.adjacency)

    def constants(self) -> tuple[object, ...]:
        histogram = self.votes.histogram
        return (
            histogram.scale, histogram.threshold, self.inside_std, self.across(_LARGEST).std, GRID,
            GAIN, _LARGEST, _EARLY, _INSIDE, _FINEST, self.rate,
        )  # fmt: skip

    def begin(self, basis: FloatArray) -> Tangent:
        k = self.n_components
        return Tangent(
            plan=self, at=-1, tally=np.zeros(0), fallbacks={"norm": 0}, basis=basis, values=np.zeros(k),
            inside=np.eye(k), radius=_LARGEST, floor=1.0,
        ).opened()  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Tangent(Engine):
    """State of a tangent ascent."""

    plan: TangentPlan
    basis: FloatArray  # (d, k) orthonormal, W
    values: FloatArray  # (k,) latest private mean rewards, largest first
    inside: FloatArray  # (k, k) latest private mean of (W^T a)(a^T W)
    radius: float  # bound that the next moving parts are clipped to
    floor: float  # standard deviation of the noise in ``inside``; smaller eigenvalues are noise

    kept = ("basis", "values", "inside", "radius", "floor")

    def chunk(self, segment: Segment) -> int:
        return 2 * self.plan.votes.pairs if segment.purpose == "norm" else CHUNK

    def empty(self, segment: Segment) -> npt.NDArray[Any]:
        if segment.purpose == "norm":
            return np.zeros(0, dtype=np.int64)
        return np.zeros(svec_size(self.values.size) if segment.purpose == "inside" else self.basis.shape)

    def take(self, segment: Segment, rows: FloatArray) -> Tangent:
        scores = rows @ self.basis
        if segment.purpose == "inside":
            return replace(self, tally=self.tally + np.rint(svec(scores.T @ scores) / GRID) * GRID)
        rest = rows - scores @ self.basis.T
        if segment.purpose == "across":
            return replace(self, tally=self.tally + self.plan.across(self.radius).products(rest, scores))
        norms = np.sqrt(np.einsum("ij,ij->i", rest, rest) * np.einsum("ij,ij->i", scores, scores))
        return replace(self, tally=np.append(self.tally, self.plan.votes.cast(norms[:, None])))

    def close(self, segment: Segment, outlet: Outlet) -> Tangent:
        plan = self.plan
        if segment.purpose == "norm":
            square = plan.votes.decide(self.tally, outlet, "norm")
            radius = _LARGEST if square is None else min(max(math.sqrt(square), _FINEST), _LARGEST)
            return self.opened(radius=radius, fallbacks={"norm": self.fallbacks["norm"] + (square is None)})
        if segment.purpose == "inside":
            noisy = outlet.gaussian("inside", self.tally, plan.inside_std, GRID)
            inside = unsvec(noisy / segment.rows, self.values.size)
            return self.opened(inside=inside, floor=plan.inside_std / segment.rows)
        mean = plan.across(self.radius)
        return self._moved(segment, mean.release(self.tally, segment.rows, outlet, "across"), mean.std)

    def _moved(self, segment: Segment, across: FloatArray, std: float) -> Tangent:
        """Make one step from private answers: post-processing."""
        across = across - self.basis @ (self.basis.T @ across)
        values, turn = np.linalg.eigh(self.inside)
        values, turn = values[::-1], turn[:, ::-1]
        basis, across = self.basis @ turn, across @ turn
        rate = self.plan.rate
        if rate is not None:
            step = across * (rate[0] / (rate[1] + segment.step + 1))
        else:
            step = across * (self._share(segment, across, std) / np.maximum(values, self.floor))
        return self.opened(basis=np.asfortranarray(orthonormal(basis + step)), values=np.maximum(values, 0.0))

    def _share(self, segment: Segment, across: FloatArray, std: float) -> float:
        """Step size, relative to a step of the power method."""
        if segment.step == 0 or segment.used * _EARLY < self.plan.segments[-1].stop:
            return 1.0
        # The noise is that of privacy, and that of sampling if squared norms are half of the largest on average.
        noise = across.size * (std / segment.rows) ** 2 + 0.5 * self.radius**2 / segment.rows
        return step_size(noise, max(float(np.sum(across**2)), 1e-300), segment.rows, segment.used)

    def subspace(self) -> tuple[FloatArray, FloatArray]:
        return self.basis, self.values
