"""Covariance mechanisms of Jiang, Xie and Zhang 2016: Laplace noise on entries, and Wishart noise as it is private."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import gammainc, gammaincc

from streampca.errors import BadParameterError
from streampca.linalg.svec import entry_weights, svec, svec_size
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import BudgetedMechanism
from streampca.mechanisms.covariance import CovarianceMechanism, PureCovariance
from streampca.privacy.budget import Adjacency
from streampca.privacy.guarantee import Guarantee, laplace_delta
from streampca.privacy.randomness import Draws
from streampca.release.clear import NoiseLaw


@dataclass(frozen=True, kw_only=True)
class LaplaceCovariance(PureCovariance):
    """Gram matrix plus independent Laplace noise on its upper triangle: pure epsilon.

    `MatrixLaplaceCovariance` has the same parameters and guarantee, with about ``0.85 * sqrt(d)`` times less noise.

    Notes
    -----
    *Guarantee.* The whole matrix is released: (epsilon, 0)-DP per row by the Laplace mechanism, scale
    ``sensitivity / epsilon``, where `sensitivity` is the l1 sensitivity of the upper triangle. In floating point, up to
    the guarantee's ``floating_delta``, because a row changes every entry. The scale of JXZ16 is ``2 d / epsilon``.
    """

    theorem = "Laplace mechanism, l1 sensitivity of the upper triangle"
    citation = "Jiang, Xie, Zhang, AAAI 2016, Algorithm 1"
    kind = "laplace"
    floating_delta = None  # it depends on the number of features

    def guarantee_for(self, n_features: int) -> Guarantee:
        return replace(self.guarantee, floating_delta=laplace_delta(svec_size(n_features), self.epsilon))

    def sensitivity(self, n_features: int) -> float:
        """Return the l1 sensitivity of the upper triangle, proved in ``docs/theory/jxz16.md``.

        Zero-out: ``(d + 1)/2``, attained. Replace: at most ``sqrt(d (d + 3) / 2)``, attained at d = 2 and within 5 %
        for larger d; 1 if d = 1.
        """
        if self.adjacency == "zero-out":
            return (n_features + 1) / 2.0
        return math.sqrt(n_features * (n_features + 3) / 2.0) if n_features > 1 else 1.0

    def scale(self, n_features: int) -> float:
        return self.sensitivity(n_features) / self.epsilon

    def noise(self, n_features: int, draws: Draws) -> FloatArray:
        # The noise is on entries of the triangle; svec coordinates off the diagonal are sqrt(2) times these.
        entries = self.scale(n_features) * draws.laplace(svec_size(n_features))
        return entries / entry_weights(n_features)

    def noise_std(self, n_features: int) -> float:
        return math.sqrt(2.0) * self.scale(n_features)


@dataclass(frozen=True, kw_only=True)
class WishartCovariance(CovarianceMechanism, BudgetedMechanism):
    """Gram matrix plus Wishart noise: the release is positive semidefinite.

    The noise is positive semidefinite. Its mean, ``degrees * scale`` times the identity, is public (both are in
    ``release.details``, the scale in units of row_norm**2) and is not subtracted, because it does not move the
    subspace. `GaussianCovariance` has about 3 times less noise. The parameters are those of `Mechanism`.

    Notes
    -----
    *Guarantee.* The whole matrix is released: (epsilon, delta)-DP per row by `profile`, which is exact under zero-out
    and an upper bound under replace. The degrees of freedom and the scale minimize the spectral norm of the noise. The
    claim of (epsilon, 0) of JXZ16 does not hold (``docs/theory/jxz16.md``).
    """

    theorem = "profile of Wishart noise by its Schur complement, a chi-square against its shift"
    citation = "after Jiang, Xie, Zhang, AAAI 2016, Algorithm 2"
    shown = ("degrees", "scale")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delta <= 0.0:
            raise BadParameterError(
                "delta", self.delta, "a number in (0, 1), because one-sided noise has no pure epsilon guarantee",
                advice="Use MatrixLaplaceCovariance for delta=0"
            )  # fmt: skip

    def degrees(self, n_features: int) -> int:
        """Degrees of freedom m of the noise."""
        return design(self.epsilon, self.delta, self.adjacency, n_features)[0]

    def scale(self, n_features: int) -> float:
        """Scale c of the noise, ``c * Wis_d(m, I)``."""
        return design(self.epsilon, self.delta, self.adjacency, n_features)[1]

    def noise(self, n_features: int, draws: Draws) -> FloatArray:
        # Z Z^T, Z standard normal (d, m), is exact by definition. The chi-squares of Bartlett's triangular form need as
        # many normals if m is near d.
        degrees = self.degrees(n_features)
        normals = draws.normal(n_features * degrees).reshape(n_features, degrees)
        return svec(self.scale(n_features) * np.dot(normals, normals.T))

    def noise_law(self, n_features: int) -> NoiseLaw:
        return NoiseLaw("wishart", self.scale(n_features), self.degrees(n_features))

    def noise_std(self, n_features: int) -> float:
        return self.scale(n_features) * math.sqrt(2.0 * self.degrees(n_features))

    def constants(self, n_features: int) -> tuple[object, ...]:
        return self.degrees(n_features), self.scale(n_features)


def profile(epsilon: float, degrees: int, scale: float, n_features: int, adjacency: Adjacency = "zero-out") -> float:
    """Delta at which adding ``c * Wis_d(m, I)`` to a Gram matrix is (epsilon, delta)-DP.

    Under zero-out the worst row is a unit vector, and the likelihood ratio depends on the noise only through its Schur
    complement, which is c times a chi-square X of ``m - d + 1`` degrees: the mechanism is exactly as private as X
    against ``X + 1/c``. Under replace one row is removed and one added: an upper bound at the best split of epsilon.
    """
    nu, shift = degrees - n_features + 1, 1.0 / scale
    ends = np.array([epsilon])
    # The Schur complement of the noise at the row has nu = m - d + 1 degrees; the row shifts it by 1, or 1 / c of c X.
    direct = max(float(_put_in(ends, nu, shift)[0]), float(_taken_out(ends, nu, shift)[0]))
    if adjacency == "zero-out":
        return direct
    first = np.append(np.linspace(0.0, min(epsilon, _LARGEST), 129), min(epsilon, 0.5 * shift, _LARGEST))
    bounds = _taken_out(first, nu, shift) + np.exp(first) * _put_in(epsilon - first, nu, shift)
    return min(1.0, max(direct, float(bounds.min())))


#: Largest argument of exp without overflow. Clamping overestimates delta, so it is safe.
_LARGEST = 700.0


def _put_in(epsilon: FloatArray, nu: int, shift: float) -> FloatArray:
    """Hockey-stick divergence of X from X + b at e**epsilon: the lower tail, below the support of X + b."""
    x, factor = _threshold(epsilon + 0.5 * shift, nu, shift), np.exp(np.minimum(epsilon, _LARGEST))
    delta: FloatArray = gammainc(0.5 * nu, 0.5 * x) - factor * gammainc(0.5 * nu, 0.5 * (x - shift))
    return np.maximum(delta, 0.0)


def _taken_out(epsilon: FloatArray, nu: int, shift: float) -> FloatArray:
    """Hockey-stick divergence of X + b from X at e**epsilon: the upper tail; none at or above b/2."""
    gap, factor = 0.5 * shift - epsilon, np.exp(np.minimum(epsilon, _LARGEST))
    # Where X + b is less likely than e**epsilon times X for every x, the divergence is 0.
    y = _threshold(np.where(gap > 0.0, gap, 1.0), nu, shift)
    delta: FloatArray = gammaincc(0.5 * nu, 0.5 * (y - shift)) - factor * gammaincc(0.5 * nu, 0.5 * y)
    return np.where(gap > 0.0, np.maximum(delta, 0.0), 0.0)


def _threshold(log_ratio: FloatArray, nu: int, shift: float) -> FloatArray:
    """The x at which ``(1 - shift / x) ** (nu / 2 - 1)`` is ``exp(-log_ratio)``."""
    if nu == 2:
        return np.full_like(log_ratio, shift)
    return -shift / np.expm1(-log_ratio / (0.5 * nu - 1.0))


@lru_cache(maxsize=64)
def design(epsilon: float, delta: float, adjacency: Adjacency, n_features: int) -> tuple[int, float]:
    """Choose the degrees of freedom and the scale of least spectral norm that meet (epsilon, delta)."""

    def norm(nu: int) -> float:
        # Of c * Wis_d(m, I), to leading order.
        edge = (math.sqrt(nu + n_features - 1) + math.sqrt(n_features)) ** 2
        return _least_scale(epsilon, delta, adjacency, nu) * edge

    # The norm falls, then rises with nu: bracket by doubling, then search by golden section on integers.
    high = 8
    while norm(2 * high) < norm(high):
        high *= 2
    low, high = 2, 4 * high
    while high - low > 2:
        left = low + round(0.381966 * (high - low))
        right = max(left + 1, high - round(0.381966 * (high - low)))
        low, high = (low, right) if norm(left) <= norm(right) else (left, high)
    nu = min(range(low, high + 1), key=norm)
    return nu + n_features - 1, _least_scale(epsilon, delta, adjacency, nu)


@lru_cache(maxsize=4096)
def _least_scale(epsilon: float, delta: float, adjacency: Adjacency, nu: int) -> float:
    """Return the smallest scale that meets (epsilon, delta) at ``nu = m - d + 1``, within 1e-12 and from above."""

    def is_enough(scale: float) -> bool:
        return profile(epsilon, nu, scale, 1, adjacency) <= delta

    low, high = 1e-3, 1.0
    while not is_enough(high):
        low, high = high, 2.0 * high
    while is_enough(low):
        low, high = 0.5 * low, low
    while high > low * (1.0 + 1e-12):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high * (1.0 + 1e-9)  # covers the rounding of the profile itself
