"""``streampca ledger``: what of each data set's privacy budget is spent."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cyclopts import App

app = App(name="ledger", help="Privacy budgets of data sets, and what was spent of them.", help_format="plaintext")


@app.command
def show(file: Path, data_set: str | None = None) -> int:
    """Show budgets and debits.

    Parameters
    ----------
    file
        The ledger.
    data_set
        One data set only.
    """
    from streampca.store.ledger import Ledger

    with Ledger.existing(file) as ledger:
        balances = ledger.balances() if data_set is None else [ledger.balance(data_set)]
    for balance in balances:
        print(
            f"{balance.data_set}: epsilon {balance.spent:.6g} of {balance.epsilon:g} spent at delta {balance.delta:g}, "
            f"for {balance.unit} under {balance.adjacency} adjacency"
        )
        for entry in balance.entries:
            event = entry.event
            price = f"mu = {event.mu:.6g}" if event.mu is not None else f"({event.epsilon:g}, {event.delta:g})"
            print(f"  {entry.at}  {price:<18} {f'{entry.run}: ' if entry.run else ''}{event.what}")
    return 0


@app.command
def budget(
    file: Path,
    data_set: str,
    *,
    epsilon: float,
    delta: float,
    adjacency: Literal["zero-out", "replace"] = "zero-out",
) -> int:
    """Set the budget of a data set, once.

    Parameters
    ----------
    file
        The ledger; made if it is missing.
    data_set
        A name for the rows that the budget protects.
    epsilon
        What may be spent on them in all.
    delta
        Where epsilon is measured.
    adjacency
        What one neighbour differs in.
    """
    from streampca.privacy.budget import Budget
    from streampca.store.ledger import Ledger

    wanted = Budget(epsilon, delta, adjacency)
    with Ledger(file) as ledger:
        ledger.set_budget(data_set, wanted)
    print(f"{data_set}: epsilon {epsilon:g} at delta {delta:g}, for one row under {adjacency} adjacency")
    return 0
