"""Ways to feed rows to what is audited: a stream, a stream of users, a mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import streampca as sp
from streampca.auditing.instrument import Row
from streampca.errors import StreamPCAError
from streampca.mechanisms.base import Mechanism
from streampca.release.release import Release
from streampca.store import records
from streampca.stream.replay import restore
from streampca.stream.replay import state as saved_state


def names_of(rows: Sequence[Row]) -> list[str]:
    """Names of features, one for each entry of a row."""
    return [f"x{i}" for i in range(len(next(row for row in rows[::-1] if not callable(row))))]


def feed_stream(subject: Any, rows: list[Row], how: str, **options: Any) -> list[Any]:
    """Feed a stream, or a stream of users, the first of whom has the first rows, one more than may count.

    Parameters
    ----------
    subject : an algorithm.
    rows : a row that is chosen when it is due is pushed.
    how : "push", in "chunks" of 5, at once ("many"), so and then a row beyond its horizon ("past"), or "resumed" in
        the middle from a snapshot.
    options : of the stream.
    """
    options |= {"features": names_of(rows), "regret": None}
    cap = getattr(subject, "max_rows_per_user", None)
    entry: Any = sp.Stream(subject, **options) if cap is None else sp.UserStream(subject, **options)
    whose = ["she" if i <= (cap or 0) else f"user {i}" for i in range(len(rows))]
    stream, out, at, middle = getattr(entry, "stream", entry), list[Any](), 0, len(rows) // 2
    size = {"push": 1, "chunks": 5, "resumed": middle}.get(how, len(rows))
    while at < len(rows):
        late = (i for i in range(at, len(rows)) if callable(rows[i]))
        stop = min(at + size, max(next(late, len(rows)), at + 1))
        if how == "resumed" and at < middle:
            stop = min(stop, middle)
        try:
            if how == "push" or callable(rows[at]):
                row = rows[at](stream) if callable(rows[at]) else rows[at]
                out += released(entry.push(row) if cap is None else entry.push(row, user=whose[at]))
            else:
                block = np.array(rows[at:stop])
                steps = entry.push_many(block) if cap is None else entry.push_many(block, users=whose[at:stop])
                out += steps.releases
        except StreamPCAError as problem:
            out.append(f"row {at + 1}: {type(problem).__name__}: {problem}")
        at = stop
        if how == "resumed" and at == middle:
            entry = stream = resumed(stream, options)
    last = entry.finish()
    if how == "past":
        try:
            stream.push(rows[-1])
        except StreamPCAError as problem:
            out.append(f"{type(problem).__name__}: {problem}")
    return [*out, entry, *([] if last is None else [last])]


def resumed(stream: sp.Stream, options: dict[str, Any]) -> sp.Stream:
    """Return the stream that continues from the snapshot of a stream, as a store writes and reads it."""
    other = sp.Stream(stream.algorithm, key=stream.engine.randomness.key, **options)
    state, release = records.decode(records.encode(saved_state(stream.engine))), stream.release
    if release is not None:
        ((_, data),) = records.release_records([release])
        (release,) = records.releases_of(data)
    restore(other.engine, state, release, copied=False)
    return other


def released(*steps: Any) -> list[Release]:
    """The releases of steps that have one."""
    return [step.release for step in steps if step.release is not None]


def feed_mechanism(subject: Mechanism, rows: list[Row], how: str) -> list[Any]:
    """Release a data set once."""
    return [subject.release(np.array(rows))]
