"""The database of a durable run, and the SQLite files of stores and ledgers."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from streampca.errors import BadParameterError, StoreCorruptError, StoreLockedError, StoreUnwritableError, reason
from streampca.exclusive import Guard, exclusive
from streampca.release.release import Release
from streampca.store.records import damaged, releases_of
from streampca.store.writing_thread import wait_for_last_calls

T = TypeVar("T")

SCHEMA = 4

# log: entries since the snapshot. trace: the fresh bytes of all noise. points: where the latest commits ended.
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL, sum BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE log (number INTEGER PRIMARY KEY, first INTEGER NOT NULL, count INTEGER NOT NULL, sealed BLOB NOT NULL);
CREATE TABLE trace (number INTEGER PRIMARY KEY, sealed BLOB NOT NULL);
CREATE TABLE points (number INTEGER PRIMARY KEY, t INTEGER NOT NULL, digest TEXT NOT NULL);
CREATE TABLE releases (t INTEGER PRIMARY KEY, record BLOB NOT NULL, sum BLOB NOT NULL);
CREATE TABLE snapshot (chunk INTEGER PRIMARY KEY, chunks INTEGER NOT NULL, sealed BLOB NOT NULL);
"""
# Each row by its first column: the log since the snapshot, the fresh bytes of all commits that drew noise, and chunks.
_SEALED = {
    "log": "SELECT number, first, count, sealed FROM log WHERE number > ? AND number <= ? ORDER BY number",
    "trace": "SELECT number, sealed FROM trace WHERE number > ? AND number <= ? ORDER BY number",
    "snapshot": "SELECT chunk, chunks, sealed FROM snapshot WHERE chunk > ? AND chunk <= ? ORDER BY chunk",
}
_PAGE = 16384
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# The key is public: checksums detect damage, not forgery. GMAC (AES-GCM with nothing to encrypt) requires a tenth of
# the time of BLAKE2b.
_CHECKSUM = AESGCM(bytes(16))


@contextmanager
def plain_errors(path: object) -> Iterator[None]:
    """Turn errors of SQLite and of the system into errors of the store."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError, OSError) as problem:
        # A message of SQLite that quotes damaged bytes cannot be decoded.
        if isinstance(problem, UnicodeDecodeError):
            raise damaged(f"{path} is damaged or not a store") from problem
        safe = "Repair that, then continue: all commits are safe"
        if isinstance(problem, OSError):
            what = "the disk is full" if problem.errno in (errno.ENOSPC, errno.EDQUOT) else str(problem.strerror)
            raise StoreUnwritableError(f"{problem.filename or path}: {what}. {safe}") from problem
        code = getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # without the extended code
        if code in _BUSY:
            raise StoreLockedError(f"{path} is in use by another program. Let it finish, then try again") from problem
        unwritable = (sqlite3.OperationalError, sqlite3.InternalError, sqlite3.ProgrammingError)
        if code in _DAMAGED or not isinstance(problem, unwritable):
            raise damaged(f"{path} is damaged or not a store ({reason(problem)})") from problem
        what = "the disk is full" if code == sqlite3.SQLITE_FULL else f"it cannot be written ({reason(problem)})"
        raise StoreUnwritableError(f"{path}: {what}. {safe}") from problem


def checksum(name: str, data: bytes) -> bytes:
    """Return the checksum of a record under its name, 16 bytes. Misses damage with probability < len(data) / 2**132."""
    return _CHECKSUM.encrypt(blake2b(name.encode(), digest_size=12).digest(), b"", data)


#: Connections of a parent process, which the child of a fork must not even close.
_INHERITED: list[sqlite3.Connection] = []


class _Connection(sqlite3.Connection):
    """A connection that only the process that opened it closes when it is collected."""

    _process: int | None = None

    def __init__(self, *given: Any, **options: Any) -> None:
        self._process = os.getpid()
        super().__init__(*given, **options)

    def __del__(self) -> None:
        if self._process in (None, os.getpid()):
            with suppress(sqlite3.Error):
                self.close()
        else:
            _INHERITED.append(self)


class Format(NamedTuple):
    """Format of an SQLite file."""

    what: str  #: noun for messages
    application: int  #: ``application_id`` of the file
    schema: int  #: ``user_version`` of the file
    tables: str  #: statements that create its tables, each on lines of its own


class SQLiteFile:
    """An SQLite file in write-ahead mode, every commit flushed to the disk. Threads may share it.

    ``write`` opens the file for writing, and creates it if it is missing; otherwise nothing is changed. ``timeout`` is
    the time to wait for other processes, in seconds. Only the process that opened the file may use or close it.
    """

    def __init__(self, path: str, kind: Format, *, write: bool = True, timeout: float = 5.0) -> None:
        self.path = path
        self.process = os.getpid()
        self.guard = Guard(kind.what)
        plain = path == ":memory:" or write
        with plain_errors(path):
            if not (plain or Path(path).exists()):
                raise BadParameterError(f"{path}: there is no such {kind.what}; check the path")
            target = path if plain else _read_only(Path(path))
            self.db: sqlite3.Connection = sqlite3.connect(
                target,
                timeout=timeout,
                isolation_level=None,
                check_same_thread=False,
                factory=_Connection,
                uri=not plain,
            )
            try:
                self._set_up(kind, write, time.monotonic() + timeout)
            except BaseException:
                self.close()
                raise

    def _set_up(self, kind: Format, write: bool, until: float) -> None:
        # One transaction, because another process may be creating the tables.
        queries = "PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master"
        numbers = self.transact(lambda db: [db.execute(query).fetchone()[0] for query in queries], write=False)
        application, version, tables = numbers
        if (tables or application) and application != kind.application:
            raise StoreCorruptError(f"{self.path} is another program's database. Name another file")
        if version != kind.schema and (tables or version):
            raise StoreCorruptError(
                f"{self.path} is of schema {version}, this version reads {kind.schema}. Use the version that wrote it"
            )
        if not write:
            if not tables:
                raise StoreCorruptError(f"{self.path} holds no run")
            return
        if not tables:
            self.db.execute(f"PRAGMA page_size = {_PAGE}")
        while self.db.execute("PRAGMA journal_mode").fetchone() != ("wal",) and self.path != ":memory:":
            try:  # SQLite does not wait for another process that does the same
                self.db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
        # secure_delete overwrites rows that a snapshot replaces; trusted_schema keeps a forged file from running code.
        for setting in ("synchronous = FULL", "secure_delete = ON", "trusted_schema = OFF", "foreign_keys = ON"):
            self.db.execute(f"PRAGMA {setting}")
        if not tables:
            created = kind.tables.strip().removesuffix(";").replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS")
            marks = f"PRAGMA application_id = {kind.application}", f"PRAGMA user_version = {kind.schema}"
            self.transact(lambda db: [db.execute(one) for one in (*created.split(";\n"), *marks)])

    @exclusive
    def transact(self, work: Callable[[sqlite3.Connection], T], *, write: bool = True) -> T:
        """Run ``work`` as one transaction: everything that it writes is committed, or nothing."""
        try:
            if self.db.in_transaction:  # a second interrupt stopped the rollback below
                self.db.execute("ROLLBACK")
            self.db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            result = work(self.db)
            self.db.execute("COMMIT")
            return result
        finally:
            if self.db.in_transaction:
                with suppress(sqlite3.Error):
                    self.db.execute("ROLLBACK")

    def close(self) -> None:
        """Close the file. Idempotent; no effect in the child of a fork."""
        if self.process == os.getpid():
            self.db.close()


def _read_only(path: Path) -> str:
    """Return the URI for reading only, also on a read-only disk, where SQLite cannot create its index."""
    uri = path.absolute().as_uri() + "?mode=ro"
    log, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    if not os.access(path.absolute().parent, os.W_OK):
        if not (log.exists() and log.stat().st_size):
            return uri + "&immutable=1"
        if not index.exists():
            raise StoreUnwritableError(
                f"{path} was not closed, and reading its last commits ({log.name}) requires a disk that can be "
                "written to. Copy all of its files to one"
            )
    return uri


class Progress(NamedTuple):
    """Progress of a run. Part of every commit."""

    rows: int = 0  #: rows that are durable
    releases: int = 0  #: releases that are durable
    snapshot: int = 0  #: rows in the latest snapshot, or 0
    digest: str = ""  #: keyed digest of the chain value after the rows
    records: int = 0  #: records of the log so far, including those that a snapshot replaced
    folded: int = 0  #: records that the snapshot replaced
    released: int = 0  #: row of the latest release, or 0


class Database(SQLiteFile):
    """The database of one run, as far as it can be read without a key."""

    FORMAT = Format("store", 0x53504341, SCHEMA, _TABLES)

    def __init__(self, path: str, *, write: bool) -> None:
        wait_for_last_calls()  # the commits of collected streams of this process
        if path != ":memory:" and write:
            with plain_errors(path):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # curator only, whatever the umask
        super().__init__(path, self.FORMAT, write=write)

    def checkpoint(self) -> None:
        """Copy SQLite's write-ahead log into the file, as far as readers permit. Commits do not depend on it."""
        with self.guard.lock, suppress(sqlite3.Error):
            self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    # -- small facts ----------------------------------------------------------------

    def put(self, name: str, value: Any) -> sqlite3.Cursor:
        """Write a small fact, with its checksum, within a transaction."""
        text = json.dumps(value, separators=(",", ":")).encode()
        return self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", (name, text, checksum(name, text)))

    def put_all(self, **facts: Any) -> None:
        """Write small facts in a transaction of their own."""
        with plain_errors(self.path):
            self.transact(lambda _: [self.put(*fact) for fact in facts.items()])

    def get(self, name: str) -> Any:
        """Return a small fact, or None."""
        found = self._first("SELECT value, sum FROM meta WHERE name = ?", name)
        if found is None:
            return None
        if not isinstance(found[0], bytes) or checksum(name, found[0]) != found[1]:
            raise damaged(f"{self.path}: {name!r} fails its checksum: the file is damaged")
        return json.loads(found[0])

    def fact(self, name: str) -> Any:
        """Return a small fact that every run has. Raises `StoreCorruptError` if it is missing."""
        found = self.get(name)
        if found is None:
            raise damaged(f"{self.path} holds no {name}")
        return found

    @property
    def progress(self) -> Progress:
        """Progress of the run."""
        return Progress(*(self.get("progress") or ()))

    def run(self) -> dict[str, Any]:
        """Return the public facts of the run. Raises `BadParameterError` if there is none."""
        found = self.get("run")
        if found is None:
            raise BadParameterError(f"{self.path} holds no run yet. Begin one with Stream(..., store=store)")
        return dict(found)

    # -- the log, snapshots and releases --------------------------------------------

    def _first(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        with plain_errors(self.path), self.guard.lock:
            found: tuple[Any, ...] | None = self.db.execute(query, values).fetchone()
        return found

    def _each(self, query: str, after: int, last: int) -> Iterator[tuple[Any, ...]]:
        """Yield rows by their first column. Each has its own query: no read transaction stays open between rows."""
        while (found := self._first(f"{query} LIMIT 1", after, last)) is not None:
            after = found[0]
            yield found

    def sealed(self, table: Literal["log", "trace", "snapshot"]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a sealed table in order, up to the last record of the progress."""
        yield from self._each(_SEALED[table], 0, 2**62 if table == "snapshot" else self.progress.records)

    def has_point(self, t: int, digest: str) -> bool:
        """Return whether a recent commit of this database ended at this point."""
        return self._first("SELECT 1 FROM points WHERE t = ? AND digest = ?", t, digest) is not None

    def releases(self, after: int = 0) -> Iterator[Release]:
        """Yield the releases after row ``after``, in order. Publishable. `StoreCorruptError` for damage or a gap."""
        progress, seen = self.progress, 0
        query = "SELECT t, record, sum FROM releases WHERE t > ? AND t <= ? ORDER BY t"
        for found in self._each(query, after, progress.rows):
            for release in self._checked(*found):
                if release.t > after:
                    seen += 1
                    yield release
        if not after and seen != progress.releases:
            raise damaged(f"{self.path}: {seen} of {progress.releases} releases found")

    def release(self, t: int) -> Release | None:
        """Return the release at row t, or None."""
        found = self._first("SELECT t, record, sum FROM releases WHERE t >= ? ORDER BY t LIMIT 1", t)
        return None if found is None else next((one for one in self._checked(*found) if one.t == t), None)

    def _checked(self, last: int, record: Any, total: bytes) -> list[Release]:
        """Return the releases of one record, whose number is the row of the last of them."""
        if not isinstance(record, bytes) or checksum(str(last), record) != total:
            raise damaged(f"{self.path}: the release at row {last} fails its checksum")
        return releases_of(record)
