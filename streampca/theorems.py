"""Theorems of the papers as functions of public numbers, with every constant written out.

JXZ16 is Jiang, Xie and Zhang, "Wishart Mechanism for Differentially Private
Principal Components Analysis", AAAI 2016; DTTZ14 is Dwork, Talwar, Thakurta
and Zhang, "Analyze Gauss", STOC 2014. The papers bound errors by O() of the
spectral norm of the noise; here that norm is an argument, so each bound holds
for any noise, and deterministically. Gram matrices are sums, not means.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erf, log_ndtr, ndtr

from streampca.linalg.types import FloatArray

#: Values of e over which `perturbed_leader_regret` is minimised.
_GROWTH = np.concatenate(([0.0], np.geomspace(1e-4, 3.0, 60)))
_KEPT = np.exp(-_GROWTH)
_LOST = 1.0 - _KEPT


def gaussian_noise_norm(n_features: int, std: float, failure: float = 0.05) -> float:
    """Bound the spectral norm of svec-GOE noise; fails with probability at most ``failure``.

    ``std * (sqrt(2 d) + sqrt(2 ln(2 / failure)))``: the expected largest
    eigenvalue is at most ``std * sqrt(2 d)`` (Sudakov and Fernique) and the
    largest eigenvalue is 1-Lipschitz in svec coordinates.
    """
    return std * (math.sqrt(2.0 * n_features) + math.sqrt(2.0 * math.log(2.0 / failure)))


def wishart_noise_norm(n_features: int, degrees: int, scale: float, failure: float = 0.05) -> float:
    """Bound the spectral norm of ``c * Wis_d(m, I)``; fails with probability at most ``failure``.

    JXZ16 Lemma 1 (Zhu 2012): ``c (m + sqrt(2 m (d + 2) theta) + 2 d theta)`` with
    ``theta = ln(d / failure)``. Loose: the norm is near ``c (sqrt(m) + sqrt(d))**2``.
    """
    theta = math.log(n_features / failure)
    return scale * (degrees + math.sqrt(2.0 * degrees * theta * (n_features + 2)) + 2.0 * theta * n_features)


def jxz16_theorem5(n_features: int, max_l1: float, max_nuclear: float) -> str:
    """Choose between Laplace and Wishart noise by JXZ16 Theorem 5: ``"wishart"`` or ``"laplace"``.

    Parameters
    ----------
    n_features : d, at least 2.
    max_l1 : largest sum of absolute entries of the change that one row makes.
    max_nuclear : largest nuclear norm of that change.

    Notes
    -----
    Wishart noise is smaller where ``max_l1 / max_nuclear`` grows faster than
    ``sqrt(d log d)``; the constant is taken as 1. For a Gram matrix that ratio
    is d, so Wishart is chosen from d = 2 on. The rule compares two
    mechanisms by their rates; `CovarianceMechanism.spectral_error` is their actual noise.
    """
    return "wishart" if max_l1 / max_nuclear >= math.sqrt(n_features * math.log(n_features)) else "laplace"


def jxz16_theorem7(n_features: int, epsilon: float, rho: float, failure: float, gap: float) -> int:
    """Count the rows after which the top eigenvector of JXZ16 Algorithm 2 is within rho of the true one.

    With that many rows, ``P(|<v, v_hat>| >= rho) >= 1 - failure``. (Algorithm 2
    is not private at the epsilon it states; for others use `rows_needed`. The printed
    numerator multiplies only its first term by 3; the proof needs all three.)

    Parameters
    ----------
    n_features, epsilon : d, and the epsilon that sets the scale 3 / (2 epsilon).
    rho : in [sqrt(1/2), 1).
    failure : eta.
    gap : difference of the two largest eigenvalues of the mean of a a^T.
    """
    return rows_needed(wishart_noise_norm(n_features, n_features + 1, 1.5 / epsilon, failure), rho, gap)


def rows_needed(noise_norm: float, rho: float, gap: float) -> int:
    """Count the rows after which ``|<v, v_hat>| >= rho``, for noise of spectral norm at most ``noise_norm``.

    The argument of JXZ16 Theorem 7 with any noise: ``n >= noise_norm / ((1 -
    rho**2) gap)``, for rho of at least sqrt(1/2).
    """
    return math.ceil(noise_norm / ((1.0 - rho * rho) * gap))


def dttz14_theorem4(noise_norm: float, n_components: int) -> float:
    """Bound the reward lost to the noise, whatever the spectrum: ``2 k |E|``."""
    return 2.0 * n_components * noise_norm


def dttz14_theorem5(noise_norm: float, n_components: int, gap: float) -> float:
    """Bound the reward lost to the noise, given a gap: ``2 k |E|**2 / (gap - |E|)``.

    Parameters
    ----------
    noise_norm : spectral norm of the noise.
    n_components : k. The released subspace may have any k' >= k dimensions.
    gap : eigenvalue k minus eigenvalue k' + 1 of the Gram matrix.

    Returns
    -------
    float : how much less than the best k-dimensional subspace the released one
        captures, at most; that of Theorem 4 where that is smaller or the gap is not above the noise.

    Notes
    -----
    The printed proof covers k' = k only; that of ``docs/theory/dttz14.md`` covers k' > k too.
    """
    worst = dttz14_theorem4(noise_norm, n_components)
    return min(worst, 2.0 * n_components * noise_norm**2 / (gap - noise_norm)) if gap > noise_norm else worst


def dttz14_theorem7(noise_norm: float, gap: float) -> float:
    """Bound the distance of the projectors in spectral norm: ``|E| / (gap - |E|)``, at most 1."""
    return min(1.0, noise_norm / (gap - noise_norm)) if gap > noise_norm else 1.0


def dttz14_theorem9(noise_norm: float, n_components: int) -> tuple[float, float]:
    """Bound how much worse than the best rank-k approximation that of the noisy matrix is.

    Returns
    -------
    frobenius : ``(4 k + sqrt(k)) |E|``, added to the best error in Frobenius norm.
    spectral : ``2 |E|``, added to the best error in spectral norm.

    Rank-k approximations keep the eigenvalues of largest magnitude.
    """
    return (4.0 * n_components + math.sqrt(n_components)) * noise_norm, 2.0 * noise_norm


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


def batched_leader_regret(
    *,
    ends: FloatArray,
    opts: FloatArray,
    last_kept: FloatArray,
    first_left_out: FloatArray,
    stds: FloatArray,
    n_features: int,
    n_components: int,
    rows_per_release: int,
) -> float:
    """Bound on the expected regret of following the perturbed leader against batches of b rows.

    Unlike `perturbed_leader_regret` it uses the exact eigenvalues, so it is for the curator. It
    is below OPT where rows favour some subspace by a gap, also if batches outweigh the noise.

    Parameters
    ----------
    ends : (p + 1,) ascending array of numbers of releases, at least 1. The last one is that of the
        latest release that was played.
    opts : (p,) array, the sums of the first k eigenvalues of the exact Gram matrix at these releases but the last.
    last_kept : (p,) array, eigenvalue k at these releases but the last.
    first_left_out : (p,) array, eigenvalue k + 1 at these releases but the first. The last entry may be of
        a later moment: it only grows.
    stds : (p + 1,) array, svec-coordinate sd of the noise at these releases. Between two of
        them it must be within .1 % of their range.
    n_features, n_components : d and k.
    rows_per_release : b, rows of norm at most 1 between releases.

    Notes
    -----
    *Theorem.* Let batch n have the Gram matrix g_n, positive semidefinite with trace at most b, G_n =
    g_1 + ... + g_n, and let P_n be the top-k projector of G_{n-1} + N_{n-1}, where N_m has the law
    of s_m Z, Z svec-GOE. The batches are fixed in advance. Then for every m >= 1

        E regret_N <= OPT_m + c (s_m + sum_{m < n < N} max(s_n - s_{n-1}, 0)) + sum_{m < n <= N} beta_n,

    where OPT_m is the best reward of the first m batches, ``c = k sqrt(2 d)``, and with s =
    s_{n-1}, mu = b / s and gamma the gap of eigenvalues k and k + 1 of G_{n-1}, beta_n is the least of

        b * integral_0^1 (2 Phi(t mu / 2) - 1) dt                            (large noise: about b mu / 5)
        q(gamma - s (2 sqrt(2 d) + sqrt(2) x)) + b exp(-x^2 / 2), any x > 0    (large gap: about b^2 / (4 gamma))

    with ``q(g) = b^2 / (4 g)`` for g >= b / 2, b - g for g in [0, b / 2] and b below. So the regret grows
    with the logarithm of N where the gap grows with n.

    *Proof.* Let f(M) = max_P <P, M>, the sum of the first k eigenvalues; f is convex and P(M) is its
    gradient. For n > m, ``B_n = f(A + g_n) - f(A) - <P_n, g_n>`` with ``A = G_{n-1} + N_{n-1}`` is at least 0. With
    F(G, s) = E f(G + s Z) this says E <P_n, g_n> = F(G_n, s_{n-1}) - F(G_{n-1}, s_{n-1}) - E B_n. Sum over m < n <= N:

        sum E <P_n, g_n> = F(G_N, s_{N-1}) - F(G_m, s_m) - sum_{m < n < N} (F(G_n, s_n) - F(G_n, s_{n-1})) - sum E B_n.

    By Jensen F(G_N, s) >= f(G_N) = OPT. As f(G + H) <= f(G) + f(H) and E f(Z) <= k E lambda_1(Z) <= c,
    F(G_m, s_m) <= OPT_m + c s_m. F(G, .) is convex with its minimum at 0, hence not decreasing, and grows by at most c
    per unit of s. Rewards of the first m batches are at least 0. That is the theorem, with E B_n for beta_n.

    *Noise.* F(., s) is differentiable, so E B_n is the integral over t in [0, 1] of ``E <P(A + t g_n) - P(A), g_n>``.
    The reward of a projector is in [0, b], and two Gaussians of sd s whose means differ by t g_n, of
    Frobenius norm at most t b, are within 2 Phi(t b / (2 s)) - 1 in total variation.

    *Gap.* Let g be the gap of A, P' the top-k projector of A + g_n, and S the largest sine of an angle
    between P_n and P'. Then <P_n - P', A> >= g (k - <P_n, P'>) >= g S^2, and <P' - P_n, g_n> <=
    b lambda_1(P' - P_n) = b S. So B_n <= max over S in [0, 1] of b S - g S^2 = q(g). By Weyl, g is at least
    gamma - s W, with W the difference of the extreme eigenvalues of Z: E W <= 2 sqrt(2 d), and W is
    sqrt(2)-Lipschitz, so it is above its mean by sqrt(2) x or more with probability at most exp(-x^2 / 2);
    and B_n <= b always.

    *Tight.* q is attained by b rows in one direction, at the angle with ``cos(2 angle) = -b / (2 g)`` to the
    leader. Without a gap nothing below OPT holds: against batches of b >> s rows that alternate between
    two axes the leader is always one batch late, and its regret is OPT up to lower order.

    *Panels.* Within a panel of releases the gap is at least eigenvalue k at its start less eigenvalue k + 1 at its
    end, as both only grow. The least bound over all m at which a panel starts is returned.
    """
    b, c = float(rows_per_release), n_components * math.sqrt(2.0 * n_features)
    counts = np.diff(ends)
    counts[-1] += 1.0  # the leaf that follows the latest release
    low = np.minimum(stds[1:], stds[:-1]) / 1.001
    high = np.maximum(stds[1:], stds[:-1]) * 1.001
    root = b / low / math.sqrt(8.0)
    least = b * (erf(root) + np.expm1(-(root**2)) / (root * math.sqrt(math.pi)))
    for x in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
        gap = last_kept - first_left_out - high * (2.0 * math.sqrt(2.0 * n_features) + math.sqrt(2.0) * x)
        gap = np.maximum(gap, 0.0)
        lost = np.where(gap >= 0.5 * b, 0.25 * b * b / np.maximum(gap, 0.5 * b), b - gap)
        least = np.minimum(least, lost + b * math.exp(-0.5 * x * x))
    later = counts * least + c * np.maximum(np.diff(stds), 0.0)
    return float((opts + c * stds[:-1] + np.cumsum(later[::-1])[::-1]).min())
