"""How the noise of a released Gram matrix passes through a query.

The noise E of a release with ``noise_std`` sigma is isotropic in svec
coordinates: its diagonal has sd sigma and its other entries sigma / sqrt(2)
(the Gaussian orthogonal ensemble). So for every fixed symmetric M

    <M, E> ~ N(0, sigma**2 ||M||_F**2)      exactly,

which is sigma for ``x^T E x`` with a unit x, |S| sigma for the indicator of S,
and sigma sqrt(k) for a projector of rank k. That holds for a query fixed before
the release was seen (*pointwise*). A direction that is chosen by looking at the
release needs a bound on all directions at once (*uniform*):

    P( ||E|| > sigma (sqrt(2 d) + sqrt(2 ln(2 / beta))) ) <= beta

because E lambda_max(E) <= sigma sqrt(2 d) (Sudakov-Fernique; Vershynin 2018,
Theorem 7.3.1 and Exercise 7.3.5) and lambda_max is 1-Lipschitz in svec
coordinates (Gaussian concentration, ibid., Theorem 5.2.2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, ndtri

from streampca.errors import BadParameter
from streampca.linalg.types import FloatArray
from streampca.release import Release


@dataclass(frozen=True)
class GramNoise:
    """The noise in a released Gram matrix, from public numbers only.

    Attributes
    ----------
    std : sd of a diagonal entry, in the units of ``release.gram``.
    n_features : side of the matrix.
    """

    std: float
    n_features: int

    @classmethod
    def of(cls, release: Release) -> GramNoise | None:
        """The noise of a release, or None if it does not state its law."""
        std = release.noise_std
        return None if std is None else cls(std, release.n_features)

    def through(self, matrix: FloatArray) -> float:
        """Exact sd of ``<M, E>`` for a matrix fixed in advance."""
        return self.std * float(np.linalg.norm(0.5 * (matrix + matrix.T)))

    def between(self, x: FloatArray, y: FloatArray) -> float:
        """Exact sd of ``x^T E y`` for vectors fixed in advance."""
        return self.std * math.sqrt(0.5 * (float(x @ x) * float(y @ y) + float(x @ y) ** 2))

    def spectral(self, level: float = 0.95) -> float:
        """Bound on the spectral norm of E that holds with probability at least ``level``."""
        return self.on_supports(self.n_features, level)

    def on_supports(self, size: int, level: float = 0.95) -> float:
        """Bound on ``|x^T E x|`` over all unit x with at most ``size`` non-zero entries.

        A union bound over the supports: ``sigma (sqrt(2 s) + sqrt(2 ln(2 C(d, s) / beta)))``.
        """
        check_level(level)
        d, s = self.n_features, min(size, self.n_features)
        supports = float(gammaln(d + 1) - gammaln(s + 1) - gammaln(d - s + 1))
        return self.std * (math.sqrt(2.0 * s) + math.sqrt(2.0 * (supports + math.log(2.0 / (1.0 - level)))))


def check_level(level: float) -> None:
    """Raise `BadParameter` unless 0 < level < 1."""
    if not (isinstance(level, (int, float)) and 0.0 < level < 1.0):
        raise BadParameter(
            f"level={level!r} must be in (0, 1): the probability with which the error bar holds, e.g. 0.95"
        )


def two_sided(level: float) -> float:
    """How many sd a normal stays within with probability ``level``."""
    check_level(level)
    return float(ndtri(0.5 + 0.5 * level))
