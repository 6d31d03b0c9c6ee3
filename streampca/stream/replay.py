"""State of a stream as plain values: saved, restored, and replayed from a commit log.

A copy, a pickle, and the child of a fork continue as another run, with noise of its own (`Engine.mark_copied`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streampca.errors import BadParameterError, UsageError
from streampca.exclusive import exclusive
from streampca.release.release import Release
from streampca.rows.admission import NO_COUNTS
from streampca.rows.people import People
from streampca.stream import periods
from streampca.stream.blocks import Entry
from streampca.stream.engine import Engine
from streampca.stream.step import running


def committed_state(engine: Engine) -> dict[str, Any]:
    """Return the state without waiting rows as plain values and arrays, not to be written to. As secret as the rows."""
    now = engine.now
    admission, processor, sums, private = now.admission, now.processor, now.regret, now.private
    return {
        "t": now.t,
        "entries": now.entries,
        "features": None if admission.features is None else list(admission.features),
        "n_features": admission.n_features,
        "found": None if admission.found is None else list(admission.found),
        "start": None if processor is None else processor.source.start.hex(),
        "processor": None if processor is None else processor.snapshot(),
        "counts": now.counts.plain(),
        "release": None if now.release is None else now.release.t,
        "regret": None if sums is None else sums.snapshot(),
        "private_regret": None if private is None else private.snapshot(),
        "period": None if now.period is None else now.period.snapshot(),
    }


@exclusive
def restore(engine: Engine, state: dict[str, Any], release: Release | None, *, copied: bool = True) -> None:
    """Set a stream without rows to the `committed_state` of one with the same parameters and key."""
    # ``release`` is the latest one of that stream. If ``copied``, continue as another run, with noise of its own, which
    # a ledger pays for. It is False only if nothing else continues from this state.
    if engine.now.processor is not None or engine.taken:
        raise BadParameterError("state", ..., "a stream without rows to restore into")
    names = state["features"]
    admission = engine.now.admission.fixed(None if names is None else tuple(names), state["n_features"])
    if state["processor"] is None:
        engine.now = engine.now._replace(admission=admission)
        return
    if state["found"] is not None:
        # Found bounds were drawn with noise; drawing them again would give others.
        admission = replace(admission, found=tuple(state["found"]))
    # The name of the start is part of the noise key, so that the same noise is drawn again.
    processor = engine.new_processor(admission, bytes.fromhex(state["start"]), state["processor"])
    engine.now = periods.restored(engine.started(admission, processor, state, release), state["period"])
    if copied:
        engine.mark_copied()


@exclusive
def restore_people(engine: Engine, states: Mapping[bytes, bytes], people: People) -> None:
    """Set the people of a stream whose rows are restored, by their states."""
    if engine.budgets is not None:
        engine.budgets.enter(people._replace(changes=states))
        engine.now = engine.now._replace(people=people)


@exclusive
def replay(engine: Engine, entry: Entry) -> list[Release]:
    """Absorb an entry of a commit log with the fresh bytes of its noise; return its releases."""
    now = engine.now
    if now.processor is None:
        now = engine.commit(now, engine.started(now.admission, engine.new_processor(now.admission)))
    if entry.kind == "rows" and entry.block is None:
        # An entry of rows may hold several releases. Each uses the fresh bytes of its own noise.
        rows, counts, used, place = entry.rows, entry.counts, 0, 0
        releases = []
        # Cut the rows where the first run did, so that each draw of noise gets its own bytes.
        while rows is not None and place < len(rows):
            count = min(now.due, len(rows) - place)
            following, release, _ = engine.absorb(now, rows[place : place + count], counts, entry.fresh[used:])
            if release is not None:
                releases.append(release)
            used += running(following).chain.n - running(now).chain.n
            place, counts, now = place + count, NO_COUNTS, following
        return releases
    if entry.block is not None:
        engine.absorb_block(now, entry.block, entry.fresh)
    elif entry.kind.startswith((periods.OPEN, periods.CLOSE)):
        periods.replayed(engine, now, entry)
    else:
        engine.absorb_event(now, entry.kind, entry.fresh)
    latest = engine.now.release
    return [] if latest is None or latest is now.release else [latest]


@exclusive
def saved(engine: Engine) -> dict[str, Any]:
    """Absorb waiting rows; return all data of a copy. As secret as the rows, and the key with it."""
    if engine.log is not None:
        raise UsageError("a durable stream cannot be copied or pickled. Open its store with Stream.resume(store)")
    # Absorb first: the buffer of waiting rows belongs to the original.
    now = engine.all_absorbed()
    parts = (
        engine.algorithm, engine.randomness, now.admission, engine.regret_log, engine.private_log, engine.account,
        engine.calendar,
    )  # fmt: skip
    people = None
    if engine.budgets is not None:
        engine.budgets.enter(now.people)
        people = engine.budgets.states(), now.people._replace(changes={})
    return {"parts": parts, "state": committed_state(engine), "release": now.release, "people": people}
