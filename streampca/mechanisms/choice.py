"""Which covariance mechanism adds the least noise within a budget."""

from __future__ import annotations

from streampca.errors import BadParameter
from streampca.linalg.counts import check_components
from streampca.mechanisms.covariance import CovarianceMechanism
from streampca.mechanisms.gaussian import GaussianCovariance
from streampca.mechanisms.laplace import LaplaceCovariance
from streampca.mechanisms.matrix_laplace import MatrixLaplaceCovariance
from streampca.mechanisms.wishart import WishartCovariance
from streampca.privacy.budget import Budget


def ranked(
    n_features: int, n_components: int, budget: Budget, *, psd: bool = False
) -> list[tuple[float, CovarianceMechanism]]:
    """Rank the covariance mechanisms within a budget by expected spectral error, least first.

    JXZ16 Theorem 5 compares the rates of two of them; this compares the
    expected spectral norms of all. It looks at public numbers only.

    Parameters
    ----------
    n_features, n_components : d and k.
    budget : pure mechanisms are ranked whatever delta is, the others if it is above 0.
    psd : only those whose release is positive semidefinite with no projection.

    Raises
    ------
    BadParameter
        If nothing fits.
    """
    check_components(n_components, n_features)
    epsilon, delta, adjacency = budget.epsilon, budget.delta, budget.adjacency
    fitting: list[CovarianceMechanism] = []
    if delta > 0.0:
        fitting.append(WishartCovariance(n_components=n_components, epsilon=epsilon, delta=delta, adjacency=adjacency))
        if not psd:
            fitting.append(
                GaussianCovariance(n_components=n_components, epsilon=epsilon, delta=delta, adjacency=adjacency)
            )
    if not psd:
        fitting.append(MatrixLaplaceCovariance(n_components=n_components, epsilon=epsilon, adjacency=adjacency))
        fitting.append(LaplaceCovariance(n_components=n_components, epsilon=epsilon, adjacency=adjacency))
    if not fitting:
        raise BadParameter(
            "psd=True needs delta > 0: Wishart noise has no pure epsilon guarantee; or project a release"
        )
    return sorted(((m.spectral_error(n_features), m) for m in fitting), key=lambda pair: pair[0])
