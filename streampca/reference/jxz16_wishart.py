"""Wishart input perturbation as printed (Jiang, Xie and Zhang 2016, Algorithm 2). Not private as claimed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from streampca.linalg.counts import check_components
from streampca.linalg.svec import svec
from streampca.linalg.types import FloatArray
from streampca.mechanisms.covariance import CovarianceMechanism
from streampca.mechanisms.matrix_laplace import wishart
from streampca.privacy.budget import Budget
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Draws


@dataclass(frozen=True, kw_only=True)
class PrintedWishart(CovarianceMechanism):
    """Gram matrix plus ``3 / (2 epsilon) * Wis_d(d + 1, I)``: claims (epsilon, 0), has no guarantee.

    One-sided noise has a support that moves with the data. Say G and G + a a^T
    are the Gram matrices of neighbours, |a| = 1. The number
    ``1 / (a^T (release - G)^-1 a)`` is at least 1 for the second always, and
    below 1 for the first with probability ``1 - exp(-epsilon / 3)``: 0.28 at
    epsilon = 1. That is its exact delta. Use `MatrixLaplaceCovariance` for
    pure epsilon and `WishartCovariance` for PSD releases.

    Parameters
    ----------
    n_components : dimension of the released subspace.
    epsilon : what the paper claims.
    """

    n_components: int
    epsilon: float
    n_features: int | None = None

    def __post_init__(self) -> None:
        check_components(self.n_components, self.n_features)
        Budget(self.epsilon)

    @property
    def guarantee(self) -> Guarantee:
        """None."""
        return Guarantee.none(
            f"the noise is one-sided, so supports differ: true delta {true_delta(self.epsilon):.3g} where 0 is claimed",
            "Jiang, Xie, Zhang, AAAI 2016, Algorithm 2 and Theorem 4",
        )

    def scale(self, n_features: int) -> float:
        """Scale of the noise, for sums (the paper divides by n)."""
        return 3.0 / (2.0 * self.epsilon)

    def noise(self, n_features: int, draws: Draws) -> FloatArray:
        """Draw the noise."""
        return svec(self.scale(n_features) * wishart(draws, n_features, n_features + 1))

    def constants(self, n_features: int) -> tuple[object, ...]:
        """The scale."""
        return (self.scale(n_features),)

    def noise_scale(self, n_features: int) -> float:
        """Sd of a diagonal entry of the noise."""
        return self.scale(n_features) * math.sqrt(2.0 * (n_features + 1))

    def spectral_error(self, n_features: int) -> float:
        """Expected spectral norm of the noise, to leading order."""
        return self.scale(n_features) * (math.sqrt(n_features + 1.0) + math.sqrt(n_features)) ** 2


def true_delta(epsilon: float) -> float:
    """Delta of the printed algorithm at its own epsilon, under zero-out: ``1 - exp(-epsilon / 3)``."""
    return -math.expm1(-epsilon / 3.0)
