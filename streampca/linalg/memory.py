"""Sequences that grow, as immutable values; the memory that is available.

Appending writes into memory that the previous value does not read, and returns a new value. Memory that another value
has appended to is copied first, so every value can be appended to any number of times.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streampca.state import State

Array = npt.NDArray[Any]


def available_memory() -> float:
    """Return the bytes that this process may still allocate, according to the system; inf if unknown."""
    free = math.inf
    with suppress(OSError, ValueError, TypeError):
        line = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(encoding="ascii"))
        free = 1024.0 * int(line[1]) if line else math.inf
    with suppress(OSError, ValueError):  # of a container
        limit, used = (int(Path(f"/sys/fs/cgroup/memory.{of}").read_text()) for of in ("max", "current"))
        free = min(free, max(0.0, float(limit - used)))
    return free


@dataclass(eq=False, repr=False, slots=True)
class _Shared:
    """Memory that successive values share, and its filled length."""

    array: Array
    filled: int


class Rows(State):
    """Rows in order: an immutable value."""

    __slots__ = ("_shared", "array", "count", "n_columns")
    fixed = ("n_columns",)
    kept = ("array",)

    def __init__(self, n_columns: int, array: Array | None = None, shared: _Shared | None = None) -> None:
        array = np.empty((0, n_columns)) if array is None else array
        #: The rows, (count, n_columns). Not to be written to.
        self.array, self.count, self.n_columns = array, len(array), n_columns
        # Full, so that rows appended to an array of the caller are written elsewhere.
        self._shared = _Shared(array, len(array)) if shared is None else shared

    def append(self, rows: Array) -> Rows:
        # Memory past `filled` belongs to no value: writing there changes none.
        shared, start = self._shared, self.count
        end = start + rows.shape[0]
        if shared.filled != start or end > len(shared.array):
            array = np.empty((max(end, 2 * start, 8), self.n_columns))
            array[:start] = self.array
            shared = _Shared(array, start)
        shared.array[start:end] = rows
        shared.filled = end
        return Rows(self.n_columns, shared.array[:end], shared)


class Recent(State):
    """The ``length`` latest of n items of a sequence, of which the latest is item n: an immutable value."""

    # Items lie in blocks that successive values share; no item is ever overwritten.

    __slots__ = ("_blocks", "length", "n")
    kept = ("n", "latest")

    def __init__(
        self, length: int, shape: tuple[int, ...], dtype: Any, blocks: tuple[_Shared, ...] | None = None, n: int = 0
    ) -> None:
        if blocks is None:
            # Blocks of about the square root of the length: little unused room, and few blocks.
            size = min(length, 8 + math.isqrt(length))
            blocks = (_Shared(np.empty((size, *shape), dtype=dtype), n % size),)
        self._blocks = blocks
        self.length, self.n = length, n

    def extend(self, items: Array) -> Recent:
        """Return the sequence with more items, (count, *shape)."""
        blocks, n, done = self._blocks, self.n, 0
        size = len(blocks[0].array)
        while done < len(items):
            newest, place = blocks[-1], n % size
            if place == 0 and n > 0:
                newest = _Shared(np.empty_like(newest.array), 0)
                blocks = (*blocks, newest)
            elif newest.filled != place:
                newest = _Shared(newest.array.copy(), place)
                blocks = (*blocks[:-1], newest)
            count = min(size - place, len(items) - done)
            newest.array[place : place + count] = items[done : done + count]
            newest.filled = place + count
            n, done = n + count, done + count
        needed = (n - 1) // size - max(0, n - self.length) // size + 1  # blocks from the oldest readable item on
        return Recent(self.length, (), None, blocks[-needed:], n)

    def item(self, n: int) -> Array:
        item: Array = self.between(n, n)[0]
        return item

    def between(self, first: int, last: int) -> Array:
        """Return items first, ..., last of the latest, in one array. Not to be written to."""
        if not max(1, self.n - self.length + 1) <= first <= last <= self.n:
            raise IndexError(f"items {first} to {last} of {self.n}, of which {self.length} are held")
        size = len(self._blocks[0].array)
        oldest = (self.n - 1) // size - len(self._blocks) + 1
        parts = [
            self._blocks[i - oldest].array[max(0, first - 1 - i * size) : last - i * size]
            for i in range((first - 1) // size, (last - 1) // size + 1)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @property
    def latest(self) -> Array:
        """All items that can be read, oldest first. Not to be written to."""
        return self.between(max(1, self.n - self.length + 1), self.n) if self.n else self._blocks[0].array[:0]

    def restored(self, snapshot: Mapping[str, Any], source: Any = None) -> Recent:
        n, items = self.read(snapshot, source).values()
        return Recent(self.length, items.shape[1:], items.dtype, n=n - len(items)).extend(items)


#: Default for the largest number of records kept of a growing sequence.
KEPT = 512


class History(State):
    """A sample of records in order, at most ``limit`` of them (None: no limit): an immutable value."""

    # At the limit, every other record is dropped and the ``step`` between records doubles. ``make`` creates a record
    # from its form in a snapshot. The records are the first ``count`` of a list that successive values share; None
    # means all.

    __slots__ = ("_records", "count", "limit", "make", "step")
    fixed = ("make", "limit")
    kept = ("step", "records")

    def __init__(
        self, make: Callable[[Any], Any], limit: int | None = KEPT, step: int = 1, records: list[Any] | None = None,
        count: int | None = None,
    ) -> None:  # fmt: skip
        self.make, self.limit, self.step = make, limit, step
        self._records = [] if records is None else records
        self.count = len(self._records) if count is None else count

    def append(self, record: Any) -> History:
        records, count = self._records, self.count
        if self.limit is not None and count >= self.limit:
            thinned = [*records[:count], record][1::2]
            return History(self.make, self.limit, 2 * self.step, thinned)
        if len(records) != count:  # left by an interrupted append, or by another append to this value
            records = records[:count]
        records.append(record)
        return History(self.make, self.limit, self.step, records, count + 1)

    @property
    def records(self) -> list[Any]:
        """The records, in a new list."""
        return self._records[: self.count]
