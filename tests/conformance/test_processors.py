"""What every processor must do, whatever its algorithm. Add a case for each new one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import streampca as sp
from streampca.errors import BadParameter, BadRow, StreamPCAError
from streampca.linalg.lattice import onto_ball
from streampca.privacy.randomness import Randomness
from streampca.processors.base import Processor

D, K, N = 6, 2, 330
BUDGET: dict[str, Any] = {"n_components": K, "epsilon": 1.0, "delta": 1e-6}

CASES: dict[str, Callable[[], Processor]] = {
    "fpl": lambda: sp.PrivateFPL(**BUDGET, horizon=400),
    "fpl-anytime": lambda: sp.PrivateFPL(**BUDGET, adjacency="replace"),
    "fpl-tree": lambda: sp.PrivateFPL(**BUDGET, horizon=400, noise="tree", release_every=3),
    "fpl-haar": lambda: sp.PrivateFPL(**BUDGET, horizon=340, noise="haar", release_every=7),
    "fpl-doubling": lambda: sp.PrivateFPL(
        n_components=1, epsilon=50.0, delta=0.5, horizon=400, regularisation="doubling"
    ),
    "fpl-regret": lambda: sp.PrivateFPL(**BUDGET, horizon=400, release_every=2, publish_regret=True),
    "fpl-tracking": lambda: sp.PrivateFPL(**BUDGET, solver="tracking", release_every=2),
    "leader": lambda: sp.PerturbedLeader(**BUDGET, release_every=4),
    "window": lambda: sp.SlidingWindowPCA(**BUDGET, window=32, release_every=5),
    "window-ring": lambda: sp.SlidingWindowPCA(**BUDGET, window=20, method="ring"),
    "window-forgetting": lambda: sp.SlidingWindowPCA(**BUDGET, window=20, method="forgetting", adjacency="replace"),
    "oja": lambda: sp.Oja(n_components=K, release_every=9),
    "private-oja": lambda: sp.PrivateOja(**BUDGET, batch_size=16),
    "dp-pca": lambda: sp.DPPCA(n_components=K, epsilon=50.0, delta=0.1, horizon=340),
    "dp-pca-deflation": lambda: sp.DPPCA(n_components=K, epsilon=200.0, delta=0.1, horizon=1016, method="deflation"),
    "tumbling": lambda: sp.Tumbling(sp.GaussianCovariance(**BUDGET), every=40),
    "tumbling-wishart": lambda: sp.Tumbling(sp.WishartCovariance(**BUDGET), every=25, horizon=340),
}


@pytest.fixture(params=CASES)
def make(request: pytest.FixtureRequest) -> Callable[[], Processor]:
    return CASES[request.param]


def some_rows(n: int = N, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, D)) * np.linspace(1, 0.2, D)


def bits(release: sp.Release) -> tuple[Any, ...]:
    gram = release.gram.tobytes() if release.has_gram else b""
    return release.t, gram, release.subspace.basis.tobytes(), str(release.details)


def releases_of(stream: sp.Stream, rows: np.ndarray) -> list[tuple[Any, ...]]:
    return [bits(release) for release in stream.push_many(rows).releases]


def test_blocks_and_single_rows_give_the_same_bits(make: Callable[[], Processor]) -> None:
    one, many = sp.Stream(make(), seed=3), sp.Stream(make(), seed=3)
    rows = some_rows()
    steps = [one.push(row) for row in rows]
    blocks = [many.push_many(part) for part in np.split(rows, [1, 30, 31, 100])]
    assert [bits(s.release) for s in steps if s.release] == [bits(r) for b in blocks for r in b.releases]
    assert [s.reward for s in steps] == [float(r) for b in blocks for r in b.rewards]
    assert one.regret.history == many.regret.history
    assert one.regret.now() == many.regret.now()


def test_same_seed_same_bits_and_other_noise_under_another_key(make: Callable[[], Processor]) -> None:
    a, b, c = (sp.Stream(make(), seed=3), sp.Stream(make(), seed=3), sp.Stream(make()))
    first, second, third = (releases_of(s, some_rows()) for s in (a, b, c))
    assert first == second
    if a.processor.guarantee.is_private or isinstance(a.processor, sp.PerturbedLeader):
        assert not set(first) & set(third)
    assert "seed" in a.guarantee.caveat or not a.guarantee.is_private
    assert "seed" not in c.guarantee.caveat


def test_state_continues_bit_for_bit(make: Callable[[], Processor]) -> None:
    rows = onto_ball(some_rows())

    def feed(processor: Processor, block: np.ndarray) -> list[tuple[Any, ...]]:
        out = []
        while len(block):
            take = min(len(block), processor.rows_until_release)
            release = processor.absorb(block[:take])
            out += [bits(release)] if release else []
            block = block[take:]
        return out

    def bound() -> Processor:
        processor = make()
        processor.bind(D, Randomness.from_seed(5))
        return processor

    whole, first, second = bound(), bound(), bound()
    expected = feed(whole, rows)
    got = feed(first, rows[:70])
    state = first.state()
    assert_plain(state)
    feed(first, rows[70:])  # the state must not change with the processor it was taken from
    second.restore(state)
    assert second.t == 70
    assert got + feed(second, rows[70:]) == expected


def assert_plain(value: Any) -> None:
    """Arrays and scalars only: what a store can keep without pickle."""
    if isinstance(value, dict):
        assert all(isinstance(key, str) for key in value)
        for part in value.values():
            assert_plain(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            assert_plain(part)
    elif isinstance(value, np.ndarray):
        assert value.dtype.kind in "fiub"
    else:
        assert value is None or isinstance(value, (bool, int, float, str, np.integer, np.floating)), type(value)


def test_parameters_are_stored_under_their_names_and_clone(make: Callable[[], Processor]) -> None:
    processor = make()
    sp.Stream(processor, seed=1).push_many(some_rows(10))
    copy = processor.clone()
    assert copy.t == 0
    assert repr(copy) == repr(make())
    assert copy.guarantee == processor.guarantee
    sp.Stream(copy).push_many(some_rows(10))


def test_the_guarantee_is_known_before_any_row_and_stays(make: Callable[[], Processor]) -> None:
    processor = make()
    before = processor.guarantee
    stream = sp.Stream(processor, seed=1)
    releases = stream.push_many(some_rows()).releases
    assert processor.guarantee == before
    assert {release.guarantee for release in releases} == {stream.guarantee}
    assert before.citation
    assert before.theorem


def test_releases_come_when_they_were_announced(make: Callable[[], Processor]) -> None:
    stream = sp.Stream(make(), seed=1)
    due = None
    for row in some_rows():
        step = stream.push(row)
        assert (step.release is not None) == (due == 1) or due is None
        due = stream.processor.rows_until_release
        assert due >= 1
        if step.release is not None:
            basis = step.release.subspace.basis
            np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-10)
            again = sp.Release.from_json(step.release.to_json())
            np.testing.assert_array_equal(again.subspace.basis, basis)
            assert step.release.t == stream.t


def test_a_processor_feeds_one_stream(make: Callable[[], Processor]) -> None:
    processor = make()
    sp.Stream(processor, seed=1).push(some_rows(1)[0])
    with pytest.raises(BadParameter, match="already feeds a stream"):
        sp.Stream(processor).push(some_rows(1)[0])


def test_rows_that_were_not_admitted_are_refused(make: Callable[[], Processor]) -> None:
    processor = make()
    with pytest.raises(BadParameter, match="not bound"):
        processor.absorb(np.zeros((1, D)))
    processor.bind(D, Randomness.from_seed(1))
    for bad in (np.full((1, D), 0.9), np.full((2, D), 1e-9), np.full((1, D), np.nan)):
        with pytest.raises((BadRow, BadParameter)):
            processor.absorb(bad)
    with pytest.raises(BadParameter, match="shape"):
        processor.absorb(np.zeros((1, D + 1)))
    assert processor.t == 0


def test_too_few_features_are_told_and_leave_no_trace(make: Callable[[], Processor]) -> None:
    if make().n_components == 1:
        pytest.skip("every row has a feature for one component")
    stream = sp.Stream(make(), seed=1)
    with pytest.raises(StreamPCAError, match="n_components=2 exceeds n_features=1"):
        stream.push([0.5])
    assert stream.t == 0
    stream.push(some_rows(1)[0])
    assert stream.t == 1
