"""MatrixLaplaceCovariance: its scale, and the spectral norm and moments of its noise."""

import numpy as np
import pytest

from streampca.mechanisms.covariance import MatrixLaplaceCovariance
from streampca.privacy.randomness import Randomness

LAPLACE = MatrixLaplaceCovariance(n_components=1, epsilon=0.7)


def noises(mechanism, d, draws):
    rows, randomness = np.zeros((1, d)), Randomness.from_seed(1)
    return np.array([mechanism.release(rows, randomness, t=1 + i, row_norm=1.0).gram for i in range(draws)])


def test_replacing_a_row_is_two_steps_from_two_features_on():
    one, two = (MatrixLaplaceCovariance(n_components=1, epsilon=0.5, adjacency=a) for a in ("zero-out", "replace"))
    assert [one.scale(d) for d in (1, 2, 3)] == [1.0, 1.0, 1.0]
    assert [two.scale(d) for d in (1, 2, 3)] == [1.0, 2.0, 2.0]


def test_spectral_norm_of_matrix_laplace_noise_at_50_features():
    # Mean of 50 draws, whose standard deviation is below 1 % of it; the edge is some 3 % above at 50 features.
    norm = 1.665 * 50 / 0.7
    assert np.mean([np.linalg.norm(n, 2) for n in noises(LAPLACE, 50, 50)]) == pytest.approx(norm, rel=0.06)
    assert LAPLACE.spectral_error(50) == pytest.approx(norm, rel=0.01)


def test_moments_of_matrix_laplace_noise():
    noise, sd = noises(LAPLACE, 3, 3000), LAPLACE.noise_std(3)
    assert np.abs(noise.mean(axis=0)).max() < 5 * sd / np.sqrt(3000)
    # Kurtosis 6: the standard deviation of each is below 2.5 %.
    np.testing.assert_allclose(noise.std(axis=0), np.where(np.eye(3), sd, sd / np.sqrt(2.0)), rtol=0.15)
