import numpy as np
import pytest
from scipy.stats import kstest

from streampca.papers.laplace import LaplaceCovariance
from streampca.privacy.randomness import Randomness


@pytest.mark.parametrize("d", [1, 2, 3, 7])
@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_sensitivity_is_attained_and_not_exceeded(d, adjacency):
    stated = LaplaceCovariance(n_components=1, epsilon=1.0, adjacency=adjacency).sensitivity(d)
    rng, best = np.random.default_rng(d), 0.0
    for _ in range(60):  # alternating ascent over rows a, b and the signs of a a^T - b b^T
        signs = np.sign(rng.normal(size=(d, d)))
        signs = np.triu(signs) + np.triu(signs, 1).T
        for _ in range(30):
            # the sum over i <= j of s_ij m_ij is <S, M> with S halved off the diagonal
            values, vectors = np.linalg.eigh(np.where(np.eye(d), signs, signs / 2.0))
            a = vectors[:, -1] * (values[-1] > 0.0)
            b = vectors[:, 0] * (values[0] < 0.0) * (adjacency == "replace")
            moved = np.outer(a, a) - np.outer(b, b)
            best = max(best, np.abs(moved[np.triu_indices(d)]).sum())
            signs = np.sign(moved)
    assert best <= stated * (1.0 + 1e-12)
    assert best >= stated * (0.95 if adjacency == "replace" and d > 2 else 1.0 - 1e-12)


@pytest.mark.parametrize(("factor", "agrees"), [(1.0, True), (2 / 3, False), (1.5, False)])
def test_every_entry_is_laplace_of_the_stated_scale(factor, agrees):
    mechanism, randomness = LaplaceCovariance(n_components=1, epsilon=0.5), Randomness.from_seed(5)
    drawn = np.array([mechanism.release(np.zeros((1, 3)), randomness, t=1 + i).gram for i in range(700)])
    assert mechanism.scale(3) == 4.0
    for i, j in ((0, 0), (0, 1), (2, 1), (2, 2)):  # false alarm 4e-3 in all, at a fixed seed
        p = kstest(drawn[:, i, j] / (factor * mechanism.scale(3)), "laplace").pvalue
        assert (p > 1e-3) == agrees


def test_spectral_error():
    mechanism = LaplaceCovariance(n_components=1, epsilon=1.0)
    assert mechanism.spectral_error(100) == pytest.approx(14.3 * 100, rel=0.01)
    randomness = Randomness.from_seed(6)
    norms = [np.linalg.norm(mechanism.release(np.zeros((1, 60)), randomness, t=1 + i).gram, 2) for i in range(20)]
    assert np.mean(norms) == pytest.approx(mechanism.spectral_error(60), rel=0.06)
