"""Amplification by shuffling, in the closed form of Feldman, McMillan and Talwar 2021.

n rows, one secret uniform permutation, and n adaptively chosen mechanisms, each (epsilon0, delta0)-DP in the one row
that it reads, under replacement. All n outputs together are (epsilon, delta)-DP (Theorem 3.1 of the 2021 paper, "Hiding
among the clones") with

    epsilon = ln(1 + (e^e0 - 1)/(e^e0 + 1) (8 sqrt(e^e0 ln(4/dh) / n) + 8 e^e0 / n))
    delta   = dh + (e^epsilon + 1)(1 + e^-e0 / 2) n delta0

for e0 <= ln(n / (16 ln(4/dh))) only. The numerical bound of 2022 has an erratum and is not used.
"""

from __future__ import annotations

import math

from streampca.errors import BadParameterError
from streampca.privacy.gaussian import mu_of

CITATION = "Feldman, McMillan and Talwar 2021, Theorem 3.1"


def largest_local_epsilon(n: int, delta_hat: float) -> float:
    """Return the largest epsilon0 for which the closed form is proved; -inf if there is none."""
    bound = n / (16.0 * math.log(4.0 / delta_hat))
    return math.log(bound) if bound > 1.0 else -math.inf


def shuffled_epsilon(epsilon0: float, delta_hat: float, n: int) -> float:
    """Return the epsilon of n shuffled rows, each in an epsilon0-DP mechanism.

    Raises
    ------
    BadParameterError
        If epsilon0 is above `largest_local_epsilon`: nothing is proved there.
    """
    valid = largest_local_epsilon(n, delta_hat)
    if epsilon0 > valid:
        raise BadParameterError(
            f"shuffling {n} rows proves nothing for a local epsilon of {epsilon0:.3g}, only up to {valid:.3g}. "
            "Shuffle more rows, or use minibatches."
        )
    growth = math.exp(epsilon0)
    clones = 8.0 * math.sqrt(growth * math.log(4.0 / delta_hat) / n) + 8.0 * growth / n
    return math.log1p((growth - 1.0) / (growth + 1.0) * clones)


def shuffled_mu(epsilon: float, delta: float, n: int) -> float:
    """Return the mu of each Gaussian step for which n shuffled steps are (epsilon, delta)-DP together.

    Raises
    ------
    BadParameterError
        If n rows are too few for less noise than without a shuffle.
    """
    # Half of delta is spent on the shuffling, half on the steps.
    delta_hat = 0.5 * delta
    high = largest_local_epsilon(n, delta_hat)
    mu = 0.0
    if high > 0.0:
        low = high if shuffled_epsilon(high, delta_hat, n) <= epsilon else 0.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            if shuffled_epsilon(middle, delta_hat, n) <= epsilon:
                low = middle
            else:
                high = middle
        # The second line of the theorem, solved for delta0.
        delta0 = 0.5 * delta / ((math.exp(epsilon) + 1.0) * (1.0 + 0.5 * math.exp(-low)) * n)
        mu = mu_of(low, delta0)
    if mu <= mu_of(epsilon, delta):
        raise BadParameterError(
            f"shuffle={n!r}: expected more rows. At epsilon={epsilon:g}, delta={delta:g} the 2021 bound allows no "
            "less noise than without a shuffle; use minibatches instead."
        )
    return mu
