"""Damaged, copied, set back, full, foreign, future: one clear error each, or the same bits. Never anything else."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streampca as sp
from streampca import _native
from streampca.errors import (
    BadParameterError,
    StoreCorruptError,
    StoreForkedError,
    StoreLockedError,
    StoreUnwritableError,
    WrongKeyError,
)
from streampca.store.database import SCHEMA
from streampca.store.keys import Seal, read_key
from streampca.store.reading import Verification, backup, status
from streampca.store.records import decode, encode
from streampca.store.store import Store

ROWS = np.random.default_rng(3).normal(size=(900, 4)) / 3.0


def processor() -> sp.PrivateFPL:
    return sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, release_every=50)


WHOLE = [release.to_json() for release in sp.Stream(processor(), seed=5).push_many(ROWS).releases]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    whole, crashed = tmp_path / "whole", tmp_path / "crashed"
    whole.mkdir()
    crashed.mkdir()
    store = Store(whole / "run.db", commit_every=100, snapshot_every="1h")
    stream = sp.Stream(processor(), seed=5, store=store)
    stream.push_many(ROWS[:300])
    assert store._writer is not None
    store._writer.commit(snapshot=True)
    for start in range(300, 700, 100):
        stream.push_many(ROWS[start : start + 100])
    for file in whole.iterdir():  # the files as they are now, write-ahead log and all
        shutil.copy2(file, crashed / file.name)
    persist = sqlite3.connect(crashed / "run.db")
    persist.execute("PRAGMA wal_checkpoint(PASSIVE)")
    persist.close()
    store.close()
    return crashed / "run.db"


class of_rows:  # noqa: N801
    features = ()
    bounds = None

    def __init__(self, rows: np.ndarray) -> None:
        self._rows = rows

    def blocks(self) -> Iterator[np.ndarray]:
        yield from np.array_split(self._rows, 7)


def finish(path: Path, **options: Any) -> list[str]:
    with Store(path, **options) as store:
        stream = sp.Stream.resume(store)
        stream.push_many(ROWS[stream.t :])
        store.flush()
        return [release.to_json() for release in store.releases()]


def copied(path: Path) -> Path:
    """Copy a store with its key, without its witness."""
    twin = path.with_name("twin.db")
    shutil.copy(path, twin)
    shutil.copy2(f"{path}.key", f"{twin}.key")
    return twin


def test_an_undamaged_run_goes_on(path: Path) -> None:
    assert finish(path) == WHOLE


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_are_noticed_or_harmless(path: Path, seed: int) -> None:
    draw, data = np.random.default_rng(seed), path.read_bytes()
    noticed = 0
    for place in draw.integers(0, len(data), 12).tolist():
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(draw.integers(8))
        path.write_bytes(damaged)
        path.with_name("run.db-wal").unlink(missing_ok=True)
        path.with_name("run.db-shm").unlink(missing_ok=True)
        witness = path.with_name("run.db.witness").read_bytes()
        try:
            with Store(path) as store:
                stream = sp.Stream.resume(store)
                assert stream.t == 700
                assert [release.to_json() for release in store.releases()] == WHOLE[:14]
                rest = [release.to_json() for release in stream.push_many(ROWS[700:]).releases]
                assert rest == WHOLE[14:]
        except (StoreCorruptError, StoreForkedError):
            noticed += 1
        path.with_name("run.db.witness").write_bytes(witness)
    assert noticed >= 1 or seed  # most of a small file is free space and padding


@pytest.mark.parametrize("change", ["log", "snapshot", "releases", "meta", "points", "-log", "-snapshot", "-releases"])
def test_a_changed_or_missing_record_is_noticed(path: Path, change: str) -> None:
    table = change.removeprefix("-")
    column = {"releases": "record", "meta": "value", "points": "digest"}.get(table, "sealed")
    with sqlite3.connect(path) as db:
        if table != change:
            db.execute(f"DELETE FROM {table} WHERE rowid = (SELECT rowid FROM {table} LIMIT 1)")
        else:
            last = " WHERE t = 700" if table == "points" else " LIMIT 1"
            (value,) = db.execute(f"SELECT {column} FROM {table}{last}").fetchone()
            changed = "other" if isinstance(value, str) else value[:-1] + bytes([value[-1] ^ 1])
            db.execute(f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (changed, value))
    db.close()
    with pytest.raises(StoreCorruptError if table != change else (StoreCorruptError, StoreForkedError)):
        finish(path)


def test_truncated_files_are_noticed(path: Path) -> None:
    files = {file: file.read_bytes() for file in path.parent.iterdir()}
    data, refused = files[path], 0
    for keep in (0, 1, 100, 5000, len(data) // 2, len(data) - 16384, len(data) - 1, len(data)):
        for file, whole in files.items():
            file.write_bytes(whole)
        path.write_bytes(data[:keep])
        path.with_name("run.db-wal").unlink(missing_ok=True)
        path.with_name("run.db-shm").unlink(missing_ok=True)
        try:
            assert finish(path) == WHOLE
        except (StoreCorruptError, StoreForkedError, BadParameterError):
            refused += 1
    assert refused >= 5
    assert finish(path) == WHOLE


def test_a_write_ahead_log_cut_anywhere_gives_the_same_bits_or_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    store = Store(path, commit_every=50, snapshot_every="1h")
    stream = sp.Stream(processor(), seed=5, store=store)
    for start in range(0, 300, 50):
        stream.push_many(ROWS[start : start + 50])
    log = path.with_name("run.db-wal").read_bytes()
    files = {name: path.with_name(name).read_bytes() for name in ("run.db", "run.db.witness")}
    store.close()
    fine = 0
    for cut in [*np.random.default_rng(0).integers(0, len(log), 12).tolist(), len(log)]:
        for name, data in files.items():
            path.with_name(name).write_bytes(data)
        path.with_name("run.db-shm").unlink(missing_ok=True)
        path.with_name("run.db-wal").write_bytes(log[:cut])
        try:
            assert finish(path) == WHOLE
            fine += 1
        except (StoreForkedError, StoreCorruptError, BadParameterError):
            pass  # rows that a disk claimed to have written are gone: never continued with others
    assert fine >= 1


def test_a_database_set_back_in_place_is_refused(path: Path) -> None:
    old = path.read_bytes()
    assert finish(path) == WHOLE
    path.write_bytes(old)
    path.with_name("run.db-wal").unlink(missing_ok=True)
    with pytest.raises(
        StoreForkedError, match=r"is at row 700, but the witness .* row 900.*--moved.*sqrt\(2\) times mu"
    ):
        finish(path)


def test_a_copy_is_refused_and_so_is_a_twin_that_shares_the_witness(path: Path) -> None:
    twin = copied(path)
    with pytest.raises(StoreForkedError, match="witness is missing"):
        finish(twin)
    assert not path.with_name("twin.db.witness").exists()
    shared = path.with_name("run.db.witness")
    assert finish(path) == WHOLE
    with pytest.raises(StoreForkedError, match="is at row 700"):
        finish(twin, witness=shared)


def test_a_moved_run_goes_on_where_it_is_with_all_its_files(path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    path.parent.rename(elsewhere)
    assert finish(elsewhere / "run.db") == WHOLE


@pytest.mark.parametrize("damage", [b"", b"x" * 700])
def test_a_witness_that_remembers_nothing_is_refused(path: Path, damage: bytes) -> None:
    path.with_name("run.db.witness").write_bytes(damage)
    with pytest.raises(StoreForkedError, match="remembers nothing"):
        finish(path)
    with Store(path) as store:
        sp.Stream.resume(store, moved=True).push_many(ROWS[700:])
    with Store(path) as store:  # from now on, the witness knows it
        assert sp.Stream.resume(store).t == 900


def unseeded(path: Path, rows: int = 720) -> list[str]:
    with Store(path, commit_every=10) as store:
        stream = sp.Stream(processor(), store=store)
        stream.push_many(ROWS[:rows])
        return [release.to_json() for release in store.releases()]


def test_a_copy_that_goes_on_has_noise_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    early = unseeded(path)
    twin = copied(path)
    late = {}
    for file, moved in ((path, False), (twin, True)):
        for _ in range(2):
            with Store(file, commit_every=10) as store:
                stream = sp.Stream.resume(store, moved=moved)
                stream.push_many(ROWS[stream.t : stream.t + 90])
                assert [release.to_json() for release in store.releases()][: len(early)] == early
                late[file] = [release.packed for release in store.releases()][len(early) :]
            moved = False  # it is said once
    assert len(late[path]) == len(late[twin]) == 4
    for one, other in zip(late[path], late[twin], strict=True):
        assert one is not None
        assert other is not None
        assert np.abs(one - other).min() > 0.0
    with Store(twin) as store:
        assert sp.Stream.resume(store).t == 900
    check = Verification(twin)
    check.replay()
    assert check.replay_all(of_rows(ROWS)) == 18
    check.close()


def test_a_copy_that_was_said_to_be_one_but_took_no_row_is_still_one(tmp_path: Path) -> None:
    unseeded(tmp_path / "run.db")
    twin = copied(tmp_path / "run.db")
    for _ in range(2):
        with Store(twin) as store:
            sp.Stream.resume(store, moved=True)
        with Store(twin) as store, pytest.raises(StoreForkedError):
            sp.Stream.resume(store)


def test_a_copy_without_rows_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    unseeded(path, 0)
    twin = copied(path)
    found = []
    for file, moved in ((path, False), (twin, True)):
        with Store(file) as store:
            sp.Stream.resume(store, moved=moved)
        with Store(file) as store:  # the start is durable before the first row
            sp.Stream.resume(store).push_many(ROWS[:100])
        with Store(file) as store:
            stream = sp.Stream.resume(store)
            found.append(stream.engine.start_id)
            assert stream.t == 100
    assert found[0] != found[1]


def test_twins_that_went_on_with_different_rows_are_told_apart(path: Path) -> None:
    twin, shared = copied(path), path.with_name("run.db.witness")
    before = shared.read_bytes()
    with Store(path) as store:
        sp.Stream.resume(store).push_many(ROWS[700:800])
    after = shared.read_bytes()
    shared.write_bytes(before)
    with Store(twin, witness=shared) as store:
        sp.Stream.resume(store, moved=True).push_many(ROWS[:150])
    shared.write_bytes(after)
    with Store(twin, witness=shared) as store, pytest.raises(StoreForkedError, match="different rows"):
        sp.Stream.resume(store)


def test_an_old_witness(tmp_path: Path) -> None:
    path, witness, old = tmp_path / "run.db", tmp_path / "run.db.witness", {}
    with Store(path, commit_every=1) as store:
        stream = sp.Stream(processor(), seed=5, store=store)
        for row in ROWS[:200]:
            stream.push(row)
            old[stream.t] = witness.read_bytes()
    newest = witness.read_bytes()
    witness.write_bytes(old[100])
    with Store(path) as store, pytest.raises(StoreForkedError, match="what is remembered is an old copy"):
        sp.Stream.resume(store)
    for data in (old[190], newest):  # of the latest commits; a crash may leave the witness one behind
        witness.write_bytes(data)
        with Store(path) as store:
            assert sp.Stream.resume(store).t == 200


def test_twins_at_once_cannot_share_a_witness(path: Path) -> None:
    twin, shared = copied(path), path.with_name("run.db.witness")
    with Store(path) as store:
        sp.Stream.resume(store)
        with Store(twin, witness=shared) as other, pytest.raises(StoreLockedError):
            sp.Stream.resume(other, moved=True)


def test_a_second_writer_is_refused_and_the_first_goes_on(path: Path) -> None:
    with Store(path) as store:
        stream = sp.Stream.resume(store)
        with pytest.raises(StoreLockedError, match="this process has the store open"):
            finish(path)
        stream.push_many(ROWS[700:])
        assert len(list(store.releases())) >= 14
    assert finish(path) == WHOLE


def test_keys(path: Path, tmp_path: Path) -> None:
    key = Path(f"{path}.key")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    key.chmod(0o640)
    with pytest.raises(WrongKeyError, match="chmod 600"):
        finish(path)
    key.chmod(0o600)
    text = key.read_text()
    for damaged in (text.replace("seeded", "seedes"), text[:-5], "", "\x00\xff", text[:40]):
        key.write_text(damaged)
        with pytest.raises(WrongKeyError):
            finish(path)
    key.unlink()
    with pytest.raises(WrongKeyError, match="missing"):
        finish(path)
    other = Store(tmp_path / "other.db")
    sp.Stream(processor(), store=other)
    other.close()
    shutil.copy2(tmp_path / "other.db.key", key)
    with pytest.raises(WrongKeyError, match="not that of the run"):
        finish(path)
    shutil.copy2(tmp_path / "other.db.key", tmp_path / "new.db.key")
    with pytest.raises(WrongKeyError, match="may be the key of a lost run"):
        sp.Stream(processor(), store=Store(tmp_path / "new.db"))
    key.write_text(text)
    assert finish(path) == WHOLE


def test_foreign_and_future_databases(path: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as db:
        db.execute("CREATE TABLE t (x)")
    db.close()
    with pytest.raises(StoreCorruptError, match="another program"):
        sp.Stream(processor(), store=Store(foreign))
    text = tmp_path / "text.db"
    text.write_text("not a database, " * 300)
    with pytest.raises(StoreCorruptError):
        sp.Stream(processor(), store=Store(text))
    for schema in (SCHEMA - 1, SCHEMA + 1):
        with sqlite3.connect(path) as db:
            db.execute(f"PRAGMA user_version = {schema}")
        db.close()
        for read in (lambda: finish(path), lambda: status(path), lambda: backup(path, tmp_path / "b.db")):
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
            finish(path)
    assert finish(path) == WHOLE


def test_rows_and_fresh_bytes_that_do_not_belong_together_are_noticed(path: Path) -> None:
    """Sealed records of one run, put together in another way by who has the key."""
    seal = Seal(read_key(path.with_name("run.db.key"), None))
    with sqlite3.connect(path) as db:
        (number, sealed) = db.execute("SELECT number, sealed FROM log ORDER BY number LIMIT 1").fetchone()
        record = decode(seal.open("entry", number, sealed))
        record["fresh"] = record["fresh"][::-1].copy()
        db.execute("UPDATE log SET sealed = ? WHERE number = ?", (seal.seal("entry", number, encode(record)), number))
    db.close()
    with pytest.raises(StoreCorruptError, match="hides other values"):
        finish(path)


@pytest.mark.skipif(not _native.available(), reason="the kernels are not compiled")
@pytest.mark.parametrize("written_compiled", [True, False])
def test_a_store_that_other_kernels_wrote_is_continued(tmp_path: Path, written_compiled: bool) -> None:
    before = _native.use(True)
    try:
        for name, algorithm in (("a", processor()), ("b", replace(processor(), solver="tracking", release_every=3))):
            _native.use(written_compiled)
            wrote = _native.described()
            store = Store(tmp_path / name, commit_every="1h", snapshot_every="1h")
            stream = sp.Stream(algorithm, store=store)
            stream.push_many(ROWS[:300])
            store.flush()
            store._let_go()
            _native.use(not written_compiled)
            for _ in range(2):
                with Store(tmp_path / name) as store:
                    assert sp.Stream.resume(store).t == 300
                noted = f"{wrote} from row 1, {_native.described()} from row 301"
                assert status(tmp_path / name)["kernels"] == noted
    finally:
        _native.use(before)


def test_a_full_disk_loses_nothing_releases_nothing_and_spends_nothing(path: Path) -> None:
    store = Store(path)
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
    taken = store.durable
    for read in (lambda: stream.push(ROWS[0]), lambda: stream.release, lambda: stream.engine.subspace):
        with pytest.raises(StoreUnwritableError):
            read()
    held, rows = [*store.releases()], stream.t
    assert rows > taken
    database.execute(f"PRAGMA max_page_count = {2**30}")  # somebody makes room: nothing is lost, and it goes on
    assert stream.release is not None
    assert store.durable == rows
    assert len([*store.releases()]) > len(held)
    database.execute(f"PRAGMA max_page_count = {database.execute('PRAGMA page_count').fetchone()[0]}")
    with pytest.raises(StoreUnwritableError, match="disk is full"):
        feed()
    taken = store.durable
    with pytest.raises(StoreUnwritableError, match="disk is full"):
        store.close()  # tells that rows are lost, and closes
    with Store(path) as again:
        assert sp.Stream.resume(again).t == taken


def test_a_folder_that_cannot_be_written_to(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreUnwritableError):
        sp.Stream(processor(), store=Store(tmp_path / "no" / "such" / "folder" / "run.db"))
    with pytest.raises(StoreUnwritableError):
        sp.Stream(processor(), store=Store(tmp_path))
    read_only = OSError(30, "Read-only file system", str(path))

    def refuse(*_: object, **__: object) -> int:
        raise read_only

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(StoreUnwritableError, match="Read-only file system"):
            finish(path)
    assert finish(path) == WHOLE


def test_a_witness_that_cannot_be_written_holds_the_releases_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(path)
    stream = sp.Stream.resume(store)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    steps = stream.push_many(ROWS[700:800])
    with pytest.raises(StoreUnwritableError, match="disk is full"):
        _ = steps.releases
    monkeypatch.undo()
    assert [release.to_json() for release in steps.releases] == WHOLE[14:16]
    store.close()
    assert finish(path) == WHOLE


def test_encoding_keeps_values_and_memory_order_and_refuses_what_is_not_data() -> None:
    nested = {"a": [1, {"b": np.arange(6.0).reshape(2, 3)}]}
    for value in (None, 1, -0.0, "text", b"bytes", [], {}, nested, np.zeros((0, 3)), np.float64(2.5)):
        assert encode(decode(encode(value))) == encode(value)
    array = decode(encode({"x": np.asfortranarray(np.arange(6.0).reshape(2, 3))}))["x"]
    assert array.flags.f_contiguous
    assert not array.flags.c_contiguous
    assert np.array_equal(array, np.arange(6.0).reshape(2, 3))
    for bad in (object(), np.array(["a"]), np.array([object()]), np.array([1j]), 1j, 2**64):
        with pytest.raises(BadParameterError):
            encode(bad)


def test_symbolic_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run.db").symlink_to(tmp_path / "elsewhere.db")
    (tmp_path / "key").symlink_to(tmp_path / "elsewhere.key")
    with pytest.raises(BadParameterError, match=r"run\.db is a symbolic link"):
        Store(tmp_path / "run.db")
    with pytest.raises(BadParameterError, match="key is a symbolic link"):
        Store(tmp_path / "other.db", key_file=tmp_path / "key")
