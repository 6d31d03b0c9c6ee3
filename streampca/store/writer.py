"""Write-ahead log of a durable stream: groups its entries into transactions, and keeps releases back until then.

Three places know how far a run has come, and each follows the one before: the
stream (`Stream.entries`), the database (`Writer._stored`), and what is noted
outside of it (witness, ledger: `Writer._noted`). An entry stays in memory until all
of them have it, so a commit that failed is made again from what is kept.

An exception may break off what the stream's thread does at any point: that thread
changes the log by single assignments, takes no lock that the writing thread waits
for, and reads off the stream which entries were taken.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from streampca.errors import BadParameter, StoreLocked
from streampca.store import config
from streampca.store.checkpoint import config_of, label_of
from streampca.store.checksums import checksum
from streampca.store.codec import Part, encode, parts_of
from streampca.store.database import Database
from streampca.store.entries import PIECE, groups_of, record_of, size_of, trace_of
from streampca.store.files import told_plainly
from streampca.store.fold import sealed_pieces, sweep, write_pieces
from streampca.store.keys import RunKey, Seal
from streampca.store.ledger import Account
from streampca.store.records import ReleaseRecords, in_groups
from streampca.store.records import size_of as release_size
from streampca.store.schedule import Schedule
from streampca.store.thread import Idle, Job, WritingThread
from streampca.store.witness import Point, Witness
from streampca.stream import Entry, Stream

log = logging.getLogger("streampca.store")

#: Ends of commits that are kept, to recognise the one that witness or ledger remember.
POINTS = 64
# Entries of so many bytes are committed whatever the schedule says, so that memory stays flat.
_MOST_BYTES = 3 * 2**23
_LEAST_SNAPSHOT = 2**16
# The write-ahead log is folded into the file whenever so much was written.
_LOG_BYTES = 2**19
_HEAD_BYTES = 2**14
#: Stands for the note of an epoch that is under way, of which nothing may be written.
_UNDER_WAY: dict[str, Any] = {}


class _Noted(NamedTuple):
    """Up to where all is durable: number of the entry, rows, and bytes and entries without rows since the beginning."""

    number: int
    rows: int
    size: int
    ends: int


class _Kept:
    """An entry that may not be durable yet, its number in the stream, and the one before it.

    ``rows``, ``size`` and ``ends`` are as in `_Noted`, if it were the last.
    """

    __slots__ = ("ends", "entry", "number", "previous", "rows", "size")

    def __init__(self, entry: Entry, number: int, previous: _Kept | None, before: _Kept | _Noted) -> None:
        self.entry, self.number, self.previous = entry, number, previous
        release = 0 if entry.release is None else release_size(entry.release)
        self.rows = entry.first + entry.count - 1
        self.size: int = before.size + 2 * size_of(entry) + release
        self.ends: int = before.ends + (entry.count == 0)


_NOTHING = _Noted(0, 0, 0, 0)


class _Commit(NamedTuple):
    """What one transaction writes."""

    kept: list[_Kept]
    last: int
    state: dict[str, Any] | None
    epoch: dict[str, Any] | None


class Writer:
    """Commit log of one stream (`streampca.stream.CommitLog`).

    Parameters
    ----------
    database, key : of the run.
    witness : where it is noted how far it has come, or None.
    account : where the ledger keeps the head of the run, or None.
    head : the head that it holds now.
    stream : the stream whose log this is.
    schedule : when to commit.
    """

    def __init__(
        self,
        database: Database,
        key: RunKey,
        witness: Witness | None,
        account: Account | None,
        head: Point | None,
        stream: Stream,
        schedule: Schedule,
    ) -> None:
        self._database, self._witness, self._stream, self._schedule = database, witness, stream, schedule
        self._account, self._head = account, head
        self._key, self._seal = key, Seal(key)
        self._progress = database.progress
        self._stored = stream.entries
        self._point: Point = self._progress.rows, self._progress.digest
        self._noted = _Noted(stream.entries, self._progress.rows, 0, 0)
        self._newest: _Kept | None = None
        self._unnoted: list[_Kept] = []  # in the database, but not noted outside of it
        self._described = self._progress.records > 0
        self._epoch: dict[str, Any] | None = None
        self._lost = ""
        self._problem: Exception | None = None
        self._job: Job | None = None
        self._records = ReleaseRecords()
        self._logged, self._snapshot_bytes, self._in_log, self._logs_turn = 0, 0, 0, True
        # What the thread does between commits: a step of `fold`, or folding the write-ahead log in.
        self._fold = sweep(database, self._progress.folded)
        self._last = self._last_snapshot = time.monotonic()
        self._thread = WritingThread()

    # -- what the stream calls --------------------------------------------------------

    @property
    def room(self) -> int | None:
        """How many single rows may wait before the next commit; None if it does not count rows."""
        rows = self._schedule.rows
        return None if rows is None else max(1, rows - self._waiting().rows)

    def check(self) -> bool:
        """Raise if the log takes no more pieces; tell if a commit is overdue. A commit that failed is made again."""
        if self._lost:
            raise StoreLocked(self._lost)
        if self._problem is not None and self._epoch is not _UNDER_WAY:
            self.commit()
        seconds = self._schedule.seconds
        return seconds is not None and time.monotonic() - self._last >= seconds

    def append(self, entry: Entry) -> None:
        """Keep a piece. Those that the stream has not taken are replaced."""
        taken, newest, noted = self._stream.entries, self._newest, self._noted
        if newest is not None and newest.number > taken:
            newest = newest.previous
        if newest is not None and newest.number <= noted.number:
            newest = None
        self._newest = _Kept(entry, taken + 1, newest, newest or noted)

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
                self._thread.wait(job)
            self._last, self._job = time.monotonic(), self._thread.begin(self._write)

    def hold(self, t: int) -> None:
        """Return once the first t rows, and the releases made of them, are durable."""
        while not self._is_durable(t):
            if self._epoch is _UNDER_WAY:
                raise BadParameter("releases of an epoch can be read once all of it is durable; read them after it")
            self.commit()

    # -- what the store calls ---------------------------------------------------------

    @property
    def durable(self) -> int:
        """Rows that are durable."""
        return self._noted.rows

    def commit(self, *, snapshot: bool = False) -> None:
        """Commit all that the stream has taken, and wait for it.

        Raises
        ------
        StoreUnwritable
            If that is not possible. The next call tries again.
        """
        if self._lost:
            raise StoreLocked(self._lost)
        self._last = time.monotonic()
        self._thread.do(partial(self._write, snapshot))

    def flush(self) -> None:
        """Make the stream absorb the rows that wait, commit all, and wait for it."""
        self._stream.settle()
        self.commit()

    def note(self) -> None:
        """Note where the database stands, which may be one commit further than what is noted outside of it."""
        self._thread.do(self._note_again)

    @contextmanager
    def one_commit(self, epoch: dict[str, Any]) -> Iterator[None]:
        """All that is taken within becomes durable together and with this note, or not at all.

        If it breaks off, the stream holds what is not durable and may come again: it takes no more rows.
        """
        self.flush()
        before = self._stream.entries
        try:
            self._epoch = _UNDER_WAY
            yield
            self._stream.settle()
            self._epoch = dict(epoch)
        except BaseException:
            if self._stream.entries > before or self._stream.t > self.durable:
                self._lost = "an epoch broke off in the middle and is not durable; continue with Stream.resume(store)"
            else:
                self._epoch = None
            raise
        self.commit()

    def finish(self, *, snapshot: bool = True) -> None:
        """Commit all, with a snapshot, unless the stream takes no more rows anyway."""
        if self._lost:
            return
        self.flush()
        if snapshot:
            self._thread.do(self._finish_fold)
            self.commit(snapshot=True)
            self._thread.do(self._finish_fold)

    def detach(self) -> None:
        """Take no more rows: the store is closed, or the run has passed to another stream. Again, it does nothing."""
        if not self._lost:
            self._lost = "this stream's store was closed, or passed on to a resumed stream; use that one"
        self._thread.stop()

    def after_fork(self) -> None:
        """Take no more rows in the child of a fork, where there is no thread that writes."""
        self._lost = "the parent process of this one writes this store; use it there"

    # -- how it works -----------------------------------------------------------------

    def _waiting(self) -> _Noted:
        """Entries, rows, bytes and entries without rows that the stream took and that are not durable."""
        newest, noted, taken = self._newest, self._noted, self._stream.entries
        if newest is not None and newest.number > taken:
            newest = newest.previous
        if newest is None or newest.number <= noted.number:
            return _NOTHING
        return _Noted(
            newest.number - noted.number, newest.rows - noted.rows, newest.size - noted.size, newest.ends - noted.ends
        )

    def _is_durable(self, t: int) -> bool:
        rows, waiting = self._noted.rows, self._waiting()
        return t < rows or waiting.number == 0 or (t == rows and waiting.ends == 0)

    # -- what the writing thread does -------------------------------------------------

    def _write(self, snapshot: bool = False) -> Idle | None:
        """Bring the database, and then what is noted outside of it, to where the stream stands."""
        began, before = time.monotonic(), self._progress
        try:
            with told_plainly(self._database.path):
                found = self._next(snapshot)
                if found is not None:
                    self._store(found)
                self._note()
        except Exception as problem:
            self._problem = problem
            log.error("commit failed: run=%s rows=%d problem=%s", self._key.run, self.durable, type(problem).__name__)
            raise
        self._problem = None
        if self._progress != before:
            log.debug(
                "committed: run=%s rows=%d new=%d releases=%d seconds=%.4f", self._key.run, self.durable,
                self.durable - before.rows, self._progress.releases, time.monotonic() - began,
            )  # fmt: skip
        return self._tend

    def _next(self, snapshot: bool) -> _Commit | None:
        """What is to be written: all that the stream has taken, as one consistent view; None if there is nothing."""
        while True:
            epoch = self._epoch
            if epoch is _UNDER_WAY:
                return None
            due = snapshot or self._is_snapshot_due()
            state = self._stream.committed_state() if due else None
            last = self._stream.entries if state is None else state["entries"]
            if self._epoch is epoch:  # else an epoch began or ended meanwhile, and some of it may be in view
                break
        kept, node = [], self._newest
        while node is not None and node.number > self._stored:
            if node.number <= last:
                kept.append(node)
            node = node.previous
        if not kept and self._progress.folded == self._progress.records:
            state = None  # there is nothing to fold
        if not kept and state is None and epoch is None:
            return None
        return _Commit(kept[::-1], last, state, epoch)

    def _is_snapshot_due(self) -> bool:
        """True if a snapshot is no larger than the entries that it saves from being kept, or the last one is old."""
        waiting = self._waiting().size // 2
        kept = self._logged + waiting
        old = kept and time.monotonic() - self._last_snapshot >= self._schedule.snapshot_seconds
        due = old or kept >= max(self._snapshot_bytes, _LEAST_SNAPSHOT)
        return bool(due) and (self._fold is None or waiting >= self._snapshot_bytes > 0)

    def _store(self, found: _Commit) -> None:
        """One transaction: entries or a small snapshot, releases, and the progress. Large snapshots come after it."""
        before, entries, state = self._progress, [kept.entry for kept in found.kept], found.state
        groups = list(groups_of(entries))
        kept = sum(map(size_of, entries))
        releases = [entry.release for entry in entries if entry.release is not None]
        number = before.records + max(len(groups), bool(entries))
        parts = [] if state is None else parts_of(state)
        size = sum(map(len, parts))
        # In this commit go snapshots that are small, or no larger than the entries that need not be written then.
        at_once = size > 0 and size <= max(PIECE, kept)
        progress = before._replace(
            releases=before.releases + len(releases),
            records=number,
            released=releases[-1].t if releases else before.released,
        )
        if entries:
            t = entries[-1].first + entries[-1].count - 1
            progress = progress._replace(rows=t, digest=self._key.point(t, entries[-1].link))
        if at_once:
            progress = progress._replace(snapshot=progress.rows, folded=number)
        sealed = [] if at_once else [self._sealed(at, group) for at, group in enumerate(groups, before.records + 1)]
        made = [(group[-1].t, self._records.group(group)) for group in in_groups(releases)]
        trace = trace_of(entries)
        described = None if self._described or not entries else self._description()
        pieces = list(sealed_pieces(self._seal, number, parts)) if at_once else []
        ending = (number, self._seal.close("trace", number, encode(trace))) if trace is not None else None

        def work(db: sqlite3.Connection) -> None:
            for table in ("log", "trace", "points"):  # of a commit that failed and is made again
                db.execute(f"DELETE FROM {table} WHERE number > ?", (before.records,))  # noqa: S608
            db.execute("DELETE FROM releases WHERE t > ?", (before.released,))
            if at_once:
                db.execute("DELETE FROM snapshot")
                db.execute("DELETE FROM log")
                db.executemany("INSERT INTO snapshot VALUES (?, ?, ?, ?)", pieces)
            db.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", sealed)
            db.executemany(
                "INSERT INTO releases VALUES (?, ?, ?)",
                ((t, record, checksum(str(t), record)) for t, record in made),
            )
            if ending is not None:
                db.execute("INSERT INTO trace VALUES (?, ?)", ending)
            if entries:
                db.execute("INSERT INTO points VALUES (?, ?, ?)", (number, progress.rows, progress.digest))
                db.execute(
                    "DELETE FROM points WHERE number <= "
                    "(SELECT number FROM points ORDER BY number DESC LIMIT 1 OFFSET ?)",
                    (POINTS,),
                )
            for name, value in (described or {}).items():
                self._database.put(name, value)
            if found.epoch is not None:
                self._database.put("epoch", {**found.epoch, "rows": progress.rows})
            self._database.put("progress", progress)

        self._database.transact(work)
        self._progress, self._stored = progress, found.last
        self._unnoted += found.kept
        if found.epoch is not None and self._epoch is found.epoch:
            self._epoch = None
        self._described = self._described or described is not None
        self._in_log += _HEAD_BYTES + sum(len(record) for _, record in made) + (size if at_once else kept)
        if state is not None:
            self._last_snapshot = time.monotonic()
        if at_once or (parts and self._fold is None):
            self._snapshot_bytes, self._logged = size, 0
            self._fold = None if at_once else self._folding(number, progress.rows, parts)
        else:
            self._logged += kept

    def _sealed(self, number: int, group: list[Entry]) -> tuple[int, int, int, bytes]:
        sealed = self._seal.close("entry", number, encode(record_of(group)))
        return number, group[0].first, sum(entry.count for entry in group), sealed

    def _description(self) -> dict[str, Any]:
        """Configuration and label: features and bounds are settled by the first row."""
        stream = self._stream
        return {"config": config.dump(config_of(stream)), "label": label_of(stream.algorithm, stream.admission)}

    def _note_again(self) -> None:
        with told_plainly(self._database.path):
            self._note(again=True)

    def _note(self, *, again: bool = False) -> None:
        """Tell witness and ledger how far the database has come; then entries need not be kept any more."""
        point: Point = self._progress.rows, self._progress.digest
        if again or point != self._point:
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

    def _folding(self, number: int, t: int, parts: list[Part]) -> Iterator[int]:
        """Write the snapshot after a record, make it the one that counts, and delete what it supersedes."""
        yield from write_pieces(self._database, self._seal, number, parts)
        progress = self._progress._replace(snapshot=t, folded=number)
        self._database.transact(lambda _: self._database.put("progress", progress))
        self._progress = progress
        yield 0
        yield from sweep(self._database, number) or ()

    def _tend(self) -> Idle | None:
        """Take one step between commits; return what to do next while no commit waits."""
        try:
            with told_plainly(self._database.path):
                if self._in_log >= _LOG_BYTES and (self._logs_turn or self._fold is None):
                    self._in_log, self._logs_turn = 0, False
                    self._database.fold_log()
                elif self._fold is not None:
                    self._logs_turn = True
                    self._take_step(self._fold)
        except Exception as problem:  # the log is whole without the snapshot, which is taken anew when it is due
            self._fold = None
            log.error("snapshot failed: run=%s rows=%d problem=%s", self._key.run, self.durable, type(problem).__name__)
        return self._tend if self._fold is not None or self._in_log >= _LOG_BYTES else None

    def _take_step(self, fold: Iterator[int]) -> None:
        written = next(fold, None)
        if written is None:
            self._fold = None
        else:
            self._in_log += written

    def _finish_fold(self) -> None:
        with told_plainly(self._database.path):
            while self._fold is not None:
                self._take_step(self._fold)
