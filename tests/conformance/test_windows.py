"""Every mechanism for windows: it is what its matrices say, and its noise is that of the published table."""

from __future__ import annotations

import numpy as np
import pytest

from streampca.errors import BadParameterError
from streampca.matrix_factorization.blt import AnytimeBLT, GeometricBLT
from streampca.matrix_factorization.tree import BinaryTree
from streampca.matrix_factorization.window import ForgettingBLT, StationaryBLT, WindowDifference
from streampca.privacy.outlet import NoiseSource
from streampca.privacy.randomness import Randomness

MU, SENSITIVITY, N = 0.7, 1.5, 40
KINDS = {"stationary": StationaryBLT, "twin": WindowDifference, "forgetting": ForgettingBLT}


def run(mechanism, size, n=N, seed=0):
    source = NoiseSource(Randomness.from_seed(seed), "noise")
    outlet, noise, rows = source.outlet(source.first), mechanism.start(size, source), []
    for _ in range(n):
        noise = noise.advance(outlet.hide("sum"))
        rows.append(noise.noise)
    return np.array(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_the_workload_is_what_is_promised(kind):
    mechanism = KINDS[kind](8, MU)
    lag = np.arange(N)[:, None] - np.arange(N)
    if kind == "twin":
        expected = (lag >= 0) & (lag < 8)
    elif kind == "forgetting":
        expected = np.where(lag >= 0, 0.875 ** np.abs(lag), 0.0)
    else:
        expected = lag >= 0
    np.testing.assert_allclose(mechanism.workload(N), expected, rtol=1e-14)


@pytest.mark.parametrize("window", [1, 2, 3, 8, 13])
def test_lag_std_bounds_every_difference(window):
    mechanism, n = StationaryBLT(window, MU, SENSITIVITY), 120
    reconstruction = np.vstack([np.zeros((1, n)), mechanism.reconstruction(n)])
    for lag in (1, window, 2 * window):
        measured = np.linalg.norm(reconstruction[lag:] - reconstruction[:-lag], axis=1)
        assert measured.max() <= mechanism.lag_std(lag) * (1.0 + 1e-12)
        assert measured[-1] == pytest.approx(mechanism.lag_std(lag), rel=1e-3)  # and reaches it


def a_fresh_mechanism_each_block(block):
    reconstruction = np.vstack([np.zeros(block.horizon), block.reconstruction(block.horizon)])
    start = np.linalg.norm(reconstruction, axis=1)
    rest = np.linalg.norm(reconstruction[-1] - reconstruction, axis=1)
    return np.hypot(start.max(), rest.max())


def test_window_noise_table():
    for log_w, lagged, faded in [(8, 3.52, 2.43), (10, 4.14, 2.87), (14, 5.39, 3.75), (16, 6.01, 4.19)]:
        w = 2**log_w
        assert WindowDifference(w, 1.0).std(100 * w) == pytest.approx(lagged, rel=0.01)
        assert StationaryBLT(w, 1.0).lag_std(w) == pytest.approx(lagged, rel=0.01)
        assert ForgettingBLT(w, 1.0).limit_std == pytest.approx(faded, rel=0.01)
    for log_w, block in [(8, 4.12), (10, 4.81)]:
        assert a_fresh_mechanism_each_block(GeometricBLT(2**log_w, 1.0)) == pytest.approx(block, rel=0.01)


def test_why_the_histogram_uses_the_stationary_blt():
    """Differences of prefix sums W apart: the stationary BLT has less noise than the three alternatives."""
    for log_w, anytime in [(8, 4.52), (10, 5.13), (14, 6.31), (16, 7.08)]:
        w = 2**log_w
        mechanism = AnytimeBLT(1.0)
        blt, logs = mechanism.buffers, mechanism.buffers.log_theta_hat
        q = blt.weights * -np.expm1(w * logs)
        grown = -np.expm1((2**20 - w) * (logs[:, None] + logs)) * q[:, None] * q / blt.gaps_hat
        difference = mechanism.scale * np.sqrt(blt.row_square(w) + grown.sum())  # after 2**20 rows
        assert difference == pytest.approx(anytime, rel=0.01)
        assert StationaryBLT(w, 1.0).lag_std(w) < 0.9 * difference
    for log_w in (8, 10):
        ours = StationaryBLT(2**log_w, 1.0).lag_std(2**log_w)
        assert ours < 0.9 * a_fresh_mechanism_each_block(GeometricBLT(2**log_w, 1.0))
        assert ours < 0.33 * a_fresh_mechanism_each_block(BinaryTree(2**log_w, 1.0))


def test_noise_of_a_window_of_sixteen_thousand_by_monte_carlo():
    """Run past the window on many coordinates: the sd is 5.39 within 2 % (false alarm below 1e-6)."""
    w, size = 2**14, 400
    blt = WindowDifference(w, 1.0)
    # Sample the window's noise as B z from its closed-form row, in two independent halves of the recursion:
    # the row of the reconstruction at n = 3 w has entries b_k (k < w) and b_k - b_{k-w} after.
    b = np.cumsum(blt.buffers.inverse_coefficients(3 * w))
    row = blt.scale * (b - np.concatenate([np.zeros(w), b[:-w]]))
    assert np.linalg.norm(row) == pytest.approx(5.39, rel=0.02)
    stream = Randomness.from_seed(5).stream("noise")
    samples = np.array([row @ stream.normal(i, 3 * w) for i in range(size)])
    assert np.sqrt(np.mean(samples**2)) == pytest.approx(5.39, rel=5.0 / np.sqrt(2 * size))


def test_half_noise_and_missing_scale_are_seen_by_the_audit():
    """Matched filter between neighbours, whitened by what transcripts show: mu for ours, more for the bugs."""
    t, samples = 24, 8000

    def measured_mu(mechanism, changed, factor=1.0):
        shift = SENSITIVITY * mechanism.workload(t)[:, changed]
        learnt = factor * run(mechanism, samples, t, seed=1)
        matched = np.linalg.solve(learnt @ learnt.T / samples, shift)
        without = matched @ (factor * run(mechanism, samples, t, seed=2))
        having = matched @ (factor * run(mechanism, samples, t, seed=3) + shift[:, None])
        return (having.mean() - without.mean()) / np.sqrt((having.var() + without.var()) / 2.0)

    for kind in KINDS.values():
        mechanism = kind(6, MU, SENSITIVITY)
        measured = [measured_mu(mechanism, changed) for changed in (0, 5, 11)]
        assert max(measured) < 1.08 * MU  # standard error 1.6 %: 5 sigma
        assert max(measured) > 0.9 * MU
        assert measured_mu(mechanism, 0, factor=0.5) > 1.8 * MU
    bug = StationaryBLT(6, MU, SENSITIVITY)
    object.__setattr__(bug, "scale", SENSITIVITY / MU)  # planted: the norm of C's columns is forgotten
    assert measured_mu(bug, 0) > 1.15 * MU


def test_bad_parameters_are_named():
    with pytest.raises(BadParameterError, match="window=0"):
        WindowDifference(0, 1.0)
    with pytest.raises(BadParameterError, match="memory=0"):
        ForgettingBLT(0, 1.0)
