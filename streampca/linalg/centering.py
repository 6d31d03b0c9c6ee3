"""Gram matrices about the mean, from one private release of sum a a^T, sum a and the number of rows.

A centered stream appends one public constant c to every admitted row a, so that the longer row is ``b = (a, c)``. A row
that is *absent* becomes the zero vector, without the constant: a bad row, and a row that
serves for private bounds. Over the m rows that are present, the Gram matrix of the longer rows holds ``sum a
a^T``, ``c sum a`` and, in its corner, ``c**2 m``. All of it is released with the same noise. An absent row adds nothing
to any entry, so that absent rows leave the sums equal to the bit.

*Sensitivity.* svec is an isometry and ``||b b^T|| = ||b||**2``, with ``c**2 <= ||b||**2 <= 1 + c**2`` for a in the unit
ball.

- zero-out, a row against an absent one: ``||b b^T - 0|| = ||b||**2 <= 1 + c**2``, met by unit rows. (Against the
  present row (0, c) it is ``||a|| sqrt(||a||**2 + 2 c**2)``, which is less.)
- replace, a row against another: ``||b b^T - b' b'^T||**2 = ||b||**4 + ||b'||**4 - 2 <b, b'>**2 <= 2 (1 + c**2)**2``.
  Met by unit rows with ``<a, a'> = -c**2``, for which ``<b, b'> = 0``. Against an absent row it is less, as above.

Both are `JOINT_FACTOR` = 1 + c**2 times the sensitivity of ``sum a a^T`` only (1 or sqrt(2)).

*The count.* The corner of the released matrix over c**2 is an unbiased estimate of the number m of rows that are
present, whose noise has standard deviation ``sigma / c**2`` = 8 sigma (`counted`). The number n of all rows is public.

*The mean.* ``sum (a - m)(a - m)^T = G - s s^T / n`` with G the Gram matrix, s the sum of the n rows that are present
and m = s / n. With noise of standard deviation sigma_s in each coordinate of s, the mean of ``s s^T`` is too large by
``sigma_s**2 I``, which is subtracted.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from streampca.linalg.lattice import STEP
from streampca.linalg.svec import pack_entries
from streampca.linalg.types import FloatArray, IntArray, Mask

#: The constant c: c**2 is 1/8, up to rounding onto the lattice of rows.
CONSTANT = math.floor(math.sqrt(0.125) / STEP) * STEP
#: lambda = sqrt(2) c: the weight of a row's sum beside its square, in svec coordinates.
MEAN_WEIGHT = math.sqrt(2.0) * CONSTANT
#: Sensitivity of the Gram matrix of longer rows to one row, over that of the Gram matrix only: 1.125.
JOINT_FACTOR = 1.0 + CONSTANT**2
#: Least count of rows, in standard deviations of a diagonal entry of the noise: two of the noise of the count.
_LEAST = 16.0


def with_constant(rows: FloatArray, absent: Mask | None = None) -> FloatArray:
    """Return admitted rows, (n, d), with the constant appended to each, (n, d + 1); zeros for those that are absent."""
    longer = np.empty((rows.shape[0], rows.shape[1] + 1))
    longer[:, :-1] = rows
    longer[:, -1] = CONSTANT
    if absent is not None:
        longer[absent] = 0.0
    return longer


def are_present(longer: FloatArray) -> bool:
    """Return whether each longer row, (n, d + 1), ends with the constant or is the zero vector of an absent row."""
    last = longer[:, -1]
    return bool(((last == CONSTANT) | ~longer.any(axis=1)).all())


def least_count(std: float) -> float:
    """Return the least number of rows that `counted` returns, for noise of standard deviation ``std``."""
    # Six digits, here and in `sum_variance`: further ones depend on the kernels at hand, and a release must not.
    return float(f"{_LEAST * std:.6g}")


def sum_variance(std: float) -> float:
    """Return the variance of the noise in each entry of the released sum of the rows."""
    return float(f"{(std / MEAN_WEIGHT) ** 2:.6g}")


def counted(corner: float, rows: float, std: float) -> tuple[float, float]:
    """Return the estimated number of rows that are present, and the number to divide by. Post-processing."""
    # The first is the released ``corner`` over c**2, unbiased and possibly negative. The second is ``min(rows,
    # max(first, 16 std))``: not above the public number of ``rows``, those of a warm-up excluded (in a decayed sum, the
    # sum of their weights), and at least two standard deviations of the first, so that a matrix about the mean never
    # has more than a multiple of the noise of the sums. ``std`` is that of a diagonal entry of the noise; 0 for none.
    noisy = corner / CONSTANT**2
    # Without rows and without noise there is nothing to divide.
    return noisy, float(min(rows, max(noisy, least_count(std)))) or 1.0


class MeanNoise(NamedTuple):
    """The noise of mean and count in a Gram matrix about the mean.

    With sigma the standard deviation of a diagonal entry of the noise E in ``sum a a^T``, and e and g standard normal,
    ``sum (a - m)(a - m)^T`` has the noise ``E - sigma (u e^T + e u^T) + 2 sigma g u u^T - (sigma_s**2 / n) (e e^T -
    I)``, u = m / lambda and sigma_s = sigma / lambda; the third term is that of the count. The terms are uncorrelated,
    and the covariance of the last is that of E, of standard deviation ``sqrt(2) sigma_s**2 / n``. So with std**2 the
    sum of the squares of both, the variance is

        std**2 + 4 sigma**2 (u . x)**2 + 4 sigma**2 (u . x)**4                                   of  x^T N x,
        std**2 / 2 + sigma**2 ((u . x)**2 + (u . y)**2) + 4 sigma**2 (u . x)**2 (u . y)**2       of  x^T N y,

    for orthonormal x and y. Along the mean its square root is ``sigma (1 + 8 ||m||**2)``. Where the count is cut off at
    the public number of rows, it has half of its noise, and this is an upper bound. To first order in the noise of the
    count: with fewer than 20 sigma rows present, error bars may be half the true error.
    """

    ratio: FloatArray  # (d,) estimate of u from the private mean, without the bias of its square
    most: float  # upper estimate of its length, by two standard deviations: for quantiles

    @classmethod
    def of(cls, mean: FloatArray, std: float, count: float) -> tuple[float, MeanNoise]:
        """Return the standard deviation of the isotropic part, and the part of the mean."""
        # In units of row_norm = 1: ``mean`` is the shrunk mean (`Centered`), ``std`` is sigma, and ``count`` the number
        # of rows that the sum was divided by.
        d, own = mean.size, std / (MEAN_WEIGHT * count)  # standard deviation of each entry of the mean
        length = float(np.linalg.norm(mean))
        # `centered` shrinks the raw length r to r - d own**2 / r; this is the larger root of that equation.
        raw = 0.5 * (length + math.sqrt(length**2 + 4.0 * d * own**2))  # before it was shrunk
        unbiased = math.sqrt(max(0.0, raw**2 - d * own**2))
        ratio = mean * (min(1.0, unbiased) / (length * MEAN_WEIGHT) if length > 0.0 else 0.0)
        most = min(1.0, raw + 2.0 * own) / MEAN_WEIGHT
        return math.hypot(std, math.sqrt(2.0) * own**2 * count), cls(ratio, most)


class Centered(NamedTuple):
    """A private Gram matrix about the private mean, in units of row_norm = 1."""

    packed: FloatArray  # entries of ``sum (a - m)(a - m)^T``, less the bias due to the noise of m
    mean: FloatArray  # (d,), shrunk by the contribution of its noise to its square, then clipped to the unit ball
    sums: FloatArray  # (d,) private sum of the rows; the noise in each entry has standard deviation sigma / lambda
    noisy_count: float  # estimated number of rows that are present, of standard deviation 8 sigma (`counted`)
    divisor: float  # number of rows that the sums were divided by
    # Bound on the standard deviation of the noise along any unit vector x, to first order: ``sigma (1 + 2 (m . x)**2 /
    # lambda**2)``, which is sigma where x is orthogonal to m (`MeanNoise`). Not of completed matrices.
    noise_std: float


def centered(
    packed: FloatArray, rows: float, std: float, *, debias: bool = True, present: FloatArray | None = None
) -> Centered:
    """Center a private Gram matrix of longer rows, packed, with its corner. Post-processing; see also `counted`."""
    # ``debias`` subtracts what the noise of the sums adds to the square of the mean; not for a shrunk estimate. With
    # ``present``, (d,), the matrix was multiplied by `completion.completing`, and the noise of the sums with it.
    d = (math.isqrt(8 * packed.size + 1) - 1) // 2 - 1
    inner, last, diagonal = _places(d)
    noisy, count = counted(float(packed[-1]), rows, std)
    per_count, variance = 1.0 / count, sum_variance(std) if debias else 0.0
    own = variance if present is None else variance / present**2
    total = d * variance if present is None else float(np.sum(own))
    sums = packed[last] * (1.0 / CONSTANT)
    gram = packed[inner]
    gram -= pack_entries(np.multiply.outer(sums, sums)) * per_count
    gram[diagonal] += own * per_count
    mean = sums * per_count
    square = float(np.add.accumulate(mean * mean)[-1])  # one by one: equal bits under every BLAS, and compiled
    length = min(1.0, square)
    if square > 0.0:
        shrunk = max(0.0, 1.0 - total * per_count * per_count / square)
        mean *= min(shrunk, 1.0 / math.sqrt(square))
    return Centered(gram, mean, sums, noisy, count, std * (1.0 + 2.0 * length / MEAN_WEIGHT**2))


def longer_matrix(
    gram: FloatArray, sums: FloatArray, noisy: float, divisor: float, std: float, present: FloatArray | float = 1.0
) -> FloatArray:
    """Return the private matrix of longer rows, (d + 1, d + 1), of which `centered` is the matrix about the mean."""
    # The other parameters are those of `Centered`; ``std`` as for `counted`, and ``present`` as for `centered`.
    d = len(gram)
    longer = np.empty((d + 1, d + 1))
    longer[:d, :d] = gram + np.outer(sums, sums) / divisor - sum_variance(std) / present**2 / divisor * np.eye(d)
    longer[d, :d] = longer[:d, d] = CONSTANT * sums
    longer[d, d] = CONSTANT**2 * noisy
    return longer


def about_mean(matrix: FloatArray) -> tuple[FloatArray, float]:
    """Return the exact matrix ``G - s s^T / n`` of n rows that are present, and the trace ``||s||**2 / n`` it loses."""
    # ``matrix`` is the exact (d + 1, d + 1) Gram matrix of longer rows; zeros if none is present.
    inner, sums, count = matrix[:-1, :-1], matrix[:-1, -1], float(matrix[-1, -1])
    if count == 0.0:
        return inner, 0.0
    return inner - np.multiply.outer(sums, sums) / count, float(sums @ sums) / count


@lru_cache(maxsize=64)
def _places(d: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return places in the packed matrix of d + 1 features, of the first d and of their products with the last."""
    # The third array holds the places of the diagonal in the packed matrix of d features.
    rows, columns = np.triu_indices(d + 1)
    inner, last = np.flatnonzero(columns < d), np.flatnonzero((columns == d) & (rows < d))
    return inner, last, np.flatnonzero(np.equal(*np.triu_indices(d)))
