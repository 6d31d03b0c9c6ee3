"""What every algorithm and its processors must do. Add a case for each new one."""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import feeding
import numpy as np
import pytest

import streampca as sp
from streampca import _native
from streampca.errors import BadParameterError, BadRowError, StreamPCAError
from streampca.linalg.lattice import onto_ball
from streampca.privacy.randomness import Randomness
from streampca.processors.base import Algorithm, Processor

D, K, N = 6, 2, 330
BUDGET: dict[str, Any] = {"n_components": K, "epsilon": 1.0, "delta": 1e-6}

CASES: dict[str, Callable[[], Algorithm]] = {
    "fpl": lambda: sp.PrivateFPL(**BUDGET, horizon=400),
    "fpl-anytime": lambda: sp.PrivateFPL(**BUDGET, adjacency="replace"),
    "fpl-tree": lambda: sp.PrivateFPL(**BUDGET, horizon=400, noise="tree", release_every=3),
    "fpl-exact": lambda: sp.PrivateFPL(**BUDGET, horizon=340, noise=sp.Tree(discrete=True), release_every=7),
    "fpl-doubling": lambda: sp.papers.DoublingFPL(n_components=1, epsilon=50.0, delta=0.5, horizon=400),
    "fpl-regret": lambda: sp.PrivateFPL(**BUDGET, horizon=400, release_every=2, publish_regret=True),
    "fpl-tracking": lambda: sp.PrivateFPL(**BUDGET, solver="tracking", release_every=2),
    "fpl-smoothed": lambda: sp.PrivateFPL(**BUDGET, horizon=331, solver="smoothed", release_every=3),
    "fpl-smoothed-anytime": lambda: sp.PrivateFPL(**BUDGET, solver=sp.Smoothed(drift=0.1), publish_regret=True),
    "leader": lambda: sp.papers.PerturbedLeader(**BUDGET, release_every=4),
    "window": lambda: sp.SlidingWindowPCA(**BUDGET, window=32, release_every=5),
    "window-marked": lambda: sp.SlidingWindowPCA(**BUDGET, window=32, release_every=4, checkpoint_every=8),
    "window-ring": lambda: sp.SlidingWindowPCA(**BUDGET, window=20, method="ring"),
    "window-ring-leaves": lambda: sp.SlidingWindowPCA(**BUDGET, window=40, method="ring", release_every=2),
    "window-ring-sums": lambda: sp.SlidingWindowPCA(**BUDGET, window=40, method="ring", release_every=20),
    "window-smoothed": lambda: sp.SlidingWindowPCA(**BUDGET, window=20, method="smoothed", release_every=2),
    "window-smoothed-sums": lambda: sp.SlidingWindowPCA(**BUDGET, window=40, method="smoothed", release_every=20),
    "window-forgetting": lambda: sp.SlidingWindowPCA(**BUDGET, window=20, method="forgetting", adjacency="replace"),
    "oja": lambda: sp.Oja(n_components=K, release_every=9),
    "private-oja": lambda: sp.PrivateOja(**BUDGET, batch_size=16),
    "private-oja-clipped": lambda: sp.PrivateOja(**BUDGET, batch_size=40, horizon=N, clip=0.3, release_every=80),
    "dp-pca": lambda: sp.DPPCA(n_components=K, epsilon=50.0, delta=0.1, horizon=340, batch_size=56),
    "tumbling": lambda: sp.Tumbling(sp.GaussianCovariance(**BUDGET), release_every=40),
    "tumbling-wishart": lambda: sp.Tumbling(sp.papers.WishartCovariance(**BUDGET), release_every=25, horizon=340),
}


@pytest.fixture(params=CASES)
def make(request: pytest.FixtureRequest) -> Callable[[], Algorithm]:
    return CASES[request.param]


def some_rows(n: int = N, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, D)) * np.linspace(1, 0.2, D)


def bits(release: sp.Release) -> tuple[Any, ...]:
    gram = release.gram.tobytes() if release.packed is not None else b""
    gram += b"" if release.smoothed is None else release.smoothed.tobytes()
    return release.t, gram, release.subspace.basis.tobytes(), str(release.details)


def releases_of(stream: sp.Stream, rows: np.ndarray) -> list[tuple[Any, ...]]:
    return [bits(release) for release in stream.push_many(rows).releases]


def test_blocks_and_single_rows_give_the_same_bits(make: Callable[[], Algorithm]) -> None:
    one, many = sp.Stream(make(), seed=3), sp.Stream(make(), seed=3)
    rows = some_rows()
    steps = [one.push(row) for row in rows]
    blocks = [many.push_many(part) for part in np.split(rows, [1, 30, 31, 100])]
    assert [bits(s.release) for s in steps if s.release] == [bits(r) for b in blocks for r in b.releases]
    assert [s.reward for s in steps] == [float(r) for b in blocks for r in b.rewards]
    assert one.regret.history == many.regret.history
    assert one.regret.now() == many.regret.now()


def test_same_seed_same_bits_and_other_noise_under_another_key(make: Callable[[], Algorithm]) -> None:
    a, b, c = (sp.Stream(make(), seed=3), sp.Stream(make(), seed=3), sp.Stream(make()))
    first, second, third = (releases_of(s, some_rows()) for s in (a, b, c))
    assert first == second
    if a.algorithm.guarantee.is_private or isinstance(a.algorithm, sp.papers.PerturbedLeader):
        assert not set(first) & set(third)
    assert "seed" in a.guarantee.caveat or not a.guarantee.is_private
    assert "seed" not in c.guarantee.caveat


def feed(processor: Processor, block: np.ndarray) -> tuple[Processor, list[tuple[Any, ...]]]:
    processor, releases = feeding.feed(processor, block)
    return processor, [bits(release) for release in releases]


def test_a_snapshot_continues_bit_for_bit(make: Callable[[], Algorithm]) -> None:
    rows = onto_ball(some_rows())
    algorithm, randomness = make(), Randomness.from_seed(5)
    first = algorithm.start(D, randomness)
    expected = feed(first, rows)[1]
    for cut in (0, 3, 70, N - 1):
        middle, got = feed(first, rows[:cut])
        snapshot = middle.snapshot()
        assert_plain(snapshot)
        copied = copy.deepcopy(snapshot)
        feed(middle, rows[cut:])  # the snapshot must not change with the processor it was taken from
        for kept in (copied, snapshot):
            again = algorithm.start(D, randomness, start=first.source.start, snapshot=kept)
            assert again.t == cut
            assert got + feed(again, rows[cut:])[1] == expected


def test_compiled_kernels_change_no_bit(make: Callable[[], Algorithm]) -> None:
    if not _native.available():
        pytest.skip("the kernels are not compiled")
    before, found = _native.use(False), []
    try:
        for compiled in (False, True):
            _native.use(compiled)
            released = feed(make().start(D, Randomness.from_seed(5)), onto_ball(some_rows(130)))[1]
            found.append([(t, gram) for t, gram, *_ in released])  # tracked spans may differ in the last bit
    finally:
        _native.use(before)
    assert found[0] == found[1]


def test_a_step_leaves_the_processor_as_it_was(make: Callable[[], Algorithm]) -> None:
    """Two different continuations of one value, and the first one again."""
    rows = onto_ball(some_rows())
    middle = feed(make().start(D, Randomness.from_seed(5)), rows[:70])[0]
    once = feed(middle, rows[70:])[1]
    other = feed(middle, rows[170:250])[1]
    assert feed(middle, rows[70:])[1] == once
    private = middle.algorithm.guarantee.is_private
    assert not (private and other) or set(other).isdisjoint(once)


def assert_plain(value: Any) -> None:
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


def test_a_configuration_is_a_frozen_value(make: Callable[[], Algorithm]) -> None:
    algorithm, same = make(), make()
    sp.Stream(algorithm, seed=1).push_many(some_rows(10))
    assert algorithm == same
    assert hash(algorithm) == hash(same)
    assert repr(algorithm) == repr(same)
    assert eval(repr(algorithm), {**vars(sp.papers), **{name: getattr(sp, name) for name in sp.__all__}}) == algorithm
    with pytest.raises(AttributeError):
        algorithm.n_components = 1
    assert dataclasses.replace(algorithm) == algorithm
    assert "seed" not in algorithm.parameters()  # a seed is a key: a stream has it


def test_whatever_numbers_it_is_given_it_holds_plain_ones(make: Callable[[], Algorithm]) -> None:
    algorithm = make()
    given = {
        name: np.int64(value) if isinstance(value, int) and not isinstance(value, bool) else value
        for name, value in algorithm.parameters().items()
    }
    given |= {name: np.float64(value) for name, value in given.items() if isinstance(value, float)}
    first = [given.pop("mechanism")] if "mechanism" in given else []
    again = type(algorithm)(*first, **given)
    assert again == algorithm
    assert repr(again) == repr(algorithm)
    assert hash(again) == hash(algorithm)


def test_the_guarantee_is_known_before_any_row_and_stays(make: Callable[[], Algorithm]) -> None:
    algorithm = make()
    before = algorithm.guarantee
    stream = sp.Stream(algorithm, seed=1)
    releases = stream.push_many(some_rows()).releases
    assert algorithm.guarantee == before
    assert {release.guarantee for release in releases} == {stream.guarantee}
    assert before.citation
    assert before.theorem


def test_releases_come_when_they_were_announced(make: Callable[[], Algorithm]) -> None:
    stream = sp.Stream(make(), seed=1)
    due = None
    for row in some_rows():
        step = stream.push(row)
        assert (step.release is not None) == (due == 1) or due is None
        due = stream.engine.processor.rows_until_release - (stream.t - stream.engine.now.t)
        assert due >= 1 or stream.t == N
        if step.release is not None:
            basis = step.release.subspace.basis
            np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-10)
            again = sp.Release.from_json(step.release.to_json())
            np.testing.assert_array_equal(again.subspace.basis, basis)
            assert step.release.t == stream.t


def test_rows_that_were_not_admitted_are_refused(make: Callable[[], Algorithm]) -> None:
    processor = make().start(D, Randomness.from_seed(1))
    for bad in (np.full((1, D), 0.9), np.full((2, D), 1e-9), np.full((1, D), np.nan)):
        with pytest.raises((BadRowError, BadParameterError)):
            processor.absorb(bad)
    with pytest.raises(BadParameterError, match="shape"):
        processor.absorb(np.zeros((1, D + 1)))
    assert processor.t == 0


@pytest.mark.parametrize("make", [name for name, one in CASES.items() if one().n_components > 1], indirect=True)
def test_too_few_features_are_told_and_leave_no_trace(make: Callable[[], Algorithm]) -> None:
    stream = sp.Stream(make(), seed=1)
    with pytest.raises(StreamPCAError, match="n_components=2 exceeds n_features=1"):
        stream.push([0.5])
    assert stream.t == 0
    stream.push(some_rows(1)[0])
    assert stream.t == 1
