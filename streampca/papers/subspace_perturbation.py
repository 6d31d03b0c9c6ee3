"""Noise on the projector, by propose-test-release (Dwork, Talwar, Thakurta and Zhang 2014, Algorithm 2), corrected."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from streampca.errors import BadParameterError
from streampca.linalg.eigen import top_eigh
from streampca.linalg.lattice import GramSum, coarsen
from streampca.linalg.svec import svec, svec_size, unpack_entries, unsvec
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import BudgetedMechanism
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.outlet import Outlet
from streampca.release.release import Release
from streampca.release.terms import Terms

#: Share of mu**2 spent on measuring the gap, and share of delta spent on an overestimated gap.
GAP_SHARE, FAILURE_SHARE = 0.1, 0.1
#: Sensitivity of the k-th eigengap to one row.
_MOVES = {"zero-out": 1.0, "replace": 2.0}


@dataclass(frozen=True, kw_only=True)
class SubspacePerturbation(BudgetedMechanism):
    """A private subspace with noise that decreases with the eigengap.

    The gap between eigenvalues k and k + 1 is measured privately. If noise on the projector is predicted to lose less
    captured variance, the projector is released, otherwise the Gram matrix with Gaussian noise, for the same budget.
    ``release.details`` give ``"released"``, ``"projector"`` or ``"gram"``, and the measured ``"gap"`` over row_norm**2.

    Parameters
    ----------
    n_components : dimension of the released subspace, less than n_features.
    epsilon, delta, adjacency : see `Mechanism`.

    Notes
    -----
    *Guarantee.* The release includes the measured gap: (epsilon, delta)-DP per row, mu-GDP with
    ``mu**2 = mu1**2 + mu2**2``, plus ``delta1``. The gap plus ``N(0, 1 / mu1**2)`` less ``z / mu1``, z the upper
    delta1-quantile, is a g that exceeds the gap with probability delta1 (twice the noise under replace). Where it does
    not, a row moves the projector by at most ``ln(g / (g - 1)) / sqrt(2)`` (replace: g - 2), which svec-GOE noise
    hides. If g <= 2 (replace: 4), or the projector is predicted to lose more, the mu2-GDP Gaussian mechanism runs
    instead. Proof, and why the printed algorithm has no guarantee: ``docs/theory/dttz14.md``.

    *Prediction.* To first order, with svec-GOE noise of sd s_P on the projector or s_G on the Gram matrix, the released
    subspace loses ``s_P**2 sum(D) / 2`` or ``s_G**2 sum(1 / D) / 2`` of captured variance, over the k (d - k)
    differences D between the first k and the other eigenvalues. The mean of D is at most n / k, and by Jensen's
    inequality that of 1 / D at least k / n. So for any spectrum the projector loses no more if ``s_P n / k <= s_G``.
    Under zero-out that needs a gap of about ``n / (sqrt(2) k)``, nearly all rows of full norm in k directions of equal
    weight; under replace it hardly ever holds.
    """

    is_gaussian = True
    theorem = "propose-test-release on the eigengap, then Gaussian noise on the projector or the Gram matrix"
    citation = "after Dwork, Talwar, Thakurta, Zhang, STOC 2014, Algorithm 2"
    square_bytes = 45.0
    gap_std: float = field(init=False, repr=False, compare=False)  # of the noise in the gap, without rounding
    _mu2: float = field(init=False, repr=False, compare=False)
    _gram_std: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        slack = self.delta * FAILURE_SHARE
        mu = Budget(self.epsilon, self.delta * (1.0 - FAILURE_SHARE), self.adjacency).mu
        mu2 = mu * math.sqrt(1.0 - GAP_SHARE)
        gap_std = _MOVES[self.adjacency] / (mu * math.sqrt(GAP_SHARE))
        vars(self).update(mu=mu, slack=slack, gap_std=gap_std, _mu2=mu2, _gram_std=self.budget.sensitivity() / mu2)

    def check(self, n_features: int) -> None:
        super().check(n_features)
        if self.n_components >= n_features:
            raise BadParameterError("n_components", self.n_components, f"less than n_features={n_features}")

    def constants(self, n_features: int) -> tuple[object, ...]:
        return self.gap_std, self._gram_std, self._mu2

    def projector_loses_less(self, sigma: float, n_rows: int) -> bool:
        """Return whether noise of sd ``sigma`` on the projector loses no more than the Gram matrix for any spectrum."""
        return sigma * n_rows <= self.n_components * self._gram_std

    def released(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        (n_rows, d), k = rows.shape, self.n_components
        gram = GramSum.of(rows)
        values, basis = top_eigh(unpack_entries(gram.packed(), d), k + 1)
        # Bound on the error of computed eigenvalues by backward stability of the symmetric eigensolver, 16 times larger
        # than needed. It is public, because n_rows and d are.
        rounding = 16.0 * d * n_rows * 2.0**-52
        moves = _MOVES[self.adjacency]
        gap_std = self.gap_std * (moves + 2.0 * rounding) / moves
        # The standard deviations depend on n_rows, so that it is hidden too: equal matrices of more rows have
        # independent noise.
        causes = (*gram.hidden, np.array([n_rows]))
        gap = float(outlet.gram("gap", _Computed(values[k - 1 : k] - values[k], *causes), 1, gap_std)[0])
        # The g that exceeds the true gap with probability at most delta1. The released gap is rounded to 2**-20 of its
        # noise.
        margin = -float(ndtri(self.slack)) + 2.0**-19
        bound = gap - margin * gap_std - rounding
        details = {"mechanism": type(self).__name__, "rows": n_rows, "gap": gap, "gap_std": gap_std}
        # Each computed projector is within 2 sqrt(k) rounding / gap of the true one.
        sigma = math.inf
        if bound > 2.0 * moves:
            error = 4.0 * math.sqrt(k) * rounding / (bound - moves)
            sigma = (projector_shift(bound, self.adjacency) + error) / self._mu2
        if not self.projector_loses_less(sigma, n_rows):
            packed, std = outlet.gram("gram", gram, svec_size(d), self._gram_std), self._gram_std
            details |= {"released": "gram"}
            return Release(t=t, n_components=k, terms=terms, packed_gram=packed, noise_std=std, details=details)
        # svec(P) is hidden by svec-GOE noise, whose law has no preferred direction; the sum need not be a projector.
        top = basis[:, :k]
        projector = outlet.gram("projector", _Computed(svec(top @ top.T), *causes), svec_size(d), sigma)
        details |= {"released": "projector", "projector_noise_std": sigma}
        basis = top_eigh(unsvec(projector, d), k)[1]
        return Release(t=t, n_components=k, terms=terms, basis=basis, details=details)


class _Computed:
    """Numbers computed in floating point, which an outlet hides together with the exact values they come from."""

    __slots__ = ("_values", "hidden")

    def __init__(self, values: FloatArray, *causes: Any) -> None:
        self._values, self.hidden = values, (*causes, values + 0.0)

    def noisy(self, noise: FloatArray, std: float) -> FloatArray:
        return coarsen(self._values + noise, std)


def projector_shift(bound: float, adjacency: Adjacency = "zero-out") -> float:
    """Sensitivity of the top-k projector to one row, in Frobenius norm, for a gap of at least ``bound``."""
    moves = _MOVES[adjacency]
    if not bound > moves:
        raise BadParameterError("bound", bound, f"more than {moves:g}, because a row may close the gap")
    return -math.log1p(-moves / bound) / math.sqrt(2.0)
