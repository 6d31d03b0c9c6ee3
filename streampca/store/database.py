"""The database of a durable run, and the SQLite files of stores and ledgers."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from streampca.errors import StoreCorruptError, StoreLockedError, StoreUnwritableError, UsageError, reason
from streampca.exclusive import Guard, exclusive, tell_of_forks
from streampca.release.release import Release
from streampca.store.records import damaged, decode, encode, read, releases_of
from streampca.store.writing_thread import wait_for_last_calls

T = TypeVar("T")

SCHEMA = 6

# Small values under their names, each with its checksum.
_FACTS = "CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL, sum BLOB NOT NULL) WITHOUT ROWID;"
# log: entries since the snapshot. points: where the latest commits ended. A record of releases is numbered by the row
# of its last one. people: states of the people of a stream whose unit of privacy is a person, by their hashed names.
_TABLES = """
CREATE TABLE log (number INTEGER PRIMARY KEY, sealed BLOB NOT NULL);
CREATE TABLE snapshot (number INTEGER PRIMARY KEY, sealed BLOB NOT NULL);
CREATE TABLE points (number INTEGER PRIMARY KEY, t INTEGER NOT NULL, digest TEXT NOT NULL);
CREATE TABLE people (id BLOB PRIMARY KEY, number INTEGER NOT NULL, sealed BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE releases (number INTEGER PRIMARY KEY, record BLOB NOT NULL, sum BLOB NOT NULL);
"""
_PAGE = 16384
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
# The key is public: checksums detect damage, not forgery. GMAC (AES-GCM with nothing to encrypt) requires a tenth of
# the time of BLAKE2b.
_CHECKSUM = AESGCM(bytes(16))


@contextmanager
def plain_errors(path: object) -> Iterator[None]:
    """Turn errors of SQLite and of the system into errors of the store."""
    safe = "Repair that, then continue: all commits are safe"
    try:
        yield
    except UnicodeDecodeError as problem:  # a message of SQLite that quotes damaged bytes
        raise damaged(f"{path} is damaged or not a store") from problem
    except OSError as problem:
        what = "the disk is full" if problem.errno in (errno.ENOSPC, errno.EDQUOT) else str(problem.strerror)
        raise StoreUnwritableError(f"{problem.filename or path}: {what}. {safe}") from problem
    except sqlite3.Error as problem:
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


#: Message of a path without a run.
NO_RUN = "{} holds no run. Start one with `Stream(..., store=Store(path))`"
#: Connections of a parent process, which the child of a fork must not even close.
_INHERITED: list[sqlite3.Connection] = []


class SQLiteFile:
    """An SQLite file in write-ahead mode, every commit flushed to the disk, with a table of facts."""

    # ``write`` opens the file for writing, and creates it if it is missing. ``timeout`` is the seconds to wait for
    # other processes. Threads may share the file. Only the process that opened it may use or close it.

    what = "ledger"  #: noun for messages
    application = 0x53504C47  #: ``application_id`` of the file
    schema = 4  #: ``user_version`` of the file
    tables = ""  #: statements that create its tables besides the facts, each on lines of its own

    def __init__(self, path: str, *, write: bool = True, timeout: float = 30.0) -> None:
        self.path = path
        self.process = os.getpid()
        self.guard = Guard(self.what)
        in_memory = path == ":memory:"
        with plain_errors(path):
            if not (in_memory or write or Path(path).exists()):
                raise UsageError(NO_RUN.format(path))
            is_uri = not (in_memory or write)
            name = _read_only(Path(path)) if is_uri else path
            self.db: sqlite3.Connection = sqlite3.connect(
                name, timeout=timeout, isolation_level=None, check_same_thread=False, uri=is_uri
            )
            tell_of_forks(self)
            try:
                self._set_up(write, time.monotonic() + timeout)
            except BaseException:
                self.close()
                raise

    def _set_up(self, write: bool, until: float) -> None:
        queries = "PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master"
        # One transaction, because another process may be creating the tables.
        numbers = self.transact(lambda db: [db.execute(query).fetchone()[0] for query in queries], write=False)
        application, version, tables = numbers
        if (tables or application) and application != self.application:
            raise StoreCorruptError(f"{self.path} is another program's database. Name another file")
        if version != self.schema and (tables or version):
            raise StoreCorruptError(
                f"{self.path} is of schema {version}, this version reads {self.schema}. Use the version that wrote it"
            )
        if not (write or tables):
            raise StoreCorruptError(f"{self.path} holds no run")
        if not write:
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
        # SQLite copies the write-ahead log into the file after 64 pages, 1 MiB.
        for setting in ("synchronous = FULL", "secure_delete = ON", "trusted_schema = OFF", "wal_autocheckpoint = 64"):
            self.db.execute(f"PRAGMA {setting}")
        if not tables:
            created = (_FACTS + self.tables).replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS").split(";")
            marks = f"PRAGMA application_id = {self.application}", f"PRAGMA user_version = {self.schema}"
            self.transact(lambda db: [db.execute(one) for one in (*created, *marks)])

    @exclusive
    def transact(self, work: Callable[[sqlite3.Connection], T], *, write: bool = True) -> T:
        """Run ``work`` as one transaction: everything that it writes is committed, or nothing."""
        with plain_errors(self.path):
            try:
                if self.db.in_transaction:  # a second interrupt stopped the rollback below
                    self.db.execute("ROLLBACK")
                # IMMEDIATE acquires the write lock at once. A reading transaction could fail when it writes.
                self.db.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                result = work(self.db)
                self.db.execute("COMMIT")
                return result
            finally:
                if self.db.in_transaction:
                    with suppress(sqlite3.Error):
                        self.db.execute("ROLLBACK")

    def put(self, **facts: Any) -> None:
        """Write facts, with their checksums, within a transaction."""
        for name, value in facts.items():
            data = encode(value)
            self.db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", (name, data, checksum(name, data)))

    def get(self, name: str, kind: Any = Any) -> Any:
        """Return a fact of a type, or None."""
        found = self.first("SELECT value, sum FROM facts WHERE name = ?", name)
        if found is None:
            return None
        data, total = found
        # Columns of SQLite have no fixed type: a damaged value may be a number.
        if not isinstance(data, bytes) or checksum(name, data) != total:
            raise damaged(f"{self.path}: {name!r} fails its checksum: the file is damaged")
        return read(lambda data: msgspec.convert(decode(data), kind), data, f"{self.path}: {name!r}")

    def first(self, query: str, *values: Any) -> tuple[Any, ...] | None:
        with plain_errors(self.path), self.guard.lock:
            found: tuple[Any, ...] | None = self.db.execute(query, values).fetchone()
        return found

    def close(self) -> None:
        """Close the file. Idempotent; no effect in the child of a fork."""
        if self.process == os.getpid():
            self.db.close()

    def after_fork(self) -> None:
        """Keep the connection open in the child."""
        _INHERITED.append(self.db)

    def __del__(self) -> None:
        if hasattr(self, "db"):
            self.close()


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

    what, application, schema, tables, no_run = "store", 0x53504341, SCHEMA, _TABLES, NO_RUN

    def __init__(self, path: str, *, write: bool) -> None:
        if path != ":memory:" and write:
            with plain_errors(path):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # curator only, whatever the umask
        wait_for_last_calls()  # the commits of collected streams of this process
        super().__init__(path, write=write, timeout=5.0)

    def fact(self, name: str) -> Any:
        """Return a fact that every run has. `UsageError` if there is no run, `StoreCorruptError` without the fact."""
        if (found := self.get(name)) is None:
            raise (
                UsageError(self.no_run.format(self.path)) if name == "run" else damaged(f"{self.path} holds no {name}")
            )
        return found

    @property
    def progress(self) -> Progress:
        return self.get("progress", Progress) or Progress()

    def rows(self, table: str, after: int = 0, last: int = 2**62) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table in order of their numbers, above ``after`` and up to ``last``."""
        query = f"SELECT * FROM {table} WHERE number > ? AND number <= ? ORDER BY number LIMIT 1"  # noqa: S608
        # Each row has its own query, so that no read transaction, which keeps the write-ahead log, stays open.
        while (found := self.first(query, after, last)) is not None:
            after = found[0]
            yield found

    def all_rows(self, table: str) -> list[tuple[Any, ...]]:
        """Return all rows of a table, in the view of a transaction if one is open."""
        with plain_errors(self.path), self.guard.lock:
            return self.db.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608

    def releases(self, after: int = 0) -> Iterator[Release]:
        """Yield the releases after row ``after``, in order. Publishable. `StoreCorruptError` for damage or a gap."""
        # The progress is read first and bounds the rows: a commit that ends meanwhile changes neither count.
        progress, seen = self.progress, 0
        for last, record, total in self.rows("releases", after, progress.rows):
            if not isinstance(record, bytes) or checksum(str(last), record) != total:
                raise damaged(f"{self.path}: the release at row {last} fails its checksum")
            for release in releases_of(record):
                if release.t > after:
                    seen += 1
                    yield release
        if not after and seen != progress.releases:
            raise damaged(f"{self.path}: {seen} of {progress.releases} releases found")
