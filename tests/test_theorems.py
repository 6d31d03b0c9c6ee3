import numpy as np
import pytest

from streampca.mechanisms.choice import ranked
from streampca.mechanisms.gaussian import GaussianCovariance
from streampca.mechanisms.matrix_laplace import MatrixLaplaceCovariance
from streampca.mechanisms.wishart import WishartCovariance
from streampca.privacy.budget import Budget
from streampca.privacy.randomness import Randomness
from streampca.theorems import (
    dttz14_theorem4,
    dttz14_theorem5,
    dttz14_theorem7,
    dttz14_theorem9,
    gaussian_noise_norm,
    jxz16_theorem5,
    jxz16_theorem7,
    rows_needed,
    wishart_noise_norm,
)


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


def test_a_gap_helps_only_where_it_is_above_the_noise():
    assert dttz14_theorem5(10.0, 2, 10_000.0) < 0.01 * dttz14_theorem4(10.0, 2)
    assert dttz14_theorem5(10.0, 2, 5.0) == dttz14_theorem4(10.0, 2)
    assert dttz14_theorem7(10.0, 5.0) == 1.0


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
    # n = [3 (d+1) + sqrt(2 (d+1)(d+2) t) + 2 d t] / (2 eps (1 - rho^2) gap), t = ln(d / eta), by hand
    assert jxz16_theorem7(20, 1.0, 0.9, 0.05, 0.1, as_printed=True) == 9923
    assert jxz16_theorem7(20, 1.0, 0.9, 0.05, 0.1) == 26453
    assert rows_needed(100.0, 0.9, 0.1) == 5264


def test_rows_needed_suffice():
    # Two eigenvalues of the mean, 0.6 and 0.4; the noise is that of the Gaussian mechanism.
    mechanism = GaussianCovariance(n_components=1, epsilon=1.0, delta=1e-6)
    n = rows_needed(gaussian_noise_norm(2, mechanism.sigma, 0.05), 0.9, 0.2)
    rows = np.zeros((n, 2))
    rows[: round(0.6 * n), 0] = 1.0
    rows[round(0.6 * n) :, 1] = 1.0
    randomness = Randomness.from_seed(0)
    near = [abs(mechanism.release(rows, randomness, t=n + i).subspace.basis[0, 0]) >= 0.9 for i in range(100)]
    assert np.mean(near) >= 0.95


def test_the_quietest_mechanism_of_each_kind():
    approximate, pure = Budget(1.0, 1e-6), Budget(1.0)
    assert isinstance(ranked(50, 2, approximate)[0][1], GaussianCovariance)
    assert isinstance(ranked(50, 2, approximate, psd=True)[0][1], WishartCovariance)
    assert isinstance(ranked(50, 2, pure)[0][1], MatrixLaplaceCovariance)
    errors = [error for error, _ in ranked(50, 2, approximate)]
    assert errors == sorted(errors)
    assert len(errors) == 4
    assert errors[0] == pytest.approx(42.2, abs=0.1)
    with pytest.raises(ValueError, match="psd=True needs delta > 0"):
        ranked(50, 2, pure, psd=True)
