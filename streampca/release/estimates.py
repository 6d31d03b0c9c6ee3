"""Estimates of exact variances and directions from a private Gram matrix: post-processing, no privacy is spent.

Let ``Y = G + N`` be a released matrix with svec-GOE noise N: its diagonal entries have standard deviation sigma, the
others sigma / sqrt(2). Let w_1 >= ... >= w_d be the eigenvalues of Y, v_i its eigenvectors, and Delta = w_i - w_j.
Noise pushes eigenvalues apart, so that w_i is too large at the top of the spectrum, as an eigenvalue of G and still
more as the variance of the rows along v_i. To leading order in 1/d (Bun, Allez, Bouchaud and Potters, IEEE Trans.
Inform. Theory 62(12), 2016, for the additive case)

    v_i^T G v_i      ~  w_i - sigma**2     sum_{j != i} Delta / (Delta**2 + sigma**2 / 2)
    eigenvalue of G  ~  w_i - sigma**2 / 2 sum_{j != i} Delta / (Delta**2 + sigma**2 / 2)
    cos**2 of the angle between v_i and that of G
                     ~  1 - sigma**2 / 2   sum_{j != i} 1 / (Delta**2 + sigma**2 / 2).

The second and third are perturbation theory of second order; the term sigma**2 / 2 in the denominators smooths over
eigenvalues that the noise does not separate. They are rough if the noise exceeds the spectrum of the rows.

Intervals for eigenvalues are not approximate. For rows that do not depend on releases, the theorem of Courant and
Fischer bounds w_i from below on the span of the i leading eigenvectors of G, which is fixed, and from above on that of
the d - i + 1 others. On a fixed space of dimension m, N is GOE of size m, so

    w_i - sigma q(d - i + 1)  <=  lambda_i  <=  w_i + sigma q(i)

with q(m) a quantile of the largest eigenvalue of the GOE of size m. For any rows, |w_i - lambda_i| <= ||N|| (Weyl).

*Centered releases.* The noise of mean and count adds to that of the matrix (`linalg.centering.MeanNoise`): entry (i,
j) in the basis of the v_i has variance ``sigma**2 (1/2 + p_i**2 + p_j**2 + 4 p_i**2 p_j**2)``, and ``sigma**2 (1 + 2
p_i**2)**2`` on the diagonal, p_i = u . v_i. These replace sigma**2 / 2 and sigma**2 above. On a space of dimension m
the noise is a GOE matrix with a row and a column of larger variance, the first in a suitable basis, with quantile q(m).
It grows with the length of the part of u in the space, which is at most the length of u.

*Entries of unequal noise.* Mechanisms that map rows state the variance T_ij of the noise between v_i and v_j, which
replaces sigma**2 / 2 above; 2 T_ii replaces sigma**2. That is of first order in what chose the map, so that such
matrices have approximate intervals only.

*Error bars.* The debiased variance is ``w_i - 2 sum T Delta / (Delta**2 + T)``. With q' the derivative ``(T - Delta**2)
/ (Delta**2 + T)**2``, its variance is to first order ``(1 - 2 sum T q')**2`` times that of w_i, plus the sum over j of
``(2 T q')**2`` times that of w_j.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from streampca.errors import BadParameterError, NoReleaseError
from streampca.linalg.centering import MeanNoise
from streampca.linalg.counts import check_components, check_count, check_share
from streampca.linalg.lazy import cached_property
from streampca.linalg.types import FloatArray

#: Simulated matrices per law, and minimum number of them beyond a simulated quantile.
_RUNS, _BEYOND = 20_000, 20
#: Largest size of which every law is simulated; beyond it simulated sizes grow by this factor.
_DENSE, _GROWTH = 16, 1.25
#: Standard deviations of its noise that the trace must exceed for shares of it.
CERTAIN = 4.0
#: Step of the simulated lengths of u.
_MEAN_STEP = 0.25
#: Half the width of a 95 % interval, in standard deviations; a tenth more is for the remaining bias of a share.
WIDE = 1.959963984540054
_WIDE = 1.1 * WIDE


class Estimates:
    """Estimates of exact variances and directions from one private Gram matrix.

    Parameters
    ----------
    gram : (d, d) released symmetric matrix.
    noise_std : standard deviation sigma of a diagonal entry of its svec-GOE noise; 0 for none.
    entry_std : (d, d) standard deviations ``sqrt(2 T)`` of the noise between the eigenvectors of ``gram``, in
        descending order, times sqrt(2) off the diagonal; in place of ``noise_std``, which is then the largest. Equal
        ones are those of svec-GOE noise.
    n_components : k; estimates are for the k leading eigenvectors.
    rows : number of rows in the sum, n, or an upper bound. Infinite if it is private.
    row_norm : norm to which rows were clipped. All results are in units of its square.
    mean : noise added by the mean, for a matrix about the mean.

    Attributes
    ----------
    variances : debiased variances of the rows along the k leading eigenvectors of the released matrix, (k,). Not always
        descending, or positive.
    std : standard deviations of the noise in `variances`, (k,), to first order, that of debiasing included.
    eigenvalues : debiased estimates of the k leading eigenvalues of the exact matrix, (k,).
    direction_quality : estimated cos**2 of the angles between released and exact eigenvectors, (k,), from 0 to 1.
    loading_std : standard deviations, from the noise, of the loadings of the k leading eigenvectors, (d, k).
        Approximate: root mean square errors, at most 1. For feature l and component i the square is ``sigma**2 / 2
        sum_{j != i} v_lj**2 / (Delta**2 + sigma**2 / 2) + (1 - cos_i)**2 v_li**2``. The first term is of first order in
        the noise; the second is the loss of a unit vector at the angle of `direction_quality` along the released one.
        If `direction_quality` is below .9, intervals of 1.96 of these cover slightly less than 95 %.
    """

    def __init__(
        self, *, gram: FloatArray, n_components: int, rows: float, noise_std: float = 0.0, row_norm: float = 1.0,
        mean: MeanNoise | None = None, entry_std: FloatArray | None = None,
    ) -> None:  # fmt: skip
        shape, k = gram.shape, n_components
        if len(shape) != 2 or shape[0] != shape[1] or not np.isfinite(gram).all():
            raise BadParameterError("gram", gram, "a finite (d, d) matrix")
        check_components(k, shape[0])
        if rows != math.inf:
            check_count("rows", rows)
        if not 0.0 <= noise_std < math.inf:
            raise BadParameterError("noise_std", noise_std, "a finite number of at least 0")
        if not 0.0 < row_norm < math.inf:
            raise BadParameterError("row_norm", row_norm, "a positive finite number")
        if entry_std is not None:
            if entry_std.shape != shape or not ((entry_std >= 0.0) & np.isfinite(entry_std)).all():
                raise BadParameterError("entry_std", entry_std, "a (d, d) matrix of standard deviations")
            noise_std = float(entry_std.max())
        self.gram, self.noise_std, self.n_components = gram, noise_std, k
        self.rows, self.row_norm, self.mean = rows, row_norm, mean
        self._is_goe = entry_std is None
        values, vectors = (part[..., ::-1] for part in np.linalg.eigh(gram))
        # 2 p_i**2 for each eigenvector: relative increase of the std of the noise along it, by mean and count.
        along = np.zeros(values.size) if mean is None else 2.0 * (vectors.T @ mean.ratio) ** 2
        # Noise between two eigenvalues, its standard deviation times sqrt(2), over sqrt(Delta**2 + its variance).
        # The ratio is at most sqrt(2), so that no square overflows or vanishes.
        if entry_std is None:
            sigma = noise_std * np.sqrt(1.0 + along[:, None] + along + 2.0 * along[:, None] * along)
            diagonal = 1.0 + along
        else:
            sigma, diagonal = entry_std, np.diagonal(entry_std) / (noise_std or 1.0)
        difference = values[:, None] - values
        distance = np.hypot(difference, sigma * math.sqrt(0.5))
        distance[distance == 0.0] = 1.0  # equal values, without noise
        ratio = sigma / distance
        np.fill_diagonal(ratio, 0.0)
        lean = difference / distance
        pushed = (sigma * ratio * lean).sum(axis=1)
        self._spectrum, self._along, self._diagonal = (values, vectors), along, diagonal
        self._variances: FloatArray = values - pushed  # along all eigenvectors, (d,); their sum is the trace
        self.variances: FloatArray = self._variances[:k]
        self.eigenvalues: FloatArray = (values - 0.5 * pushed)[:k]
        # 2 T q' for each pair: how far the debiasing of w_i moves with w_j.
        moved = (ratio * (0.5 * ratio**2 - lean**2) * ratio)[:k]
        # The diagonal is relative to noise_std, so that no square overflows.
        own, others = diagonal[:k] * (1.0 - moved.sum(axis=1)), np.sqrt(moved**2 @ diagonal**2)
        self.std: FloatArray = noise_std * np.hypot(own, others)
        self.direction_quality = np.clip(1.0 - 0.5 * (ratio[:k] ** 2).sum(axis=1), 0.0, 1.0)
        turned, short = 0.5 * ratio[:k] ** 2, 1.0 - np.sqrt(self.direction_quality)
        self.loading_std = np.minimum(1.0, np.sqrt(vectors**2 @ turned.T + (short * vectors[:, :k]) ** 2))

    @property
    def explained_variance_ratio(self) -> FloatArray:
        """Shares of the total variance along the k leading eigenvectors, (k,): not below 0, with a sum of at most 1."""
        # The debiased variances along all d eigenvectors, projected onto the simplex of nonnegative vectors of sum
        # min(max(tr Y, variances[0], row_norm**2), n row_norm**2), over that sum.
        unit = self.row_norm**2
        # Noise may make the trace smaller than one variance, or than the mass of one row.
        largest = max(float(self._variances.sum()), float(self._variances[0]), unit)
        shares = _onto_simplex(self._variances / min(largest, self.rows * unit))[: self.n_components]
        # numpy rounds partial sums, so that neither sum may exceed 1.
        total = max(float(shares.sum()), math.fsum(shares))
        if total > 1.0:  # by rounding only
            shares *= (1.0 - 4.0 * shares.size * np.finfo(np.float64).eps) / total
        return shares

    def share(self, count: int) -> tuple[float, float] | None:
        """Return the share of the total variance along the ``count`` leading eigenvectors, and half an interval.

        The interval has 95 %, for the noise only and to first order. None if the trace of the matrix is at most four
        standard deviations of its noise: the denominator would be noise.
        """
        sigma, total = self.noise_std, float(np.trace(self.gram))
        share = float(self.explained_variance_ratio[:count].sum())

        def std(weights: FloatArray) -> float:
            # v_i^T N v_i has variance sigma**2 (1 + a_i)**2, and covariance sigma**2 a_i a_j with j: the count's.
            both = float((weights**2) @ (self._diagonal**2 - self._along**2)) + float(weights @ self._along) ** 2
            return sigma * math.sqrt(both)

        d = self.gram.shape[0]
        if total <= CERTAIN * std(np.ones(d)):
            return None
        # d(S / T) = (dS - (S / T) dT) / T
        return share, _WIDE * std(np.where(np.arange(d) < count, 1.0 - share, -share)) / total

    @property
    def predicted_captured(self) -> float:
        """Predicted share of the best k-dimensional subspace's variance that the released one captures, 0 to 1.

        Approximate: of the noise only, and too high where less than .9 is captured.
        """
        best = float(self.eigenvalues.sum())
        return min(1.0, max(0.0, float(self.variances.sum()) / best)) if best > 0.0 else 0.0

    @property
    def captured_interval(self) -> tuple[float, float]:
        """Approximate interval for the captured share, from a rule whose constants were measured on tables."""
        loss = 1.0 - self.predicted_captured
        # Below .9 the prediction is hopeful: the loss was up to four times as large.
        low = 1.0 - 2.5 * loss - 0.003 if loss <= 0.1 else 1.0 - 4.0 * loss
        return max(0.0, low), min(1.0, 1.0 - 0.4 * loss + 0.003)

    def approximate_interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Approximate intervals for `variances`, each by itself: of the noise only, and to first order."""
        from scipy.special import ndtri

        check_share("level", level)
        half = float(ndtri(0.5 + 0.5 * level)) * self.std
        return self.variances - half, self.variances + half

    def interval(self, level: float = 0.95, *, adaptive: bool = False) -> tuple[FloatArray, FloatArray]:
        """Ends, (k,) each, of intervals that cover the k leading eigenvalues of the exact matrix jointly.

        ``level`` is the minimum probability that all of them cover, up to the error of simulated quantiles (about 10 %
        of ``1 - level``). With ``adaptive``, rows may depend on earlier releases: the interval is then ``w +- sigma
        q``, q the quantile of the spectral norm of the GOE, and covers the variances along released directions too.
        Raises `NoReleaseError` where the noise is not alike in all entries: no joint interval is proved then.
        """
        check_share("level", level)
        if not self._is_goe:
            raise NoReleaseError(
                "the noise is not alike in all entries of the matrix, and was chosen by earlier parts of the release: "
                "no interval is proved. Use approximate_interval"
            )
        k, d = self.n_components, self.gram.shape[0]
        values, mean = self._spectrum[0][:k], 0.0 if self.mean is None else self.mean.most
        if adaptive:
            half = self.noise_std * goe_quantile(d, 1.0 - level, mean, norm=True)
            return values - half, values + half
        # Union bound over k eigenvalues and two sides.
        tail = (1.0 - level) / (2 * k)
        below = np.array([goe_quantile(d - i, tail, mean) for i in range(k)])
        above = np.array([goe_quantile(i + 1, tail, mean) for i in range(k)])
        return values - self.noise_std * below, values + self.noise_std * above

    @cached_property
    def shrunk_gram(self) -> FloatArray:
        """Positive semidefinite estimate of the exact matrix, (d, d), with less error in Frobenius norm.

        It has the released eigenvectors, and the debiased variances along them, sorted by isotonic regression.
        """
        from scipy.optimize import isotonic_regression

        vectors = self._spectrum[1]
        # Debiasing may exchange neighbors of close values; the order of released eigenvectors is kept.
        shrunk = np.maximum(isotonic_regression(self._variances, increasing=False).x, 0.0)
        matrix: FloatArray = (vectors * shrunk) @ vectors.T
        matrix = 0.5 * (matrix + matrix.T)
        matrix.flags.writeable = False
        return matrix


def goe_quantile(size: int, tail: float, mean: float = 0.0, *, norm: bool = False) -> float:
    """Return an upper quantile of the largest eigenvalue of a GOE matrix of side ``size``, or of its spectral norm."""
    # It is exceeded with probability ``tail``. Diagonal entries have standard deviation 1, the others sqrt(1/2). With
    # ``mean``, the length of u, it is of ``N - u e^T - e u^T + 2 g u u^T``, e and g standard normal, instead of the GOE
    # matrix N. That length is rounded up to a multiple of a quarter, so that few laws are simulated.
    # Simulated, once for each size, with a fixed seed. If fewer than 20 runs are beyond the quantile, the simulated
    # median plus the normal quantile is an upper bound: the eigenvalue is a Lipschitz function of independent normals
    # with constant 1 (Gaussian isoperimetry). Sizes over 16 are interpolated, linearly in sqrt(m).
    of_mean = math.ceil(mean / _MEAN_STEP)
    if size <= _DENSE:
        return _quantile(size, tail, of_mean, norm)
    steps = math.log(size / _DENSE) / math.log(_GROWTH)
    low = round(_DENSE * _GROWTH ** math.floor(steps))
    high = max(low + 1, round(_DENSE * _GROWTH ** (math.floor(steps) + 1)))
    # Quantiles are nearly linear in sqrt(m), their leading term being sqrt(2 m).
    share = (math.sqrt(size) - math.sqrt(low)) / (math.sqrt(high) - math.sqrt(low))
    return (1.0 - share) * _quantile(low, tail, of_mean, norm) + share * _quantile(high, tail, of_mean, norm)


def _quantile(size: int, tail: float, mean: int, norm: bool) -> float:
    from scipy.special import ndtri

    values = _simulated(size, mean)[int(norm)]
    if tail * _RUNS < _BEYOND:  # the standard deviation along the direction of u is the Lipschitz constant
        return float(np.median(values)) - float(ndtri(tail)) * (1.0 + 2.0 * (_MEAN_STEP * mean) ** 2)
    return float(np.quantile(values, 1.0 - tail, method="higher"))


@lru_cache(maxsize=128)
def _simulated(size: int, mean: int) -> tuple[FloatArray, FloatArray]:
    """Largest eigenvalues and spectral norms of GOE matrices, (runs,) each; ``mean`` is the length of u in steps."""
    # Tridiagonal form: independent N(0, 1) on the diagonal and chi_{m-j} / sqrt(2) beside it (Dumitriu and Edelman, J.
    # Math. Phys. 43, 2002). Extreme eigenvectors decay over m**(1/3) of its leading coordinates, so that its leading
    # block suffices. If u is not 0, the first basis vector is along it: the first entry has variance (1 + 2
    # ||u||**2)**2, those beside it 1/2 + ||u||**2, and the rest is GOE, which is invariant under rotations.
    length = min(size, 10 + math.ceil(8.0 * size ** (1.0 / 3.0)))
    # A fixed seed: the same release has the same intervals in every process.
    source = np.random.default_rng([1609, size])
    diagonal = source.standard_normal((length, _RUNS))
    squares = source.chisquare((size - 1.0 - np.arange(length - 1))[:, None], (length - 1, _RUNS)) / 2.0
    more = (_MEAN_STEP * mean) ** 2
    diagonal[0] *= 1.0 + 2.0 * more
    squares[:1] *= 1.0 + 2.0 * more
    width = math.sqrt(2.0 * size * (1.0 + more)) + 8.0 * (1.0 + 2.0 * more)
    largest, negated = (_largest_eigenvalue(entries, squares, width) for entries in (diagonal, -diagonal))
    return largest, np.maximum(largest, negated)


def _largest_eigenvalue(diagonal: FloatArray, squares: FloatArray, width: float) -> FloatArray:
    """Upper ends, within 5e-4, of intervals that contain the largest eigenvalues of tridiagonal matrices, (runs,)."""
    # Bisection on [-width, width]: x exceeds all eigenvalues if every pivot of x I - A is positive.
    low, high = np.full(_RUNS, -width), np.full(_RUNS, width)
    while high[0] - low[0] > 5e-4:
        middle = 0.5 * (low + high)
        pivot = middle - diagonal[0]
        above = pivot > 0.0
        for entry, square in zip(diagonal[1:], squares, strict=True):
            pivot = middle - entry - square / np.where(above, pivot, 1.0)
            # Sylvester: x I - A is positive definite if and only if all pivots are positive.
            above &= pivot > 0.0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return high


def _onto_simplex(values: FloatArray) -> FloatArray:
    """Return the nearest nonnegative vector of sum 1 (Held, Wolfe and Crowder 1974)."""
    descending = np.sort(values)[::-1]
    # Subtract the largest, so that the sums do not cancel.
    # The simplex projection subtracts one number from the entries that stay positive.
    excess = (np.cumsum(descending - descending[0]) - 1.0) / np.arange(1.0, values.size + 1)
    kept = int(np.flatnonzero(descending - descending[0] > excess)[-1])
    projected: FloatArray = np.maximum(values - descending[0] - excess[kept], 0.0)
    return projected
