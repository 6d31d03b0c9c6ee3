"""The Gaussian mechanism on the Gram matrix (Dwork, Talwar, Thakurta and Zhang 2014, Algorithm 1), exact."""

from __future__ import annotations

import math
from dataclasses import dataclass

from streampca.linalg.counts import check_components, use_plain_numbers
from streampca.linalg.lattice import GramSum
from streampca.linalg.lazy import cached_property
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import SCOPE
from streampca.mechanisms.covariance import CovarianceMechanism, Projection, check_projection
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.exact import LatticeGram, gram_noise, lattice_sigma
from streampca.privacy.guarantee import Guarantee, gaussian_guarantee
from streampca.privacy.outlet import Outlet
from streampca.privacy.randomness import Draws


@dataclass(frozen=True, kw_only=True)
class GaussianCovariance(CovarianceMechanism):
    """Gram matrix plus Gaussian noise: the least noise of all, for delta > 0.

    Parameters
    ----------
    n_components : dimension of the released subspace.
    epsilon, delta : the budget, with delta > 0.
    adjacency : ``"zero-out"`` or ``"replace"``.
    project : ``None``, ``"psd"`` or ``"auto"``; see `CovarianceMechanism`.
    n_features : number of features, or None for that of the rows.
    exact : integers from end to end, with exact discrete Gaussian noise
        (`privacy.exact`): no floating-point gap in the claim, same noise level.

    Notes
    -----
    The whole matrix is released: (epsilon, delta)-DP per row, mu-GDP with the
    exact ``mu(epsilon, delta)`` of Balle and Wang (2018, Theorem 8).

    One row moves the Gram matrix by at most 1 in Frobenius norm under
    zero-out, ``|a a^T| = |a|^2``, and by ``|a a^T - b b^T| <= sqrt(2)`` under
    replace, which the paper overlooks: its printed noise is for sensitivity 1.
    ``svec`` is an isometry, so noise N(0, sigma**2) in its coordinates with
    ``sigma = sensitivity / mu`` is mu-GDP. It is GOE noise, of spectral norm
    ``sigma * sqrt(2 d)``: a factor sqrt(2) below the paper's equal variances.

    Citation: Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss", STOC 2014.
    """

    n_components: int
    epsilon: float
    delta: float
    adjacency: Adjacency = "zero-out"
    project: Projection = None
    n_features: int | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        use_plain_numbers(self)
        check_components(self.n_components, self.n_features)
        check_projection(self.project)
        sigma = self.sigma
        if self.exact:
            lattice_sigma(sigma)

    @cached_property
    def mu(self) -> float:
        """The exact Gaussian-DP parameter of the budget."""
        return Budget(self.epsilon, self.delta, self.adjacency).mu

    @cached_property
    def sigma(self) -> float:
        """Sd of a diagonal entry of the noise; off the diagonal it is ``sigma / sqrt(2)``."""
        return Budget(self.epsilon, self.delta, self.adjacency).gram_sensitivity / self.mu

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta)-DP, exactly mu-GDP, for one release of one data set."""
        return gaussian_guarantee(
            self.mu,
            self.epsilon,
            self.delta,
            adjacency=self.adjacency,
            scope=SCOPE,
            theorem="Gaussian mechanism on svec of the Gram matrix (Balle and Wang 2018, Theorem 8)"
            + ("; exact discrete Gaussian noise on integers" if self.exact else ""),
            citation="Dwork, Talwar, Thakurta, Zhang, STOC 2014, Algorithm 1",
        )

    def constants(self, n_features: int) -> tuple[object, ...]:
        """The sd, and the integer that stands for it with ``exact``."""
        return self.sigma, lattice_sigma(self.sigma) if self.exact else None

    def _noisy(self, gram: GramSum, outlet: Outlet) -> FloatArray:
        if not self.exact:
            return super()._noisy(gram, outlet)
        return outlet.release("gram", LatticeGram(gram), gram_noise(self.sigma, gram.n_features).draw, self.sigma)

    def noise(self, n_features: int, draws: Draws) -> FloatArray:
        """Draw svec-GOE noise."""
        return self.sigma * draws.normal(svec_size(n_features))

    def noise_scale(self, n_features: int) -> float:
        """Sd of a diagonal entry of the noise."""
        return self.sigma

    def spectral_error(self, n_features: int) -> float:
        """Give ``sigma * sqrt(2 d)``, the edge of the semicircle (one feature: the mean of a folded normal)."""
        return self.sigma * (math.sqrt(2.0 * n_features) if n_features > 1 else math.sqrt(2.0 / math.pi))

    @property
    def _noise_is_goe(self) -> bool:
        return True
