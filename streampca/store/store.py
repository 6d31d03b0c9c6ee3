"""Durable runs.

What is kept, and where (all of it curator-side):

- ``run.db``: configuration and progress in the clear; releases in the clear,
  for they are publishable. Sealed with the key: the entries since the latest snapshot
  (rows, the fresh bytes of their noise, the chain value after them), the snapshot, the
  fresh bytes of all noise, and the start. A snapshot holds the exact Gram matrix.
- ``run.db.key``: the key, mode 0600 or under a passphrase. Never put it beside an
  exported release: with both files, all of the above is open.
- ``run.db.witness``: how far the run has come, and a keyed digest of its chain value.
- ``run.db.lock``: empty; held by the one writer.

**Replay.** A release is handed out once the rows it depends on, their fresh bytes
and the release itself are on the disk. So whatever was handed out is made again by
`Stream.resume` from the same rows with the same noise, which the chain values and
the stored releases confirm; rows that were not durable were part of nothing that
was handed out, and what comes in their place has fresh noise (`privacy.outlet`).

**Copies** are a matter of accounting. A database that was copied or set back, and
goes on, is a second run with noise of its own; both together cost sqrt(2) times
mu. Where one is recognised it is refused with `StoreForkedError`: the witness, or the
ledger that pays for the run, remembers a point that is not in its history. It
goes on with ``moved=True``, and is then paid for again. Not recognised is a
database that was copied or set back together with its witness, where there is no
ledger: keep ``witness=`` on storage that is not set back with it.
"""

from __future__ import annotations

import gc
import logging
import os
import secrets
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from streampca.errors import BadParameterError, StoreLockedError, WrongKeyError
from streampca.exclusive import Guard, exclusive, tell_of_forks
from streampca.linalg import fast
from streampca.linalg.svec import svec_size
from streampca.processors.base import Algorithm
from streampca.release.release import Release
from streampca.rows.advice import warn
from streampca.rows.protocol import Position
from streampca.store.config import config_of, dump, label_of
from streampca.store.database import SCHEMA, Database, Progress, plain_errors
from streampca.store.keys import RunKey, Seal, prepare_key, publish_key, read_key, run_of
from streampca.store.ledger import Account, Ledger
from streampca.store.log import Schedule, Writer, sessions_of
from streampca.store.records import decode, encode
from streampca.store.recovery import check_key, check_lineage, forked, rebuild
from streampca.store.row_digest import PassedRows
from streampca.store.witness import LockFile, Point, Witness, beside
from streampca.store.writing_thread import wait_for_last_calls
from streampca.stream.engine import Engine
from streampca.stream.stream import Stream

logger = logging.getLogger("streampca.store")

_BEGINNING: Point = 0, ""
#: Of a release in the database beside its matrix or basis (measured).
_RELEASE_BYTES = 60


class Store:
    """Makes one run durable: rows, state, releases, key. Curator only.

    Parameters
    ----------
    path : the database, or ``":memory:"`` for one that dies with the process (tests).
    passphrase : protects the key file; a fresh process needs it to resume.
    key_file : where the key is; ``<path>.key`` if left out.
    witness : where it is noted how far the run has come; ``<path>.witness`` if
        left out. Best on other storage than the database, see `streampca.store.store`.
    commit_every : a time such as ``"200ms"``: commits happen in the background while rows
        arrive, and a crash loses the rows of about the last interval; rows that came
        less than the interval after a commit wait for the next row, the next release
        that is read, `close`, or the end of stream or interpreter. Or a number of rows: `push` returns after the
        commit, and a crash loses fewer rows than that; 1 loses none. With either, no
        row is lost of which a release was read. Reading a release waits for the commit of
        its rows, some 5 to 10 ms each if every release is read at once; `durable` tells which can
        be read without waiting.
    snapshot_every : a snapshot is taken at least so often while rows arrive, and
        whenever it is smaller than the rows since the last. Rows in a snapshot are
        deleted and overwritten in the database. A snapshot is part of a commit, which then takes
        little longer at 100 features, some six times as long at 500, and 3 s at 2000.

    Raises
    ------
    BadParameterError
        If a parameter is outside its domain.

    Notes
    -----
    A commit that fails, e.g. on a full disk, is made again by the next call. After an
    interrupt the stream can be used on, or the store closed and the run resumed.

    A stream keeps its store open. If both are collected and nobody closed the store, their rows are committed, the
    store is closed, and a `ResourceWarning` says so.

    Examples
    --------
    >>> import streampca as sp
    >>> from streampca.store import Store
    >>> store = Store(":memory:")
    >>> stream = sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6), store=store)
    >>> step = stream.push([0.5, 0.5])
    >>> store.flush()
    >>> sp.Stream.resume(store).t
    1
    """

    _writer: Writer | None = None

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        passphrase: str | None = None,
        key_file: str | os.PathLike[str] | None = None,
        witness: str | os.PathLike[str] | None = None,
        commit_every: int | str | timedelta = "200ms",
        snapshot_every: str | timedelta = "5min",
    ) -> None:
        if not isinstance(path, (str, os.PathLike)) or not str(path):
            raise BadParameterError(f"path={path!r} must be the path of a database, or ':memory:'")
        self.path = str(path)
        self._in_memory = self.path == ":memory:"
        if self._in_memory and not (passphrase is key_file is witness is None):
            raise BadParameterError("a store in memory has no files; leave out passphrase=, key_file= and witness=")
        where = Path(self.path)
        self._key_file = Path(key_file) if key_file is not None else beside(where, ".key")
        self._witness_file = Path(witness) if witness is not None else beside(where, ".witness")
        if witness is not None and not self._witness_file.parent.is_dir():
            raise BadParameterError(
                f"witness={str(witness)!r}: there is no folder {self._witness_file.parent}; make it, or mount it"
            )
        for file in (where, self._key_file, self._witness_file):
            if file.is_symlink():
                raise BadParameterError(
                    f"{file} is a symbolic link, which may lead elsewhere tomorrow; name the file itself"
                )
        self._passphrase = passphrase
        self._schedule = Schedule.of(commit_every, snapshot_every)
        self._lock = LockFile(beside(where, ".lock"))
        self._database: Database | None = None
        self._witness = None if self._in_memory else Witness(self._witness_file)
        self._key: RunKey | None = None
        self._account: Account | None = None  # with a ledger of our own
        self.guard = Guard("store")
        tell_of_forks(self)

    # -- what users read and do -----------------------------------------------------

    @property
    def run(self) -> str | None:
        """Lineage id of the run; the same in all copies of it. None before it begins."""
        return None if self._key is None else self._key.run

    @property
    def durable(self) -> int:
        """Rows that are durable."""
        return self._writer.durable if self._writer is not None else self._open_database().progress.rows

    @property
    def epoch(self) -> dict[str, Any] | None:
        """The note of the latest durable epoch with its number of ``rows``, or None. See `in_one_commit`."""
        found: dict[str, Any] | None = self._open_database().get("epoch")
        return found

    @property
    def position(self) -> Position | None:
        """Position of the source after the durable rows; None if it is not known. Curator only."""
        return None if self._writer is None else self._writer.durable_position

    @property
    def source(self) -> dict[str, Any] | None:
        """Description of the source, as `remember_source` kept it, or None. Curator only."""
        found = self._open_database().get("source")
        if found is None or self._key is None:
            return None
        told: dict[str, Any] = decode(Seal(self._key).open("source", 0, bytes.fromhex(found)))
        return told

    def remember_source(self, told: dict[str, Any] | None) -> None:
        """Keep where the rows of the run come from, sealed: it may hold a password."""
        database, key = self._open_database(), self._key
        if key is not None and told != self.source:
            sealed = None if told is None else Seal(key).seal("source", 0, encode(told)).hex()
            with plain_errors(self.path):
                database.transact(lambda _: database.put("source", sealed))

    @contextmanager
    def in_one_commit(self, epoch: dict[str, Any]) -> Iterator[None]:
        """Make all that the stream takes within durable together, and a note with it, or nothing of it.

        For engines that deliver epochs at least once: an epoch whose note is durable is skipped.

        Parameters
        ----------
        epoch : the note, plain values only. It is kept in the clear.

        Raises
        ------
        BadParameterError
            If no stream writes to this store.
        """
        if self._writer is None:
            raise BadParameterError("no stream writes to this store; begin one, or Stream.resume(store)")
        with self._writer.one_commit(epoch):
            yield

    def passed_rows(self) -> PassedRows:
        """A check of the rows that a source gives again after `Stream.resume`. Curator only.

        Raises
        ------
        BadParameterError
            If the run is not open.
        """
        database = self._open_database()
        if self._key is None:
            raise BadParameterError("the store is not open; continue its run with Stream.resume(store)")
        return PassedRows(self._key.row_key(), sessions_of(database), database.progress.rows)

    def flush(self) -> None:
        """Commit all rows pushed so far, and return when they are durable."""
        if self._writer is not None:
            self._writer.flush()

    def releases(self) -> Iterator[Release]:
        """All durable releases, in order. Publishable."""
        yield from self._open_database().releases()

    @exclusive
    def close(self) -> None:
        """Commit what there is, and let the next writer in. The stream takes no more rows. Again, it does nothing.

        Raises
        ------
        StoreUnwritableError
            If the last rows could not be made durable. The store is closed all the same.
        StreamBusyError
            If this thread is inside a call that changes the stream. Nothing has changed.
        """
        try:
            if self._writer is not None and self._writer.thread.is_finishing:
                self._writer.thread.stop()
            elif self._writer is not None:
                self._writer.finish()
        finally:
            self._let_go()

    def __enter__(self) -> Self:
        return self

    def __del__(self) -> None:
        """Close the store if nobody did. Its stream was collected with it: a `Writer` holds both."""
        writer = self._writer
        if writer is None:
            return
        if self._in_memory:
            writer.thread.end()
            return
        if not sys.is_finalizing():  # the end of the interpreter has committed already, and stopped all threads
            writer.thread.finish_with(partial(self._close_collected, writer))
        warnings.warn(
            f"{self.path}: the store was not closed; its rows are committed. Call `close()`, or use a `with` block.",
            ResourceWarning,
            stacklevel=2,
            source=writer.thread,
        )

    def _close_collected(self, writer: Writer) -> None:
        """Commit and close. In the writing thread."""
        try:
            writer.last_call()
        except Exception as problem:
            logger.error("not committed: run=%s rows=%d problem=%s", self.run, writer.durable, type(problem).__name__)
        finally:
            self._let_go()

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            with suppress(Exception):  # the first problem is the one to tell
                self.close()

    def __repr__(self) -> str:
        return f"Store({self.path!r})"

    # -- what `Stream` calls --------------------------------------------------------

    @exclusive
    def begin(self, engine: Engine) -> Writer:
        """Begin a durable run. Called by `Stream`.

        A run that was begun and has no rows is replaced, unless somebody may have paid for it: whoever was
        killed here begins again.

        Raises
        ------
        BadParameterError
            If the store holds a run already.
        WrongKeyError
            If there is a key file already: it may be that of a lost run.
        """
        if self._writer is not None:
            raise BadParameterError(
                f"{self.path} holds the run of another stream; continue it with Stream.resume(store)"
            )
        if not self._in_memory:
            algorithm = engine.algorithm
            horizon = getattr(algorithm, "horizon", None)
            warn(room_warnings(self.path, algorithm, algorithm.n_features, horizon))
        payer, described = engine.account, dump(config_of(engine))
        if payer is not None and not isinstance(payer, Account):
            raise BadParameterError(
                "a durable stream needs ledger=Ledger(path).account(data_set): a debit that is durable too"
            )
        try:
            database = self._claim()
            before = self._replaceable(database)
            account = None if payer is None else self._own(payer.ledger.path, payer.data_set, payer.run)
            key = RunKey(secrets.token_hex(16), engine.randomness.key, engine.randomness.is_seeded)
            if not self._in_memory:
                if self._key_file.exists() and (before is None or run_of(self._key_file) != before):
                    raise WrongKeyError(
                        f"{self._key_file} exists, and may be the key of a lost run; move it away first"
                    )
                with plain_errors(self._key_file):
                    prepare_key(self._key_file, key, self._passphrase)
                    self._key_file.unlink(missing_ok=True)  # of the run that is replaced
            if self._witness is not None:
                with plain_errors(self._witness_file):
                    self._witness.open()
                    self._witness.clear(before)
            with plain_errors(self.path):
                database.transact(lambda _: self._write_head(database, engine, key, described, account))
            # From here on the run can be resumed; until the key has its name, it can be begun again.
            if account is not None:
                account.note(key.run, None, _BEGINNING)
            if self._witness is not None:
                with plain_errors(self._witness_file):
                    self._witness.remember(key.run, _BEGINNING)
                with plain_errors(self._key_file):
                    publish_key(self._key_file, key.run)
            self._key = key
            head = None if account is None else _BEGINNING
            self._writer = writer = self._new_writer(database, key, account, head, engine)
        except BaseException:
            self._let_go()
            raise
        logger.info("begun: run=%s path=%s", key.run, self.path)
        return writer

    @exclusive
    def resume(self, kind: type[Stream], *, moved: bool = False) -> Stream:
        """Rebuild the stream of the run. Called by `Stream.resume`."""
        if not self._in_memory and not Path(self.path).exists():
            raise BadParameterError(f"{self.path}: there is no such store; check the path")
        if self._writer is not None:
            self._writer.finish(snapshot=False)
            self._writer.detach()
            self._writer = None
        try:
            database = self._claim()
            run = database.run()
            key = self._read_key(run["run"])
            check_key(database, key)
            account = None if run["account"] is None else self._own(*run["account"])
            head = None if account is None else account.head(key.run)
            if self._witness is not None:
                self._recall(self._witness, database, key.run, moved=moved)
            if account is not None and not moved:
                check_lineage(database, head, f"the ledger {account.ledger.path}")
            stream = rebuild(database, key, kind)
            noted, here = database.fact("kernels"), fast.described()
            if noted[-1][1] != here:  # other kernels make the bases from this row on
                with plain_errors(self.path):
                    database.transact(lambda _: database.put("kernels", [*noted, [stream.t + 1, here]]))
            self._key = key
            self._writer = writer = self._new_writer(database, key, account, head, stream.engine)
            if not moved:
                writer.note()
            stream.engine.attach(writer, account, copied=moved)
            if moved:  # a copy without rows starts anew
                with plain_errors(self.path):
                    database.transact(lambda _: _put_start(database, key, stream.engine))
        except BaseException:
            self._let_go()
            raise
        return stream

    # -- how it works ---------------------------------------------------------------

    def _claim(self) -> Database:
        if not self._in_memory:
            with plain_errors(self.path):
                try:
                    self._lock.open()
                except StoreLockedError:
                    gc.collect()  # it may be that of a stream of this process that nobody holds any more
                    wait_for_last_calls()
                    self._lock.open()
        if self._database is None:
            self._database = Database(self.path, write=True)
        return self._database

    def _new_writer(
        self, database: Database, key: RunKey, account: Account | None, head: Point | None, engine: Engine
    ) -> Writer:
        self.guard.inner = engine.guard
        return Writer(self, self._lock, database, key, self._witness, account, head, engine, self._schedule)

    def _open_database(self) -> Database:
        if self._database is None:
            raise BadParameterError("the store is not open; begin a run with Stream(store=), or Stream.resume(store)")
        return self._database

    def _replaceable(self, database: Database) -> str | None:
        """The run in the database, if it may be begun again; None if there is none."""
        found = database.get("run")
        if found is None:
            return None
        rows = database.progress.rows
        never_used = found["account"] is None or (not self._in_memory and not self._key_file.exists())
        if rows or not never_used:
            raise BadParameterError(f"{self.path} holds a run of {rows} rows; continue it with Stream.resume(store)")
        return str(found["run"])

    def _read_key(self, run: str) -> RunKey:
        if self._in_memory and self._key is not None:
            return self._key
        if not self._key_file.exists():
            with plain_errors(self._key_file):
                publish_key(self._key_file, run)
            if not (self._key_file.exists() or self._open_database().progress.rows):
                raise BadParameterError(f"{self.path} holds no run yet, only one whose beginning broke off; begin one")
        return read_key(self._key_file, self._passphrase)

    def _recall(self, witness: Witness, database: Database, run: str, *, moved: bool) -> None:
        """Open the witness, and ask it."""
        if database.progress.rows and not moved and not self._witness_file.exists():
            raise forked(
                f"{self._witness_file} is missing (put it back, or name it with witness=, on the command line "
                f"--set store.witness=FILE), so another copy of {self.path} may have gone on"
            )
        with plain_errors(self._witness_file):
            witness.open()
            seen = witness.recall(run)
        if not moved:
            check_lineage(database, seen, f"the witness {self._witness_file}")

    def _own(self, ledger: str, data_set: str, run: str | None) -> Account:
        """An account on a connection that lasts as long as this store is open."""
        self._account = account = Ledger.existing(os.path.abspath(ledger)).account(data_set, run=run)
        return account

    def _write_head(
        self, database: Database, engine: Engine, key: RunKey, described: str, account: Account | None
    ) -> None:
        database.put("run", {
            "run": key.run,
            "check": key.check(),
            "seeded": key.seeded,
            "schema": SCHEMA,
            "processor": type(engine.algorithm).__name__,
            "guarantee": engine.guarantee.to_dict(),
            "account": None if account is None else [account.ledger.path, account.data_set, account.run],
        })  # fmt: skip
        database.put("config", described)
        database.put("label", label_of(engine.algorithm, engine.now.admission))
        database.put("progress", Progress())
        database.put("kernels", [[1, fast.described()]])
        _put_start(database, key, engine)

    def _let_go(self) -> None:
        """Close everything. What was closed before, in a call that broke off, is closed again."""
        if self._writer is not None:
            self._writer.detach()
            self._writer = self.guard.inner = None
        if self._witness is not None:
            self._witness.close()
        if self._account is not None:
            self._account.ledger.close()
            self._account = None
        if self._database is not None and not self._in_memory:
            with suppress(Exception):  # leaves one tidy file; the write-ahead log serves as well
                self._database.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._database.close()
            self._database = None
        self._lock.close()

    def after_fork(self) -> None:
        """In the child of a fork: leave everything to the parent, whose run this is."""
        if self._writer is not None:
            self._writer.after_fork()
            self._writer = None
        self._database = self._account = None  # they know their process, and stay open


def room_warnings(
    path: str | os.PathLike[str], algorithm: Algorithm, n_features: int | None, rows: int | None
) -> list[str]:
    """A sentence if the releases of a run of so many rows are not expected to fit the disk."""
    every = getattr(algorithm, "release_every", None)
    if n_features is None or rows is None or every is None:
        return []
    numbers = svec_size(n_features) if algorithm.square_bytes else n_features * algorithm.n_components
    needed = rows // every * (_RELEASE_BYTES + 8 * numbers)
    try:
        free = shutil.disk_usage(Path(path).absolute().parent).free
    except OSError:
        return []
    if needed <= free:
        return []
    return [
        f"{path}: {rows // every} releases take about {needed / 1e9:.2g} GB, and {free / 1e9:.2g} GB are free there; "
        "use a larger disk, or rarer releases"
    ]


def _put_start(database: Database, key: RunKey, engine: Engine) -> None:
    database.put("start", Seal(key).seal("start", 0, engine.start_id).hex())
