"""Rebuilds a stream from its durable snapshot and log, and checks that both are whole and belong together."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from streampca.errors import HorizonReachedError, StoreCorruptError, StoreForkedError, WrongKeyError, reason
from streampca.release.release import Release
from streampca.store.config import check_label, load, stream_of
from streampca.store.database import Database
from streampca.store.keys import RunKey
from streampca.store.people import sealed_people
from streampca.store.records import damaged, decode, encode, entry_of
from streampca.store.witness import Point
from streampca.stream.blocks import Entry
from streampca.stream.engine import Engine
from streampca.stream.replay import replay, restore, restore_people
from streampca.stream.stream import Stream

logger = logging.getLogger("streampca.store")

#: Tolerance of bases and eigenvalues between machines and kernels, relative. Spans of `Tracking`, each computed from
#: the one before, accumulate rounding errors: up to 4e-13 over 60 000 rows.
TOLERANCE = 1e-11
#: Tolerance of the standard deviation of the noise, relative. Measured differences are 2e-15.
STD_TOLERANCE = 1e-12


def check_key(database: Database, key: RunKey) -> None:
    """Raise `WrongKeyError` unless the key is that of the run."""
    run = database.fact("run")
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
    # The digest covers the chain value, so that a twin with the same number of other rows is found, too.
    if rows > progress.rows:
        what = "this is an older copy, it was set back, or its last commits were damaged"
        raise forked(f"{database.path} is at row {progress.rows}, but {who} remembers the run at row {rows}: {what}")
    # The beginning has no digest, and is part of every history. Others are the ends of recent commits.
    if digest and database.first("SELECT 1 FROM points WHERE t = ? AND digest = ?", rows, digest) is None:
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


def rebuild(database: Database, key: RunKey, kind: type[Stream]) -> Stream:
    """Return the stream after the last durable row: the snapshot, then a replay of the entries since."""
    # `StoreCorruptError` if a record is damaged or missing, the run is of another version, or the replay yields other
    # chain values or releases than the stored ones.
    # The name of the start is part of the key of the noise, hence sealed.
    start = key.open("start", 0, database.fact("start"))
    stream = stream_of(load(database.fact("config")), key, start, kind)
    engine, progress, path, t = stream.engine, database.progress, database.path, None
    check_label(database.get("label"), engine, path)

    def entries() -> Iterator[Entry]:
        last = progress.folded
        for number, sealed in database.rows("log", last, progress.records):
            entry = entry_of(key.open("entry", number, sealed))
            # Records are consecutive. A gap would replay later rows with the noise of earlier ones.
            if number != last + 1 or entry.first != engine.t + 1:
                break
            yield entry
            last = number
        if last != progress.records:
            raise damaged(f"{path}: record {last + 1} of the log, from row {engine.t + 1} on, is missing")

    try:
        if progress.folded:
            chunks = list(database.rows("snapshot"))
            if not chunks:
                raise damaged(f"{path}: the snapshot is missing")
            # The seal of a chunk names its place and the number of all.
            parts = (
                key.open(f"snapshot {at}/{len(chunks)}", progress.folded, sealed)
                for at, (_, sealed) in enumerate(chunks, 1)
            )
            state = decode(b"".join(parts))
            # The table of releases holds the latest one, so that the snapshot has its row number only.
            t = state["release"]
            release = None if t is None else next(database.releases(t - 1), None)
            if t is not None and (release is None or release.t != t):
                raise damaged(f"{path}: the release at row {t} is missing")
            restore(engine, state, release, copied=False)
        replay_checked(engine, entries(), database.releases(t or 0), path)
    except (KeyError, TypeError, ValueError, AttributeError, HorizonReachedError) as problem:
        raise damaged(f"{path}: the stored state does not fit the configuration ({reason(problem)})") from problem
    if engine.budgets is not None:
        restore_people(engine, *sealed_people(database, key))
    if stream.t != progress.rows:
        raise damaged(f"{path}: {stream.t} rows found, {progress.rows} expected")
    logger.info("resumed: run=%s rows=%d snapshot=%d", key.run, progress.rows, progress.snapshot)
    return stream


def replay_checked(engine: Engine, entries: Iterable[Entry], due: Iterator[Release], path: str) -> None:
    """Replay entries, and compare their releases with the stored ones that are due."""

    def differs(what: str) -> StoreCorruptError:
        advice = "Use the machine and versions that wrote it, or restore the newest copy"
        return StoreCorruptError(f"{path}: the replay {what}. {advice}")

    for entry in entries:
        releases = replay(engine, entry)
        if entry.link and engine.processor.chain.link != entry.link:
            raise differs(f"hides other values up to row {engine.t} than the run did")
        for release in releases:
            stored = next(due, None)
            if stored is None:
                raise damaged(f"{path}: the release at row {release.t} is missing")
            if not _are_same(release, stored):
                raise differs(f"gives another release at row {release.t} than the stored one")
    if (late := next(due, None)) is not None:
        raise differs(f"does not give the release at row {late.t} that is stored")


def _are_same(made: Release, stored: Release) -> bool:
    """Return whether two releases are the same, up to the rounding errors of other kernels."""
    one, other = ({**release.own_parameters(), "terms": None} for release in (made, stored))
    # The private Gram matrix must agree bit for bit. Basis and eigenvalues have the rounding errors of the kernels.
    stds = [values.pop("noise_std") for values in (one, other)]
    exact = [[values.pop(name) for name in ("t", "n_components", "packed_gram")] for values in (one, other)]
    if (stds[0] is None) != (stds[1] is None) or encode(exact[0]) != encode(exact[1]) or not alike(one, other):
        return False
    return math.isclose(stds[0] or 0.0, stds[1] or 0.0, rel_tol=STD_TOLERANCE)


def alike(one: Any, other: Any) -> bool:
    """Return whether nested plain values and arrays agree up to `TOLERANCE`, relative to the largest entry."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, (np.ndarray, float)) and isinstance(other, (np.ndarray, float)):
        first, second = np.asarray(one), np.asarray(other)
        if first.shape != second.shape or first.dtype != second.dtype:
            return False
        if (same := np.array_equal(first, second)) or first.dtype.kind != "f":
            return same
        largest = float(np.abs(second).max(initial=0.0))
        return np.allclose(first, second, rtol=0.0, atol=TOLERANCE * max(1.0, largest))
    return bool(one == other)
