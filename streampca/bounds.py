"""Regret bounds with every constant written out."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr, ndtr

from streampca.linalg.types import FloatArray

_GROWTH = np.concatenate(([0.0], np.geomspace(1e-4, 3.0, 60)))
_KEPT = np.exp(-_GROWTH)
_LOST = 1.0 - _KEPT


def perturbed_leader_regret(
    opt: float,
    *,
    stds: FloatArray,
    counts: FloatArray,
    variation: float,
    n_features: int,
    n_components: int,
    rows_per_release: int,
    settled: FloatArray | float = 0.0,
) -> float:
    """Bound on the expected regret of following the perturbed leader with Gaussian noise.

    DTTZ14 Theorem 14 with its constants, for noise whose law may change with
    time and be correlated across time.

    Parameters
    ----------
    opt : best reward in hindsight, or an upper bound on it.
    stds : svec-coordinate sd of the noise in the releases that were played,
        or lower bounds on it; one for each group of successive releases.
    counts : how many releases each entry of ``stds`` stands for.
    variation : V below, the total variation of the sd over the releases, from 0 on.
    n_features, n_components : d and k.
    rows_per_release : b, rows of norm at most 1 between releases.
    settled : `instability` of releases before those of ``stds``, where it is at hand.

    Returns
    -------
    The bound; never above ``opt``.

    Notes
    -----
    Let P_n be the projector played on leaf n (the rows between releases n-1
    and n, with Gram matrix g_n), i.e. the leader of G_{n-1} + N_{n-1}, and
    P'_n the leader of G_n + N_{n-1}. The stream is fixed in advance, so
    expectations depend on the marginal law of each N_n only, and N_n may be
    taken as s_n Z with one GOE matrix Z. Telescoping as in Kalai and Vempala
    (2005) gives

        E sum <P'_n, g_n> >= OPT - V * E max_P <P, Z>,   V = sum |s_n - s_{n-1}|, s_0 = 0,

    and E max_P <P, Z> <= k * E lambda_1(Z) <= k * sqrt(2 d). P_n and P'_n are
    the same function of two Gaussians of sd s_{n-1} whose means differ by at
    most b, so for every e >= 0

        E <P'_n, g_n> <= exp(e) * E <P_n, g_n> + b * delta(e; mu = b / s_{n-1}),

    with the exact Gaussian profile delta, and delta = 1 for the first leaf,
    which is played before any release. Together

        regret <= OPT (1 - exp(-e)) + exp(-e) * (V k sqrt(2 d) + b * sum_n delta_n(e)),

    minimised over a grid of e.
    """
    if stds.size == 0:
        return opt
    leader = variation * n_components * math.sqrt(2.0 * n_features)
    unstable = rows_per_release * (1.0 + (settled + instability(stds, counts, rows_per_release)))
    return float(min(opt, (opt * _LOST + _KEPT * (leader + unstable)).min()))


def instability(stds: FloatArray, counts: FloatArray, rows_per_release: int) -> FloatArray:
    """The sum of delta_n(e) over groups of releases, for every e of the grid: see `perturbed_leader_regret`.

    Groups are added one by one, so parts of the sum add up to the same bits.
    """
    mu = rows_per_release / stds
    e = _GROWTH[:, None]
    deltas = ndtr(-e / mu + mu / 2.0) - np.exp(e + log_ndtr(-e / mu - mu / 2.0))
    total: FloatArray = np.add.accumulate(deltas * counts, axis=1)[:, -1]
    return total
