"""Tree and Haar: noise tables, random access, and the shape of their calibration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streampca.errors import BadParameter
from streampca.prefix_sums.haar import HaarTree
from streampca.prefix_sums.tree import BinaryTree
from streampca.privacy.randomness import Randomness


def max_and_rms(mechanism):
    stds = mechanism.stds(mechanism.horizon)
    return stds.max(), np.sqrt(np.mean(stds**2))


@pytest.mark.parametrize(
    ("log_horizon", "largest", "rms"), [(8, 8.49, 6.00), (10, 10.49, 7.42), (14, 14.49, 10.25), (16, 16.49, 11.66)]
)
def test_tree_noise_table(log_horizon, largest, rms):
    assert max_and_rms(BinaryTree(2**log_horizon, mu=1.0)) == pytest.approx((largest, rms), rel=0.01)


@pytest.mark.parametrize(
    ("log_horizon", "largest", "rms"), [(8, 3.47, 3.00), (10, 4.13, 3.58), (14, 5.47, 4.73), (16, 6.13, 5.31)]
)
def test_haar_noise_table(log_horizon, largest, rms):
    assert max_and_rms(HaarTree(2**log_horizon, mu=1.0)) == pytest.approx((largest, rms), rel=0.01)


def test_a_topped_up_tree_has_the_same_noise_in_every_prefix():
    tree = BinaryTree(100, mu=0.5, topped_up=True)
    assert set(tree.stds(100)) == {tree.node_std * np.sqrt(7.0)}


@settings(max_examples=25, deadline=None)
@given(horizon=st.integers(1, 200), seed=st.integers(0, 3), kind=st.sampled_from([BinaryTree, HaarTree]))
def test_any_prefix_at_once_has_the_bits_of_the_running_form(horizon, seed, kind):
    mechanism = kind(horizon, mu=1.0)
    running = mechanism.start(3, Randomness.from_seed(seed).stream("noise"))
    direct = mechanism.start(3, Randomness.from_seed(seed).stream("noise"))
    noise = [running.advance().copy() for _ in range(horizon)]
    for n in np.random.default_rng(seed).permutation(horizon)[:10] + 1:
        np.testing.assert_array_equal(direct.at(int(n)), noise[n - 1])


@pytest.mark.parametrize("kind", [BinaryTree, HaarTree])
def test_random_access_takes_few_draws(kind):
    class Counted:
        def __init__(self):
            self.draws, self.stream = 0, Randomness.from_seed(0).stream("noise")

        def normal(self, index, count, out=None):
            self.draws += 1
            return self.stream.normal(index, count, out)

    noise = Counted()
    kind(2**40, mu=1.0).start(2, noise).at(2**40 - 12_345)
    assert noise.draws <= 41


@pytest.mark.parametrize("kind", [BinaryTree, HaarTree])
def test_random_access_past_the_horizon_is_refused(kind):
    running = kind(8, mu=1.0).start(2, Randomness.from_seed(0).stream("noise"))
    for bad in (0, 9):
        with pytest.raises(BadParameter, match=f"n={bad}"):
            running.at(bad)


def test_no_two_nodes_share_a_draw():
    seen = []

    class Recorder:
        def normal(self, index, count):
            seen.append(index)
            return np.zeros(count)

    running = BinaryTree(64, mu=1.0, topped_up=True).start(1, Recorder())
    for _ in range(64):
        running.advance()
    assert len(seen) == len(set(seen)) == 64 + 64  # a node a step, and a top-up: no prefix of 64 uses all 7 levels
