"""Matrix-variate Laplace noise on Gram matrices: pure epsilon."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from streampca.linalg.svec import svec
from streampca.linalg.types import FloatArray
from streampca.mechanisms.covariance import CovarianceMechanism, Projection
from streampca.privacy.budget import Adjacency
from streampca.privacy.guarantee import Guarantee
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
        return self._promise(self.theorem, self.citation)

    @abstractmethod
    def scale(self, n_features: int) -> float:
        """Return the scale of the noise."""

    def constants(self, n_features: int) -> tuple[object, ...]:
        return (self.scale(n_features),)


@dataclass(frozen=True, kw_only=True)
class MatrixLaplaceCovariance(PureCovariance):
    """Gram matrix plus the difference of two Wishart matrices: pure epsilon, the least noise at delta 0.

    Parameters are those of `PureCovariance`.

    Notes
    -----
    *Guarantee.* The whole matrix is released: (epsilon, 0)-DP per row. ``N = W1 - W2`` with W1, W2 iid ``Wis_d(d + 1, c
    I)`` has density proportional to ``exp(-tr N / 2c)`` times the integral of ``exp(-tr B / c)`` over all ``B >= 0``
    with ``B >= -N``. Adding a PSD ``D`` to N enlarges that domain, so ``f(N + D) >= exp(-tr D / 2c) f(N)``; since
    ``f(N) = f(-N)`` also ``f(N) >= exp(-tr D / 2c) f(N + D)``. A row adds a PSD matrix of trace at most 1, so c = 1/(2
    epsilon) gives exactly (epsilon, 0)-DP under zero-out. Replacing one is two such steps: c = 1/epsilon (for d = 1
    they cannot both be full, and c = 1/(2 epsilon) stays). For d = 1 the noise is Laplace(1/epsilon).

    Citation: the symmetrized form of Jiang, Xie and Zhang, AAAI 2016, Algorithm 2, whose printed one-sided noise is not
    (epsilon, 0)-DP.
    """

    theorem = "matrix-variate Laplace mechanism: log-density changes by at most the trace norm over 2c"
    citation = "after Jiang, Xie, Zhang, AAAI 2016, Algorithm 2"

    def scale(self, n_features: int) -> float:
        steps = 2.0 if self.adjacency == "replace" and n_features > 1 else 1.0
        return steps / (2.0 * self.epsilon)

    def noise(self, n_features: int, draws: Draws) -> FloatArray:
        d = n_features
        plus, minus = draws.normal(2 * d * (d + 1)).reshape(2, d, d + 1)
        return svec(self.scale(d) * (np.dot(plus, plus.T) - np.dot(minus, minus.T)))

    def noise_std(self, n_features: int) -> float:
        # A diagonal entry is a difference of two chi-squares of d + 1 degrees, each of variance 2 (d + 1).
        return 2.0 * self.scale(n_features) * math.sqrt(n_features + 1.0)

    def spectral_error(self, n_features: int) -> float:
        # 3.330 c d; under zero-out 1.665 d / epsilon.
        return EDGE * self.scale(n_features) * n_features if n_features > 1 else 2.0 * self.scale(1)
