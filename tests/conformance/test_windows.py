"""Every mechanism for windows: it is what its matrices say, and its noise is that of the published table."""

from __future__ import annotations

import numpy as np
import pytest

from streampca.errors import BadParameter
from streampca.prefix_sums.block_restart import BlockRestart
from streampca.prefix_sums.blt import AnytimeBLT
from streampca.prefix_sums.forgetting import ForgettingBLT
from streampca.prefix_sums.window import LaggedTwin, StationaryBLT
from streampca.privacy.randomness import Randomness

MU, SENSITIVITY, N = 0.7, 1.5, 40
KINDS = {
    "stationary": StationaryBLT,
    "twin": LaggedTwin,
    "forgetting": ForgettingBLT,
    "block blt": BlockRestart,
    "block tree": lambda *given: BlockRestart(*given, kind="tree"),
}
CASES = {f"{name} {w}": kind(w, MU, SENSITIVITY) for name, kind in KINDS.items() for w in (1, 2, 3, 8, 13)}

every_case = pytest.mark.parametrize("name", CASES)


class UnitDraws:
    """Each index draws its own unit vector: the outputs are then rows of B, its columns in some order."""

    def __init__(self):
        self.places = {}

    def normal(self, index, count, out=None):
        draw = np.empty(count) if out is None else out
        draw[...] = 0.0
        draw[self.places.setdefault(index, len(self.places))] = 1.0
        return draw


def run(mechanism, size, n=N, seed=0):
    running = mechanism.start(size, Randomness.from_seed(seed).stream("noise"))
    return np.array([running.advance().copy() for _ in range(n)])


@every_case
def test_decoder_times_encoder_is_the_workload(name):
    mechanism = CASES[name]
    product = mechanism.decoder(N) @ mechanism.encoder(N)
    np.testing.assert_allclose(product, mechanism.workload(N), atol=1e-12)


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


@every_case
def test_columns_of_the_encoder_spend_no_more_than_mu(name):
    norms = np.linalg.norm(CASES[name].encoder(400), axis=0) * SENSITIVITY
    assert norms.max() <= MU * (1.0 + 1e-15)
    assert norms.max() >= MU * 0.999  # columns of the first rows have had time to reach their limit


@every_case
def test_running_form_is_the_matrix_product(name):
    mechanism = CASES[name]
    running = mechanism.start(4 * N, UnitDraws())
    rows = np.array([running.advance().copy() for _ in range(N)])
    decoder = mechanism.decoder(N)
    np.testing.assert_allclose(rows @ rows.T, decoder @ decoder.T, atol=1e-11)


@every_case
def test_std_is_the_row_norm_of_the_decoder(name):
    mechanism = CASES[name]
    np.testing.assert_allclose(mechanism.stds(N), np.linalg.norm(mechanism.decoder(N), axis=1), rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(("stationary", "block"))])
def test_lag_std_bounds_every_difference(name):
    mechanism = CASES[name]
    n = 120
    decoder = np.vstack([np.zeros((1, mechanism.decoder(n).shape[1])), mechanism.decoder(n)])
    for lag in (1, mechanism.window, 2 * mechanism.window):
        measured = np.linalg.norm(decoder[lag:] - decoder[:-lag], axis=1)
        bound = mechanism.lag_std(lag)
        assert measured.max() <= bound * (1.0 + 1e-12)
        if name.startswith("stationary"):
            assert measured[-1] == pytest.approx(bound, rel=1e-3)  # and reaches it


@every_case
@pytest.mark.parametrize("cut", [0, 1, 8, 14, 27])
def test_restored_noise_continues_bit_for_bit(name, cut):
    mechanism = CASES[name]
    whole = run(mechanism, 5)
    first = mechanism.start(5, Randomness.from_seed(0).stream("noise"))
    for _ in range(cut):
        first.advance()
    state = first.state()
    first.advance()
    second = mechanism.start(5, Randomness.from_seed(0).stream("noise"))
    second.restore(state)
    rest = np.array([second.advance().copy() for _ in range(N - cut)])
    np.testing.assert_array_equal(rest, whole[cut:])


@every_case
def test_measured_sd(name):
    """Within 5 standard errors (false alarm below 6e-7), and two thirds or one and a half of the noise is not."""
    mechanism = CASES[name]
    noise = run(mechanism, 2000)
    for n in (1, 9, N):
        measured = np.sqrt(np.mean(noise[n - 1] ** 2)) / mechanism.std(n)
        tolerance = 5.0 / np.sqrt(2.0 * 2000)
        assert abs(measured - 1.0) < tolerance
        assert abs(measured * 2.0 / 3.0 - 1.0) > tolerance
        assert abs(measured * 1.5 - 1.0) > tolerance


def test_window_noise_table():
    for log_w, lagged, block, faded in [
        (8, 3.52, 4.12, 2.43), (10, 4.14, 4.81, 2.87), (14, 5.39, 6.21, 3.75), (16, 6.01, 6.90, 4.19)
    ]:  # fmt: skip
        w = 2**log_w
        assert LaggedTwin(w, 1.0).std(100 * w) == pytest.approx(lagged, rel=0.01)
        assert StationaryBLT(w, 1.0).lag_std(w) == pytest.approx(lagged, rel=0.01)
        assert ForgettingBLT(w, 1.0).limit_std() == pytest.approx(faded, rel=0.01)
        if log_w < 16:
            assert BlockRestart(w, 1.0).lag_std(w) == pytest.approx(block, rel=0.01)


def test_why_the_histogram_uses_the_stationary_blt():
    """Differences of prefix sums W apart: the stationary BLT has less noise than the three alternatives."""
    for log_w, anytime in [(8, 4.52), (10, 5.13), (14, 6.31), (16, 7.08)]:
        w = 2**log_w
        mechanism = AnytimeBLT(1.0)
        difference = mechanism.scale * np.sqrt(mechanism.buffers.lagged_square(w, 2**20))
        assert difference == pytest.approx(anytime, rel=0.01)
        ours = StationaryBLT(w, 1.0).lag_std(w)
        assert ours < 0.9 * difference
        assert ours < BlockRestart(w, 1.0, kind="tree").lag_std(w) / 3.0


def test_noise_of_a_window_of_sixteen_thousand_by_monte_carlo():
    """Run past the window on many coordinates: the sd is 5.39 within 2 % (false alarm below 1e-6)."""
    w, size = 2**14, 400
    blt = LaggedTwin(w, 1.0)
    # Sample the window's noise as B z from its closed-form row, in two independent halves of the recursion:
    # the row of the decoder at n = 3 w has entries b_k (k < w) and b_k - b_{k-w} after.
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

    for kind in ("stationary", "twin", "forgetting", "block blt"):
        mechanism = KINDS[kind](6, MU, SENSITIVITY)
        measured = [measured_mu(mechanism, changed) for changed in (0, 5, 11)]
        assert max(measured) < 1.08 * MU  # standard error 1.6 %: 5 sigma
        assert max(measured) > 0.9 * MU
        assert measured_mu(mechanism, 0, factor=0.5) > 1.8 * MU
    bug = StationaryBLT(6, MU, SENSITIVITY)
    object.__setattr__(bug, "scale", SENSITIVITY / MU)  # planted: the norm of C's columns is forgotten
    assert measured_mu(bug, 0) > 1.15 * MU


def test_bad_parameters_are_named():
    with pytest.raises(BadParameter, match="window=0"):
        LaggedTwin(0, 1.0)
    with pytest.raises(BadParameter, match="memory=0"):
        ForgettingBLT(0, 1.0)
    with pytest.raises(BadParameter, match="kind='haar'"):
        BlockRestart(4, 1.0, kind="haar")
