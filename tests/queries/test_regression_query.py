"""Private regression."""

import numpy as np
import pytest
from dense_forms import gram_release

import streampca as sp
from streampca import errors, queries
from streampca.linalg.lattice import onto_ball

GUARANTEE = sp.Guarantee(1.0, 1e-6, "zero-out", "test", "test", "test", mu=0.2)


def joint_rows(n=500, seed=1, noise=0.0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, 3)) * 0.3
    beta = np.array([[1.0, -0.5], [0.5, 0.25], [-1.0, 0.0]])
    return np.hstack([a, a @ beta + noise * rng.normal(size=(n, 2))]), beta


def release_of(rows, std=0.0, **fields):
    return gram_release(rows.T @ rows, t=len(rows), n_components=1, guarantee=GUARANTEE, noise_std=std, **fields)


def test_without_noise_it_is_least_squares():
    rows, _ = joint_rows(noise=0.1)
    found = queries.regression(release_of(rows), responses=[3, 4])
    exact, squares, _, _ = np.linalg.lstsq(rows[:, :3], rows[:, 3:], rcond=None)
    np.testing.assert_allclose(found.coefficients, exact, rtol=1e-9)
    np.testing.assert_allclose(found.residual, squares, rtol=1e-8)
    assert (found.ridge, queries.regression(release_of(rows)).responses.tolist()) == (0.0, [4])
    np.testing.assert_allclose(found.predict(rows[:5, :3]), rows[:5, :3] @ exact)


def test_the_errors_of_coefficients_are_as_stated():
    a = np.random.default_rng(21).normal(size=(6000, 6)) * 0.35 * np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.5])
    a[:, -1] += 0.5 * a[:, 0] - 0.25 * a[:, 1]
    a[:, 0] += 0.2
    rows = onto_ball(np.hstack([a * 0.9, np.full((6000, 1), 0.5)]))
    mechanism = sp.GaussianCovariance(n_components=2, epsilon=1.0, center=False)
    made = [mechanism.release(rows, seed=1000 + i, row_norm=1.0) for i in range(200)]
    truth, *found = (queries.regression(each, [5], predictors=[0, 1, 2, 3, 4]) for each in (release_of(rows), *made))
    assert min(each.signal_to_noise for each in found) > 2.0
    z = np.array([(each.coefficients - truth.coefficients) / each.std for each in found])[:, :, 0]
    # Of 200 normals; off by 4.5 standard errors with probability 7e-6.
    assert np.abs(z.mean(axis=0)).max() < 4.5 / 200**0.5
    np.testing.assert_allclose(z.std(axis=0), 1.0, atol=4.5 / 400**0.5)


def test_joint_clipping_keeps_a_noiseless_relation():
    rows, beta = joint_rows(n=4000)
    rows *= 3.0  # most rows are clipped
    release = sp.GaussianCovariance(n_components=1, epsilon=50.0, center=False).release(
        rows, sp.Randomness.from_seed(3), row_norm=1.0
    )
    np.testing.assert_allclose(queries.regression(release, [3, 4]).coefficients, beta, atol=0.01)


def test_ridge_lifts_a_matrix_that_noise_made_indefinite():
    gram = np.diag([4.0, -1.0, 2.0])
    release = gram_release(gram, t=9, n_components=1, guarantee=GUARANTEE, noise_std=1.0)
    found = queries.regression(release)
    assert found.signal_to_noise == pytest.approx(2.0)
    assert np.isfinite(found.coefficients).all()
    with pytest.raises(errors.BadParameterError, match="ridge=0"):
        queries.regression(release, ridge=0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"responses": [0], "predictors": [0, 1]}, "none in common"),
        ({"responses": [], "predictors": [1]}, "none in common"),
        ({"responses": [0, 17]}, "responses=17"),
        ({"responses": ["nobody"]}, "responses='nobody'"),
        ({"predictors": np.ones(3, dtype=bool)}, "predictors=<ndarray of shape .*: expected a mask"),
    ],
)
def test_overlapping_or_missing_features_are_refused(arguments, message):
    with pytest.raises(errors.UsageError, match=message):
        queries.regression(release_of(joint_rows()[0]), **arguments)


def test_features_are_names_numbers_or_a_mask():
    release = release_of(joint_rows(noise=0.1)[0], features=list("abcde"))
    expected = queries.regression(release, [3, 4], predictors=[0, 2]).coefficients
    for predictors in (["c", "a"], np.array([True, False, True, False, False]), [-5, 2]):
        found = queries.regression(release, ["e", "d"], predictors=predictors)
        np.testing.assert_array_equal(found.coefficients, expected)
