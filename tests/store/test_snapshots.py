"""Large snapshots are written in pieces between commits: wherever that stops, the run goes on as it was."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streampca as sp
from streampca.errors import StoreCorrupt
from streampca.store import entries, fold, writer
from streampca.store.codec import encode, in_pieces, parts_of
from streampca.store.database import Database
from streampca.store.store import Store
from streampca.store.thread import Idle, Job, WritingThread
from streampca.store.verify import Verification
from streampca.store.writer import Writer

ROWS = np.random.default_rng(3).normal(size=(900, 4)) / 3.0
PIECE = 1200


def processor() -> sp.PrivateFPL:
    return sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, release_every=50)


WHOLE = [release.to_json() for release in sp.Stream(processor(), seed=5).push_many(ROWS).releases]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (entries, fold, writer):
        monkeypatch.setattr(module, "PIECE", PIECE)


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Steps between commits are taken by the test."""
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_tend", no_steps)
        yield


TEND = Writer._tend


def no_steps(_: Writer) -> None:
    """What the writing thread does between commits where the test takes the steps."""


def pen_of(store: Store) -> Writer:
    assert store._writer is not None
    return store._writer


def begin_snapshot(store: Store) -> Writer:
    """A run of 300 rows with a snapshot at row 200 in place, and one at row 300 about to be written."""
    stream = sp.Stream(processor(), seed=5, store=store)
    pen = pen_of(store)
    for rows in (200, 100):
        stream.push_many(ROWS[stream.t : stream.t + rows])
        pen.commit(snapshot=True)
        assert pen._fold is not None
        if rows == 200:
            take_steps(pen, 10**6)
    return pen


def take_steps(pen: Writer, count: int) -> int:
    taken = 0
    while pen._fold is not None and taken < count:
        pen._thread.do(lambda: TEND(pen) and None)
        taken += 1
    return taken


def left(path: Path) -> tuple[int, int, int]:
    """How many snapshots have pieces in the file, the row of the one that counts, and the records of the log."""
    database = Database(str(path), write=False)
    try:
        (snapshots,) = database.db.execute("SELECT count(DISTINCT number) FROM snapshot").fetchone()
        (records,) = database.db.execute("SELECT count(*) FROM log").fetchone()
        return snapshots, database.progress.snapshot, records
    finally:
        database.close()


@pytest.mark.usefixtures("by_hand")
def test_a_crash_after_any_step_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    whole = Store(tmp_path / "whole.db", commit_every="1h", snapshot_every="1h")
    steps = take_steps(begin_snapshot(whole), 10**6)
    whole._let_go()
    named = []
    assert steps >= 8
    for count in range(steps + 1):
        path = tmp_path / f"{count}.db"
        store = Store(path, commit_every="1h", snapshot_every="1h")
        take_steps(begin_snapshot(store), count)
        store._let_go()  # as a crash does: no more is written
        check = Verification(path)
        named.append(300 - check.replay())
        check.close()
        again = Store(path)
        stream = sp.Stream.resume(again)
        assert stream.t == 300
        take_steps(pen_of(again), 10**6)
        snapshots, row, records = left(path)
        assert (snapshots, row) == (1, named[-1]), "superseded pieces were left"
        assert (records == 0) == (row == 300)
        stream.push_many(ROWS[300:])
        again.flush()
        assert [release.to_json() for release in again.releases()] == WHOLE
        again._let_go()
    assert named == sorted(named)
    assert set(named) == {200, 300}


def test_the_next_writer_deletes_what_a_crash_left_and_closing_leaves_one_snapshot(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "_tend", no_steps)
        store = Store(path, commit_every="1h", snapshot_every="1h")
        take_steps(begin_snapshot(store), 3)
        store._let_go()
    snapshots, _, records = left(path)
    assert snapshots == 2
    assert records
    for _ in range(2):  # the second time, there is nothing new
        with Store(path) as again:
            stream = sp.Stream.resume(again)
            stream.push_many(ROWS[stream.t :])
        assert left(path) == (1, 900, 0)
    with Store(path) as again:
        sp.Stream.resume(again)
        assert [release.to_json() for release in again.releases()] == WHOLE


@pytest.mark.usefixtures("by_hand")
def test_commits_take_their_turns_while_a_snapshot_is_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.db", commit_every="1h", snapshot_every="1h")
    pen = begin_snapshot(store)
    stream = pen._stream
    while pen._fold is not None:
        steps = stream.push_many(ROWS[stream.t : stream.t + 10])
        store.flush()  # returns, though the snapshot is not done
        assert store.durable == stream.t
        assert [release.to_json() for release in steps.releases] in ([], [WHOLE[stream.t // 50 - 1]])
        take_steps(pen, 1)
    done = stream.t
    assert done >= 350
    store._let_go()
    again = Store(tmp_path / "run.db")
    assert sp.Stream.resume(again).t == done
    again._let_go()
    assert left(tmp_path / "run.db")[:2] == (1, 300)


def steps_before_commits(store: Store, blocks: int, tend: Callable[[Writer], Idle | None]) -> tuple[int, int]:
    """Most steps that a commit had to wait for while snapshots are taken again and again, and how many were taken."""
    steps = worst = at = 0
    step, write, begin = Writer._take_step, Writer._write, WritingThread.begin

    def counted(self: Writer, fold: Iterator[int]) -> None:
        nonlocal steps
        step(self, fold)
        steps += 1

    def submitted(self: WritingThread, work: Callable[[], Idle | None]) -> Job:
        nonlocal at
        at = steps
        return begin(self, work)

    def written(self: Writer, snapshot: bool = False) -> Idle | None:
        nonlocal worst
        worst = max(worst, steps - at)
        return write(self, snapshot)

    with pytest.MonkeyPatch.context() as patch:
        for name, by in (("_take_step", counted), ("_write", written), ("_tend", tend)):
            patch.setattr(Writer, name, by)
        patch.setattr(WritingThread, "begin", submitted)
        patch.setattr(writer, "_LEAST_SNAPSHOT", 0)
        stream = sp.Stream(processor(), seed=5, store=store)
        for start in range(0, 10 * blocks, 10):
            pen_of(store)._snapshot_bytes = 0
            stream.push_many(ROWS[start : start + 10])
            store.flush()
            time.sleep(0.001)
        store.close()
    return worst, steps


def test_a_commit_waits_for_one_step_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (entries, fold, writer):
        monkeypatch.setattr(module, "PIECE", 100)
    worst, steps = steps_before_commits(Store(tmp_path / "run.db"), 90, TEND)
    assert worst <= 1
    assert steps > 90

    def greedy(self: Writer) -> None:  # what must not be: several steps stand before a commit
        while self._fold is not None:
            self._take_step(self._fold)

    worst, _ = steps_before_commits(Store(tmp_path / "greedy.db"), 30, greedy)
    assert worst > 1


def test_steps_are_small(tmp_path: Path) -> None:
    """Of a snapshot, and of what it supersedes: no step writes more than a piece."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "_tend", no_steps)
        store = Store(tmp_path / "run.db", commit_every="1h", snapshot_every="1h")
        pen = begin_snapshot(store)
        assert pen._fold is not None
        written = list(pen._fold)
        pen._fold = None
        store._let_go()
    assert max(written) <= PIECE + 300  # head, nonce and tag
    assert sum(written) > 3 * PIECE


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM snapshot WHERE piece = 2",
        "DELETE FROM snapshot WHERE piece = (SELECT max(piece) FROM snapshot)",
        "UPDATE snapshot SET pieces = pieces - 1",
        "UPDATE snapshot SET sealed = (SELECT sealed FROM snapshot WHERE piece = 1) WHERE piece = 2",
    ],
)
def test_a_damaged_piece_is_noticed(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "run.db"
    store = Store(path, commit_every="1h", snapshot_every="1h")
    take_steps(begin_snapshot(store), 10**6)
    assert store._open_database().db.execute(damage).rowcount
    store._let_go()
    with pytest.raises(StoreCorrupt, match="snapshot"):
        sp.Stream.resume(Store(path))


def test_a_snapshot_named_too_early_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the crash tests rest on: had the last pieces come after the name, a crash between would be told."""
    path = tmp_path / "run.db"
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "_tend", no_steps)
        store = Store(path, commit_every="1h", snapshot_every="1h")
        pen = begin_snapshot(store)
        take_steps(pen, 2)
        database, progress = store._open_database(), pen._progress
        early = progress._replace(snapshot=300, folded=progress.records)
        database.transact(lambda _: database.put("progress", early))
        store._let_go()
    with pytest.raises(StoreCorrupt, match="snapshot"):
        sp.Stream.resume(Store(path))


def test_long_records_of_rows_are_cut(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.db", commit_every="1h", snapshot_every="1h")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "_LEAST_SNAPSHOT", 10**9)
        sp.Stream(processor(), seed=5, store=store, on_bad_row="zero").push_many(
            np.vstack([ROWS[:100], np.full((1, 4), np.nan), ROWS[100:]])
        )
        store.flush()
    kept = store._open_database().db.execute("SELECT count, length(sealed) FROM log").fetchall()
    assert len(kept) > 10
    assert max(size for _, size in kept) < 2 * PIECE
    assert sum(count for count, _ in kept) == 901
    store._let_go()
    with Store(tmp_path / "run.db") as again:
        stream = sp.Stream.resume(again)
        assert stream.t == 901
        assert stream.bad_rows == 1


def test_the_release_at_the_end_of_a_stream_is_durable_when_it_is_handed_out(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    store = Store(path, commit_every="1h")
    whole = sp.Tumbling(
        sp.GaussianCovariance(n_components=1, epsilon=1.0, delta=1e-6), every=40, horizon=100, keep_short=True
    )
    stream = sp.Stream(whole, seed=3, store=store)
    stream.push_many(ROWS[:90])
    last = stream.finish()
    assert last is not None
    store._let_go()  # as a crash does
    database = Database(str(path), write=False)
    assert database.progress[:2] == (90, 3)
    assert database.progress.released == last.t
    assert [fields["t"] for fields in database.releases()] == [40, 80, last.t]
    database.close()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=6), st.integers(1, 64))
def test_pieces_are_the_whole(sizes: list[int], size: int) -> None:
    draw = np.random.default_rng(sum(sizes))
    value = [draw.normal(size=(n, 3)) if n % 2 else np.asfortranarray(draw.normal(size=(2, n))) for n in sizes]
    pieces = list(in_pieces(parts_of(value), size))
    assert b"".join(pieces) == encode(value)
    assert all(len(piece) == size for piece in pieces[:-1])
    assert 0 < len(pieces[-1]) <= size
