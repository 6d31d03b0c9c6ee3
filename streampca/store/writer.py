"""The pen of a durable run: rows and releases of one stream, committed in groups."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import RLock
from typing import Any

from streampca.blocks import BlockGram
from streampca.errors import BadParameter, StoreLocked
from streampca.linalg.types import FloatArray
from streampca.release import Release
from streampca.store import config
from streampca.store.batch import PIECE, Batch
from streampca.store.checkpoint import config_of, state_of
from streampca.store.checksums import Chain, checksum
from streampca.store.codec import Part, encode, parts_of
from streampca.store.database import Database, Progress
from streampca.store.files import told_plainly
from streampca.store.fold import sealed_pieces, sweep, write_pieces
from streampca.store.keys import RunKey, Seal
from streampca.store.records import ReleaseRecords
from streampca.store.schedule import Schedule
from streampca.store.witness import Witness
from streampca.stream import Stream

log = logging.getLogger("streampca.store")

#: Points of the chain of rows that are kept, to recognise the one that the witness remembers.
POINTS = 64
# A batch of so many bytes is committed whatever the schedule says, so that memory stays flat.
_MOST_BYTES = 2**24
_LEAST_SNAPSHOT = 2**16
# The write-ahead log is folded into the file whenever so much was written.
_LOG_BYTES = 2**19
_HEAD_BYTES = 2**14


class Writer:
    """Journal of one stream (`streampca.journal.Journal`).

    Parameters
    ----------
    database, key, witness : of the run.
    stream : the stream whose journal this is.
    schedule : when to commit.
    """

    def __init__(self, database: Database, key: RunKey, witness: Witness, stream: Stream, schedule: Schedule) -> None:
        self._database, self._witness, self._stream, self._schedule = database, witness, stream, schedule
        self._run, self._seal, self._chain = key.run, Seal(key), Chain(key)
        self._progress = database.progress
        self._durable = self._handed = self._progress.rows
        self._described = False
        self._points = deque(t for (t,) in database.db.execute("SELECT t FROM points ORDER BY t"))
        self._logged, self._snapshot_bytes = 0, 0
        # What the writing thread does between commits: a step of `fold`, or folding the log in.
        self._fold = sweep(database, self._progress.snapshot)
        self._in_log, self._logs_turn, self._tending = 0, True, False
        self._records = ReleaseRecords()
        self._batch = Batch()
        self._held = False
        self._running: Future[None] | None = None
        self._failed: Exception | None = None
        #: See `Journal.turn`. The writing thread never takes it.
        self.turn = RLock()
        self._pool = ThreadPoolExecutor(1, "streampca-store")
        self._last = self._last_snapshot = time.monotonic()

    # -- what the stream calls --------------------------------------------------------

    def check(self) -> bool:
        """Raise if a commit failed; tell if one is overdue."""
        if self._failed is not None:
            raise self._failed
        seconds = self._schedule.seconds
        return seconds is not None and time.monotonic() - self._last >= seconds

    @property
    def room(self) -> int | None:
        """How many single rows may wait before the next commit; None if it does not count rows."""
        rows = self._schedule.rows
        return None if rows is None else max(1, rows - self._batch.count)

    def took(self, rows: FloatArray, bad: int, releases: dict[int, Release]) -> None:
        """Note what was absorbed, and commit if it is time."""
        self._batch.add_rows(rows, bad, list(releases.values()))
        self._handed += rows.shape[0]
        if not rows.shape[0] and not self._held:  # the end of the stream, whose release is handed out at once
            self.flush()
        self._commit_if_due()

    def _commit_if_due(self) -> None:
        batch = self._batch
        if self._held:
            return
        if self._schedule.rows is not None:
            if batch.count >= self._schedule.rows:
                self.flush()
        elif self.check() or batch.size > _MOST_BYTES:
            if self._running is not None and not self._running.done() and batch.size <= _MOST_BYTES:
                return  # the batch grows until the disk is ready for it
            self._submit()

    def took_block(self, block: BlockGram, release: Release | None) -> None:
        """Note a block that was absorbed, and commit if it is time: it is durable as a whole."""
        self._batch.add_block(block, release)
        self._handed += block.count
        self._commit_if_due()

    @contextmanager
    def one_commit(self, epoch: dict[str, Any]) -> Iterator[None]:
        """All that is taken within becomes durable together and with this note, or not at all.

        If it breaks off, the stream holds what is not durable and may come again: it takes no more rows.
        """
        self.settle()
        self._held = True
        try:
            yield
            self._stream._settle()
        except BaseException:
            if self._handed > self._durable and self._failed is None:
                self._failed = StoreLocked(
                    "an epoch broke off in the middle and is not durable; continue with Stream.resume(store)"
                )
            raise
        finally:
            self._held = False
        self._batch.epoch = epoch
        self.flush()

    def wait_for(self, t: int) -> None:
        """Return once the first t rows, and the releases made of them, are durable."""
        if t <= self._durable:
            return
        if self._held:
            raise BadParameter("releases of an epoch can be read once all of it is durable; read them after it")
        with self.turn:
            self._wait()
            if t > self._durable:
                self._submit()
                self._wait()

    # -- what the store calls ---------------------------------------------------------

    @property
    def durable(self) -> int:
        """Rows that are durable."""
        return self._durable

    @property
    def has_failed(self) -> bool:
        """True once a commit failed, or the run has passed to another stream."""
        return self._failed is not None

    def settle(self, *, snapshot: bool = False) -> None:
        """Make the stream absorb the rows that wait, and commit all."""
        self._stream._settle()
        self.flush(snapshot=snapshot)

    def flush(self, *, snapshot: bool = False) -> None:
        """Commit all that was taken, and wait for it."""
        with self.turn:
            self._wait()
            if snapshot:
                self._finish_fold()
            batch = self._batch
            if batch.count or batch.releases or batch.epoch or snapshot or not self._described:
                self._submit(snapshot=snapshot)
                self._wait()
            if snapshot:
                self._finish_fold()

    def detach(self) -> None:
        """Take no more rows: the run has passed to another stream."""
        if self._failed is None:
            self._failed = StoreLocked("this stream's store was closed, or passed on to a resumed stream; use that one")
        self._pool.shutdown(wait=True)

    # -- how it works -----------------------------------------------------------------

    def _wait(self) -> None:
        if self._running is not None:
            running, self._running = self._running, None
            running.result()
        if self._failed is not None:
            raise self._failed

    def _finish_fold(self) -> None:
        """Wait for the last step of the fold; commits that come meanwhile have their turns."""
        while self._fold is not None and self._failed is None:
            self._pool.submit(self._tend_on).result()
        self._wait()

    def _submit(self, *, snapshot: bool = False) -> None:
        """Hand the batch to the writing thread."""
        self._wait()
        batch, self._batch = self._batch, Batch()
        now = self._last = time.monotonic()
        # A snapshot is due as soon as it is no larger than the rows that it saves from being kept.
        kept = self._logged + batch.kept
        old = kept and now - self._last_snapshot >= self._schedule.snapshot_seconds
        due = old or kept >= max(self._snapshot_bytes, _LEAST_SNAPSHOT)
        free = self._fold is None or batch.kept >= self._snapshot_bytes > 0
        if self._handed and (snapshot or (due and free)):
            batch.state = state_of(self._stream)
            self._last_snapshot = now
        if not self._described:  # features and bounds are settled by the first row
            batch.config = config.dump(config_of(self._stream))
            self._described = self._handed > 0
        self._running = self._pool.submit(self._write, batch)

    # -- what the writing thread does -------------------------------------------------

    def _write(self, batch: Batch) -> None:
        began = time.monotonic()
        try:
            with told_plainly(self._database.path):
                self._commit(batch)
                self._witness.remember(self._run, self._progress.rows, self._progress.digest)
        except Exception as problem:
            self._fail("commit", problem)
            raise
        self._durable = self._progress.rows
        log.debug(
            "committed: run=%s rows=%d new=%d releases=%d snapshot=%s seconds=%.4f",
            self._run, self._durable, batch.count, self._progress.releases, batch.state is not None,
            time.monotonic() - began,
        )  # fmt: skip
        self._tend_on()

    def _commit(self, batch: Batch) -> None:
        """One transaction: rows or a small snapshot, releases, and the new progress. Large snapshots come after it."""
        before = self._progress
        t, digest = before.rows + batch.count, before.digest
        if batch.pieces:
            digest = self._chain.after(digest, before.rows + 1, batch.words())
        parts = [] if batch.state is None else parts_of(batch.state)
        size = sum(map(len, parts))
        # In this commit go snapshots that are small, or no larger than the rows that need not be written
        # then, or in place of one of the same row, which `Stream.finish` may have changed.
        at_once = size > 0 and (size <= max(PIECE, batch.kept) or t == before.snapshot)
        progress = Progress(t, before.releases + len(batch.releases), t if at_once else before.snapshot, digest)
        if at_once:
            rows = []
            folded = sealed_pieces(self._seal, t, parts)
        else:
            rows = [
                (first, count, self._seal.close("rows", first, encode(piece)))
                for first, count, piece in batch.records(before.rows + 1)
            ]
        written = size if at_once else batch.kept
        with self._database.transaction() as db:
            if at_once:
                db.execute("DELETE FROM snapshot")
                db.execute("DELETE FROM rows")
                db.executemany("INSERT INTO snapshot VALUES (?, ?, ?, ?)", folded)
            db.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows)
            for last, record in batch.release_records(self._records, self._stream.features):
                db.execute("INSERT INTO releases VALUES (?, ?, ?)", (last, record, checksum(str(last), record)))
                written += len(record)
            if batch.pieces:
                self._points.append(t)
                db.execute("INSERT INTO points VALUES (?, ?)", (t, digest))
            while len(self._points) > POINTS:
                db.execute("DELETE FROM points WHERE t = ?", (self._points.popleft(),))
            if batch.config is not None:
                self._database.put("config", batch.config)
            if batch.epoch is not None:
                self._database.put("epoch", {**batch.epoch, "rows": t})
            self._database.put("progress", progress)
        self._progress = progress
        self._in_log += written + _HEAD_BYTES
        if at_once or (parts and self._fold is None):
            self._snapshot_bytes, self._logged = size, 0
            self._fold = None if at_once else self._folding(t, parts)
        else:
            self._logged += batch.kept

    def _folding(self, t: int, parts: list[Part]) -> Iterator[int]:
        """Write the snapshot of row t, make it the one that counts, and delete what it supersedes."""
        yield from write_pieces(self._database, self._seal, t, parts)
        progress = self._progress._replace(snapshot=t)
        with self._database.transaction():
            self._database.put("progress", progress)
        self._progress = progress
        yield 0
        yield from sweep(self._database, t) or ()

    def _tend_on(self) -> None:
        """Take one more step between commits, after those that wait already."""
        if not self._tending and (self._fold is not None or self._in_log >= _LOG_BYTES):
            self._tending = True
            with suppress(RuntimeError):  # the pool is closed: the next writer tends to the rest
                self._pool.submit(self._tend)

    def _tend(self) -> None:
        self._tending = False
        if self._failed is not None:
            return
        try:
            with told_plainly(self._database.path):
                if self._in_log >= _LOG_BYTES and (self._logs_turn or self._fold is None):
                    self._in_log, self._logs_turn = 0, False
                    self._database.fold_log()
                elif self._fold is not None:
                    self._logs_turn = True
                    written = next(self._fold, None)
                    if written is None:
                        self._fold = None
                    else:
                        self._in_log += written
        except Exception as problem:
            self._fail("snapshot", problem)
        else:
            self._tend_on()

    def _fail(self, what: str, problem: Exception) -> None:
        self._failed = problem
        log.error("%s failed: run=%s rows=%d problem=%s", what, self._run, self._durable, type(problem).__name__)
