"""Amplification by shuffling, in the closed form of Feldman, McMillan and Talwar 2021.

n rows, one secret uniform permutation, and n adaptively chosen mechanisms,
each (epsilon0, delta0)-DP in the one row it sees, under replacement. All n
outputs together are (epsilon, delta)-DP with (Theorem 3.1 of the 2021 paper,
"Hiding among the clones")

    epsilon = ln(1 + (e^e0 - 1)/(e^e0 + 1) (8 sqrt(e^e0 ln(4/dh) / n) + 8 e^e0 / n))
    delta   = dh + (e^epsilon + 1)(1 + e^-e0 / 2) n delta0

valid for e0 <= ln(n / (16 ln(4/dh))) and nowhere else. The numerical bound of
2022 has an erratum and is not used.
"""

from __future__ import annotations

import math

from streampca.errors import BadParameterError
from streampca.privacy.gaussian import mu_of

CITATION = "Feldman, McMillan and Talwar 2021, Theorem 3.1"


def largest_local_epsilon(n: int, delta_hat: float) -> float:
    """The largest epsilon0 for which the closed form is proved; -inf if there is none."""
    bound = n / (16.0 * math.log(4.0 / delta_hat))
    return math.log(bound) if bound > 1.0 else -math.inf


def shuffled_epsilon(epsilon0: float, delta_hat: float, n: int) -> float:
    """Epsilon of n shuffled rows, each in an epsilon0-DP mechanism, or `BadParameterError` if nothing is proved."""
    valid = largest_local_epsilon(n, delta_hat)
    if epsilon0 > valid:
        raise BadParameterError(
            f"shuffling {n} rows proves nothing for a local epsilon of {epsilon0:.3g}, only up to {valid:.3g}; "
            "shuffle more rows, or use minibatches"
        )
    grown = math.exp(epsilon0)
    clones = 8.0 * math.sqrt(grown * math.log(4.0 / delta_hat) / n) + 8.0 * grown / n
    return math.log1p((grown - 1.0) / (grown + 1.0) * clones)


def shuffled_mu(epsilon: float, delta: float, n: int) -> float:
    """The mu of each Gaussian step for which n shuffled steps are (epsilon, delta)-DP together.

    Half of delta goes to the shuffling, half to the steps. Where n rows are too few for less noise than without a
    shuffle, `BadParameterError` is raised.
    """
    delta_hat = 0.5 * delta
    high = largest_local_epsilon(n, delta_hat)
    plain = mu_of(epsilon, delta)
    mu = 0.0
    if high > 0.0:
        low = 0.0
        if shuffled_epsilon(high, delta_hat, n) <= epsilon:
            low = high
        for _ in range(60):
            middle = 0.5 * (low + high)
            if shuffled_epsilon(middle, delta_hat, n) <= epsilon:
                low = middle
            else:
                high = middle
        delta0 = 0.5 * delta / ((math.exp(epsilon) + 1.0) * (1.0 + 0.5 * math.exp(-low)) * n)
        mu = mu_of(low, delta0)
    if mu <= plain:
        raise BadParameterError(
            f"shuffle={n!r} rows are too few: at epsilon={epsilon:g}, delta={delta:g} the 2021 bound allows no less "
            "noise than not shuffling; shuffle more rows, or leave shuffle out and use minibatches"
        )
    return mu
