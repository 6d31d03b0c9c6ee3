"""Write-ahead log of a durable stream: groups entries into transactions, and holds releases until they are durable.

The progress of a run is in three places, in this order: the stream (`State.entries`), the database (`Writer._stored`),
and the witness and the ledger outside of it (`Writer._noted`). An entry stays in memory until all of them have it, so
a commit that failed is repeated from memory.

An exception may interrupt the stream's thread at any point. That thread changes the log by single assignments, takes
no lock that the writing thread waits for, and reads from the stream which entries were absorbed.
"""

from __future__ import annotations

import atexit
import logging
import math
import re
import sqlite3
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import InitVar, dataclass, field
from datetime import timedelta
from functools import partial
from operator import sub
from typing import Any, NamedTuple

from streampca.errors import BadParameterError, StoreLockedError, StreamBusyError
from streampca.rows.protocol import Position
from streampca.store.config import config_of, dump, label_of
from streampca.store.database import Database, checksum, plain_errors
from streampca.store.keys import RunKey, Seal
from streampca.store.ledger import Account
from streampca.store.records import (
    decode,
    encode,
    groups_of,
    record_of,
    release_records,
    release_size,
    size_of,
    trace_of,
)
from streampca.store.row_digest import Sessions, TakenRows
from streampca.store.witness import LockFile, Point, Witness
from streampca.store.writing_thread import Job, WritingThread, wait_for_last_calls
from streampca.stream.blocks import Entry
from streampca.stream.engine import Engine
from streampca.stream.replay import committed_state

logger = logging.getLogger("streampca.store")

#: Ends of commits that the database keeps, to recognize the one that witness or ledger hold.
POINTS = 64
#: Bytes of a chunk of a snapshot, far below the largest value that SQLite accepts.
CHUNK = 2**26
_MOST_BYTES = 2**24  # entries of this size are committed before the schedule, so that memory stays bounded
_LEAST_SNAPSHOT = 2**16  # bytes of entries below which no snapshot replaces them
_CHECKPOINT_BYTES = 2**19  # bytes written between copies of SQLite's write-ahead log into the file
_HEAD_BYTES = 2**14  # about the bytes of a commit without rows
_PATIENCE = 5.0  # seconds that the end of the interpreter waits for a stream that another thread holds
_CLOSED = "this stream's store was closed, or passed on to a resumed stream. Use that one"
#: Stands for the note of an unfinished epoch, of which nothing may be written.
_UNDER_WAY: dict[str, Any] = {}

_UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|h|rows?)\s*")


class Schedule(NamedTuple):
    """Rows or seconds between commits, one of the two, and seconds between snapshots."""

    rows: int | None
    seconds: float | None
    snapshot_seconds: float

    @classmethod
    def of(cls, commit_every: int | str | timedelta, snapshot_every: str | timedelta) -> Schedule:
        """Read the parameters of a store. Raises `BadParameterError` if one is outside its domain."""
        snapshot = _seconds("snapshot_every", snapshot_every, "a time")
        if isinstance(commit_every, str) and (found := _TEXT.fullmatch(commit_every)) and found[2].startswith("row"):
            commit_every = int(found[1]) if found[1].isdigit() else 0
        if isinstance(commit_every, int) and not isinstance(commit_every, bool):
            if commit_every < 1:
                raise BadParameterError(f"commit_every={commit_every!r}: expected at least 1 row.")
            return cls(commit_every, None, snapshot)
        return cls(None, _seconds("commit_every", commit_every, "a number of rows, or a time"), snapshot)


def _seconds(name: str, value: object, expected: str) -> float:
    seconds = math.nan
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str) and (found := _TEXT.fullmatch(value)) and found[2] in _UNITS:
        seconds = float(found[1]) * _UNITS[found[2]]
    if not 0.0 < seconds < math.inf:
        raise BadParameterError(f"{name}={value!r}: expected {expected} such as '200ms', '2s' or '5min'.")
    return seconds


class _End(NamedTuple):
    """Where an entry ends: its number in the stream, rows, and totals of bytes and of entries without rows."""

    number: int
    rows: int
    size: int = 0
    ends: int = 0


@dataclass(slots=True, repr=False)
class _Kept:
    """An entry that may not be durable yet, the entry before it, and the position of the source after it."""

    entry: Entry
    end: _End
    previous: _Kept | None
    position: Position | None


class _Commit(NamedTuple):
    """Contents of one transaction."""

    kept: list[_Kept]
    last: int
    state: dict[str, Any] | None
    epoch: dict[str, Any] | None


@dataclass(eq=False, repr=False)
class Writer:
    """Commit log of one stream (`streampca.stream.blocks.CommitLog`).

    Witness and account hold the progress of the run outside of the database, and ``_head`` is the point in the
    account. The stream keeps its store, ``_owner``, open. A non-empty ``lost`` refuses further rows;
    ``durable_position`` is the position of the source after the durable rows, or None.
    """

    _owner: object
    lock: InitVar[LockFile]
    _database: Database
    _key: RunKey
    _witness: Witness | None
    _account: Account | None
    _head: Point | None
    _engine: Engine
    _schedule: Schedule
    lost: str = field(default="", init=False)
    durable_position: Position | None = field(default=None, init=False)

    def __post_init__(self, lock: LockFile) -> None:
        self._seal, self._progress = Seal(self._key), self._database.progress
        self._stored = self._engine.now.entries
        self._point: Point = self._progress.rows, self._progress.digest
        self._noted = _End(self._stored, self._progress.rows)
        self._rows = TakenRows(self._key.derive(b"streampca rows"), sessions_of(self._database), self._progress.rows)
        self._newest: _Kept | None = None
        self._unnoted: list[_Kept] = []  # in the database, but not in witness and ledger
        number, sealed = self._database.get("position") or (0, None)
        if sealed is not None:
            self.durable_position = Position(*decode(self._seal.open("position", number, bytes.fromhex(sealed))))
        self._described = self._progress.records > 0
        self._epoch: dict[str, Any] | None = None
        self._problem: Exception | None = None
        self._job: Job | None = None
        self._logged = self._snapshot_bytes = self._since_checkpoint = 0
        self._last = self._last_snapshot = time.monotonic()
        _WRITERS.add(self)
        self.thread = WritingThread(lock, self._database, self._witness, self._account)
        self._engine.guard.helper = self.thread.ident

    # -- what the stream calls --------------------------------------------------------

    @property
    def room(self) -> int | None:
        """Number of single rows that may wait before the next commit; None for no limit."""
        rows = self._schedule.rows
        return None if rows is None else max(1, rows - self._waiting().rows)

    @property
    def position(self) -> Position | None:
        """Position of the source after the rows absorbed; None if unknown."""
        newest = self._newest_taken()
        return self.durable_position if newest is None else newest.position

    def check(self) -> bool:
        """Raise if the log accepts no more entries; return whether a commit is overdue."""
        if self.lost:
            raise StoreLockedError(self.lost)
        if self._problem is not None and self._epoch is not _UNDER_WAY:
            self.commit()  # repeats the commit that failed, or raises its exception
        seconds = self._schedule.seconds
        return seconds is not None and time.monotonic() - self._last >= seconds

    def append(self, entry: Entry) -> None:
        """Keep an entry, in place of those that the stream did not absorb."""
        number, newest = self._engine.now.entries + 1, self._newest_taken()
        before = self._noted if newest is None else newest.end
        # The position of an entry without rows is that of the entry before.
        position = entry.position if entry.count else self.position
        size = size_of(entry) + (0 if entry.release is None else release_size(entry.release))
        end = _End(number, entry.first + entry.count - 1, before.size + size, before.ends + (entry.count == 0))
        self._newest = _Kept(entry, end, newest, position)

    def appended(self) -> None:
        """Commit if a commit is due."""
        if self._epoch is _UNDER_WAY:
            return
        waiting = self._waiting()
        if self._schedule.rows is not None:
            if waiting.rows >= self._schedule.rows:
                self.commit()
        elif waiting.size > _MOST_BYTES or self.check():
            job = self._job
            if job is not None and not job.is_done:
                if waiting.size <= _MOST_BYTES:
                    return  # entries gather until the disk is ready for them
                self.thread.wait(job)
            self._last, self._job = time.monotonic(), self.thread.begin(self._write)

    def hold(self, t: int) -> None:
        """Return once the first t rows and their releases are durable."""
        while True:
            rows, waiting = self._noted.rows, self._waiting()
            # A release after the last row, as of `finish`, belongs to an entry without rows.
            if t < rows or waiting.number == 0 or (t == rows and waiting.ends == 0):
                return
            if self._epoch is _UNDER_WAY:
                raise BadParameterError("releases of an epoch are durable only after all of it. Read them after it")
            self.commit()

    # -- what the store calls ---------------------------------------------------------

    @property
    def durable(self) -> int:
        """Number of durable rows."""
        return self._noted.rows

    def commit(self, *, snapshot: bool = False) -> None:
        """Commit all that the stream has absorbed, and wait for it. After a failure, the next call tries again."""
        if self.lost:
            raise StoreLockedError(self.lost)
        self._last = time.monotonic()
        self.thread.do(partial(self._write, snapshot))

    def flush(self) -> None:
        """Make the stream absorb the rows that wait, commit all, and wait for it."""
        self._engine.absorb_waiting()
        self.commit()

    def note(self) -> None:
        """Write the progress of the database, which may be one commit ahead, to witness and ledger."""
        self.thread.do(partial(self._note, repeat=True))

    @contextmanager
    def one_commit(self, epoch: dict[str, Any]) -> Iterator[None]:
        """Make all rows absorbed within the block durable together and with this note, or none of them.

        If the block raises, the stream holds rows that are not durable and may come again: it accepts no more rows.
        """
        if self._epoch is _UNDER_WAY:
            raise StreamBusyError("the store is in the middle of an epoch. Begin another one after it has ended")
        self.flush()
        before = self._engine.now.entries
        try:
            self._epoch = _UNDER_WAY
            yield
            self._engine.absorb_waiting()
            self._epoch = dict(epoch)
        except BaseException:
            if self._engine.now.entries > before or self._engine.t > self.durable:
                self.lost = "an epoch broke off in the middle and is not durable. Continue with Stream.resume(store)"
            else:
                self._epoch = None
            raise
        self.commit()

    def finish(self, *, snapshot: bool = True) -> None:
        """Commit all, with a snapshot, and accept no more rows. Idempotent."""

        def end() -> None:
            self.commit(snapshot=snapshot)
            self.lost = _CLOSED

        if not self.lost:
            self.flush()  # first without a snapshot: the disk may have room for the rows only
            # Under the lock of the stream, so that no row comes between the commit and the end.
            self._engine.absorb_waiting(end)

    def last_call(self) -> None:
        """Commit all, with a snapshot, once only this thread holds the stream. In the writing thread."""
        if self.lost:
            return
        self._engine.guard.helper = 0
        try:
            self._engine.absorb_waiting()
        finally:
            self._write()
        self._write(snapshot=True)

    def leave(self) -> None:
        """Commit all when the interpreter ends, unless another thread holds the stream."""
        if self.lost:
            return
        if not self._engine.guard.lock.acquire(timeout=_PATIENCE):
            logger.error("not committed, a thread holds the stream: run=%s rows=%d", self._key.run, self.durable)
            return
        self._engine.guard.lock.release()  # the writing thread may need it
        self.flush()

    def detach(self) -> None:
        """Stop accepting rows: the store is closed, or another stream has resumed the run. Idempotent."""
        self.lost = self.lost or _CLOSED
        self._owner = None  # the store may continue with another stream
        self.thread.stop()
        self._engine.guard.helper = 0  # the system may give the identifier to another thread

    # -- how it works -----------------------------------------------------------------

    def _waiting(self) -> _End:
        """Return the numbers of entries, rows, bytes and entries without rows that are absorbed but not durable."""
        newest, noted = self._newest_taken(), self._noted
        return _End(0, 0) if newest is None else _End(*map(sub, newest.end, noted))

    def _newest_taken(self) -> _Kept | None:
        """Return the latest entry that the stream absorbed, unless it is noted."""
        newest, noted, taken = self._newest, self._noted, self._engine.now.entries
        # An entry is appended before the stream absorbs it: at most one is ahead.
        if newest is not None and newest.end.number > taken:
            newest = newest.previous
        return None if newest is None or newest.end.number <= noted.number else newest

    # -- what the writing thread does -------------------------------------------------

    def _write(self, snapshot: bool = False) -> None:
        """Bring the database, and then witness and ledger, to the state of the stream."""
        began, before = time.monotonic(), self._progress
        try:
            # Order: database, witness, ledger. A crash between them leaves the latter two behind, never ahead.
            with plain_errors(self._database.path):
                found = self._next(snapshot)
                if found is not None:
                    self._store(found)
                self._note()
        except Exception as problem:
            self._problem = problem
            name = type(problem).__name__
            logger.error("commit failed: run=%s rows=%d problem=%s", self._key.run, self.durable, name)
            raise
        self._problem = None
        if self._progress != before:
            logger.debug(
                "committed: run=%s rows=%d new=%d releases=%d seconds=%.4f", self._key.run, self.durable,
                self.durable - before.rows, self._progress.releases, time.monotonic() - began,
            )  # fmt: skip
        if self._since_checkpoint >= _CHECKPOINT_BYTES:  # in a job of its own, which no caller waits for
            self._since_checkpoint = 0
            self.thread.begin(self._database.checkpoint)

    def _next(self, snapshot: bool) -> _Commit | None:
        """Return the next transaction: all that the stream has absorbed, as one consistent view; None if nothing."""
        while True:
            epoch = self._epoch
            if epoch is _UNDER_WAY:
                return None
            # A snapshot is due if it is no larger than the entries that it replaces, or if the last one is old.
            kept_bytes = self._logged + self._waiting().size
            old = kept_bytes and time.monotonic() - self._last_snapshot >= self._schedule.snapshot_seconds
            due = snapshot or old or kept_bytes >= max(self._snapshot_bytes, _LEAST_SNAPSHOT)
            state = committed_state(self._engine) if due else None
            last = self._engine.now.entries if state is None else state["entries"]
            if self._epoch is epoch:  # otherwise an epoch began or ended meanwhile, and part of it may be in view
                break
        kept, node = [], self._newest
        while node is not None and node.end.number > self._stored:
            if node.end.number <= last:
                kept.append(node)
            node = node.previous
        if not kept and self._progress.folded == self._progress.records:
            state = None  # the latest snapshot holds all
        if not kept and state is None and epoch is None:
            return None
        return _Commit(kept[::-1], last, state, epoch)

    def _store(self, found: _Commit) -> None:
        """Write entries, or a snapshot that holds them, with releases and progress, in one transaction."""
        before, seal, engine = self._progress, self._seal, self._engine
        entries = [kept.entry for kept in found.kept]
        groups = list(groups_of(entries))
        number = before.records + len(groups)
        releases = [entry.release for entry in entries if entry.release is not None]
        progress = before._replace(releases=before.releases + len(releases), records=number)
        if releases:
            progress = progress._replace(released=releases[-1].t)
        if entries:
            t = entries[-1].first + entries[-1].count - 1
            progress = progress._replace(rows=t, digest=self._key.point(t, entries[-1].link))
        log: list[tuple[int, int, int, bytes]] = []
        chunks: list[tuple[int, int, bytes]] = []
        if found.state is None:
            log = [
                (at, group[0].first, sum(entry.count for entry in group), seal.seal("entry", at, record_of(group)))
                for at, group in enumerate(groups, before.records + 1)
            ]
        else:
            progress = progress._replace(snapshot=progress.rows, folded=number)
            state = encode(found.state)
            count = -(-len(state) // CHUNK)
            for at in range(count):
                chunk = state[at * CHUNK : (at + 1) * CHUNK]
                chunks.append((at + 1, count, seal.seal(chunk_name(at + 1, count), number, chunk)))
            del state  # as large as the sealed chunks, which wait for the disk
        records = list(release_records(releases))
        fresh = trace_of(entries)
        trace = [(number, seal.seal("trace", number, encode(fresh)))] if fresh else []
        rows = self._rows.after([entry.rows for entry in entries if entry.count])
        described: dict[str, Any] = {}
        if entries and not self._described:  # the first row fixes features and bounds
            described["config"] = dump(config_of(engine))
            described["label"] = label_of(engine.algorithm, engine.now.admission)
        position = found.kept[-1].position if entries else self.durable_position
        if position != self.durable_position:
            sealed = None if position is None else seal.seal("position", number, encode(list(position))).hex()
            described["position"] = [number, sealed]

        def work(db: sqlite3.Connection) -> None:
            # Remove what a commit that failed after its transaction has left.
            for table in ("log", "trace", "points"):
                db.execute(f"DELETE FROM {table} WHERE number > ?", (before.records,))  # noqa: S608
            db.execute("DELETE FROM releases WHERE t > ?", (before.released,))
            if chunks:
                db.execute("DELETE FROM snapshot")
                db.execute("DELETE FROM log")
                db.executemany("INSERT INTO snapshot VALUES (?, ?, ?)", chunks)
            db.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", log)
            db.executemany(
                "INSERT INTO releases VALUES (?, ?, ?)",
                ((t, record, checksum(str(t), record)) for t, record in records),
            )
            db.executemany("INSERT INTO trace VALUES (?, ?)", trace)
            if entries:
                db.execute("INSERT INTO points VALUES (?, ?, ?)", (number, progress.rows, progress.digest))
                db.execute(
                    "DELETE FROM points WHERE number <= "
                    "(SELECT number FROM points ORDER BY number DESC LIMIT 1 OFFSET ?)",
                    (POINTS,),
                )
            for name, value in described.items():
                self._database.put(name, value)
            if found.epoch is not None:
                self._database.put("epoch", {**found.epoch, "rows": progress.rows})
            self._database.put("progress", progress)
            self._database.put("sessions", rows.sessions())

        self._database.transact(work)
        self._progress, self._stored, self._rows, self.durable_position = progress, found.last, rows, position
        self._unnoted += found.kept
        if found.epoch is not None and self._epoch is found.epoch:
            self._epoch = None
        self._described = self._described or "config" in described
        written = sum(len(sealed) for *_, sealed in log) + sum(len(sealed) for *_, sealed in chunks)
        if chunks:
            self._snapshot_bytes, self._logged, self._last_snapshot = written, 0, time.monotonic()
        else:
            self._logged += written
        self._since_checkpoint += _HEAD_BYTES + written + sum(len(record) for _, record in records)

    def _note(self, *, repeat: bool = False) -> None:
        """Write the progress of the database to witness and ledger, and drop the entries that are durable."""
        point: Point = self._progress.rows, self._progress.digest
        if repeat or point != self._point:
            with plain_errors(self._database.path):
                if self._witness is not None:
                    self._witness.remember(self._key.run, point)
                if self._account is not None:
                    self._account.ledger.note(self._account.data_set, self._key.run, self._head, point)
                    self._head = point
            self._point = point
        if self._unnoted:
            older = self._unnoted
            self._noted, self._unnoted = older[-1].end, []
            for kept in older:
                kept.previous = None  # frees the entries before, which the newest one still refers to


#: Writers of this process.
_WRITERS: weakref.WeakSet[Writer] = weakref.WeakSet()


@atexit.register
def _commit_at_exit() -> None:
    """Commit the rows of open streams when the interpreter ends, like the buffers of open files."""
    for writer in list(_WRITERS):
        with suppress(Exception):  # it is logged
            writer.leave()
    wait_for_last_calls()


def sessions_of(database: Database) -> Sessions:
    """Return the digests of the rows of a run."""
    return Sessions(*(database.get("sessions") or ()))


def chunk_name(chunk: int, chunks: int) -> str:
    """Return the kind under which a chunk of a snapshot is sealed."""
    return f"snapshot {chunk}/{chunks}"
