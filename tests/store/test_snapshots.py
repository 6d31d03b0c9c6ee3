"""A snapshot is part of one commit: wherever that stops, the run goes on as it was."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest

import streampca as sp
from streampca.errors import StoreCorruptError
from streampca.store import log, records
from streampca.store.database import Database
from streampca.store.log import Writer
from streampca.store.reading import Verification
from streampca.store.store import Store

ROWS = np.random.default_rng(3).normal(size=(900, 4)) / 3.0
CHUNK = 1200


def processor() -> sp.PrivateFPL:
    return sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, release_every=50)


WHOLE = [release.to_json() for release in sp.Stream(processor(), seed=5).push_many(ROWS).releases]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "CHUNK", CHUNK)
    monkeypatch.setattr(records, "MOST_BYTES", CHUNK)


def writer_of(store: Store) -> Writer:
    assert store._writer is not None
    return store._writer


def with_snapshot(path: Path) -> tuple[Store, sp.Stream]:
    store = Store(path, commit_every="1h", snapshot_every="1h")
    stream = sp.Stream(processor(), seed=5, store=store, regret=sp.RegretLog(every=1))  # records make chunks
    stream.push_many(ROWS[:200])
    writer_of(store).commit(snapshot=True)
    stream.push_many(ROWS[200:300])
    store.flush()
    return store, stream


def left(path: Path) -> tuple[int, int, int]:
    database = Database(str(path), write=False)
    try:
        (chunks,) = database.db.execute("SELECT count(*) FROM snapshot").fetchone()
        (entries,) = database.db.execute("SELECT count(*) FROM log").fetchone()
        return chunks, database.progress.snapshot, entries
    finally:
        database.close()


@pytest.mark.ci
def test_a_crash_in_any_statement_of_a_snapshot_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    statements: list[str] = []
    store, _ = with_snapshot(tmp_path / "whole.db")
    store._open_database().db.set_trace_callback(statements.append)
    writer_of(store).commit(snapshot=True)
    store._let_go()
    assert sum("INTO snapshot" in one for one in statements) > 2, "the snapshot is not in several chunks"
    for count in range(1, len(statements) + 2):
        path = tmp_path / f"{count}.db"
        store, _ = with_snapshot(path)
        seen = 0

        def deny(*_: object, last: int = count) -> int:
            nonlocal seen
            seen += 1
            return sqlite3.SQLITE_OK if seen < last else sqlite3.SQLITE_DENY

        store._open_database().db.set_authorizer(deny)
        try:
            writer_of(store).commit(snapshot=True)
            done = True
        except StoreCorruptError:  # not authorized
            done = False
        store._open_database().db.set_authorizer(None)
        store._let_go()  # as a crash does: no more is written
        assert left(path)[1] == (300 if done else 200)
        check = Verification(path)
        assert check.replay() == (0 if done else 100)
        check.close()
        with Store(path) as again:
            stream = sp.Stream.resume(again)
            assert stream.t == 300
            stream.push_many(ROWS[300:])
            again.flush()
            assert [release.to_json() for release in again.releases()] == WHOLE
    assert done


def test_closing_leaves_one_snapshot_and_no_log(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    store, _ = with_snapshot(path)
    store._let_go()
    chunks, row, entries = left(path)
    assert chunks > 2
    assert row == 200
    assert entries
    for _ in range(2):  # the second time, there is nothing new
        with Store(path) as again:
            stream = sp.Stream.resume(again)
            stream.push_many(ROWS[stream.t :])
        assert left(path)[1:] == (900, 0)
    with Store(path) as again:
        sp.Stream.resume(again)
        assert [release.to_json() for release in again.releases()] == WHOLE


def test_snapshots_come_by_themselves_when_they_are_smaller_than_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_LEAST_SNAPSHOT", 0)
    path = tmp_path / "run.db"
    store = Store(path, commit_every="1h", snapshot_every="1h")
    stream = sp.Stream(processor(), seed=5, store=store)
    seen = set()
    for start in range(0, 900, 10):
        stream.push_many(ROWS[start : start + 10])
        store.flush()
        seen.add(left(path)[1])
    assert 2 < len(seen) < 60
    store._let_go()
    with Store(path) as again:
        assert sp.Stream.resume(again).t == 900
        assert [release.to_json() for release in again.releases()] == WHOLE


def test_the_write_ahead_log_of_the_file_stays_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_CHECKPOINT_BYTES", 2**16)
    path = tmp_path / "run.db"
    with Store(path, commit_every=1, snapshot_every="1h") as store:
        stream = sp.Stream(processor(), seed=5, store=store)
        for row in ROWS[:400]:
            stream.push(row)
        assert path.with_name("run.db-wal").stat().st_size < 2**21


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM snapshot WHERE chunk = 2",
        "DELETE FROM snapshot WHERE chunk = (SELECT max(chunk) FROM snapshot)",
        "DELETE FROM snapshot",
        "UPDATE snapshot SET chunks = chunks - 1",
        "UPDATE snapshot SET sealed = (SELECT sealed FROM snapshot WHERE chunk = 1) WHERE chunk = 2",
        "DELETE FROM log WHERE number = (SELECT max(number) FROM log)",
        "DELETE FROM log",
    ],
)
def test_damage_of_snapshot_and_log_is_noticed(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "run.db"
    store, _ = with_snapshot(path)
    assert store._open_database().db.execute(damage).rowcount
    store._let_go()
    with pytest.raises(StoreCorruptError, match=r"snapshot|missing"):
        sp.Stream.resume(Store(path))


def test_a_snapshot_of_another_row_is_noticed(tmp_path: Path) -> None:
    """What the crash tests rest on: had a snapshot come after the progress that names it, a crash would be told."""
    path = tmp_path / "run.db"
    store, _ = with_snapshot(path)
    database = store._open_database()
    progress = database.progress
    early = progress._replace(snapshot=300, folded=progress.records)
    database.transact(lambda _: database.put("progress", early))
    store._let_go()
    with pytest.raises(StoreCorruptError, match="snapshot"):
        sp.Stream.resume(Store(path))


def test_long_records_of_rows_are_cut(tmp_path: Path) -> None:
    store = Store(tmp_path / "run.db", commit_every="1h", snapshot_every="1h")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "_LEAST_SNAPSHOT", 10**9)
        sp.Stream(processor(), seed=5, store=store, on_bad_row="zero").push_many(
            np.vstack([ROWS[:100], np.full((1, 4), np.nan), ROWS[100:]])
        )
        store.flush()
    kept = store._open_database().db.execute("SELECT count, length(sealed) FROM log").fetchall()
    assert len(kept) > 10
    assert max(size for _, size in kept) < 2 * CHUNK
    assert sum(count for count, _ in kept) == 901
    store._let_go()
    with Store(tmp_path / "run.db") as again:
        stream = sp.Stream.resume(again)
        assert stream.t == 901
        assert stream.admission.bad_rows == 1
