"""Commands on durable runs and ledgers: ``status``, ``verify``, ``export``, ``backup`` and ``ledger``."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

from streampca.cli.files import ReleaseFile
from streampca.cli.inputs import passphrase_of
from streampca.cli.messages import console
from streampca.cli.options import NEIGHBORS, Force, HyphenPath, LedgerPath, StoreOptions, StorePath, about
from streampca.privacy.budget import DELTA, Adjacency, Budget
from streampca.privacy.guarantee import Guarantee
from streampca.release.terms import Terms
from streampca.store import reading
from streampca.store.config import load
from streampca.store.database import Database
from streampca.store.ledger import Ledger


def status(store: StorePath, /, *, opening: StoreOptions = StoreOptions()) -> int:  # noqa: B008
    """Show the state of a durable run.

    Needs no key, changes nothing, and may be used while the run proceeds.
    """
    facts = reading.status(store)
    facts["guarantee"] = str(Guarantee.from_dict(facts["guarantee"]))
    shown = console(sys.stdout)
    for name, value in facts.items():
        shown.print(f"{name + ':':<18} {value}")
    shown.print(f"{'witness:':<18} {reading.check_witness(store, opening.settings().store_witness)}")
    return 0


def verify(store: StorePath, /, *, opening: StoreOptions = StoreOptions()) -> int:  # noqa: B008
    """Check a durable run: every checksum, a replay, and that no commit is missing.

    Replays the rows since the last snapshot, which must give the stored releases.
    Changes nothing.
    """
    settings = opening.settings()
    rows = reading.verify(store, passphrase_of(settings))
    print(f"{store}: every page and every release is whole")
    print(f"{rows} rows since the snapshot, played again: the same releases")
    print(reading.check_witness(store, settings.store_witness))
    return 0


def export(
    store: StorePath,
    /,
    *,
    out: Annotated[HyphenPath, about("File of the releases, or - for standard output.")] = Path("releases.jsonl"),
    gram: Annotated[bool, about("Write the private Gram matrix with each release, not only its subspace.")] = True,
    keep_every: Annotated[int, about("Write only every n-th release.")] = 1,
    force: Force = False,
) -> int:
    """Write the publishable releases of a durable run.

    Writes nothing else. Needs no key.
    """
    reading.check_witness(store)
    with (
        closing(Database(str(store), write=False)) as database,
        closing(ReleaseFile(out, gram=gram, keep_every=keep_every, force=force)) as file,
    ):
        guarantee = Guarantee.from_dict(database.fact("run")["guarantee"])
        database.db.execute("BEGIN")  # one snapshot of a run that may proceed
        parameters = reading.published_parameters(database)
        for release in database.releases():
            if not file.count:
                file.header(release.terms, parameters)
            file.add([release])
        if not file.count:
            features = load(database.fact("config"))["features"]  # names, or their number
            file.header(Terms(guarantee, features=None if isinstance(features, int) else features), parameters)
    print(f"{file.written} releases", *([] if str(out) == "-" else ["in", out]), file=sys.stderr)
    return 0


def backup(store: StorePath, to: Annotated[Path, about("The copy. Curator only.")], /) -> int:
    """Copy a durable run, also while it proceeds.

    The key is not copied: keep a copy of it elsewhere.

    Resume a copy only if the original is lost, with --moved: it continues as
    another run with noise of its own. If the original released more than the copy
    holds, both together cost sqrt(2) times mu.
    """
    rows = reading.backup(store, to)
    print(f"{to}: {rows} rows. Curator only; its key file is not in it.")
    return 0


def show_budgets(file: LedgerPath, data_set: Annotated[str | None, about("One data set only.")] = None) -> int:
    """Show budgets and debits."""
    with Ledger(file, create=False) as opened:
        balances = opened.balances() if data_set is None else [opened.balance(data_set)]
    for balance in balances:
        print(balance)
        for entry in balance.entries:
            event = entry.event
            price = f"mu = {event.mu:.6g}" if event.mu is not None else f"({event.epsilon:g}, {event.delta:g})"
            print(f"  {entry.at}  {price:<18} {f'{entry.run}: ' if entry.run else ''}{event.what}")
    return 0


def set_budget(
    file: LedgerPath,
    data_set: Annotated[str, about("A name for the rows that the budget protects.")],
    *,
    epsilon: Annotated[float, about("Total that may be spent on them.")],
    delta: Annotated[float, about("Where epsilon is measured.")] = DELTA,
    adjacency: Annotated[Adjacency, about(NEIGHBORS)] = "zero-out",
    unit: Annotated[str, about("What it protects, in the words of a card, such as one person.")] = "one row",
) -> int:
    """Set the budget of a data set, once.

    Creates the ledger if it is missing.
    """
    # Checked before the file is created. Once set, a budget cannot be raised: what it paid for was published.
    budget = Budget(epsilon, delta, adjacency)
    with Ledger(file) as opened:
        opened.set_budget(data_set, budget, unit)
    print(f"{data_set}: epsilon {epsilon:g} at delta {delta:g}, for {unit} under {adjacency} adjacency")
    return 0
