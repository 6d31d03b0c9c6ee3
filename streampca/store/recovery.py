"""From what is durable back to a running stream, and the checks on the way."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np

from streampca.blocks import BlockGram
from streampca.errors import BadParameter, StoreCorrupt, StoreForked, WrongKey
from streampca.linalg.lattice import STEP
from streampca.release import Release
from streampca.store import config
from streampca.store.checkpoint import restore, stream_of
from streampca.store.codec import decode
from streampca.store.database import Database
from streampca.store.files import told_plainly
from streampca.store.fold import label
from streampca.store.keys import RunKey, Seal
from streampca.store.records import release_of
from streampca.store.witness import Witness
from streampca.stream import Stream

log = logging.getLogger("streampca.store")


def check_key(database: Database, key: RunKey) -> None:
    """Raise `WrongKey` unless the key is that of the run."""
    run = database.run()
    if run["run"] != key.run or run["check"] != key.check():
        raise WrongKey(f"the key is not that of the run in {database.path}; put the key file of this run back")


def check_lineage(database: Database, witness: Witness, *, moved: bool) -> None:
    """Raise `StoreForked` if another copy of the run may have gone on.

    What is recognised, and what is not, is told in `streampca.store.store`.
    """
    run, progress = database.run()["run"], database.progress
    place = place_of(database.path)
    if not moved and place is not None and database.get("place") != place:
        raise StoreForked(
            f"{database.path} was copied, moved or restored, and another copy may have gone on; resume the original, "
            "or pass moved=True (--moved) if no other copy was resumed: two would put different rows under one noise"
        )
    seen = witness.recall(run)
    if seen is None:
        if progress.rows and not moved and place is not None:
            raise StoreForked(
                f"{database.path}: its witness remembers nothing; put the witness file back, or pass moved=True "
                "(--moved) if no other copy has been resumed"
            )
        return
    rows, digest = seen
    if rows > progress.rows:
        raise StoreForked(
            f"{database.path} was set back to row {progress.rows}, but releases up to row {rows} were made from it; "
            "put the newest copy back, or begin a new run, which spends its budget anew"
        )
    with told_plainly(database.path):
        known = database.db.execute("SELECT digest FROM points WHERE t = ?", (rows,)).fetchone()
    if rows and (known is None or known[0] != digest):
        raise StoreForked(
            f"{database.path} and a twin of it went on with different rows after a common beginning; "
            "resume the twin, or begin a new run, which spends its budget anew"
        )


def place_of(path: str) -> int | None:
    """What changes when a file is copied and stays when it is written to; None in memory."""
    return None if path == ":memory:" else os.stat(path).st_ino


def rebuild(database: Database, key: RunKey, kind: type[Stream]) -> Stream:
    """The stream as it stood after the last durable row: snapshot, then the rows since, played again.

    Raises
    ------
    StoreCorrupt
        If something is damaged or missing, or the replay gives other releases
        than the stored ones.
    """
    text = database.get("config")
    if not isinstance(text, str):
        raise StoreCorrupt(f"{database.path} holds no configuration; restore the newest copy")
    stream = stream_of(config.load(text), key, kind)
    progress, seal = database.progress, Seal(key)
    if not progress.rows:
        return stream
    if progress.snapshot:
        state = decode(_snapshot(database, seal, progress.snapshot))
        latest = None if state["release"] is None else _stored(database, state["release"], stream)
        restore(stream, state, latest)
    else:
        stream._start()
    t = _replay(database, seal, stream, progress.snapshot)
    if t != progress.rows or stream._processor.t != t:
        raise StoreCorrupt(f"{database.path}: rows up to {progress.rows} are due, {t} found; restore the newest copy")
    log.info("resumed: run=%s rows=%d snapshot=%d", key.run, progress.rows, progress.snapshot)
    return stream


def _snapshot(database: Database, seal: Seal, t: int) -> bytes:
    found = database.snapshot(t)
    if not found or [(piece, pieces) for piece, pieces, _ in found] != [(i + 1, len(found)) for i in range(len(found))]:
        raise StoreCorrupt(f"{database.path}: the snapshot of row {t} is missing; restore the newest copy")
    return b"".join(seal.open(label(piece, pieces), t, sealed) for piece, pieces, sealed in found)


def _replay(database: Database, seal: Seal, stream: Stream, t: int) -> int:
    with told_plainly(database.path):  # rows up to t may be left over from before the snapshot
        kept = database.db.execute("SELECT first, count, sealed FROM rows WHERE first > ? ORDER BY first", (t,))
        due = database.releases(t)
        for first, count, sealed in kept:
            record = decode(seal.open("rows", first, sealed))
            rows = record.get("rows")
            if first != t + 1 or (rows is not None and rows.shape[0] != count):
                raise StoreCorrupt(f"{database.path}: rows {t + 1} to {first - 1} are missing; restore the newest copy")
            if rows is None:
                step = stream._absorb_block(BlockGram(record["high"], record["low"], count, record["bad"]))
                releases = [] if step.release is None else [step.release]
            else:
                releases = list(stream._absorb(rows * STEP, record["bad"])[1].values())
            for release in releases:
                # What `Stream.finish` released is not made again.
                fields = next((one for one in due if one["t"] >= release.t), None)
                if fields is None or fields["t"] != release.t:
                    raise _missing(database, release.t)
                compare(release, release_of(fields, stream.features), database.path)
            t += count
    return t


def _stored(database: Database, t: int, stream: Stream) -> Release:
    fields = database.release(t)
    if fields is None:
        raise _missing(database, t)
    return release_of(fields, stream.features)


def _missing(database: Database, t: int) -> StoreCorrupt:
    return StoreCorrupt(f"{database.path}: the release at row {t} is missing; restore the newest copy")


def compare(made: Release, stored: Release, path: str) -> None:
    """Raise `StoreCorrupt` unless two releases are the same, bit for bit."""
    for name in ("_packed", "_basis", "_span", "_values"):
        one, other = getattr(made, name), getattr(stored, name)
        if (one is None) != (other is None) or (one is not None and not np.array_equal(one, other)):
            break
    else:
        if (made.t, made.details, made._noise_std) == (stored.t, stored.details, stored._noise_std):
            return
    raise StoreCorrupt(
        f"{path}: the replay gives another release at row {made.t} than the stored one; "
        "use the machine and versions that wrote it, or restore the newest copy"
    )


def beside(path: Path, ending: str) -> Path:
    """The file of the same name with an ending more."""
    return path.with_name(path.name + ending)


def need_run(path: Path) -> None:
    """Raise `BadParameter` unless there is a file."""
    if not path.exists():
        raise BadParameter(f"{path}: there is no such store; check the path")
