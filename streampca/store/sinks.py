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

from streampca.errors import BadParameterError
from streampca.exclusive import Guard, exclusive
from streampca.release.release import Release
from streampca.store.database import Database
from streampca.store.witness import beside

#: Function of the id of the run and a release.
Sink = Callable[[str, Release], object]
_POLL = 0.2  # seconds between two reads of the store
_MOST = 1024  # releases per read
_START = b'{"run":"'  # beginning of a line


class JsonLines:
    """Sink that appends each release once to a file of JSON Lines, with its run.

    Parameters
    ----------
    path : str or path
        The file. An incomplete last line is removed.

    Raises
    ------
    BadParameterError
        If the last line is not a release.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.guard = Guard("sink")
        self.last: tuple[str, int] | None = None
        if not self.path.exists():
            return
        with self.path.open("rb+") as file:
            end = at = file.seek(0, os.SEEK_END)
            tail = b""
            while at and tail.count(b"\n") < 2:  # the last whole line
                at = max(0, at - 2**16)
                file.seek(at)
                tail = file.read(end - at)
            whole = tail.rfind(b"\n") + 1
            line, broken = tail[:whole].rstrip(b"\n").rpartition(b"\n")[2], tail[whole:]
            try:
                if not broken.startswith(_START[: len(broken)]):
                    raise ValueError
                if line:
                    found = json.loads(line)
                    self.last = str(found["run"]), int(found["t"])
            except (ValueError, KeyError, TypeError) as problem:
                raise BadParameterError(f"{self.path} is not a file of this sink. Name another file") from problem
            file.truncate(at + whole)

    @exclusive
    def __call__(self, run: str, release: Release) -> None:
        """Append a release, unless the file holds it."""
        # A delivery within another one, from a signal handler, may be ahead.
        if self.last is not None and self.last[0] == run and release.t <= self.last[1]:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f'{{"run":"{run}",{release.to_json()[1:]}\n')
        self.last = run, release.t


def deliver(
    store: str | os.PathLike[str],
    sink: Sink,
    *,
    cursor: str | os.PathLike[str] | None = None,
    follow: bool = False,
) -> int:
    """Deliver the durable releases that a sink has not received yet.

    Parameters
    ----------
    store : str or path
        Path of the store, which a run may write to meanwhile.
    sink : callable
        Function of the id of the run and a release. An exception ends the delivery, and the release comes again.
    cursor : str or path, default=<store>.sent
        File that holds the last release delivered, written after each call. A `JsonLines` needs none.
    follow : bool, default=False
        Continue with later releases until interrupted.

    Returns
    -------
    int
        Number of releases delivered.

    Raises
    ------
    BadParameterError
        If the sink holds releases of another run.
    """
    lines = sink if isinstance(sink, JsonLines) else None
    where = beside(Path(store), ".sent") if cursor is None else Path(cursor)
    last = None if lines is None else lines.last
    if lines is None and where.exists():
        try:
            run, t = json.loads(where.read_bytes())
            last = str(run), int(t)
        except (ValueError, TypeError) as problem:
            raise BadParameterError(f"{where} is not a cursor of a sink. Name another, or remove it") from problem
    count = 0
    while True:
        with closing(Database(os.fspath(store), write=False)) as database:
            run = str(database.run()["run"])
            if last is not None and last[0] != run:
                raise BadParameterError(f"the sink has releases of run {last[0]}, this is run {run}. Use another sink")
            new = list(islice(database.releases(last[1] if last else 0), _MOST))
        for release in new:
            sink(run, release)
            last, count = (run, release.t), count + 1
            if lines is None:
                part = beside(where, ".part")
                part.write_text(json.dumps(last))  # replaced as a whole: a crash leaves the old cursor or the new one
                part.replace(where)
        if not new:
            if not follow:
                return count
            time.sleep(_POLL)
