"""How rows are cut into batches, and what a feed leaves behind when it ends early."""

import threading

import numpy as np
import pytest

import streampca as sp
from streampca.stream import feed


class Rows(sp.RowSource):
    features, bounds = ("a", "b"), None

    def __init__(self, *blocks):
        self._blocks = blocks

    def blocks(self):
        return iter(self._blocks)


def stream(**more):
    return sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, release_every=100, **more), seed=1)


def cut(*blocks, **how):
    return (batch.rows for batch in feed.batches(stream().engine, Rows(*blocks), **how))


@pytest.mark.parametrize(("seconds", "largest"), [(0.0, 8192), (0.01, 1024), (1.0, 1024)])
def test_batches_grow_while_they_are_quick(monkeypatch, seconds, largest):
    clock = [0.0]
    monkeypatch.setattr(feed.time, "perf_counter", lambda: clock[0])
    blocks = [np.arange(2.0 * n).reshape(n, 2) for n in (20_000, 5, 30_000)]
    batches = []
    for batch in cut(*blocks, limit=45_000):
        batches.append(batch)
        clock[0] += seconds
    np.testing.assert_array_equal(np.concatenate(batches), np.concatenate(blocks)[:45_000])
    assert max(map(len, batches)) == largest


def test_batches_shrink_when_they_are_slow(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(feed.time, "perf_counter", lambda: clock[0])
    sizes = []
    for batch in cut(np.zeros((100_000, 2))):
        sizes.append(len(batch))
        clock[0] += 0.0 if len(sizes) < 5 else 0.5
    assert sizes[:9] == [1024, 2048, 4096, 8192, 8192, 4096, 2048, 1024, 1024]
    assert sum(sizes) == 100_000


def test_wide_rows_come_in_small_batches():
    wide = np.zeros((100, 2**15))
    assert {len(batch) for batch in cut(wide)} == {4}


def test_a_feed_that_is_closed_leaves_the_stream_after_a_whole_batch():
    fed, rows = stream(), np.random.default_rng(0).normal(size=(5000, 2)) / 3
    steps = feed.feed(fed.engine, Rows(rows))
    next(steps)
    steps.close()
    assert fed.t == feed.SMALLEST
    other = stream()
    assert other.push_many(rows[: fed.t]).releases
    np.testing.assert_array_equal(fed.release.packed, other.release.packed)


def test_no_rows_are_nothing():
    fed = stream()
    assert list(feed.feed(fed.engine, Rows())) == []
    assert (fed.t, fed.features) == (0, ("a", "b"))


def test_the_rows_before_a_bad_one_and_before_the_horizon_are_absorbed():
    rows = np.full((300, 2), 0.5)
    rows[250, 1] = np.nan
    fed = stream()
    with pytest.raises(sp.errors.BadRowError):
        list(feed.feed(fed.engine, Rows(rows)))
    assert (fed.t, fed.release.t) == (250, 200)
    short = stream(horizon=120)
    with pytest.raises(sp.errors.HorizonReachedError):
        list(feed.feed(short.engine, Rows(rows[:200])))
    assert (short.t, short.release.t) == (120, 120)


def test_feeds_of_two_threads_interleave_whole_batches():
    fed, blocks = stream(), [np.full((3000, 2), sign * 0.5) for sign in (1.0, -1.0)]
    firsts = [[], []]

    def work(number):
        for steps in feed.feed(fed.engine, Rows(blocks[number])):
            firsts[number].append((steps.first, len(steps)))

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    covered = sorted(one for part in firsts for one in part)
    assert fed.t == 6000
    assert [first for first, _ in covered] == [1, *np.cumsum([size for _, size in covered])[:-1] + 1]
