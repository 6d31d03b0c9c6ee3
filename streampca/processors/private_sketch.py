"""A private sketch of the Gram matrix, for many features: O(dm) memory, with m a few times the components."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.centering import CONSTANT, counted
from streampca.linalg.counts import check_count
from streampca.linalg.eigen import orthonormal, top_eigh
from streampca.linalg.memory import Rows
from streampca.linalg.threads import OneThread
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import DMRST22, MatrixFactorization
from streampca.matrix_factorization.noises import BLT
from streampca.privacy.budget import DELTA, Adjacency
from streampca.privacy.outlet import LatticeSum, NoiseSource, Outlet
from streampca.processors.base import Algorithm, Processor
from streampca.processors.oja import default_clip, released, start_basis
from streampca.release.release import Release
from streampca.release.terms import Terms

#: Rows that are summed at a time in single precision, from a release on, and the lattice of these sums.
_CHUNK, GRID = 256, 2.0**-24
#: Unit roundoff of single precision, in which rows are multiplied.
_ROUNDOFF = 2.0**-24
#: Covers rounding in a sum of `_CHUNK` rows: for each of two neighbors at most ``_CHUNK**2 * _ROUNDOFF`` times the norm
#: that a row may add.
ROUNDING = 1.0 + 2.0 * _CHUNK**2 * _ROUNDOFF + 1e-5
#: Number of rows whose sum on the lattice is exact in float64.
EXACT_ROWS = 2**29
#: Weight of a row beside its sketch, as a share of the clip: 3.5 % more noise. Twice the weight gives 13 %.
_WEIGHT = 0.25
#: Guards divisions by zero.
_TINY = 1e-200


def sketch_sensitivity(clip: float, weight: float, adjacency: Adjacency, error: float = 0.0) -> float:
    """Sensitivity to one row of the sum that `sketched` returns, in Euclidean norm and without its last rounding.

    Let Omega have orthonormal columns, c be `CONSTANT`, q the clip and w the weight, at most 1/2 (0 if not centered). A
    row a that is present adds ``f a p^T`` and ``f w (a, c)``, where ``p = Omega^T a`` and f is the largest number of at
    most 1 for which ``f ||a|| ||p|| <= q``. A row that is absent adds nothing.

    *Zero-out.* A row adds ``f^2 ||a||^2 ||p||^2 + f^2 w^2 (||a||^2 + c^2) <= q^2 + w^2 (1 + c^2)`` to the square. Met
    by unit rows with ``||p|| = q``.

    *Replace.* Let A and B be the norms of the sketches of two rows a and b, and r and g the cosines of the angles
    between a and b, and between their p. The square of the change is

        A^2 + B^2 - 2 A B g r + w^2 ||f_a (a, c) - f_b (b, c)||^2.

    The last norm is convex in f_a, f_b and the lengths of a and b, so that its square is at most ``max(1 + c^2, 2 -
    2r)``. Since ``A <= ||a|| ||p||``, the part of a / ||a|| in the span of Omega has a length x >= A, and y >= B for b.
    So ``r >= x y g - sqrt((1 - x^2)(1 - y^2)) >= x y (1 + g) - 1 >= A B (1 + g) - 1``, and ``r <= 1 - A B (1 - g)`` by
    the same for -b. Let v = A B g, and u = |v|, which is at most A B <= q^2. Then ``u + v - 1 <= r <= 1 - u + v``. The
    square is convex in r, and both ends give at most

        2 q^2 + 2 u (1 - 2u) + w^2 max(4 - 4u, 4u, 1 + c^2).

    Up to u = 1/2 this is ``2 q^2 + 4 w^2 + 2 u (1 - 2 w^2) - 4 u^2``, and it falls from there on. The largest value is
    at ``u = min(q^2, (1 - 2 w^2) / 4)``. If this is q^2, it is met by unit rows at equal angles to either side of
    a direction of Omega, with ``||p|| = q``. An absent row against one that is present changes less.

    *Rounding.* If p has an error of ``error ||a||``, the bounds on r change by at most ``4 error + 3 error^2``, and the
    result by the factor ``1 + 2 error``. The bound ``4 q^2 + 4 w^2`` on the square holds for any p.
    """
    if adjacency == "zero-out":
        return math.sqrt(clip**2 + weight**2 * (1.0 + CONSTANT**2))
    u = min(clip**2, 0.25 - 0.5 * weight**2)
    square = 2.0 * clip**2 + 4.0 * weight**2 + 2.0 * u * (1.0 - 2.0 * weight**2) - 4.0 * u**2
    return min(math.sqrt(square) * (1.0 + 2.0 * error), 2.0 * math.hypot(clip, weight))


def sketched(rows: FloatArray, omega: Any, clip: float, weight: float) -> FloatArray:
    """Sum the clipped sketches of rows, and round to the lattice. Curator only.

    ``rows`` are admitted, (n, d); if ``weight`` is not 0, (n, d + 1) with their constants, and ``omega``, which is in
    single precision, has a row of zeros for it. The sum is (d, m); if centered (d + 1, m + 1), with the weighted sum of
    the rows in the last column.
    """
    # Privacy: the block must be chosen without the rows, because the sum is rounded once a block. No branch depends on
    # a row. Admitted rows are exact in single precision, which takes half the time.
    d = rows.shape[1] - bool(weight)
    single = rows.astype(np.float32)
    scores = (single @ omega).astype(np.float64)
    lengths = np.sqrt(np.vecdot(rows[:, :d], rows[:, :d]) * np.vecdot(scores, scores))
    factors = clip / np.maximum(lengths, clip)  # ||a p^T|| = ||a|| ||p||
    scores *= factors[:, None]
    if weight:
        scores = np.column_stack([scores, weight * factors])
    total: FloatArray = single.T @ scores.astype(np.float32)
    if weight:
        total[-1, :-1] = 0.0  # c p: it repeats the other sums, and has no place in the sensitivity
    # In place: fresh arrays of this size cost a third of the time.
    total *= 1.0 / GRID
    np.rint(total, out=total)
    total *= GRID
    return total


@dataclass(frozen=True, kw_only=True)
class PrivateSketch(Algorithm):
    """Private PCA of many features, from noisy running sums of sketches of the rows.

    A public random matrix Omega, (d, m) with orthonormal columns, maps the Gram matrix G to G Omega, of which d m
    numbers are released in place of the d (d + 1) / 2 of `PrivateFPL`. Noise is correlated over releases as there. A
    release is the span of the top left singular vectors. Its Gram matrix is absent.

    Parameters
    ----------
    n_components : dimension of the subspace, k.
    epsilon, delta : privacy budget of all releases.
    horizon : rows in the stream, at most 2**29; None for an endless stream of at most as many rows.
    release_every : rows between releases. None means a sixteenth of the horizon, rounded up; 1024 without one. Releases
        are few, because the noise grows with their number, and `PrivateOja` has less beyond about 64.
    sketch_size : number of columns of Omega, m, above k. None means ``max(4 k + 40, 8 k)``, at most d.
    clip : bound on the norm of the sketch of a row, in units of row_norm**2. None means ``1.15 sqrt(m / d)``, at most
        1, which shortens few rows whose length is row_norm.
    adjacency : ``"zero-out"`` or ``"replace"``.
    center : release the sketch about the mean, with the sum and the number of the rows released jointly. 3.5 % more
        noise, more along the mean: with a mean of .6 row_norm and little signal False may be better. None means True.

    Notes
    -----
    *Guarantee.* Omega is fixed before the first row, and may be known. A row changes one input of the prefix-sum
    mechanism by at most `sketch_sensitivity`, whose proof holds for any Omega with orthonormal columns. The mechanism
    is mu-GDP over all its outputs and for inputs chosen adaptively (`matrix_factorization.base`). All else is
    post-processing. Rounding in sums of rows and to multiples of 2**-24 is included (`ROUNDING`).

    *Estimates.* ``eigenvalues`` are debiased sums, ``details["total"]`` estimates their sum over all directions, and
    ``details["direction_quality"]`` the squared cosines to the exact directions. They are approximate (`spiked`): no
    error bars are stated, and it is not tested whether components stand out from the noise.

    *Cost.* O(dm) a row, O(d m^2) a release, on one core; about 12 arrays of (d, m) numbers.
    """

    n_components: int
    epsilon: float
    delta: float = DELTA
    horizon: int | None = None
    release_every: int = None  # type: ignore[assignment]  # None is resolved by `__post_init__`
    sketch_size: int | None = None
    clip: float | None = None
    adjacency: Adjacency = "zero-out"
    center: bool = None  # type: ignore[assignment]  # None is resolved by `Configuration`

    theorem = "Gaussian matrix mechanism on running sums of sketches, adaptive rows; subspaces are post-processing"
    citation = f"{DMRST22}; {BLT.citation}; Halko, Martinsson and Tropp 2011, Algorithm 4.1 (the sketch)"

    def __post_init__(self) -> None:
        super().__post_init__()
        k, m, horizon = self.n_components, self.sketch_size, self.horizon
        check_count("sketch_size", m, optional=True)
        if m is not None and m <= k:
            raise BadParameterError("sketch_size", m, f"an integer above n_components={k}, or None")
        if horizon is not None and horizon > EXACT_ROWS:
            raise BadParameterError("horizon", horizon, f"at most {EXACT_ROWS}, up to which sums are exact")
        if vars(self)["release_every"] is None:
            object.__setattr__(self, "release_every", 1024 if horizon is None else -(-horizon // 16))
        rows = "an endless stream" if horizon is None else f"a stream of up to {horizon} rows"
        scope = f"all releases of {rows}" + (", with the noisy sums of rows" if self.center else "")
        object.__setattr__(self, "scope", scope)

    def check(self, n_features: int) -> None:
        super().check(n_features)
        if self.sketch_size is not None and self.sketch_size > n_features:
            raise BadParameterError("sketch_size", self.sketch_size, f"at most the number of features, {n_features}")

    def shape(self, n_features: int) -> tuple[int, float, float]:
        """Return the number of columns of Omega, the clip, and the weight of a row beside its sketch. Public."""
        k, m = self.n_components, self.sketch_size
        m = min(n_features, max(4 * k + 40, 8 * k)) if m is None else m
        clip = default_clip(m, n_features) if self.clip is None else self.clip
        return m, clip, _WEIGHT * clip if self.center else 0.0

    def mechanism(self, n_features: int) -> MatrixFactorization:
        """Return the factorization that releases the sums for this number of features."""
        return _mechanism(self, n_features)

    def constants(self, n_features: int) -> tuple[object, ...]:
        d = n_features - int(self.center)
        return *self.shape(d), ROUNDING, GRID, _CHUNK, *self.mechanism(d).constants()


@lru_cache(maxsize=32)
def _mechanism(algorithm: PrivateSketch, d: int) -> MatrixFactorization:
    m, clip, weight = algorithm.shape(d)
    # Dot products of d numbers in single precision, with a matrix that is rounded to it.
    error = 1.1 * _ROUNDOFF * (d + 2) * math.sqrt(m)
    sensitivity = sketch_sensitivity(clip, weight, algorithm.adjacency, error) * ROUNDING
    sensitivity += math.sqrt((d + 1) * (m + 1)) * GRID
    leaves = None if algorithm.horizon is None else -(-algorithm.horizon // algorithm.release_every)
    return BLT().mechanism(leaves, algorithm.mu, sensitivity)


class SketchProcessor(Processor, of=PrivateSketch):
    """State of a run of `PrivateSketch`: exact sum of the sketches, rows that wait, and noise of the latest release."""

    __slots__ = ("noise", "omega", "single", "total", "waiting")
    kept = ("noise", "total", "waiting")

    algorithm: PrivateSketch

    def __init__(self, algorithm: PrivateSketch, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(algorithm, n_features, source, terms)
        center = int(algorithm.center)
        d = n_features - center
        m = algorithm.shape(d)[0]
        with OneThread():  # as in `step`
            self.omega = start_basis(d, m, source.start)  # (d, m) with orthonormal columns, public
        self.single = np.vstack([self.omega, np.zeros((center, m))]).astype(np.float32)
        self.total: FloatArray = np.zeros((d + center, m + center))
        self.noise = algorithm.mechanism(d).start(self.total.size)
        self.waiting = Rows(n_features)

    @property
    def rows_left(self) -> int | None:
        return (self.algorithm.horizon or EXACT_ROWS) - self.t

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[SketchProcessor, Release | None]:
        # Sums of several threads have other bits in single precision: a run must resume with any number of cores.
        with OneThread():
            return self._step(rows, outlet)

    def _step(self, rows: FloatArray, outlet: Outlet) -> tuple[SketchProcessor, Release | None]:
        # All changes are made on a copy, so that an interrupt leaves this value as before.
        algorithm, after = self.algorithm, self.after(self.t + len(rows), self.chain)
        d, start, is_due = len(self.omega), 0, after.t % algorithm.release_every == 0 or after.t == algorithm.horizon
        _, clip, weight = algorithm.shape(d)
        while start < len(rows):
            # Privacy: sums are rounded once a chunk, so chunks begin at public rows, however rows arrive.
            part = rows[start : start + _CHUNK - after.waiting.count]
            start += len(part)
            if len(part) < _CHUNK:
                after.waiting = after.waiting.append(part)
                part = after.waiting.array
            if len(part) == _CHUNK or (is_due and start == len(rows)):
                if after.total is self.total:
                    after.total = self.total.copy()
                after.total += sketched(part, self.single, clip, weight)
                after.waiting = Rows(self.n_features)
        if not is_due:
            return after, None
        std = algorithm.mechanism(d).std_chunks.at(self.noise.n + 1)
        after.noise, noisy = outlet.running("sketch", LatticeSum(after.total, GRID), self.noise, std)
        after.chain = outlet.chain
        details: dict[str, Any] = {"sketch_size": self.omega.shape[1]}
        scaled, along = self.omega, np.zeros(d)
        if weight:
            noisy, scaled, mean, count = about_mean(noisy, scaled, std, weight, after.terms.count(1, after.t))
            details |= {"centered": True, "mean": (mean * after.terms.row_norm).tolist(), "count": count}
            along = mean / weight
        basis, values, more = spiked(noisy, self.omega, scaled, algorithm.n_components, std, along)
        more["total"] *= after.terms.row_norm**2
        return after, released(after, basis, values, **details, **more)


def about_mean(
    noisy: FloatArray, omega: FloatArray, std: float, weight: float, rows: float
) -> tuple[FloatArray, FloatArray, FloatArray, float]:
    """Return a released sketch about the mean, (d, m), Omega as it applies there, mean and count. Post-processing.

    With s the sum of the n rows, it is ``Z - s (Omega^T s)^T / n``, where ``s s^T`` is shrunk to its estimated length
    without noise. The noise e of s adds ``e (Omega^T s)^T / n``, of which the direction on the right is known: sketch
    and Omega are scaled along it, so that the noise has one variance in all directions. The other term, ``s (Omega^T
    e)^T / n``, is along the mean and stays, because scaling there would suppress components near the mean.
    """
    d, ratio = len(omega), CONSTANT / weight
    count = counted(float(noisy[-1, -1]) * ratio, rows, std * ratio)[1]
    raw = noisy[:-1, -1] / (weight * count)
    square, variance = max(float(raw @ raw), _TINY), (std / (weight * count)) ** 2
    shrunk = max(0.0, 1.0 - d * variance / square)
    mean = raw * min(shrunk, 1.0 / math.sqrt(square))
    sketch = noisy[:-1, :-1] - np.outer(raw, omega.T @ raw) * (count * shrunk)
    tilt = omega.T @ mean / weight
    length = max(float(tilt @ tilt), _TINY)
    lost = (1.0 - 1.0 / math.sqrt(1.0 + length)) / length
    scaled: FloatArray = omega - np.outer(omega @ tilt, lost * tilt)
    return sketch - np.outer(sketch @ tilt, lost * tilt), scaled, mean, count


def spiked(
    z: FloatArray, omega: FloatArray, scaled: FloatArray, k: int, std: float, along: FloatArray
) -> tuple[FloatArray, FloatArray, dict[str, Any]]:
    """Return the subspace of a released sketch, (d, k), estimated eigenvalues, (k,), and details. Post-processing.

    A singular value w of ``G Omega + N``, with N of independent entries of standard deviation sigma, is pushed up from
    the singular value s of G Omega, and its left vector has the squared cosine ``(s^4 - sigma^4 d m) / (s^2 (s^2 +
    sigma^2 d))`` to the exact one (Benaych-Georges and Nadakuditi, J. Multivariate Anal. 111, 2012); s is 0 below the
    edge ``sigma (sqrt(d) + sqrt(m))``. As ``||Omega^T u||**2`` has the mean m / d, the eigenvalue is near ``s sqrt(d /
    m)``, up to a factor of about ``1 +- 1 / sqrt(2 m)``. (The sketch tilts the singular vectors towards Omega, so that
    ``s / ||Omega^T u||`` is too small, by 20 % at m = 8 k and eigenvalues 1/j.) Directions beyond the k-th mix into u
    with the weight ``rest (1/m - 1/d) / eigenvalue**2`` relative to u, rest being the sum of their squared eigenvalues.

    If z is about the mean, ``scaled`` is Omega as `about_mean` returns it: eigenvalues are larger by the factor
    ``||Omega^T u|| / ||scaled^T u||``. ``along`` is the mean over the weight: the noise of the sum of the rows adds
    ``m sigma^2 (along . u)^2`` to w^2, for which one more direction than k is tried.
    """
    d, m = omega.shape
    values, right = top_eigh(z.T @ z, min(k + 1, m))
    basis, mass = orthonormal(z @ right), float(np.vdot(scaled, scaled))
    edge = std**2 * math.sqrt(d * m)
    # What noise adds to the squared lengths, with that of the sum of the rows along the mean.
    excess = values - std**2 * (d + m + m * (basis.T @ along) ** 2)
    squares = np.where(excess > 2.0 * edge, 0.5 * (excess + np.sqrt(np.maximum(excess**2 - 4.0 * edge**2, 0.0))), 0.0)
    shares = np.linalg.norm(basis.T @ omega, axis=1) / np.linalg.norm(basis.T @ scaled, axis=1)
    eigenvalues = np.sqrt(squares * (d / m)) * shares
    order = np.argsort(-eigenvalues, kind="stable")[:k]
    basis, squares, eigenvalues = basis[:, order], squares[order], eigenvalues[order]
    energy = float(np.vdot(z, z)) - std**2 * m * (d + float(along @ along))
    rest = max(0.0, energy - float(squares.sum())) * (d / mass)
    safe = np.maximum(squares, _TINY)
    quality = np.maximum(squares**2 - edge**2, 0.0) / (safe * (safe + std**2 * d))
    quality *= eigenvalues**2 / np.maximum(eigenvalues**2 + rest * (1.0 / m - 1.0 / d), _TINY)
    return basis, eigenvalues, {
        "approximate": ["eigenvalues", "total", "direction_quality", "predicted_captured"],
        "total": float(np.vdot(scaled, z)) * (d / mass),
        "direction_quality": quality.tolist(),
        "predicted_captured": float(quality @ eigenvalues) / max(float(eigenvalues.sum()), _TINY),
    }  # fmt: skip
