"""Intervals for OPT and for regret, from a Gram matrix with GOE noise. Post-processing.

Let G be the exact Gram matrix, N svec-GOE noise of sd s, S the sum of the top
k eigenvalues of G + N and P* the best projector of rank k for G, so that OPT =
<P*, G>. Let R be a reward sum and e its noise, of sd r and independent of N.

*Rows fixed in advance* (they do not depend on releases), so that N is
independent of G and of P*:

- S >= <P*, G + N>, so OPT - R <= S - (R + e) + (e - <P*, N>), and the last bracket is N(0, k s**2 + r**2) exactly.
- Draw W like N. Then N + W and N - W are independent. The best projector Q of
  G + N + W satisfies OPT >= <Q, G> = <Q, G + N - W> - <Q, N - W>, and <Q, N - W>
  is N(0, 2 k s**2). This is the estimate from two copies of half the budget each, made from one copy
  by splitting its noise. What Q loses is of second order in the noise where there is an eigenvalue gap.
- Whatever the gap, OPT >= S - max_P <P, N>. The maximum is a convex function
  of Gaussians with Lipschitz constant s sqrt(k). Its mean is at most min(k, d -
  k) s sqrt(2 d) (Sudakov and Fernique for each eigenvalue; the trace has mean 0) and its
  upper quantiles are at most those of a normal around its median (Borell), which is at most its mean (Kwapien).

The last holds for adaptively chosen rows too, and so does its mirror image,
OPT <= S + max_P <P, -N>, as both look at the law of N alone.

Below, a share of the failure probability goes to each bound in use, so an
interval covers with at least the stated confidence, at each time by itself.
"""

from __future__ import annotations

import math

from scipy.special import ndtri

from streampca.errors import BadParameter
from streampca.linalg.eigen import top_eigh, top_sum
from streampca.linalg.svec import svec_size, unsvec
from streampca.linalg.types import FloatArray
from streampca.privacy.randomness import NoiseStream

#: Share of the lower failure probability that the bound without a gap takes.
_GAPLESS = 0.1


def check_confidence(confidence: object) -> float:
    """Return the confidence, or raise `BadParameter` unless it is in (0, 1)."""
    if not (isinstance(confidence, (int, float)) and 0.0 < confidence < 1.0):
        raise BadParameter(f"confidence={confidence!r} must be between 0 and 1, e.g. 0.95")
    return float(confidence)


def best_less_reward(
    gram: FloatArray,
    std: float,
    n_components: int,
    split: NoiseStream,
    *,
    confidence: float = 0.95,
    reward: float = 0.0,
    reward_std: float = 0.0,
    adaptive: bool = False,
) -> tuple[float, float]:
    """Interval for OPT less a reward sum; for OPT itself if no reward is given.

    Parameters
    ----------
    gram : (d, d) released Gram matrix, with svec-GOE noise.
    std : sd of a diagonal entry of that noise.
    n_components : k.
    split : public randomness, independent of the noise.
    confidence : probability that the interval covers, at least.
    reward : noisy sum of rewards.
    reward_std : sd of its noise, which is independent of the matrix's.
    adaptive : whether rows may depend on earlier releases.

    Returns
    -------
    tuple of float
        Lower and upper end.
    """
    k, d = n_components, gram.shape[0]
    side = (1.0 - check_confidence(confidence)) / 2.0
    total = top_sum(gram, k) - reward
    one = math.hypot(std * math.sqrt(k), reward_std)
    leader = min(k, d - k) * std * math.sqrt(2.0 * d)
    if adaptive:
        reach = leader - float(ndtri(side)) * one
        return total - reach, total + reach
    noise = unsvec(split.normal(0, svec_size(d)) * std, d)
    basis = top_eigh(gram + noise, k)[1]
    cross = float(((gram - noise) @ basis * basis).sum()) - reward
    two = math.hypot(std * math.sqrt(2.0 * k), reward_std)
    low = cross + float(ndtri((1.0 - _GAPLESS) * side)) * two
    gapless = total - leader + float(ndtri(_GAPLESS * side)) * one
    return max(low, gapless), total - float(ndtri(side)) * one
