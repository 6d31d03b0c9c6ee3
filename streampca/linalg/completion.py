"""Missing cells: matrix and mean of the rows without gaps, from the released sums of rows whose gaps were filled.

*The map* is row by row. A cell that is missing becomes the middle of its bounds (0 without bounds) before the row is
scaled, clipped and truncated. So its entry is 0, and the admitted row a is a function of its own row, of norm at most
1: every proof for admitted rows holds for filled ones.

*Correction.* If cell i is present with probability p_i, independently of its value and of other cells, the sums of
filled rows have the expectations ``p_i p_j`` times those of whole rows off the diagonal, ``p_i`` times them on it and
for the sums of rows. `completing` divides the released sums so; then the mean is taken out. Where a gap depends on the
value that is missing, or gaps come together, the corrected sums are still biased, and no error bar shows it.

*Public shares* cost nothing: the correction is post-processing.

*Private shares.* d coordinates ``sqrt(r / d) e_i`` follow the matrix of a row, e_i = 1 if cell i is present, r = .1
(`svec.PRESENCE`). An absent row has zeros. All coordinates have the same noise, so that the number of cells present
has the standard deviation ``sigma sqrt(d / r)`` in each column.

*Joint sensitivity*, with u that of the matrix, of longer rows if centered (`linalg.centering`). Zero-out: the change is
(b b^T, sqrt(r / d) e), and ``||b b^T||**2 + (r / d) ||e||**2 <= u**2 + r``, met by a unit row without a gap. Replace:
``||b b^T - b' b'^T||**2 + (r / d) ||e - e'||**2 <= u**2 + r``, as e - e' has entries of -1, 0 and 1. So the sensitivity
is ``sqrt(u**2 + r)``: 4.9 % more noise under zero-out without a mean, 3.9 % about one. The cells of people count with
the weights of their rows (`streampca.rows.people`), and shares are those of the weight.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from streampca.linalg.centering import CONSTANT, MEAN_WEIGHT
from streampca.linalg.svec import PRESENCE, pack_entries
from streampca.linalg.types import FloatArray

#: Least share of cells present that a column may have: the correction multiplies the noise by up to 400.
LEAST_SHARE = 0.05


def completing(present: FloatArray, *, center: bool) -> FloatArray:
    """Return the packed factors of the sums of filled rows, with those of the constant if ``center``."""
    factors = np.multiply.outer(1.0 / present, 1.0 / present)
    np.fill_diagonal(factors, 1.0 / present)
    if center:
        factors = np.pad(factors, (0, 1), constant_values=1.0)
        factors[-1, :-1] = factors[:-1, -1] = 1.0 / present
    return pack_entries(factors)


def private_shares(counts: FloatArray, rows: float, std: float) -> FloatArray:
    """Return the shares of cells present from their released numbers, at least `LEAST_SHARE`. Post-processing."""
    # ``rows`` is the number of rows that are present (`centering.counted`), ``std`` that of a diagonal entry of the
    # noise of the matrix. Gaps x within their noise tau are reduced to ``x**3 / (x**2 + tau**2)``, by at most half of
    # tau: few rows would give large factors, and noise to columns without gaps.
    gaps, variance = 1.0 - counts / rows, std**2 * counts.size / PRESENCE / rows**2
    gaps *= gaps**2 / np.maximum(gaps**2 + variance, 1e-300)
    # Six digits, as in `centering.least_count`.
    shares: FloatArray = np.clip(1.0 - gaps, LEAST_SHARE, 1.0)
    return shares.round(6)


class CompletedNoise(NamedTuple):
    """The noise of privacy in a completed matrix C, to first order, in units of row_norm = 1.

    With E the noise of the matrix, e that of the sums, g that of the count n, h that of the numbers of cells present,
    G = C + n m m^T the matrix about 0, W the factors of `completing` and p the shares, entry (i, j) has the noise

        W_ij E_ij - (m_i e_j / p_j + m_j e_i / p_i) + D_ij g - C_ij (h_i / (n p_i) + h_j / (n p_j)),

    and ``(m_i**2 - C_ii / n) h_i / p_i`` in place of the last term on the diagonal. D is the derivative by n, ``(2 G_ij
    - n m_i m_j) / n``, on the diagonal ``C_ii / n``. The terms are independent. With public shares h is 0, and D is ``m
    m^T`` because n then enters through the mean only. Without a mean, e and g are 0.
    """

    gram: FloatArray  # C, (d, d)
    mean: FloatArray  # m, (d,); zeros if not centered
    present: FloatArray  # p, (d,)
    rows: float  # n
    std: float  # sigma, of a diagonal entry of E
    private: bool  # whether p was released with noise
    center: bool

    @property
    def _stds(self) -> tuple[float, float, float]:
        """Standard deviations of e, g and h."""
        joint = self.std * float(self.center)
        gaps = self.std * math.sqrt(self.mean.size / PRESENCE) * float(self.private)
        return joint / MEAN_WEIGHT, joint / CONSTANT**2, gaps

    @property
    def _by_count(self) -> FloatArray:
        """D, (d, d)."""
        raised = np.multiply.outer(self.mean, self.mean)
        if not self.private:
            return raised
        slope: FloatArray = 2.0 * self.gram / self.rows + raised
        np.fill_diagonal(slope, np.diagonal(self.gram) / self.rows)
        return slope

    def through(self, matrix: FloatArray) -> float:
        """Return the standard deviation of ``<M, C>`` for a symmetric matrix M that is fixed in advance."""
        p, (sums, count, gaps) = self.present, self._stds
        factors = np.multiply.outer(1.0 / p, 1.0 / p)
        np.fill_diagonal(factors, 1.0 / p)
        own = np.diagonal(matrix) * (np.diagonal(self.gram) / self.rows + self.mean**2)
        by_gap = (own - 2.0 * (matrix * self.gram).sum(axis=1) / self.rows) / p
        return math.hypot(
            self.std * float(np.linalg.norm(matrix * factors)), gaps * float(np.linalg.norm(by_gap)),
            2.0 * sums * float(np.linalg.norm(matrix @ self.mean / p)), count * float((matrix * self._by_count).sum()),
        )  # fmt: skip

    def between(self, vectors: FloatArray) -> FloatArray:
        """Return the standard deviations of ``v^T C w`` for columns v and w, times sqrt(2) for different ones."""
        # The form of `Estimates.entry_std`. ``vectors`` (d, d) are the eigenvectors of C. Equal to `through` for each
        # pair, in O(d**3) for all.
        p, (sums, count, gaps), n = self.present, self._stds, self.rows
        squares, values = vectors**2, np.einsum("ij,ij->j", vectors, self.gram @ vectors) / n
        along, scaled = vectors.T @ self.mean, vectors / p[:, None]
        lengths, across = (scaled**2).sum(axis=0), scaled.T @ scaled
        # W_ij**2 is (p_i p_j)**-2 but on the diagonal, where that is too much by p_i**-4 - p_i**-2.
        variance = np.multiply.outer(lengths, lengths) + across**2
        variance -= 2.0 * (squares.T * (p**-4.0 - p**-2.0)) @ squares
        variance *= 0.5 * self.std**2
        variance += sums**2 * (
            np.multiply.outer(lengths, along**2) + np.multiply.outer(along**2, lengths)
            + 2.0 * across * np.multiply.outer(along, along)
        )  # fmt: skip
        variance += (count * (vectors.T @ self._by_count @ vectors)) ** 2
        if gaps:
            own, pairs = np.diagonal(self.gram) / n + self.mean**2, np.add.outer(values, values)
            moments = [(squares.T * (own**k / p**2)) @ squares for k in range(3)]
            variance += gaps**2 * (moments[2] - 2.0 * pairs * moments[1] + pairs**2 * moments[0])
        weights = np.where(np.eye(len(p)), 1.0, 2.0)
        out: FloatArray = np.sqrt(np.maximum(weights * variance, 0.0))
        return out
