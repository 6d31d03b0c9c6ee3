"""The pen of a durable run: rows and releases of one stream, committed in groups."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import groupby
from sqlite3 import Error as SQLiteError
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt

from streampca.blocks import BlockGram
from streampca.errors import BadParameter, StoreLocked
from streampca.linalg.lattice import STEP
from streampca.linalg.types import FloatArray
from streampca.release import Release
from streampca.store import config
from streampca.store.checkpoint import config_of, state_of
from streampca.store.codec import encode
from streampca.store.database import Database, Progress, checksum
from streampca.store.files import told_plainly
from streampca.store.keys import RunKey, Seal
from streampca.store.records import Promises, release_record
from streampca.store.schedule import Schedule
from streampca.store.witness import Witness
from streampca.stream import Stream

log = logging.getLogger("streampca.store")

#: Points of the chain of rows that are kept, to recognise the one that the witness remembers.
POINTS = 64
_CHAIN = b"streampca chain"
_WAITING_ROWS = 256
# A batch of so many bytes is committed whatever the schedule says, so that memory stays flat.
_MOST_BYTES = 2**24
_LEAST_SNAPSHOT = 2**16


@dataclass
class _Batch:
    """What one commit will write."""

    pieces: list[npt.NDArray[np.int32] | BlockGram] = field(default_factory=list)  # in the order of rows
    count: int = 0
    bad: int = 0
    bytes: int = 0
    releases: list[Release] = field(default_factory=list)
    state: dict[str, Any] | None = None
    config: str | None = None
    epoch: dict[str, Any] | None = None


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
        self._run, self._seal, self._chain = key.run, Seal(key), key.derive(_CHAIN)
        self._progress = database.progress
        self._durable = self._handed = self._progress.rows
        self._described = False
        self._points = deque(t for (t,) in database.db.execute("SELECT t FROM points ORDER BY t"))
        self._logged, self._snapshot_bytes = 0, 0
        self._batch = _Batch()
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
    def room(self) -> int:
        """How many single rows may wait before the next commit."""
        rows = self._schedule.rows
        return _WAITING_ROWS if rows is None else min(_WAITING_ROWS, max(1, rows - self._batch.count))

    def took(self, rows: FloatArray, bad: int, releases: dict[int, Release]) -> None:
        """Note what was absorbed, and commit if it is time."""
        batch, count = self._batch, rows.shape[0]
        if count:
            batch.pieces.append((rows * (1.0 / STEP)).astype(np.int32))
        batch.count += count
        batch.bad += bad
        batch.releases += releases.values()
        batch.bytes += 4 * rows.size + sum(_size(release) for release in releases.values())
        self._handed += count
        self._commit_if_due()

    def _commit_if_due(self) -> None:
        batch = self._batch
        if self._held:
            return
        if self._schedule.rows is not None:
            if batch.count >= self._schedule.rows:
                self.flush()
        elif self.check() or batch.bytes > _MOST_BYTES:
            if self._running is not None and not self._running.done() and batch.bytes <= _MOST_BYTES:
                return  # the batch grows until the disk is ready for it
            self._submit()

    def took_block(self, block: BlockGram, release: Release | None) -> None:
        """Note a block that was absorbed, and commit if it is time: it is durable as a whole."""
        batch = self._batch
        batch.pieces.append(block)
        batch.count += block.count
        batch.releases += [] if release is None else [release]
        batch.bytes += 2 * block.high.nbytes + (0 if release is None else _size(release))
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
            if self._batch.count or self._batch.epoch or snapshot or not self._described:
                self._submit(snapshot=snapshot)
                self._wait()

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

    def _submit(self, *, snapshot: bool = False) -> None:
        """Hand the batch to the writing thread."""
        self._wait()
        batch, self._batch = self._batch, _Batch()
        now = self._last = time.monotonic()
        # A snapshot is due as soon as it is no larger than the rows that it saves from being kept.
        kept = self._logged + sum(_kept(piece) for piece in batch.pieces)
        old = kept and now - self._last_snapshot >= self._schedule.snapshot_seconds
        if (snapshot and self._handed) or old or kept >= max(self._snapshot_bytes, _LEAST_SNAPSHOT):
            batch.state = state_of(self._stream)
            self._last_snapshot = now
        if not self._described:  # features and bounds are settled by the first row
            batch.config = config.dump(config_of(self._stream))
            self._described = self._handed > 0
        self._running = self._pool.submit(self._write, batch)

    def _write(self, batch: _Batch) -> None:
        began = time.monotonic()
        try:
            with told_plainly(self._database.path):
                self._commit(batch)
                self._witness.remember(self._run, self._progress.rows, self._progress.digest)
        except Exception as problem:
            self._failed = problem
            log.error("commit failed: run=%s rows=%d problem=%s", self._run, self._durable, type(problem).__name__)
            raise
        self._durable = self._progress.rows
        log.debug(
            "committed: run=%s rows=%d new=%d releases=%d snapshot=%s seconds=%.4f",
            self._run, self._durable, batch.count, self._progress.releases, batch.state is not None,
            time.monotonic() - began,
        )  # fmt: skip

    def _commit(self, batch: _Batch) -> None:
        """One transaction: rows or a snapshot, releases, and the new progress."""
        before, db = self._progress, self._database.db
        t = before.rows + batch.count
        digest = before.digest
        if batch.pieces:
            digest = chained(self._chain, digest, before.rows + 1, [_words(piece) for piece in batch.pieces])
        folded = before.snapshot if batch.state is None else t
        progress = Progress(t, before.releases + len(batch.releases), folded, digest)
        statements: list[Callable[[], Any]] = []
        if batch.state is not None:
            state = encode(batch.state)
            self._snapshot_bytes, self._logged = len(state), 0
            sealed = self._seal.close("snapshot", t, state)
            statements += [
                lambda: db.execute("DELETE FROM snapshot"),
                lambda: db.execute("DELETE FROM rows"),
                lambda: db.execute("INSERT INTO snapshot VALUES (?, ?)", (t, sealed)),
            ]
        else:
            self._logged += sum(_kept(piece) for piece in batch.pieces)
            for first, count, piece in _records(batch, before.rows + 1):
                kept = first, count, self._seal.close("rows", first, encode(piece))
                statements.append(partial(db.execute, "INSERT INTO rows VALUES (?, ?, ?)", kept))
        features, promises = self._stream.features, Promises()
        records = [(release.t, release_record(release, features, promises)) for release in batch.releases]
        if batch.pieces:
            self._points.append(t)
            statements.append(lambda: db.execute("INSERT INTO points VALUES (?, ?)", (t, digest)))
        db.execute("BEGIN IMMEDIATE")
        try:
            for statement in statements:
                statement()
            for at, record in records:
                db.execute("INSERT INTO releases VALUES (?, ?, ?)", (at, record, checksum(str(at), record)))
            while len(self._points) > POINTS:
                db.execute("DELETE FROM points WHERE t = ?", (self._points.popleft(),))
            if batch.config is not None:
                self._database.put("config", batch.config)
            if batch.epoch is not None:
                self._database.put("epoch", {**batch.epoch, "rows": t})
            self._database.put("progress", progress)
            db.execute("COMMIT")
        except BaseException:
            with suppress(SQLiteError):
                db.execute("ROLLBACK")
            raise
        self._progress = progress


def _words(piece: npt.NDArray[np.int32] | BlockGram) -> npt.NDArray[Any]:
    """What a piece is made of, in one array."""
    return np.stack([piece.high, piece.low]) if isinstance(piece, BlockGram) else piece


def _kept(piece: npt.NDArray[np.int32] | BlockGram) -> int:
    """Bytes that a piece takes in the log."""
    return 2 * piece.high.nbytes if isinstance(piece, BlockGram) else piece.nbytes


def _records(batch: _Batch, first: int) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """The pieces of a batch as records, each with its first row and its number of rows: runs of rows as one."""
    bad = batch.bad
    for is_block, pieces in groupby(batch.pieces, lambda piece: isinstance(piece, BlockGram)):
        if is_block:
            for block in pieces:
                assert isinstance(block, BlockGram)
                yield first, block.count, {"high": block.high, "low": block.low, "bad": block.bad}
                first += block.count
        else:
            rows = np.concatenate(list(pieces))
            yield first, len(rows), {"rows": rows, "bad": bad}
            first, bad = first + len(rows), 0


def chained(key: bytes, digest: str, first: int, rows: list[npt.NDArray[Any]]) -> str:
    """The digest of all rows up to the last of these. Keyed: it tells nothing to whoever lacks the key."""
    total = blake2b(f"{digest}|{first}|{rows[0].shape[1]}|".encode(), key=key, digest_size=16)
    for piece in rows:
        total.update(np.ascontiguousarray(piece).data)
    return total.hexdigest()


def _size(release: Release) -> int:
    return sum(array.nbytes for array in (release._packed, release._basis) if array is not None)
