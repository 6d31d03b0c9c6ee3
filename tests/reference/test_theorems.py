import numpy as np
import pytest
from printed_theorems import (
    dttz14_theorem4,
    dttz14_theorem5,
    dttz14_theorem7,
    dttz14_theorem9,
    jxz16_theorem5,
    jxz16_theorem7,
    rows_needed,
    wishart_noise_norm,
)

from streampca.mechanisms.covariance import GaussianCovariance
from streampca.papers.wishart import WishartCovariance
from streampca.privacy.randomness import Randomness
from streampca.theorems import gaussian_noise_norm


def test_dttz14_bounds_hold_for_every_matrix_and_are_not_idle():
    rng, tightest = np.random.default_rng(0), dict.fromkeys(range(5), 0.0)
    for trial in range(800):
        d = int(rng.integers(3, 10))
        k = int(rng.integers(1, d))
        larger = int(rng.integers(k, d))
        values = np.sort(rng.exponential(size=d) ** rng.integers(1, 4) * rng.choice([1, 10, 100]))[::-1]
        basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
        gram = (basis * values) @ basis.T
        noise = rng.normal(size=(d, d)) * rng.choice([0.01, 0.1, 1.0])
        if trial % 2:  # noise that rotates the last eigenvector kept into the first left out
            noise = np.outer(basis[:, k - 1], basis[:, larger]) * rng.exponential() * (values[k - 1] - values[larger])
        noise = (noise + noise.T) / 2.0
        size = np.linalg.norm(noise, 2)
        found, vectors = np.linalg.eigh(gram + noise)
        top = vectors[:, ::-1][:, :larger]
        lost = values[:k].sum() - np.trace(top.T @ gram @ top)
        far = np.linalg.norm(basis[:, :k] @ basis[:, :k].T - top[:, :k] @ top[:, :k].T, 2)
        order = np.argsort(-np.abs(found))[:k]
        gap_of_theirs = gram - (vectors[:, order] * found[order]) @ vectors[:, order].T
        frobenius, spectral = dttz14_theorem9(size, k)
        ratios = (
            lost / dttz14_theorem4(size, k),
            lost / dttz14_theorem5(size, k, values[k - 1] - values[larger]),
            far / dttz14_theorem7(size, values[k - 1] - values[k]),
            (np.linalg.norm(gap_of_theirs) - np.sqrt((values[k:] ** 2).sum())) / frobenius,
            (np.linalg.norm(gap_of_theirs, 2) - values[k]) / spectral,
        )
        for i, ratio in enumerate(ratios):
            assert ratio <= 1.0 + 1e-9
            tightest[i] = max(tightest[i], ratio)
    assert min(tightest.values()) > 0.2


@pytest.mark.parametrize("k", [1, 2, 3])
def test_dttz14_bounds_are_attained(k):
    # Noise that swaps the k leading directions with the k next: each costs 2 |E|, but for the 1e-6 that breaks the tie.
    e, d = 0.5, 7
    values = np.concatenate([np.full(k, 2.0), np.full(k, 2.0 - 2.0 * e + 1e-6), np.zeros(d - 2 * k)])
    noise = np.concatenate([np.full(k, -e), np.full(k, e), np.zeros(d - 2 * k)])
    noisy = values + noise
    kept = np.argsort(-noisy)[:k]
    lost = values[:k].sum() - values[kept].sum()
    assert lost == pytest.approx(dttz14_theorem4(e, k), rel=1e-5)
    assert lost == pytest.approx(dttz14_theorem5(e, k, 2.0 * e), rel=1e-5)
    worse = np.abs(values - np.where(np.isin(np.arange(d), kept), noisy, 0.0)).max() - values[k]
    assert worse == pytest.approx(dttz14_theorem9(e, k)[1], rel=1e-5)
    # A small rotation of one pair of directions, by e over the gap.
    gap = 1e4 * e
    vectors = np.linalg.eigh(np.array([[gap, e], [e, 0.0]]))[1]
    assert abs(vectors[1, 1]) == pytest.approx(dttz14_theorem7(e, gap), rel=2e-4)


def test_bounds_by_hand():
    # (4 k + sqrt(k)) |E|; s (sqrt(2 d) + sqrt(2 ln(2 / f))); c (m + sqrt(2 m t (d + 2)) + 2 d t) with t = ln(d / f)
    assert dttz14_theorem9(0.5, 4)[0] == 9.0
    assert dttz14_theorem5(2.0, 3, 10.0) == 3.0
    assert dttz14_theorem7(2.0, 10.0) == 0.25
    assert gaussian_noise_norm(8, 2.0, 2.0 * np.exp(-8.0)) == pytest.approx(2.0 * (4.0 + 4.0))
    assert wishart_noise_norm(6, 9, 0.5, 6.0 * np.exp(-4.0)) == pytest.approx(0.5 * (9.0 + 24.0 + 48.0))
    assert rows_needed(1.0, 0.8, 0.1) == 28
    assert jxz16_theorem5(2, max_l1=1.18, max_nuclear=1.0) == "wishart"  # the threshold is sqrt(2 ln 2) = 1.1774
    assert jxz16_theorem5(2, max_l1=1.17, max_nuclear=1.0) == "laplace"


@pytest.mark.parametrize("d", [2, 20])
def test_noise_norms_hold_at_their_level(d):
    gaussian = GaussianCovariance(n_components=1, epsilon=1.0, delta=1e-6)
    wishart = WishartCovariance(n_components=1, epsilon=1.0, delta=1e-6)
    rows, randomness = np.zeros((1, d)), Randomness.from_seed(d)
    for mechanism, bound in (
        (gaussian, gaussian_noise_norm(d, gaussian.sigma, 0.1)),
        (wishart, wishart_noise_norm(d, wishart.degrees(d), wishart.scale(d), 0.1)),
    ):
        norms = [np.linalg.norm(mechanism.release(rows, randomness, t=1 + i).gram, 2) for i in range(100)]
        assert np.mean(np.array(norms) > bound) <= 0.1
        assert bound < 4.0 * np.mean(norms)


def test_jxz16_rule_and_sample_size():
    assert jxz16_theorem5(100, max_l1=100.0, max_nuclear=1.0) == "wishart"
    assert jxz16_theorem5(100, max_l1=2.0, max_nuclear=1.0) == "laplace"
    # n = 3 [(d+1) + sqrt(2 (d+1)(d+2) t) + 2 d t] / (2 eps (1 - rho^2) gap), t = ln(d / eta), by hand
    assert jxz16_theorem7(20, 1.0, 0.9, 0.05, 0.1) == 26453
    assert rows_needed(100.0, 0.9, 0.1) == 5264
