"""A durable ledger of the privacy budgets of data sets."""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Self, TypeVar

from streampca.errors import (
    BadParameterError,
    BudgetExhaustedError,
    StoreCorruptError,
    StoreForkedError,
    StreamPCAError,
    reason,
    short,
)
from streampca.privacy.accounting import Event, Promising, basic_epsilon, epsilon_of
from streampca.privacy.budget import Budget
from streampca.privacy.guarantee import Guarantee
from streampca.store.database import Format, SQLiteFile, checksum, plain_errors
from streampca.store.records import damaged
from streampca.store.witness import Point

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
) WITHOUT ROWID;
CREATE TABLE sums (data_set TEXT PRIMARY KEY, sum BLOB NOT NULL) WITHOUT ROWID
"""
# Solving for mu and back costs about 1e-15 of epsilon, which must not refuse a run that exhausts its budget exactly.
_TOLERANCE = 1e-12
_FORMAT = Format("ledger", 0x53504C47, schema=3, tables=_TABLES)

T = TypeVar("T")
_Budget = tuple[float, float, str, str]  # epsilon, delta, adjacency, unit
_Row = tuple[int, str, str | None, str]  # number, time, run, event


@dataclass(frozen=True)
class Entry:
    """One debit: its time in UTC, the name of the run that was debited, or None, and the event."""

    at: str
    run: str | None
    event: Event


@dataclass(frozen=True)
class Balance:
    """Budget of a data set, and its debits, oldest first."""

    data_set: str
    epsilon: float
    delta: float
    adjacency: str
    unit: str
    entries: tuple[Entry, ...]

    @property
    def spent(self) -> float:
        """Epsilon of all entries together, at the budget's delta."""
        return self.after()

    def after(self, *events: Event) -> float:
        """Return epsilon of all entries and further events."""
        return epsilon_of([*(entry.event for entry in self.entries), *events], self.delta)

    def covers(self, event: Event) -> bool:
        """Return whether the budget covers one more event. `BadParameterError` for another adjacency or unit."""
        if (event.adjacency, event.unit) != (self.adjacency, self.unit):
            raise BadParameterError(
                f"the budget of {self.data_set!r} is for {self.unit} under {self.adjacency!r}, this is calibrated "
                f"for {event.unit} under {event.adjacency!r}. Calibrate it for the same"
            )
        most = self.epsilon * (1.0 + _TOLERANCE)
        # Basic composition is an upper bound and fast; tight accounting runs only if the bound does not suffice.
        events = [*(entry.event for entry in self.entries), event]
        return basic_epsilon(events, self.delta) <= most or self.after(event) <= most

    def __str__(self) -> str:
        spent = self.spent
        return (
            f"{self.data_set}: epsilon {spent:.6g} of {self.epsilon:g} spent at delta {self.delta:g}, "
            f"{max(0.0, self.epsilon - spent):.6g} remain, for {self.unit} under {self.adjacency} adjacency"
        )


class Ledger:
    """Budgets and debits in one SQLite file. Every debit is on the disk before the call returns.

    Use it as a context manager, or call `close`. It holds no rows and no noise. A ledger that is deleted or edited has
    forgotten what was spent: protect it like the rows.

    Parameters
    ----------
    path : str or path
        The file, created if it is missing.

    Raises
    ------
    StoreCorruptError
        If the file is damaged or is not a ledger.
    StoreUnwritableError
        If the file cannot be opened.

    Notes
    -----
    *Concurrency.* Threads may share a ledger, and processes a file. A debit is booked only if no other debit was booked
    since its check, so that two of them cannot both spend the remainder. A pickled ledger and the child of a fork open
    the file again.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = fspath(path)
        self._file = SQLiteFile(self.path, _FORMAT, timeout=30.0)

    @classmethod
    def existing(cls, path: str | PathLike[str]) -> Self:
        """Open a ledger that must exist."""
        if not Path(path).is_file():
            raise BadParameterError(f"{fspath(path)}: there is no such ledger. Check the path")
        return cls(path)

    # -- budgets --------------------------------------------------------------------

    def set_budget(self, data_set: str, budget: Budget, unit: str = "one row") -> None:
        """Set the budget of a data set. Idempotent.

        Raises
        ------
        BadParameterError
            If the data set has another budget: a budget that could grow after it is spent would limit nothing.
        """
        if not data_set:
            raise BadParameterError("data_set='': expected a name.")
        if not isinstance(budget, Budget):
            raise BadParameterError(f"budget={short(budget)} is not a budget. Pass Budget(epsilon, delta)")
        wanted = (budget.epsilon, budget.delta, budget.adjacency, unit)

        def work(db: sqlite3.Connection) -> None:
            stored = _contents(db, data_set)[0]
            if stored is None:
                db.execute("INSERT INTO budgets VALUES (?, ?, ?, ?, ?)", (data_set, *wanted))
                _put_sum(db, data_set)
            elif stored != wanted:
                raise BadParameterError(
                    f"data set {data_set!r} has a budget of epsilon={stored[0]:g}, delta={stored[1]:g} for {stored[3]} "
                    f"under {stored[2]!r} already; budgets are set once"
                )

        self._transact(work)

    def balance(self, data_set: str) -> Balance:
        """Return budget and debits of a data set.

        Raises
        ------
        BadParameterError
            If the data set has no budget.
        StoreCorruptError
            If an entry is damaged.
        """
        return self._balance(data_set)[0]

    def balances(self) -> list[Balance]:
        """Return the balances of all data sets, by name."""
        names = self._transact(lambda db: db.execute("SELECT data_set FROM budgets ORDER BY data_set").fetchall())
        return [self.balance(name) for (name,) in names]

    # -- debits ---------------------------------------------------------------------

    def debit(self, data_set: str, ran: Guarantee | Promising | Event, *, run: str | None = None) -> Balance:
        """Book an event before it runs on a data set. The debit is on the disk when the call returns.

        Parameters
        ----------
        data_set : str
            Data set whose budget pays.
        ran : Guarantee, Event, or an object with a guarantee
            Event to pay for.
        run : str or None, default=None
            Name of this one start of it. A debit under the same name is booked once, so that a crashed run can
            continue. None books every call. An `Account` names the starts of streams and one-shot releases.

        Returns
        -------
        Balance
            Balance including this debit.

        Raises
        ------
        BudgetExhaustedError
            If the budget does not cover the event, or it has no guarantee. Nothing is booked.
        BadParameterError
            If the data set has no budget, the name belongs to another event, or the adjacency is not the budget's.
        """
        if isinstance(ran, Event):
            event = ran
        else:
            promised = ran if isinstance(ran, Guarantee) else ran.guarantee
            if not promised.is_private:
                raise BudgetExhaustedError(f"no budget covers an event without a guarantee: {promised.theorem}")
            event = Event.of(promised)
        refused = -1
        # Optimistic: the price is computed without a lock, and again if another debit was booked meanwhile.
        while True:
            before, last = self._balance(data_set)
            if last == refused:
                raise StoreCorruptError(f"{self.path} is damaged: its index lacks an entry. Restore a copy")
            booked = [entry.event for entry in before.entries if run is not None and entry.run == run]
            if booked:
                if booked[0] != event:
                    raise BadParameterError(f"run={run!r} was debited for something else. Name this run differently")
                return before
            if not before.covers(event):
                total = before.after(event)
                raise BudgetExhaustedError(
                    f"data set {data_set!r} has spent epsilon={before.spent:.4g} of {before.epsilon:g} at delta="
                    f"{before.delta:g}; with this it would be {'unbounded' if math.isinf(total) else f'{total:.4g}'}"
                )
            entry = Entry(datetime.now(UTC).isoformat(timespec="seconds"), run, event)
            refused = last
            if self._transact(partial(_book, data_set, last, entry)):
                return replace(before, entries=(*before.entries, entry))

    def account(self, data_set: str, *, run: str | None = None) -> Account:
        """Return the account of a data set, for ``ledger=`` of streams and releases. Debits show ``run``."""
        return Account(self, data_set, run)

    def _balance(self, data_set: str) -> tuple[Balance, int]:
        """Return budget and debits, and the number of the latest debit."""

        def work(db: sqlite3.Connection) -> tuple[_Budget | None, list[_Row], Any]:
            total = db.execute("SELECT sum FROM sums WHERE data_set = ?", (data_set,)).fetchone()
            return *_contents(db, data_set), total

        budget, rows, total = self._transact(work, write=False)
        if budget is None:
            raise BadParameterError(f"data set {data_set!r} has no budget. Set one with Ledger.set_budget")
        if total != (checksum(data_set, repr((budget, rows)).encode()),):
            what = f"the budget or a debit of {data_set!r} fails its checksum: the file is damaged"
            raise damaged(f"{self.path}: {what}")
        try:
            Budget(*budget[:2], adjacency=budget[2])  # type: ignore[arg-type]
            entries = tuple(Entry(at, run, Event.from_dict(json.loads(text))) for _, at, run, text in rows)
        except (TypeError, ValueError, AttributeError, StreamPCAError) as problem:
            raise StoreCorruptError(
                f"{self.path}: an entry cannot be read ({reason(problem)}). Restore a copy"
            ) from problem
        return Balance(data_set, *budget, entries), rows[-1][0] if rows else 0

    # -- progress of durable runs ---------------------------------------------------

    def head(self, data_set: str, run: str) -> Point | None:
        """Return the latest point of a durable run: rows, and a keyed digest of the chain value. None if unknown."""
        return self._transact(partial(_head, data_set, run), write=False)

    def note(self, data_set: str, run: str, before: Point | None, after: Point) -> None:
        """Record that a durable run advanced from one point to another. On the disk when the call returns.

        Raises
        ------
        StoreForkedError
            If another copy of the run has advanced from there.
        """

        def work(db: sqlite3.Connection) -> None:
            # A call that is repeated after an interrupt finds its own point.
            if _head(data_set, run, db) not in (before, after):
                raise StoreForkedError(
                    f"another copy of this run continued, according to the ledger {self.path}, so releases of this one "
                    f"since row {before[0] if before else 0} are not handed out. Resume it with moved=True (--moved) "
                    "to continue as a second run, which is paid for"
                )
            db.execute("INSERT OR REPLACE INTO heads VALUES (?, ?, ?, ?)", (data_set, run, *after))

        self._transact(work)

    # -- how it works ---------------------------------------------------------------

    def _transact(self, work: Callable[[sqlite3.Connection], T], *, write: bool = True) -> T:
        if self._file.process != os.getpid():  # SQLite forbids a connection of the parent in the child of a fork
            self._file = SQLiteFile(self.path, _FORMAT, timeout=30.0)
        with plain_errors(self.path):
            return self._file.transact(work, write=write)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Ledger], tuple[str]]:
        return Ledger, (os.path.abspath(self.path),)


def _book(data_set: str, last: int, entry: Entry, db: sqlite3.Connection) -> bool:
    """Book a debit that was checked against the debits up to ``last``; return False if there are later ones."""
    (latest,) = db.execute("SELECT coalesce(max(id), 0) FROM entries WHERE data_set = ?", (data_set,)).fetchone()
    if latest != last:
        return False
    values = (data_set, entry.at, entry.run, json.dumps(entry.event.to_dict()))
    db.execute("INSERT INTO entries (data_set, at, run, event) VALUES (?, ?, ?, ?)", values)
    _put_sum(db, data_set)
    return True


def _contents(db: sqlite3.Connection, data_set: str) -> tuple[_Budget | None, list[_Row]]:
    """Return budget and debits of a data set."""
    query = "SELECT epsilon, delta, adjacency, unit FROM budgets WHERE data_set = ?"
    budget: _Budget | None = db.execute(query, (data_set,)).fetchone()
    query = "SELECT id, at, run, event FROM entries WHERE data_set = ? ORDER BY id"
    return budget, db.execute(query, (data_set,)).fetchall()


def _put_sum(db: sqlite3.Connection, data_set: str) -> None:
    total = checksum(data_set, repr(_contents(db, data_set)).encode())
    db.execute("INSERT OR REPLACE INTO sums VALUES (?, ?)", (data_set, total))


def _head(data_set: str, run: str, db: sqlite3.Connection) -> Point | None:
    query = "SELECT t, digest FROM heads WHERE data_set = ? AND run = ?"
    point: Point | None = db.execute(query, (data_set, run)).fetchone()
    return point


@dataclass(frozen=True)
class Account:
    """Account of one data set in a ledger, for ``ledger=`` of streams and releases. Debits show ``run``."""

    ledger: Ledger
    data_set: str
    run: str | None = None

    def debit(self, guarantee: Guarantee, start: bytes) -> None:
        """Book one start of a stream or a release, named by 16 bytes, once.

        Raises
        ------
        BudgetExhaustedError
            If the budget does not cover it. Nothing is booked.
        """
        name = blake2b(start, digest_size=16, person=b"streampca start").hexdigest()
        self.ledger.debit(self.data_set, guarantee, run=name if self.run is None else f"{self.run} {name}")

    def remaining(self) -> str:
        """Return the spent and the remaining part of the budget, as one sentence."""
        return str(self.ledger.balance(self.data_set))


@dataclass(frozen=True)
class LedgerFile:
    """Account of a data set in an existing ledger file, held as a path: it survives clones, pickles and processes."""

    path: str
    data_set: str

    @classmethod
    def of(cls, ledger: str | PathLike[str] | None, data_set: str | None) -> Self | None:
        """Return the account that two parameters of an estimator name, or None if both are None."""
        if (ledger is None) != (data_set is None):
            raise BadParameterError(
                f"ledger={ledger!r}, data_set={data_set!r}: expected the path of a ledger and the name of the data "
                "set, or neither."
            )
        return None if ledger is None or data_set is None else cls(fspath(ledger), data_set)

    def debit(self, guarantee: Guarantee, start: bytes) -> None:
        """Book one start of a stream; see `streampca.privacy.guarantee.Account`."""
        with Ledger.existing(self.path) as ledger:
            ledger.account(self.data_set).debit(guarantee, start)
