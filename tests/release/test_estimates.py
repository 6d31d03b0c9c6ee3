"""Estimates from a private Gram matrix: less biased than what is released, intervals that cover, shares that add up."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import ndtri
from scipy.stats import binom

from streampca.errors import BadParameterError, UsageError
from streampca.privacy.budget import Budget
from streampca.release.estimates import Estimates, goe_quantile

load_digits = pytest.importorskip("sklearn.datasets").load_digits


def goe(source, size, std=1.0):
    square = source.standard_normal((size, size))
    return std * 0.5 * (square + square.T)


def least_count(runs, share, alarm=1e-6):
    """Successes that fewer of would occur with probability below ``alarm`` if each has probability ``share``."""
    return binom.ppf(alarm, runs, share)


@pytest.fixture(scope="module")
def digits():
    """Gram matrix of the digits, from the middle of their range and scaled into the unit ball; number of rows."""
    rows = load_digits().data - 8.0
    rows /= np.linalg.norm(rows, axis=1).max()
    return rows.T @ rows, len(rows)


@pytest.fixture(scope="module")
def runs(digits):
    """40 releases at epsilon = 0.3: exact matrix, noise_std, estimates."""
    gram, rows = digits
    std, source = 1.0 / Budget(0.3, 1e-6, "zero-out").mu, np.random.default_rng(0)
    return [
        Estimates(gram=gram + goe(source, len(gram), std), noise_std=std, n_components=3, rows=rows) for _ in range(40)
    ]


def along(gram, made):
    """Exact variances along the leading eigenvectors of a released matrix."""
    vectors = np.linalg.eigh(made.gram)[1][:, ::-1][:, : made.n_components]
    return np.einsum("ij,ik,kj->j", vectors, gram, vectors)


def test_estimates_are_less_biased_than_released_eigenvalues_on_digits(digits, runs):
    """The figures of the design, relative to the exact eigenvalues: [.02, 1.41, 1.48] becomes [.00, .23, .18]."""
    gram, _ = digits
    exact = np.linalg.eigvalsh(gram)[::-1][:3]
    released = np.array([np.linalg.eigvalsh(made.gram)[::-1][:3] for made in runs])
    truths = np.array([along(gram, made) for made in runs])
    raw, debiased = (found.mean(0) for found in (released - truths, [made.variances for made in runs] - truths))
    assert raw / exact == pytest.approx([0.02, 1.41, 1.48], abs=0.1)
    assert debiased / exact == pytest.approx([0.0, 0.23, 0.18], abs=0.1)
    estimated = np.mean([made.eigenvalues for made in runs], 0)
    assert np.abs(estimated - exact).sum() < 0.4 * np.abs(released.mean(0) - exact).sum()
    truth = truths.mean(0) / np.trace(gram)
    raw = np.mean([values / np.trace(made.gram) for values, made in zip(released, runs, strict=True)], 0)
    found = np.mean([made.explained_variance_ratio for made in runs], 0)
    assert np.abs(found - truth).sum() < 0.3 * np.abs(raw - truth).sum()


@pytest.mark.parametrize(("epsilon", "within"), [(0.3, 0.01), (3.0, 0.003)])
def test_predicted_captured_share_on_digits(digits, epsilon, within):
    """Mean of 40 releases; at epsilon = .3 the captured share varies by .005 between releases."""
    gram, rows = digits
    std, source = 1.0 / Budget(epsilon, 1e-6, "zero-out").mu, np.random.default_rng(1)
    best, found = np.linalg.eigvalsh(gram)[-3:].sum(), []
    for _ in range(40):
        made = Estimates(gram=gram + goe(source, 64, std), noise_std=std, n_components=3, rows=rows)
        found.append((made.variances.sum() / made.eigenvalues.sum(), along(gram, made).sum() / best))
    predicted, captured = np.mean(found, axis=0)
    assert predicted == pytest.approx(captured, abs=within)


def test_direction_quality_is_the_squared_cosine():
    """Five spikes in 60 dimensions; means of 200 matrices have a standard error below .005."""
    source, spikes, std = np.random.default_rng(2), np.array([400.0, 300.0, 200.0, 120.0, 60.0]), 5.0
    exact = np.diag(np.concatenate((spikes, np.zeros(55))))
    found = []
    for _ in range(200):
        made = Estimates(gram=exact + goe(source, 60, std), noise_std=std, n_components=5, rows=2000)
        cosines = np.linalg.eigh(made.gram)[1][:, ::-1][np.arange(5), np.arange(5)] ** 2
        found.append((made.direction_quality, cosines))
    estimated, true = np.mean(found, axis=0)
    assert np.abs(estimated[:4] - true[:4]).max() < 0.02
    assert true[4] == pytest.approx(estimated[4], abs=0.2)
    assert true[4] < 0.9


# -- intervals ------------------------------------------------------------------------


@pytest.mark.parametrize(("spread", "level"), [(0.0, 0.95), (30.0, 0.5)])
def test_intervals_cover_all_eigenvalues(spread, level):
    """300 matrices: false alarm at 1e-6 if coverage is as stated; intervals of half the width at 0.95 fail."""
    source, d, k, n = np.random.default_rng(4), 30, 4, 300
    exact = np.diag(spread * np.arange(d, 0.0, -1.0))
    top = np.diag(exact)[:k]
    covered = halved = adaptive = 0
    for _ in range(n):
        made = Estimates(gram=exact + goe(source, d, 2.0), noise_std=2.0, n_components=k, rows=10_000)
        low, high = made.interval(level)
        covered += bool(((low <= top) & (top <= high)).all())
        middle, half = 0.5 * (low + high), 0.25 * (high - low)
        halved += bool((np.abs(top - middle) <= half).all())
        low, high = made.interval(level, adaptive=True)
        truth = along(exact, made)
        adaptive += bool(((low <= top) & (top <= high) & (low <= truth) & (truth <= high)).all())
    assert covered >= least_count(n, level)
    assert adaptive >= least_count(n, level)
    if spread == 0.0:
        assert halved < least_count(n, level)


def test_widths_of_intervals():
    """At d = 100, k = 5 the mean half-width is 9.1 sd, and 14.5 for adaptive rows; Weyl and concentration give 16.9."""
    made = Estimates(gram=np.eye(100), noise_std=1.0, n_components=5, rows=100)
    low, high = made.interval()
    assert 0.5 * (high - low).mean() == pytest.approx(9.1, abs=0.1)
    low, high = made.interval(adaptive=True)
    assert 0.5 * (high - low) == pytest.approx(np.full(5, 14.55), abs=0.1)


# -- quantiles ------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "tail"), [(1, 0.05), (2, 0.05), (16, 0.02), (30, 0.05)])
def test_quantiles_are_those_of_dense_matrices(size, tail):
    """5000 dense matrices: an exact quantile fails at 1e-6; nine tenths of it leaves more than 1.25 times the tail."""
    source, n = np.random.default_rng(8), 5000
    square = source.standard_normal((n, size, size))
    values = np.linalg.eigvalsh(0.5 * (square + square.transpose(0, 2, 1)))
    for extreme, quantile in (
        (values[:, -1], goe_quantile(size, tail)),
        (np.abs(values).max(1), goe_quantile(size, tail, norm=True)),
    ):
        beyond = (extreme > quantile).sum()
        # The simulated quantile has an error too: that of 20 000 runs.
        assert abs(beyond / n - tail) < 5.0 * np.sqrt(tail * (1.0 / n + 1.0 / 20_000)) + 0.01 * tail
        assert (extreme > 0.9 * quantile).sum() / n > 1.25 * tail


def test_quantiles_about_a_mean_are_those_of_the_noise_of_sum_and_count():
    """At u of length 1.25 and a tail of .01. Beyond quantiles without the noise of the count are .057 of these runs."""
    n, size, tail, source = 20_000, 5, 0.01, np.random.default_rng(7)
    u = 1.25 * np.array([0.6, 0.0, 0.8, 0.0, 0.0])
    square, e, g = source.standard_normal((n, 5, 5)), source.standard_normal((n, 5)), source.standard_normal(n)
    noise = 0.5 * (square + square.transpose(0, 2, 1)) - (e[:, :, None] * u + e[:, None, :] * u[:, None])
    counted = noise + 2.0 * g[:, None, None] * np.outer(u, u)
    shares = [np.mean(np.linalg.eigvalsh(each)[:, -1] > goe_quantile(size, tail, 1.25)) for each in (noise, counted)]
    assert abs(shares[1] - tail) < 5.0 * np.sqrt(2.0 * tail / n)
    assert shares[0] < 0.5 * tail  # a law without the count would be wrong by this much


def test_far_quantiles_are_bounds_and_quantiles_grow_with_size():
    """The normal quantile for size 1, plus the error of the simulated median; no jump where the two methods meet."""
    assert goe_quantile(1, 1e-9) == pytest.approx(-ndtri(1e-9), abs=0.05)
    assert goe_quantile(50, 1e-9) > goe_quantile(50, 9.9e-4) > goe_quantile(50, 1.1e-3)
    assert goe_quantile(50, 1e-9) < np.sqrt(100.0) - ndtri(1e-9)
    assert (np.diff([goe_quantile(size, 0.01) for size in (*range(1, 21), 99, 100, 101)]) > 0.0).all()


# -- shares ---------------------------------------------------------------------------

_number = st.floats(-1e6, 1e6, allow_nan=False)


@st.composite
def releases(draw):
    d = draw(st.integers(1, 6))
    square = draw(arrays(np.float64, (d, d), elements=_number))
    return Estimates(
        gram=0.5 * (square + square.T),
        noise_std=draw(st.one_of(st.just(0.0), st.floats(1e-300, 1e9))),
        n_components=draw(st.integers(1, d)),
        rows=draw(st.integers(1, 10**9)),
        row_norm=draw(st.floats(1e-3, 1e3)),
    )


@settings(max_examples=150, deadline=None)
@given(releases())
def test_nothing_is_ever_nan_and_shares_never_exceed_one(made):
    ratio = made.explained_variance_ratio
    assert ratio.shape == (made.n_components,)
    assert (ratio >= 0.0).all()
    assert ratio.sum() <= 1.0
    assert sum(ratio.tolist()) <= 1.0
    assert ((made.direction_quality >= 0.0) & (made.direction_quality <= 1.0)).all()
    for values in (made.variances, made.eigenvalues, made.shrunk_gram):
        assert np.isfinite(values).all()
    if made.n_components == len(made.gram):
        scale = np.abs(made.gram).sum() + made.noise_std
        assert made.variances.sum() == pytest.approx(np.trace(made.gram), rel=1e-9, abs=1e-9 * scale)


def test_without_noise_estimates_are_the_exact_values():
    source = np.random.default_rng(9)
    rows = source.standard_normal((50, 6)) / 4.0
    gram = rows.T @ rows
    values = np.linalg.eigvalsh(gram)[::-1]
    made = Estimates(gram=gram, noise_std=0.0, n_components=6, rows=50)
    assert np.allclose(made.variances, values)
    assert np.allclose(made.eigenvalues, values)
    assert np.allclose(made.explained_variance_ratio, values / values.sum())
    assert np.allclose(made.shrunk_gram, gram)
    assert np.array_equal(*made.interval())


@pytest.mark.parametrize(("gram", "expected"), [(-np.eye(2), [0.5, 0.5]), (np.diag([-5.0, -9.0]), [1.0, 0.0])])
def test_shares_of_a_negative_trace(gram, expected):
    """There was a row at most, as far as can be told: the mass is that of one row."""
    made = Estimates(gram=gram, noise_std=0.0, n_components=2, rows=10)
    assert made.explained_variance_ratio == pytest.approx(expected)


@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_the_shrunk_matrix_is_the_best_of_three_in_frobenius_norm(digits, epsilon):
    gram, rows = digits
    std, source = 1.0 / Budget(epsilon, 1e-6, "zero-out").mu, np.random.default_rng(11)
    errors = []
    for _ in range(10):
        made = Estimates(gram=gram + goe(source, 64, std), noise_std=std, n_components=3, rows=rows)
        values, vectors = np.linalg.eigh(made.gram)
        positive = (vectors * np.maximum(values, 0.0)) @ vectors.T
        errors.append([np.linalg.norm(found - gram) for found in (made.gram, positive, made.shrunk_gram)])
        assert np.linalg.eigvalsh(made.shrunk_gram)[0] > -1e-9 * np.linalg.norm(made.gram)
    raw, positive, shrunk = np.mean(errors, axis=0)
    assert shrunk < 0.8 * min(raw, positive)


def test_estimates_of_nonsense_are_refused():
    good = {"gram": np.eye(3), "noise_std": 1.0, "n_components": 2, "rows": 10}
    for name, value in (
        ("gram", np.full((3, 3), np.nan)), ("gram", np.ones((3, 2))), ("noise_std", -1.0), ("n_components", 4),
        ("rows", 0), ("row_norm", 0.0),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=name):
            Estimates(**{**good, name: value})
    for level in (0.0, float("nan"), "0.9"):
        with pytest.raises(BadParameterError, match="level="):
            Estimates(**good).interval(level)


def test_the_exact_sum_of_shares_does_not_exceed_one(monkeypatch):
    shares = np.array([0.731530279798778, 0.26196651932273335, 0.0065032008784887685])
    assert shares.sum() <= 1.0 < math.fsum(shares)
    monkeypatch.setattr("streampca.release.estimates._onto_simplex", lambda values: shares.copy())
    ratio = Estimates(gram=np.eye(3), noise_std=0.0, n_components=3, rows=3).explained_variance_ratio
    assert math.fsum(ratio) <= 1.0
    assert ratio.sum() == pytest.approx(1.0)


def test_bars_of_variances_include_the_noise_of_the_debiasing():
    """Close eigenvalues: bars of the noise alone cover too rarely. Five standard deviations (binomial) below .95."""
    source, exact = np.random.default_rng(2), np.diag([40.0, 9.0, 7.5, 6.0, 4.5, *np.linspace(3.0, 0.0, 25)])
    covered, alone = np.zeros(3), np.zeros(3)
    for _ in range(600):
        made = Estimates(gram=exact + goe(source, 30), noise_std=1.0, n_components=3, rows=1000)
        off = np.abs(made.variances - along(exact, made))
        covered, alone = covered + (off < 1.96 * made.std), alone + (off < 1.96)
    assert covered.min() >= least_count(600, 0.95, 3e-7)
    assert alone.min() < least_count(600, 0.95, 3e-7)


def test_bars_of_variances_follow_the_slope_of_the_debiasing():
    """Against differences: each eigenvalue moves all debiased variances."""
    values, step = np.array([5.0, 3.9, 3.0, 1.0, 0.2]), 1e-5

    def variances(at):
        return Estimates(gram=np.diag(at), noise_std=0.8, n_components=3, rows=100).variances

    slopes = np.array([variances(values + step * e) - variances(values - step * e) for e in np.eye(5)]) / (2 * step)
    std = Estimates(gram=np.diag(values), noise_std=0.8, n_components=3, rows=100).std
    np.testing.assert_allclose(std, 0.8 * np.linalg.norm(slopes, axis=0), rtol=1e-6)
