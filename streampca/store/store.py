"""Durable runs. All files are curator-side.

- ``run.db``: configuration, progress and releases in the clear. Sealed with the key: the entries since the latest
  snapshot (rows, fresh bytes of noise, chain value), the snapshot with the exact Gram matrix, and the start.
- ``run.db.key``: the key, mode 0600 or under a passphrase. Never store it with an exported release: both files together
  reveal all of the above.
- ``run.db.witness``: the progress of the run, and a keyed digest of its chain value.
- ``run.db.lock``: empty; held by the single writer.

*Replay.* A release is handed out after the rows that it depends on, their fresh bytes and the release itself are on the
disk. `Stream.resume` therefore repeats every released value from the same rows with the same noise, and compares chain
values and stored releases. Rows that were not durable influenced no released value, and their replacements draw fresh
noise (`privacy.outlet`).

*Copies* are a matter of accounting. A database that is copied or set back, and then continues, is a second run with
noise of its own; both together cost sqrt(2) times mu. It is refused with `StoreForkedError` if the witness, or the
ledger that pays for the run, holds a point that is not in its history. With ``moved=True`` it continues and is paid for
again. A database that is set back together with its witness, without a ledger, is not detected: keep ``witness=`` on
storage that is not set back with it.
"""

from __future__ import annotations

import gc
import logging
import os
import secrets
import sqlite3
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from streampca.errors import BadParameterError, StoreLockedError, UsageError, WrongKeyError
from streampca.exclusive import Guard, exclusive, tell_of_forks
from streampca.release.release import Release
from streampca.rows.protocol import Position
from streampca.store.config import config_of, label_of
from streampca.store.database import Database, Progress, plain_errors
from streampca.store.keys import RunKey, read_key, run_of, write_key
from streampca.store.ledger import Account, Ledger
from streampca.store.log import Schedule, Writer, sealed_facts
from streampca.store.records import decode, encode
from streampca.store.recovery import check_key, check_lineage, forked, rebuild
from streampca.store.row_digest import PassedRows
from streampca.store.witness import LockFile, Point, Witness, beside
from streampca.store.writing_thread import FINISHING, wait_for_last_calls
from streampca.stream.engine import Engine
from streampca.stream.stream import Stream

logger = logging.getLogger("streampca.store")

_BEGINNING: Point = 0, ""


class Store(AbstractContextManager["Store"]):
    """Makes one run durable: rows, state, releases, key. Curator only.

    Parameters
    ----------
    path : str or path
        Database, or ``":memory:"`` for one that ends with the process (for tests).
    passphrase : str or None, default=None
        Protects the key file. A new process needs it to resume.
    witness : str or path, default=<path>.witness
        File of the progress of the run. Best on other storage than the database, see `streampca.store.store`.
    commit_every : int or str, default="200ms"
        Time between commits, which then run in the background: a crash loses the rows of about the last interval.
        The last rows wait for the next row, the next release that is read, `close`, or the end of the interpreter. Or
        number of rows: `push` returns after the commit, and a crash loses fewer rows than that; 1 loses none. No row of
        which a release was read is ever lost: reading a release waits for the commit of its rows, about 5 to 10 ms.
        `durable` is the number of rows whose releases can be read without waiting.
    snapshot_every : str, default="5min"
        Maximum time between snapshots while rows arrive. A snapshot is also written when it is smaller than the rows
        since the last one. It replaces these rows, which are overwritten. It is part of a commit, which then requires
        little more time at 100 features, about six times as much at 500, and 3 s at 2000.

    Attributes
    ----------
    run : str or None
        Lineage id of the run, common to all copies of it; None before it begins.

    Raises
    ------
    UsageError
        If a parameter is outside its domain.

    Notes
    -----
    The next call repeats a commit that failed, e.g. on a full disk. After an interrupt, continue with the stream, or
    close the store and resume the run. A stream keeps its store open. If both are collected before `close`, their rows
    are committed in the background, the store is closed, and a `ResourceWarning` is issued.

    Examples
    --------
    >>> import streampca as sp
    >>> from streampca.store import Store
    >>> store = Store(":memory:")
    >>> stream = sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6), row_norm=1.0, store=store)
    >>> step = stream.push([0.5, 0.5])
    >>> store.flush()
    >>> sp.Stream.resume(store).t
    1
    """

    _writer: Writer | None = None
    kind = Database  #: class of the database
    more: Mapping[str, Any] = {}  #: further parameters of the run, besides those of its stream

    def __init__(
        self, path: str | os.PathLike[str], *, passphrase: str | None = None,
        witness: str | os.PathLike[str] | None = None, commit_every: int | str = "200ms", snapshot_every: str = "5min",
    ) -> None:  # fmt: skip
        if not isinstance(path, (str, os.PathLike)) or not str(path):
            raise BadParameterError("path", path, "the path of a database, or ':memory:'")
        self.path = str(path)
        self._in_memory = self.path == ":memory:"
        if self._in_memory and not (passphrase is witness is None):
            raise UsageError("path=':memory:': expected no passphrase= or witness=")
        where = Path(self.path)
        self._key_file = beside(where, ".key")
        self._witness_file = Path(witness) if witness is not None else beside(where, ".witness")
        if witness is not None and not self._witness_file.parent.is_dir():
            raise UsageError(f"witness={str(witness)!r}: there is no folder {self._witness_file.parent}. Create it")
        for file in (where, self._key_file, self._witness_file):
            if file.is_symlink():
                raise UsageError(f"{file} is a symbolic link, whose target may change. Name the file itself")
        self._passphrase = passphrase
        self._schedule = Schedule.of(commit_every, snapshot_every)
        self._lock = LockFile(beside(where, ".lock"))
        self._database: Database | None = None
        self._witness = None if self._in_memory else Witness(self._witness_file)
        self._key: RunKey | None = None
        self.run: str | None = None
        self._account: Account | None = None  # on a connection that lasts as long as the store is open
        self.guard = Guard("store")
        tell_of_forks(self)

    # -- what users read and do -----------------------------------------------------

    @property
    def durable(self) -> int:
        """Number of durable rows."""
        return self._writer.noted.rows if self._writer is not None else self._open_database().progress.rows

    @property
    def epoch(self) -> dict[str, Any] | None:
        """Note of the latest durable epoch, with its number of ``rows``, or None. See `in_one_commit`."""
        found: dict[str, Any] | None = self._open_database().get("epoch")
        return found

    @property
    def position(self) -> Position | None:
        """Position of the source after the durable rows; None if unknown. Curator only."""
        return None if self._writer is None else self._writer.noted.position

    @property
    def source(self) -> dict[str, Any] | None:
        """Description of the source from `remember_source`, or None. Curator only."""
        found = self._open_database().get("source")
        if found is None or self._key is None:
            return None
        source: dict[str, Any] = decode(self._key.open("source", 0, found))
        return source

    def remember_source(self, source: dict[str, Any] | None) -> None:
        """Store a description of the source of the rows. It is sealed, because it may hold a password."""
        database, key = self._open_database(), self._key
        if key is not None and source != self.source:
            sealed = None if source is None else key.seal("source", 0, encode(source))
            database.transact(lambda _: database.put(source=sealed))

    @contextmanager
    def in_one_commit(self, epoch: dict[str, Any]) -> Iterator[None]:
        """Make all rows absorbed within the block durable together, with a note, or none of them.

        For engines that deliver epochs at least once: an epoch whose note is durable is skipped. The note has plain
        values and is stored in the clear. Raises `UsageError` if no stream writes to this store.
        """
        if self._writer is None:
            raise UsageError("no stream writes to this store. Begin one, or call Stream.resume(store)")
        with self._writer.one_commit(epoch):
            yield

    def mark(self, data: bytes) -> str:
        """Return a keyed digest: it reveals only whether data is the same. The store must be open."""
        if self._key is None:
            raise UsageError("the store is not open. Continue its run with Stream.resume(store)")
        return blake2b(data, key=self._key.derive(b"streampca marks"), digest_size=16).hexdigest()

    def passed_rows(self) -> PassedRows:
        """Return a check of the rows that a source repeats after `Stream.resume`. Curator only."""
        database = self._open_database()
        if self._key is None:
            raise UsageError("the store is not open. Continue its run with Stream.resume(store)")
        return PassedRows(self._key.derive(b"streampca rows"), sealed_facts(database, self._key)[0])

    def flush(self) -> None:
        """Commit all rows pushed so far, and return when they are durable."""
        if self._writer is not None:
            self._writer.flush()

    def releases(self) -> Iterator[Release]:
        """Yield all durable releases, in order. Publishable."""
        yield from self._open_database().releases()

    @exclusive
    def close(self) -> None:
        """Commit all rows, and release the store for the next writer. The stream accepts no more rows. Idempotent.

        Raises
        ------
        StoreUnwritableError
            If the last rows cannot be made durable. The store is closed nevertheless.
        StreamBusyError
            If this thread is inside a call that changes the stream. Nothing changes.
        """
        try:
            writer = self._writer
            if writer is not None and writer.thread in FINISHING:  # collected, and closed by a finalizer of the caller
                writer.thread.stop()
            elif writer is not None:
                writer.finish()
        finally:
            self._let_go()

    def __del__(self) -> None:
        # The store was not closed, and its stream is collected with it: a `Writer` holds both.
        writer = self._writer
        if writer is None:
            return
        if self._in_memory:
            writer.thread.end()
            return
        # Committing would not do in a finalizer, which may run while any lock is held. At the end of the interpreter,
        # `log` has committed already, and the threads are stopped.
        if not sys.is_finalizing():
            writer.thread.end(partial(self._close_collected, writer))
        warnings.warn(
            f"{self.path}: the store was not closed. Its last rows are committed in the background, and a failure is "
            "only logged. Call `close()`, or use a `with` block.",
            ResourceWarning,
            stacklevel=2,
            source=writer.thread,
        )

    def _close_collected(self, writer: Writer) -> None:
        """Commit and close. In the writing thread."""
        try:
            writer.last_call()
        except Exception as problem:
            name = type(problem).__name__
            logger.error("not committed: run=%s rows=%d problem=%s", self.run, writer.noted.rows, name)
        finally:
            self._let_go()

    def __exit__(self, kind: object, *_: object) -> None:
        with nullcontext() if kind is None else suppress(Exception):  # the exception of the block takes precedence
            self.close()

    def __repr__(self) -> str:
        return f"Store({self.path!r})"

    # -- what `Stream` calls --------------------------------------------------------

    @exclusive
    def begin(self, engine: Engine) -> Writer:
        """Begin a durable run, in place of an unpaid one without rows, as a crash leaves it. Called by `Stream`."""
        if self._writer is not None:
            raise UsageError(f"{self.path} holds the run of another stream. Continue it with Stream.resume(store)")
        payer, described = engine.account, config_of(engine, self.more)
        if payer is not None and not isinstance(payer, Account):
            raise BadParameterError("account", ..., "Ledger(path).account(data_set), a debit that is durable too")
        try:
            database = self._claim()
            # Order: facts, ledger, witness, key file. The key file is the commit point: a crash before it leaves a run
            # that never had a row, and that the next beginning replaces.
            found, progress = database.get("run"), database.progress
            has_key = not self._in_memory and self._key_file.exists()
            # A run without its key file broke off while it began. One that has it may have been paid for.
            is_whole = found is not None and (has_key or self._in_memory) and found["account"] is not None
            if progress.records or progress.rows or is_whole:  # rows of an open period are records only
                raise UsageError(f"{self.path} holds a run. Continue with Stream.resume(store), or Fleet.resume(path)")
            before = None if found is None else str(found["run"])
            if has_key and (before is None or run_of(self._key_file) != before):
                raise WrongKeyError(f"{self._key_file} exists, and may be the key of a lost run. Move it away first")
            if payer is not None:
                # A connection of its own: the caller may close the ledger while the run continues.
                self._account = Account(
                    Ledger(os.path.abspath(payer.ledger.path), create=False), payer.data_set, payer.run
                )
            key = RunKey(secrets.token_hex(16), engine.randomness.key, engine.randomness.is_seeded)
            paid = None if payer is None else [os.path.abspath(payer.ledger.path), payer.data_set, payer.run]
            guarantee = engine.guarantee_of(engine.now.admission).to_dict()
            facts = {
                "run": {"run": key.run, "check": key.check(), "guarantee": guarantee, "account": paid},
                "config": described, "label": label_of(engine.algorithm, engine.now.admission),
                "progress": Progress(), "start": key.seal("start", 0, engine.start_id),
            }  # fmt: skip

            def replace(db: sqlite3.Connection) -> None:
                db.execute("DELETE FROM facts")
                database.put(**facts)

            with plain_errors(self.path):
                if self._witness is not None:
                    self._key_file.unlink(missing_ok=True)  # that of the replaced run
                    self._witness.recall(before, clear=True)
                database.transact(replace)
                if self._account is not None:
                    self._account.ledger.note(self._account.data_set, key.run, None, _BEGINNING)
                if self._witness is not None:
                    self._witness.remember(key.run, _BEGINNING)
                    # The run exists from here on: without its key file, another one may begin in its place.
                    write_key(self._key_file, key, self._passphrase)
            self._key, self.run = key, key.run
            writer = self._begin_writing(engine, None if payer is None else _BEGINNING)
        except BaseException:
            self._let_go()
            raise
        logger.info("begun: run=%s path=%s", key.run, self.path)
        return writer

    @exclusive
    def resume(self, kind: type[Stream], *, moved: bool = False) -> Stream:
        """Rebuild the stream of the run. Called by `Stream.resume`."""
        if self._writer is not None:
            # Without a snapshot: the next stream replays the entries, which checks them.
            self._writer.finish(snapshot=False)
            self._writer.detach()
            self._writer = None
        try:
            database, key, account, head = self._checked(moved)
            stream = rebuild(database, key, kind)
            self._key, self.run = key, key.run
            writer = self._begin_writing(stream.engine, head)
            if not moved:
                writer.thread.wait(writer.thread.begin(partial(writer.note, repeat=True)))
            stream.engine.attach(writer, account, copied=moved)
            if moved:  # a copy without rows has another start
                start = key.seal("start", 0, stream.engine.start_id)
                database.transact(lambda _: database.put(start=start))
        except BaseException:
            self._let_go()
            raise
        return stream

    # -- how it works ---------------------------------------------------------------

    def _checked(self, moved: bool) -> tuple[Database, RunKey, Account | None, Point | None]:
        """Open the files of a run, and check its key and that no other copy continued."""
        if not self._in_memory and not Path(self.path).exists():
            raise UsageError(self.kind.no_run.format(self.path))
        database = self._claim()
        run = database.fact("run")
        known = self._key if self._in_memory else None
        # The key file is the last step of a beginning. If it is missing beside rows, it was lost or moved.
        if known is None and not (self._key_file.exists() or database.progress.rows):
            raise UsageError(f"{self.path} holds no run yet, only one whose beginning broke off. Begin one")
        key = known or read_key(self._key_file, self._passphrase)
        check_key(database, key)
        account, head = None, None
        if run["account"] is not None:
            path, data_set, shown = run["account"]
            self._account = account = Account(Ledger(path, create=False), data_set, shown)
            head = account.ledger.head(data_set, key.run)
        if self._witness is not None:
            if database.progress.rows and not moved and not self._witness_file.exists():
                named = "" if self.more else ", or name it with witness=, on the command line --set store.witness=FILE"
                raise forked(
                    f"{self._witness_file} is missing (put it back{named}), so another copy may have continued"
                )
            with plain_errors(self._witness_file):
                seen = self._witness.recall(key.run)
            if not moved:
                check_lineage(database, seen, f"the witness {self._witness_file}")
        if account is not None and not moved:
            check_lineage(database, head, f"the ledger {account.ledger.path}")
        return database, key, account, head

    def _claim(self) -> Database:
        if not self._in_memory:
            with plain_errors(self.path):
                try:
                    self._lock.open()
                except StoreLockedError:
                    gc.collect()  # its holder may be a forgotten stream of this process
                    wait_for_last_calls()
                    self._lock.open()
        if self._database is None:
            self._database = self.kind(self.path, write=True)
        return self._database

    def _begin_writing(self, engine: Engine, head: Point | None) -> Writer:
        assert self._database is not None
        assert self._key is not None
        self.guard.inner = engine.guard
        self._writer = Writer(
            self, self._lock, self._database, self._key, self._witness, self._account, head, engine, self._schedule
        )
        return self._writer

    def _open_database(self) -> Database:
        if self._database is None:
            raise UsageError("the store is not open. Begin a run with Stream(store=), or Stream.resume(store)")
        return self._database

    def _let_go(self) -> None:
        """Close everything. Idempotent, so that a call after an interrupted one closes the rest."""
        if self._writer is not None:
            self._writer.detach()
            self._writer = self.guard.inner = None
        if self._witness is not None:
            self._witness.close()
        if self._account is not None:
            self._account.ledger.close()
            self._account = None
        if self._database is not None and not self._in_memory:
            # The lock is released after everything else, so that the next writer finds the files closed.
            with suppress(Exception):  # leaves a single file; readers accept the write-ahead log as well
                self._database.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._database.close()
            self._database = None
        self._lock.close()

    def after_fork(self) -> None:
        """Leave the run to the parent, which has the writing thread."""
        if self._writer is not None:
            self._writer.lost = "the parent process of this one writes this store. Use it there"
            self._writer = None
        self._database = self._account = None  # their connections stay open, and only the parent closes them
