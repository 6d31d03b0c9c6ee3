"""Ways to feed rows to the subject of an audit: a stream, a stream of users, a mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import streampca as sp
from streampca.auditing.runs import Row
from streampca.errors import StreamPCAError
from streampca.mechanisms.base import Mechanism
from streampca.release.release import Release
from streampca.store import records
from streampca.stream.replay import restore
from streampca.stream.replay import state as saved_state


def names_of(rows: Sequence[Row]) -> list[str]:
    """Return names of features, one for each entry of a row."""
    return [f"x{i}" for i in range(len(next(row for row in rows[::-1] if not callable(row))))]


def feed_stream(subject: Any, rows: list[Row], how: str, **options: Any) -> list[Any]:
    """Feed a stream, or a stream of users, the first of whom has the first rows, one more than may count.

    ``how`` is "push", "chunks" of 5, "many" (one block), "past" (one block, then a row beyond the horizon), or
    "resumed" (from a snapshot in the middle, or after the rows that are named: "resumed 4 9"). A row that is a function
    is pushed singly.
    """
    options |= {"features": names_of(rows), "regret": None}
    cap = getattr(subject, "max_rows_per_user", None)
    entry: Any = sp.Stream(subject, **options) if cap is None else sp.UserStream(subject, **options)
    users = ["she" if i <= (cap or 0) else f"user {i}" for i in range(len(rows))]
    stream, out, at = getattr(entry, "stream", entry), list[Any](), 0
    how, *named = how.split()
    resumes = ([int(n) for n in named] or [len(rows) // 2]) if how == "resumed" else []
    size = {"push": 1, "chunks": 5}.get(how, len(rows))
    while at < len(rows):
        # A block ends before the next row that is a function of the stream.
        late = (i for i in range(at, len(rows)) if callable(rows[i]))
        stop = min(at + size, max(next(late, len(rows)), at + 1))
        stop = min(stop, *(n for n in resumes if n > at), len(rows))
        try:
            if how == "push" or callable(rows[at]):
                row = rows[at](stream) if callable(rows[at]) else rows[at]
                out += released(entry.push(row) if cap is None else entry.push(row, user=users[at]))
            else:
                block = np.array(rows[at:stop])
                steps = entry.push_many(block) if cap is None else entry.push_many(block, users=users[at:stop])
                out += steps.releases
        except StreamPCAError as problem:
            out.append(f"row {at + 1}: {type(problem).__name__}: {problem}")
        at = stop
        if at in resumes:
            # Continue from a snapshot, as a store writes and reads it.
            entry = sp.Stream(stream.algorithm, key=stream.engine.randomness.key, **options)
            state, release = records.decode(records.encode(saved_state(stream.engine))), stream.release
            if release is not None:
                ((_, data),) = records.release_records([release])
                (release,) = records.releases_of(data)
            restore(entry.engine, state, release, copied=False)
            stream = entry
    last = entry.finish()
    if how == "past":
        try:
            stream.push(rows[-1])
        except StreamPCAError as problem:
            out.append(f"{type(problem).__name__}: {problem}")
    return [*out, entry, *([] if last is None else [last])]


def released(*steps: Any) -> list[Release]:
    """Return the releases of steps that have one."""
    return [step.release for step in steps if step.release is not None]


def feed_mechanism(subject: Mechanism, rows: list[Row], how: str) -> list[Any]:
    """Release a data set once."""
    return [subject.release(np.array(rows))]
