"""``streampca resume``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter


def resume(
    store: Path,
    file: Path,
    /,
    *,
    columns: str | None = None,
    continues: Annotated[bool, Parameter(negative="")] = False,
    moved: Annotated[bool, Parameter(negative="")] = False,
    passphrase_file: Path | None = None,
    witness: Path | None = None,
    commit_every: str | None = None,
    live: bool | None = None,
) -> int:
    """Continue a durable run where it was.

    Rows that are durable already are passed over; no budget is spent anew.
    Read the releases with streampca export.

    Parameters
    ----------
    store
        Database of the run.
    file
        The rows, from the first on.
    columns
        Names of the columns to use. Those of the run, if left out.
    continues
        The file begins with the row that comes next, instead of the first.
    moved
        Go on from a copy, or from a database that was set back, although another copy may have gone on. It is a
        second run with noise of its own: both together cost sqrt(2) times mu, and the ledger pays again.
    passphrase_file
        File with the passphrase of the key.
    witness
        Where it is noted how far the run has come, if that is not beside the database.
    commit_every
        Time or rows between commits, such as 50ms or 1000; 200ms if left out.
    live
        Live view in the terminal.
    """
    from streampca.cli.durable import Rest, open_store
    from streampca.cli.live import is_live, view
    from streampca.cli.run import open_rows
    from streampca.cli.session import Session
    from streampca.errors import BadParameter
    from streampca.stream import Stream

    with open_store(store, passphrase_file, witness=witness, commit_every=commit_every) as opened:
        stream = Stream.resume(opened, moved=moved)
        before = stream.t
        print(f"Resumed after {before} rows; next is row {before + 1}.", file=sys.stderr)
        if columns is None and stream.features is not None:
            columns = ",".join(stream.features)
        source = open_rows(file, columns, None, stream.admission.on_bad_row)
        if stream.features is not None and tuple(source.features) != stream.features:
            raise BadParameter(f"the columns of {file} are not those of the run, {', '.join(stream.features)}")
        session = Session(
            stream,
            source if continues else Rest(source, before, str(file)),
            releases=None,
            regret=None,
            view=view(live, f"streampca resume {store.name}", stream.guarantee, stream.algorithm.n_components, None),
            followed=is_live(live),
            store=opened,
        )
        ending = session.run()
        print(f"{stream.t - before} rows more, {stream.t} in all; releases: streampca export {store}", file=sys.stderr)
        if ending.problem is not None:
            raise ending.problem
    return 128 + ending.signal if ending.signal else 0
