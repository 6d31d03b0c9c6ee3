"""The state of a stream as plain values: saved, restored, and replayed from a commit log.

A copy, a pickle, and the child of a fork continue as another run, with noise of its own (`Engine.mark_copied`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streampca.errors import BadParameterError
from streampca.exclusive import exclusive
from streampca.release.release import Release
from streampca.rows.admission import NO_COUNTS, Counts
from streampca.stream.blocks import Entry
from streampca.stream.engine import Engine, State, regenerated, running


@exclusive
def state(engine: Engine) -> dict[str, Any]:
    """The state as plain values and arrays. As secret as the rows, and the key with it.

    Single rows that wait are absorbed first. Arrays are not to be written to.
    """
    engine.all_absorbed()
    return committed_state(engine)


def committed_state(engine: Engine) -> dict[str, Any]:
    """`state` without the single rows that wait, and without a lock; ``entries`` counts those of the log."""
    now = engine.now
    sums, private = now.regret, now.private
    return {
        "t": now.t,
        "entries": now.entries,
        "features": None if now.admission.features is None else list(now.admission.features),
        "n_features": now.admission.n_features,
        "found": None if now.admission.found is None else list(now.admission.found),
        "start": None if now.processor is None else now.processor.source.start.hex(),
        "processor": None if now.processor is None else now.processor.snapshot(),
        "counts": now.counts.plain(),
        "release": None if now.release is None else now.release.t,
        "regret": None if sums is None else sums.snapshot(),
        "private_regret": None if private is None else private.snapshot(),
    }


@exclusive
def restore(engine: Engine, state: dict[str, Any], release: Release | None, *, copied: bool = True) -> None:
    """Set a stream that has seen no row to the `state` of one of the same parameters and key.

    Parameters
    ----------
    engine : of a stream that has seen no row.
    state : from `state`.
    release : its latest release.
    copied : continue as another run: with noise of its own, which a ledger pays for. False only
        where it is known that nothing else continues from this state.

    Raises
    ------
    BadParameterError
        If this stream has seen a row, or the state is of other parameters.
    """
    if engine.now.processor is not None or engine.taken:
        raise BadParameterError("a state can be restored only into a stream that has seen no row")
    names = state["features"]
    admission = engine.now.admission.fixed(None if names is None else tuple(names), state["n_features"])
    if state["processor"] is None:
        engine.now = engine.now._replace(admission=admission)
        return
    if state["found"] is not None:
        admission = replace(admission, found=tuple(state["found"]))
    processor = engine.new_processor(admission, bytes.fromhex(state["start"]), state["processor"])
    log, private = engine.regret_log, engine.private_log
    sums = None if log is None else log.resume(state["regret"], processor)
    records = None if private is None else private.resume(state["private_regret"], release)
    before = State.first(admission)._replace(t=int(state["t"]), counts=Counts.of_plain(state["counts"]))
    engine.now = engine.started(before, processor, release, sums, records)
    if copied:
        engine.mark_copied()


@exclusive
def replay(engine: Engine, entry: Entry) -> list[Release]:
    """Absorb an entry of a commit log again, with the fresh bytes of its noise; return its releases.

    An entry of rows may hold those of several releases.
    """
    now = engine.now
    if now.processor is None:
        now = engine.commit(now, engine.first(now.admission, engine.new_processor(now.admission)))
    if entry.block is not None:
        engine.absorb_block(now, entry.block, entry.fresh)
    elif entry.kind == "rows":
        return _replay_rows(engine, entry)
    else:
        outlet, processor = running(now).outlet(entry.fresh), running(now)
        finish = entry.kind == "finish"
        after, made = processor.finish(outlet) if finish else (regenerated(processor, outlet), None)
        engine.commit(now, engine.following(now, 0, NO_COUNTS, after, made, now.regret), entry, outlet)
    release = engine.now.release
    return [] if release is None or release is now.release else [release]


def _replay_rows(engine: Engine, entry: Entry) -> list[Release]:
    rows, used, counts, place = entry.rows, 0, entry.counts, 0
    releases = []
    while rows is not None and place < len(rows):
        now = engine.now
        count = min(now.due, len(rows) - place)
        following, release, _ = engine.absorb(now, rows[place : place + count], counts, entry.fresh[used:])
        if release is not None:
            releases.append(release)
        used += running(following).chain.n - running(now).chain.n
        place, counts = place + count, NO_COUNTS
    return releases


@exclusive
def saved(engine: Engine) -> dict[str, Any]:
    """Everything that a copy needs. As secret as the rows."""
    if engine.log is not None:
        raise BadParameterError(
            "a durable stream cannot be copied or pickled: it can go on from its store only; "
            "open it elsewhere with Stream.resume(store)"
        )
    now = engine.all_absorbed()
    return {
        "parts": (
            engine.algorithm, engine.randomness, now.admission,
            engine.regret_log, engine.private_log, engine.account,
        ),
        "state": committed_state(engine),
        "release": now.release,
    }  # fmt: skip


def copy_of(saved: dict[str, Any]) -> Engine:
    """The engine of a copy, from what `saved` returned."""
    engine = Engine(*saved["parts"])
    restore(engine, saved["state"], saved["release"])
    return engine
