"""Single rows wait and are absorbed together: nobody can tell, and every reader gets what is due."""

import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streampca as sp


def stream(every: int = 1, solver: str = "tracking", n: int = 400, **options: object) -> sp.Stream:
    processor = sp.PrivateFPL(
        n_components=2, epsilon=1.0, delta=1e-6, horizon=n, release_every=every, solver=solver,  # type: ignore[arg-type]
    )  # fmt: skip
    return sp.Stream(processor, **({"seed": 3, "regret": sp.RegretLog(every=n)} | options))  # type: ignore[arg-type]


ROWS = np.random.default_rng(0).normal(size=(400, 6))


@settings(deadline=None, max_examples=25)
@given(
    every=st.sampled_from([1, 2, 7, 100]),
    solver=st.sampled_from(["exact", "tracking"]),
    read=st.sets(st.integers(1, 120), max_size=12),
    late=st.booleans(),
)
def test_when_releases_are_read_changes_no_bit(every: int, solver: str, read: set[int], late: bool) -> None:
    one, many = stream(every, solver), stream(every, solver)
    steps = []
    for t, row in enumerate(ROWS[:120], start=1):
        steps.append(one.push(row))
        if t in read and not late:
            release = steps[-1].release
            assert (release is None) == bool(t % every)
            assert one.t == t
    block = many.push_many(ROWS[:120])
    releases = [step.release for step in steps if step.release is not None]
    assert [r.t for r in releases] == [r.t for r in block.releases] == list(range(every, 121, every))
    for ours, theirs in zip(releases, block.releases, strict=True):
        np.testing.assert_array_equal(ours.gram, theirs.gram)
        np.testing.assert_array_equal(ours.subspace.basis, theirs.subspace.basis)
    np.testing.assert_array_equal([step.reward for step in steps], block.rewards)


def test_a_row_with_no_release_due_makes_nobody_work() -> None:
    waiting = stream(every=100)
    steps = [waiting.push(row) for row in ROWS[:99]]
    assert all(step.release is None for step in steps)
    assert waiting._waiting == 99
    assert waiting.push(ROWS[99]).release is not None
    assert waiting._waiting == 0


@pytest.mark.parametrize(
    "look",
    [
        lambda s: s.release.t,
        lambda s: s.subspace and s.processor.t,
        lambda s: s.regret.now().t,
        lambda s: s.processor.t,
    ],
    ids=["release", "subspace", "regret", "processor"],
)
def test_whatever_is_looked_at_is_of_the_latest_row(look) -> None:  # type: ignore[no-untyped-def]
    looked_at = stream()
    for t, row in enumerate(ROWS[:40], start=1):
        looked_at.push(row)
        if t % 7 == 0:
            assert look(looked_at) == t


def test_the_published_regret_is_of_the_latest_row() -> None:
    processor = sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, horizon=100, publish_regret=True)
    looked_at = sp.Stream(processor, seed=3, regret=None)
    for row in ROWS[:30]:
        looked_at.push(row)
    assert looked_at.private_regret.now().t == 30


def test_releases_that_wait_are_few_where_they_are_large() -> None:
    d = 300
    wide = sp.Stream(sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6), seed=3, regret=None)
    for row in np.random.default_rng(1).normal(size=(30, d)):
        wide.push(row)
        assert wide._waiting * d * (d + 1) // 2 <= 2**18


def test_reading_in_other_threads_loses_and_doubles_no_row() -> None:
    expected = stream(regret=None).push_many(ROWS).releases[-1].gram
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        shared, done, seen = stream(regret=None), threading.Event(), []

        def reader() -> None:
            while not done.is_set():
                release = shared.release
                seen.append(0 if release is None else release.t)

        threads = [threading.Thread(target=reader) for _ in range(2)]
        for thread in threads:
            thread.start()
        for row in ROWS:
            shared.push(row)
        done.set()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert shared.t == len(ROWS)
    assert shared.release is not None
    np.testing.assert_array_equal(shared.release.gram, expected)
    assert max(seen) > 0
