"""Laplace noise on Gram matrices, entry by entry or matrix-variate: pure epsilon."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from streampca.linalg.svec import entry_weights, svec, svec_size
from streampca.linalg.types import FloatArray
from streampca.mechanisms.covariance import CovarianceMechanism, Projection
from streampca.privacy.budget import Adjacency
from streampca.privacy.guarantee import Guarantee, laplace_delta
from streampca.privacy.randomness import Draws

#: Spectral norm of W1 - W2 over d, for iid Wis_d(d + 1, I) and large d: the
#: edge of the free difference of two Marchenko-Pastur laws of rate 1.
EDGE = math.sqrt((11.0 + 5.0 * math.sqrt(5.0)) / 2.0)


@dataclass(frozen=True, kw_only=True)
class PureCovariance(CovarianceMechanism):
    """A covariance mechanism with delta 0, whose noise has one scale.

    Parameters
    ----------
    n_components, epsilon, adjacency, n_features : see `Mechanism`.
    project : ``None``, ``"psd"`` or ``"auto"``; see `CovarianceMechanism`.

    Attributes
    ----------
    theorem, citation : of the guarantee.
    """

    n_components: int
    epsilon: float
    adjacency: Adjacency = "zero-out"
    project: Projection = None
    n_features: int | None = None

    theorem: ClassVar[str]
    citation: ClassVar[str]

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, 0)-DP for one release of one data set."""
        return self._promise(self.theorem, self.citation)

    @abstractmethod
    def scale(self, n_features: int) -> float:
        """Scale of the noise."""

    def constants(self, n_features: int) -> tuple[object, ...]:
        """The scale."""
        return (self.scale(n_features),)


@dataclass(frozen=True, kw_only=True)
class LaplaceCovariance(PureCovariance):
    """Gram matrix plus independent Laplace noise on its upper triangle: pure epsilon.

    `MatrixLaplaceCovariance` gives the same guarantee with about
    ``0.85 * sqrt(d)`` times less noise; this one is the baseline.

    Parameters are those of `PureCovariance`.

    Notes
    -----
    The whole matrix is released: (epsilon, 0)-DP per row by the Laplace
    mechanism, scale ``sensitivity / epsilon``, where the l1 sensitivity of the
    upper triangle is `sensitivity`. In floating point, up to the guarantee's ``floating_delta``: a row changes every
    entry.

    Citation: Jiang, Xie and Zhang, "Wishart Mechanism for Differentially
    Private Principal Components Analysis", AAAI 2016, Theorem 3, whose scale
    is ``2 d / epsilon``.
    """

    theorem = "Laplace mechanism, l1 sensitivity of the upper triangle"
    citation = "Jiang, Xie, Zhang, AAAI 2016, Algorithm 1"

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, 0)-DP for one release of one data set, but for floating point."""
        d = self.n_features
        return replace(
            super().guarantee, floating_delta=None if d is None else laplace_delta(svec_size(d), self.epsilon)
        )

    def guarantee_for(self, n_features: int) -> Guarantee:
        """The guarantee of one release of rows with so many features, and what floating point costs it."""
        return replace(self, n_features=n_features).guarantee

    def sensitivity(self, n_features: int) -> float:
        """The l1 sensitivity of the upper triangle.

        Zero-out: the sum of ``|a_i a_j|`` over i <= j is ``(|a|_1^2 + |a|^2)/2``,
        at most ``(d + 1)/2`` and attained. Replace: by Cauchy-Schwarz against
        ``|a a^T - b b^T|_F <= sqrt(2)``, at most ``sqrt(d (d + 3) / 2)``, attained
        at d = 2 and within 5 % of what two rows can do beyond; 1 if d = 1.
        """
        if self.adjacency == "zero-out":
            return (n_features + 1) / 2.0
        return math.sqrt(n_features * (n_features + 3) / 2.0) if n_features > 1 else 1.0

    def scale(self, n_features: int) -> float:
        """Scale of the Laplace noise of every entry."""
        return self.sensitivity(n_features) / self.epsilon

    def noise(self, n_features: int, draws: Draws) -> FloatArray:
        """Draw the noise of the entries, and convert it to svec coordinates."""
        entries = self.scale(n_features) * draws.laplace(svec_size(n_features))
        return entries / entry_weights(n_features)

    def noise_std(self, n_features: int) -> float:
        """Standard deviation of every entry of the noise."""
        return math.sqrt(2.0) * self.scale(n_features)

    def spectral_error(self, n_features: int) -> float:
        """``2 sqrt(2 d)`` scales: the edge of the semicircle for entries of that variance."""
        return self.scale(n_features) * (2.0 * math.sqrt(2.0 * n_features) if n_features > 1 else 1.0)


@dataclass(frozen=True, kw_only=True)
class MatrixLaplaceCovariance(PureCovariance):
    """Gram matrix plus the difference of two Wishart matrices: pure epsilon, the least noise at delta 0.

    Parameters are those of `PureCovariance`.

    Notes
    -----
    The whole matrix is released: (epsilon, 0)-DP per row.

    ``N = W1 - W2`` with W1, W2 iid ``Wis_d(d + 1, c I)`` has density
    proportional to ``exp(-tr N / 2c)`` times the integral of
    ``exp(-tr B / c)`` over all ``B >= 0`` with ``B >= -N``. Adding a PSD
    ``D`` to N enlarges that domain, so ``f(N + D) >= exp(-tr D / 2c) f(N)``;
    since ``f(N) = f(-N)`` also ``f(N) >= exp(-tr D / 2c) f(N + D)``. A row
    adds a PSD matrix of trace at most 1, so c = 1/(2 epsilon) gives exactly
    (epsilon, 0)-DP under zero-out. Replacing one is two such steps:
    c = 1/epsilon (for d = 1 they cannot both be full, and c = 1/(2 epsilon)
    stays). For d = 1 the noise is Laplace(1/epsilon).

    Citation: the symmetrised form of Jiang, Xie and Zhang, AAAI 2016,
    Algorithm 2, whose printed one-sided noise is not (epsilon, 0)-DP.
    """

    theorem = "matrix-variate Laplace mechanism: log-density changes by at most the trace norm over 2c"
    citation = "after Jiang, Xie, Zhang, AAAI 2016, Algorithm 2"

    def scale(self, n_features: int) -> float:
        """Scale c of the two Wishart matrices."""
        steps = 2.0 if self.adjacency == "replace" and n_features > 1 else 1.0
        return steps / (2.0 * self.epsilon)

    def noise(self, n_features: int, draws: Draws) -> FloatArray:
        """Draw W1 - W2."""
        d = n_features
        plus, minus = draws.normal(2 * d * (d + 1)).reshape(2, d, d + 1)
        return svec(self.scale(d) * (np.dot(plus, plus.T) - np.dot(minus, minus.T)))

    def noise_std(self, n_features: int) -> float:
        """Standard deviation of a diagonal entry of the noise, a difference of two chi-squares of d + 1 degrees."""
        return 2.0 * self.scale(n_features) * math.sqrt(n_features + 1.0)

    def spectral_error(self, n_features: int) -> float:
        """``3.330 c d``; under zero-out 1.665 d / epsilon."""
        return EDGE * self.scale(n_features) * n_features if n_features > 1 else 2.0 * self.scale(1)
