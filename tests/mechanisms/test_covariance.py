"""GaussianCovariance and MatrixLaplaceCovariance: calibration, and the law of their noise."""

import math

import numpy as np
import pytest
from scipy.stats import kstest

from streampca.errors import BadParameterError
from streampca.linalg.svec import svec
from streampca.mechanisms.covariance import GaussianCovariance, MatrixLaplaceCovariance
from streampca.privacy.gaussian import delta_at
from streampca.privacy.randomness import Randomness

GAUSSIAN = GaussianCovariance(n_components=2, epsilon=1.0, delta=1e-6)
LAPLACE = MatrixLaplaceCovariance(n_components=1, epsilon=0.7)


def noises(mechanism, d, draws):
    rows, randomness = np.zeros((1, d)), Randomness.from_seed(1)
    return np.array([mechanism.release(rows, randomness, t=1 + i).gram for i in range(draws)])


def test_sigma_spends_exactly_the_budget():
    assert GAUSSIAN.mu == pytest.approx(0.236704, abs=1e-6)
    assert GAUSSIAN.sigma == pytest.approx(1.0 / GAUSSIAN.mu)
    assert delta_at(1.0 / GAUSSIAN.sigma, 1.0) == pytest.approx(1e-6, rel=1e-9)
    replace = GaussianCovariance(n_components=2, epsilon=1.0, delta=1e-6, adjacency="replace")
    assert replace.sigma == pytest.approx(math.sqrt(2.0) * GAUSSIAN.sigma)
    with pytest.raises(BadParameterError, match=r"delta=0\.0: expected a number in \(0, 1\)"):
        GaussianCovariance(n_components=1, epsilon=1.0, delta=0.0)


def test_replacing_a_row_is_two_steps_from_two_features_on():
    one, two = (MatrixLaplaceCovariance(n_components=1, epsilon=0.5, adjacency=a) for a in ("zero-out", "replace"))
    assert [one.scale(d) for d in (1, 2, 3)] == [1.0, 1.0, 1.0]
    assert [two.scale(d) for d in (1, 2, 3)] == [1.0, 2.0, 2.0]


def test_spectral_norm_of_matrix_laplace_noise_at_50_features():
    # Mean of 50 draws, whose standard deviation is below 1 % of it; the edge is some 3 % above at 50 features.
    norm = 1.665 * 50 / 0.7
    assert np.mean([np.linalg.norm(n, 2) for n in noises(LAPLACE, 50, 50)]) == pytest.approx(norm, rel=0.06)
    assert LAPLACE.spectral_error(50) == pytest.approx(norm, rel=0.01)


def test_noise_has_its_law():
    """4000 values, false alarm 1e-3 at a fixed seed: normal in svec coordinates; Laplace with one feature."""
    normal = np.concatenate([svec(n) for n in noises(GAUSSIAN, 4, 400)]) / GAUSSIAN.sigma
    laplace = noises(LAPLACE, 1, 2000)[:, 0, 0] * 0.7
    for factor in (1.0, 2 / 3, 1.5):
        assert (kstest(normal / factor, "norm").pvalue > 1e-3) == (factor == 1.0)
        assert (kstest(laplace / factor, "laplace").pvalue > 1e-3) == (factor == 1.0)


def test_moments_of_matrix_laplace_noise():
    noise, sd = noises(LAPLACE, 3, 3000), LAPLACE.noise_std(3)
    assert np.abs(noise.mean(axis=0)).max() < 5 * sd / np.sqrt(3000)
    # Kurtosis 6: the standard deviation of each is below 2.5 %.
    np.testing.assert_allclose(noise.std(axis=0), np.where(np.eye(3), sd, sd / np.sqrt(2.0)), rtol=0.15)
