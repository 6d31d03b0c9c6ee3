"""Noise on the entries of a Gram matrix, and Wishart noise."""

import math

import numpy as np
import pytest
from scipy.stats import kstest

from streampca.errors import BadParameterError
from streampca.papers.covariance import LaplaceCovariance, WishartCovariance, design, profile
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


def test_every_entry_is_laplace_of_the_stated_scale():
    mechanism, randomness = LaplaceCovariance(n_components=1, epsilon=0.5), Randomness.from_seed(5)
    drawn = np.array([mechanism.release(np.zeros((1, 3)), randomness, t=1 + i, row_norm=1.0).gram for i in range(700)])
    assert mechanism.scale(3) == 4.0
    for i, j in ((0, 0), (0, 1), (2, 1), (2, 2)):  # false alarm 4e-3 in all, at a fixed seed
        for factor in (1.0, 2 / 3, 1.5):
            p = kstest(drawn[:, i, j] / (factor * mechanism.scale(3)), "laplace").pvalue
            assert (p > 1e-3) == (factor == 1.0)


def test_printed_parameters_have_the_delta_of_the_design():
    # m = d + 1 and c = 3 / (2 epsilon): 1 - exp(-epsilon / 3), whatever d
    for epsilon in (0.1, 1.0, 3.0):
        for d in (1, 5, 50):
            assert profile(epsilon, d + 1, 1.5 / epsilon, d) == pytest.approx(-math.expm1(-epsilon / 3), rel=1e-12)


def test_degrees_of_freedom_for_unit_scale():
    # Sheffet's c = 1: m - d = 42 suffices at (1, 1e-6), 41 does not.
    assert profile(1.0, 50 + 42, 1.0, 50) <= 1e-6 < profile(1.0, 50 + 41, 1.0, 50)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize(("epsilon", "delta", "d"), [(1.0, 1e-6, 50), (0.1, 1e-5, 3), (5.0, 0.1, 1)])
def test_design_meets_the_budget_and_wastes_nothing(adjacency, epsilon, delta, d):
    m, c = design(epsilon, delta, adjacency, d)
    assert m >= d + 1
    assert delta * (1 - 1e-4) < profile(epsilon, m, c, d, adjacency) <= delta
    norm = c * (math.sqrt(m) + math.sqrt(d)) ** 2
    for other in (m - 3, m + 3):
        if other > d:
            low, high = 0.5 * c, 2.0 * c
            for _ in range(50):
                middle = 0.5 * (low + high)
                low, high = (low, middle) if profile(epsilon, other, middle, d, adjacency) <= delta else (middle, high)
            assert high * (math.sqrt(other) + math.sqrt(d)) ** 2 > norm * (1 - 1e-4)


def test_spectral_norm_is_that_of_the_design_and_the_release_is_psd():
    mechanism = WishartCovariance(n_components=2, epsilon=1.0, delta=1e-6)
    randomness = Randomness.from_seed(1)
    made = [mechanism.release(np.zeros((1, 50)), randomness, t=1 + i, row_norm=1.0) for i in range(50)]
    values = np.array([np.linalg.eigvalsh(release.gram) for release in made])
    assert values[:, -1].mean() == pytest.approx(147.0, rel=0.05)  # sd of the mean is 0.3
    assert values.min() > 0.0
    details = mechanism.release(np.zeros((1, 50)), randomness, row_norm=1.0).details
    assert details["degrees"] * details["scale"] == pytest.approx(values.mean(), rel=0.01)


def test_pure_epsilon_is_refused():
    with pytest.raises(BadParameterError, match="MatrixLaplaceCovariance"):
        WishartCovariance(n_components=1, epsilon=1.0, delta=0.0)
