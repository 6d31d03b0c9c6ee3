"""A durable ledger: how much of the privacy budget of each data set is spent."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from os import PathLike, fspath
from pathlib import Path
from typing import Self

from streampca.errors import BadParameter, BudgetExhausted, StoreCorrupt, StoreUnwritable
from streampca.privacy.accounting import Event, Promising, epsilon_of
from streampca.privacy.budget import Budget
from streampca.privacy.guarantee import Guarantee

APPLICATION = 0x53504C47
SCHEMA = 1
_TABLES = """
CREATE TABLE budgets (
  data_set TEXT PRIMARY KEY, epsilon REAL NOT NULL, delta REAL NOT NULL, adjacency TEXT NOT NULL, unit TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE entries (
  id INTEGER PRIMARY KEY AUTOINCREMENT, data_set TEXT NOT NULL REFERENCES budgets, at TEXT NOT NULL,
  run TEXT, event TEXT NOT NULL, UNIQUE (data_set, run)
);
"""


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
    Use it as a context manager, or call `close`. Several processes may share a file: a
    debit is one transaction, so two of them cannot both spend what is left for one.
    The ledger holds no rows and no noise. Who deletes or edits it forgets what was
    spent; keep it where the rows are kept.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = fspath(path)
        with self._plainly():
            self._db = sqlite3.connect(self.path, isolation_level=None, timeout=30.0, check_same_thread=False)
        try:
            with self._plainly():
                self._set_up()
        except BaseException:
            self._db.close()
            raise

    @classmethod
    def existing(cls, path: str | PathLike[str]) -> Self:
        """Open a ledger that must be there already."""
        if not Path(path).is_file():
            raise BadParameter(f"{fspath(path)}: there is no such ledger; check the path")
        return cls(path)

    def _set_up(self) -> None:
        (application,) = self._db.execute("PRAGMA application_id").fetchone()
        (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (tables or application) and application != APPLICATION:
            raise StoreCorrupt(f"{self.path} is another program's database; give the ledger a file of its own")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA:
            raise StoreCorrupt(f"{self.path} is of schema {version}, this version reads up to {SCHEMA}")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA foreign_keys = ON")
        with self._transaction():
            if not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                for statement in _TABLES.strip().split(";\n"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA application_id = {APPLICATION}")
                self._db.execute(f"PRAGMA user_version = {SCHEMA}")

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
        with self._plainly(), self._transaction():
            found = self._budget(data_set)
            if found is None:
                self._db.execute("INSERT INTO budgets VALUES (?, ?, ?, ?, ?)", (data_set, *wanted))
            elif found != wanted:
                raise BadParameter(
                    f"data set {data_set!r} has a budget of epsilon={found[0]:g}, delta={found[1]:g} for {found[3]} "
                    f"under {found[2]!r} already; budgets are set once"
                )

    def balance(self, data_set: str) -> Balance:
        """Budget and debits of a data set.

        Raises
        ------
        BadParameter
            If it has no budget.
        StoreCorrupt
            If an entry cannot be read.
        """
        with self._plainly():
            found = self._budget(data_set)
            if found is None:
                raise BadParameter(f"data set {data_set!r} has no budget; set one with Ledger.set_budget")
            rows = self._db.execute(
                "SELECT at, run, event FROM entries WHERE data_set = ? ORDER BY id", (data_set,)
            ).fetchall()
        try:
            entries = tuple(Entry(at, run, Event.from_dict(json.loads(text))) for at, run, text in rows)
        except (TypeError, ValueError) as problem:
            raise StoreCorrupt(f"{self.path}: an entry cannot be read ({problem}); restore a copy") from problem
        return Balance(data_set, *found, entries)

    def balances(self) -> list[Balance]:
        """Of all data sets, by name."""
        with self._plainly():
            names = self._db.execute("SELECT data_set FROM budgets ORDER BY data_set").fetchall()
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
        with self._plainly(), self._transaction():
            before = self.balance(data_set)
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
            self._db.execute(
                "INSERT INTO entries (data_set, at, run, event) VALUES (?, ?, ?, ?)",
                (data_set, datetime.now(UTC).isoformat(timespec="seconds"), run, json.dumps(event.to_dict())),
            )
            return self.balance(data_set)

    def account(self, data_set: str, *, run: str | None = None) -> Account:
        """The account of one data set, for ``Stream(..., ledger=...)``."""
        return Account(self, data_set, run)

    # -- how it works ---------------------------------------------------------------

    def _budget(self, data_set: str) -> tuple[float, float, str, str] | None:
        found: tuple[float, float, str, str] | None = self._db.execute(
            "SELECT epsilon, delta, adjacency, unit FROM budgets WHERE data_set = ?", (data_set,)
        ).fetchone()
        return found

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _plainly(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as problem:
            raise StoreUnwritable(f"{self.path}: {problem}; nothing was booked") from problem
        except sqlite3.DatabaseError as problem:
            raise StoreCorrupt(f"{self.path}: {problem}; restore a copy") from problem

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Account:
    """One data set's place in a ledger; debits whatever a stream is about to run.

    Attributes
    ----------
    ledger : where the budget is kept.
    data_set : whose rows the stream is fed.
    run : name of the run, for one that may be continued; see `Ledger.debit`.
    """

    ledger: Ledger
    data_set: str
    run: str | None = None

    def debit(self, guarantee: Guarantee) -> None:
        """Book a stream before its first row. See `Ledger.debit`."""
        self.ledger.debit(self.data_set, guarantee, run=self.run)
