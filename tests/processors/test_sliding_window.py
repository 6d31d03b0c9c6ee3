"""The sliding window processor, by every method: what it covers, its noise, its bits, its errors."""

from __future__ import annotations

import numpy as np
import pytest
from feeding import Overheard, feed

from streampca.errors import BadParameterError
from streampca.linalg.lattice import GramSum, coarsen, onto_ball
from streampca.privacy.randomness import Draws, Randomness
from streampca.processors.sliding_window import SlidingWindowPCA

D, W = 4, 40
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
METHODS = {
    "histogram": {"method": "histogram"},
    "histogram, leaves": {"method": "histogram", "release_every": 4, "checkpoint_every": 8},
    "ring": {"method": "ring"},
    "ring, rows in leaves": {"method": "ring", "release_every": 2},
    "ring of sums": {"method": "ring", "release_every": 20},
    "forgetting": {"method": "forgetting"},
    "forgetting, leaves": {"method": "forgetting", "release_every": 4},
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
    monkeypatch.setattr(Draws, "normal", lambda self, count, out=None: np.zeros(count))


def start(algorithm, seed=0, d=D):
    return algorithm.start(d, Randomness.from_seed(seed))


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("name", ["ring", "ring, rows in leaves", "ring of sums"])
def test_ring_holds_exactly_the_window(name):
    x = rows()
    for release in feed(start(make(name)), x)[1]:
        first, last = release.details["window"]
        assert (first, last) == (max(1, release.t - W + 1), release.t)
        window = x[first - 1 : last]
        np.testing.assert_array_equal(release.gram, coarsen(window.T @ window, release.noise_std))


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("name", ["histogram", "histogram, leaves"])
def test_histogram_covers_what_it_says_it_covers(name):
    x = rows()
    algorithm = make(name)
    for release in feed(start(algorithm), x)[1]:
        first, last = release.details["window"]
        assert first <= max(1, last - W + 1)
        assert last - first + 1 <= W + sum(algorithm.processor.spacing(algorithm))
        # Two prefixes, each rounded to a grid of at most 2**-19 of the sd, and to its middle.
        atol = 2.0**-19 * release.noise_std
        window = x[first - 1 : last]
        np.testing.assert_allclose(release.gram, window.T @ window, rtol=0, atol=atol)


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize(("name", "every"), [("forgetting", 1), ("forgetting, leaves", 4)])
def test_forgetting_fades_a_leaf_at_a_time(name, every):
    x = rows(128)
    for release in feed(start(make(name)), x)[1]:
        leaf = np.arange(release.t) // every
        faded = x[: release.t] * np.sqrt((1.0 - every / W) ** (leaf[-1] - leaf))[:, None]
        np.testing.assert_allclose(release.gram, faded.T @ faded, rtol=0, atol=2.0**-20 * release.noise_std + 1e-9)


@every_method
def test_noise_is_bound_to_the_exact_sum_that_it_hides(name):
    x, algorithm = rows(), make(name)
    processor, at = start(algorithm), 0
    while at + processor.rows_until_release <= len(x) and processor.rows_until_release:
        outlet, count = Overheard(processor), processor.rows_until_release
        # In two pieces, so that a part of the leaf came before.
        if count > 1:
            processor, _ = processor.absorb(x[at : at + 1])
            assert processor.chain == outlet.chain
        processor, _ = processor.absorb(x[at + min(1, count - 1) : at + count], outlet)
        at += count
        assert processor.chain == outlet.chain
        assert len(outlet.fresh) == 1
        ((_, (hidden,)),) = outlet.hidden
        if algorithm.method == "histogram":
            exact = GramSum.of(x[:at]).parts
        elif algorithm.method == "forgetting":
            exact = processor.fading.parts
        else:
            exact = GramSum.of(x[max(0, at - W) : at]).parts
        assert hidden.tobytes() == exact.tobytes()


def test_curator_gram_is_of_all_rows():
    x = rows()
    processor, _ = feed(start(make("histogram")), x)
    assert processor.curator_gram().parts.tobytes() == GramSum.of(x).parts.tobytes()
    assert start(make("ring")).curator_gram() is None


@every_method
def test_noise_and_errors_are_known_before_any_row(name):
    algorithm = make(name)
    release = feed(start(algorithm), rows())[1][-1]
    if algorithm.method == "histogram":
        # Its std assumes a checkpoint at the start of the window.
        assert algorithm.noise_std(release.t) == pytest.approx(release.noise_std, rel=0.1)
        assert algorithm.multiplicative_error == pytest.approx(1.0 / 0.875 - 1.0)
        assert algorithm.additive_error(D) > algorithm.noise_bound(D)
    else:
        assert algorithm.noise_std(release.t) == pytest.approx(release.noise_std, rel=1e-12)
        assert algorithm.multiplicative_error == 0.0
        assert algorithm.additive_error(D) == algorithm.noise_bound(D)


def test_a_ring_holds_the_smaller_of_rows_and_sums():
    assert start(make("ring")).ring.latest.dtype == np.int32
    sums = feed(start(make("ring of sums")), rows())[0].ring.latest
    assert sums.shape == (2, 2, D * (D + 1) // 2)
    assert sums.dtype == np.float64


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
        ({"method": "smoothed", "window": 1001, "release_every": 7}, "expected at least 11"),
        ({"method": "smoothed", "release_every": 7}, "window=40: expected a multiple"),
        ({"method": "forgetting", "window": 2**23}, "window=8388608: expected at most"),
        ({"delta": 0.0}, "delta=0.0"),
    ],
)
def test_bad_parameters_are_named(given, message):
    with pytest.raises(BadParameterError, match=message):
        make("histogram", **{"method": "histogram", **given})
