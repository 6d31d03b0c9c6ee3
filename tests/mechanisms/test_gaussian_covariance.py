import math

import numpy as np
import pytest
from scipy.stats import kstest

from streampca.errors import BadParameterError
from streampca.linalg.lattice import coarsen
from streampca.linalg.svec import svec
from streampca.mechanisms.covariance import nearest_gram
from streampca.mechanisms.gaussian import GaussianCovariance
from streampca.privacy.gaussian import delta_at
from streampca.privacy.randomness import Randomness

GAUSSIAN = GaussianCovariance(n_components=2, epsilon=1.0, delta=1e-6)


def noises(mechanism, d, draws, seed=1):
    rows, randomness = np.zeros((1, d)), Randomness.from_seed(seed)
    return np.array([mechanism.release(rows, randomness, t=1 + i).gram for i in range(draws)])


def test_sigma_spends_exactly_the_budget():
    assert GAUSSIAN.mu == pytest.approx(0.236704, abs=1e-6)
    assert GAUSSIAN.sigma == pytest.approx(1.0 / GAUSSIAN.mu)
    assert delta_at(1.0 / GAUSSIAN.sigma, 1.0) == pytest.approx(1e-6, rel=1e-9)
    replace = GaussianCovariance(n_components=2, epsilon=1.0, delta=1e-6, adjacency="replace")
    assert replace.sigma == pytest.approx(math.sqrt(2.0) * GAUSSIAN.sigma)


def test_spectral_norm_is_42_at_50_features():
    # Mean of 50 draws; sd of one is about 1.3, so a false alarm is below 1e-9.
    norm = np.mean([np.linalg.norm(n, 2) for n in noises(GAUSSIAN, 50, 50)])
    assert norm == pytest.approx(42.0, rel=0.05)
    assert norm == pytest.approx(GAUSSIAN.spectral_error(50), rel=0.05)
    assert GAUSSIAN.spectral_error(1) == pytest.approx(GAUSSIAN.sigma * 0.7978845608)  # of a folded normal


@pytest.mark.parametrize(("factor", "agrees"), [(1.0, True), (2 / 3, False), (1.5, False)])
def test_noise_is_standard_normal_in_svec_coordinates(factor, agrees):
    drawn = np.concatenate([svec(n) for n in noises(GAUSSIAN, 4, 400)]) / (factor * GAUSSIAN.sigma)
    p = kstest(drawn, "norm").pvalue  # 4000 values; false alarm 1e-3 at a fixed seed
    assert (p > 1e-3) == agrees


def test_release_is_gram_plus_noise():
    rows = np.random.default_rng(0).normal(size=(200, 5))
    rows /= 2.0 * np.linalg.norm(rows, axis=1, keepdims=True)
    sharp = GaussianCovariance(n_components=2, epsilon=1e4, delta=1e-6)
    release = sharp.release(rows, Randomness.from_seed(0))
    assert np.abs(release.gram - rows.T @ rows).max() < 6 * sharp.sigma + 1e-3
    assert release.noise_std == sharp.sigma
    assert release.details == {"mechanism": "GaussianCovariance", "rows": 200}


def test_nearest_gram_is_the_projection():
    rng = np.random.default_rng(3)
    for trace in (0.5, 3.0, 100.0):
        matrix = rng.normal(size=(6, 6))
        matrix += matrix.T
        values, vectors = nearest_gram(matrix, trace)
        projected = (vectors * values) @ vectors.T
        assert values.min() >= 0.0
        assert values.sum() <= trace + 1e-9
        assert (np.diff(values) <= 1e-12).all()
        for _ in range(200):  # the angle to every feasible point is obtuse, as for no other point
            other = rng.normal(size=(6, 6))
            other = other @ other.T
            other *= rng.uniform() * trace / np.trace(other)
            assert np.sum((matrix - projected) * (other - projected)) <= 1e-9


def test_projection_never_adds_frobenius_error_and_keeps_the_subspace():
    rng = np.random.default_rng(4)
    n, d = 400, 40
    rows = rng.normal(size=(n, d)) * np.where(np.arange(d) < 3, 1.0, 0.1)
    rows /= np.maximum(1.0, np.linalg.norm(rows, axis=1, keepdims=True))
    plain = GaussianCovariance(n_components=3, epsilon=1.0, delta=1e-6)
    gains = []
    for t in range(5):
        # The same parameters but for the projection have other noise, so both are taken from one release.
        release = plain.release(rows, Randomness.from_seed(t))
        values, vectors = nearest_gram(release.gram, float(n))
        error = np.linalg.norm((vectors * values) @ vectors.T - rows.T @ rows)
        gains.append(error / np.linalg.norm(release.gram - rows.T @ rows))
    assert max(gains) <= 1.0
    assert np.mean(gains) < 0.5
    projected = GaussianCovariance(n_components=3, epsilon=1.0, delta=1e-6, project="psd")
    release = projected.release(rows, Randomness.from_seed(0))
    assert np.linalg.eigvalsh(release.gram).min() > -1e-9
    assert np.trace(release.gram) <= n + 1e-6
    assert release.noise_std is None
    assert release.details["projected"]
    np.testing.assert_allclose(release.eigenvalues, np.linalg.eigvalsh(release.gram)[::-1][:3], atol=1e-8)


def test_automatic_projection_looks_at_public_numbers():
    auto = GaussianCovariance(n_components=1, epsilon=1.0, delta=1e-6, project="auto")
    # 50 * 42 is above 1000, and 3 * 10 below 2000.
    assert "projected" in auto.release(np.zeros((1000, 50)), Randomness.from_seed(0)).details
    assert "projected" not in auto.release(np.zeros((2000, 3)), Randomness.from_seed(0)).details
    with pytest.raises(BadParameterError, match="project='PSD'"):
        GaussianCovariance(n_components=1, epsilon=1.0, delta=1e-6, project="PSD")


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 4.2, 1e7])
def test_releases_lie_on_a_grid_that_is_coarse_against_the_noise(scale):
    values = np.random.default_rng(0).normal(size=1000) * scale
    rounded = coarsen(values, scale)
    step = max(2.0 ** math.ceil(math.log2(scale) - 20), 2.0**-40)
    assert step >= 2.0**-20 * scale or step == 2.0**-40
    assert (rounded / step == np.rint(rounded / step)).all()
    assert np.abs(rounded - values).max() <= step / 2


def test_delta_zero_is_refused():
    with pytest.raises(BadParameterError, match=r"delta=0\.0: expected a number in \(0, 1\)"):
        GaussianCovariance(n_components=1, epsilon=1.0, delta=0.0)
