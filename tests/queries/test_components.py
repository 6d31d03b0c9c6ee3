"""PCA and sparse PCA: optima, bounds, planted supports."""

from itertools import combinations

import numpy as np
import pytest
from dense_forms import gram_release

import streampca as sp
from streampca import errors, queries
from streampca.linalg.svec import svec_size, unsvec
from streampca.queries.sparse import best_sparse

GUARANTEE = sp.Guarantee(1.0, 1e-6, "zero-out", "test", "test", "test", mu=0.2)


def release_of(gram, std=0.0, k=2):
    return gram_release(gram, t=100, n_components=k, guarantee=GUARANTEE, noise_std=std)


def random_symmetric(seed, d):
    a = np.random.default_rng(seed).normal(size=(d, d))
    return a + a.T


def test_pca_agrees_with_the_release():
    release = release_of(random_symmetric(1, 7), std=1.0, k=3)
    found = queries.pca(release)
    np.testing.assert_array_equal(found.components, release.subspace.basis)
    np.testing.assert_allclose(found.values, np.linalg.eigvalsh(release.gram)[::-1][:3])
    assert found.std == 1.0
    np.testing.assert_allclose(queries.pca(release, 7).values, np.linalg.eigvalsh(release.gram)[::-1])


@pytest.mark.parametrize("seed", range(6))
def test_sparse_finds_the_optimum_of_small_problems(seed):
    gram = random_symmetric(seed, 9)
    best = max(np.linalg.eigvalsh(gram[np.ix_(s, s)])[-1] for s in combinations(range(9), 3))
    x = best_sparse(gram, 3)
    assert np.count_nonzero(x) <= 3
    assert x @ x == pytest.approx(1.0)
    assert x @ gram @ x == pytest.approx(best, abs=1e-9)


def planted(seed, n, directions, noise=0.3):
    """Rows near a few directions, inside the unit ball."""
    rng, d = np.random.default_rng(seed), directions.shape[1]
    rows = rng.normal(size=(n, len(directions))) * 0.35 @ directions + noise * rng.normal(size=(n, d)) / np.sqrt(d)
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)


def test_planted_sparse_supports_are_recovered_from_a_private_release():
    directions = np.zeros((2, 40))
    directions[0, [2, 7, 11, 30]] = [0.6, -0.5, 0.45, 0.43]
    directions[1, [5, 19, 20, 33]] = [0.5, 0.5, -0.5, 0.5]
    directions *= np.array([[1.5], [1.0]])
    release = sp.GaussianCovariance(n_components=2, epsilon=1.0, center=False).release(
        planted(4, 6000, directions), sp.Randomness.from_seed(11), row_norm=1.0
    )
    found = queries.sparse_pca(release, 4, n_components=2)
    assert found.support(0).tolist() == [2, 7, 11, 30]
    assert found.support(1).tolist() == [5, 19, 20, 33]
    assert found.bound() < queries.pca(release).bound()


def test_uniform_bounds_hold_for_the_worst_direction():
    # 200 draws at 90 %: the bound may fail 20 times; it is conservative and fails far less. Bounds of 2/3
    # (all directions) and 1/2 (sparse ones) of the size fail mostly, so the check can fail.
    d, size, level = 30, 2, 0.9
    noise = queries.GramNoise(1.0, d)
    e = [
        unsvec(z, d)
        for z in sp.Randomness.from_seed(6).stream("x").normal(0, 200 * svec_size(d)).reshape(200, -1)
    ]  # fmt: skip
    full = np.array([np.abs(np.linalg.eigvalsh(m)).max() for m in e])
    assert (full > noise.spectral(level)).mean() <= 0.1
    assert (full > 2 / 3 * noise.spectral(level)).mean() > 0.5
    pairs = np.array(list(combinations(range(d), size)))
    sparse = np.array(
        [np.abs(np.linalg.eigvalsh(m[pairs[:, :, None], pairs[:, None, :]])).max() for m in e[:100]]
    )  # fmt: skip
    assert (sparse > noise.spectral(level, size)).mean() <= 0.1
    assert (sparse > 1 / 2 * noise.spectral(level, size)).mean() > 0.5
    assert noise.spectral(level, size) < noise.spectral(level)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda r: queries.pca(r, 9), "n_components=9"),
        (lambda r: queries.sparse_pca(r, 0), "n_nonzero=0"),
        (lambda r: queries.sparse_pca(r, 2, n_components=8), "n_components=8"),
        (lambda r: queries.pca(r, True), "n_components=True"),
    ],
)
def test_bad_arguments_are_named(call, names):
    with pytest.raises(errors.BadParameterError, match=names):
        call(release_of(np.eye(7)))
