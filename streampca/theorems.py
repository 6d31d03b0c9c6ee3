"""Theorems of the papers as functions of public numbers, with every constant written out.

DTTZ14 is Dwork, Talwar, Thakurta and Zhang, "Analyze Gauss", STOC 2014. Gram matrices are sums, not means.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erf, log_ndtr, ndtr

from streampca.linalg.types import FloatArray

#: Values of e over which `perturbed_leader_regret` is minimized.
_GROWTH = np.concatenate(([0.0], np.geomspace(1e-4, 3.0, 60)))
_KEPT = np.exp(-_GROWTH)
_LOST = 1.0 - _KEPT
#: Values of x over which `batched_leader_regret` is minimized, and exp(-x^2 / 2).
_TAILS = np.arange(1.0, 7.0)[:, None]
_CHANCES = np.exp(-0.5 * _TAILS**2)


def perturbed_leader_regret(
    opt: float, *, stds: FloatArray, counts: FloatArray, variation: float, n_features: int, n_components: int,
    rows_per_release: int, settled: FloatArray | float = 0.0,
) -> float:  # fmt: skip
    """Bound on the expected regret of following the perturbed leader with Gaussian noise, at most ``opt``.

    DTTZ14 Theorem 14 with its constants, for noise whose law may change with time and be correlated across time. For
    every e >= 0, with the exact Gaussian profile delta, for rows of norm at most 1 that are fixed in advance,

        regret <= OPT (1 - exp(-e)) + exp(-e) * (V k sqrt(2 d) + b * sum_n delta_n(e)),

    minimized over a grid of e. Proof on the page on DTTZ14 of the documentation.

    ``opt`` is OPT or an upper bound on it, ``variation`` is V, the total variation of the sd over the releases from 0
    on, and ``rows_per_release`` is b. ``stds`` are svec-coordinate sds of the noise in the releases that were played,
    or lower bounds on them, one for each group of successive releases, and ``counts`` the numbers of releases in the
    groups; ``settled`` is the `instability` of releases before.
    """
    if stds.size == 0:
        return opt
    # V k sqrt(2 d) bounds V E max_P <P, Z>, for k eigenvalues of at most sqrt(2 d) each.
    leader = variation * n_components * math.sqrt(2.0 * n_features)
    # delta = 1 for the first leaf, which is played before any release.
    unstable = rows_per_release * (1.0 + (settled + instability(stds, counts, rows_per_release)))
    return float(min(opt, (opt * _LOST + _KEPT * (leader + unstable)).min()))


def instability(stds: FloatArray, counts: FloatArray, rows_per_release: int) -> FloatArray:
    """The sum of delta_n(e) over groups of releases, for every e of the grid: see `perturbed_leader_regret`."""
    # Gaussians of sd s whose means differ by b are mu-GDP with mu = b / s; log_ndtr, as exp(e) overflows beside a tail.
    mu = rows_per_release / stds
    e = _GROWTH[:, None]
    deltas = ndtr(-e / mu + mu / 2.0) - np.exp(e + log_ndtr(-e / mu - mu / 2.0))
    # Groups are added one by one, so parts of the sum add up to the same bits.
    return np.add.accumulate(deltas * counts, axis=1)[:, -1]


def batched_leader_regret(
    *, ends: FloatArray, opts: FloatArray, last_kept: FloatArray, first_left_out: FloatArray, stds: FloatArray,
    n_features: int, n_components: int, rows_per_release: int,
) -> float:  # fmt: skip
    """Bound on the expected regret of following the perturbed leader against batches of b rows.

    Unlike `perturbed_leader_regret` it uses the exact eigenvalues, so it is for the curator. It is below OPT where rows
    favor some subspace by a gap, also if batches outweigh the noise.

    *Theorem.* Let batch n have the Gram matrix g_n, positive semidefinite with trace at most b, G_n = g_1 + ... + g_n,
    and let P_n be the top-k projector of G_{n-1} + N_{n-1}, where N_m has the law of s_m Z, Z svec-GOE. The batches are
    fixed in advance. Then for every m >= 1

        E regret_N <= OPT_m + c (s_m + sum_{m < n < N} max(s_n - s_{n-1}, 0)) + sum_{m < n <= N} beta_n,

    where OPT_m is the best reward of the first m batches, ``c = k sqrt(2 d)``, and with s = s_{n-1}, mu = b / s and
    gamma the gap of eigenvalues k and k + 1 of G_{n-1}, beta_n is the least of

        b * integral_0^1 (2 Phi(t mu / 2) - 1) dt                            (large noise: about b mu / 5)
        q(gamma - s (2 sqrt(2 d) + sqrt(2) x)) + b exp(-x^2 / 2), any x > 0    (large gap: about b^2 / (4 gamma))

    with ``q(g) = b^2 / (4 g)`` for g >= b / 2, b - g for g in [0, b / 2] and b below. Proof on the page on DTTZ14 of
    the documentation. Within a panel of releases the gap is at least eigenvalue k at its start less eigenvalue k + 1 at
    its end, as both only grow. The least bound over all m at which a panel starts is returned.

    ``ends``, (p + 1,), are ascending numbers of releases, the last one that of the latest that was played, and ``stds``
    the sds of their noise; between two of them the sd must be within .1 % of their range. At all of these but the last,
    ``opts`` and ``last_kept``, (p,), are the sums of the first k exact eigenvalues, and eigenvalue k; at all but the
    first, ``first_left_out`` is eigenvalue k + 1, of which the last may be of a later moment: it only grows.
    """
    b, c = float(rows_per_release), n_components * math.sqrt(2.0 * n_features)
    counts = np.diff(ends)
    counts[-1] += 1.0  # the leaf that follows the latest release
    low = np.minimum(stds[1:], stds[:-1]) / 1.001
    high = np.maximum(stds[1:], stds[:-1]) * 1.001
    # Large noise: b times the integral of 2 Phi(t mu / 2) - 1 over t in [0, 1], in closed form.
    root = b / low / math.sqrt(8.0)
    least = b * (erf(root) + np.expm1(-(root**2)) / (root * math.sqrt(math.pi)))
    # Large gap: q(gamma - s (2 sqrt(2 d) + sqrt(2) x)) + b exp(-x^2 / 2), at the best x of a grid.
    moved = 2.0 * math.sqrt(2.0 * n_features) + math.sqrt(2.0) * _TAILS
    gap = np.maximum(last_kept - first_left_out - high * moved, 0.0)
    lost = np.where(gap >= 0.5 * b, 0.25 * b * b / np.maximum(gap, 0.5 * b), b - gap)
    least = np.minimum(least, (lost + b * _CHANCES).min(axis=0))
    # Sums from the end: the bound of every m at once.
    later = counts * least + c * np.maximum(np.diff(stds), 0.0)
    return float((opts + c * stds[:-1] + np.cumsum(later[::-1])[::-1]).min())
