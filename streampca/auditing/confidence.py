"""From counts of two kinds of error to a lower confidence bound on mu or epsilon.

An attacker says "changed" on an event E. Let p0 and p1 be its probabilities on
the two neighbours. Whatever E is, a mechanism that is mu-GDP but for an event of
probability s has p1 <= Phi(Phi^-1(p0) + mu) + s, and one that is
(epsilon, delta)-DP has p1 <= e^epsilon p0 + delta. So estimates of p0 from above
and of p1 from below (Clopper and Pearson 1934, exact for any number of runs)
bound mu and epsilon from below. E has to be settled before the runs that
are counted.
"""

from __future__ import annotations

import math

from scipy.special import betaincinv, ndtri


def highest_rate(hits: int, runs: int, error: float) -> float:
    """Upper Clopper-Pearson bound: the true rate is above it with probability at most ``error``."""
    return 1.0 if hits >= runs else float(betaincinv(hits + 1.0, runs - hits, 1.0 - error))


def lowest_rate(hits: int, runs: int, error: float) -> float:
    """Lower Clopper-Pearson bound: the true rate is below it with probability at most ``error``."""
    return 0.0 if hits <= 0 else float(betaincinv(hits, runs - hits + 1.0, error))


def mu_bound(hits: tuple[int, int], runs: int, error: float, slack: float = 0.0) -> float:
    """Lower bound on mu, wrong with probability at most ``error``.

    Parameters
    ----------
    hits : how often the event happened without and with the change.
    runs : number of runs of each kind.
    error : probability that the bound exceeds the truth.
    slack : probability of the event in which mu does not hold.
    """
    p0 = highest_rate(hits[0], runs, 0.5 * error)
    p1 = lowest_rate(hits[1], runs, 0.5 * error) - slack
    return 0.0 if p1 <= p0 else float(ndtri(p1) - ndtri(p0))


def epsilon_bound(hits: tuple[int, int], runs: int, error: float, delta: float = 0.0) -> float:
    """Lower bound on epsilon at ``delta``, wrong with probability at most ``error``. See `mu_bound`."""
    p0 = highest_rate(hits[0], runs, 0.5 * error)
    p1 = lowest_rate(hits[1], runs, 0.5 * error) - delta
    return 0.0 if p1 <= p0 else math.log(p1 / p0)
