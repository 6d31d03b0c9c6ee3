"""Loop that feeds a source of rows into a stream: positions, batches, and the rows before a bad one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from streampca.errors import BadRowError, HorizonReachedError
from streampca.linalg.types import FloatArray
from streampca.rows.protocol import Position, PositionedSource, RowSource
from streampca.stream.engine import Engine
from streampca.stream.step import Steps

#: Minimum and maximum number of rows of a batch. The number doubles while a batch requires less than `_QUICK` seconds,
#: and halves above `_SLOW`: progress is visible and Ctrl-C is prompt. It changes no bit of any release.
SMALLEST, LARGEST = 1024, 8192
_QUICK, _SLOW = 0.005, 0.02
#: Maximum number of entries of a batch, so that memory does not grow with the blocks of a source.
_NUMBERS = 2**17


class Batch(NamedTuple):
    """Rows to push together, and a function for the position of their source after the first m of them, or None."""

    rows: FloatArray
    position: Callable[[int], Position] | None


def feed(engine: Engine, source: RowSource, *, new_source: bool = False) -> Iterator[Steps]:
    """Feed the rows of a source, lazily.

    If the iterator is closed early, the stream stays after a whole batch. Two feeds of one stream interleave whole
    batches.
    """
    for batch in batches(engine, source, new_source=new_source):
        yield from push(engine, batch)


def batches(
    engine: Engine, source: RowSource, *, new_source: bool = False, limit: int | None = None, every: int | None = None,
    rest: Callable[[Iterator[FloatArray]], Iterator[FloatArray]] = iter,
) -> Iterator[Batch]:  # fmt: skip
    """Cut the rows of a source into batches whose size follows the time that they require.

    Parameters
    ----------
    new_source : see `Stream.run`; for a source with positions, which continues at the stream's position.
    limit : maximum number of rows; None for no limit.
    every : cut also where the number of rows in the stream is a multiple of it.
    rest : selects the rows to absorb from the blocks of a source without positions.
    """
    engine.adopt(source)
    size = SMALLEST
    if isinstance(source, PositionedSource):
        blocks = _positioned(engine, source, new_source)
    else:
        blocks = ((block, None) for block in rest(source.blocks()))
    for block, after in blocks:
        rows = block[:limit]
        most, start = max(1, _NUMBERS // max(1, rows.shape[1])), 0
        while start < len(rows):
            began = time.perf_counter()
            count = min(size, most, size if every is None else every - engine.t % every)
            yield Batch(rows[start : start + count], after and partial(_shifted, after, start))
            start += count
            # The caller pushes the batch inside the `yield`, so that this is the time of the push.
            spent = time.perf_counter() - began
            if spent < _QUICK:
                size = min(2 * size, LARGEST)
            elif spent > _SLOW:
                size = max(size // 2, SMALLEST)
        if limit is not None:
            limit -= len(rows)
            if limit == 0:
                return


def push(engine: Engine, batch: Batch) -> Iterator[Steps]:
    """Push a batch. At a bad row or past the horizon, push the rows before it one by one and raise."""
    rows, position = batch
    try:
        pushed = iter([engine.push_many(rows, position=position)])
    except (BadRowError, HorizonReachedError):  # nothing was absorbed
        places = (position and partial(_shifted, position, i) for i in range(len(rows)))
        pushed = (engine.push_many(rows[i : i + 1], position=place) for i, place in enumerate(places))
    yield from pushed


def _positioned(
    engine: Engine, source: PositionedSource, new_source: bool
) -> Iterator[tuple[FloatArray, Callable[[int], Position] | None]]:
    for block in source.blocks_from(engine.position_in(source.name, new_source=new_source)):
        durable = None if engine.log is None else engine.log.durable_position
        if durable is not None and durable.source == source.name:
            source.durable(durable.at)
        yield block.rows, partial(_place, source.name, block.after)


def _place(name: str, after: Callable[[int], Any], m: int) -> Position:
    return Position(name, after(m))


def _shifted(position: Callable[[int], Position], start: int, m: int) -> Position:
    return position(start + m)
