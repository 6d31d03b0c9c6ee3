"""Blocks of rows as exact Gram matrices: merging them in any way gives the same bits, and so do releases."""

import pickle
from itertools import pairwise
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import streampca as sp
from streampca.errors import BadParameterError, BadRowError, HorizonReachedError, UsageError
from streampca.linalg.lattice import onto_ball
from streampca.stream.blocks import BlockCutter, BlockGram, admission_mark

D = 4


def rows_of(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, D))


def fpl(every: int = 50, **options: object) -> sp.PrivateFPL:
    return sp.PrivateFPL(n_components=2, epsilon=1.0, **{"center": False, "release_every": every} | options)


def new(algorithm: sp.Algorithm, **options: Any) -> sp.Stream:
    return sp.Stream(algorithm, features=D, **options if "bounds" in options else {"row_norm": 1.0} | options)


def same(one: list, other: list) -> bool:
    return [r.to_json() for r in one] == [r.to_json() for r in other]


def feed(stream: sp.Stream, rows: np.ndarray, cuts: list[int]) -> list:
    """Make blocks of the rows between cuts, each by itself, and push them in order."""
    leaves = pickle.loads(pickle.dumps(stream.leaves()))
    edges = [0, *sorted(set(cuts)), len(rows)]
    releases = []
    for a, b in pairwise(edges):
        for block in leaves.blocks([rows[a:b]] if b > a else [], a):
            release = stream.push_block(pickle.loads(pickle.dumps(block))).release
            releases += [] if release is None else [release]
    return releases


def test_blocks_join_in_any_order() -> None:
    rows = onto_ball(rows_of(1, 30))
    one, two, three = (BlockGram.of(rows[a : a + 10], first=a + 1) for a in (0, 10, 20))
    for whole in (one.then(two).then(three), one.then(two.then(three))):
        assert (whole.first, whole.count) == (1, 30)
        assert np.array_equal([whole.high, whole.low], [BlockGram.of(rows).high, BlockGram.of(rows).low])
    with pytest.raises(BadParameterError, match="Join blocks in order"):
        one.then(three)


@given(st.lists(st.integers(1, 499), max_size=6))
@settings(deadline=None, max_examples=15)
def test_releases_of_blocks_are_those_of_rows(cuts: list[int]) -> None:
    rows = rows_of(3, 500)
    rows[[3, 49, 50]] = np.nan
    options = {"seed": 7, "row_norm": 2.0}
    single, blocks = (new(fpl(70, horizon=500), **options) for _ in range(2))
    assert same(feed(blocks, rows, cuts), single.push_many(rows).releases)
    assert blocks.admission == single.admission


def test_rewards_and_regret_are_those_of_rows_up_to_rounding() -> None:
    rows = rows_of(6, 400)
    single, blocks = (new(fpl(), seed=1, row_norm=2.0, regret=sp.RegretLog(every=50)) for _ in range(2))
    rewards = single.push_many(rows).rewards
    steps = [blocks.push_block(block) for block in blocks.leaves().blocks([rows], 0)]
    assert np.allclose([s.reward for s in steps], rewards.reshape(8, 50).sum(axis=1), rtol=1e-12)
    assert len(single.regret.history) == 8
    for one, other in zip(single.regret.history, blocks.regret.history, strict=True):
        assert (one.t, one.opt, one.regret) == (other.t, other.opt, pytest.approx(other.regret, rel=1e-9))


def test_algorithms_that_need_rows_refuse_blocks() -> None:
    block = BlockGram.of(onto_ball(rows_of(1, 10)))
    people = new(fpl(unit="who", horizon=100))
    for stream in (new(sp.Oja(n_components=2)), new(fpl(publish_regret=True)), people):
        with pytest.raises(UsageError, match=r"needs rows, not Gram matrices|does not show whose rows"):
            stream.push_block(block)
        assert stream.t == 0
    perturbed = sp.papers.PerturbedLeader(n_components=2, epsilon=1.0, center=False, release_every=10)
    leader, other = sp.Stream(perturbed, row_norm=1.0, seed=3), sp.Stream(perturbed, row_norm=1.0, seed=3)
    step = leader.push_block(block)
    assert same([step.release], other.push_many(rows_of(1, 10)).releases)


def test_blocks_that_do_not_fit_change_nothing() -> None:
    rows = onto_ball(rows_of(1, 60))
    account = Mock(spec=["debit"])
    stream = new(fpl(horizon=100), seed=1, account=account)
    good = next(stream.leaves().blocks([rows], 0))
    other = new(fpl(), row_norm=2.0).leaves()
    wrong = [
        (BlockGram.of(rows), "a release is due after 50"),
        (BlockGram.of(rows[:10], first=2), "first=2: expected row 1"),
        (BlockGram.of(rows[:10, :3]), "3 features, expected 4"),
        (next(other.blocks([rows], 0)), "admitted with other settings"),
        (rows, "expected a BlockGram"),
    ]
    for block, message in wrong:
        with pytest.raises(UsageError, match=message):
            stream.push_block(block)
    assert stream.t == 0
    assert account.debit.call_count == 0
    stream.push_block(good)
    assert account.debit.call_count == 1
    with pytest.raises(BadParameterError, match="expected row 51"):  # delivered twice
        stream.push_block(good)
    leaves = stream.leaves()
    stream.push_block(next(leaves.blocks([rows[:50]], 50)))
    with pytest.raises(HorizonReachedError):
        stream.push_block(BlockGram.of(rows[:1]))
    with pytest.raises(HorizonReachedError):
        list(leaves.blocks([rows[:1]], 100))


def test_what_cannot_be_a_gram_matrix_is_refused() -> None:
    block = BlockGram.of(onto_ball(rows_of(1, 10)))
    with pytest.raises(BadRowError, match="no Gram matrix of 4 rows"):
        BlockGram(block.high, block.low, 4)
    with pytest.raises(BadRowError, match="no Gram matrix"):
        BlockGram(-block.high - 1, block.low, 10)
    with pytest.raises(UsageError, match="no packed Gram matrix"):
        BlockGram(block.high[:-1], block.low[:-1], 10)
    with pytest.raises(BadRowError, match="no Gram matrix of 4 rows"):
        fpl().start(D).absorb_gram(4, block.high, block.low)


def test_blocks_are_of_this_admission_and_version_and_of_the_size_that_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {}, {"row_norm": 2.0}, {"bounds": (-1, 1)}
    streams = *(new(fpl(), **each) for each in options), new(fpl(center=True))
    assert len({admission_mark(stream.leaves().admission) for stream in streams}) == 4
    with pytest.raises(UsageError, match="features must be known"):
        sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, release_every=1, center=False), row_norm=1.0).leaves()
    stream = new(fpl())
    leaves, rows = stream.leaves(), rows_of(1, 25_000)
    cutter = BlockCutter(leaves.admission, release_every=10_000, horizon=25_000)
    assert [block.count for block in cutter.blocks([rows[3:9000], rows[9000:]], 3)] == [9997, 10_000, 5000]
    made = next(leaves.blocks([rows[:10]], 0))
    monkeypatch.setattr("streampca.rows.admission.VERSION", 0)
    admission_mark.cache_clear()  # another process has named none
    with pytest.raises(UsageError, match="by another version"):
        stream.push_block(made)


def test_an_epoch_is_durable_as_a_whole_or_not_at_all(tmp_path) -> None:
    rows = rows_of(12, 300)
    single = new(fpl(), seed=1).push_many(rows).releases
    store = sp.Store(tmp_path / "run.db", commit_every=1)
    stream = new(fpl(), seed=1, store=store)
    with store.in_one_commit({"epoch": 0}):
        steps = [stream.push_block(block) for block in stream.leaves().blocks([rows[:100]], 0)]
        assert store.durable == 0
        with pytest.raises(UsageError, match="durable only after all of it"):
            _ = steps[0].release
    assert steps[0].release is not None
    assert store.epoch == {"epoch": 0, "rows": 100}
    broken = (1 / 0 if i else block for i, block in enumerate(stream.leaves().blocks([rows[100:200]], 100)))
    with pytest.raises(ZeroDivisionError), store.in_one_commit({"epoch": 1}):  # noqa: PT012
        for block in broken:
            stream.push_block(block)
    with pytest.raises(Exception, match="epoch broke off"):
        stream.push(rows[0])
    stream = sp.Stream.resume(store)
    assert (stream.t, store.epoch) == (100, {"epoch": 0, "rows": 100})
    with store.in_one_commit({"epoch": 1}):
        for block in stream.leaves().blocks([rows[100:]], 100):
            stream.push_block(block)
    with store.in_one_commit({"epoch": 2}):
        pass  # an empty epoch is noted too
    assert store.epoch == {"epoch": 2, "rows": 300}
    assert same(list(store.releases()), single)
    store.close()
