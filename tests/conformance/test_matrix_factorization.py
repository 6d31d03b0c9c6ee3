"""Every matrix factorization: it is what its matrices say, in law, in privacy and in its running form."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from dense_forms import strategy

from streampca import _native
from streampca.errors import BadParameterError, HorizonReachedError, UsageError
from streampca.linalg.lattice import GramSum, onto_ball
from streampca.matrix_factorization.blt import AnytimeBLT, GeometricBLT
from streampca.matrix_factorization.tree import BinaryTree
from streampca.matrix_factorization.window import ForgettingBLT, StationaryBLT, WindowDifference
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.privacy.randomness import Randomness, encoded
from streampca.rows.people import Columns

MU, SENSITIVITY = 0.7, 1.5
LONG = 37
KINDS = {
    "blt": lambda horizon: GeometricBLT(horizon, MU, SENSITIVITY),
    "tree": lambda horizon: BinaryTree(horizon, MU, SENSITIVITY),
}
WINDOWS = {"stationary": StationaryBLT, "twin": WindowDifference, "forgetting": ForgettingBLT}
CASES = {f"{kind} {horizon}": make(horizon) for kind, make in KINDS.items() for horizon in (1, 2, 3, 4, 5, 16, LONG)}
CASES["anytime"] = AnytimeBLT(MU, SENSITIVITY)
CASES["anytime, restarted"] = AnytimeBLT(MU, SENSITIVITY, restart_after=10)
CASES |= {f"{kind} {w}": make(w, MU, SENSITIVITY) for kind, make in WINDOWS.items() for w in (1, 2, 3, 8, 13)}
SOME = ["blt 37", "tree 37", "anytime", "anytime, restarted", "stationary 8", "twin 8", "twin 13", "forgetting 8"]

every_case = pytest.mark.parametrize("name", CASES)
some_cases = pytest.mark.parametrize("name", SOME)


def length(mechanism):
    return mechanism.horizon or LONG


class Vector:
    def __init__(self, n, normals):
        self.n, self.name, self.normals = n, (7 * n).to_bytes(16, "big"), normals

    def normal(self, count):
        return self.normals[:count].copy()


class Vectors:
    def __init__(self, normals):
        self.made = {}
        for i, row in enumerate(normals):
            vector = Vector(5 + 3 * i, row)
            self.made[vector.n, vector.name] = vector
        self.inputs = list(self.made.values())

    def draws(self, n, name):
        return self.made[n, name]


def sums(mechanism, size, n=None, seed=0, label="noise"):
    source = NoiseSource(Randomness.from_seed(seed), label)
    outlet = Outlet(source, source.first)
    values = [mechanism.start(size, source)]
    for _ in range(n or length(mechanism)):
        values.append(values[-1].advance(outlet.hide("sum")))
    return values, source


def run(mechanism, size, n=None, seed=0, label="noise"):
    return np.array([value.noise for value in sums(mechanism, size, n, seed, label)[0][1:]])


def contents(value):
    parts = {"noise": value.noise.copy()}
    for name, part in value.snapshot().items():
        inner = part if isinstance(part, dict) else {"": part}
        parts |= {f"{name} {key}": np.array(one) for key, one in inner.items()}
    return parts


def assert_same(one, two):
    assert one.keys() == two.keys()
    for name, part in one.items():
        np.testing.assert_array_equal(part, two[name])


@every_case
def test_columns_of_the_encoder_spend_mu_and_no_more(name):
    endless = name.split()[0] in WINDOWS
    mechanism = CASES[name]
    norms = np.linalg.norm(strategy(mechanism, 400 if endless else length(mechanism)), axis=0) * SENSITIVITY
    assert norms.max() <= MU * (1.0 + 1e-12)
    if name != "anytime":  # calibrated for 2**32 inputs
        # Columns of the first rows of an endless encoder have had time to reach their limit.
        assert norms.max() >= MU * (0.999 if endless else 1.0 - 1e-6)


def products_of_columns(mechanism, n):
    """Products of the columns as stated and as they are, for column j in row j: the lower triangles."""
    inputs = np.arange(1, n + 1)
    stated = np.array([np.pad(mechanism.products(inputs[:j], j), (0, n - j)) for j in inputs])
    encoder = strategy(mechanism, n) * SENSITIVITY / MU
    return stated, np.tril(encoder.T @ encoder)


def check_products(mechanism, n, *, exact):
    stated, true = products_of_columns(mechanism, n)
    assert stated.min() >= 0.0
    assert stated.max() <= 1.0
    assert (stated - true).min() >= -1e-13
    # Norms of columns are inflated by 1e-6. Of an endless stream, early columns are nearly whole.
    columns = slice(None) if exact else slice(max(1, n // 100))
    assert np.abs(stated - true)[:, columns].max() <= (2e-6 if exact else 2e-3)


@every_case
def test_products_of_columns_are_not_below_the_true_ones(name):
    kind, mechanism = name.split()[0], CASES[name]
    if kind.startswith("anytime"):  # their columns are far from whole: calibrated for 2**32 inputs, or restarted
        stated, true = products_of_columns(mechanism, 100)
        assert (stated - true).min() >= -1e-13
        assert stated.min() >= 0.0
        runs = np.arange(100) // mechanism.restart_after
        assert not stated[runs[:, None] != runs].any()
    else:
        check_products(mechanism, length(mechanism) if mechanism.horizon else 400, exact=kind in KINDS)


@pytest.mark.parametrize("step", [37, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", KINDS)
def test_products_of_columns_at_every_horizon(kind, step):
    for horizon in range(1, 301, step):
        check_products(KINDS[kind](horizon), horizon, exact=True)


@pytest.mark.parametrize("step", [31, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", WINDOWS)
def test_products_of_columns_at_every_window(kind, step):
    for window in range(2, 65, step):
        check_products(WINDOWS[kind](window, MU, SENSITIVITY), 400, exact=False)


def test_products_that_are_too_small_are_seen(monkeypatch):
    """Those of the next lag."""
    honest = GeometricBLT.products
    monkeypatch.setattr(GeometricBLT, "products", lambda self, inputs, n: honest(self, np.maximum(inputs - 1, 1), n))
    with pytest.raises(AssertionError):
        check_products(GeometricBLT(16, MU, SENSITIVITY), 16, exact=True)


@every_case
def test_std_is_the_row_norm_of_the_decoder(name):
    mechanism = CASES[name]
    n = length(mechanism)
    rows = np.linalg.norm(mechanism.reconstruction(n), axis=1)
    np.testing.assert_allclose(mechanism.stds(np.arange(1, n + 1)), rows, rtol=1e-12)
    np.testing.assert_allclose([mechanism.std(i) for i in range(1, n + 1)], rows, rtol=1e-12)


@every_case
def test_the_running_form_is_the_decoder_times_one_vector_an_input(name):
    mechanism = CASES[name]
    n, size = length(mechanism), 3
    normals = np.random.default_rng(0).standard_normal((n, size))
    vectors = Vectors(normals)
    value, rows = mechanism.start(size, vectors), []
    np.testing.assert_array_equal(value.noise, np.zeros(size))
    for i, vector in enumerate(vectors.inputs, start=1):
        value = value.advance(vector)
        assert value.n == i
        rows.append(value.noise)
    np.testing.assert_allclose(rows, mechanism.reconstruction(n) @ normals, atol=1e-12)


@every_case
def test_the_matrices_are_causal(name):
    """The form for which twins are proved to cost sqrt(2): neither matrix has an entry above the diagonal."""
    mechanism = CASES[name]
    n = length(mechanism)
    for part in (mechanism.reconstruction(n), strategy(mechanism, n)):
        np.testing.assert_array_equal(np.triu(part, 1), 0.0)


@every_case
def test_restored_noise_continues_bit_for_bit(name):
    mechanism = CASES[name]
    n = length(mechanism)
    values, source = sums(mechanism, 5)
    whole = np.array([value.noise for value in values])
    for cut in {0, 1, 8, 11, 16, 27, n} & set(range(n + 1)):
        snapshot = pickle.loads(pickle.dumps(values[cut].snapshot()))
        outlet = Outlet(source, source.first)
        vectors = [outlet.hide("sum") for _ in range(n)]
        value = mechanism.start(5, source).restored(snapshot, source)
        assert value.n == cut
        assert_same(contents(value), contents(values[cut]))
        for i in range(cut, n):
            value = value.advance(vectors[i])
            np.testing.assert_array_equal(value.noise, whole[i + 1])


@some_cases
def test_a_value_goes_on_any_number_of_times_and_never_changes(name):
    mechanism = CASES[name]
    values, source = sums(mechanism, 5, 30)
    before = [contents(value) for value in values]
    again = [source.draws(n, n.to_bytes(16, "big")) for n in (50, 51)]
    for value, then in zip(values, before, strict=True):
        one, two = value.advance(again[0]), value.advance(again[1])
        third = value.advance(again[0])
        assert_same(contents(one), contents(third))
        assert not np.any(one.noise == two.noise)
        assert_same(contents(one.advance(again[1])), contents(third.advance(again[1])))
        assert_same(contents(value), then)
    for value, then in zip(values, before, strict=True):
        assert_same(contents(value), then)


@some_cases
def test_no_representation_shows_the_noise(name):
    source = NoiseSource(Randomness.from_seed(0), "noise")
    value = CASES[name].start(3, source).advance(source.draws(1, bytes(16)))
    assert repr(value).startswith("<")
    assert "array" not in repr(value)


@pytest.mark.parametrize("std", [0.25, 0.3, 2.0**-30])  # a power of two, another number, noise below the lattice
@some_cases
def test_compiled_and_plain_releases_have_equal_bits(name, std):
    if not _native.available():
        pytest.skip("the kernels are not compiled")
    mechanism, before, made, noises = CASES[name], _native.use(True), [], []
    gram = GramSum.of(onto_ball(np.random.default_rng(0).standard_normal((50, 4))))
    try:
        for compiled in (True, False):
            _native.use(compiled)
            source = NoiseSource(Randomness.from_seed(0), "noise")
            outlet = Outlet(source, source.first)
            noise = mechanism.start(10, source)
            for _ in range(15):
                noise = noise.advance(outlet.hide("sum"))
                released = gram.noisy(noise.noise, std)
                made.append(released)
            noises.append(run(mechanism, 600))
    finally:
        _native.use(before)
    np.testing.assert_array_equal(made[:15], made[15:])
    np.testing.assert_array_equal(noises[0].view(np.int64), noises[1].view(np.int64))


@pytest.mark.parametrize(
    ("name", "other"), [("blt 16", GeometricBLT(2**16, MU)), ("twin 8", WindowDifference(2**12, MU))]
)
def test_a_snapshot_of_other_parameters_is_refused(name, other):
    snapshot = CASES[name].start(5, Vectors([])).snapshot()
    with pytest.raises(UsageError, match="Restore with the parameters"):
        other.start(5, Vectors([])).restored(snapshot, Vectors([]))


def test_a_window_without_a_source_is_refused():
    with pytest.raises(BadParameterError, match="source"):
        WindowDifference(4, MU).start(5)


@some_cases
def test_the_constants_can_be_a_label_and_tell_calibrations_apart(name):
    mechanism = CASES[name]
    assert encoded(*mechanism.constants()) == encoded(*replace(mechanism).constants())
    for changed in ({"mu": MU * (1.0 + 1e-14)}, {"sensitivity": SENSITIVITY * (1.0 + 1e-14)}):
        assert encoded(*mechanism.constants()) != encoded(*replace(mechanism, **changed).constants())


@pytest.mark.parametrize("name", ["blt 16", "tree 16"])
def test_horizon_is_kept(name):
    mechanism = CASES[name]
    last = sums(mechanism, 2)[0][-1]
    with pytest.raises(HorizonReachedError, match="16"):
        last.advance(None)  # before the vector is looked at
    assert last.n == 16
    for bad in (0, 17):
        with pytest.raises(BadParameterError, match=f"n={bad}"):
            mechanism.std(bad)


@pytest.mark.parametrize("kind", [GeometricBLT, BinaryTree])
@pytest.mark.parametrize("bad", [0, 2.5, True])
def test_a_bad_horizon_is_named(kind, bad):
    with pytest.raises(BadParameterError, match=f"horizon={bad}"):
        kind(bad, 1.0)


def test_what_is_out_of_range_without_a_horizon_is_named():
    for mechanism in (AnytimeBLT(1.0), *(kind(8, 1.0) for kind in WINDOWS.values())):
        with pytest.raises(BadParameterError, match="n=0"):
            mechanism.std(0)
    with pytest.raises(BadParameterError, match="restart_after=0"):
        AnytimeBLT(1.0, restart_after=0)


@pytest.mark.parametrize("kind", WINDOWS)
def test_the_workload_is_what_is_promised(kind):
    mechanism = WINDOWS[kind](8, MU)
    lag = np.arange(40)[:, None] - np.arange(40)
    if kind == "twin":
        expected = (lag >= 0) & (lag < 8)
    elif kind == "forgetting":
        expected = np.where(lag >= 0, 0.875 ** np.abs(lag), 0.0)
    else:
        expected = lag >= 0
    np.testing.assert_allclose(mechanism.workload(40), expected, rtol=1e-14)


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


@every_case
def test_the_noise_of_a_difference_of_two_sums(name):
    mechanism, n = CASES[name], length(CASES[name])
    decoder = np.vstack([np.zeros(mechanism.reconstruction(n).shape[1]), mechanism.reconstruction(n)])
    for a, b in {(0, 1), (0, n), (n // 3, n // 2 + 1), (n - 1, n), (min(9, n - 1), n)}:
        exact = decoder[b] - decoder[a]
        rounding = 1e-13 * mechanism.std(n)
        coefficients = mechanism.difference(a, b)
        np.testing.assert_allclose(coefficients, exact[: coefficients.size], rtol=0.0, atol=rounding)
        assert not exact[coefficients.size :].any()
        assert mechanism.difference_std(a, b) == pytest.approx(np.linalg.norm(exact), rel=1e-12)
    with pytest.raises(BadParameterError):
        mechanism.difference(0, 0)


@pytest.mark.parametrize("mechanism", [GeometricBLT(256, MU), AnytimeBLT(MU), BinaryTree(256, MU)], ids=repr)
def test_differences_have_the_digits_of_the_dense_matrix(mechanism):
    decoder = mechanism.reconstruction(256)
    for a, b in ((1, 2), (17, 81), (128, 256), (250, 256), (255, 256)):
        dense = math.sqrt(math.fsum(np.square(decoder[b - 1] - decoder[a - 1]).tolist()))
        # Two roundings of the square root's argument, and its own.
        assert mechanism.difference_std(a, b) == pytest.approx(dense, rel=4.5e-16)


@every_case
def test_products_have_the_same_bits_by_themselves_and_in_a_table(name):
    mechanism = CASES[name]
    n = min(mechanism.horizon or 100, 100)
    stated, columns = mechanism.products(np.arange(1, n + 1), n), Columns(mechanism.products)
    for _ in range(2):  # from a table after a quarter of the first ones
        alone = [float(columns.products(np.array([j]), n)[0]) for j in range(1, n + 1)]
        assert alone == stated.tolist()
    np.testing.assert_array_equal(mechanism.products(np.array([1, n]), n), stated[[0, -1]])
