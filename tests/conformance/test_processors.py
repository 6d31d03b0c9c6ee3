"""What every algorithm and its processors must do. Add a case for each new one."""

import copy
import dataclasses
import os
import pickle
import secrets
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import feeding
import numpy as np
import pytest
from golden_cases import BUDGET, STREAMS, D, rows

import streampca as sp
from streampca.errors import BadParameterError, BadRowError, StreamPCAError, UsageError
from streampca.linalg.centering import with_constant
from streampca.linalg.lattice import onto_ball
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.stream.engine import Engine

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
N = 200
ROWS = rows(N)
BALL = onto_ball(ROWS)

NAMES = (
    "fpl", "fpl-endless-replace", "fpl-tree", "fpl-discrete", "fpl-doubling", "fpl-regret", "fpl-tracking",
    "fpl-smoothed", "fpl-smoothed-drift", "perturbed-leader", "window-histogram", "window-ring", "window-smoothed",
    "window-smoothed-sums", "window-forgetting", "oja", "private-oja", "dp-pca", "tumbling", "tumbling-laplace",
    "sketch", "sketch-center-replace",
)  # fmt: skip
CASES: dict[str, Callable[[], sp.Algorithm]] = {name: STREAMS[name][0] for name in NAMES} | {
    "window-marked": lambda: sp.SlidingWindowPCA(
        center=False, **BUDGET, window=32, release_every=4, checkpoint_every=8
    ),
    "window-ring-leaves": lambda: sp.SlidingWindowPCA(
        center=False, **BUDGET, window=40, method="ring", release_every=2
    ),
    "window-ring-sums": lambda: sp.SlidingWindowPCA(center=False, **BUDGET, window=40, method="ring", release_every=20),
    "private-oja-clipped": lambda: sp.PrivateOja(**BUDGET, batch_size=40, horizon=N, clip=0.3, release_every=80),
}


@pytest.fixture(params=CASES)
def make(request: pytest.FixtureRequest) -> Callable[[], sp.Algorithm]:
    return CASES[request.param]


def bits(release: sp.Release) -> tuple[Any, ...]:
    gram = release.gram.tobytes() if release.packed is not None else b""
    gram += b"" if release.smoothed is None else release.smoothed.tobytes()
    return release.t, gram, release.subspace.basis.tobytes(), str(release.details)


def test_blocks_and_single_rows_give_the_same_bits(make: Callable[[], sp.Algorithm]) -> None:
    one, many = sp.Stream(make(), row_norm=1.0, seed=3), sp.Stream(make(), row_norm=1.0, seed=3)
    steps = [one.push(row) for row in ROWS]
    blocks = [many.push_many(part) for part in np.split(ROWS, [1, 30, 31, 100])]
    assert [bits(s.release) for s in steps if s.release] == [bits(r) for b in blocks for r in b.releases]
    assert [s.reward for s in steps] == [float(r) for b in blocks for r in b.rewards]
    assert repr(one.regret.history) == repr(many.regret.history)  # nan, before two rows differ, equals nan so
    assert one.regret.now() == many.regret.now()


def test_same_seed_same_bits_and_other_noise_under_another_key(make: Callable[[], sp.Algorithm]) -> None:
    algorithm, before = make(), make().guarantee
    a, b, c = (sp.Stream(algorithm, row_norm=1.0, **seed) for seed in ({"seed": 3}, {"seed": 3}, {}))
    runs = [stream.push_many(ROWS).releases for stream in (a, b, c)]
    first, second, third = ([bits(release) for release in run] for run in runs)
    assert first == second
    if before.is_private or isinstance(algorithm, sp.papers.PerturbedLeader):
        assert not set(first) & set(third)
    # The guarantee is known before any row, and stays.
    assert algorithm.guarantee == before
    assert {release.guarantee for release in runs[0]} == {a.guarantee}
    assert before.citation
    assert before.theorem
    assert "seed" in a.guarantee.caveat or not a.guarantee.is_private
    assert "seed" not in c.guarantee.caveat


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Callable[[sp.Stream, Any], list[bytes]]:
    """Names of the random vectors that a stream draws for some rows: under one key, equal vectors have equal names."""
    names: list[bytes] = []
    hide = Outlet.hide

    def noted(self: Outlet, kind: str, *exact: Any) -> Any:
        draws = hide(self, kind, *exact)
        names.append(draws.name)
        return draws

    def drawn(stream: sp.Stream, rows: Any) -> list[bytes]:
        names.clear()
        stream.engine._has_lanes = False  # which draw the same vectors without the outlet (`test_lane`)
        stream.push_many(rows)
        return list(names)

    monkeypatch.setattr(Outlet, "hide", noted)
    return drawn


def test_continuations_share_no_noise(make: Any, drawn: Any, in_child: Any, tmp_path: Path) -> None:
    """Streams of one key, copies, pickles and children of a fork; that independent vectors suffice: `test_twins`."""
    key, told = bytes(range(32)), tmp_path / "names"
    one, other = (sp.Stream(make(), row_norm=1.0, key=key) for _ in range(2))
    before = [drawn(stream, ROWS[:70]) for stream in (one, other)]
    text = pickle.dumps(one)
    assert in_child(lambda: told.write_bytes(pickle.dumps(drawn(one, ROWS[70:130])))) == 0
    streams = one, other, copy.deepcopy(one), pickle.loads(text), pickle.loads(text)
    after = [pickle.loads(told.read_bytes()), *(drawn(stream, ROWS[70:130]) for stream in streams)]
    assert all(after) != isinstance(one.algorithm, sp.Oja)
    for some, others in combinations([*before, *after], 2):
        assert set(some).isdisjoint(others)


def test_noise_is_bound_to_the_rows_it_hides(make: Any, drawn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the system gives the same bytes again and copies are not marked; not without the hash of the rows."""
    monkeypatch.setattr(os, "urandom", bytes)
    monkeypatch.setattr(secrets, "token_bytes", bytes)
    monkeypatch.setattr(Engine, "mark_copied", lambda self: None)
    changed, in_votes = ROWS[:130].copy(), isinstance(make(), sp.DPPCA)
    changed[70 : None if in_votes else 71] = 0.0

    def both() -> tuple[list[bytes], list[bytes]]:
        first, again, other = (
            drawn(sp.Stream(make(), row_norm=1.0, key=bytes(32)), rows) for rows in (ROWS[:130], ROWS[:130], changed)
        )
        assert first == again  # nothing is fresh
        return first, other

    first, other = both()
    shared = len(drawn(sp.Stream(make(), row_norm=1.0, key=bytes(32)), ROWS[:70]))
    shared += in_votes  # the first vote does not move
    assert first[:shared] == other[:shared]
    assert set(first[shared:]).isdisjoint(other[shared:])
    link = NoiseSource.link
    monkeypatch.setattr(NoiseSource, "link", lambda self, chain, kind, fresh, tags: link(self, chain, kind, fresh, b""))
    first, other = both()
    assert first == other


def feed(processor: sp.Processor, block: np.ndarray) -> tuple[sp.Processor, list[tuple[Any, ...]]]:
    processor, releases = feeding.feed(processor, with_constant(block) if processor.algorithm.center else block)
    return processor, [bits(release) for release in releases]


def test_a_snapshot_continues_bit_for_bit(make: Callable[[], sp.Algorithm]) -> None:
    algorithm, randomness = make(), sp.Randomness.from_seed(5)
    first = algorithm.start(D + algorithm.center, randomness)
    expected = feed(first, BALL)[1]
    for cut in (0, 70, N - 1):
        middle, got = feed(first, BALL[:cut])
        snapshot = middle.snapshot()
        assert_plain(snapshot)
        copied = copy.deepcopy(snapshot)
        feed(middle, BALL[cut:])
        np.testing.assert_equal(snapshot, copied)  # it does not change with the processor that it was taken from
        again = algorithm.start(D + algorithm.center, randomness, start=first.source.start, snapshot=snapshot)
        assert again.t == cut
        assert got + feed(again, BALL[cut:])[1] == expected


def test_a_step_leaves_the_processor_as_it_was(make: Callable[[], sp.Algorithm]) -> None:
    """Two different continuations of one value, and the first one again."""
    algorithm = make()
    middle = feed(algorithm.start(D + algorithm.center, sp.Randomness.from_seed(5)), BALL[:70])[0]
    once = feed(middle, BALL[70:])[1]
    other = feed(middle, BALL[120:])[1]
    assert feed(middle, BALL[70:])[1] == once
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


def test_a_configuration_is_a_frozen_value(make: Callable[[], sp.Algorithm]) -> None:
    algorithm, same = make(), make()
    sp.Stream(algorithm, row_norm=1.0, seed=1).push_many(ROWS[:10])
    assert algorithm == same
    assert hash(algorithm) == hash(same)
    assert repr(algorithm) == repr(same)
    assert eval(repr(algorithm), {**vars(sp.papers), **{name: getattr(sp, name) for name in sp.__all__}}) == algorithm
    with pytest.raises(AttributeError):
        algorithm.n_components = 1
    assert dataclasses.replace(algorithm) == algorithm
    assert "seed" not in algorithm.parameters()  # a seed is a key: a stream has it


def test_whatever_numbers_it_is_given_it_holds_plain_ones(make: Callable[[], sp.Algorithm]) -> None:
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


def test_releases_come_when_they_were_announced(make: Callable[[], sp.Algorithm]) -> None:
    stream = sp.Stream(make(), row_norm=1.0, seed=1)
    due = None
    for row in ROWS:
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


def test_rows_that_were_not_admitted_are_refused(make: Callable[[], sp.Algorithm]) -> None:
    processor = make().start(D, sp.Randomness.from_seed(1))
    for bad in (np.full((1, D), 0.9), np.full((2, D), 1e-9), np.full((1, D), np.nan)):
        with pytest.raises((BadRowError, UsageError)):
            processor.absorb(bad)
    with pytest.raises(BadParameterError, match="shape"):
        processor.absorb(np.zeros((1, D + 1)))
    assert processor.t == 0


@pytest.mark.parametrize("make", [name for name, one in CASES.items() if one().n_components > 1], indirect=True)
def test_too_few_features_are_told_and_leave_no_trace(make: Callable[[], sp.Algorithm]) -> None:
    stream = sp.Stream(make(), row_norm=1.0, seed=1)
    with pytest.raises(StreamPCAError, match="n_components=2 exceeds n_features=1"):
        stream.push([0.5])
    assert stream.t == 0
    stream.push(ROWS[0])
    assert stream.t == 1
