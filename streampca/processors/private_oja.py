"""Private Oja: noisy stochastic gradient ascent in O(dk) memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np
from scipy.linalg.blas import dgemm

from streampca.errors import BadParameterError, UsageError
from streampca.linalg.memory import Rows
from streampca.linalg.types import FloatArray
from streampca.privacy.budget import DELTA, Adjacency
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.privacy.unit import Person
from streampca.processors import oja
from streampca.processors.base import Algorithm, Processor
from streampca.processors.oja import EXACT_ROWS, GAIN, GRID, LearningRate
from streampca.release.release import Release
from streampca.release.terms import Terms
from streampca.state import State

#: Covers rounding in the gradients of one row and in the basis.
ROUNDING = 1.0 + 1e-9
#: Rows whose gradients are summed at a time, from the start of a step on.
CHUNK = 64
_FIRST_BATCH = 256
#: The rows before a step, divided by the rows of the step.
_GROWTH = 2


@dataclass(frozen=True, slots=True, eq=False)
class PrivateStepSizes(State):
    """Learning rates from public parameters and private gradients: an immutable value.

    Without a schedule, steps are ``4 / (rayleigh * t)`` a column, where ``rayleigh`` is the running mean of w^T g over
    the rows so far, at least its own noise. These are steps of ``c / t`` with c = 4 / lambda for an unknown lambda,
    and suit eigengaps above lambda / 8.
    """

    kept = ("collected", "variance", "steps")

    schedule: tuple[float, float] | None  # (c, offset) for steps of c / (offset + t), or None
    collected: FloatArray  # (k,) sum of w^T g over the steps so far
    variance: float = 0.0  # of the noise in each entry of it
    steps: int = 0

    def step(
        self, gradient: FloatArray, basis: FloatArray, t: int, noise_std: float
    ) -> tuple[PrivateStepSizes, FloatArray]:
        """Return the rates after one more step, and the step, from the noisy sum of gradients of rows up to row t."""
        # w^T g is the private Rayleigh quotient of each column, times the rows of the step.
        collected = self.collected + np.einsum("ij,ij->j", basis, gradient)
        after = PrivateStepSizes(self.schedule, collected, self.variance + noise_std**2, self.steps + 1)
        if self.schedule is not None:
            return after, gradient * (self.schedule[0] / (self.schedule[1] + t))
        return after, gradient * (GAIN / np.maximum(collected, max(math.sqrt(after.variance), 1e-300)))


def gradient_sensitivity(n_components: int, clip: float, adjacency: Adjacency) -> float:
    """Sensitivity of a sum of clipped gradients ``a a^T W`` to one row, in Frobenius norm.

    For rows of the unit ball and W with orthonormal columns. Let q be the clip. A row a adds ``f a p^T``, where ``p =
    W^T a`` and f is the largest number of at most 1 for which the norm A = f ||a|| ||p|| is at most q.

    *Zero-out.* The change is the gradient itself.

    *Replace.* Let A and B be the norms that two rows a and b add, r and g the cosines of the angles between a and b and
    between their p. The square of the change is ``A^2 + B^2 - 2 A B g r``. It is the same for -b, so let g >= 0. Since
    ``A <= ||a|| ||p||``, the part of a / ||a|| in the span of W has a length x >= A, and y >= B for b. So ``r >= x y g
    - sqrt((1 - x^2)(1 - y^2)) >= x y g - 1 + (x^2 + y^2) / 2``, which increases in x and y. With v = A B g and s = (A^2
    + B^2) / 2, the square is at most ``2 s + 2 v (1 - s - v)``, and 0 <= v <= s <= q^2. This increases in s. At s = q^2
    it is largest for v = min(q^2, (1 - q^2) / 2): ``4 q^2 (1 - q^2)`` up to q^2 = 1/3, and ``(1 + q^2)^2 / 2`` beyond.

    For one component g = 1, so that v = A B <= s, and the square is at most ``2 s + 2 v - 4 v^2 = (A + B)^2 - 4 A^2
    B^2``. This increases in A and B up to q^2 = 1/2, where it is 1. Beyond, ``||(a a^T - b b^T) w|| <= 1``, and
    clipping is a projection onto a ball, so it does not increase distances.

    All bounds are attained by unit rows with A = B = q, if there are more features than components.
    """
    square = clip**2
    if adjacency == "zero-out":
        return clip
    if square <= (1.0 / 3.0 if n_components > 1 else 0.5):
        return 2.0 * clip * math.sqrt(1.0 - square)
    return (1.0 + square) / math.sqrt(2.0) if n_components > 1 else 1.0


def clipped_gradients(rows: FloatArray, basis: FloatArray, bound: float) -> FloatArray:
    """Sum the gradients ``a a^T W`` of rows, each clipped to a norm, and round to the lattice. Curator only."""
    # Privacy: the block must be chosen without the rows, because the sum is rounded once a block.
    columns = rows.T  # (d, n) in column-major order
    scores = dgemm(1.0, columns, basis, trans_a=1)
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows) * np.einsum("ij,ij->i", scores, scores))
    # ||a a^T W||_F = ||a|| ||a^T W||
    if norms.max() > bound:
        scores *= np.minimum(1.0, bound / np.maximum(norms, bound))[:, None]
    return np.rint(dgemm(1.0, columns, scores) * (1.0 / GRID)) * GRID


@dataclass(frozen=True, kw_only=True)
class PrivateOja(Algorithm):
    """Streaming private PCA in O(dk) memory: Oja's algorithm on clipped, noisy gradients.

    Parameters
    ----------
    n_components : dimension of the subspace, k.
    epsilon, delta : privacy budget of all releases.
    horizon : rows in the stream; None for an endless stream.
    batch_size : rows in a step, at most 2**23, up to which sums of gradients are exact. ``"auto"`` makes each step half
        as long as all before it, and the last one end at a known horizon. Every step adds the same noise for any
        length, so few long steps have the least.
    learning_rate : ``"adaptive"`` (`PrivateStepSizes`), or ``(c, offset)`` for steps of ``c / (offset + t)`` on the sum
        of gradients.
    clip : bound on the norm of a row's gradient, in units of row_norm**2. None means ``min(1, 1.15 sqrt(k / d))``; the
        processor and its releases have the number. 1 clips nothing and is the form of the paper.
    adjacency : ``"zero-out"`` or ``"replace"``.
    release_every : rows between releases. None releases after every step.
    unit : as for `PrivateFPL`; ``clip`` is then 1, because the bound for several rows is that of their Gram matrix.

    Notes
    -----
    *Guarantee.* Step j releases ``S_j + N(0, s^2)`` with S_j the (d, k) sum of the clipped gradients ``a a^T W_{j-1}``
    of its rows, and s = sensitivity / mu (`gradient_sensitivity`). A row is in one step, whose place in the stream is
    public, and later steps depend on it only through released sums. So the sequence of all noisy sums, given every
    other row, is N(0, 1) against N(mu, 1): mu-GDP for any number of steps, under zero-out or replacement of one row.
    Bases, eigenvalues and step sizes are post-processing. Noise and sums are rounded to multiples of 2**-30, which the
    sensitivity includes. `gradient_sensitivity` holds for any clip of at most 1, and the default is a function of k and
    d, which are public. The claims of the paper: ``docs/theory/lkjo22.md``.

    *Clip.* The gradient of a unit row at a random basis has a norm of about sqrt(k / d), which noise for a norm of 1
    would hide. As in spherical PCA, the principal subspaces of rows with an elliptical law remain the fixed points.
    """

    n_components: int
    epsilon: float
    delta: float = DELTA
    horizon: int | None = None
    batch_size: int | Literal["auto"] = "auto"
    learning_rate: LearningRate = "adaptive"
    clip: float | None = None
    adjacency: Adjacency = "zero-out"
    release_every: int | None = None
    unit: Person | None = None  # a text is resolved, too
    schedule: tuple[float, float] | None = field(init=False, default=None, repr=False, compare=False)

    scope = "all releases of the stream, and every step in between"
    theorem = "a row is in one Gaussian step; the rest is post-processing"
    citation = "Liu, Kong, Jain and Oh 2022, Algorithm 2, with the exact transcript argument"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_size != "auto" and self.batch_size > EXACT_ROWS:
            raise BadParameterError("batch_size", self.batch_size, f"at most {EXACT_ROWS} or 'auto'")
        if self.unit is not None and self.clip not in (None, 1.0):
            raise UsageError(f"clip={self.clip}, unit={self.unit!r}: not supported together. Use clip=1.0")
        oja.set_schedule(self)

    def resolved(self, n_features: int) -> Self:
        if self.clip is not None:
            return self
        clip = oja.default_clip(self.n_components, n_features) if self.unit is None else 1.0
        return replace(self, clip=clip)

    def noise_std(self, n_features: int) -> float:
        """Standard deviation of each entry of the noise in one step's sum of gradients, in units of row_norm**2."""
        clip = self.resolved(n_features).clip or 1.0
        # For W with orthonormal columns, ``||sum w a a^T W||`` is at most the norm of ``sum w a a^T``, which the budget
        # of a person bounds over all steps. Each of her rows may be in another sum that is rounded.
        exact, sums = gradient_sensitivity(self.n_components, clip, self.adjacency), 1
        if self.unit is not None:
            exact, sums = self.unit_sensitivity, self.unit.max_rows
        return (exact * ROUNDING + sums * math.sqrt(n_features * self.n_components) * GRID) / self.mu

    def constants(self, n_features: int) -> tuple[object, ...]:
        return (
            self.noise_std(n_features), self.mu,
            ROUNDING, GRID, GAIN, _FIRST_BATCH, _GROWTH, self.schedule,
        )  # fmt: skip

    def step_end(self, t: int) -> int:
        """Return the last row of the step that begins after row t. Public."""
        if self.batch_size != "auto":
            end = t + self.batch_size
        elif self.horizon is None:
            end = t + max(_FIRST_BATCH, t // _GROWTH)
        else:
            # Counted back from the horizon, so that the last step is a full one.
            end = self.horizon
            while (shorter := end * _GROWTH // (_GROWTH + 1)) > t and shorter >= _FIRST_BATCH:
                end = shorter
        # Beyond so many rows, a float64 sum on the lattice would round, by amounts that depend on the rows.
        end = min(end, t + EXACT_ROWS)
        return end if self.horizon is None else min(end, self.horizon)


class PrivateOjaProcessor(Processor, of=PrivateOja):
    """State of a run of `PrivateOja`: basis and step sizes are functions of released sums; sum and rows are exact."""

    __slots__ = ("basis", "end", "rates", "std", "total", "waiting")
    kept = ("basis", "rates", "total", "waiting", "end")

    algorithm: PrivateOja

    def __init__(self, algorithm: PrivateOja, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(algorithm, n_features, source, terms)
        k = algorithm.n_components
        self.basis = oja.start_basis(n_features, k, source.start)
        self.rates = PrivateStepSizes(algorithm.schedule, np.zeros(k))
        # The exact sum of gradients of the current step, and the rows that are not in it yet.
        self.total: FloatArray = np.zeros((n_features, k), order="F")
        self.waiting = Rows(n_features)
        self.end, self.std = algorithm.step_end(0), algorithm.noise_std(n_features)

    @property
    def rows_until_release(self) -> int:
        every, left = self.algorithm.release_every, self.rows_left
        due = self.end - self.t if every is None else every - self.t % every
        return due if left is None else min(due, left)

    def inputs_of(self, count: int) -> Sequence[int]:
        ends, end = [], self.end  # a step is named by its last row
        for row in range(self.t + 1, self.t + count + 1):
            end = self.algorithm.step_end(end) if row > end else end
            ends.append(end)
        return ends

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[PrivateOjaProcessor, Release | None]:
        # All changes are made on a copy, so that an interrupt leaves this value as before.
        algorithm, after, start, count = self.algorithm, self.after(self.t, self.chain), 0, rows.shape[0]
        ended = False
        while start < count:
            # Privacy: sums are rounded once a chunk, so chunks begin at public rows, however rows arrive.
            stop = min(count, start + CHUNK - after.waiting.count, start + after.end - after.t)
            after.waiting = after.waiting.append(rows[start:stop])
            start, after.t = stop, after.t + stop - start
            ended = after.t == after.end
            if after.waiting.count == CHUNK or ended:
                assert algorithm.clip is not None  # `Algorithm.start` resolves it
                after.total = after.total + clipped_gradients(after.waiting.array, after.basis, algorithm.clip)
                after.waiting = Rows(self.n_features)
            if ended:
                gradient = np.asfortranarray(outlet.gaussian("gradient", after.total, self.std, GRID))
                after.rates, step = after.rates.step(gradient, after.basis, after.t, self.std)
                after.basis = oja.orthonormalise(np.asfortranarray(after.basis + step))
                after.total, after.end = np.zeros_like(after.total), algorithm.step_end(after.t)
        after.chain = outlet.chain
        # Between steps the basis does not change, so a release there is post-processing of the step before.
        if algorithm.release_every is not None:
            ended = after.t % algorithm.release_every == 0 or after.t == algorithm.horizon
        if not (ended and after.rates.steps):
            return after, None
        return after, oja.released(
            after, after.basis, after.rates.collected, steps=after.rates.steps, gradient_clip=algorithm.clip
        )
