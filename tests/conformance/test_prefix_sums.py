"""Every prefix-sum mechanism: it is what its matrices say, in law, in privacy and in its running form."""

from __future__ import annotations

import numpy as np
import pytest

from streampca.errors import BadParameter, HorizonReached
from streampca.prefix_sums.base import RunningSum
from streampca.prefix_sums.blt import AnytimeBLT, GeometricBLT
from streampca.prefix_sums.haar import HaarTree
from streampca.prefix_sums.tree import BinaryTree
from streampca.privacy.randomness import Randomness

MU, SENSITIVITY = 0.7, 1.5
LONG = 37
HORIZONS = (1, 2, 3, 4, 5, 16, LONG)
KINDS = {
    "blt": lambda horizon: GeometricBLT(horizon, MU, SENSITIVITY),
    "tree": lambda horizon: BinaryTree(horizon, MU, SENSITIVITY),
    "tree, topped up": lambda horizon: BinaryTree(horizon, MU, SENSITIVITY, topped_up=True),
    "haar": lambda horizon: HaarTree(horizon, MU, SENSITIVITY),
}
CASES = {f"{kind} {horizon}": make(horizon) for kind, make in KINDS.items() for horizon in HORIZONS}
CASES["anytime"] = AnytimeBLT(MU, SENSITIVITY)
CASES["anytime, restarted"] = AnytimeBLT(MU, SENSITIVITY, restart_after=10)

every_case = pytest.mark.parametrize("name", CASES)


def length(mechanism):
    return mechanism.horizon or LONG


class UnitDraws:
    """Stands in for a noise stream: each index draws its own unit vector, so outputs are rows of B."""

    def __init__(self):
        self.places = {}

    def normal(self, index, count, out=None):
        draw = np.empty(count) if out is None else out
        draw[...] = 0.0
        draw[self.places.setdefault(index, len(self.places))] = 1.0
        return draw


def run(mechanism, size, seed=0, label="noise"):
    running = mechanism.start(size, Randomness.from_seed(seed).stream(label))
    return np.array([running.advance().copy() for _ in range(length(mechanism))])


@every_case
def test_decoder_times_encoder_is_the_running_sum(name):
    mechanism = CASES[name]
    n = length(mechanism)
    product = mechanism.decoder(n) @ mechanism.encoder(n)
    np.testing.assert_allclose(product, np.tril(np.ones((n, n))), atol=1e-12)


@every_case
def test_columns_of_the_encoder_spend_mu_and_no_more(name):
    mechanism = CASES[name]
    norms = np.linalg.norm(mechanism.encoder(length(mechanism)), axis=0) * SENSITIVITY
    assert norms.max() <= MU * (1.0 + 1e-15)
    if name != "anytime":  # calibrated for 2**32 inputs
        assert norms.max() >= MU * (1.0 - 1e-6)


@every_case
def test_std_is_the_row_norm_of_the_decoder(name):
    mechanism = CASES[name]
    n = length(mechanism)
    rows = np.linalg.norm(mechanism.decoder(n), axis=1)
    np.testing.assert_allclose(mechanism.stds(n), rows, rtol=1e-12)
    np.testing.assert_allclose([mechanism.std(i) for i in range(1, n + 1)], rows, rtol=1e-12)


@every_case
def test_running_form_is_the_matrix_product(name):
    # Fed unit vectors, the outputs are the rows of B in some order of its columns: B B^T must agree.
    mechanism = CASES[name]
    n = length(mechanism)
    running = mechanism.start(4 * n + 8, UnitDraws())
    rows = np.array([running.advance().copy() for _ in range(n)])
    decoder = mechanism.decoder(n)
    np.testing.assert_allclose(rows @ rows.T, decoder @ decoder.T, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(("blt", "anytime"))])
def test_buffered_noise_is_the_decoder_times_the_draws(name):
    mechanism = CASES[name]
    n = length(mechanism)
    stream = Randomness.from_seed(0).stream("noise")
    draws = np.array([stream.normal(t, 3) for t in range(1, n + 1)])
    np.testing.assert_allclose(run(mechanism, 3), mechanism.decoder(n) @ draws, atol=1e-12)


def plausible(samples, sd):
    """Sample sd within 5 standard errors: false alarm below 6e-7."""
    return abs(np.sqrt(np.mean(samples**2)) / sd - 1.0) < 5.0 / np.sqrt(2.0 * samples.size)


@pytest.mark.parametrize("name", ["blt 16", "tree 16", "tree, topped up 16", "haar 16", "anytime, restarted"])
def test_measured_sd(name):
    mechanism = CASES[name]
    noise = run(mechanism, 4000)
    for n in (1, 2, 7, 15, 16):
        assert plausible(noise[n - 1], mechanism.std(n))
        assert not plausible(noise[n - 1] * 2.0 / 3.0, mechanism.std(n))
        assert not plausible(noise[n - 1] * 1.5, mechanism.std(n))


@pytest.mark.parametrize("cut", [0, 1, 11, 16])
@every_case
def test_restored_noise_continues_bit_for_bit(name, cut):
    mechanism = CASES[name]
    n = length(mechanism)
    cut = min(cut, n)
    whole = run(mechanism, 5)
    first = mechanism.start(5, Randomness.from_seed(0).stream("noise"))
    for _ in range(cut):
        first.advance()
    state = first.state()
    if cut < n:
        first.advance()  # the state must be a copy
    second = mechanism.start(5, Randomness.from_seed(0).stream("noise"))
    second.restore(state)
    assert second.n == cut
    rest = np.array([second.advance().copy() for _ in range(n - cut)]).reshape(n - cut, 5)
    np.testing.assert_array_equal(rest, whole[cut:])


def test_state_of_other_parameters_is_refused():
    state = GeometricBLT(16, MU).start(5, Randomness.from_seed(0).stream("noise")).state()
    with pytest.raises(BadParameter, match="restore with the parameters"):
        GeometricBLT(2**16, MU).start(5, Randomness.from_seed(0).stream("noise")).restore(state)


@pytest.mark.parametrize("name", ["blt 16", "tree, topped up 16", "haar 16", "anytime"])
def test_bits_depend_on_key_label_and_step_alone(name):
    noise = run(CASES[name], 4)
    np.testing.assert_array_equal(noise, run(CASES[name], 4))
    assert not np.any(noise == run(CASES[name], 4, seed=1))
    assert not np.any(noise == run(CASES[name], 4, label="other"))


@pytest.mark.parametrize("name", ["blt 16", "tree 16", "haar 16"])
def test_horizon_is_kept(name):
    mechanism = CASES[name]
    running = mechanism.start(2, Randomness.from_seed(0).stream("noise"))
    last = [running.advance() for _ in range(16)][-1].copy()
    with pytest.raises(HorizonReached, match="16"):
        running.advance()
    assert running.n == 16
    for bad in (0, 17):
        with pytest.raises(BadParameter, match=f"n={bad}"):
            mechanism.std(bad)
    assert np.isfinite(last).all()


@pytest.mark.parametrize("kind", KINDS)
def test_one_input_costs_one_gaussian(kind):
    assert KINDS[kind](1).std(1) == pytest.approx(SENSITIVITY / MU, rel=1e-6)


@pytest.mark.parametrize("kind", [GeometricBLT, BinaryTree, HaarTree])
@pytest.mark.parametrize(
    ("bad", "name"),
    [
        ({"horizon": 0}, "horizon=0"),
        ({"horizon": 2.5}, "horizon=2.5"),
        ({"horizon": True}, "horizon=True"),
        ({"mu": 0.0}, "mu=0.0"),
        ({"mu": float("nan")}, "mu=nan"),
        ({"sensitivity": -1.0}, "sensitivity=-1.0"),
    ],
)
def test_bad_calibration_is_named(kind, bad, name):
    with pytest.raises(BadParameter, match=name):
        kind(**({"horizon": 8, "mu": 1.0} | bad))


def test_running_sum_adds_the_noise_to_the_sum():
    mechanism = CASES["blt 16"]
    summed = RunningSum(mechanism, 4, Randomness.from_seed(0).stream("noise"))
    noise = run(mechanism, 4)
    for n in range(1, 17):
        np.testing.assert_allclose(summed.add(np.full(4, 0.5)), 0.5 * n + noise[n - 1], rtol=1e-13)
