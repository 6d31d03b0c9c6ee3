"""Intervals for OPT and for regret, from a Gram matrix with GOE noise. Post-processing.

Let G be the exact Gram matrix, N svec-GOE noise of sd s, S the sum of the top k eigenvalues of G + N and P* the best
projector of rank k for G, so that OPT = <P*, G>. Let R be a reward sum and e its noise, of sd r and independent of N.

*Rows fixed in advance* (they do not depend on releases), so that N is independent of G and of P*:

- S >= <P*, G + N>, so that OPT - R <= S - (R + e) + (e - <P*, N>), and the last bracket is N(0, k s**2 + r**2) exactly.
- Draw W like N. Then N + W and N - W are independent. The best projector Q of G + N + W satisfies OPT >= <Q, G> =
  <Q, G + N - W> - <Q, N - W>, and <Q, N - W> is N(0, 2 k s**2). This is the estimate from two copies of half the budget
  each, obtained from one copy by splitting its noise. The loss of Q is of second order in the noise if there is an
  eigenvalue gap.
- For any gap, OPT >= S - max_P <P, N>. The maximum is a convex function of Gaussians with Lipschitz constant s sqrt(k).
  Its mean is at most min(k, d - k) s sqrt(2 d) (Sudakov and Fernique for each eigenvalue; the trace has mean 0) and its
  upper quantiles are at most those of a normal around its median (Borell), which is at most its mean (Kwapien).

The last bound holds for adaptively chosen rows too, and so does its mirror image, OPT <= S + max_P <P, -N>.

*Centered streams.* With s_n the sum of the n rows that are present, OPT is the maximum over projectors P and vectors u
orthogonal to its range of ``F(P, u) = <P, G> + 2 <u, s_n> - n ||u||**2``, which is ``tr_k(G - s_n s_n^T / n) +
||s_n||**2 / n``; the best u is the part of the mean across P, and no longer than a row. All bounds hold with F in place
of traces, at the released G + N, s_n + e and n + f. The noise of F(P, u) is ``<P, N> + 2 <u, e> - f ||u||**2``: of
variance ``k s**2 + 4 ||u||**2 q**2 + ||u||**4 r**2`` for u independent of it, with q the sd of an entry of e and r that
of f; otherwise quantiles of ``2 ||u|| ||e||`` and of ``|f| ||u||**2`` are added.

n + f may be small or negative. For any divisor v >= n + f, and u of length at most 1, ``-(n + f) ||u||**2`` is between
``-v ||u||**2`` and that plus v - n - f. So with ``S = tr_k(G + N - (s_n + e)(s_n + e)^T / v) + ||s_n + e||**2 / v``,
the largest value of the released F is at most ``S + v - n - f``, and that of the pair which attains S at least S.

Each bound in use has a share of the failure probability, so that an interval covers with at least the stated
confidence, at each time separately.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import chdtri, ndtri

from streampca.linalg.centering import CONSTANT, MEAN_WEIGHT, least_count
from streampca.linalg.counts import check_share
from streampca.linalg.eigen import top_eigh, top_sum
from streampca.linalg.svec import svec_size, unsvec
from streampca.linalg.types import FloatArray
from streampca.privacy.randomness import NoiseStream

#: Share of the lower failure probability of the bound without a gap.
_GAPLESS = 0.1


def best_less_reward(
    gram: FloatArray, std: float, n_components: int, split: NoiseStream, *, confidence: float = 0.95,
    reward: float = 0.0, reward_std: float = 0.0, adaptive: bool = False, sums: FloatArray | None = None,
    count: float = 1.0,
) -> tuple[float, float]:  # fmt: skip
    """Return an interval for OPT less a reward sum with independent noise; for OPT only if the reward is 0.

    ``gram``, (d, d), is released with svec-GOE noise of sd ``std``; ``split`` is public randomness, independent of it.
    With ``adaptive``, rows may depend on earlier releases. Centered streams have the released ``sums`` of the rows,
    (d,), with noise of sd ``std / lambda``, and their unbiased ``count`` (`centering.counted`), of sd ``std / c**2``.
    """
    k, d = n_components, gram.shape[0]
    check_share("confidence", confidence)
    side = (1.0 - confidence) / 2.0  # of failure at each end
    is_centered, sum_std, count_std = sums is not None, std / MEAN_WEIGHT, std / CONSTANT**2
    sums = np.zeros(d) if sums is None else sums
    divisor = max(count, least_count(std)) or 1.0
    length = float(np.linalg.norm(sums)) / divisor
    total = top_sum(gram - np.outer(sums, sums) / divisor, k) + divisor * length**2 - reward
    highest = total + (divisor - count if is_centered else 0.0)
    leader = min(k, d - k) * std * math.sqrt(2.0 * d)

    def reach(tail: float, across: float) -> float:
        """Return a bound on the added noise, for any projector and any u of length ``across``."""
        of_sums = 0.0
        if is_centered:  # the three parts of the noise share the probability of failure
            tail /= 3.0
            of_sums = 2.0 * across * sum_std * math.sqrt(float(chdtri(d, tail)))
            of_sums -= across**2 * count_std * float(ndtri(tail))
        return float(leader - float(ndtri(tail)) * math.hypot(std * math.sqrt(k), reward_std) + of_sums)

    if adaptive:
        return total - reach(side, length), highest + reach(side, 1.0)
    # Split the noise: the best projector and mean of G + N + W, valued at G + N - W.
    side_length = d + int(is_centered)
    noise = unsvec(split.normal(0, svec_size(side_length)) * std, side_length)
    matrix, vector, more = noise[:d, :d], np.zeros(d), 0.0
    if is_centered:
        vector, more = noise[:d, d] / CONSTANT, float(noise[d, d]) / CONSTANT**2
    by = max(count + more, least_count(std)) or 1.0
    mean = (sums + vector) / by
    basis = top_eigh(gram + matrix - by * np.outer(mean, mean), k)[1]
    across = mean - basis @ (basis.T @ mean)
    of_mean = 2.0 * across @ (sums - vector) - (count - more) * across @ across
    value = float(((gram - matrix) @ basis * basis).sum() + of_mean)

    def spread(u: float, copies: int) -> float:
        """Return the sd of the noise of F(P, u), with ``copies`` times the variance, and of the reward."""
        of_sums = 4.0 * u**2 * sum_std**2 + u**4 * count_std**2 if is_centered else 0.0
        return math.sqrt(copies * (k * std**2 + of_sums) + reward_std**2)

    # The bound by the split is sharp with a gap, the other one without: together they fail with probability `side`.
    low = value - reward + float(ndtri((1.0 - _GAPLESS) * side)) * spread(float(np.linalg.norm(across)), 2)
    return max(low, total - reach(_GAPLESS * side, length)), highest - float(ndtri(side)) * spread(1.0, 1)
