"""Durable runs.

What is kept, and where (all of it curator-side):

- ``run.db``: configuration and progress in the clear; releases in the clear,
  for they are publishable; the rows not yet folded into a snapshot and the
  latest snapshot, both sealed with the key. A snapshot holds the exact Gram
  matrix: with the key it is as secret as the rows, without it it is noise.
- ``run.db.key``: the key, mode 0600 or under a passphrase. Whoever has it can
  subtract the noise. Never put it beside an exported release.
- ``run.db.witness``: how far the run has come, and a keyed digest.
- ``run.db.lock``: empty; held by the one writer.

**Never two different rows under one noise.** Noise is a function of (key,
label, index), so this is a claim about which releases are ever handed out
under one key. Let D be the durable sequence of rows.

1. A release at row t is handed out only after a commit of the first t rows and
   of the release itself has reached the disk (`Writer.wait_for`). So each
   release handed out is a function of a prefix of D.
2. One writer at a time (a lock that dies with its process), so D only grows;
   a crash leaves a prefix that contains all rows of 1. Rows that were not
   durable were part of no release handed out, and other rows may come instead.
3. Resuming replays D from the last snapshot; noise is drawn again by index,
   so the releases are the same bits (compared with the stored ones), and no
   index is ever used for rows that differ.

By 1 to 3, whatever is handed out under one key is a function of one growing
sequence D, which is what the guarantee is about. It rests on D being one
sequence, that is, on nobody continuing two copies of the database. A copy is
recognised, and refused with `StoreForked`, in three ways: the file is not the
one that was written (its inode, so copies, moves and restores to a new file);
the witness remembers a later point, or a point that is not in this copy's
history (a database set back in place, or a twin that went on); the witness is
locked by the twin, or changes under the pen, where both share one
(``witness=``, the shared ledger of a team).

What remains: database and witness set back together in place (a snapshot of
the whole machine, a restored volume, copies written over both files), or a
copy resumed with ``moved=True`` although another went on, and then fed *other*
rows than before. Nothing on that machine can tell. Keep ``witness=`` on storage
that is not set back with it; with the same rows as before, the same releases
are made and nothing is lost. Digests of rows mixed
into noise labels would turn such a case from exact leaks into a second,
independent run (sqrt(2) mu for the common rows, by composition); they are not
used, since noise is made ahead of rows (`prefix_sums.buffered_noise`) and
redrawn by index long after (trees, windows).
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from streampca.errors import BadParameter, WrongKey
from streampca.release import Release
from streampca.store.checkpoint import config_of
from streampca.store.config import dump
from streampca.store.database import SCHEMA, Database, Progress
from streampca.store.files import Lock, told_plainly
from streampca.store.keys import RunKey, read_key, write_key
from streampca.store.ledger import Account, Ledger
from streampca.store.reading import stored_releases
from streampca.store.recovery import beside, check_key, check_lineage, need_run, place_of, rebuild
from streampca.store.schedule import Schedule
from streampca.store.witness import MemoryWitness, WitnessFile
from streampca.store.writer import Writer
from streampca.stream import Stream

log = logging.getLogger("streampca.store")


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
        that is read, or `close`. Or a number of rows: `push` returns after the
        commit, and a crash loses fewer rows than that; 1 loses none. With either, no
        row is lost of which a release was read. Reading a release waits for the commit of
        its rows, some 5 to 10 ms each if every release is read at once; `durable` tells which can
        be read without waiting.
    snapshot_every : a snapshot is taken at least so often while rows arrive, and
        whenever it is smaller than the rows since the last. Rows in a snapshot are
        deleted and overwritten in the database. A large one is written in steps of
        256 KiB in the background; a commit waits for one of them at most.

    Raises
    ------
    BadParameter
        If a parameter is outside its domain.

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
            raise BadParameter(f"path={path!r} must be the path of a database, or ':memory:'")
        self.path = str(path)
        self._in_memory = self.path == ":memory:"
        if self._in_memory and not (passphrase is key_file is witness is None):
            raise BadParameter("a store in memory has no files; leave out passphrase=, key_file= and witness=")
        where = Path(self.path)
        self._key_file = Path(key_file) if key_file is not None else beside(where, ".key")
        self._witness_file = Path(witness) if witness is not None else beside(where, ".witness")
        if witness is not None and not self._witness_file.parent.is_dir():
            raise BadParameter(
                f"witness={str(witness)!r}: there is no folder {self._witness_file.parent}; make it, or mount it"
            )
        self._passphrase = passphrase
        self._schedule = Schedule.of(commit_every, snapshot_every)
        self._lock: Lock | None = None
        self._database: Database | None = None
        self._witness: WitnessFile | MemoryWitness = MemoryWitness()
        self._key: RunKey | None = None
        self._payer: Account | None = None
        self._writer: Writer | None = None

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

    @contextmanager
    def in_one_commit(self, epoch: dict[str, Any]) -> Iterator[None]:
        """Make all that the stream takes within durable together, and a note with it, or nothing of it.

        For engines that deliver epochs at least once: an epoch whose note is durable is skipped.

        Parameters
        ----------
        epoch : the note, plain values only. It is kept in the clear.

        Raises
        ------
        BadParameter
            If no stream writes to this store.
        """
        if self._writer is None:
            raise BadParameter("no stream writes to this store; begin one, or Stream.resume(store)")
        with self._writer.one_commit(epoch):
            yield

    def flush(self) -> None:
        """Commit all rows pushed so far, and return when they are durable."""
        if self._writer is not None:
            self._writer.settle()

    def releases(self) -> Iterator[Release]:
        """All durable releases, in order. Publishable."""
        yield from stored_releases(self._open_database())

    def close(self) -> None:
        """Commit what there is, and let the next writer in. The stream takes no more rows."""
        try:
            if self._writer is not None:
                _last_commit(self._writer, snapshot=True)
        finally:
            self._let_go()

    def __enter__(self) -> Self:
        return self

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

    def begin(self, stream: Stream) -> Writer:
        """Begin a durable run. Called by `Stream`.

        Raises
        ------
        BadParameter
            If the store holds a run already.
        WrongKey
            If there is a key file already: it may be that of a lost run.
        """
        try:
            database = self._claim(create=True)
            if database.get("run") is not None:
                rows = database.progress.rows
                raise BadParameter(f"{self.path} holds a run of {rows} rows; continue it with Stream.resume(store)")
            described = dump(config_of(stream))
            randomness = stream._randomness
            key = RunKey(secrets.token_hex(16), randomness._key, randomness.is_seeded)
            if not self._in_memory:
                if self._key_file.exists():
                    raise WrongKey(f"{self._key_file} exists, and may be the key of a lost run; move it away first")
                with told_plainly(self._key_file):
                    write_key(self._key_file, key, self._passphrase)
                with told_plainly(self._witness_file):
                    self._witness = WitnessFile(self._witness_file, create=True)
                    self._witness.remember(key.run, 0, "")
            account = _named(stream, key.run)
            with told_plainly(self.path):
                self._write_head(database, stream, key, described, account)
            self._key = key
            self._writer = Writer(database, key, self._witness, stream, self._schedule)
        except BaseException:
            self._let_go()
            raise
        log.info("begun: run=%s path=%s", key.run, self.path)
        return self._writer

    def resume(self, kind: type[Stream], *, moved: bool = False) -> Stream:
        """Rebuild the stream of the run. Called by `Stream.resume`."""
        if not self._in_memory:
            need_run(Path(self.path))
        if self._writer is not None:
            _last_commit(self._writer)
            self._writer.detach()
            self._writer = None
        try:
            database = self._claim(create=False)
            database.run()
            key = self._key if self._in_memory and self._key else read_key(self._key_file, self._passphrase)
            check_key(database, key)
            if not self._in_memory:
                with told_plainly(self._witness_file):
                    self._witness.close()
                    self._witness = WitnessFile(self._witness_file, create=moved)
            check_lineage(database, self._witness, moved=moved)
            stream = rebuild(database, key, kind)
            if not database.progress.rows:
                stream._ledger = self._payer = _payer(database)
            with told_plainly(self.path):
                database.db.execute("BEGIN IMMEDIATE")
                database.put("place", place_of(self.path))
                database.db.execute("COMMIT")
                self._witness.remember(key.run, database.progress.rows, database.progress.digest)
            self._key = key
            self._writer = Writer(database, key, self._witness, stream, self._schedule)
        except BaseException:
            if not self._in_memory:
                self._let_go()
            raise
        stream._attach(self._writer)
        return stream

    # -- how it works ---------------------------------------------------------------

    def _claim(self, *, create: bool) -> Database:
        if not self._in_memory and self._lock is None:
            with told_plainly(self.path):
                self._lock = Lock(beside(Path(self.path), ".lock"))
        if self._database is None:
            self._database = Database(self.path, write=True)
        return self._database

    def _open_database(self) -> Database:
        if self._database is None:
            raise BadParameter("the store is not open; begin a run with Stream(store=), or Stream.resume(store)")
        return self._database

    def _write_head(
        self, database: Database, stream: Stream, key: RunKey, described: str, account: Account | None
    ) -> None:
        payer = None if account is None else [os.path.abspath(account.ledger.path), account.data_set, account.run]
        database.db.execute("BEGIN IMMEDIATE")
        database.put("run", {
            "run": key.run,
            "check": key.check(),
            "seeded": key.seeded,
            "schema": SCHEMA,
            "processor": type(stream._processor).__name__,
            "guarantee": stream.guarantee.to_dict(),
            "account": payer,
        })  # fmt: skip
        database.put("place", place_of(self.path))
        database.put("config", described)
        database.put("progress", Progress())
        database.db.execute("COMMIT")

    def _let_go(self) -> None:
        if self._writer is not None:
            self._writer.detach()
        self._writer = None
        self._witness.close()
        self._witness = MemoryWitness()
        if self._payer is not None:
            self._payer.ledger.close()
            self._payer = None
        if self._database is not None and not self._in_memory:
            database, self._database = self._database, None
            with suppress(Exception):  # leaves one tidy file; the write-ahead log serves as well
                database.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            database.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _named(stream: Stream, run: str) -> Account | None:
    """The account that pays for a stream, under the run's own name, so that a resumed run is not debited twice."""
    account = stream._ledger
    if account is None:
        return None
    if not isinstance(account, Account):
        raise BadParameter("a durable stream needs ledger=Ledger(path).account(data_set): a debit that is durable too")
    if account.run is None:
        account = stream._ledger = replace(account, run=run)
    return account


def _payer(database: Database) -> Account | None:
    """Who pays for a run that has no rows yet: the debit comes before the first row, and is made once."""
    found = database.run()["account"]
    return None if found is None else Ledger.existing(found[0]).account(found[1], run=found[2])


def _last_commit(writer: Writer, *, snapshot: bool = False) -> None:
    """Commit what is left, unless a commit failed: that was told already, and closing cannot mend it."""
    if not writer.has_failed:
        writer.settle(snapshot=snapshot)
