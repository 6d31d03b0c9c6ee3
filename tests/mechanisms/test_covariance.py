"""MatrixLaplaceCovariance: its scale, and the spectral norm and moments of its noise."""

import numpy as np
import pandas as pd
import pytest

import streampca as sp
from streampca.errors import UsageError
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


def test_a_release_is_scaled_as_a_stream_is() -> None:
    """By bounds, of names too, and by a norm: the mean and the matrix are those of a stream, up to little noise."""
    rows = np.random.default_rng(0).normal(size=(500, 3)) * [9.0, 2.0, 0.1] + [40.0, -3.0, 0.0]
    bounds = {"a": (0.0, 80.0), "b": (-9.0, 3.0), "c": (-0.2, 0.2)}
    lower, upper = np.array([*bounds.values()]).T
    mechanism = sp.GaussianCovariance(n_components=2, epsilon=1e6)
    for data, scale in (
        (pd.DataFrame(rows, columns=list("abc")), {"bounds": bounds}), (rows, {"bounds": (lower, upper)}),
        (rows, {"row_norm": 45.0}),
    ):  # fmt: skip
        one = mechanism.release(data, **scale)
        stream = sp.Stream(sp.Tumbling(mechanism, release_every=500), features=list("abc"), **scale)
        other = stream.push_many(rows).releases[-1]
        assert one.row_norm == other.row_norm == scale.get("row_norm", 1.0)
        np.testing.assert_allclose(one.gram, other.gram, atol=5e-2 * one.row_norm**2)  # six standard deviations
        np.testing.assert_allclose(one.details["mean"], other.details["mean"], atol=1e-3 * one.row_norm)
        for name in ("middle", "scale"):
            np.testing.assert_array_equal(getattr(one.terms, name), getattr(other.terms, name))
    one, other = (mechanism.release(rows * unit, seed=1, row_norm=45.0 * unit) for unit in (1.0, 2.0))
    assert not np.array_equal(one.packed, other.packed)  # the same rows in the ball, but noise of its own
    with pytest.raises(UsageError, match="ExactSubspace keeps the values of rows"):
        sp.ExactSubspace(epsilon=1.0).release(rows, bounds=(lower, upper))
