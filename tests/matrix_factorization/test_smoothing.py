"""Smoothing is the best linear predictor of its model, has the noise of its design, and helps on real sums."""

import numpy as np
import pytest

from streampca.matrix_factorization.blt import AnytimeBLT, GeometricBLT
from streampca.matrix_factorization.smoothing import Smoothing, WindowSmoothing
from streampca.matrix_factorization.window import StationaryBLT, WindowDifference

MODEL = {"prior": 0.7, "scatter": 0.2, "drift": 0.05}


def dense_predictor(mechanism, model, n, shares):
    gained = np.cumsum(model["drift"] / np.arange(1.0, n + 1))
    order = np.arange(n)
    inputs = model["prior"] + gained[np.minimum(order[:, None], order)]
    inputs = shares[:, None] * shares * inputs + np.diag(shares * model["scatter"])
    sums = np.tril(np.ones((n, n)))
    noise = mechanism.reconstruction(n)
    exact = sums @ inputs @ sums.T
    released = exact + noise @ noise.T
    weights, variances = np.zeros((n, n)), np.zeros(n)
    for last in range(1, n + 1):
        weights[last - 1, :last] = np.linalg.solve(released[:last, :last], exact[:last, last - 1])
        variances[last - 1] = exact[last - 1, last - 1] - exact[:last, last - 1] @ weights[last - 1, :last]
    return weights, variances


@pytest.mark.parametrize(
    "mechanism",
    [
        GeometricBLT(64, 0.8, 1.3),
        GeometricBLT(4096, 2.0),
        AnytimeBLT(0.8, 1.3),
        AnytimeBLT(1.0, restart_after=17),
        GeometricBLT(64, 1e-3),
    ],
    ids=repr,
)
@pytest.mark.parametrize("last_share", [1.0, 0.3])
def test_the_recursion_is_the_dense_predictor(mechanism, last_share):
    n = 64
    shares = np.ones(n)
    shares[-1] = last_share
    weights, variances = dense_predictor(mechanism, MODEL, n, shares)
    released = np.random.default_rng(1).standard_normal((n, 3)).cumsum(axis=0)
    at = Smoothing(mechanism, **MODEL).start(3)
    for t in range(n):
        at = at.after(released[t], shares[t])
        assert np.abs(at.sum - weights[t] @ released).max() <= 1e-10 * np.abs(released).max()
        assert at.covariance[-1, -1] == pytest.approx(variances[t], rel=1e-8)


def noise_rms(mechanism, n):
    at, squares = Smoothing(mechanism, 1e6, 0.0, 0.0).start(1), []
    for _ in range(n):
        at = at.after(at.released)
        squares.append(at.covariance[-1, -1])
    return np.sqrt(np.mean(squares))


@pytest.mark.parametrize(
    ("mechanism", "raw", "smoothed"), [(GeometricBLT(2**14, 1.0), 3.869, 2.524), (AnytimeBLT(1.0), 4.585, 3.360)]
)
def test_noise_of_smoothed_sums(mechanism, raw, smoothed):
    assert np.sqrt(np.mean(mechanism.stds(np.arange(1, 2**14 + 1)) ** 2)) == pytest.approx(raw, abs=6e-4)
    assert noise_rms(mechanism, 2**14) == pytest.approx(smoothed, abs=6e-4)


def test_the_model_of_gram_matrices():
    mechanism = AnytimeBLT(1.0)
    smoothing = Smoothing(mechanism, prior=0.5 * 400 / 55, scatter=0.3 * 20 / 27, drift=2.0 * 400 / 27)
    assert Smoothing.of_grams(mechanism, 10, 3, 20, drift=2.0) == smoothing


# -- windows --------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 5, 8, 16])
def test_window_weights_are_the_dense_solve(n):
    mechanism, d, k, b = WindowDifference(8, 0.6, 1.4), 7, 2, 30
    smoothing = WindowSmoothing(mechanism, d, k, b)
    p = k * d - k * (k - 1) / 2
    order = np.arange(n)
    inputs = (0.5 * b**2 + b**3 * 0.04 / (8 * b) * np.minimum(order[:, None], order)) / p + 0.3 * b / p * np.eye(n)
    steps = np.diff(StationaryBLT(8, 0.6, 1.4).reconstruction(n), axis=0, prepend=0.0)
    window = (order >= n - 8).astype(float)
    expected = np.linalg.inv(inputs + steps @ steps.T) @ inputs @ window
    assert np.abs(smoothing.solve(n)[0] - expected).max() < 1e-10
    assert smoothing.solve(n)[0] is smoothing.solve(n)[0]


def test_the_noise_of_increments_becomes_stationary():
    mechanism = WindowDifference(8, 0.6)
    smoothing = WindowSmoothing(mechanism, 7, 2, 30)
    steps = np.diff(StationaryBLT(8, 0.6).reconstruction(1000), axis=0, prepend=0.0)[-16:]
    assert np.abs(smoothing.noise_covariance(1000) - steps @ steps.T).max() < 1e-6
    assert smoothing.solve(17)[0] is smoothing.solve(10**9)[0]
    assert smoothing.solve(17)[0].shape == (16,)
