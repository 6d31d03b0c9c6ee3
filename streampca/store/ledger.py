"""A durable ledger: how much of the privacy budget of each data set is spent."""

from __future__ import annotations

import json
import math
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from os import PathLike, fspath
from pathlib import Path
from typing import Self, TypeVar

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
# Solving for mu and back costs some 1e-15 of epsilon; nobody shall be refused for that.
_TOLERANCE = 1e-12

T = TypeVar("T")
_Budget = tuple[float, float, str, str]  # epsilon, delta, adjacency, unit
_Row = tuple[int, str, str | None, str]  # number, time, run, event


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
    """Budget and debits of a data set.

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
        return epsilon_of(self._events(), self.delta)

    def after(self, event: Event) -> float:
        """Epsilon of all entries and one more event."""
        return epsilon_of([*self._events(), event], self.delta)

    def covers(self, event: Event) -> bool:
        """Whether the budget covers one more event. Tighter accounting is asked only where basic composition says no.

        Raises
        ------
        BadParameterError
            If the event is for other neighbours than the budget.
        """
        if (event.adjacency, event.unit) != (self.adjacency, self.unit):
            raise BadParameterError(
                f"the budget of {self.data_set!r} is for {self.unit} under {self.adjacency!r}, this is calibrated "
                f"for {event.unit} under {event.adjacency!r}; calibrate it for the same"
            )
        most = self.epsilon * (1.0 + _TOLERANCE)
        return basic_epsilon([*self._events(), event], self.delta) <= most or self.after(event) <= most

    def __str__(self) -> str:
        spent = self.spent
        return (
            f"{self.data_set}: epsilon {spent:.6g} of {self.epsilon:g} spent at delta {self.delta:g}, "
            f"{max(0.0, self.epsilon - spent):.6g} remain, for {self.unit} under {self.adjacency} adjacency"
        )

    def _events(self) -> Sequence[Event]:
        return [entry.event for entry in self.entries]


class Ledger:
    """Budgets and debits in one SQLite file, every debit on the disk before the call returns.

    Parameters
    ----------
    path : the file; made if it is missing.

    Raises
    ------
    StoreCorruptError
        If the file is damaged or is not a ledger.
    StoreUnwritableError
        If it cannot be opened.

    Notes
    -----
    Use it as a context manager, or call `close`. Threads may share a ledger, and
    processes a file: what a debit is checked against is what it is booked after, so two of them
    cannot both spend what is left for one. A pickled ledger and the child of a fork open the file again.
    The ledger holds no rows and no noise. Who deletes or edits it forgets what was
    spent; keep it where the rows are kept.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = fspath(path)
        self._file = self._open()

    @classmethod
    def existing(cls, path: str | PathLike[str]) -> Self:
        """Open a ledger that must be there already."""
        if not Path(path).is_file():
            raise BadParameterError(f"{fspath(path)}: there is no such ledger; check the path")
        return cls(path)

    # -- budgets --------------------------------------------------------------------

    def set_budget(self, data_set: str, budget: Budget, unit: str = "one row") -> None:
        """Set the budget of a data set, once. Repeating the same budget changes nothing.

        Raises
        ------
        BadParameterError
            If it has another budget already: a budget that grows when it is spent is none.
        """
        if not data_set:
            raise BadParameterError("data_set='' must be a name")
        if not isinstance(budget, Budget):
            raise BadParameterError(f"budget={short(budget)} is not a budget; pass Budget(epsilon, delta)")
        wanted = (budget.epsilon, budget.delta, budget.adjacency, unit)

        def work(db: sqlite3.Connection) -> None:
            found = _budget(db, data_set)
            if found is None:
                db.execute("INSERT INTO budgets VALUES (?, ?, ?, ?, ?)", (data_set, *wanted))
                _put_sum(db, data_set)
            elif found != wanted:
                raise BadParameterError(
                    f"data set {data_set!r} has a budget of epsilon={found[0]:g}, delta={found[1]:g} for {found[3]} "
                    f"under {found[2]!r} already; budgets are set once"
                )

        self._transact(work)

    def balance(self, data_set: str) -> Balance:
        """Budget and debits of a data set.

        Raises
        ------
        BadParameterError
            If it has no budget.
        StoreCorruptError
            If an entry cannot be read.
        """
        return self._balance(data_set)[0]

    def balances(self) -> list[Balance]:
        """Balances of all data sets, by name."""
        names = self._transact(lambda db: db.execute("SELECT data_set FROM budgets ORDER BY data_set").fetchall())
        return [self.balance(name) for (name,) in names]

    # -- debits ---------------------------------------------------------------------

    def debit(self, data_set: str, ran: Guarantee | Promising | Event, *, run: str | None = None) -> Balance:
        """Book something that is about to be run on a data set. On the disk when this returns.

        Parameters
        ----------
        data_set : whose budget pays.
        ran : what will run.
        run : a name for this one start of it. What was debited under this name before is not
            booked again, so that it can be continued after a crash; left out, every call is a debit.
            An `Account` names the starts of streams and one-shot releases by itself.

        Returns
        -------
        Balance : with this debit.

        Raises
        ------
        BudgetExhaustedError
            If the budget does not cover it, or it has no guarantee. Nothing is booked.
        BadParameterError
            If the data set has no budget, the run's name belongs to another event, or
            the guarantee is for other neighbours than the budget.

        Notes
        -----
        The price is worked out without a lock, and booked if no other debit came meanwhile; otherwise it is
        worked out anew.
        """
        if isinstance(ran, Event):
            event = ran
        else:
            promised = ran if isinstance(ran, Guarantee) else ran.guarantee
            if not promised.is_private:
                raise BudgetExhaustedError(f"no budget covers what has no guarantee: {promised.theorem}")
            event = Event.of(promised)
        refused = -1
        while True:
            before, last = self._balance(data_set)
            if last == refused:  # no other debit came in between
                raise StoreCorruptError(f"{self.path} is damaged: its index lacks an entry; restore a copy")
            known = [entry.event for entry in before.entries if run is not None and entry.run == run]
            if known:
                if known[0] != event:
                    raise BadParameterError(
                        f"run={run!r} was debited for something else; give this run a name of its own"
                    )
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
                budget = (before.epsilon, before.delta, before.adjacency, before.unit)
                return Balance(data_set, *budget, (*before.entries, entry))

    def account(self, data_set: str, *, run: str | None = None) -> Account:
        """The account of one data set, for ``ledger=`` of streams and releases. ``run`` is shown with its debits."""
        return Account(self, data_set, run)

    def _balance(self, data_set: str) -> tuple[Balance, int]:
        """Budget and debits, and the number of the latest debit."""

        def work(db: sqlite3.Connection) -> tuple[_Budget | None, list[_Row], bool]:
            budget, rows = _kept(db, data_set)
            found = db.execute("SELECT sum FROM sums WHERE data_set = ?", (data_set,)).fetchone()
            return budget, rows, found is not None and found[0] == _sum(data_set, budget, rows)

        budget, rows, whole = self._transact(work, write=False)
        if budget is None:
            raise BadParameterError(f"data set {data_set!r} has no budget; set one with Ledger.set_budget")
        if not whole:
            raise StoreCorruptError(
                f"{self.path}: the budget or a debit of {data_set!r} fails its checksum: the file is damaged; "
                "restore the newest copy"
            )
        try:
            Budget(*budget[:2], adjacency=budget[2])  # type: ignore[arg-type]
            entries = tuple(Entry(at, run, Event.from_dict(json.loads(text))) for _, at, run, text in rows)
        except (TypeError, ValueError, AttributeError, StreamPCAError) as problem:
            raise StoreCorruptError(
                f"{self.path}: an entry cannot be read ({reason(problem)}); restore a copy"
            ) from problem
        return Balance(data_set, *budget, entries), rows[-1][0] if rows else 0

    # -- where durable runs stand ---------------------------------------------------

    def head(self, data_set: str, run: str) -> Point | None:
        """The latest point of a durable run: rows, and a keyed digest of the chain value; None if there is none."""
        return self._transact(partial(_head, data_set, run), write=False)

    def note(self, data_set: str, run: str, before: Point | None, after: Point) -> None:
        """Note that a durable run went on from one point to another. On the disk when this returns.

        Raises
        ------
        StoreForkedError
            If another copy of the run went on from there.
        """

        def work(db: sqlite3.Connection) -> None:
            if _head(data_set, run, db) not in (before, after):
                raise StoreForkedError(
                    f"another copy of this run went on, says the ledger {self.path}, so what this one released since "
                    f"row {before[0] if before else 0} is not handed out; resume it with moved=True (--moved) to go on "
                    "as a second run, which is paid for"
                )
            db.execute("INSERT OR REPLACE INTO heads VALUES (?, ?, ?, ?)", (data_set, run, *after))

        self._transact(work)

    # -- how it works ---------------------------------------------------------------

    def _open(self) -> SQLiteFile:
        return SQLiteFile(self.path, _FORMAT, timeout=30.0)

    def _transact(self, work: Callable[[sqlite3.Connection], T], *, write: bool = True) -> T:
        if self._file.process != os.getpid():
            self._file = self._open()
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


def _budget(db: sqlite3.Connection, data_set: str) -> _Budget | None:
    found: _Budget | None = db.execute(
        "SELECT epsilon, delta, adjacency, unit FROM budgets WHERE data_set = ?", (data_set,)
    ).fetchone()
    return found


def _book(data_set: str, last: int, entry: Entry, db: sqlite3.Connection) -> bool:
    """Book a debit that was checked against the debits up to ``last``; False if there are others since."""
    (latest,) = db.execute("SELECT coalesce(max(id), 0) FROM entries WHERE data_set = ?", (data_set,)).fetchone()
    if latest != last:
        return False
    values = (data_set, entry.at, entry.run, json.dumps(entry.event.to_dict()))
    db.execute("INSERT INTO entries (data_set, at, run, event) VALUES (?, ?, ?, ?)", values)
    _put_sum(db, data_set)
    return True


def _kept(db: sqlite3.Connection, data_set: str) -> tuple[_Budget | None, list[_Row]]:
    """Budget and debits of a data set."""
    query = "SELECT id, at, run, event FROM entries WHERE data_set = ? ORDER BY id"
    return _budget(db, data_set), db.execute(query, (data_set,)).fetchall()


def _sum(data_set: str, budget: _Budget | None, rows: list[_Row]) -> bytes:
    return checksum(data_set, repr((budget, rows)).encode())


def _put_sum(db: sqlite3.Connection, data_set: str) -> None:
    db.execute("INSERT OR REPLACE INTO sums VALUES (?, ?)", (data_set, _sum(data_set, *_kept(db, data_set))))


_FORMAT = Format("ledger", 0x53504C47, schema=3, tables=_TABLES)


def _head(data_set: str, run: str, db: sqlite3.Connection) -> Point | None:
    found: Point | None = db.execute(
        "SELECT t, digest FROM heads WHERE data_set = ? AND run = ?", (data_set, run)
    ).fetchone()
    return found


@dataclass(frozen=True)
class Account:
    """One data set's place in a ledger, for ``ledger=``: debits whatever is about to run.

    Attributes
    ----------
    ledger : where the budget is kept.
    data_set : whose rows are used.
    run : shown with its debits.
    """

    ledger: Ledger
    data_set: str
    run: str | None = None

    def debit(self, guarantee: Guarantee, start: bytes) -> None:
        """Book one start of a stream or a release, named by 16 bytes; the same start again is not booked.

        Raises
        ------
        BudgetExhaustedError
            If the budget does not cover it. Nothing is booked.
        """
        name = blake2b(start, digest_size=16, person=b"streampca start").hexdigest()
        self.ledger.debit(self.data_set, guarantee, run=name if self.run is None else f"{self.run} {name}")

    def remaining(self) -> str:
        """What is spent of the budget and what remains, as one sentence."""
        return str(self.ledger.balance(self.data_set))

    def head(self, run: str) -> Point | None:
        """See `Ledger.head`."""
        return self.ledger.head(self.data_set, run)

    def note(self, run: str, before: Point | None, after: Point) -> None:
        """See `Ledger.note`."""
        self.ledger.note(self.data_set, run, before, after)


@dataclass(frozen=True)
class LedgerFile:
    """Account of a data set in a ledger file: a path, so that it survives clones, pickles and worker processes.

    Parameters
    ----------
    path : a ledger file that exists.
    data_set : whose budget pays.
    """

    path: str
    data_set: str

    @classmethod
    def of(cls, ledger: str | PathLike[str] | None, data_set: str | None) -> Self | None:
        """The account that two parameters of an estimator name, or None if neither is given."""
        if (ledger is None) != (data_set is None):
            raise BadParameterError(
                f"ledger={ledger!r}, data_set={data_set!r}: give the path of a ledger and the name of the data set, "
                "or neither"
            )
        return None if ledger is None or data_set is None else cls(fspath(ledger), data_set)

    def debit(self, guarantee: Guarantee, start: bytes) -> None:
        """Book one start of a stream; see `streampca.privacy.guarantee.Account`."""
        with Ledger.existing(self.path) as ledger:
            ledger.account(self.data_set).debit(guarantee, start)
