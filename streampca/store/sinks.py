"""Deliver the durable releases of a run from any process: at least once, in order.

The key of a release is (run, t): a receiver that stores it can drop a release that comes again after a crash. Delivery
needs no key of the store and reads only releases, which are publishable.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path

from streampca.errors import UsageError
from streampca.release.release import Release
from streampca.store.database import Database
from streampca.store.witness import beside

#: Function of the id of the run and a release.
Sink = Callable[[str, Release], object]
_POLL = 0.2  # seconds between two reads of the store
_MOST = 1024  # releases per read


def deliver(
    store: str | os.PathLike[str], sink: Sink, *, cursor: str | os.PathLike[str] | None = None, follow: bool = False
) -> int:
    """Deliver the durable releases that a sink has not received yet.

    Parameters
    ----------
    store : str or path
        Path of the store, which a run may write to meanwhile.
    sink : callable
        Function of the id of the run and a release. An exception ends the delivery, and the release comes again.
    cursor : str or path, default=<store>.sent
        File that holds the last release delivered, written after each call.
    follow : bool, default=False
        Continue with later releases until interrupted.

    Returns
    -------
    int
        Number of releases delivered.

    Raises
    ------
    UsageError
        If the cursor is of another run.
    """
    where = beside(Path(store), ".sent") if cursor is None else Path(cursor)
    last, count = None, 0
    if where.exists():
        try:
            run, t = json.loads(where.read_bytes())
            last = str(run), int(t)
        except (ValueError, TypeError) as problem:
            raise UsageError(f"{where} is not a cursor of a sink. Name another, or remove it") from problem
    while True:
        with closing(Database(os.fspath(store), write=False)) as database:
            run = str(database.fact("run")["run"])
            if last is not None and last[0] != run:
                raise UsageError(f"the sink has releases of run {last[0]}, this is run {run}. Use another sink")
            # In parts, so that memory stays bounded, and each from a view of its own.
            new = list(islice(database.releases(last[1] if last else 0), _MOST))
        for release in new:
            # Before the cursor: a crash in between delivers the release again, and skips none.
            sink(run, release)
            last, count = (run, release.t), count + 1
            part = beside(where, ".part")
            part.write_text(json.dumps(last))  # replaced as a whole: a crash leaves the old cursor or the new one
            part.replace(where)
        if not new:
            if not follow:
                return count
            time.sleep(_POLL)
