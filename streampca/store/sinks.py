"""Hand the releases of a durable run on, as they become durable, from any process: at least once, in order.

The key of a release is (run, t): a receiver that keeps it drops what comes again after a crash. Needs no key of the
store and reads nothing but releases; what is handed on is publishable.
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

#: Takes the id of the run and a release.
Sink = Callable[[str, Release], object]
_POLL = 0.2  # seconds between two looks at the store
_MOST = 1024  # releases that are read at a time
_START = b'{"run":"'  # of a line


class JsonLines:
    """A sink: a file of one release a line, with its run. It holds each release once.

    Parameters
    ----------
    path : the file. It is continued; a line that broke off is cut.

    Raises
    ------
    BadParameterError
        If its last line is something else.
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
                raise BadParameterError(f"{self.path} is no file of this sink; name another") from problem
            file.truncate(at + whole)

    @exclusive
    def __call__(self, run: str, release: Release) -> None:
        """Append a release, unless the file holds it: a delivery inside another one was ahead."""
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
    """Hand the durable releases of a run to a sink that it has not got yet.

    Parameters
    ----------
    store : path of the store; the run may go on meanwhile.
    sink : called with the id of the run and each release. What it raises ends the delivery; the release comes again.
    cursor : file that keeps how far the sink has come, written after each call; `<store>.sent` if left out. A
        `JsonLines` keeps that itself.
    follow : go on as releases are made, until interrupted.

    Returns
    -------
    How many releases were handed on.

    Raises
    ------
    BadParameterError
        If the sink has got releases of another run.
    """
    lines = sink if isinstance(sink, JsonLines) else None
    where = beside(Path(store), ".sent") if cursor is None else Path(cursor)
    last = None if lines is None else lines.last
    if lines is None and where.exists():
        try:
            run, t = json.loads(where.read_bytes())
            last = str(run), int(t)
        except (ValueError, TypeError) as problem:
            raise BadParameterError(f"{where} is no cursor of a sink; name another, or remove it") from problem
    count = 0
    while True:
        with closing(Database(os.fspath(store), write=False)) as database:
            run = str(database.run()["run"])
            if last is not None and last[0] != run:
                raise BadParameterError(f"the sink has releases of run {last[0]}, this is run {run}; use another")
            found = list(islice(database.releases(last[1] if last else 0), _MOST))
        for release in found:
            sink(run, release)
            last, count = (run, release.t), count + 1
            if lines is None:
                part = beside(where, ".part")
                part.write_text(json.dumps(last))
                part.replace(where)
        if not found:
            if not follow:
                return count
            time.sleep(_POLL)
