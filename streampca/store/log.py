"""Write-ahead log of a durable stream. Groups entries into transactions, and holds releases back until they are done.

Three places know how far a run has come, and each follows the one before: the
stream (`State.entries`), the database (`Writer._stored`), and what is noted
outside of it (witness, ledger: `Writer._noted`). An entry stays in memory until all
of them have it, so a commit that failed is made again from what is kept.

An exception may break off what the stream's thread does at any point: that thread
changes the log by single assignments, takes no lock that the writing thread waits
for, and reads off the stream which entries were taken.
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
from datetime import timedelta
from functools import partial
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

#: Ends of commits that are kept, to recognise the one that witness or ledger remember.
POINTS = 64
#: A snapshot is kept in chunks of so many bytes, far below the largest value that SQLite takes.
CHUNK = 2**26
# Entries of so many bytes are committed whatever the schedule says, so that memory stays flat.
_MOST_BYTES = 2**24
_LEAST_SNAPSHOT = 2**16
# SQLite's write-ahead log is copied into the file whenever so much was written.
_CHECKPOINT_BYTES = 2**19
_HEAD_BYTES = 2**14
# Seconds that the end of the interpreter waits for a stream that another thread holds.
_PATIENCE = 5.0
_CLOSED = "this stream's store was closed, or passed on to a resumed stream; use that one"
#: Stands for the note of an epoch that is under way, of which nothing may be written.
_UNDER_WAY: dict[str, Any] = {}

_UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|h|rows?)\s*")


class Schedule(NamedTuple):
    """Rows or seconds between commits, one of them, and seconds between snapshots."""

    rows: int | None
    seconds: float | None
    snapshot_seconds: float

    @classmethod
    def of(cls, commit_every: int | str | timedelta, snapshot_every: str | timedelta) -> Schedule:
        """Read the parameters of a store. Raises `BadParameterError` if one is outside its domain."""
        snapshot = _seconds("snapshot_every", snapshot_every)
        if isinstance(commit_every, str) and (found := _TEXT.fullmatch(commit_every)) and found[2].startswith("row"):
            commit_every = int(found[1]) if found[1].isdigit() else 0
        if isinstance(commit_every, int) and not isinstance(commit_every, bool):
            if commit_every < 1:
                raise BadParameterError(f"commit_every={commit_every!r} must be at least 1 row")
            return cls(commit_every, None, snapshot)
        return cls(None, _seconds("commit_every", commit_every), snapshot)


def _seconds(name: str, value: object) -> float:
    seconds = math.nan
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, str) and (found := _TEXT.fullmatch(value)) and found[2] in _UNITS:
        seconds = float(found[1]) * _UNITS[found[2]]
    if not 0.0 < seconds < math.inf:
        rows = "a number of rows, or " if name == "commit_every" else ""
        raise BadParameterError(f"{name}={value!r} must be {rows}a time such as '200ms', '2s' or '5min'")
    return seconds


class _Noted(NamedTuple):
    """Up to where all is durable: number of the entry, rows, and bytes and entries without rows since the beginning."""

    number: int
    rows: int
    size: int
    ends: int


class _Kept:
    """An entry that may not be durable yet, its number in the stream, and the one before it.

    ``rows``, ``size`` and ``ends`` are as in `_Noted`, if it were the last; ``position`` is that of the source.
    """

    __slots__ = ("ends", "entry", "number", "position", "previous", "rows", "size")

    def __init__(
        self, entry: Entry, number: int, previous: _Kept | None, before: _Kept | _Noted, position: Position | None
    ) -> None:
        self.entry, self.number, self.previous = entry, number, previous
        self.position = entry.position if entry.count else position
        release = 0 if entry.release is None else release_size(entry.release)
        self.rows = entry.first + entry.count - 1
        self.size: int = before.size + size_of(entry) + release
        self.ends: int = before.ends + (entry.count == 0)


_NOTHING = _Noted(0, 0, 0, 0)


class _Commit(NamedTuple):
    """Contents of one transaction."""

    kept: list[_Kept]
    last: int
    state: dict[str, Any] | None
    epoch: dict[str, Any] | None


class Writer:
    """Commit log of one stream (`streampca.stream.blocks.CommitLog`).

    ``witness`` and ``account`` note outside of the database how far the run has come; ``head`` is what the account
    holds now. ``store`` stays open as long as the stream is held, and ``lock`` is its lock.
    """

    def __init__(
        self,
        store: object,
        lock: LockFile,
        database: Database,
        key: RunKey,
        witness: Witness | None,
        account: Account | None,
        head: Point | None,
        engine: Engine,
        schedule: Schedule,
    ) -> None:
        self._owner: object = store
        self._database, self._witness, self._engine, self._schedule = database, witness, engine, schedule
        self._account, self._head = account, head
        self._key, self._seal = key, Seal(key)
        self._progress = database.progress
        self._stored = engine.now.entries
        self._point: Point = self._progress.rows, self._progress.digest
        self._noted = _Noted(engine.now.entries, self._progress.rows, 0, 0)
        self._rows = TakenRows(key.row_key(), sessions_of(database), self._progress.rows)
        self._newest: _Kept | None = None
        self._unnoted: list[_Kept] = []  # in the database, but not noted outside of it
        number, sealed = database.get("position") or (0, None)
        self._position: Position | None = None  # of the source, in the database; None if it is not known
        if sealed is not None:
            self._position = Position(*decode(self._seal.open("position", number, bytes.fromhex(sealed))))
        self._described = self._progress.records > 0
        self._epoch: dict[str, Any] | None = None
        self._lost = ""
        self._problem: Exception | None = None
        self._job: Job | None = None
        self._logged = self._snapshot_bytes = self._since_checkpoint = 0
        self._last = self._last_snapshot = time.monotonic()
        _WRITERS.add(self)
        self.thread = WritingThread(lock, database, witness, account)
        engine.guard.helper = self.thread.ident

    # -- what the stream calls --------------------------------------------------------

    @property
    def room(self) -> int | None:
        """Number of single rows that may wait before the next commit; None if it does not count rows."""
        rows = self._schedule.rows
        return None if rows is None else max(1, rows - self._waiting().rows)

    @property
    def position(self) -> Position | None:
        """Position of the source after the rows taken; None if it is not known."""
        newest = self._newest_taken()
        return self._position if newest is None else newest.position

    @property
    def durable_position(self) -> Position | None:
        """Position of the source after the rows that are durable."""
        return self._position

    def check(self) -> bool:
        """Raise if the log takes no more entries; tell if a commit is overdue. A commit that failed is made again."""
        if self._lost:
            raise StoreLockedError(self._lost)
        if self._problem is not None and self._epoch is not _UNDER_WAY:
            self.commit()
        seconds = self._schedule.seconds
        return seconds is not None and time.monotonic() - self._last >= seconds

    def append(self, entry: Entry) -> None:
        """Keep an entry. Those that the stream has not taken are replaced."""
        taken, newest, noted = self._engine.now.entries, self._newest_taken(), self._noted
        position = self._position if newest is None else newest.position
        self._newest = _Kept(entry, taken + 1, newest, newest or noted, position)

    def appended(self) -> None:
        """Commit if it is time."""
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
        """Return once the first t rows, and the releases made of them, are durable."""
        while True:
            rows, waiting = self._noted.rows, self._waiting()
            if t < rows or waiting.number == 0 or (t == rows and waiting.ends == 0):
                return
            if self._epoch is _UNDER_WAY:
                raise BadParameterError(
                    "releases of an epoch can be read once all of it is durable; read them after it"
                )
            self.commit()

    # -- what the store calls ---------------------------------------------------------

    @property
    def durable(self) -> int:
        """Rows that are durable."""
        return self._noted.rows

    def commit(self, *, snapshot: bool = False) -> None:
        """Commit all that the stream has taken, and wait for it.

        Raises `StoreUnwritableError` if that is not possible. The next call tries again.
        """
        if self._lost:
            raise StoreLockedError(self._lost)
        self._last = time.monotonic()
        self.thread.do(partial(self._write, snapshot))

    def flush(self) -> None:
        """Make the stream absorb the rows that wait, commit all, and wait for it."""
        self._engine.absorb_waiting()
        self.commit()

    def note(self) -> None:
        """Note the progress of the database again: it may be one commit further than what is noted outside of it."""
        self.thread.do(partial(self._note, again=True))

    @contextmanager
    def one_commit(self, epoch: dict[str, Any]) -> Iterator[None]:
        """All that is taken within becomes durable together and with this note, or not at all.

        If it breaks off, the stream holds what is not durable and may come again: it takes no more rows.
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
                self._lost = "an epoch broke off in the middle and is not durable; continue with Stream.resume(store)"
            else:
                self._epoch = None
            raise
        self.commit()

    def finish(self, *, snapshot: bool = True) -> None:
        """Commit all, with a snapshot, and accept no more rows. Idempotent."""
        if not self._lost:
            self.flush()  # should there be room for the rows, but not for a snapshot
            self._engine.absorb_waiting(partial(self._end, snapshot))

    def _end(self, snapshot: bool) -> None:
        """Commit what came since, and accept no more rows. No row can come in between."""
        self.commit(snapshot=snapshot)
        self._lost = _CLOSED

    def last_call(self) -> None:
        """Commit all, with a snapshot, once only this thread holds the stream. In the writing thread."""
        if self._lost:
            return
        self._engine.guard.helper = 0
        try:
            self._engine.absorb_waiting()
        finally:
            self._write()
        self._write(snapshot=True)

    def leave(self) -> None:
        """Commit all when the interpreter ends; nothing if another thread keeps the stream to itself."""
        if self._lost:
            return
        if not self._engine.guard.lock.acquire(timeout=_PATIENCE):
            logger.error("not committed, a thread holds the stream: run=%s rows=%d", self._key.run, self.durable)
            return
        self._engine.guard.lock.release()  # the writing thread may need it
        self.flush()

    def detach(self) -> None:
        """Take no more rows: the store is closed, or the run has passed to another stream. Again, it does nothing."""
        self._lost = self._lost or _CLOSED
        self._owner = None  # a store that goes on with another stream
        self.thread.stop()
        self._engine.guard.helper = 0  # the identifier may become that of another thread

    def after_fork(self) -> None:
        """Take no more rows in the child of a fork, where there is no thread that writes."""
        self._lost = "the parent process of this one writes this store; use it there"

    # -- how it works -----------------------------------------------------------------

    def _waiting(self) -> _Noted:
        """Entries, rows, bytes and entries without rows that the stream took and that are not durable."""
        newest, noted = self._newest_taken(), self._noted
        if newest is None:
            return _NOTHING
        return _Noted(
            newest.number - noted.number, newest.rows - noted.rows, newest.size - noted.size, newest.ends - noted.ends
        )

    def _newest_taken(self) -> _Kept | None:
        """The latest entry that the stream took, if it is not noted."""
        newest, noted, taken = self._newest, self._noted, self._engine.now.entries
        if newest is not None and newest.number > taken:
            newest = newest.previous
        return None if newest is None or newest.number <= noted.number else newest

    # -- what the writing thread does -------------------------------------------------

    def _write(self, snapshot: bool = False) -> None:
        """Bring the database, and then what is noted outside of it, to where the stream stands."""
        began, before = time.monotonic(), self._progress
        try:
            with plain_errors(self._database.path):
                found = self._next(snapshot)
                if found is not None:
                    self._store(found)
                self._note()
        except Exception as problem:
            self._problem = problem
            logger.error(
                "commit failed: run=%s rows=%d problem=%s", self._key.run, self.durable, type(problem).__name__
            )
            raise
        self._problem = None
        if self._progress != before:
            logger.debug(
                "committed: run=%s rows=%d new=%d releases=%d seconds=%.4f", self._key.run, self.durable,
                self.durable - before.rows, self._progress.releases, time.monotonic() - began,
            )  # fmt: skip
        if self._since_checkpoint >= _CHECKPOINT_BYTES:  # after this commit is told to be done
            self._since_checkpoint = 0
            self.thread.begin(self._database.checkpoint)

    def _next(self, snapshot: bool) -> _Commit | None:
        """Next transaction: all that the stream has taken, as one consistent view; None if there is nothing."""
        while True:
            epoch = self._epoch
            if epoch is _UNDER_WAY:
                return None
            due = snapshot or self._is_snapshot_due()
            state = committed_state(self._engine) if due else None
            last = self._engine.now.entries if state is None else state["entries"]
            if self._epoch is epoch:  # else an epoch began or ended meanwhile, and some of it may be in view
                break
        kept, node = [], self._newest
        while node is not None and node.number > self._stored:
            if node.number <= last:
                kept.append(node)
            node = node.previous
        if not kept and self._progress.folded == self._progress.records:
            state = None  # the latest snapshot holds all
        if not kept and state is None and epoch is None:
            return None
        return _Commit(kept[::-1], last, state, epoch)

    def _is_snapshot_due(self) -> bool:
        """True if a snapshot is no larger than the entries that it saves from being kept, or the last one is old."""
        kept = self._logged + self._waiting().size
        old = kept and time.monotonic() - self._last_snapshot >= self._schedule.snapshot_seconds
        return bool(old) or kept >= max(self._snapshot_bytes, _LEAST_SNAPSHOT)

    def _store(self, found: _Commit) -> None:
        """One transaction: entries, or a snapshot that holds them; releases, and the progress."""
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
        if entries and not self._described:  # features and bounds are fixed by the first row
            described["config"] = dump(config_of(engine))
            described["label"] = label_of(engine.algorithm, engine.now.admission)
        position = found.kept[-1].position if entries else self._position
        if position != self._position:
            sealed = None if position is None else seal.seal("position", number, encode(list(position))).hex()
            described["position"] = [number, sealed]

        def work(db: sqlite3.Connection) -> None:
            for table in ("log", "trace", "points"):  # of a commit that failed and is made again
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
        self._progress, self._stored, self._rows, self._position = progress, found.last, rows, position
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

    def _note(self, *, again: bool = False) -> None:
        """Note the progress of the database in witness and ledger, and drop the entries that are durable."""
        point: Point = self._progress.rows, self._progress.digest
        if again or point != self._point:
            with plain_errors(self._database.path):
                if self._witness is not None:
                    self._witness.remember(self._key.run, point)
                if self._account is not None:
                    self._account.note(self._key.run, self._head, point)
                    self._head = point
            self._point = point
        if self._unnoted:
            last, older = self._unnoted[-1], self._unnoted
            self._noted, self._unnoted = _Noted(last.number, last.rows, last.size, last.ends), []
            for kept in older:
                kept.previous = None


#: Writers of this process.
_WRITERS: weakref.WeakSet[Writer] = weakref.WeakSet()


@atexit.register
def _commit_at_exit() -> None:
    """Commit what streams hold when the interpreter ends, as files are written that nobody closed."""
    for writer in list(_WRITERS):
        with suppress(Exception):  # it is logged
            writer.leave()
    wait_for_last_calls()


def sessions_of(database: Database) -> Sessions:
    """Digests of the rows that the run has taken."""
    found = database.get("sessions")
    return Sessions() if found is None else Sessions(*found)


def chunk_name(chunk: int, chunks: int) -> str:
    """Kind of record under which a chunk of a snapshot is sealed."""
    return f"snapshot {chunk}/{chunks}"
