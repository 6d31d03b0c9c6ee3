import numpy as np
import pytest
from scipy.stats import kstest

from streampca.mechanisms.matrix_laplace import MatrixLaplaceCovariance
from streampca.papers.wishart import wishart
from streampca.privacy.randomness import Randomness


def noises(mechanism, d, draws, seed=1):
    rows, randomness = np.zeros((1, d)), Randomness.from_seed(seed)
    return np.array([mechanism.release(rows, randomness, t=1 + i).gram for i in range(draws)])


@pytest.mark.parametrize(("factor", "agrees"), [(1.0, True), (2 / 3, False), (1.5, False)])
@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_one_feature_is_laplace(factor, agrees, adjacency):
    epsilon = 0.7
    mechanism = MatrixLaplaceCovariance(n_components=1, epsilon=epsilon, adjacency=adjacency)
    drawn = noises(mechanism, 1, 2000)[:, 0, 0] * epsilon * factor
    assert (kstest(drawn, "laplace").pvalue > 1e-3) == agrees  # false alarm 1e-3 at a fixed seed


def test_spectral_norm_is_1_65_d_over_epsilon():
    mechanism = MatrixLaplaceCovariance(n_components=1, epsilon=1.0)
    norm = np.mean([np.linalg.norm(n, 2) for n in noises(mechanism, 50, 50)])  # sd of the mean below 1
    assert norm == pytest.approx(1.65 * 50, rel=0.10)
    assert mechanism.spectral_error(200) == pytest.approx(1.665 * 200, rel=1e-3)


def test_replace_doubles_the_scale():
    assert MatrixLaplaceCovariance(n_components=1, epsilon=2.0).scale(4) == 0.25
    assert MatrixLaplaceCovariance(n_components=1, epsilon=2.0, adjacency="replace").scale(4) == 0.5


def test_moments_of_the_noise():
    d, draws = 3, 3000
    mechanism = MatrixLaplaceCovariance(n_components=1, epsilon=0.5)
    noise = noises(mechanism, d, draws)
    sd = mechanism.noise_std(d)
    expected = np.where(np.eye(d), sd, sd / np.sqrt(2.0))
    assert np.abs(noise.mean(axis=0)).max() < 5 * sd / np.sqrt(draws)
    np.testing.assert_allclose(noise.std(axis=0), expected, rtol=0.15)  # kurtosis 6: sd of each is below 2.5 %


def test_wishart_has_its_law():
    stream = Randomness.from_seed(9).stream("test")
    drawn = np.array([wishart(stream.draws(i), 2, 5) for i in range(1500)])
    assert (kstest(drawn[:, 0, 0], "chi2", args=(5,)).pvalue) > 1e-3
    schur = np.array([1.0 / np.linalg.inv(w)[1, 1] for w in drawn])
    assert kstest(schur, "chi2", args=(4,)).pvalue > 1e-3
    assert kstest(schur, "chi2", args=(5,)).pvalue < 1e-3


def test_replacing_a_row_is_two_steps_from_two_features_on():
    one, two = (MatrixLaplaceCovariance(n_components=1, epsilon=0.5, adjacency=a) for a in ("zero-out", "replace"))
    assert [one.scale(d) for d in (1, 2, 3)] == [1.0, 1.0, 1.0]
    assert [two.scale(d) for d in (1, 2, 3)] == [1.0, 2.0, 2.0]
