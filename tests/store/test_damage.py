"""Damaged, full, foreign, future: one clear error each, or the same bits. Never anything else."""

import os
import sqlite3
import stat
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import ROWS, begin, fpl, proceed, rows_of, texts, whole, writer_of

import streampca as sp
from streampca import _native
from streampca.errors import StoreCorruptError, StoreForkedError, StoreUnwritableError, UsageError, WrongKeyError
from streampca.store.database import SCHEMA
from streampca.store.keys import read_key
from streampca.store.reading import backup, status
from streampca.store.records import decode, encode

REFUSED = StoreCorruptError, StoreForkedError, UsageError


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Files of a run of 700 rows, of which 300 are in a snapshot, after a crash."""
    path = tmp_path_factory.mktemp("whole") / "run.db"
    store, stream = begin(path, 300, commit_every=100)
    writer_of(store).commit(snapshot=True)
    for start in range(300, 700, 100):
        stream.push_many(ROWS[start : start + 100])
    found = {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}
    store.close()
    return found


@pytest.fixture
def path(tmp_path: Path, files: dict[str, bytes]) -> Path:
    restore(tmp_path, files)
    return tmp_path / "run.db"


def restore(folder: Path, files: dict[str, bytes]) -> None:
    for file in [*folder.glob("*-shm"), *folder.glob("*-wal")]:
        file.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)
        (folder / name).chmod(0o600)


def closed(path: Path) -> bytes:
    """Move the write-ahead log into the database."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
    return path.read_bytes()


def damages(data: bytes) -> list[tuple[str, bytes]]:
    """Return the database with flipped bits, and cut off."""
    draw, made = np.random.default_rng(0), []
    for place in draw.integers(0, len(data), 32).tolist():
        changed = bytearray(data)
        changed[place] ^= 1 << int(draw.integers(8))
        made.append((f"bit of byte {place}", bytes(changed)))
    cuts = (0, 1, 100, 5000, len(data) // 2, len(data) - 16384, len(data) - 1)
    return made + [(f"{keep} bytes", data[:keep]) for keep in cuts]


def test_flipped_bits_and_missing_pages_are_noticed_or_harmless(path: Path, files: dict[str, bytes]) -> None:
    data, refused = closed(path), 0
    del (kept := dict(files))["run.db-wal"]
    for what, damaged in damages(data):
        restore(path.parent, kept | {"run.db": damaged})
        try:
            assert proceed(path) == whole(), what
        except REFUSED:
            refused += 1
    assert refused >= 8  # most of a small file is free space and padding
    restore(path.parent, kept | {"run.db": data})
    assert proceed(path) == whole()


def test_a_write_ahead_log_cut_anywhere_gives_the_same_bits_or_is_refused(path: Path, files: dict[str, bytes]) -> None:
    log, fine = files["run.db-wal"], 0
    for cut in [*np.random.default_rng(0).integers(0, len(log), 12).tolist(), len(log)]:
        restore(path.parent, files | {"run.db-wal": log[:cut]})
        with suppress(*REFUSED):  # rows that a disk claimed to have written are gone: never continued with others
            assert proceed(path) == whole()
            fine += 1
    assert fine >= 1


def changed(table: str, column: str) -> str:
    return f"UPDATE {table} SET {column} = CAST(substr({column}, 1, length({column}) - 1) || x'01' AS BLOB)"


@pytest.mark.parametrize(
    "statement",
    [
        changed("log", "sealed"), changed("snapshot", "sealed"), changed("releases", "record"),
        changed("facts", "value"), "UPDATE points SET digest = 'other'", "DELETE FROM facts WHERE name = 'progress'",
        "DELETE FROM log", "DELETE FROM log WHERE number = (SELECT max(number) FROM log)",
        "DELETE FROM log WHERE number = (SELECT min(number) FROM log)", "DELETE FROM snapshot",
        "DELETE FROM releases", "DELETE FROM releases WHERE number = 400",
        "UPDATE log SET sealed = (SELECT sealed FROM log LIMIT 1)",
    ],
)  # fmt: skip
def test_a_changed_or_missing_record_is_noticed(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        assert db.execute(statement).rowcount
    with pytest.raises((StoreCorruptError, StoreForkedError)):
        proceed(path)


def test_keys(path: Path, tmp_path: Path) -> None:
    key = Path(f"{path}.key")
    begin(tmp_path / "other.db")[0].close()
    other, text = tmp_path / "other.db.key", key.read_text()
    assert stat.S_IMODE(other.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "other.db").stat().st_mode) & 0o077 == 0
    key.chmod(0o640)
    with pytest.raises(WrongKeyError, match="chmod 600"):
        proceed(path)
    key.chmod(0o600)
    digit = text.index('"key":"') + 7
    other_digit = text[:digit] + ("A" if text[digit] != "A" else "B") + text[digit + 1 :]
    for damaged, told in (
        (text.replace("seeded", "seedes"), "damaged"), (text[:-5], "damaged"), ("", "damaged"), ("\x00\xff", "damaged"),
        (other_digit, "not that of the run"), (other.read_text(), "not that of the run"),
    ):  # fmt: skip
        key.write_text(damaged)
        with pytest.raises(WrongKeyError, match=told):
            proceed(path)
    key.unlink()
    with pytest.raises(WrongKeyError, match="missing"):
        proceed(path)
    other.rename(tmp_path / "new.db.key")
    with pytest.raises(WrongKeyError, match="may be the key of a lost run"):
        begin(tmp_path / "new.db")
    key.write_text(text)
    key.chmod(0o600)
    assert proceed(path) == whole()


def test_foreign_and_future_databases_and_links(path: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "foreign.db")) as db:
        db.execute("CREATE TABLE t (x)")
    (tmp_path / "text.db").write_text("not a database, " * 300)
    for name, told in (("foreign", "another program"), ("text", "damaged or not a store")):
        with pytest.raises(StoreCorruptError, match=told):
            begin(tmp_path / f"{name}.db")
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere.db")
    with pytest.raises(UsageError, match=r"link\.db is a symbolic link"):
        sp.Store(tmp_path / "link.db")
    for schema in (SCHEMA - 1, SCHEMA + 1):
        with closing(sqlite3.connect(path)) as db:
            db.execute(f"PRAGMA user_version = {schema}")
        for read in (lambda: proceed(path), lambda: status(path), lambda: backup(path, tmp_path / "b.db")):
            with pytest.raises(StoreCorruptError, match="Use the version that wrote it"):
                read()


_CONSTANTS = sp.PrivateFPL.constants


@pytest.mark.parametrize(
    ("patched", "value", "told"),
    [
        ("privacy.outlet.SCHEME", 99, "another version of streampca .noise scheme"),
        ("privacy.randomness.VERSION", 99, "another version of streampca .version of the sampler"),
        ("rows.admission.VERSION", 99, "another version of streampca .version of admission"),
        ("PrivateFPL.constants", lambda *one: (*_CONSTANTS(*one), 1e-300), "differ from those that were stored"),
    ],
)
def test_a_run_of_another_version_or_other_constants_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, patched: str, value: Any, told: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(f"streampca.{patched}", value)
        with pytest.raises(StoreCorruptError, match=told):
            proceed(path)
    assert proceed(path) == whole()


def test_rows_and_fresh_bytes_that_do_not_belong_together_are_noticed(path: Path) -> None:
    """Sealed records of one run, put together in another way by who has the key."""
    key = read_key(path.with_name("run.db.key"), None)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        (number, sealed) = db.execute("SELECT number, sealed FROM log ORDER BY number LIMIT 1").fetchone()
        record = decode(key.open("entry", number, sealed))
        record["fresh"] = record["fresh"][::-1].copy()
        db.execute("UPDATE log SET sealed = ? WHERE number = ?", (key.seal("entry", number, encode(record)), number))
    with pytest.raises(StoreCorruptError, match="hides other values"):
        proceed(path)


@pytest.mark.skipif(not _native.available(), reason="the kernels are not compiled")
@pytest.mark.parametrize("written_compiled", [True, False])
def test_a_store_that_other_kernels_wrote_is_continued(tmp_path: Path, written_compiled: bool) -> None:
    before, path = _native.use(True), tmp_path / "run.db"
    try:
        _native.use(written_compiled)
        store = sp.Store(path, commit_every="1h", snapshot_every="1h")
        stream = sp.Stream(replace(fpl(), solver="tracking", release_every=3), row_norm=1.0, store=store)
        stream.push_many(ROWS[:300])
        store.flush()
        store._let_go()
        _native.use(not written_compiled)
        for _ in range(2):
            with sp.Store(path) as store:
                assert sp.Stream.resume(store).t == 300
    finally:
        _native.use(before)


def test_a_full_disk_loses_nothing_and_releases_nothing(path: Path) -> None:
    store = sp.Store(path)
    stream = sp.Stream.resume(store)
    database = store._open_database().db
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages}")

    def feed() -> None:
        for _ in range(200):
            stream.push_many(ROWS[700:800])
            assert stream.release is not None

    with pytest.raises(StoreUnwritableError, match="disk is full"):
        feed()
    durable = store.durable
    for read in (lambda: stream.push(ROWS[0]), lambda: stream.release, stream.engine.subspace):
        with pytest.raises(StoreUnwritableError):
            read()
    held, rows = texts(store.releases()), stream.t
    assert rows > durable
    database.execute(f"PRAGMA max_page_count = {2**30}")  # somebody makes room: nothing is lost, and it goes on
    assert stream.release is not None
    assert store.durable == rows
    store.close()
    with sp.Store(path) as store:
        assert sp.Stream.resume(store).t == rows
        assert texts(store.releases())[: len(held)] == held


@pytest.mark.parametrize(
    ("name", "errno", "told"),
    [("open", 30, "Read-only file system"), ("pwrite", 28, "disk is full"), ("fsync", 5, "Input/output error")],
)
def test_a_disk_that_cannot_be_written_holds_the_releases_back(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str, errno: int, told: str
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno, os.strerror(errno), str(path))

    if name != "pwrite":
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse)
            with pytest.raises(StoreUnwritableError, match=told):
                proceed(path)
    else:
        store = sp.Store(path)
        steps = (stream := sp.Stream.resume(store)).push_many(ROWS[700:800])
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse)
            with pytest.raises(StoreUnwritableError, match=told):
                _ = steps.releases
        assert texts(steps.releases) == whole()[70:80]
        assert stream.t == 800
        store.close()
        assert rows_of(path) == 800
    assert proceed(path) == whole()


def test_encoding_keeps_values_and_memory_order_and_refuses_what_is_not_data() -> None:
    nested = {"a": [1, {"b": np.arange(6.0).reshape(2, 3)}]}
    for value in (None, 1, -0.0, "text", b"bytes", [], {}, nested, np.zeros((0, 3)), np.float64(2.5)):
        assert encode(decode(encode(value))) == encode(value)
    array = decode(encode({"x": np.asfortranarray(np.arange(6.0).reshape(2, 3))}))["x"]
    assert (array.flags.f_contiguous, array.flags.c_contiguous) == (True, False)
    assert np.array_equal(array, np.arange(6.0).reshape(2, 3))
    for bad in (object(), np.array(["a"]), np.array([object()]), np.array([1j]), 1j, 2**64):
        with pytest.raises(UsageError):
            encode(bad)
