"""The BLT reproduces its published fits and noise, and its closed forms are right."""

import math

import numpy as np
import pytest

from streampca.matrix_factorization.blt import ANYTIME, AnytimeBLT, GeometricBLT, noise_table, panel_ends, variances
from streampca.matrix_factorization.buffers import Buffers, fit_buffers, fit_forgetting, fit_lagged
from streampca.matrix_factorization.tree import BinaryTree


def max_and_rms(mechanism):
    stds = mechanism.stds(np.arange(1, mechanism.horizon + 1))
    return stds.max(), np.sqrt(np.mean(stds**2))


@pytest.mark.parametrize(
    ("kind", "log_horizon", "largest", "rms"),
    [
        (GeometricBLT, 8, 2.65, 2.56), (GeometricBLT, 10, 3.09, 2.99), (GeometricBLT, 14, 3.96, 3.87),
        (GeometricBLT, 16, 4.40, 4.31), (BinaryTree, 8, 8.49, 6.00), (BinaryTree, 10, 10.49, 7.42),
        (BinaryTree, 14, 14.49, 10.25), (BinaryTree, 16, 16.49, 11.66),
    ],
)  # fmt: skip
def test_noise_table(kind, log_horizon, largest, rms):
    assert max_and_rms(kind(2**log_horizon, mu=1.0)) == pytest.approx((largest, rms), rel=0.01)


@pytest.mark.parametrize(
    ("horizon", "alpha", "ratio"),
    [(2**10, 1.525621e-4, 6.410865), (2**14, 1.097294e-5, 7.330534), (2**20, 1.615663e-7, 7.550066)],
)
def test_the_fit_is_the_published_one(horizon, alpha, ratio):
    fitted = fit_buffers(horizon)
    assert (fitted.alpha, fitted.ratio) == pytest.approx((alpha, ratio), rel=5e-4)  # four digits


@pytest.mark.parametrize("horizon", [1, 2, 7, 100, 10**6, 10**9])
def test_every_fit_is_proper(horizon):
    fitted = fit_buffers(horizon)
    rates = np.ravel(np.column_stack([fitted.a, fitted.a_hat]))
    assert rates[0] > 0.0
    assert rates[-1] < 1.0  # every coefficient is positive, and they fall
    assert (np.diff(rates) > 0.0).all()  # interlaced


@pytest.mark.parametrize("buffers", [ANYTIME, Buffers(1e-3, 5.0, 4), Buffers(0.1, 2.0, 1)])
def test_closed_forms_agree_with_the_coefficients(buffers):
    n = 200
    c, c_inverse = buffers.coefficients(n), buffers.coefficients(n, inverse=True)
    np.testing.assert_allclose(np.convolve(c, c_inverse)[:n], np.eye(n)[0], atol=1e-12)
    counts = np.arange(1.0, n + 1.0)
    np.testing.assert_allclose(buffers.column_square(counts), np.cumsum(c**2), rtol=1e-12)
    np.testing.assert_allclose(buffers.row_square(counts), np.cumsum(np.cumsum(c_inverse) ** 2), rtol=1e-12)
    assert float(buffers.column_square(math.inf)) == pytest.approx(float(buffers.column_square(1e18)), rel=1e-9)
    assert (c > 0).all()
    assert (np.diff(c) < 0).all()


def test_column_norms_are_never_understated():
    # Against sums of squares in extended precision: the inflation of 1e-6 covers rounding a thousandfold.
    for horizon in (2**10, 2**14):
        buffers = fit_buffers(horizon)
        c = buffers.coefficients(horizon).astype(np.longdouble)
        exact = np.cumsum(c * c)
        closed = buffers.column_square(np.arange(1.0, horizon + 1.0))
        assert float(np.max(np.abs(closed / exact - 1.0))) < 1e-9


@pytest.mark.parametrize(("log_t", "std"), [(8, 3.56), (10, 4.04), (14, 4.92), (16, 5.44), (20, 6.55)])
def test_anytime_noise_table(log_t, std):
    assert AnytimeBLT(mu=1.0).std(2**log_t) == pytest.approx(std, rel=0.02)


def test_anytime_noise_stays_near_the_best_curve():
    t = 2.0 ** np.arange(8, 33)
    stds = np.array([AnytimeBLT(mu=1.0).std(int(n)) for n in t])
    ratio = stds / (0.846 + np.log(t) / math.pi)
    assert ratio.max() < 1.40
    assert AnytimeBLT(mu=1.0).scale ** 2 == pytest.approx(4.0598, rel=1e-4)


def test_std_at_a_horizon_of_nine_thousand_is_that_of_the_recursion():
    # Step by step, from the covariance of the buffers: an independent calculation.
    horizon = 9000
    mechanism = GeometricBLT(horizon, mu=1.0)
    buffers, scales = mechanism.buffers, mechanism._scales(np.arange(1.0, horizon + 1))
    count = buffers.count
    update = np.zeros((count + 1, count + 1))  # of (r, N) by itself, but for the row of N
    update[:count, :count] = np.diag(1.0 - buffers.a_hat)
    update[count, count] = 1.0
    covariance, found = np.zeros((count + 1, count + 1)), np.empty(horizon)
    for t in range(horizon):
        update[count, :count] = scales[t] * buffers.omega_hat
        drawn = np.append(np.ones(count), scales[t])
        covariance = update @ covariance @ update.T + np.outer(drawn, drawn)
        found[t] = math.sqrt(covariance[count, count])
    stds = mechanism.stds(np.arange(1, horizon + 1))
    np.testing.assert_allclose(stds, found, rtol=1e-10)
    assert (mechanism.std(8193), mechanism.std(horizon)) == (stds[8192], stds[-1])


@pytest.mark.parametrize("horizon", [700, 2**14, 2**17])
def test_std_on_panels_is_the_exact_one(horizon):
    ends = panel_ends(horizon)
    assert ends[-1] == horizon
    every = np.arange(1, horizon + 1)
    on_panels = np.interp(every, ends, np.sqrt(variances(fit_buffers(horizon), horizon, ends)))
    np.testing.assert_allclose(on_panels, np.interp(every, *noise_table(horizon)), rtol=5e-6)


def test_std_of_a_long_horizon_is_as_published():
    mechanism = GeometricBLT(2**30, mu=1.0)
    stds = [mechanism.std(2**i) for i in range(31)]
    assert (np.diff(stds[:29]) > 0.0).all()
    assert max(stds) == pytest.approx(7.51, rel=0.01)
    assert GeometricBLT(2**20 + 1, mu=1.0).std(2**19) == pytest.approx(GeometricBLT(2**20, mu=1.0).std(2**19), rel=1e-5)


@pytest.mark.parametrize(
    ("fit", "length", "expected"),
    [
        (fit_buffers, 5, (0.188, 12.75, 1)),
        (fit_buffers, 4096, (5.097e-05, 8.077, 5)),
        (fit_lagged, 5, (0.4312, 4.193, 1)),
        (fit_lagged, 4096, (0.0004703, 5.074, 5)),
        (fit_forgetting, 5, (0.04984, 5.904, 2)),
        (fit_forgetting, 4096, (5.778e-05, 7.861, 5)),
    ],
)
def test_fitted_constants_do_not_change(fit, length, expected):
    # They are part of the noise: another fit gives other noise for the same seed. The last digits are the machine's.
    fitted = fit(length)
    assert (fitted.alpha, fitted.ratio, fitted.count) == pytest.approx(expected, rel=3e-6)
