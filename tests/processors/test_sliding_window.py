"""The sliding window processor, by every method: what it covers, its noise, its errors."""

import numpy as np
import pytest
from feeding import feed

import streampca as sp
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


def make(name, **given):
    return SlidingWindowPCA(
        **{"window": W, "n_components": 2, "center": False, "release_every": 1, **BUDGET, **METHODS[name], **given}
    )


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


def test_curator_gram_is_of_all_rows():
    x = rows()
    processor, _ = feed(start(make("histogram")), x)
    assert processor.curator_gram().parts.tobytes() == GramSum.of(x).parts.tobytes()
    assert start(make("ring")).curator_gram() is None


@pytest.mark.parametrize("name", METHODS)
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


@pytest.mark.parametrize(
    ("method", "window", "every"),
    [("histogram", 50, 50), ("histogram", 1000, 100), ("ring", 40, 40), ("ring", 250, 50), ("ring", 101, 1),
     ("forgetting", 1000, 100), ("smoothed", 20_000, 200), ("smoothed", 101, 101)],
)  # fmt: skip
def test_a_release_every_100_rows_or_what_the_window_allows(method, window, every):
    made = SlidingWindowPCA(window=window, n_components=1, epsilon=1.0, method=method)
    assert made.release_every == every
    assert f"release_every={every}" in repr(made)


@pytest.mark.parametrize(
    ("method", "every", "given"),
    [("smoothed", 100, {"window": 1000}), ("smoothed", 100, {"window": 10_000}), ("histogram", 100, {"window": 10_100}),
     ("smoothed", 10, {"window": 1000, "release_every": 10}), ("histogram", 9, {"window": 909, "release_every": 9}),
     ("smoothed", 500, {"window": 50_000, "release_every": 500}), ("smoothed", 60, {"window": 60}),
     ("histogram", 30, {"window": 100, "release_every": 30}), ("histogram", 100, {"window": 1009}),
     ("histogram", 50, {"window": 1000, "release_every": 50, "checkpoint_every": 100})],
)  # fmt: skip
def test_the_method_is_smoothed_up_to_100_releases_a_window(method, every, given):
    made = SlidingWindowPCA(n_components=1, epsilon=1.0, **given)
    assert (made.method, made.release_every) == (method, every)
    assert f"method={method!r}" in repr(made)
    assert made == SlidingWindowPCA(n_components=1, epsilon=1.0, **given | {"method": method, "release_every": every})
    stream = sp.Stream(made, row_norm=1.0, features=3, seed=1, regret=None)
    assert f"method={method!r}" in repr(stream.algorithm)
    assert type(stream.engine.processor).__name__.lower() == f"{method}processor"
