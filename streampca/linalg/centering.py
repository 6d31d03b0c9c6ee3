"""Gram matrices about the mean, from one private release of sum a a^T and sum a.

Under zero-out and replace adjacency the number of rows n is public. A centered stream appends one public constant c to
every admitted row, a zero row included, so the Gram matrix of the longer rows holds ``sum a a^T``, ``c sum a`` and
``c**2 n``. The last of these is public, and the others are, in svec coordinates,

    phi(a) = (svec(a a^T), lambda a)    with lambda = sqrt(2) c.

*Sensitivity.* ``<phi(a), phi(b)> = z**2 + lambda**2 z`` with ``z = <a, b>``. For a and b in the unit ball:

- zero-out, a against the zero row: ``||phi(a)||**2 = ||a||**4 + lambda**2 ||a||**2 <= 1 + lambda**2``, met by unit
  rows.
- replace, a against b: ``||phi(a) - phi(b)||**2 <= 2 (1 + lambda**2) - 2 min (z**2 + lambda**2 z)`` over z in [-1, 1].
  For ``lambda**2 <= 2`` the minimum is ``-lambda**4 / 4``, at ``z = -lambda**2 / 2``, so the norm is at most ``sqrt(2)
  (1 + lambda**2 / 2)``; above, it is ``1 - lambda**2``, at z = -1, and the norm at most ``2 lambda``. Both are met by
  unit rows at that angle.

*The mean.* ``sum (a - m)(a - m)^T = G - s s^T / n`` with G the Gram matrix, s the sum and m = s / n. With noise of
standard deviation sigma_s in each coordinate of s, the mean of ``s s^T`` is too large by ``sigma_s**2 I``, which is
subtracted.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from streampca.linalg.lattice import STEP
from streampca.linalg.svec import pack_entries, svec_size
from streampca.linalg.types import FloatArray, IntArray

#: The constant c: lambda**2 is 1/4, up to rounding onto the lattice of rows.
CONSTANT = math.floor(math.sqrt(0.125) / STEP) * STEP
#: lambda: weight of a row's sum beside its square.
MEAN_WEIGHT = math.sqrt(2.0) * CONSTANT


def joint_factor(*, replace: bool, weight: float = MEAN_WEIGHT) -> float:
    """Return the sensitivity of (svec(sum a a^T), weight * sum a) to one row over that of the first part only.

    ``replace`` is the adjacency: replace, or zero-out.
    """
    if not replace:
        return math.hypot(1.0, weight)
    return 1.0 + 0.5 * weight**2 if weight**2 <= 2.0 else math.sqrt(2.0) * weight


def with_constant(rows: FloatArray) -> FloatArray:
    """Return admitted rows, (n, d), with the constant appended to each, (n, d + 1)."""
    # Privacy: a zero row gets the constant, too. The last diagonal entry is then the public number of rows times c**2,
    # whichever of them are zero.
    longer = np.empty((rows.shape[0], rows.shape[1] + 1))
    longer[:, :-1] = rows
    longer[:, -1] = CONSTANT
    return longer


class MeanNoise(NamedTuple):
    """The noise of the mean in a Gram matrix about the mean.

    With sigma the standard deviation of a diagonal entry of the noise E in ``sum a a^T`` and e standard normal, ``sum
    (a - m)(a - m)^T`` has the noise ``E - sigma (u e^T + e u^T) - (sigma_s**2 / n) (e e^T - I)``, u = m / lambda and
    sigma_s = sigma / lambda. Its terms are uncorrelated, and the covariance of the last is that of E, of standard
    deviation ``sqrt(2) sigma_s**2 / n``. So with std**2 the sum of the squares of both, the variance is

        std**2 ||x||**4 + 4 sigma**2 ||x||**2 (u . x)**2        of  x^T N x,
        std**2 / 2 + sigma**2 ((u . x)**2 + (u . y)**2)         of  x^T N y, for orthonormal x and y.

    Attributes
    ----------
    ratio : (d,) estimate of u from the private mean, without the bias of its square.
    most : upper estimate of its length, by two standard deviations: for quantiles.
    """

    ratio: FloatArray
    most: float

    @classmethod
    def of(cls, mean: FloatArray, std: float, count: float) -> tuple[float, MeanNoise]:
        """Return the standard deviation of the isotropic part, and the part of the mean.

        In units of row_norm = 1: ``mean`` is the shrunk mean (`Centered`), ``std`` is sigma, and ``count`` is n.
        """
        d, own = mean.size, std / (MEAN_WEIGHT * count)  # standard deviation of each entry of the mean
        length = float(np.linalg.norm(mean))
        # `centered` shrinks the raw length r to r - d own**2 / r; this is the larger root of that equation.
        raw = 0.5 * (length + math.sqrt(length**2 + 4.0 * d * own**2))  # before it was shrunk
        unbiased = math.sqrt(max(0.0, raw**2 - d * own**2))
        ratio = mean * (min(1.0, unbiased) / (length * MEAN_WEIGHT) if length > 0.0 else 0.0)
        most = min(1.0, raw + 2.0 * own) / MEAN_WEIGHT
        return math.hypot(std, math.sqrt(2.0) * own**2 * count), cls(ratio, most)


class Centered(NamedTuple):
    """A private Gram matrix about the private mean, in units of row_norm = 1.

    Attributes
    ----------
    packed : packed entries of ``sum (a - m)(a - m)^T``, less the bias due to the noise of m.
    mean : (d,) private mean, shrunk by the contribution of its noise to its square, then clipped to the unit ball.
    sums : (d,) private sum of the rows; the standard deviation of the noise in each entry is sigma / lambda.
    noise_std : bound on the standard deviation of the noise along any unit vector x, to first order: ``sigma sqrt(1 + 4
        (m . x)**2 / lambda**2)``, which is sigma where x is orthogonal to m (`MeanNoise`).
    """

    packed: FloatArray
    mean: FloatArray
    sums: FloatArray
    noise_std: float


def centered(packed: FloatArray, count: float, std: float) -> Centered:
    """Center a private Gram matrix of rows with the constant, packed, for d + 1 features. Post-processing.

    ``count`` is the public number of rows in the sum (in a decayed sum, the sum of their weights), and ``std`` the
    standard deviation sigma of a diagonal entry of the noise, 0 for none. The last entry is not used.
    """
    d = (math.isqrt(8 * packed.size + 1) - 1) // 2 - 1
    inner, last, diagonal = _places(d)
    sums = packed[last] * (1.0 / CONSTANT)
    sum_std = std / MEAN_WEIGHT
    gram = packed[inner]
    gram -= pack_entries(np.multiply.outer(sums, sums)) * (1.0 / count)
    # Six digits: those of `std` further on depend on the kernels at hand, and the matrix must not.
    gram[diagonal] += float(f"{sum_std**2 / count:.6g}")
    mean = sums * (1.0 / count)
    square = float(np.add.accumulate(mean * mean)[-1])  # one by one: equal bits under every BLAS, and compiled
    length = min(1.0, square)
    if square > 0.0:
        shrunk = max(0.0, 1.0 - d * (sum_std / count) ** 2 / square)
        mean *= min(shrunk, 1.0 / math.sqrt(square))
    return Centered(gram, mean, sums, std * math.sqrt(1.0 + 4.0 * length / MEAN_WEIGHT**2))


def about_mean(matrix: FloatArray) -> tuple[FloatArray, float]:
    """Return the exact matrix ``G - s s^T / n`` of rows with the constant, and the trace ``||s||**2 / n`` it loses.

    ``matrix`` is the exact (d + 1, d + 1) Gram matrix; zeros of no rows.
    """
    inner, sums, count = matrix[:-1, :-1], matrix[:-1, -1], float(matrix[-1, -1])
    if count == 0.0:
        return inner, 0.0
    return inner - np.multiply.outer(sums, sums) / count, float(sums @ sums) / count


@lru_cache(maxsize=64)
def _places(d: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return places in the packed matrix of d + 1 features, of the first d and of their products with the last.

    The third array holds the places of the diagonal in the packed matrix of d features.
    """
    columns = np.triu_indices(d + 1)
    order = np.arange(svec_size(d + 1))
    inner, last = order[columns[1] < d], order[(columns[1] == d) & (columns[0] < d)]
    rows, cols = np.triu_indices(d)
    return inner, last, np.flatnonzero(rows == cols)
