"""The database of a durable run, SQLite files in general, and their errors as errors of the store."""

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
from typing import Any, NamedTuple, TypeVar

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from streampca.errors import BadParameterError, StoreCorruptError, StoreLockedError, StoreUnwritableError, reason
from streampca.exclusive import Guard, exclusive
from streampca.release.release import Release
from streampca.store.records import releases_of
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
_PAGE = 16384
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# Checksums tell damage, not forgery, which needs a secret: the key is public. GMAC (AES-GCM with nothing to encrypt)
# takes a tenth of the time of BLAKE2b.
_CHECKSUM = AESGCM(bytes(16))


@contextmanager
def plain_errors(path: object) -> Iterator[None]:
    """Turn errors of SQLite and of the system into one clear error each."""
    try:
        yield
    except sqlite3.Error as problem:
        code = getattr(problem, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in _BUSY:
            raise StoreLockedError(f"{path} is in use by another program; let it finish, then try again") from problem
        unwritable = (sqlite3.OperationalError, sqlite3.InternalError, sqlite3.ProgrammingError)
        if code in _DAMAGED or not isinstance(problem, unwritable):
            raise StoreCorruptError(
                f"{path} is damaged or not a store ({reason(problem)}); restore the newest copy"
            ) from problem
        what = "the disk is full" if code == sqlite3.SQLITE_FULL else f"it cannot be written ({reason(problem)})"
        raise StoreUnwritableError(f"{path}: {what}; mend that, then go on. What was committed is safe") from problem
    except UnicodeDecodeError as problem:  # of what SQLite says
        raise StoreCorruptError(f"{path} is damaged or not a store; restore the newest copy") from problem
    except OSError as problem:
        what = "the disk is full" if problem.errno in (errno.ENOSPC, errno.EDQUOT) else str(problem.strerror)
        where = problem.filename or path
        raise StoreUnwritableError(f"{where}: {what}; mend that, then go on. What was committed is safe") from problem


def checksum(name: str, data: bytes) -> bytes:
    """Checksum of a record under its name, 16 bytes. Damage passes with probability below ``len(data) * 2**-132``."""
    return _CHECKSUM.encrypt(blake2b(name.encode(), digest_size=12).digest(), b"", data)


#: Connections of a parent process, which the child of a fork must not even close.
_INHERITED: list[sqlite3.Connection] = []


class _Connection(sqlite3.Connection):
    """A connection that the process that opened it closes when nobody holds it any more."""

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

    what: str  #: in one word
    application: int  #: number of the program, in the file
    schema: int  #: number of the schema, in the file
    tables: str  #: statements that make its tables, each on lines of its own


class SQLiteFile:
    """An SQLite file in write-ahead mode, every commit flushed to the disk. Threads may share it.

    Parameters
    ----------
    path : the file, or ``":memory:"``.
    kind : what it must be.
    write : open for writing and make it if it is missing; else nothing is changed.
    timeout : seconds to wait for other processes.

    Attributes
    ----------
    db : the connection.
    process : the process that opened it. The child of a fork must not use it, and does not close it.

    Raises
    ------
    StoreCorruptError
        If it is damaged, another program's, or of another schema.
    StoreUnwritableError
        If it cannot be opened.
    """

    def __init__(self, path: str, kind: Format, *, write: bool = True, timeout: float = 5.0) -> None:
        self.path = path
        self.process = os.getpid()
        self.guard = Guard(kind.what)
        with plain_errors(path):
            if path == ":memory:" or write:
                target, uri = path, False
            elif Path(path).exists():
                target, uri = _read_only(Path(path)), True
            else:
                raise BadParameterError(f"{path}: there is no such {kind.what}; check the path")
            self.db: sqlite3.Connection = sqlite3.connect(
                target, uri=uri, isolation_level=None, check_same_thread=False, timeout=timeout, factory=_Connection
            )
            try:
                self._set_up(kind, write, time.monotonic() + timeout)
            except BaseException:
                self.close()
                raise

    def _set_up(self, kind: Format, write: bool, until: float) -> None:
        application, version, tables = self.transact(_identity, write=False)
        if (tables or application) and application != kind.application:
            raise StoreCorruptError(
                f"{self.path} is another program's database; give the {kind.what} a file of its own"
            )
        if version != kind.schema and (tables or version):
            raise StoreCorruptError(
                f"{self.path} is of schema {version}, this version reads {kind.schema}; use the version that wrote it"
            )
        if not write:
            if not tables:
                raise StoreCorruptError(f"{self.path} holds no run")
            return
        if not tables:
            self.db.execute(f"PRAGMA page_size = {_PAGE}")
        while self.db.execute("PRAGMA journal_mode").fetchone() != ("wal",) and self.path != ":memory:":
            try:  # SQLite does not wait here for another process that does the same
                self.db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
        for setting in ("synchronous = FULL", "secure_delete = ON", "trusted_schema = OFF", "foreign_keys = ON"):
            self.db.execute(f"PRAGMA {setting}")
        if not tables:
            statements = kind.tables.strip().removesuffix(";").replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS")
            numbers = f"PRAGMA application_id = {kind.application}", f"PRAGMA user_version = {kind.schema}"
            # Another process may have made them meanwhile.
            self.transact(lambda db: [db.execute(one) for one in (*statements.split(";\n"), *numbers)])

    @exclusive
    def transact(self, work: Callable[[sqlite3.Connection], T], *, write: bool = True) -> T:
        """Make all of ``work`` one transaction: all that it writes, or nothing of it."""
        try:
            if self.db.in_transaction:  # of a call that was interrupted twice
                self.db.execute("ROLLBACK")
            self.db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            made = work(self.db)
            self.db.execute("COMMIT")
            return made
        finally:
            if self.db.in_transaction:
                with suppress(sqlite3.Error):
                    self.db.execute("ROLLBACK")

    def close(self) -> None:
        """Close the file. Closing again does nothing, and so does the child of a fork."""
        if self.process == os.getpid():
            self.db.close()


def _identity(db: sqlite3.Connection) -> tuple[int, int, int]:
    """Number of the application, schema, and number of tables: in one transaction, as another process may make them."""
    queries = "PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master"
    application, version, tables = (db.execute(query).fetchone()[0] for query in queries)
    return application, version, tables


def _read_only(path: Path) -> str:
    """Address for reading only, also on a disk that cannot be written to, where SQLite cannot keep its index."""
    uri = path.absolute().as_uri() + "?mode=ro"
    log, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    if not os.access(path.absolute().parent, os.W_OK):
        if not (log.exists() and log.stat().st_size):
            return uri + "&immutable=1"
        if not index.exists():
            raise StoreUnwritableError(
                f"{path} was not closed, and its last commits ({log.name}) can be read only on a disk that can be "
                "written to; copy all of its files to one"
            )
    return uri


class Progress(NamedTuple):
    """Progress of a run. Part of every commit."""

    rows: int = 0  #: rows that are durable
    releases: int = 0  #: releases that are durable
    snapshot: int = 0  #: rows in the latest snapshot; 0 before the first
    digest: str = ""  #: keyed digest of the chain value after the rows
    records: int = 0  #: records of the log so far, those that were folded included
    folded: int = 0  #: how many of them the snapshot holds
    released: int = 0  #: row of the latest release; 0 before the first


class Database(SQLiteFile):
    """The database of one run: what can be read of it without a key. See `SQLiteFile`."""

    FORMAT = Format("store", 0x53504341, SCHEMA, _TABLES)

    def __init__(self, path: str, *, write: bool) -> None:
        wait_for_last_calls()  # what a collected stream commits can be read at once in its process
        if path != ":memory:" and write:
            with plain_errors(path):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # curator only, whatever the umask
        super().__init__(path, self.FORMAT, write=write)

    def checkpoint(self) -> None:
        """Copy SQLite's write-ahead log into the file, as far as readers let it. What is committed is safe anyway."""
        with self.guard.lock, suppress(sqlite3.Error):
            self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    # -- small facts ----------------------------------------------------------------

    def put(self, name: str, value: Any) -> None:
        """Write a small fact, with its checksum. Within a transaction."""
        text = json.dumps(value, separators=(",", ":")).encode()
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?, ?)", (name, text, checksum(name, text)))

    def get(self, name: str) -> Any:
        """A small fact, or None."""
        found = self._first("SELECT value, sum FROM meta WHERE name = ?", name)
        if found is None:
            return None
        if not isinstance(found[0], bytes) or checksum(name, found[0]) != found[1]:
            raise StoreCorruptError(
                f"{self.path}: {name!r} fails its checksum: the file is damaged; restore the newest copy"
            )
        return json.loads(found[0])

    def fact(self, name: str) -> Any:
        """A small fact that every run has. Raises `StoreCorruptError` if it is missing."""
        found = self.get(name)
        if found is None:
            raise StoreCorruptError(f"{self.path} holds no {name}; restore the newest copy")
        return found

    @property
    def progress(self) -> Progress:
        """Progress of the run."""
        found = self.get("progress")
        return Progress() if found is None else Progress(*found)

    def run(self) -> dict[str, Any]:
        """Public facts of the run. Raises `BadParameterError` if there is none."""
        found = self.get("run")
        if found is None:
            raise BadParameterError(f"{self.path} holds no run yet; begin one with Stream(..., store=store)")
        return dict(found)

    # -- the log, snapshots and releases --------------------------------------------

    def _first(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        """The first row that a query finds."""
        with plain_errors(self.path), self.guard.lock:
            found: tuple[Any, ...] | None = self.db.execute(query, values).fetchone()
        return found

    def _each(self, query: str, after: int, last: int) -> Iterator[tuple[Any, ...]]:
        """Rows by their first column, each by a query of its own: nothing stays open while the caller works on one."""
        while (found := self._first(f"{query} LIMIT 1", after, last)) is not None:
            after = found[0]
            yield found

    def log(self) -> Iterator[tuple[int, int, int, bytes]]:
        """The records of the log since the snapshot as (number, first row, rows, sealed), in order."""
        query = "SELECT number, first, count, sealed FROM log WHERE number > ? AND number <= ? ORDER BY number"
        yield from self._each(query, 0, self.progress.records)

    def trace(self) -> Iterator[tuple[int, bytes]]:
        """The fresh bytes of all commits that drew noise as (number, sealed), in order."""
        query = "SELECT number, sealed FROM trace WHERE number > ? AND number <= ? ORDER BY number"
        yield from self._each(query, 0, self.progress.records)

    def snapshot(self) -> Iterator[tuple[int, int, bytes]]:
        """The snapshot as (chunk, chunks, sealed), in order; nothing if there is none."""
        query = "SELECT chunk, chunks, sealed FROM snapshot WHERE chunk > ? AND chunk <= ? ORDER BY chunk"
        yield from self._each(query, 0, 2**62)

    def has_point(self, t: int, digest: str) -> bool:
        """True if a recent commit of this database ended at this point."""
        return self._first("SELECT 1 FROM points WHERE t = ? AND digest = ?", t, digest) is not None

    def releases(self, after: int = 0) -> Iterator[Release]:
        """The releases after row ``after``, in order, each checked. Publishable.

        Raises `StoreCorruptError` if one is damaged, or one is missing.
        """
        promised, seen = self.progress, 0
        query = "SELECT t, record, sum FROM releases WHERE t > ? AND t <= ? ORDER BY t"
        for found in self._each(query, after, promised.rows):
            for release in self._checked(*found):
                if release.t > after:
                    seen += 1
                    yield release
        if not after and seen != promised.releases:
            raise StoreCorruptError(
                f"{self.path}: {seen} of {promised.releases} releases found; restore the newest copy"
            )

    def release(self, t: int) -> Release | None:
        """The release at row t, or None."""
        found = self._first("SELECT t, record, sum FROM releases WHERE t >= ? ORDER BY t LIMIT 1", t)
        return None if found is None else next((one for one in self._checked(*found) if one.t == t), None)

    def _checked(self, last: int, record: Any, total: bytes) -> list[Release]:
        """The releases of one record, which is kept under the last of them."""
        if not isinstance(record, bytes) or checksum(str(last), record) != total:
            raise StoreCorruptError(
                f"{self.path}: the release at row {last} fails its checksum; restore the newest copy"
            )
        return releases_of(record)
