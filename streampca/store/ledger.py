"""A durable ledger of the privacy budgets of data sets."""

from __future__ import annotations

import math
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b
from os import PathLike, fspath
from pathlib import Path
from typing import Self

from streampca.errors import Answered, BadParameterError, BudgetExhaustedError, StoreForkedError, UsageError, answered
from streampca.privacy.accounting import Event, Promising, basic_epsilon, epsilon_of
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.guarantee import Guarantee
from streampca.store.database import SQLiteFile
from streampca.store.witness import Point

# Solving for mu and back costs about 1e-15 of epsilon, which must not refuse a run that exhausts its budget exactly.
_TOLERANCE = 1e-12
_BALANCE = "balance "  # the facts of a ledger: the balance of each data set, and the head of each durable run


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
    adjacency: Adjacency
    unit: str
    entries: tuple[Entry, ...] = ()

    def __post_init__(self) -> None:
        Budget(self.epsilon, self.delta, self.adjacency)  # refuses damaged numbers

    @property
    def spent(self) -> float:
        """Epsilon of all entries together, at the budget's delta."""
        return self.after()

    def after(self, *events: Event) -> float:
        """Return epsilon of all entries and further events."""
        return epsilon_of([*(entry.event for entry in self.entries), *events], self.delta)

    def covers(self, event: Event) -> bool:
        """Return whether the budget covers one more event. `UsageError` for another adjacency or unit."""
        if (event.adjacency, event.unit) != (self.adjacency, self.unit):
            raise UsageError(
                f"the budget of {self.data_set!r} is for {self.unit} under {self.adjacency!r}, this is calibrated for "
                f"{event.unit} under {event.adjacency!r}. Calibrate it for the same"
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


class Ledger(Answered, AbstractContextManager["Ledger"]):
    """Budgets and debits in one SQLite file. Every debit is on the disk before the call returns.

    Use it as a context manager, or call `close`. It holds no rows and no noise. A ledger that is deleted or edited has
    forgotten what was spent: protect it like the rows.

    Parameters
    ----------
    path : str or path
        The file, created if it is missing.
    create : bool, default=True
        If False, the file must exist.

    Raises
    ------
    UsageError
        If the file is missing and ``create`` is False.
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

    def __init__(self, path: str | PathLike[str], *, create: bool = True) -> None:
        self.path = fspath(path)
        if not create and not Path(path).is_file():
            raise UsageError(
                f"there is no ledger {self.path}. Create it with `streampca ledger budget {self.path} --data-set NAME "
                "--epsilon 1`"
            )
        self._open_file = SQLiteFile(self.path)

    # -- budgets --------------------------------------------------------------------

    @answered
    def set_budget(self, data_set: str, budget: Budget, unit: str = "one row") -> None:
        """Set the budget of a data set. Idempotent.

        Raises
        ------
        UsageError
            If the data set has another budget: a budget that could grow after it is spent would limit nothing.
        """
        if not data_set:
            raise BadParameterError("data_set", "", "a name")
        if not isinstance(budget, Budget):
            raise BadParameterError("budget", budget, "a budget", advice="Pass Budget(epsilon, delta)")
        if not self._replace(data_set, None, Balance(data_set, budget.epsilon, budget.delta, budget.adjacency, unit)):
            stored = self.balance(data_set)
            if (Budget(stored.epsilon, stored.delta, stored.adjacency), stored.unit) != (budget, unit):
                raise UsageError(
                    f"data set {data_set!r} has a budget of epsilon={stored.epsilon:g}, delta={stored.delta:g} for "
                    f"{stored.unit} under {stored.adjacency!r} already; budgets are set once"
                )

    def balance(self, data_set: str) -> Balance:
        """Return budget and debits of a data set.

        Raises
        ------
        UsageError
            If the data set has no budget.
        StoreCorruptError
            If an entry is damaged.
        """
        found: Balance | None = self._file.get(_BALANCE + data_set, Balance)
        if found is None:
            raise UsageError(f"data set {data_set!r} has no budget. Set one with Ledger.set_budget")
        return found

    def remaining(self, data_set: str) -> float:
        """Return epsilon of the budget less that of all debits together, at the budget's delta."""
        balance = self.balance(data_set)
        return max(0.0, balance.epsilon - balance.spent)

    def balances(self) -> list[Balance]:
        """Return the balances of all data sets, by name."""
        query = "SELECT name FROM facts WHERE substr(name, 1, ?) = ? ORDER BY name"
        names = self._file.transact(lambda db: db.execute(query, (len(_BALANCE), _BALANCE)).fetchall(), write=False)
        return [self.balance(name.removeprefix(_BALANCE)) for (name,) in names]

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
        UsageError
            If the data set has no budget, the name belongs to another event, or the adjacency is not the budget's.
        """
        if isinstance(ran, Event):
            event = ran
        else:
            promised = ran if isinstance(ran, Guarantee) else ran.guarantee
            if not promised.is_private:
                raise BudgetExhaustedError(f"no budget covers an event without a guarantee: {promised.theorem}")
            event = Event.of(promised)
            if event.adjacency == "add-remove":  # of a calendar, where a zero row is none: it implies zero-out
                event = replace(event, adjacency="zero-out")
        # Optimistic: the price is computed without a lock, and again if another debit was booked meanwhile.
        while True:
            before = self.balance(data_set)
            booked = [entry.event for entry in before.entries if run is not None and entry.run == run]
            if booked:
                if booked[0] != event:
                    raise UsageError(f"run={run!r} was debited for something else. Name this run differently")
                return before
            if not before.covers(event):
                total = before.after(event)
                raise BudgetExhaustedError(
                    f"data set {data_set!r} has spent epsilon={before.spent:.4g} of {before.epsilon:g} at delta="
                    f"{before.delta:g}; with this it would be {'unbounded' if math.isinf(total) else f'{total:.4g}'}"
                )
            # The time is for readers of the ledger. No price depends on it.
            entry = Entry(datetime.now(UTC).isoformat(timespec="seconds"), run, event)
            after = replace(before, entries=(*before.entries, entry))
            if self._replace(data_set, before, after):
                return after

    def account(self, data_set: str, *, run: str | None = None) -> Account:
        """Return the account of a data set, for ``account=`` of streams and releases. Debits show ``run``."""
        return Account(self, data_set, run)

    def _replace(self, data_set: str, before: Balance | None, after: Balance) -> bool:
        """Replace a balance by another; return False if the stored one is not the first."""
        # Compare and swap in one transaction: a debit that was checked against an older balance is checked again, so
        # that two processes cannot both spend the remainder.

        def work(_: object) -> bool:
            is_before = bool(self._file.get(_BALANCE + data_set, Balance) == before)
            if is_before:
                self._file.put(**{_BALANCE + data_set: after})
            return is_before

        return self._file.transact(work)

    # -- progress of durable runs ---------------------------------------------------

    def head(self, data_set: str, run: str) -> Point | None:
        """Return the latest point of a durable run: rows, and a keyed digest of the chain value. None if unknown."""
        found: Point | None = self._file.get(f"head {run} {data_set}", Point)
        return found

    def note(self, data_set: str, run: str, before: Point | None, after: Point) -> None:
        """Record that a durable run advanced, on the disk; `StoreForkedError` if another copy of it has."""

        def work(_: object) -> None:
            # A call that is repeated after an interrupt finds its own point.
            if self.head(data_set, run) not in (before, after):
                raise StoreForkedError(
                    f"another copy of this run continued, according to the ledger {self.path}, so releases of this one "
                    f"since row {before[0] if before else 0} are not handed out. Resume it with moved=True (--moved) "
                    "to continue as a second run, which is paid for"
                )
            self._file.put(**{f"head {run} {data_set}": after})

        self._file.transact(work)

    @property
    def _file(self) -> SQLiteFile:
        if self._open_file.process != os.getpid():  # SQLite forbids a connection of the parent in the child of a fork
            self._open_file = SQLiteFile(self.path)
        return self._open_file

    def close(self) -> None:
        self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[Ledger], tuple[str]]:
        return Ledger, (os.path.abspath(self.path),)


@dataclass(frozen=True)
class Account:
    """Account of one data set in a ledger, for ``account=`` of streams and releases. Debits show ``run``."""

    ledger: Ledger
    data_set: str
    run: str | None = None

    @classmethod
    def of(cls, ledger: str | PathLike[str] | None, data_set: str | None) -> Self | None:
        """Return the account that two parameters of an estimator name, or None if both are None."""
        if (ledger is None) != (data_set is None):
            raise UsageError(
                f"ledger={ledger!r}, data_set={data_set!r}: expected the path of a ledger and the name of the data "
                "set, or neither"
            )
        return None if ledger is None or data_set is None else cls(Ledger(ledger, create=False), data_set)

    def debit(self, guarantee: Guarantee, start: bytes) -> None:
        """Book one start of a stream or a release, named by 16 bytes, once. Raises as `Ledger.debit`."""
        # A digest, because the bytes of the start are part of the key of the noise.
        name = blake2b(start, digest_size=16, person=b"streampca start").hexdigest()
        self.ledger.debit(self.data_set, guarantee, run=name if self.run is None else f"{self.run} {name}")

    def remaining(self) -> str:
        """Return the spent and the remaining part of the budget, as one sentence."""
        return str(self.ledger.balance(self.data_set))
