"""Entries of a commit log as records, and back. Curator only: records are sealed before they are written.

Pieces of rows that follow each other share a record, which is replayed as one
piece: a stream gives the same bits however its rows are cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from streampca.blocks import BlockGram
from streampca.errors import StoreCorrupt
from streampca.linalg.lattice import STEP
from streampca.privacy.randomness import NAME_BYTES
from streampca.stream import Entry

#: Records are of so many bytes at most, except where one entry takes more.
PIECE = 2**18


def size_of(entry: Entry) -> int:
    """Bytes that an entry takes in a record, about."""
    if entry.rows is not None:
        return 4 * entry.rows.size
    return 0 if entry.block is None else 2 * entry.block.high.nbytes


def groups_of(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """The entries of each record: rows up to a size together, all others alone."""
    group: list[Entry] = []
    size = 0
    for entry in entries:
        if group and (entry.rows is None or size + size_of(entry) > PIECE):
            yield group
            group, size = [], 0
        if entry.rows is None:
            yield [entry]
        else:
            group.append(entry)
            size += size_of(entry)
    if group:
        yield group


def record_of(group: Sequence[Entry]) -> dict[str, Any]:
    """One record of the entries of a group."""
    last, rows = group[-1], [entry.rows for entry in group if entry.rows is not None]
    record: dict[str, Any] = {
        "kind": last.kind,
        "bad": sum(entry.bad for entry in group),
        "fresh": _array(b"".join(name for entry in group for name in entry.fresh)),
        "link": _array(last.link),
    }
    if last.block is not None:
        record |= {"high": last.block.high, "low": last.block.low}
    elif rows:
        whole = rows[0] if len(rows) == 1 else np.concatenate(rows)
        words = np.empty(whole.shape, dtype=np.int32)
        np.multiply(whole, 1.0 / STEP, out=words, casting="unsafe")
        record["rows"] = words
    return record


def entry_of(first: int, count: int, record: Any) -> Entry:
    """The entry that a record is replayed as.

    Raises
    ------
    StoreCorrupt
        If it is not a record of entries.
    """
    try:
        bad, fresh, link, kind = record["bad"], names_in(record["fresh"]), record["link"].tobytes(), record["kind"]
        if "high" in record:
            block = BlockGram(record["high"], record["low"], count, bad)
            return Entry(first, count, None, block, bad, fresh, link, None, kind)
        rows = record["rows"] * STEP if "rows" in record else None
        if (0 if rows is None else len(rows)) != count:
            raise ValueError("wrong number of rows")
        return Entry(first, count, rows, None, bad, fresh, link, None, kind)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise StoreCorrupt(f"the rows from {first} on cannot be read ({problem}); restore the newest copy") from problem


def trace_of(entries: Iterable[Entry]) -> dict[str, Any] | None:
    """The fresh bytes of the noise of some entries, and where they served; None if there are none.

    Kept when the rows are folded into a snapshot, so that all rows can be played again by who has them.
    """
    marks: list[list[Any]] = []
    fresh: list[bytes] = []
    for entry in entries:
        if entry.fresh or entry.kind != "rows":
            mark = [entry.first + entry.count - 1, entry.kind, len(entry.fresh)]
            if marks and marks[-1][1] == entry.kind == "rows":
                mark[2] += marks.pop()[2]
            marks.append(mark)
            fresh += entry.fresh
    return {"marks": marks, "fresh": _array(b"".join(fresh))} if marks else None


def names_in(fresh: Any) -> tuple[bytes, ...]:
    """The fresh bytes of a record, a vector each."""
    data = fresh.tobytes()
    return tuple(data[at : at + NAME_BYTES] for at in range(0, len(data), NAME_BYTES))


def _array(data: bytes) -> Any:
    return np.frombuffer(data, dtype=np.uint8)
