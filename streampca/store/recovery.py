"""Rebuilds a stream from its durable snapshot and log, and checks that both are whole and belong together."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from streampca.errors import HorizonReachedError, StoreCorruptError, StoreForkedError, WrongKeyError, reason
from streampca.release.release import Release
from streampca.store.config import check_label, load, stream_of
from streampca.store.database import Database, plain_errors
from streampca.store.keys import RunKey, Seal
from streampca.store.log import chunk_name
from streampca.store.records import damaged, decode, entry_of
from streampca.store.witness import Point
from streampca.stream.blocks import Entry
from streampca.stream.engine import Engine
from streampca.stream.replay import replay, restore
from streampca.stream.stream import Stream

logger = logging.getLogger("streampca.store")

#: Tolerance of bases and eigenvalues between machines and kernels, relative. Spans of `Tracking`, each computed from
#: the one before, accumulate rounding errors: up to 4e-13 over 60 000 rows.
TOLERANCE = 1e-11
#: Tolerance of the standard deviation of the noise, relative. Measured differences are 2e-15.
STD_TOLERANCE = 1e-12


def check_key(database: Database, key: RunKey) -> None:
    """Raise `WrongKeyError` unless the key is that of the run."""
    run = database.run()
    if run["run"] != key.run or run["check"] != key.check():
        raise WrongKeyError(f"the key is not that of the run in {database.path}. Put the key file of this run back")


def check_lineage(database: Database, seen: Point | None, who: str) -> None:
    """Raise `StoreForkedError` unless the history of a database contains ``seen``, the latest point of ``who``."""
    progress = database.progress
    if seen is None:
        if progress.rows:
            raise forked(f"{who} remembers nothing of the run in {database.path}: another copy may have continued")
        return
    rows, digest = seen
    if rows > progress.rows:
        what = "this is an older copy, it was set back, or its last commits were damaged"
        raise forked(f"{database.path} is at row {progress.rows}, but {who} remembers the run at row {rows}: {what}")
    if digest and not database.has_point(rows, digest):
        raise forked(
            f"{database.path} and the run that {who} remembers continued with different rows after a common beginning, "
            "or what is remembered is an old copy"
        )


def forked(what: str) -> StoreForkedError:
    """Return the error that refuses a copy, with the price of continuing it."""
    return StoreForkedError(
        f"{what}. Resume the newest copy. To continue this one as a second run, pass moved=True (--moved): it draws "
        "noise of its own, both together cost sqrt(2) times mu, and a ledger pays for it again"
    )


def fresh_stream(database: Database, key: RunKey, kind: type[Stream]) -> Stream:
    """Return the stream of a run before its first row. Checks that it draws the same noise as the stored run."""
    start = Seal(key).open("start", 0, bytes.fromhex(database.fact("start")))
    stream = stream_of(load(database.fact("config")), key, start, kind)
    check_label(database.get("label"), stream.engine, database.path)
    return stream


def rebuild(database: Database, key: RunKey, kind: type[Stream]) -> Stream:
    """Return the stream after the last durable row: the snapshot, then a replay of the entries since.

    Raises `StoreCorruptError` if a record is damaged or missing, the run is of another version, or the replay yields
    other chain values or releases than the stored ones.
    """
    stream, progress, seal, path = fresh_stream(database, key, kind), database.progress, Seal(key), database.path
    engine, last = stream.engine, progress.folded
    try:
        if progress.folded:
            found = list(database.sealed("snapshot"))
            if not found or [row[:2] for row in found] != [(at + 1, len(found)) for at in range(len(found))]:
                raise damaged(f"{path}: a chunk of the snapshot is missing")
            parts = (seal.open(chunk_name(at, chunks), progress.folded, sealed) for at, chunks, sealed in found)
            state = decode(b"".join(parts))
            t = state["release"]
            release = None if t is None else database.release(t)
            if release is None and t is not None:
                raise damaged(f"{path}: the release at row {t} is missing")
            restore(engine, state, release, copied=False)
        with plain_errors(path):
            due = database.releases(engine.now.release.t if engine.now.release is not None else 0)
            for number, first, count, sealed in database.sealed("log"):
                entry = entry_of(first, count, seal.open("entry", number, sealed))
                # Records are consecutive. A gap would replay later rows with the noise of earlier ones.
                if number != last + 1 or first != engine.t + 1:
                    raise damaged(f"{path}: record {last + 1} of the log, from row {engine.t + 1} on, is missing")
                replay_checked(engine, entry, due, path)
                last = number
            if last != progress.records:
                raise damaged(f"{path}: the end of the log is missing")
            if (late := next(due, None)) is not None:
                raise _differs(path, late.t)
    except (KeyError, TypeError, ValueError, AttributeError, HorizonReachedError) as problem:
        raise damaged(f"{path}: the stored state does not fit the configuration ({reason(problem)})") from problem
    if stream.t != progress.rows:
        raise damaged(f"{path}: {stream.t} rows found, {progress.rows} expected")
    logger.info("resumed: run=%s rows=%d snapshot=%d", key.run, progress.rows, progress.snapshot)
    return stream


def replay_checked(engine: Engine, entry: Entry, due: Iterator[Release], path: str) -> int:
    """Replay an entry, compare its releases with the next stored ones, and return their number."""
    releases = replay(engine, entry)
    if entry.link and engine.processor.chain.link != entry.link:
        raise StoreCorruptError(
            f"{path}: the replay hides other values up to row {engine.t} than the run did. "
            "Use the machine and versions that wrote it, or restore the newest copy"
        )
    for release in releases:
        stored = next(due, None)
        if stored is None:
            raise damaged(f"{path}: the release at row {release.t} is missing")
        _compare(release, stored, path)
    return len(releases)


def _compare(made: Release, stored: Release, path: str) -> None:
    """Raise `StoreCorruptError` unless two releases are the same."""
    exact, loose, stds = [], [], []
    for release in (made, stored):
        # The private Gram matrix must agree bit for bit. Values computed from it, basis and eigenvalues, have the
        # rounding errors of the kernels.
        std = release.own_noise_std
        exact.append((release.t, release.n_components, release.packed, std is None))
        computed = release.own_basis, release.own_span, release.own_smoothed, release.own_eigenvalues
        loose.append((*computed, release.details))
        stds.append(std or 0.0)
    same = alike(exact[0], exact[1], 0.0) and alike(loose[0], loose[1], TOLERANCE)
    if not (same and math.isclose(*stds, rel_tol=STD_TOLERANCE)):
        raise _differs(path, made.t)


def _differs(path: str, t: int) -> StoreCorruptError:
    return StoreCorruptError(
        f"{path}: the replay gives another release at row {t} than the stored one. "
        "Use the machine and versions that wrote it, or restore the newest copy"
    )


def alike(one: Any, other: Any, tolerance: float) -> bool:
    """Return whether nested plain values and arrays agree up to a tolerance, relative to the largest entry."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name], tolerance) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other, [tolerance] * len(one)))
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        if tolerance == 0.0 or one.dtype.kind != "f":
            return np.array_equal(one, other)
        return np.allclose(one, other, rtol=0.0, atol=tolerance * max(1.0, float(np.abs(other).max(initial=0.0))))
    if isinstance(one, float) and isinstance(other, float):
        return bool(one == other or abs(one - other) <= tolerance * max(1.0, abs(other)))
    return bool(one == other)
