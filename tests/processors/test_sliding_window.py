"""The sliding window processor, by every method: what it covers, its noise, its bits, its errors."""

from __future__ import annotations

import numpy as np
import pytest

from streampca.errors import BadParameter, HorizonReached, NoRelease
from streampca.linalg.lattice import coarsen, onto_ball
from streampca.privacy.randomness import Randomness
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.stream import Stream

D, W = 4, 40
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
METHODS = {
    "histogram": {"method": "histogram"},
    "histogram, leaves": {"method": "histogram", "release_every": 4, "checkpoint_every": 8},
    "histogram, sketched": {"method": "histogram", "sketch_rank": 2, "overhang": 1.0},
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


class Silent:
    """Randomness whose noise is zero: what is left is the data side."""

    def stream(self, *label):
        return self

    def normal(self, index, count, out=None):
        out = np.empty(count) if out is None else out
        out[...] = 0.0
        return out


def silent_releases(processor, x):
    processor.bind(x.shape[1], Silent())
    releases, start = [], 0
    while start < len(x):
        take = min(processor.rows_until_release, len(x) - start)
        release = processor.absorb(x[start : start + take])
        if release is not None:
            releases.append(release)
        start += take
    return releases


def gram(x):
    return x.T @ x


@pytest.mark.parametrize("name", ["ring", "ring, rows in leaves", "ring of sums"])
def test_ring_holds_exactly_the_window(name):
    x = rows()
    for release in silent_releases(make(name), x):
        first, last = release.details["window"]
        assert (first, last) == (max(1, release.t - W + 1), release.t)
        np.testing.assert_array_equal(release.gram, coarsen(gram(x[first - 1 : last]), release.noise_std))


@pytest.mark.parametrize("name", ["histogram", "histogram, leaves"])
def test_histogram_covers_what_it_says_it_covers(name):
    x = rows()
    processor = make(name)
    for release in silent_releases(processor, x):
        first, last = release.details["window"]
        assert first <= max(1, last - W + 1)
        assert last - first + 1 <= W + processor._pin_every + processor._mark_every
        # Two prefixes, each rounded to a grid of at most 2**-19 of the sd, and to its middle.
        atol = 2.0**-19 * release.noise_std
        np.testing.assert_allclose(release.gram, gram(x[first - 1 : last]), rtol=0, atol=atol)


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


def test_once_sums_the_last_rows():
    x = rows()
    (release,) = silent_releases(make("once"), x)
    assert release.details["window"] == [91, 130]
    np.testing.assert_array_equal(release.gram, coarsen(gram(x[90:]), release.noise_std))
    spent = make("once")
    silent_releases(spent, x)
    with pytest.raises(HorizonReached):
        spent.absorb(x[:1])


def test_once_has_the_noise_of_one_release():
    processor = make("once")
    assert processor.noise_std(130) == pytest.approx(1.0 / processor.guarantee.mu)
    assert "one release" in processor.guarantee.scope


@every_method
def test_blocks_do_not_change_a_bit(name):
    x = rows()
    one_by_one = Stream(make(name, seed=1))
    single = [step.release for step in one_by_one.run(x) if step.release is not None]
    blocks = Stream(make(name, seed=1))
    together = [release for part in (x[:7], x[7:60], x[60:61], x[61:]) for release in blocks.push_many(part).releases]
    assert [release.t for release in single] == [release.t for release in together]
    for a, b in zip(single, together, strict=True):
        np.testing.assert_array_equal(a.gram, b.gram)
        assert a.details == b.details


@every_method
@pytest.mark.parametrize("cut", [3, 67, 100])
def test_restored_continues_bit_for_bit(name, cut):
    x = rows()

    def run(processor, part):
        out = []
        for row in part:
            release = processor.absorb(row[None])
            if release is not None:
                out.append((release.gram.copy(), release.details))
        return out

    whole, first, second = make(name), make(name), make(name)
    for processor in (whole, first, second):
        processor.bind(D, Randomness.from_seed(2))
    expected = run(whole, x)
    before = run(first, x[:cut])
    state = first.state()
    run(first, x[cut : cut + 30])  # the state must be a copy
    second.restore(state)
    after = run(second, x[cut:])
    assert len(before) + len(after) == len(expected)
    for (a, details), (b, other) in zip(before + after, expected, strict=True):
        np.testing.assert_array_equal(a, b)
        assert details == other
    assert second.window_bounds == whole.window_bounds


@pytest.mark.parametrize("name", ["histogram", "ring", "forgetting", "once"])
def test_noise_has_the_promised_sd(name):
    """Zero rows leave the noise alone: 1275 coordinates, 5 standard errors (false alarm below 6e-7)."""
    d = 50
    processor = make(name, release_every=2)
    processor.bind(d, Randomness.from_seed(4))
    release = None
    while processor.t < 130:
        release = processor.absorb(np.zeros((processor.rows_until_release, d))) or release
    noise = release.gram
    off = np.triu_indices(d, 1)
    coordinates = np.concatenate([np.diagonal(noise), noise[off] * np.sqrt(2.0)])

    def plausible(values, sd):
        return abs(np.sqrt(np.mean(values**2)) / sd - 1.0) < 5.0 / np.sqrt(2.0 * values.size)

    assert plausible(coordinates, release.noise_std)
    assert not plausible(coordinates * 2.0 / 3.0, release.noise_std)
    assert not plausible(coordinates * 1.5, release.noise_std)
    assert processor.noise_std(130) == pytest.approx(release.noise_std, rel=0.1 if name == "histogram" else 1e-12)


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
    processor = make(name, window=2**14)
    processor.bind(d, Randomness.from_seed(6))
    row = np.zeros((1, d))
    for _ in range(rows_seen):
        release = processor.absorb(row)
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
    guarantee = make(name).guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.adjacency) == (1.0, 1e-6, "zero-out")
    assert guarantee.mu == pytest.approx(0.236704, abs=1e-6)
    assert name == "once" or guarantee.scope == "all releases of an endless stream"


@every_method
def test_clone_has_the_same_parameters(name):
    processor = make(name)
    assert processor.clone().parameters() == processor.parameters()


def test_what_may_be_read_off():
    stream = Stream(make("histogram", seed=1))
    processor = stream.processor
    for attribute in ("checkpoints", "window_bounds", "additive_error"):
        with pytest.raises(NoRelease):
            getattr(processor, attribute)
    assert processor.memory == 0
    stream.push_many(rows())
    assert processor.window_bounds == tuple(stream.release.details["window"])
    assert processor.checkpoints[0] == processor.window_bounds[0]
    assert stream.release.details["checkpoints"] <= len(processor.checkpoints) + 1
    assert processor.multiplicative_error == pytest.approx(1.0 / 0.875 - 1.0)
    assert processor.additive_error > 0.0
    assert processor.memory > 0
    assert processor.sketch_error == 0.0
    assert stream.subspace.basis.shape == (D, 2)
    ring = Stream(make("ring", seed=1))
    ring.push_many(rows())
    assert ring.processor.multiplicative_error == 0.0
    with pytest.raises(BadParameter, match="checkpoints"):
        _ = ring.processor.checkpoints


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"window": 0}, "window=0"),
        ({"method": "jl"}, "method='jl'"),
        ({"eta": 1.5}, "eta=1.5"),
        ({"eta": "x"}, "eta='x'"),
        ({"overhang": 0.0}, "overhang=0.0"),
        ({"failure_rate": 1.0}, "failure_rate=1.0"),
        ({"window": 9, "release_every": 10}, "window=9 must be at least release_every=10"),
        ({"method": "ring", "release_every": 3}, "window=40 must be a multiple of release_every=3"),
        ({"method": "ring", "checkpoint_every": 3}, "checkpoint_every=3 is for method='histogram'"),
        ({"release_every": 4, "checkpoint_every": 6}, "checkpoint_every=6 must be a multiple"),
        ({"method": "once"}, "horizon=None with method='once'"),
        ({"horizon": 10}, "horizon=10 with method='histogram'"),
        ({"method": "forgetting", "window": 2**23}, "window=8388608 must be at most"),
        ({"sketch_rank": 0}, "sketch_rank=0"),
        ({"delta": 0.0}, "delta=0.0"),
    ],
)
def test_bad_parameters_are_named(given, message):
    with pytest.raises(BadParameter, match=message):
        make("histogram", **{"method": "histogram", **given})
