"""The exact privacy profile of Gaussian mechanisms (mu-GDP).

To distinguish two neighboring inputs of a Gaussian mechanism is to distinguish N(0, 1) from N(mu, 1), with mu =
sensitivity / (standard deviation of the noise). Exactly,

    delta(epsilon) = Phi(-epsilon/mu + mu/2) - e**epsilon * Phi(-epsilon/mu - mu/2)

(Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Corollary 2.13). Mechanisms on the same rows, chosen adaptively
or not, compose to the root of the sum of the squares of their mu (ibid., Corollary 2).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

#: Below this mu, a bound replaces the difference of two nearly equal numbers.
_SMALL = 1e-6


def delta_at(mu: float, epsilon: float) -> float:
    """Return the smallest delta for which a mu-GDP mechanism is (epsilon, delta)-DP.

    Below mu = 1e-6 the value is an upper bound, too large by at most 1e-6.
    """
    if mu <= 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    from scipy.special import log_ndtr, ndtr  # loads slowly

    if mu < _SMALL:
        # The two terms of the profile cancel. With Q the upper tail of the normal and x = epsilon/mu - mu/2, the
        # derivative in mu at fixed x bounds their difference by mu (phi(x) - x Q(x)).
        x = epsilon / mu - mu / 2.0
        if x > 39.0:
            return 0.0  # below the least float
        density = math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
        return mu * (density - x * float(ndtr(-x)))
    first = float(ndtr(-epsilon / mu + mu / 2.0))
    # The logarithm keeps e**epsilon * Phi(...) finite where its factors overflow and underflow.
    second = math.exp(epsilon + float(log_ndtr(-epsilon / mu - mu / 2.0)))
    return max(first - second, 0.0)


def epsilon_at(mu: float, delta: float) -> float:
    """Return the smallest epsilon >= 0 for which a mu-GDP mechanism is (epsilon, delta)-DP."""
    if delta_at(mu, 0.0) <= delta:
        return 0.0
    if delta <= 0.0 or math.isinf(mu):
        return math.inf
    # The upper end of the last bracket: rounding never states an epsilon that is too small.
    return _bracket(lambda epsilon: delta_at(mu, epsilon) > delta)[1]


@lru_cache(maxsize=256)  # one bisection takes 0.3 ms; several objects of one run have the same budget
def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest mu whose mu-GDP mechanism is (epsilon, delta)-DP."""
    return _bracket(lambda mu: delta_at(mu, epsilon) <= delta)[0]


def _bracket(holds: Callable[[float], bool]) -> tuple[float, float]:
    """Return neighboring floats between which ``holds`` changes from true to false."""
    # Invariant: `holds` is true at low and false at high.
    low, high = 0.0, 1.0
    while holds(high):
        high *= 2.0
    while True:
        middle = 0.5 * (low + high)
        if middle in (low, high):
            return low, high
        if holds(middle):
            low = middle
        else:
            high = middle
