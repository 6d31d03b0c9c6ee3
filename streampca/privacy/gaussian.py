"""The exact privacy profile of Gaussian mechanisms (mu-GDP).

Distinguishing two neighbouring inputs of a Gaussian mechanism is
distinguishing N(0, 1) from N(mu, 1), with mu = sensitivity / (standard deviation of the noise). Then

    delta(epsilon) = Phi(-epsilon/mu + mu/2) - e**epsilon * Phi(-epsilon/mu - mu/2)

exactly (Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Corollary
2.13), and mechanisms compose as the root of the sum of squares of their mu.
"""

from __future__ import annotations

import math
from collections.abc import Callable

#: Below this mu, a bound stands for the difference of two nearly equal numbers.
_SMALL = 1e-6


def delta_at(mu: float, epsilon: float) -> float:
    """The smallest delta for which a mu-GDP mechanism is (epsilon, delta)-DP; below mu = 1e-6, a bound within 1e-6.

    There the two terms cancel. With Q the upper tail of the normal and x = epsilon/mu - mu/2, the derivative in mu at
    fixed x bounds their difference: it is at most ``mu (phi(x) - x Q(x))``.
    """
    if mu <= 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    from scipy.special import log_ndtr, ndtr  # loads slowly

    if mu < _SMALL:
        at = epsilon / mu - mu / 2.0
        if at > 39.0:
            return 0.0  # below the least float
        density = math.exp(-0.5 * at * at) / math.sqrt(2.0 * math.pi)
        return mu * (density - at * float(ndtr(-at)))
    first = float(ndtr(-epsilon / mu + mu / 2.0))
    second = math.exp(epsilon + float(log_ndtr(-epsilon / mu - mu / 2.0)))
    return max(first - second, 0.0)


def epsilon_at(mu: float, delta: float) -> float:
    """The smallest epsilon >= 0 for which a mu-GDP mechanism is (epsilon, delta)-DP."""
    if delta_at(mu, 0.0) <= delta:
        return 0.0
    if delta <= 0.0 or math.isinf(mu):
        return math.inf
    high = 1.0
    while delta_at(mu, high) > delta:
        high *= 2.0
    return _bisect(lambda eps: delta_at(mu, eps) > delta, 0.0, high)[1]


def mu_of(epsilon: float, delta: float) -> float:
    """The largest mu whose mu-GDP mechanism is (epsilon, delta)-DP."""
    high = 1.0
    while delta_at(high, epsilon) <= delta:
        high *= 2.0
    return _bisect(lambda mu: delta_at(mu, epsilon) <= delta, 0.0, high)[0]


def compose(*mus: float) -> float:
    """The mu of mechanisms run on the same rows, adaptively or not."""
    return math.hypot(*mus)


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Shrink [low, high], where ``holds`` is true below and false above a point."""
    while True:
        middle = 0.5 * (low + high)
        if middle in (low, high):
            return low, high
        if holds(middle):
            low = middle
        else:
            high = middle
