"""DP-PCA: private PCA whose error falls with the data's own noise, in O(dk) memory.

The gradient ``a a^T W`` is the sum of ``W (W^T a)(a^T W)``, which does not move the span of W, and of the product of
``(I - W W^T) a`` with ``a^T W``, which does. Near the optimum the second part is as small as the noise in the rows, for
any size of the first. Its norm is measured privately, it is clipped to that norm, and the noise is in proportion. The
first part, a k x k matrix, only sets the scale of the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

from streampca.errors import BadParameterError, UsageError
from streampca.linalg.eigen import orthonormal
from streampca.linalg.memory import Rows
from streampca.linalg.svec import svec, svec_size, unsvec
from streampca.linalg.types import FloatArray, IntArray
from streampca.mechanisms.histogram import StabilityHistogram
from streampca.privacy.budget import DELTA, Adjacency, Budget
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.processors.base import Algorithm, Processor
from streampca.processors.oja import GAIN, GRID, released, set_schedule, start_basis
from streampca.release.release import Release
from streampca.release.terms import Terms

#: Norms in a subsample.
SUBSAMPLE = 4
#: Votes, divided by the count at which a bin is released: they may be distributed evenly over this number of bins. And
#: the largest probability of no answer in that case.
_SPLIT, _FAILURE = 3.0, 0.01
#: Label of the bin of exact zeros.
_ZERO = np.iinfo(np.int64).min
#: Bits of the sum's lattice below the radius: sums of 2**26 products are exact.
_BITS = 26
Purpose = Literal["norm", "inside", "across"]
#: Longest horizon. Segments of longer streams would have more rows than sums are exact for.
_LONGEST = 2**27
#: Least number of minibatches, from a random start to a subspace.
MIN_STEPS = 6
#: The least horizon, divided by the rows of `MIN_STEPS` minibatches. On rows N(0, v v^T + I / 100) / 4 no run of 560
#: captured less than .9 of the variance (d = 20, 50, 100; epsilon = 1, 8); at half the horizon 2 of 12 did.
MARGIN = 4
#: The rows before a minibatch, divided by the rows of the minibatch.
_GROWTH = 2
#: Bound on ||(I - W W^T) a|| ||a^T W|| for rows of the unit ball: sin x cos x <= 1/2.
_LARGEST = 0.5
#: All rows divided by the rows in which every step is one of the power method. Their noise is forgotten later.
_EARLY = 8
#: Rows of a minibatch divided by the rows for the scale of the step and the eigenvalues.
_INSIDE = 16
#: Smallest radius.
_FINEST = 2.0**-40
#: Rows added to a tally at a time: whole subsamples of the votes.
_CHUNK = 64


class PrivateRange(StabilityHistogram):
    """The largest squared norm in most subsamples, up to a factor of 2.

    *Guarantee.* (epsilon, delta)-DP under zero-out and under replacement of one vector. A vector is in one subsample,
    so one vote *moves*, also when a vector is only zeroed out, and the histogram is calibrated for that.
    """

    @property
    def rows(self) -> int:
        """Number of vectors for one estimate."""
        return SUBSAMPLE * math.ceil(_SPLIT * self.count_needed(_FAILURE))

    def cast(self, norms: FloatArray) -> IntArray:
        """Return the votes of whole subsamples, from the norms of their vectors. Exact: curator only."""
        largest = (norms.reshape(-1, SUBSAMPLE) ** 2).max(axis=1)
        # Exponents are exact, so that the bin of a number depends on no logarithm.
        return np.where(largest > 0.0, np.frexp(largest)[1].astype(np.int64) - 1, _ZERO)

    def decide(self, labels: IntArray, outlet: Outlet, kind: str) -> float | None:
        """Return the upper end of the most popular bin of `cast`, or None if no bin is popular enough."""
        shown = self.release(labels.tolist(), outlet, kind)
        if not shown:
            return None
        winner = shown[0][0]
        # A bin is an octave of squares, by its lower end; zeros have none, and a bin of their own.
        return 0.0 if winner == _ZERO else float(2.0 ** (winner + 1))


@dataclass(frozen=True)
class ClippedMean:
    """The noisy mean of clipped (d, k) products of vectors, from exact sums of blocks, which can be added.

    Bounds of the blocks must not depend on the rows.

    *Guarantee.* mu-GDP for one release. One row moves the sum by at most ``radius`` (zero-out) or twice that (replace).
    Sums and noise are on a lattice of step radius * 2**-26 or less, which the sensitivity allows for.
    """

    mu: float
    size: int  # numbers in a product
    radius: float  # public bound on the norm; longer products are scaled to it
    adjacency: Adjacency
    grid: float = field(init=False)  # step of the lattice of sums
    #: Standard deviation of each number of the noise in the sum; that in the mean is this over the count.
    std: float = field(init=False)

    def __post_init__(self) -> None:
        moved = self.radius if self.adjacency == "zero-out" else 2.0 * self.radius
        grid = 2.0 ** (math.floor(math.log2(self.radius)) - _BITS)
        # Rounding the sum moves each of its numbers by at most half a step, in either neighbor.
        std = (moved * (1.0 + 1e-9) + math.sqrt(self.size) * grid) / self.mu
        vars(self).update(grid=grid, std=std)

    def products(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the exact (d, k) sum of the clipped products of rows of (n, d) and (n, k). Curator only."""
        # |a b^T| = |a| |b| in Frobenius norm, so a row's product is clipped by a weight, and never formed. The sum is
        # rounded once, for which `std` allows.
        squares = np.einsum("ij,ij->i", left, left) * np.einsum("ij,ij->i", right, right)
        weights = self.radius / np.maximum(np.sqrt(squares), self.radius)
        return np.asarray(np.rint(left.T @ (right * weights[:, None]) / self.grid) * self.grid)

    def release(self, total: FloatArray, count: int, outlet: Outlet, kind: str) -> FloatArray:
        """Return the noisy mean, from a sum over ``count`` rows, a public number of at least 1."""
        return outlet.gaussian(kind, total, self.std, self.grid) / count


@dataclass(frozen=True, kw_only=True)
class DPPCA(Algorithm):
    """Private PCA by minibatch ascent with noise fitted to the noise in the rows.

    Noise is in proportion to the spread of the gradients that move the subspace, which is measured privately, so that
    the error falls to zero with the noise in the rows. All rows are private; only accuracy assumes that they are
    independent and light-tailed. `GaussianCovariance` is the better choice for noisy rows of few features.

    Parameters
    ----------
    n_components : dimension of the subspace, k.
    epsilon, delta : privacy budget of all releases.
    horizon : rows in the stream, at most 2**27, because minibatches are laid out before any row. The least horizon is
        one at which fewer than 1 run in 100 fails on rows whose squared norm is 1/16 or more on average.
    batch_size : rows in a minibatch; ``"auto"`` makes each half as long as all before it, if the mechanisms allow. With
        a number, shorter horizons are accepted and more runs fail.
    learning_rate : ``"adaptive"`` weighs each step by private estimates of its noise; ``(c1, c2)`` makes steps of
        ``c1 / (c2 + t)`` on the mean gradient at minibatch t.
    adjacency : ``"zero-out"`` or ``"replace"``.

    Notes
    -----
    *Guarantee.* (epsilon, delta)-DP under the stated adjacency for all releases and all steps together. Rows are laid
    out in public segments, one mechanism each, and each mechanism is (epsilon, delta)-DP in its own rows given earlier
    releases. A row is in one segment, so by parallel composition each segment spends the full budget.

    A norm without an answer has a public fallback, and ``release.details["fallbacks"]`` counts them. Eigenvalues are t
    times private mean rewards of the latest minibatch.
    """

    n_components: int
    epsilon: float
    delta: float = DELTA
    horizon: int
    batch_size: int | Literal["auto"] = "auto"
    learning_rate: Literal["adaptive"] | tuple[float, float] = "adaptive"
    adjacency: Adjacency = "zero-out"
    schedule: tuple[float, float] | None = field(init=False, default=None, repr=False, compare=False)

    is_gaussian = False
    scope = "all releases of the stream, and every step in between"
    theorem = "parallel composition of votes and means on disjoint rows"
    citation = (
        "Liu, Kong, Jain and Oh 2022, Algorithms 3 to 5; Duengler and Sanyal 2025 (arXiv 2508.10879), Algorithm 1"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.budget.mu
        if self.horizon > _LONGEST:
            raise BadParameterError("horizon", self.horizon, f"at most {_LONGEST}", advice="Use PrivateOja")
        set_schedule(self)

    def plan(self, n_features: int) -> Plan:
        """Return the public schedule for ``n_features`` features; `UsageError` if the horizon is too short."""
        k, horizon, batch_size, budget = self.n_components, self.horizon, self.batch_size, self.budget
        votes = PrivateRange(budget.epsilon, budget.delta)
        # With these rows the noise of the k x k matrix, about k / mu, is a 40th of their number, and that of the mean
        # step a quarter of the radius.
        inside = math.ceil(40.0 * k / budget.mu)
        smallest = 2 * (votes.rows + inside) + math.ceil(4.0 * math.sqrt(n_features * k) / budget.mu)
        rows, margin = (smallest, MARGIN) if batch_size == "auto" else (batch_size, 1)
        if rows < smallest:
            raise BadParameterError(
                "batch_size", rows, f"at least {smallest} or 'auto' at epsilon={budget.epsilon:g}, "
                f"delta={budget.delta:g} and {n_features} features"
            )  # fmt: skip
        needed, own, why = MIN_STEPS * rows, "", ""
        if margin > 1:
            why = " for fewer than 1 run in 100 to fail"
            own = f" With batch_size={rows} it needs {needed}, and fails more often."
        if horizon < margin * needed:
            raise UsageError(
                f"horizon={horizon} rows are too few for DPPCA: minibatches of {rows} rows or more need "
                f"{margin * needed}{why}. Pass more rows or a larger epsilon, or use GaussianCovariance or "
                f"PrivateOja, which work at any n.{own}"
            )
        segments = []
        for step, (first, last) in enumerate(_minibatches(horizon, rows, growing=batch_size == "auto")):
            scale = max(inside, (last - first) // _INSIDE)
            across = last - first - votes.rows - scale
            parts: dict[Purpose, int] = {"norm": votes.rows, "inside": scale, "across": across}
            for purpose, count in parts.items():
                first += count
                segments.append(Segment(first, count, purpose, step, last))
        # If k is 1, a row adds a number in [0, 1], and replacing it moves the sum by at most 1.
        exact = 1.0 if k == 1 else budget.sensitivity()
        inside_std = (exact * (1.0 + 1e-9) + math.sqrt(svec_size(k)) * GRID) / budget.mu
        return Plan(n_features, k, budget, votes, inside_std, tuple(segments))

    def check(self, n_features: int) -> None:
        super().check(n_features)
        self.plan(n_features)

    def constants(self, n_features: int) -> tuple[object, ...]:
        plan = self.plan(n_features)
        return (
            plan.votes.scale, plan.votes.threshold, plan.inside_std, plan.across(_LARGEST).std, GRID,
            GAIN, _LARGEST, _EARLY, _INSIDE, _FINEST, self.schedule,
        )  # fmt: skip


@dataclass(frozen=True)
class Segment:
    """Consecutive rows of one mechanism."""

    stop: int  # last row
    rows: int
    purpose: Purpose
    step: int  # number of the minibatch, from 0
    used: int  # rows up to the end of the minibatch


@dataclass(frozen=True)
class Plan:
    """The public schedule. Each segment is one mechanism, (epsilon, delta)-DP in its own rows.

    - ``norm``: votes for the largest squared norm of the moving part (`PrivateRange`).
    - ``inside``: the sum of ``(W^T a)(a^T W)``, whose svec has norm at most 1, with Gaussian noise: mu-GDP.
    - ``across``: the clipped sum of the moving parts (`ClippedMean`): mu-GDP. It ends the minibatch.
    """

    n_features: int
    n_components: int
    budget: Budget
    votes: PrivateRange  # for the norm
    inside_std: float  # of the noise in the sum of ``(W^T a)(a^T W)`` over rows of the unit ball
    segments: tuple[Segment, ...]

    def across(self, radius: float) -> ClippedMean:
        """Return the mechanism of the mean of the moving parts, clipped to a radius."""
        return ClippedMean(self.budget.mu, self.n_features * self.n_components, radius, self.budget.adjacency)


def _minibatches(horizon: int, smallest: int, *, growing: bool) -> Iterator[tuple[int, int]]:
    """Return the bounds of the minibatches, at least `MIN_STEPS` of them."""
    # Counted back from the end, so that the last minibatch, which has the least noise, is a full one.
    bounds = [horizon]
    while True:
        before = bounds[0] - smallest
        if growing:
            spared = (MIN_STEPS - len(bounds)) * smallest
            before = min(before, max(bounds[0] * _GROWTH // (_GROWTH + 1), spared))
        if before < smallest:
            return pairwise([0, *bounds])
        bounds.insert(0, before)


class DPPCAProcessor(Processor, of=DPPCA):
    """State of a run of `DPPCA`. All but the tally and the rows that wait is computed from released values."""

    __slots__ = ("at", "basis", "fallbacks", "floor", "inside", "plan", "radius", "tally", "values", "waiting")
    kept = ("at", "tally", "waiting", "basis", "values", "inside", "floor", "radius", "fallbacks")

    algorithm: DPPCA

    def __init__(self, algorithm: DPPCA, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(algorithm, n_features, source, terms)
        k = algorithm.n_components
        self.plan = algorithm.plan(n_features)
        self.at = self.fallbacks = 0  # number of the current segment, and of norms without an answer
        # The exact statistic of the segment's rows so far, and those that are not in it yet.
        self.tally, self.waiting = np.zeros(0), Rows(n_features)
        self.basis = start_basis(n_features, k, source.start)  # W
        # The latest private mean rewards, largest first, and mean of (W^T a)(a^T W), with the std of its noise.
        self.values, self.inside, self.floor = np.zeros(k), np.eye(k), 1.0
        self.radius = _LARGEST  # that the next moving parts are clipped to

    @property
    def rows_until_release(self) -> int:
        following = self.plan.segments[self.at :]
        return next((segment.stop - self.t for segment in following if segment.purpose == "across"), 0)

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[DPPCAProcessor, Release | None]:
        # All changes are made on a copy, so that an interrupt leaves this value as before.
        after, start, count = self.after(self.t, self.chain), 0, rows.shape[0]
        while start < count:
            segment = after.plan.segments[after.at]
            # Privacy: sums are rounded once a chunk, so chunks begin at public rows, however rows arrive.
            stop = min(count, start + _CHUNK - after.waiting.count, start + segment.stop - after.t)
            after.waiting = after.waiting.append(rows[start:stop])
            start, after.t = stop, after.t + stop - start
            if after.waiting.count == _CHUNK or after.t == segment.stop:
                after.take(segment, after.waiting.array)
                after.waiting = Rows(self.n_features)
            if after.t == segment.stop:
                after.close(segment, outlet)
        after.chain = outlet.chain
        if after.t != segment.stop or segment.purpose != "across":
            return after, None
        return after, released(after, after.basis, after.values * after.t, fallbacks={"norm": after.fallbacks})

    def take(self, segment: Segment, rows: FloatArray) -> None:
        """Add rows of the segment to the tally, in place. The first rows of a segment replace an empty tally."""
        # a^T W, and the part (I - W W^T) a of each row outside the span
        scores = rows @ self.basis
        rest = rows - scores @ self.basis.T
        if segment.purpose == "norm":
            norms = np.sqrt(np.einsum("ij,ij->i", rest, rest) * np.einsum("ij,ij->i", scores, scores))
            self.tally = np.append(self.tally, self.plan.votes.cast(norms))
            return
        if segment.purpose == "inside":
            added = np.rint(svec(scores.T @ scores) / GRID) * GRID
        else:
            added = self.plan.across(self.radius).products(rest, scores)
        self.tally = self.tally + added if self.tally.size else added

    def close(self, segment: Segment, outlet: Outlet) -> None:
        """Release the segment's tally once, and use the answer, in place."""
        plan, tally = self.plan, self.tally
        self.at, self.tally = self.at + 1, np.zeros(0)
        if segment.purpose == "norm":
            square = plan.votes.decide(tally.astype(np.int64), outlet, "norm")
            self.radius = _LARGEST if square is None else min(max(math.sqrt(square), _FINEST), _LARGEST)
            self.fallbacks += square is None
        elif segment.purpose == "inside":
            noisy = outlet.gaussian("inside", tally, plan.inside_std, GRID)
            self.inside = unsvec(noisy / segment.rows, self.values.size)
            self.floor = plan.inside_std / segment.rows
        else:
            mean = plan.across(self.radius)
            self.move(segment, mean.release(tally, segment.rows, outlet, "across"), mean.std)

    def move(self, segment: Segment, across: FloatArray, std: float) -> None:
        """Make one step from private answers, in place: post-processing."""
        # Noise within the span does not move it, so it is projected off. Columns turn to the private eigenvectors of
        # the rewards, for a step size each.
        across = across - self.basis @ (self.basis.T @ across)
        values, turn = np.linalg.eigh(self.inside)
        values, turn = values[::-1], turn[:, ::-1]
        across = across @ turn
        schedule = self.algorithm.schedule
        if schedule is not None:
            step = across * (schedule[0] / (schedule[1] + segment.step + 1))
        else:
            share = 1.0  # of a step of the power method
            if segment.step > 0 and segment.used * _EARLY >= self.algorithm.horizon:
                # The share that is best for a gradient of this energy and noise, at least that of steps of c / t.
                # The noise is that of privacy, and that of sampling if squared norms are half of the largest on
                # average.
                noise = across.size * (std / segment.rows) ** 2 + 0.5 * self.radius**2 / segment.rows
                c = GAIN * segment.rows / segment.used
                share = max(c / (1.0 + c), 1.0 - noise / max(float(np.sum(across**2)), 1e-300))
            step = across * (share / np.maximum(values, self.floor))
        self.basis = np.asfortranarray(orthonormal(self.basis @ turn + step))
        self.values = np.maximum(values, 0.0)
