"""Laplace noise that never exceeds a bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.types import FloatArray
from streampca.privacy.randomness import Draws


@dataclass(frozen=True)
class TruncatedLaplace:
    """TLap(sensitivity, epsilon, delta): (epsilon, delta)-DP noise of bounded support.

    The density is proportional to ``exp(-|x| epsilon / sensitivity)`` on
    ``|x| <= bound = (sensitivity / epsilon) ln(1 + (e**epsilon - 1) / (2 delta))``.

    Theorem. Added to a number that a neighbour changes by at most
    ``sensitivity`` it is (epsilon, delta)-DP, and no smaller delta holds: the
    ratio of densities is at most e**epsilon where both are positive, and the
    mass beyond the shifted support is
    ``(e**epsilon - 1) / (2 (e**(epsilon bound / sensitivity) - 1)) = delta``
    (Geng, Ding, Guo and Kumar 2020, Theorem 1; Singhal and Steinke 2021).

    Parameters
    ----------
    sensitivity, epsilon : positive floats.
    delta : float in (0, 0.5).
    """

    sensitivity: float
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        for name in ("sensitivity", "epsilon"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise BadParameter(f"{name}={getattr(self, name)!r} must be a positive finite number")
        if not 0.0 < self.delta < 0.5:
            raise BadParameter(f"delta={self.delta!r} must be in (0, 0.5), e.g. 1e-6")

    @property
    def bound(self) -> float:
        """Largest magnitude of the noise."""
        return self.sensitivity / self.epsilon * math.log1p(math.expm1(self.epsilon) / (2.0 * self.delta))

    def above(self, x: float) -> float:
        """P(noise > x), exactly."""
        if abs(x) >= self.bound:
            return 0.0 if x > 0.0 else 1.0
        if x < 0.0:
            return 1.0 - self.above(-x)
        scale = self.sensitivity / self.epsilon
        # (e^{-x/b} - e^{-A/b}) / (2 (1 - e^{-A/b})), arranged so that small tails keep their digits.
        tail = math.exp(-x / scale) * -math.expm1((x - self.bound) / scale)
        return 0.5 * tail / -math.expm1(-self.bound / scale)

    def draw(self, draws: Draws, count: int) -> FloatArray:
        """``count`` independent draws, by inversion."""
        uniform = draws.uniform(2 * count)
        inside = -math.expm1(-self.bound * self.epsilon / self.sensitivity)
        size = np.minimum(-self.sensitivity / self.epsilon * np.log1p(-uniform[:count] * inside), self.bound)
        return np.where(uniform[count:] < 0.5, -size, size)
