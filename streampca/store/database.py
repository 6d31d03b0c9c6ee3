"""The tables of a durable run, and what is read from them without a key."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple

from streampca.errors import BadParameter, StoreCorrupt
from streampca.store.checksums import checksum, matches
from streampca.store.files import told_plainly
from streampca.store.records import Fields, fields_of

APPLICATION = 0x53504341
SCHEMA = 2

_PAGE = 16384
_SNAPSHOT = """
CREATE TABLE snapshot (
  t INTEGER NOT NULL, piece INTEGER NOT NULL, pieces INTEGER NOT NULL, sealed BLOB NOT NULL, PRIMARY KEY (t, piece)
)"""
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL, sum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE rows (first INTEGER PRIMARY KEY, count INTEGER NOT NULL, sealed BLOB NOT NULL);
CREATE TABLE points (t INTEGER PRIMARY KEY, digest TEXT NOT NULL);
CREATE TABLE releases (t INTEGER PRIMARY KEY, record BLOB NOT NULL, sum BLOB NOT NULL);
"""


def _snapshots_in_pieces(db: sqlite3.Connection) -> None:
    """Schema 1 had snapshots of one piece, and one record a release, which is read as before."""
    db.execute("ALTER TABLE snapshot RENAME TO snapshot_1")
    db.execute(_SNAPSHOT)
    db.execute("INSERT INTO snapshot SELECT t, 1, 1, sealed FROM snapshot_1")
    db.execute("DROP TABLE snapshot_1")


#: How a store of an older schema becomes one of the next: ``{from: statements}``.
MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {1: _snapshots_in_pieces}


class Progress(NamedTuple):
    """How far a run has come. Part of every commit.

    Attributes
    ----------
    rows : rows that are durable.
    releases : releases that are durable.
    snapshot : rows folded into the latest snapshot; 0 before the first.
    digest : keyed digest of the rows, chained over commits.
    """

    rows: int = 0
    releases: int = 0
    snapshot: int = 0
    digest: str = ""


class Database:
    """One SQLite file in write-ahead mode, every commit flushed to the disk.

    Parameters
    ----------
    path : the file, or ``":memory:"``.
    write : open for writing and make it if it is missing; else nothing is changed.

    Raises
    ------
    StoreCorrupt
        If it is damaged, not a store, or of a later schema.
    StoreUnwritable
        If it cannot be opened.
    """

    def __init__(self, path: str, *, write: bool) -> None:
        self.path = path
        self.version = SCHEMA
        self._pen = RLock()
        with told_plainly(path):
            if path != ":memory:" and write:
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # curator only, whatever the umask
            if path == ":memory:" or write:
                self.db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=5.0)
            else:
                if not Path(path).exists():
                    raise BadParameter(f"{path}: there is no such store; check the path")
                self.db = _reader(Path(path))
        try:
            with told_plainly(path):
                self._set_up(write)
        except BaseException:
            self.db.close()
            raise

    def _set_up(self, write: bool) -> None:
        (application,) = self.db.execute("PRAGMA application_id").fetchone()
        (version,) = self.db.execute("PRAGMA user_version").fetchone()
        (tables,) = self.db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (tables or application) and application != APPLICATION:
            raise StoreCorrupt(f"{self.path} is another program's database; give the store a file of its own")
        if version > SCHEMA:
            raise StoreCorrupt(
                f"{self.path} is of schema {version}, this version reads up to {SCHEMA}; use the version that wrote it"
            )
        if not write:
            if version < SCHEMA and not tables:
                raise StoreCorrupt(f"{self.path} holds no run")
            self.version = version
            return
        if not tables:
            self.db.execute(f"PRAGMA page_size = {_PAGE}")
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.execute("PRAGMA secure_delete = ON")
        self.db.execute("PRAGMA trusted_schema = OFF")
        if not tables:
            self.db.execute("BEGIN IMMEDIATE")
            for statement in (*_TABLES.strip().split(";\n"), _SNAPSHOT):
                self.db.execute(statement)
            self.db.execute(f"PRAGMA application_id = {APPLICATION}")
            self.db.execute(f"PRAGMA user_version = {SCHEMA}")
            self.db.execute("COMMIT")
        for at in range(version, SCHEMA) if tables else ():
            self._migrate(at)

    def _migrate(self, version: int) -> None:
        if version not in MIGRATIONS:
            raise StoreCorrupt(f"{self.path} is of schema {version}, which no version ever wrote")
        with self.transaction():
            MIGRATIONS[version](self.db)
            self.db.execute(f"PRAGMA user_version = {version + 1}")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All that is written within, or nothing of it. Facts read in other threads wait until it has ended."""
        with self._pen:
            self.db.execute("BEGIN IMMEDIATE")
            try:
                yield self.db
                self.db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self.db.execute("ROLLBACK")
                raise

    def fold_log(self) -> None:
        """Bring the write-ahead log into the file, as far as readers let it. What is committed is safe without, too."""
        with self._pen, suppress(sqlite3.Error):
            self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    # -- small facts ----------------------------------------------------------------

    def put(self, name: str, value: Any) -> None:
        """Write a small fact, with its checksum. Within a transaction."""
        text = json.dumps(value, separators=(",", ":")).encode()
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", (name, text, checksum(name, text)))

    def get(self, name: str) -> Any:
        """A small fact, or None."""
        with told_plainly(self.path), self._pen:
            found = self.db.execute("SELECT value, sum FROM meta WHERE name = ?", (name,)).fetchone()
        if found is None:
            return None
        if not isinstance(found[0], bytes) or not matches(name, found[0], found[1]):
            raise StoreCorrupt(
                f"{self.path}: {name!r} fails its checksum: the file is damaged; restore the newest copy"
            )
        return json.loads(found[0])

    @property
    def progress(self) -> Progress:
        """How far the run has come."""
        found = self.get("progress")
        return Progress() if found is None else Progress(*found)

    def run(self) -> dict[str, Any]:
        """What is known of the run in public.

        Raises
        ------
        BadParameter
            If there is none.
        """
        found = self.get("run")
        if found is None:
            raise BadParameter(f"{self.path} holds no run yet; begin one with Stream(..., store=store)")
        return dict(found)

    # -- snapshots and releases -----------------------------------------------------

    def snapshot(self, t: int) -> list[tuple[int, int, bytes]]:
        """The snapshot of row t as (piece, pieces, sealed), in order; nothing if there is none."""
        query = "SELECT piece, pieces, sealed FROM snapshot WHERE t = ? ORDER BY piece"
        if self.version == 1:
            query = "SELECT 1, 1, sealed FROM snapshot WHERE t = ?"
        with told_plainly(self.path):
            return self.db.execute(query, (t,)).fetchall()

    def releases(self, after: int = 0) -> Iterator[Fields]:
        """The releases after row ``after``, in order, each checked; `records.release_of` reads them.

        Raises
        ------
        StoreCorrupt
            If one is damaged, or one is missing.
        """
        promised, seen = self.progress, 0
        with told_plainly(self.path):
            found = self.db.execute(
                "SELECT t, record, sum FROM releases WHERE t > ? AND t <= ? ORDER BY t", (after, promised.rows)
            )
            for last, record, total in found:
                for fields in self._checked(last, record, total):
                    if fields["t"] > after:
                        seen += 1
                        yield fields
        if not after and seen != promised.releases:
            raise StoreCorrupt(f"{self.path}: {seen} of {promised.releases} releases found; restore the newest copy")

    def release(self, t: int) -> Fields | None:
        """The release at row t, or None."""
        with told_plainly(self.path):
            found = self.db.execute(
                "SELECT t, record, sum FROM releases WHERE t >= ? ORDER BY t LIMIT 1", (t,)
            ).fetchone()
        return None if found is None else next((one for one in self._checked(*found) if one["t"] == t), None)

    def _checked(self, last: int, record: Any, total: bytes) -> list[Fields]:
        """The releases of one record, which is kept under the last of them."""
        if not isinstance(record, bytes) or not matches(str(last), record, total):
            raise StoreCorrupt(f"{self.path}: the release at row {last} fails its checksum; restore the newest copy")
        return fields_of(record)

    def close(self) -> None:
        """Close the file."""
        with told_plainly(self.path):
            self.db.close()


def _reader(path: Path) -> sqlite3.Connection:
    """Open for reading only, also on a disk that cannot be written to, where SQLite cannot keep its index."""
    uri = path.absolute().as_uri() + "?mode=ro"
    log = path.with_name(path.name + "-wal")
    if not os.access(path.absolute().parent, os.W_OK) and not (log.exists() and log.stat().st_size):
        uri += "&immutable=1"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=5.0)
