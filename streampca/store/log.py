"""Write-ahead log of a durable stream: groups entries into transactions, and holds releases until they are durable.

The progress of a run is in three places, in this order: the stream (`State.entries`), the database (`Writer._stored`),
and the witness and the ledger outside of it (`Writer.noted`). An entry stays in memory until all of them have it, so
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
from functools import partial
from typing import Any, NamedTuple

from streampca.errors import BadParameterError, StoreLockedError, StreamBusyError, UsageError
from streampca.rows.protocol import Position
from streampca.store.config import config_of, label_of
from streampca.store.database import Database, checksum, plain_errors
from streampca.store.keys import RunKey
from streampca.store.ledger import Account
from streampca.store.people import put_people
from streampca.store.records import (
    decode,
    encode,
    groups_of,
    record_of,
    release_records,
    release_size,
    size_of,
)
from streampca.store.row_digest import TakenRows
from streampca.store.witness import LockFile, Point, Witness
from streampca.store.writing_thread import Job, WritingThread, wait_for_last_calls
from streampca.stream import periods
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
_PATIENCE = 5.0  # seconds that the end of the interpreter waits for a stream that another thread holds
_CLOSED = "this stream's store was closed, or passed on to a resumed stream. Use that one"
#: Stands for the note of an unfinished epoch, of which nothing may be written.
_UNDER_WAY: dict[str, Any] = {}

_UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


class Schedule(NamedTuple):
    """Rows between commits, or None, and the most seconds between commits and between snapshots."""

    rows: int | None
    seconds: float
    snapshot_seconds: float

    @classmethod
    def of(cls, commit_every: int | str, snapshot_every: str) -> Schedule:
        """Read the parameters of a store. Raises `BadParameterError` if one is outside its domain."""

        def seconds(name: str, value: int | str, expected: str) -> float:
            found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|min|h)", value) if isinstance(value, str) else None
            time = 0.0 if found is None else float(found[1]) * _UNITS[found[2]]
            if not 0.0 < time < math.inf:
                raise BadParameterError(name, value, f"{expected} such as '200ms', '2s' or '5min'")
            return time

        if isinstance(commit_every, int) and not isinstance(commit_every, bool) and commit_every >= 1:
            return cls(commit_every, math.inf, seconds("snapshot_every", snapshot_every, "a time"))
        interval = seconds("commit_every", commit_every, "a number of rows, or a time")
        return cls(None, interval, seconds("snapshot_every", snapshot_every, "a time"))


@dataclass(slots=True, repr=False)
class _Kept:
    """An entry that may not be durable yet, the one before it, and totals of the stream up to the entry."""

    entry: Entry | None  #: None for the place where this writer began
    position: Position | None  #: of the source after the entry
    number: int  #: of the entry in the stream
    rows: int
    size: int = 0  #: bytes of rows and releases
    ends: int = 0  #: entries without rows, and rows of open periods, which are not among ``rows``
    previous: _Kept | None = None


@dataclass(eq=False, repr=False)
class Writer:
    """Commit log of one stream (`streampca.stream.blocks.CommitLog`)."""

    _owner: Any  # the store, which the stream keeps open
    lock: InitVar[LockFile]
    _database: Database
    _key: RunKey
    _witness: Witness | None
    _account: Account | None
    _head: Point | None  # the point in the account
    _engine: Engine
    _schedule: Schedule
    lost: str = field(default="", init=False)  # reason why no more rows are accepted

    def __post_init__(self, lock: LockFile) -> None:
        self._progress = self._database.progress
        self._point: Point = self._progress.rows, self._progress.digest
        taken, position = sealed_facts(self._database, self._key)
        self._rows = taken.resumed()
        # Entries form a list from the newest one back to the last that is noted. Its nodes never change in a way that
        # another thread could see half of. Database, witness and account have all up to ``noted``.
        self._newest = self._stored = self.noted = _Kept(None, position, self._engine.now.entries, self._progress.rows)
        self._epoch: dict[str, Any] | None = None
        self._problem: Exception | None = None
        self._job: Job | None = None
        self._logged = self._snapshot_bytes = 0
        # Monotonic: the clock of the system may be set back.
        self._last = self._last_snapshot = time.monotonic()
        _WRITERS.add(self)
        # Last, so that facts that fail their checks above leave no thread behind.
        self.thread = WritingThread(lock, self._database, self._witness, self._account)
        self._engine.guard.helper = self.thread.ident

    # -- what the stream calls --------------------------------------------------------

    @property
    def room(self) -> int | None:
        rows = self._schedule.rows
        # Rows that only the database has count as waiting: a commit is complete after its note.
        return None if rows is None else max(1, rows - (self._absorbed().rows - self.noted.rows))

    def position(self, *, durable: bool) -> Position | None:
        return (self.noted if durable else self._absorbed()).position

    def check(self) -> bool:
        if self.lost:
            raise StoreLockedError(self.lost)
        if self._problem is not None and self._epoch is not _UNDER_WAY:
            self.commit()  # repeats the commit that failed, or raises its exception
        return time.monotonic() - self._last >= self._schedule.seconds

    def append(self, entry: Entry) -> None:
        before = self._absorbed()
        # An interrupted row may have left an entry of this number, which the assignment below replaces.
        # The position of an entry without rows is that of the entry before.
        position = entry.position if entry.rows is not None or entry.block is not None else before.position
        size = before.size + size_of(entry) + (0 if entry.release is None else release_size(entry.release))
        ends = before.ends + (entry.count == 0 if entry.rows is None else len(entry.rows) - entry.count)
        self._newest = _Kept(entry, position, before.number + 1, entry.first + entry.count - 1, size, ends, before)

    def appended(self) -> None:
        if self._epoch is _UNDER_WAY:
            return
        absorbed = self._absorbed()
        # Not in the writing thread (`last_call`), which would wait for itself.
        is_large = absorbed.size - self.noted.size > _MOST_BYTES and self._schedule.snapshot_seconds < math.inf
        if self._schedule.rows is not None:
            if absorbed.rows + absorbed.ends - self.noted.rows - self.noted.ends >= self._schedule.rows:
                self.commit()
        elif is_large or self.check():
            job = self._job
            if job is not None and not job.is_done:
                if not is_large:
                    return  # entries gather until the disk is ready for them
                self.thread.wait(job)
            # In the background: rows influence no released value before they are durable (`hold`).
            self._last, self._job = time.monotonic(), self.thread.begin(self._write)

    def close(self) -> None:
        self._owner.close()

    def hold(self, t: int) -> None:
        while True:
            absorbed, noted = self._absorbed(), self.noted
            # A release after the last row, as of `finish`, belongs to an entry without rows.
            if t < noted.rows or absorbed is noted or (t == noted.rows and absorbed.ends == noted.ends):
                return
            if self._epoch is _UNDER_WAY:
                raise UsageError("releases of an epoch are durable only after all of it. Read them after it")
            self.commit()

    # -- what the store calls ---------------------------------------------------------

    def commit(self, *, snapshot: bool = False) -> None:
        """Commit all that the stream has absorbed, and wait for it. After a failure, the next call tries again."""
        if self.lost:
            raise StoreLockedError(self.lost)
        self._last = time.monotonic()
        self.thread.wait(self.thread.begin(partial(self._write, snapshot)))

    def flush(self) -> None:
        """Make the stream absorb the rows that wait, commit all, and wait for it."""
        periods.tick_quietly(self._engine)
        self._engine.absorb_waiting()
        self.commit()

    @contextmanager
    def one_commit(self, epoch: dict[str, Any]) -> Iterator[None]:
        """See `Store.in_one_commit`. If the block raises after some of its rows, the stream accepts no more."""
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
            if self._engine.now.entries > before or self._engine.t > self.noted.rows:
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
        """Commit all, with a snapshot, once no other thread refers to the stream. In the writing thread."""
        if self.lost:
            return
        # The stream refuses calls of its helper. Absorbing must not commit: this thread would wait for itself.
        self._engine.guard.helper = 0
        self._problem, self._schedule = None, Schedule(None, math.inf, math.inf)
        periods.tick_quietly(self._engine)
        self._engine.absorb_waiting()
        self._write()  # first without a snapshot: the disk may have room for the rows only
        self._write(snapshot=True)

    def leave(self) -> None:
        """Commit all when the interpreter ends, unless another thread holds the stream."""
        if self.lost:
            return
        if not self._engine.guard.lock.acquire(timeout=_PATIENCE):
            logger.error("not committed, a thread holds the stream: run=%s rows=%d", self._key.run, self.noted.rows)
            return
        self._engine.guard.lock.release()  # the writing thread may need it
        self.flush()
        # Rows that an exit handler pushes after this one are committed one by one.
        self._schedule = self._schedule._replace(rows=1)

    def detach(self) -> None:
        """Stop accepting rows: the store is closed, or another stream has resumed the run. Idempotent."""
        self.lost = self.lost or _CLOSED
        self._owner = None  # the store may continue with another stream
        self.thread.stop()
        self._engine.guard.helper = 0  # the system may give the identifier to another thread

    def _absorbed(self) -> _Kept:
        """Return the latest entry that the stream absorbed."""
        newest = self._newest
        # An entry is appended before the stream absorbs it: at most one is ahead.
        return newest if newest.previous is None or newest.number <= self._engine.now.entries else newest.previous

    # -- what the writing thread does -------------------------------------------------

    def _write(self, snapshot: bool = False) -> None:
        """Bring the database, and then witness and ledger, to the state of the stream."""
        began, before = time.monotonic(), self._progress
        try:
            # Order: database, witness, ledger. A crash between them leaves the latter two behind, never ahead.
            with plain_errors(self._database.path):
                self._store(snapshot)
                self.note()
        except Exception as problem:
            self._problem = problem
            name = type(problem).__name__
            logger.error("commit failed: run=%s rows=%d problem=%s", self._key.run, self.noted.rows, name)
            raise
        self._problem = None
        if self._progress != before:
            logger.debug(
                "committed: run=%s rows=%d new=%d releases=%d seconds=%.4f", self._key.run, self.noted.rows,
                self.noted.rows - before.rows, self._progress.releases, time.monotonic() - began,
            )  # fmt: skip

    def _view(self, snapshot: bool) -> tuple[list[_Kept], dict[str, Any] | None, dict[str, Any] | None]:
        """Return the entries to write, the state after them if they go into a snapshot, and the note of an epoch."""
        while True:
            epoch = self._epoch
            # A snapshot is due if it is no larger than the entries that it replaces, or if the last one is old.
            kept_bytes = self._logged + self._absorbed().size - self.noted.size
            old = kept_bytes and time.monotonic() - self._last_snapshot >= self._schedule.snapshot_seconds
            due = snapshot or old or kept_bytes >= max(self._snapshot_bytes, _LEAST_SNAPSHOT)
            state = committed_state(self._engine) if due else None
            # The stream may absorb more meanwhile. Entries after the state are left to the next commit.
            last = self._engine.now.entries if state is None else state["entries"]
            if self._epoch is epoch:  # otherwise an epoch began or ended meanwhile, and part of it may be in view
                break
        kept: list[_Kept] = []
        node: _Kept | None = None if epoch is _UNDER_WAY else self._newest
        while node is not None and node.number > self._stored.number:
            if node.number <= last:
                kept.append(node)
            node = node.previous
        if epoch is _UNDER_WAY or (not kept and self._progress.folded == self._progress.records):
            state = None  # nothing may be written, or the latest snapshot holds all
        return kept[::-1], state, None if epoch is _UNDER_WAY else epoch

    def _store(self, snapshot: bool) -> None:
        """Write all that the stream has absorbed, as entries or as a snapshot, with releases, in one transaction."""
        kept, state, epoch = self._view(snapshot)
        if not kept and state is None and epoch is None:
            return
        before, key, engine = self._progress, self._key, self._engine
        entries = [one.entry for one in kept if one.entry is not None]
        groups = list(groups_of(entries))
        number = before.records + len(groups)
        releases = [entry.release for entry in entries if entry.release is not None]
        progress = before._replace(releases=before.releases + len(releases), records=number)
        if releases:
            progress = progress._replace(released=releases[-1].t)
        if entries:
            # Privacy: the chain value is a function of the exact rows, so that only a keyed digest is in the clear.
            progress = progress._replace(rows=kept[-1].rows, digest=key.point(kept[-1].rows, entries[-1].link))
        log, chunks = list[tuple[int, bytes]](), list[tuple[int, bytes]]()
        if state is None:
            for at, (group, words) in enumerate(groups, before.records + 1):
                log.append((at, key.seal("entry", at, record_of(group, words))))
        else:
            progress = progress._replace(snapshot=progress.rows, folded=number)
            data = encode(state)
            count = -(-len(data) // CHUNK)
            for at in range(1, count + 1):
                chunk = data[(at - 1) * CHUNK : at * CHUNK]
                chunks.append((at, key.seal(f"snapshot {at}/{count}", number, chunk)))
            del state, data  # as large as the sealed chunks, which wait for the disk
        records = [(t, record, checksum(str(t), record)) for t, record in release_records(releases)]
        rows = self._rows.after(
            key.derive(b"streampca rows"), ((sum(one.count for one in group), words) for group, words in groups)
        )
        stored = kept[-1] if kept else self._stored
        sealed = key.seal("rows", number, encode([rows, stored.position]))
        facts: dict[str, Any] = {"progress": progress, "rows": [number, sealed]}
        people, changed, dropped = None, dict[bytes, bytes](), False
        for entry in entries:
            if entry.people is not None:
                people = entry.people
                # Without a person that has a state, those of the table are of a closed period.
                dropped = dropped or people.number == people.past
                changed = {} if people.number == people.past else {**changed, **people.changes}
        if entries and not before.records:  # the first row fixes features and bounds
            facts["config"] = config_of(engine)
            facts["label"] = label_of(engine.algorithm, engine.now.admission)
        if epoch is not None:
            facts["epoch"] = {**epoch, "rows": progress.rows}

        def work(db: sqlite3.Connection) -> None:
            # Remove what a commit that failed after its transaction has left.
            for table in ("log", "points"):
                db.execute(f"DELETE FROM {table} WHERE number > ?", (before.records,))  # noqa: S608
            db.execute("DELETE FROM releases WHERE number > ?", (before.released,))
            if chunks:
                # Privacy: secure_delete overwrites in the file what the snapshot replaces, so that a key that leaks
                # later does not open these rows.
                db.execute("DELETE FROM snapshot")
                db.execute("DELETE FROM log")
                db.executemany("INSERT INTO snapshot VALUES (?, ?)", chunks)
            db.executemany("INSERT INTO log VALUES (?, ?)", log)
            db.executemany("INSERT INTO releases VALUES (?, ?, ?)", records)
            if engine.budgets is not None:
                put_people(self._database, key, progress, people, changed, dropped)
            if entries:
                db.execute("INSERT INTO points VALUES (?, ?, ?)", (number, progress.rows, progress.digest))
                oldest = "(SELECT number FROM points ORDER BY number DESC LIMIT 1 OFFSET ?)"
                db.execute(f"DELETE FROM points WHERE number <= {oldest}", (POINTS,))  # noqa: S608
            self._database.put(**facts)

        self._database.transact(work)
        # The rows are durable from here on. If an exception comes first, the next commit writes them again, and the
        # statements at the beginning of `work` remove what this one wrote.
        self._progress, self._stored, self._rows = progress, stored, rows
        if epoch is not None and self._epoch is epoch:
            self._epoch = None
        written = sum(len(sealed) for _, sealed in log + chunks)
        if chunks:
            self._snapshot_bytes, self._logged, self._last_snapshot = written, 0, time.monotonic()
        else:
            self._logged += written

    def note(self, *, repeat: bool = False) -> None:
        """Write the progress of the database to witness and ledger, and drop the entries that are durable."""
        point: Point = self._progress.rows, self._progress.digest
        # After a crash, witness and ledger may be one commit behind: then the point is written once more.
        if repeat or point != self._point:
            with plain_errors(self._database.path):
                # Releases are handed out after this. Then witness and ledger know of every release that was read.
                if self._witness is not None:
                    self._witness.remember(self._key.run, point)
                if self._account is not None:
                    self._account.ledger.note(self._account.data_set, self._key.run, self._head, point)
                    self._head = point
            self._point = point
        self.noted = self._stored
        node: _Kept | None = self._stored
        while node is not None:  # frees the entries before, which the newest one still refers to
            node.previous, node = None, node.previous


#: Writers of this process.
_WRITERS: weakref.WeakSet[Writer] = weakref.WeakSet()


@atexit.register
def _commit_at_exit() -> None:
    """Commit the rows of open streams when the interpreter ends, like the buffers of open files."""
    for writer in list(_WRITERS):
        with suppress(Exception):  # it is logged
            writer.leave()
    wait_for_last_calls()


def sealed_facts(database: Database, key: RunKey) -> tuple[TakenRows, Position | None]:
    """Return the digests of the rows of a run, and the position of the source after them."""
    number, sealed = database.get("rows") or (0, None)
    if sealed is None:
        return TakenRows(), None
    # Sealed, because digests and positions are functions of raw rows.
    rows, position = decode(key.open("rows", number, sealed))
    return TakenRows(*rows), None if position is None else Position(*position)
