"""Intervals cover as often as they say, and no oftener where the proof has equality."""

import math

import numpy as np
import pytest
from scipy import stats

from streampca.errors import BadParameterError
from streampca.linalg.centering import CONSTANT, MEAN_WEIGHT
from streampca.linalg.svec import svec_size, unsvec
from streampca.privacy.randomness import Randomness
from streampca.regret.intervals import best_less_reward

SPLIT = Randomness.from_seed(0).stream("split")
Z = float(stats.norm.ppf(0.975))


def test_with_adaptive_rows_the_ends_are_those_of_the_formula():
    # S +- (min(k, d - k) s sqrt(2 d) + z sqrt(k s^2 + r^2)), less the reward.
    gram = np.diag([9.0, 7.0, 5.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    interval = best_less_reward(gram, 0.5, 3, SPLIT, reward=2.0, reward_std=1.5, adaptive=True)
    reach = 3 * 0.5 * 4.0 + Z * math.sqrt(3 * 0.25 + 2.25)
    assert interval == pytest.approx((19.0 - reach, 19.0 + reach))
    assert best_less_reward(gram, 0.5, 7, SPLIT, adaptive=True)[1] == pytest.approx(
        23.0 + 0.5 * 4.0 + Z * 0.5 * math.sqrt(7.0)
    )


def test_with_fixed_rows_the_upper_end_and_the_end_without_a_gap_are_those_of_the_formula():
    # One feature: the subspace is everything, so OPT is the noisy entry less N(0, s^2), and the split costs.
    low, high = best_less_reward(np.array([[5.0]]), 0.5, 1, SPLIT, confidence=0.95)
    assert high == pytest.approx(5.0 + Z * 0.5)
    noise = 0.5 * float(SPLIT.normal(0, 1)[0])
    by_split = 5.0 - noise + stats.norm.ppf(0.9 * 0.025) * 0.5 * math.sqrt(2.0)
    without_gap = 5.0 + stats.norm.ppf(0.1 * 0.025) * 0.5
    assert low == pytest.approx(max(by_split, without_gap))
    # No gap, and noise that drowns the matrix: the better bound is the one that needs no gap.
    low = best_less_reward(np.zeros((200, 200)), 1.0, 199, SPLIT, reward=3.0, reward_std=4.0)[0]
    assert low == pytest.approx(-3.0 - 20.0 + stats.norm.ppf(0.1 * 0.025) * math.sqrt(199.0 + 16.0))


@pytest.mark.parametrize(("reward_std", "center"), [(0.0, False), (2.0, True)])
def test_with_a_clear_gap_each_end_fails_as_often_as_it_may(reward_std: float, center: bool):
    # The best projector is known then, and both ends are off by a normal of the variance they allow for. Of 4000
    # intervals at 0.8, 10 % may miss above and 9 % below; off by more than 4.5 standard errors with probability 1e-5.
    # In a centered stream the mean of the rows is as long as a row and lies across the best subspace.
    d, k, n, trials, rng = 4, 2, 10**6, 4000, np.random.default_rng(3)
    split = Randomness.from_seed(2)
    sums, gram = n * np.eye(d)[2], np.diag([1e9, 1e9, n, 0.0])
    opt, missed = 2e9 + n * center, np.zeros(4)
    for i in range(trials):
        noisy = gram + unsvec(rng.normal(size=svec_size(d)), d)
        given = {"confidence": 0.8, "reward": 1000.0 + reward_std * rng.normal(), "reward_std": reward_std}
        if center:
            given |= {"sums": sums + rng.normal(size=d) / MEAN_WEIGHT, "count": n + rng.normal() / CONSTANT**2}
        low, high = best_less_reward(noisy, 1.0, k, split.stream(i), **given)
        missed[:2] += low > opt - 1000.0, high < opt - 1000.0
        low, high = best_less_reward(noisy, 1.0, k, split.stream(i), adaptive=True, **given)
        missed[2:] += low > opt - 1000.0, high < opt - 1000.0
    for rate, allowed in zip(missed[:2] / trials, (0.09, 0.1), strict=True):
        assert abs(rate - allowed) < 4.5 * math.sqrt(allowed * (1.0 - allowed) / trials)
    assert missed[2:].max() / trials < 0.1


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, "0.9", math.nan])
def test_a_confidence_that_is_none_is_refused(confidence: object):
    with pytest.raises(BadParameterError, match="expected a number between 0 and 1"):
        best_less_reward(np.eye(2), 0.5, 1, SPLIT, confidence=confidence)
