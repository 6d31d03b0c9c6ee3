"""The tables of a durable run, and what is read from them without a key."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any, NamedTuple, TypeVar

from streampca.errors import BadParameter, StoreCorrupt
from streampca.store.checksums import checksum, matches
from streampca.store.files import told_plainly
from streampca.store.records import Fields, fields_of

T = TypeVar("T")

APPLICATION = 0x53504341
SCHEMA = 3

_PAGE = 16384
# log: entries since the snapshot. trace: the fresh bytes of all noise. points: where the latest commits ended.
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL, sum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE log (number INTEGER PRIMARY KEY, first INTEGER NOT NULL, count INTEGER NOT NULL, sealed BLOB NOT NULL);
CREATE TABLE trace (number INTEGER PRIMARY KEY, sealed BLOB NOT NULL);
CREATE TABLE points (number INTEGER PRIMARY KEY, t INTEGER NOT NULL, digest TEXT NOT NULL);
CREATE TABLE releases (t INTEGER PRIMARY KEY, record BLOB NOT NULL, sum BLOB NOT NULL);
CREATE TABLE snapshot (
  number INTEGER NOT NULL, piece INTEGER NOT NULL, pieces INTEGER NOT NULL, sealed BLOB NOT NULL,
  PRIMARY KEY (number, piece)
);
"""


class Progress(NamedTuple):
    """How far a run has come. Part of every commit.

    Attributes
    ----------
    rows : rows that are durable.
    releases : releases that are durable.
    snapshot : rows folded into the latest snapshot; 0 before the first.
    digest : keyed digest of the chain value after the rows.
    records : records of the log so far, those that were folded included.
    folded : how many of them the snapshot holds.
    released : row of the latest release; 0 before the first.
    """

    rows: int = 0
    releases: int = 0
    snapshot: int = 0
    digest: str = ""
    records: int = 0
    folded: int = 0
    released: int = 0


class Database:
    """One SQLite file in write-ahead mode, every commit flushed to the disk.

    Parameters
    ----------
    path : the file, or ``":memory:"``.
    write : open for writing and make it if it is missing; else nothing is changed, and older schemas can be read.

    Raises
    ------
    StoreCorrupt
        If it is damaged, not a store, or of another schema.
    StoreUnwritable
        If it cannot be opened.
    """

    def __init__(self, path: str, *, write: bool) -> None:
        self.path = path
        self.version = SCHEMA
        self._lock = RLock()
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
            if not tables:
                raise StoreCorrupt(f"{self.path} holds no run")
            self.version = version
            return
        if tables and version < SCHEMA:
            raise StoreCorrupt(
                f"{self.path} is of schema {version}: its noise is of an older scheme, which this version does not "
                "draw; resume it with the version that wrote it. status, verify, export and backup read it"
            )
        if not tables:
            self.db.execute(f"PRAGMA page_size = {_PAGE}")
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.execute("PRAGMA secure_delete = ON")
        self.db.execute("PRAGMA trusted_schema = OFF")
        if not tables:
            self.transact(_make_tables)

    def transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """All that ``work`` writes, or nothing of it. Facts read in other threads wait until it has ended."""
        with self._lock:
            try:
                if self.db.in_transaction:  # of a call that was interrupted twice
                    self.db.execute("ROLLBACK")
                self.db.execute("BEGIN IMMEDIATE")
                made = work(self.db)
                self.db.execute("COMMIT")
                return made
            finally:
                if self.db.in_transaction:
                    with suppress(sqlite3.Error):
                        self.db.execute("ROLLBACK")

    def fold_log(self) -> None:
        """Bring the write-ahead log into the file, as far as readers let it. What is committed is safe without, too."""
        with self._lock, suppress(sqlite3.Error):
            self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    # -- small facts ----------------------------------------------------------------

    def put(self, name: str, value: Any) -> None:
        """Write a small fact, with its checksum. Within a transaction."""
        text = json.dumps(value, separators=(",", ":")).encode()
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", (name, text, checksum(name, text)))

    def get(self, name: str) -> Any:
        """A small fact, or None."""
        with told_plainly(self.path), self._lock:
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

    # -- the log, snapshots and releases --------------------------------------------

    def log(self) -> Iterator[tuple[int, int, int, bytes]]:
        """The records of the log since the snapshot as (number, first row, rows, sealed), in order."""
        with told_plainly(self.path):  # records that a snapshot holds may be left over
            yield from self.db.execute("SELECT * FROM log WHERE number > ? ORDER BY number", (self.progress.folded,))

    def trace(self) -> Iterator[tuple[int, bytes]]:
        """The traces of all commits that drew noise as (number, sealed), in order."""
        with told_plainly(self.path):
            yield from self.db.execute(
                "SELECT number, sealed FROM trace WHERE number <= ? ORDER BY number", (self.progress.records,)
            )

    def snapshot(self, number: int) -> list[tuple[int, int, bytes]]:
        """The snapshot after this record as (piece, pieces, sealed), in order; nothing if there is none."""
        query = "SELECT piece, pieces, sealed FROM snapshot WHERE number = ? ORDER BY piece"
        with told_plainly(self.path):
            return self.db.execute(query, (number,)).fetchall()

    def has_point(self, t: int, digest: str) -> bool:
        """True if a recent commit of this database ended at this point."""
        with told_plainly(self.path):
            found = self.db.execute("SELECT 1 FROM points WHERE t = ? AND digest = ?", (t, digest)).fetchone()
        return found is not None

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
        """Close the file. Closing again does nothing."""
        with told_plainly(self.path):
            self.db.close()

    def __del__(self) -> None:
        if hasattr(self, "db"):
            self.db.close()


def _make_tables(db: sqlite3.Connection) -> None:
    for statement in _TABLES.strip().removesuffix(";").split(";\n"):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {SCHEMA}")


def _reader(path: Path) -> sqlite3.Connection:
    """Open for reading only, also on a disk that cannot be written to, where SQLite cannot keep its index."""
    uri = path.absolute().as_uri() + "?mode=ro"
    log = path.with_name(path.name + "-wal")
    if not os.access(path.absolute().parent, os.W_OK) and not (log.exists() and log.stat().st_size):
        uri += "&immutable=1"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=5.0)
