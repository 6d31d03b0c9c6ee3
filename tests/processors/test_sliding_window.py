"""The sliding window processor, by every method: what it covers, its noise, its bits, its errors."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest

from streampca.errors import BadParameterError, HorizonReachedError
from streampca.linalg import fast
from streampca.linalg.lattice import GramSum, coarsen, onto_ball
from streampca.privacy.outlet import Outlet
from streampca.privacy.randomness import Draws, Randomness
from streampca.processors.sliding_window import SlidingWindowPCA

D, W = 4, 40
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
METHODS = {
    "histogram": {"method": "histogram"},
    "histogram, leaves": {"method": "histogram", "release_every": 4, "checkpoint_every": 8},
    "histogram, sketched": {"method": "histogram", "sketch_rank": 2, "overhang": 1.0, "epsilon": 2000.0},
    "ring": {"method": "ring"},
    "ring, rows in leaves": {"method": "ring", "release_every": 2},
    "ring of sums": {"method": "ring", "release_every": 20},
    "forgetting": {"method": "forgetting"},
    "forgetting, leaves": {"method": "forgetting", "release_every": 4},
    "once": {"method": "once", "horizon": 130},
}

every_method = pytest.mark.parametrize("name", METHODS)


def make(name, **given):
    return SlidingWindowPCA(**{"window": W, "n_components": 2, **BUDGET, **METHODS[name], **given})


def rows(n=130, d=D, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) * np.linspace(1.0, 0.3, d)
    return onto_ball(x / 2.0)


@pytest.fixture
def silent(monkeypatch):
    """Noise is zero: what is left is the data side."""
    monkeypatch.setattr(Draws, "normal", lambda self, count, out=None: np.zeros(count))


def start(algorithm, seed=0, d=D):
    return algorithm.start(d, Randomness.from_seed(seed))


def absorb(processor, x, largest=None):
    """Feed rows, up to the next release or `largest` at a time; the last processor and all releases."""
    releases, at = [], 0
    while at < len(x):
        take = min(processor.rows_until_release, len(x) - at, largest or len(x))
        processor, release = processor.absorb(x[at : at + take])
        at += take
        if release is not None:
            releases.append(release)
    return processor, releases


def silent_releases(algorithm, x):
    return absorb(start(algorithm, d=x.shape[1]), x)[1]


def assert_same(releases, others):
    assert [release.t for release in releases] == [release.t for release in others]
    for a, b in zip(releases, others, strict=True):
        assert a.packed.tobytes() == b.packed.tobytes()
        assert a.details == b.details
        assert a.noise_std == b.noise_std


def gram(x):
    return x.T @ x


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("name", ["ring", "ring, rows in leaves", "ring of sums"])
def test_ring_holds_exactly_the_window(name):
    x = rows()
    for release in silent_releases(make(name), x):
        first, last = release.details["window"]
        assert (first, last) == (max(1, release.t - W + 1), release.t)
        np.testing.assert_array_equal(release.gram, coarsen(gram(x[first - 1 : last]), release.noise_std))


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("name", ["histogram", "histogram, leaves"])
def test_histogram_covers_what_it_says_it_covers(name):
    x = rows()
    algorithm = make(name)
    for release in silent_releases(algorithm, x):
        first, last = release.details["window"]
        assert first <= max(1, last - W + 1)
        assert last - first + 1 <= W + algorithm.followed.pin_every + algorithm.followed.mark_every
        # Two prefixes, each rounded to a grid of at most 2**-19 of the sd, and to its middle.
        atol = 2.0**-19 * release.noise_std
        np.testing.assert_allclose(release.gram, gram(x[first - 1 : last]), rtol=0, atol=atol)


@pytest.mark.usefixtures("silent")
def test_forgetting_is_the_fading_sum():
    x = rows()
    for release in silent_releases(make("forgetting"), x):
        weights = (1.0 - 1.0 / W) ** np.arange(release.t - 1.0, -1.0, -1.0)
        np.testing.assert_allclose(
            release.gram,
            gram(x[: release.t] * np.sqrt(weights)[:, None]),
            rtol=0,
            atol=2.0**-20 * release.noise_std + 1e-9,
        )


@pytest.mark.usefixtures("silent")
def test_forgetting_in_leaves_fades_a_leaf_at_a_time():
    x = rows(128)
    for release in silent_releases(make("forgetting, leaves"), x):
        leaf = (np.arange(release.t)) // 4
        weights = (1.0 - 4.0 / W) ** (leaf[-1] - leaf)
        np.testing.assert_allclose(
            release.gram,
            gram(x[: release.t] * np.sqrt(weights)[:, None]),
            rtol=0,
            atol=2.0**-20 * release.noise_std + 1e-9,
        )


@pytest.mark.usefixtures("silent")
def test_once_sums_the_last_rows():
    x = rows()
    (release,) = silent_releases(make("once"), x)
    assert release.details["window"] == [91, 130]
    np.testing.assert_array_equal(release.gram, coarsen(gram(x[90:]), release.noise_std))
    spent, _ = absorb(start(make("once")), x)
    assert spent.rows_until_release == spent.rows_left == 0
    with pytest.raises(HorizonReachedError):
        spent.absorb(x[:1])


def test_once_has_the_noise_of_one_release():
    algorithm = make("once")
    assert algorithm.noise_std(130) == pytest.approx(1.0 / algorithm.guarantee.mu)
    assert "one release" in algorithm.guarantee.scope


def assert_plain(value):
    """What a store takes."""
    if isinstance(value, dict):
        assert all(isinstance(name, str) for name in value)
    if isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            assert_plain(inner)
    elif isinstance(value, np.ndarray):
        assert value.dtype.str[1:] in ("f8", "i8", "u8", "i4", "b1", "u1")
    else:
        assert value is None or type(value) in (bool, int, float, str)


@every_method
@pytest.mark.parametrize("largest", [None, 3, 7])
def test_blocks_do_not_change_a_bit(name, largest):
    x = rows()
    one_by_one, single = absorb(start(make(name), 1), x, 1)
    together, releases = absorb(start(make(name), 1), x, largest)
    assert_same(single, releases)
    assert one_by_one.chain == together.chain


@every_method
def test_compiled_kernels_do_not_change_a_bit(name):
    pytest.importorskip("numba")
    _, plain = absorb(start(make(name), 1), rows())
    before = fast.use(True)
    try:
        _, compiled = absorb(start(make(name), 1), rows())
    finally:
        fast.use(before)
    assert_same(plain, compiled)


@every_method
@pytest.mark.parametrize("cut", [0, 3, 67, 100, 129])
def test_restored_continues_bit_for_bit(name, cut):
    x, algorithm = rows(), make(name)
    whole, expected = absorb(start(algorithm, 2), x)
    first, before = absorb(start(algorithm, 2), x[:cut])
    snapshot = first.snapshot()
    assert_plain(snapshot)
    kept = pickle.loads(pickle.dumps(snapshot))
    second = algorithm.start(D, Randomness.from_seed(2), start=first.source.start, snapshot=kept)
    assert second.snapshot().keys() == snapshot.keys()
    assert (second.t, second.chain) == (first.t, first.chain)
    _, on = absorb(first, x[cut:])
    second, after = absorb(second, x[cut:])
    assert_same(before + after, expected)
    assert_same(after, on)
    assert second.chain == whole.chain


@every_method
def test_every_processor_stays_as_it_was(name):
    """What is kept goes on in the same way after any number of later steps, and after steps on other rows."""
    x, processor = rows(), start(make(name), 3)
    kept, expected = [], []
    for i in range(len(x)):
        kept.append(processor)
        processor, release = processor.absorb(x[i : i + 1])
        if release is not None:
            expected.append(release)
    for cut in (0, 1, 41, 66, 99, 120):
        assert kept[cut].t == cut
        absorb(kept[cut], rows(20, seed=cut + 1)[: 130 - cut])
        _, again = absorb(kept[cut], x[cut:])
        assert_same(again, [release for release in expected if release.t > cut])


def broken_off(processor, x, line):
    """Take a step that is interrupted at this line of it, if it has so many; whether it was."""
    left = line

    def trace(frame, event, argument):
        nonlocal left
        if "streampca" not in frame.f_code.co_filename:
            return None
        left -= event == "line"
        if left < 0:
            raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    try:
        sys.settrace(trace)
        processor.absorb(x)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


@every_method
def test_a_step_that_is_broken_off_anywhere_has_changed_nothing(name):
    x, processor = rows(), start(make(name), 3)
    _, expected = absorb(processor, x)
    rng, releases, at, broken = np.random.default_rng(0), [], 0, 0
    while at < len(x):
        count = min(processor.rows_until_release, len(x) - at)
        for line in rng.integers(0, 250, size=8):
            broken += broken_off(processor, rows(count, seed=at), int(line))
        processor, release = processor.absorb(x[at : at + count])
        releases += [release] if release is not None else []
        at += count
    assert_same(releases, expected)
    assert broken >= 3


class Recorded(Outlet):
    """An outlet that keeps what it hides."""

    def hide(self, kind, *exact):
        self.seen = exact
        return super().hide(kind, *exact)


@every_method
def test_noise_is_bound_to_the_exact_sum_that_it_hides(name):
    x, algorithm = rows(), make(name)
    processor, at = start(algorithm), 0
    while at + processor.rows_until_release <= len(x) and processor.rows_until_release:
        outlet, count = Recorded(processor.source, processor.chain), processor.rows_until_release
        # In two pieces, so that a part of the leaf came before.
        if count > 1:
            processor, _ = processor.absorb(x[at : at + 1])
            assert processor.chain == outlet.chain
        processor, _ = processor.absorb(x[at + min(1, count - 1) : at + count], outlet)
        at += count
        assert processor.chain == outlet.chain
        assert len(outlet.fresh) == 1
        (hidden,) = outlet.seen
        if algorithm.method == "histogram":
            exact = GramSum.of(x[:at]).parts
        elif algorithm.method == "forgetting":
            exact = processor.fading.parts
        else:
            exact = GramSum.of(x[max(0, at - W) : at]).parts
        assert hidden.tobytes() == exact.tobytes()


def test_constants_tell_configurations_apart():
    assert len({make(name).constants(D) for name in METHODS}) == len(METHODS)
    assert make("ring", epsilon=1.0 + 1e-9).constants(D) != make("ring").constants(D)
    for name in METHODS:
        Randomness.from_seed(0).derived("label", *make(name).constants(D))  # all of it fits in a label


def test_curator_gram_is_of_all_rows():
    x = rows()
    processor, _ = absorb(start(make("histogram")), x)
    assert processor.curator_gram().parts.tobytes() == GramSum.of(x).parts.tobytes()
    assert start(make("ring")).curator_gram() is None


@pytest.mark.parametrize("name", ["histogram", "ring", "forgetting", "once"])
def test_noise_has_the_promised_sd(name):
    """Zero rows leave the noise alone: 1275 coordinates, 5 standard errors (false alarm below 6e-7)."""
    d = 50
    processor, releases = absorb(start(make(name, release_every=2), 4, d), np.zeros((130, d)))
    release = releases[-1]
    noise = release.gram
    off = np.triu_indices(d, 1)
    coordinates = np.concatenate([np.diagonal(noise), noise[off] * np.sqrt(2.0)])

    def plausible(values, sd):
        return abs(np.sqrt(np.mean(values**2)) / sd - 1.0) < 5.0 / np.sqrt(2.0 * values.size)

    assert plausible(coordinates, release.noise_std)
    assert not plausible(coordinates * 2.0 / 3.0, release.noise_std)
    assert not plausible(coordinates * 1.5, release.noise_std)
    assert processor.algorithm.noise_std(130) == pytest.approx(
        release.noise_std, rel=0.1 if name == "histogram" else 1e-12
    )


def test_noise_of_sixteen_thousand_rows_as_designed():
    w, at = 2**14, 10 * 2**14
    ring = make("ring", window=w)
    assert ring.noise_std(at) * ring.guarantee.mu == pytest.approx(5.39, rel=0.02)
    forgetting = make("forgetting", window=w)
    assert forgetting.noise_std(at) * forgetting.guarantee.mu < 3.9
    histogram = make("histogram", window=w)
    assert histogram.noise_std(at) * histogram.guarantee.mu == pytest.approx(5.39, rel=0.02)


@pytest.mark.long
@pytest.mark.parametrize(("name", "rows_seen"), [("ring", 2**15), ("histogram", 2**15), ("forgetting", 3 * 2**14)])
def test_noise_of_sixteen_thousand_rows_by_monte_carlo(name, rows_seen, capsys):
    """`pytest -m long tests/processors/test_sliding_window.py`: 11 325 coordinates, so 0.7 % standard error."""
    d = 150
    processor = start(make(name, window=2**14), 6, d)
    row = np.zeros((1, d))
    for _ in range(rows_seen):
        processor, release = processor.absorb(row)
    noise = release.gram
    coordinates = np.concatenate([np.diagonal(noise), noise[np.triu_indices(d, 1)] * np.sqrt(2.0)])
    measured = float(np.sqrt(np.mean(coordinates**2))) * processor.guarantee.mu
    with capsys.disabled():
        print(f"\n{name}: sd * mu = {measured:.3f} measured, {release.noise_std * processor.guarantee.mu:.3f} claimed")
    assert measured == pytest.approx(release.noise_std * processor.guarantee.mu, rel=0.035)
    if name == "ring":
        assert measured == pytest.approx(5.39, rel=0.035)
    if name == "forgetting":
        assert measured < 3.9


def test_replace_costs_sqrt_two():
    for name in ("histogram", "ring", "forgetting", "once"):
        ratio = make(name, adjacency="replace").noise_std(130) / make(name).noise_std(130)
        assert ratio == pytest.approx(np.sqrt(2.0), rel=1e-6)


@every_method
def test_guarantee_is_known_before_any_row(name):
    guarantee = make(name, epsilon=1.0).guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.adjacency) == (1.0, 1e-6, "zero-out")
    assert guarantee.mu == pytest.approx(0.236704, abs=1e-6)
    assert name == "once" or guarantee.scope == "all releases of an endless stream"


@every_method
def test_the_algorithm_is_a_value(name):
    algorithm = make(name)
    assert eval(repr(algorithm)) == algorithm
    assert hash(algorithm) == hash(make(name))
    assert algorithm != make(name, eta=0.3)
    assert SlidingWindowPCA(**algorithm.parameters()) == algorithm
    with pytest.raises(AttributeError):
        algorithm.window = 3


def test_what_may_be_read_off():
    algorithm = make("histogram")
    processor = start(algorithm, 1)
    assert processor.checkpoints == (1,)
    empty = processor.memory
    processor, releases = absorb(processor, rows())
    release = releases[-1]
    assert [processor.checkpoints[0], 130] == release.details["window"]
    assert release.details["checkpoints"] <= len(processor.checkpoints) + 1
    assert algorithm.multiplicative_error == pytest.approx(1.0 / 0.875 - 1.0)
    assert algorithm.additive_error(D) > 0.0
    assert processor.algorithm.noise_std(130) == algorithm.noise_std(130)
    assert processor.memory > empty
    assert "sketch_error" not in release.details
    assert release.subspace.basis.shape == (D, 2)
    sketched = absorb(start(make("histogram, sketched"), 1), rows())[1][-1]
    assert sketched.details["sketch_error"] > 0.0
    for name in ("ring", "forgetting", "once"):
        other, _ = absorb(start(make(name), 1), rows())
        assert other.algorithm.multiplicative_error == 0.0
        assert other.algorithm.additive_error(D) == other.algorithm.noise_bound(D)
        assert other.memory > 0


def test_a_ring_holds_the_smaller_of_rows_and_sums():
    rows_of_32_bits, words = 4 * W * D, 16 * (W // 20) * D * (D + 1) // 2
    assert start(make("ring")).memory < 2 * rows_of_32_bits
    few, many = start(make("ring of sums")), absorb(start(make("ring of sums")), rows())[0]
    assert few.memory <= many.memory <= 2 * words + 2 * 16 * D * (D + 1) // 2 < rows_of_32_bits * 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"window": 0}, "window=0"),
        ({"method": "jl"}, "method='jl'"),
        ({"eta": 1.5}, "eta=1.5"),
        ({"eta": "x"}, "eta='x'"),
        ({"overhang": 0.0}, "overhang=0.0"),
        ({"failure_rate": 1.0}, "failure_rate=1.0"),
        ({"window": 9, "release_every": 10}, "window=9: expected at least release_every=10"),
        ({"method": "ring", "release_every": 3}, "window=40: expected a multiple of release_every=3"),
        ({"method": "ring", "checkpoint_every": 3}, "checkpoint_every=3: expected None with method='ring'"),
        ({"release_every": 4, "checkpoint_every": 6}, "checkpoint_every=6: expected a multiple"),
        ({"method": "once"}, "horizon=None: expected"),
        ({"horizon": 10}, "horizon=10: expected None with method='histogram'"),
        ({"method": "forgetting", "window": 2**23}, "window=8388608: expected at most"),
        ({"sketch_rank": 0}, "sketch_rank=0"),
        ({"delta": 0.0}, "delta=0.0"),
    ],
)
def test_bad_parameters_are_named(given, message):
    with pytest.raises(BadParameterError, match=message):
        make("histogram", **{"method": "histogram", **given})
