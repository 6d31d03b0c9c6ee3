"""How rows are cut into batches, and what a feed leaves behind when it ends early."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from runs import Blocks

import streampca as sp
from streampca.errors import UsageError
from streampca.rows.protocol import NumberedRows
from streampca.stream import feed


def stream(**more):
    return sp.Stream(
        sp.PrivateFPL(n_components=1, epsilon=1.0, center=False, release_every=100, **more), row_norm=1.0, seed=1
    )


def test_rows_come_in_batches_of_bounded_size_in_order():
    blocks = [np.arange(2.0 * n).reshape(n, 2) for n in (20_000, 5, 30_000)]
    batches = [batch.rows for batch in feed.batches(stream().engine, Blocks(*blocks), limit=45_000)]
    np.testing.assert_array_equal(np.concatenate(batches), np.concatenate(blocks)[:45_000])
    assert max(map(len, batches)) == feed.ROWS
    wide = feed.batches(stream().engine, Blocks(np.zeros((100, 2**15))))
    assert {len(batch.rows) for batch in wide} == {4}


def test_a_feed_that_is_closed_leaves_the_stream_after_a_whole_batch():
    fed, other, rows = stream(), stream(), np.random.default_rng(0).normal(size=(5000, 2)) / 3
    steps = feed.feed(fed.engine, Blocks(rows))
    next(steps)
    steps.close()
    assert fed.t == feed.ROWS
    np.testing.assert_array_equal(fed.release.packed, other.push_many(rows[: fed.t]).releases[-1].packed)


def test_the_rows_before_the_horizon_are_absorbed():
    fed = stream(horizon=120)
    with pytest.raises(sp.errors.HorizonReachedError):
        list(feed.feed(fed.engine, Blocks(np.full((300, 2), 0.5))))
    assert (fed.t, fed.release.t) == (120, 120)
    empty = stream()
    assert list(feed.feed(empty.engine, Blocks())) == []
    assert (empty.t, empty.features) == (0, ("a", "b"))


def test_two_feeds_of_one_source_count_each_row_once(tmp_path):
    fed = sp.Stream(stream().algorithm, row_norm=1.0, seed=1, store=sp.Store(tmp_path / "run.db"))
    first, second, other = (
        feed.feed(fed.engine, NumberedRows(Blocks(np.full((9000, 2), 0.5)), name), new_source=name == "b")
        for name in ("a", "a", "b")
    )
    next(first), next(second)
    with pytest.raises(UsageError, match="another run read rows of this source"):
        next(first)
    assert fed.t == 2 * feed.ROWS
    list(second)
    assert fed.t == 9000
    list(other)
    assert fed.t == 18_000
    fed.close()


def test_feeds_of_two_threads_interleave_whole_batches():
    fed, blocks = stream(), [np.full((9000, 2), sign * 0.5) for sign in (1.0, -1.0)]
    firsts = [[], []]

    def work(number):
        for steps in feed.feed(fed.engine, Blocks(blocks[number])):
            firsts[number].append((steps.first, len(steps)))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(work, (0, 1)))
    covered = sorted(one for part in firsts for one in part)
    assert fed.t == 18_000
    assert [first for first, _ in covered] == [1, *np.cumsum([size for _, size in covered])[:-1] + 1]
