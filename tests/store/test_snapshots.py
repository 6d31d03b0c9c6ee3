"""A snapshot is part of one commit: wherever that stops, the run goes on as it was."""

import sqlite3
from pathlib import Path

import pytest
from runs import ROWS, begin, proceed, rows_of, whole, writer_of

import streampca as sp
from streampca.errors import StoreCorruptError
from streampca.store import log, records
from streampca.store.database import Database
from streampca.store.reading import verify

CHUNK = 1200


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "CHUNK", CHUNK)
    monkeypatch.setattr(records, "MOST_BYTES", CHUNK)


def with_snapshot(path: Path) -> sp.Store:
    store, stream = begin(path, 200, stream={"regret": sp.RegretLog(every=1)})  # whose records make chunks
    writer_of(store).commit(snapshot=True)
    stream.push_many(ROWS[200:300])
    store.flush()
    return store


def left(path: Path) -> tuple[int, int, int]:
    """Return chunks and rows of the snapshot, and records of the log."""
    database = Database(str(path), write=False)
    chunks, entries = (len([*database.rows(table)]) for table in ("snapshot", "log"))
    rows = database.progress.snapshot
    database.close()
    return chunks, rows, entries


@pytest.mark.ci
def test_a_crash_in_any_statement_of_a_snapshot_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    statements: list[str] = []
    store = with_snapshot(tmp_path / "whole.db")
    store._open_database().db.set_trace_callback(statements.append)
    writer_of(store).commit(snapshot=True)
    store._let_go()
    assert sum("INTO snapshot" in one for one in statements) > 2, "the snapshot is not in several chunks"
    for count in range(1, len(statements) + 2):
        path = tmp_path / f"{count}.db"
        store = with_snapshot(path)
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
        assert verify(path) == (0 if done else 100)
        assert rows_of(path) == 300
        assert proceed(path) == whole()
    assert done


def test_closing_leaves_one_snapshot_and_no_log(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with_snapshot(path)._let_go()
    chunks, row, entries = left(path)
    assert chunks > 2
    assert row == 200
    assert entries
    for _ in range(2):  # the second time, there is nothing new
        proceed(path)
        assert left(path)[1:] == (900, 0)
    assert rows_of(path) == 900


def test_snapshots_come_by_themselves_when_they_are_smaller_than_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_LEAST_SNAPSHOT", 0)
    path = tmp_path / "run.db"
    store, stream = begin(path)
    seen = set()
    for start in range(0, 900, 10):
        stream.push_many(ROWS[start : start + 10])
        store.flush()
        seen.add(left(path)[1])
    assert 2 < len(seen) < 60
    store._let_go()
    assert rows_of(path) == 900


def test_the_write_ahead_log_of_the_file_stays_short(tmp_path: Path) -> None:
    store, stream = begin(tmp_path / "run.db", commit_every=1)
    for row in ROWS[:200]:
        stream.push(row)
    assert (tmp_path / "run.db-wal").stat().st_size < 2**21
    store.close()


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM snapshot WHERE number = 2",
        "DELETE FROM snapshot WHERE number = (SELECT max(number) FROM snapshot)",
        "UPDATE snapshot SET sealed = (SELECT sealed FROM snapshot WHERE number = 1) WHERE number = 2",
    ],
)
def test_damage_of_a_chunk_is_noticed(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "run.db"
    store = with_snapshot(path)
    assert store._open_database().db.execute(damage).rowcount
    store._let_go()
    with pytest.raises(StoreCorruptError, match="snapshot"):
        rows_of(path)


def test_a_snapshot_of_another_row_is_noticed(tmp_path: Path) -> None:
    """What the crash tests rest on: had a snapshot come after the progress that names it, a crash would be told."""
    path = tmp_path / "run.db"
    store = with_snapshot(path)
    database = store._open_database()
    progress = database.progress
    damaged = progress._replace(snapshot=300, folded=progress.records)
    database.transact(lambda _: database.put(progress=damaged))
    store._let_go()
    with pytest.raises(StoreCorruptError, match="snapshot"):
        rows_of(path)


def test_long_records_of_rows_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_LEAST_SNAPSHOT", 10**9)
    store, _ = begin(tmp_path / "run.db", 900)
    store.flush()
    sizes = [len(sealed) for _, sealed in store._open_database().rows("log")]
    assert len(sizes) > 10
    assert max(sizes) < 2 * CHUNK
    store._let_go()
    assert rows_of(tmp_path / "run.db") == 900
