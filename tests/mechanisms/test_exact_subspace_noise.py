"""Truncated Laplace noise: support, law, tight delta."""

import math

import numpy as np
import pytest
from scipy.stats import kstest

from streampca.errors import BadParameterError
from streampca.mechanisms.exact_subspace import ExactSubspace, TruncatedLaplace
from streampca.privacy.randomness import Randomness


def draws(noise, count=20000, seed=1):
    return noise.draw(Randomness.from_seed(seed).stream("test").draws(0), count)


def test_bound_is_the_papers():
    noise = TruncatedLaplace(2.0, 1.0, 1e-6)
    assert noise.bound == pytest.approx(2.0 * math.log(1 + (math.e - 1) / 2e-6))
    for one in (noise, TruncatedLaplace(0.1, 1.0, 0.1)):  # the second has a bound below 1
        assert (one.above(one.bound), one.above(-one.bound)) == (0.0, 1.0)


def test_the_bound_is_finite_at_any_epsilon():
    for epsilon in (29.0, 31.0, 300.0):
        noise = TruncatedLaplace(1.0, epsilon, 1e-6)
        assert noise.bound == pytest.approx(math.log1p(math.expm1(epsilon) / 2e-6) / epsilon, rel=1e-12)
    # e**1000 is no float; (1000 - ln(2e-6)) / 1000, and next to nothing is drawn.
    noise = TruncatedLaplace(1.0, 1e3, 1e-6)
    assert noise.bound == pytest.approx(1.0 - math.log(2e-6) / 1e3, rel=1e-12)
    assert np.abs(draws(noise)).max() < 0.02
    release = ExactSubspace(n_components=1, epsilon=1e3, delta=1e-6).release(np.eye(3)[[0] * 5], seed=1)
    assert release.details["integer_basis"] == [[1, 0, 0]]


def test_the_noise_is_for_what_one_row_moves():
    # The gap of two scores: by 1 if a row is zeroed, by 2 if it is replaced. Two counts of votes: by 1 each.
    for adjacency, moves in (("zero-out", 1.0), ("replace", 2.0)):
        mechanism = ExactSubspace(n_components=1, epsilon=0.5, delta=1e-6, adjacency=adjacency)
        assert mechanism.gap_noise == TruncatedLaplace(moves, 0.5, 1e-6)
        assert mechanism.vote_noise == TruncatedLaplace(1.0, 0.25, 5e-7)


@pytest.mark.parametrize("method", ["all", "blocks"])
@pytest.mark.parametrize(("count", "released"), [(1, False), (2, True)])
def test_the_largest_noise_never_releases_what_one_row_brought_in(method, count, released, monkeypatch):
    monkeypatch.setattr(TruncatedLaplace, "draw", lambda self, draws, count: np.full(count, self.bound))
    mechanism = ExactSubspace(n_components=1, epsilon=1.0, delta=1e-6, method=method)
    release = mechanism.release(np.eye(3)[[0] * count], seed=1)
    assert release.details["null"] is not released


@pytest.mark.parametrize(("sensitivity", "epsilon"), [(1.0, 1.0), (2.0, 1.0), (1.0, 0.4), (3.0, 1.5)])
def test_draws_follow_the_law_and_stay_inside(sensitivity, epsilon):
    # KS at 20000 draws and p > 1e-4; the untruncated law and a scale of 1.1 are refused.
    noise = TruncatedLaplace(sensitivity, epsilon, 0.05)
    made = draws(noise)
    assert np.abs(made).max() <= noise.bound

    def cdf(x):
        return np.array([1.0 - noise.above(float(v)) for v in np.atleast_1d(x)])

    assert kstest(made, cdf).pvalue > 1e-4
    assert kstest(1.1 * made, cdf).pvalue < 1e-4
    assert epsilon > 1.0 or kstest(made * epsilon / sensitivity, "laplace").pvalue < 1e-4


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-3), (1.0, 1e-6), (3.0, 0.01)])
def test_delta_is_tight_at_a_shift_of_the_sensitivity(epsilon, delta):
    noise = TruncatedLaplace(1.5, epsilon, delta)
    assert noise.above(noise.bound - 1.5) == pytest.approx(delta, rel=1e-6)
    grid = np.linspace(-noise.bound - 2, noise.bound + 2, 4001)
    excess = [noise.above(x - 1.5) - math.exp(epsilon) * noise.above(x) for x in grid]
    assert max(excess) <= delta * (1 + 1e-6)


@pytest.mark.parametrize("arguments", [(0.0, 1.0, 0.1), (1.0, math.inf, 0.1), (1.0, 1.0, 0.5), (1.0, 1.0, 0.0)])
def test_bad_parameters_are_refused(arguments):
    with pytest.raises(BadParameterError):
        TruncatedLaplace(*arguments)
