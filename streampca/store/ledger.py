"""A durable ledger: how much of the privacy budget of each data set is spent."""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from os import PathLike, fspath
from pathlib import Path
from threading import RLock
from typing import NamedTuple, Self, TypeVar

from streampca.errors import BadParameter, BudgetExhausted, StoreCorrupt, StoreForked, StoreUnwritable
from streampca.privacy.accounting import Event, Promising, epsilon_of
from streampca.privacy.budget import Budget
from streampca.privacy.guarantee import Guarantee
from streampca.store.witness import Point

APPLICATION = 0x53504C47
SCHEMA = 2
_TABLES = """
CREATE TABLE budgets (
  data_set TEXT PRIMARY KEY, epsilon REAL NOT NULL, delta REAL NOT NULL, adjacency TEXT NOT NULL, unit TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE entries (
  id INTEGER PRIMARY KEY AUTOINCREMENT, data_set TEXT NOT NULL REFERENCES budgets, at TEXT NOT NULL,
  run TEXT, event TEXT NOT NULL, UNIQUE (data_set, run)
);
CREATE TABLE heads (
  data_set TEXT NOT NULL, run TEXT NOT NULL, t INTEGER NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (data_set, run)
) WITHOUT ROWID
"""

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """One debit.

    Attributes
    ----------
    at : when, in UTC.
    run : name of the run that was debited, or None.
    event : what was run.
    """

    at: str
    run: str | None
    event: Event


@dataclass(frozen=True)
class Balance:
    """Where a data set stands.

    Attributes
    ----------
    data_set : its name.
    epsilon, delta, adjacency, unit : its budget.
    entries : what was debited, oldest first.
    """

    data_set: str
    epsilon: float
    delta: float
    adjacency: str
    unit: str
    entries: tuple[Entry, ...]

    @property
    def spent(self) -> float:
        """Epsilon of all entries together, at the budget's delta."""
        return epsilon_of([entry.event for entry in self.entries], self.delta)

    def after(self, event: Event) -> float:
        """What would be spent with one more event."""
        return epsilon_of([*(entry.event for entry in self.entries), event], self.delta)


class _Open(NamedTuple):
    """A connection, the process that opened it, and what keeps its threads apart."""

    process: int
    db: sqlite3.Connection
    lock: RLock


#: Connections of a parent process, which a child of a fork may not even close.
_INHERITED: list[sqlite3.Connection] = []


class Ledger:
    """Budgets and debits in one SQLite file, every debit on the disk before the call returns.

    Parameters
    ----------
    path : the file; made if it is missing.

    Raises
    ------
    StoreCorrupt
        If the file is damaged or is not a ledger.
    StoreUnwritable
        If it cannot be opened.

    Notes
    -----
    Use it as a context manager, or call `close`. Threads may share a ledger, and
    processes a file: a debit is one transaction, so two of them cannot both spend what is
    left for one. A pickled ledger and the child of a fork open the file again.
    The ledger holds no rows and no noise. Who deletes or edits it forgets what was
    spent; keep it where the rows are kept.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = fspath(path)
        self._opened = self._open()

    @classmethod
    def existing(cls, path: str | PathLike[str]) -> Self:
        """Open a ledger that must be there already."""
        if not Path(path).is_file():
            raise BadParameter(f"{fspath(path)}: there is no such ledger; check the path")
        return cls(path)

    # -- budgets --------------------------------------------------------------------

    def set_budget(self, data_set: str, budget: Budget, unit: str = "one row") -> None:
        """Say what may be spent on a data set in all. Once; repeating the same budget changes nothing.

        Raises
        ------
        BadParameter
            If it has another budget already: a budget that grows when it is spent is none.
        """
        if not data_set:
            raise BadParameter("data_set='' must be a name")
        wanted = (budget.epsilon, budget.delta, budget.adjacency, unit)

        def work(db: sqlite3.Connection) -> None:
            found = _budget(db, data_set)
            if found is None:
                db.execute("INSERT INTO budgets VALUES (?, ?, ?, ?, ?)", (data_set, *wanted))
            elif found != wanted:
                raise BadParameter(
                    f"data set {data_set!r} has a budget of epsilon={found[0]:g}, delta={found[1]:g} for {found[3]} "
                    f"under {found[2]!r} already; budgets are set once"
                )

        self._transact(work)

    def balance(self, data_set: str) -> Balance:
        """Budget and debits of a data set.

        Raises
        ------
        BadParameter
            If it has no budget.
        StoreCorrupt
            If an entry cannot be read.
        """
        return self._transact(partial(self._balance, data_set))

    def balances(self) -> list[Balance]:
        """Of all data sets, by name."""
        names = self._transact(
            lambda db: db.execute("SELECT data_set FROM budgets ORDER BY data_set").fetchall(),
        )
        return [self.balance(name) for (name,) in names]

    # -- debits ---------------------------------------------------------------------

    def debit(self, data_set: str, ran: Guarantee | Promising | Event, *, run: str | None = None) -> Balance:
        """Book something that is about to be run on a data set. On the disk when this returns.

        Parameters
        ----------
        data_set : whose budget pays.
        ran : what will run.
        run : a name for it. A run that was debited under this name before, with the same
            event, is not debited again, so that it can be continued after a crash.

        Raises
        ------
        BudgetExhausted
            If the budget does not cover it, or it has no guarantee. Nothing is booked.
        BadParameter
            If the data set has no budget, the run's name belongs to another event, or
            the guarantee is for other neighbours than the budget.
        """
        if isinstance(ran, Event):
            event = ran
        else:
            promised = ran if isinstance(ran, Guarantee) else ran.guarantee
            if not promised.is_private:
                raise BudgetExhausted(f"no budget covers what has no guarantee: {promised.theorem}")
            event = Event.of(promised)
        return self._transact(partial(self._book, data_set, event, run))

    def account(self, data_set: str, *, run: str | None = None) -> Account:
        """The account of one data set, for ``Stream(..., ledger=...)``. ``run`` is shown with its debits."""
        return Account(self, data_set, run)

    def _balance(self, data_set: str, db: sqlite3.Connection) -> Balance:
        found = _budget(db, data_set)
        if found is None:
            raise BadParameter(f"data set {data_set!r} has no budget; set one with Ledger.set_budget")
        rows = db.execute("SELECT at, run, event FROM entries WHERE data_set = ? ORDER BY id", (data_set,)).fetchall()
        try:
            entries = tuple(Entry(at, run, Event.from_dict(json.loads(text))) for at, run, text in rows)
        except (TypeError, ValueError) as problem:
            raise StoreCorrupt(f"{self.path}: an entry cannot be read ({problem}); restore a copy") from problem
        return Balance(data_set, *found, entries)

    def _book(self, data_set: str, event: Event, run: str | None, db: sqlite3.Connection) -> Balance:
        before = self._balance(data_set, db)
        if (event.adjacency, event.unit) != (before.adjacency, before.unit):
            raise BadParameter(
                f"the budget of {data_set!r} is for {before.unit} under {before.adjacency!r}, this is calibrated "
                f"for {event.unit} under {event.adjacency!r}; calibrate it for the same"
            )
        same = [entry for entry in before.entries if run is not None and entry.run == run]
        if same:
            if same[0].event != event:
                raise BadParameter(f"run={run!r} was debited for something else; give this run a name of its own")
            return before
        total = before.after(event)
        # Solving for mu and back costs some 1e-15 of epsilon; nobody shall be refused for that.
        if not total <= before.epsilon * (1.0 + 1e-12):
            raise BudgetExhausted(
                f"data set {data_set!r} has spent epsilon={before.spent:.4g} of {before.epsilon:g} at delta="
                f"{before.delta:g}; with this it would be {'unbounded' if math.isinf(total) else f'{total:.4g}'}"
            )
        db.execute(
            "INSERT INTO entries (data_set, at, run, event) VALUES (?, ?, ?, ?)",
            (data_set, datetime.now(UTC).isoformat(timespec="seconds"), run, json.dumps(event.to_dict())),
        )
        return self._balance(data_set, db)

    # -- where durable runs stand ---------------------------------------------------

    def head(self, data_set: str, run: str) -> Point | None:
        """The latest point of a durable run: rows, and a keyed digest of the chain value; None if there is none."""
        found: Point | None = self._transact(partial(_head, data_set, run))
        return found

    def note(self, data_set: str, run: str, before: Point | None, after: Point) -> None:
        """Note that a durable run went on from one point to another. On the disk when this returns.

        Raises
        ------
        StoreForked
            If another copy of the run went on from there.
        """

        def work(db: sqlite3.Connection) -> None:
            if _head(data_set, run, db) not in (before, after):
                raise StoreForked(
                    f"another copy of this run went on, says the ledger {self.path}, so what this one released since "
                    f"row {before[0] if before else 0} is not handed out; resume it with moved=True (--moved) to go on "
                    "as a second run, which is paid for"
                )
            db.execute("INSERT OR REPLACE INTO heads VALUES (?, ?, ?, ?)", (data_set, run, *after))

        self._transact(work)

    # -- how it works ---------------------------------------------------------------

    def _open(self) -> _Open:
        with self._plainly():
            db = sqlite3.connect(self.path, isolation_level=None, timeout=30.0, check_same_thread=False)
            opened = _Open(os.getpid(), db, RLock())
            try:
                self._set_up(opened)
            except BaseException:
                db.close()
                raise
        return opened

    def _set_up(self, opened: _Open) -> None:
        db = opened.db
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (tables or application) and application != APPLICATION:
            raise StoreCorrupt(f"{self.path} is another program's database; give the ledger a file of its own")
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA:
            raise StoreCorrupt(f"{self.path} is of schema {version}, this version reads up to {SCHEMA}")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        if version < SCHEMA:
            _in_transaction(opened, _make_tables)

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """All that ``work`` writes, or nothing of it."""
        opened = self._opened
        if opened.process != os.getpid():
            _INHERITED.append(opened.db)
            opened = self._opened = self._open()
        with self._plainly():
            return _in_transaction(opened, work)

    @contextmanager
    def _plainly(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, sqlite3.ProgrammingError) as problem:
            raise StoreUnwritable(f"{self.path}: {problem}; nothing was booked") from problem
        except sqlite3.DatabaseError as problem:
            raise StoreCorrupt(f"{self.path}: {problem}; restore a copy") from problem

    def close(self) -> None:
        """Close the file."""
        if self._opened.process == os.getpid():
            self._opened.db.close()
        else:
            _INHERITED.append(self._opened.db)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Ledger], tuple[str]]:
        return Ledger, (os.path.abspath(self.path),)

    def __del__(self) -> None:
        if hasattr(self, "_opened"):
            self.close()


def _in_transaction(opened: _Open, work: Callable[[sqlite3.Connection], T]) -> T:
    db = opened.db
    with opened.lock:
        try:
            if db.in_transaction:  # of a call that was interrupted twice
                db.execute("ROLLBACK")
            db.execute("BEGIN IMMEDIATE")
            made = work(db)
            db.execute("COMMIT")
            return made
        finally:
            if db.in_transaction:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")


def _make_tables(db: sqlite3.Connection) -> None:
    for statement in _TABLES.strip().split(";\n"):
        db.execute(statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS"))
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {SCHEMA}")


def _budget(db: sqlite3.Connection, data_set: str) -> tuple[float, float, str, str] | None:
    found: tuple[float, float, str, str] | None = db.execute(
        "SELECT epsilon, delta, adjacency, unit FROM budgets WHERE data_set = ?", (data_set,)
    ).fetchone()
    return found


def _head(data_set: str, run: str, db: sqlite3.Connection) -> Point | None:
    found: Point | None = db.execute(
        "SELECT t, digest FROM heads WHERE data_set = ? AND run = ?", (data_set, run)
    ).fetchone()
    return found


@dataclass(frozen=True)
class Account:
    """One data set's place in a ledger; debits whatever a stream is about to run.

    Attributes
    ----------
    ledger : where the budget is kept.
    data_set : whose rows the stream is fed.
    run : shown with its debits.
    """

    ledger: Ledger
    data_set: str
    run: str | None = None

    def debit(self, guarantee: Guarantee, start: bytes) -> None:
        """Book one start of a stream, named by 16 bytes, before its first row; the same start again is not booked.

        Raises
        ------
        BudgetExhausted
            If the budget does not cover it. Nothing is booked.
        """
        name = blake2b(start, digest_size=16, person=b"streampca start").hexdigest()
        self.ledger.debit(self.data_set, guarantee, run=name if self.run is None else f"{self.run} {name}")

    def head(self, run: str) -> Point | None:
        """See `Ledger.head`."""
        return self.ledger.head(self.data_set, run)

    def note(self, run: str, before: Point | None, after: Point) -> None:
        """See `Ledger.note`."""
        self.ledger.note(self.data_set, run, before, after)
