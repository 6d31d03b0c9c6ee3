"""Private center and clipped mean: sensitivity, noise, audits and planted bugs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streampca.errors import BadParameterError
from streampca.mechanisms.mean import BINS, WINDOW, ClippedMean, PrivateCenter
from streampca.privacy.gaussian import mu_of
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.privacy.randomness import Randomness


def outlet(seed: int) -> Outlet:
    source = NoiseSource(Randomness.from_seed(seed), "mean")
    return source.outlet(source.first)


def release(mechanism: PrivateCenter, vectors: np.ndarray, width: float, around: np.ndarray | float = 0.0):
    around = np.broadcast_to(around, mechanism.n_features)
    return mechanism.decide(mechanism.count(vectors, width, around), width, around, outlet(1), "center")


# -- center ---------------------------------------------------------------------------


def test_center_is_within_a_bin() -> None:
    rng = np.random.default_rng(0)
    middle = rng.uniform(-0.3, 0.3, size=30)
    mechanism = PrivateCenter(30, 1.0, 1e-6)
    vectors = middle + 0.004 * rng.normal(size=(mechanism.rows, 30))
    center, found = release(mechanism, vectors, 0.005)
    assert found.all()
    assert np.abs(center - middle).max() < 0.0125  # the most popular bin, or its neighbour at a tie


def test_center_states_the_vectors_it_needs_and_splits_delta() -> None:
    mechanism = PrivateCenter(30, 1.0, 1e-6)
    votes = mechanism.histograms.count_needed(0.001)
    assert 0.4 * (mechanism.rows - 1) < votes <= 0.4 * mechanism.rows
    assert mechanism.histograms.delta == pytest.approx(1e-7)
    assert mechanism.histograms.mu == mu_of(1.0, 1e-6 - mechanism.histograms.delta)


def test_center_falls_back_to_the_guess() -> None:
    rng = np.random.default_rng(0)
    mechanism = PrivateCenter(4, 1.0, 1e-6)
    guess = np.array([0.1, 0.2, 0.3, 0.4])
    center, found = release(mechanism, rng.uniform(-1, 1, size=(800, 4)), 0.01, guess)
    assert not found.any()
    assert np.array_equal(center, guess)
    last = np.full((2000, 4), 0.1 * WINDOW)  # the outermost bin
    assert release(mechanism, last, 0.1)[0] == pytest.approx(last[0])
    far = np.full((2000, 4), 0.1 * (WINDOW + 1))  # past the window: not counted, and not an error
    assert not release(mechanism, far, 0.1)[1].any()


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_one_vector_moves_the_counts_by_what_the_noise_is_for(adjacency: str) -> None:
    rng = np.random.default_rng(0)
    mechanism = PrivateCenter(6, 1.0, 1e-6, adjacency)  # type: ignore[arg-type]
    histograms = mechanism.histograms
    assert histograms.std * histograms.mu == pytest.approx(math.sqrt(6.0 if adjacency == "zero-out" else 12.0))
    worst = 0.0
    for _ in range(200):
        vectors = rng.normal(size=(5, 6))
        here = mechanism.count(vectors, 0.1, np.zeros(6))
        vectors[2] = 0.0 if adjacency == "zero-out" else rng.normal(size=6)
        there = mechanism.count(vectors, 0.1, np.zeros(6))
        worst = max(worst, float(np.linalg.norm(here - there)))
    assert worst <= histograms.std * histograms.mu * (1.0 + 1e-12)
    assert worst > 0.9 * histograms.std * histograms.mu


def test_votes_of_blocks_add_up() -> None:
    mechanism, vectors = PrivateCenter(3, 1.0, 1e-6), np.random.default_rng(1).normal(size=(400, 3))
    whole = mechanism.count(vectors, 0.5, np.ones(3))
    assert whole.shape == (3, BINS)
    assert np.array_equal(sum(mechanism.count(part, 0.5, np.ones(3)) for part in np.split(vectors, 8)), whole)


# -- mean -----------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), radius=st.floats(1e-3, 1.0), adjacency=st.sampled_from(["zero-out", "replace"]))
@settings(deadline=None, max_examples=60)
def test_no_pair_exceeds_the_sensitivity(seed: int, radius: float, adjacency: str) -> None:
    rng = np.random.default_rng(seed)
    center = 0.3 * rng.normal(size=5)
    vectors = rng.normal(size=(4, 5)) * rng.exponential(size=(4, 1))
    sums = []
    for last in (vectors[3], np.zeros(5) if adjacency == "zero-out" else rng.normal(size=5)):
        mean = ClippedMean(1.0, 5, radius, adjacency)  # type: ignore[arg-type]
        sums.append(mean.vectors(np.vstack([vectors[:3], last]), center))
    assert float(np.linalg.norm(sums[0] - sums[1])) <= mean.std


def measured_mu(adjacency: str) -> float:
    """Matched filter on the worst pair, 4000 runs a side; standard error 0.016 + 1 % of mu."""
    d, runs, batch = 3, 4000, 40
    rng = np.random.default_rng(0)
    others = 0.01 * rng.normal(size=(batch // 2 - 1, d))
    towards = np.array([1.0, 0.0, 0.0])
    worst = (towards, np.zeros(d)) if adjacency == "zero-out" else (towards, -towards)
    scores: list[list[float]] = [[], []]
    mean, noise = ClippedMean(1.0, d, 0.1, adjacency), outlet(0)  # type: ignore[arg-type]
    for run in range(2 * runs):
        total = mean.vectors(np.vstack([others, worst[run % 2]]), np.zeros(d))
        released = mean.release(total, batch // 2, noise, "mean")
        scores[run % 2].append(float(released @ towards))
    first, second = (np.array(s) for s in scores)
    return float((first.mean() - second.mean()) / math.sqrt(0.5 * (first.var() + second.var())))


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_claim_is_met_and_near_tight(adjacency: str) -> None:
    """Claimed mu is 1; 10 % is 4 standard errors (false alarm 6e-5)."""
    assert abs(measured_mu(adjacency) - 1.0) < 0.10


def test_mean_of_close_vectors_is_close() -> None:
    rng = np.random.default_rng(0)
    vectors = 0.5 + 0.01 * rng.normal(size=(10_000, 20))
    mean, center = ClippedMean(0.25, 20, 0.08, "zero-out", diameter=1.0), np.full(20, 0.5)
    total = sum(mean.vectors(vectors[start : start + 64], center) for start in range(0, 10_000, 64))
    assert np.array_equal(total, np.rint(total / mean.grid) * mean.grid)
    released = center + mean.release(np.asarray(total), 10_000, outlet(1), "mean")
    assert np.abs(released - 0.5).max() < 5.0 * (mean.std / 10_000 + 0.01 / 100)


def test_diameter_caps_the_noise_under_replace() -> None:
    assert ClippedMean(1.0, 3, 1.0, "replace", diameter=1.0).std == pytest.approx(1.0, rel=1e-6)
    assert ClippedMean(1.0, 3, 1.0, "replace").std == pytest.approx(2.0, rel=1e-6)


# -- products -------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), radius=st.floats(1e-3, 0.5), adjacency=st.sampled_from(["zero-out", "replace"]))
@settings(deadline=None, max_examples=60)
def test_no_pair_of_products_exceeds_the_sensitivity(seed: int, radius: float, adjacency: str) -> None:
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(4, 5)), rng.normal(size=(4, 2)) * rng.exponential(size=(4, 1))
    sums = []
    for other in (False, True):
        if other:
            left[3] = 0.0 if adjacency == "zero-out" else rng.normal(size=5)
        mean = ClippedMean(1.0, 10, radius, adjacency)  # type: ignore[arg-type]
        sums.append(mean.products(left, right))
    assert float(np.linalg.norm(sums[0] - sums[1])) <= mean.std


def test_a_center_needs_a_delta_below_two_epsilon():
    assert PrivateCenter(3, 0.1, 0.19).histograms.delta == pytest.approx(0.019)
    with pytest.raises(BadParameterError, match="less than 2 epsilon"):
        PrivateCenter(3, 0.1, 0.21)
