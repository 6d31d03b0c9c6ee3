"""A private mean, and the map of the rows about it, for mechanisms that clip: a shorter row allows less noise.

With ``center=True`` the adaptive mechanisms spend `MEAN_SHARE` of their budget on the mean. All their other parts read
mapped rows, with the rest of the budget. Rows end with the constant c of `linalg.centering`.

1. *Sum and count.* One noisy vector is released: the sum of ``(a, c)`` over the rows that are present. A bad row is
   absent and adds zeros. Under zero-out a zero row is absent, too.
2. *Mean.* The count is ``n_t = min(n, max(n^, 2 std))``, n the public number of rows, n^ the last number over c, and
   std its standard deviation (`centering.counted`). The sum over n_t is shrunk toward 0 by the share of its noise
   (James and Stein 1961) and clipped to the unit ball: m. If its squared length is below twice that of its noise, or
   the 95 % quantile of that, m is 0: the rows would be recentered about noise.
3. *Map.* ``phi(a) = (a - m) / (1 + |m|)`` for a row that is present, 0 for one that is absent.

*Theorem.* If 1 is .1 mu**2 in squares of GDP (pure: .1 epsilon), and the later parts are private with .9 of it for
every data set of rows in the unit ball, all are private together with the whole budget, under the same adjacency.

*Proof.* Given the release of 1, phi is one fixed map, applied to each row separately, and ``|phi(a)| <= 1``. Zero-out:
neighbors differ by a row a against a zero or absent row. Mapped, they differ by phi(a) against 0, and are neighbors
again. Replace: both rows are mapped into the unit ball. So the later parts are private given 1, and adaptive
composition adds squares of mu, or epsilons. (With ``phi(0) = -m / (1 + |m|)`` under zero-out, a row against a zero row
would be a replacement, of sensitivity sqrt(2).)

*Sensitivity of 1.* Zero-out: ``|(a, c)| <= sqrt(1 + c**2)`` = 1.061. Replace: two rows that are present have one
constant, so that the vector moves by ``|a - b| <= 2``; one against an absent row moves it by at most 1.061.

*What remains.* The error of m leaves ``n_t |mean - m|**2`` of energy in the matrix, about ``n_t d v`` with v the
variance of an entry of the mean. It is below the noise where n mu exceeds 7 sqrt(d), and is not subtracted.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtri

from streampca.linalg.centering import CONSTANT, counted
from streampca.linalg.lattice import STEP, coarsen
from streampca.linalg.svec import pack_entries, unpack_entries
from streampca.linalg.types import FloatArray, Mask
from streampca.privacy.budget import Adjacency
from streampca.privacy.outlet import LatticeSum
from streampca.privacy.randomness import Draws
from streampca.release.estimates import Estimates
from streampca.release.terms import Terms

#: Share of mu**2, or of a pure epsilon, that is spent on sum and count.
MEAN_SHARE = 0.10
#: Squared lengths of the noise that the squared length of the mean must exceed, and the probability that noise does. At
#: one such length recentering would gain nothing. The probability decides below 8 features.
_RESOLVED, _NOISE = 2.0, 0.05
#: Sensitivity of sum and count in Euclidean norm.
SENSITIVITY: dict[str, float] = {"zero-out": math.sqrt(1.0 + CONSTANT**2), "replace": 2.0}


def are_counted(rows: FloatArray, adjacency: Adjacency) -> Mask:
    """Return which of the longer rows, (n, d + 1), are present. Each depends on its own row only. Curator only."""
    present: Mask = rows[:, -1] != 0.0
    # Privacy: under zero-out a zero row must be mapped as an absent one, which is its neighbor, too.
    return present if adjacency == "replace" else present & rows[:, :-1].any(axis=1)


def sum_and_count(rows: FloatArray, adjacency: Adjacency) -> LatticeSum:
    """Return the exact sum of the longer rows that are present, (d + 1,). Curator only."""
    # Sums of multiples of 2**-20 are exact in any order, up to 2**33 rows.
    return LatticeSum(are_counted(rows, adjacency).astype(np.float64) @ rows, STEP)


def ball_noise(size: int, draws: Draws) -> FloatArray:
    """Return noise of density proportional to ``exp(-|z|)`` in the Euclidean norm, (size,).

    A vector that moves by at most Delta has pure epsilon with Delta / epsilon times this noise, by the triangle
    inequality (the K-norm mechanism of Hardt and Talwar, STOC 2010). A coordinate has variance size + 1. Like Gaussian
    noise it is computed from normals, without the logarithms that `guarantee.laplace_delta` allows for.
    """
    # The direction is uniform, and the length Gamma(size): half a chi-square of 2 size degrees of freedom.
    normals = draws.normal(3 * size)
    squares = np.add.accumulate(normals[size:] ** 2)[-1], np.add.accumulate(normals[:size] ** 2)[-1]
    return np.asarray(normals[:size] * (0.5 * squares[0] / math.sqrt(squares[1])))


class Recentering(NamedTuple):
    """The released mean of rows, for row_norm = 1, and the map about it. Publishable."""

    mean: FloatArray  # m, (d,); zeros if the mean is not resolved
    length: float  # |m|
    divisor: float  # n_t
    noisy_count: float  # n^
    n_rows: float  # n
    adjacency: Adjacency

    @classmethod
    def of(cls, noisy: FloatArray, n_rows: float, std: float, adjacency: Adjacency) -> Recentering:
        """Compute the mean from the released vector, whose noise has the standard deviation ``std`` in each entry."""
        # `counted` reads the corner of a matrix, c times the last number.
        noisy_count, count = counted(CONSTANT * float(noisy[-1]), n_rows, CONSTANT * std)
        mean, d = noisy[:-1] / count, noisy.size - 1
        square, variance = float(np.add.accumulate(mean * mean)[-1]), (std / count) ** 2
        if square < max(_RESOLVED * d, float(chdtri(d, _NOISE))) * variance:
            return cls(np.zeros(d), 0.0, count, noisy_count, n_rows, adjacency)
        mean *= min(1.0 - (d - 2 if d > 2 else d) * variance / square, 1.0 / math.sqrt(square))
        length = math.sqrt(float(np.add.accumulate(mean * mean)[-1]))
        return cls(mean, length, count, noisy_count, n_rows, adjacency)

    def mapped(self, rows: FloatArray) -> FloatArray:
        """Return phi of each longer row, (n, d). Norms may exceed 1 by rounding: later parts clip. Curator only."""
        mapped: FloatArray = (rows[:, :-1] - self.mean) / (1.0 + self.length)
        mapped[~are_counted(rows, self.adjacency)] = 0.0
        return mapped

    def fields(
        self, packed: FloatArray, n_components: int, terms: Terms, details: dict[str, Any], noise: EntryNoise,
        shares: dict[str, float],
    ) -> dict[str, Any]:  # fmt: skip
        """Return the fields of a `Release` from the packed matrix of the mapped rows, and the noise in it.

        ``shares`` are those of the parts after the mean, of what it leaves of the budget.
        """
        square, d, unit = (1.0 + self.length) ** 2, self.mean.size, terms.row_norm
        packed = coarsen(square * packed, square * noise.std)
        gram = unpack_entries(packed, d)
        entry_std = square * noise.between_eigenvectors(gram)
        estimates = Estimates(gram=gram, entry_std=entry_std, n_components=n_components, rows=self.n_rows)
        if (scale := details.get("noise_scale")) is not None:
            details["noise_scale"] = square * scale
        # Clipping takes the lost energy at most from the subspace: the lower end counts all of it.
        low, high = estimates.captured_interval
        lost = square * max(details["lost_energy"], 0.0) / max(float(estimates.eigenvalues.sum()), 1.0)
        details |= {
            "rows": self.n_rows, "centered": True, "mean": (self.mean * unit).tolist(), "count": self.divisor,
            "noisy_count": self.noisy_count, "recentered": self.length > 0.0, "center_norm": self.length,
            "shares": {"mean": MEAN_SHARE} | {name: (1.0 - MEAN_SHARE) * share for name, share in shares.items()},
            "predicted_captured": estimates.predicted_captured,
            "captured_interval": [max(0.0, low - lost), high],
        }  # fmt: skip
        return {"packed_gram": packed, "entry_std": pack_entries(entry_std), "details": details}


class EntryNoise(NamedTuple):
    """The noise in a matrix: independent entries in a known basis, to first order in what chose the basis."""

    std: float  # of a diagonal entry where it is alike in all; else of the grid
    entry_std: FloatArray | None = None  # (d, d), of each entry in the basis, times sqrt(2) off the diagonal
    basis: FloatArray | None = None  # (d, d) columns

    def between_eigenvectors(self, gram: FloatArray) -> FloatArray:
        """Return standard deviations between the eigenvectors of a released matrix, descending, as for `Estimates`."""
        if self.entry_std is None or self.basis is None:
            return np.full(gram.shape, self.std)
        turned = (self.basis.T @ np.linalg.eigh(gram)[1][:, ::-1]) ** 2
        std: FloatArray = np.sqrt(turned.T @ self.entry_std**2 @ turned)
        return 0.5 * (std + std.T)
