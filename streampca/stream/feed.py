"""Loop that feeds a source of rows into a stream: positions, batches, and the rows before the horizon."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from streampca.calendar import Calendar, instant
from streampca.errors import BadParameterError, HorizonReachedError, SourceError, UsageError
from streampca.linalg.types import FloatArray
from streampca.privacy.unit import columns_of, names_of
from streampca.rows.owners import Names
from streampca.rows.protocol import NumberedRows, Position, PositionedBlock, PositionedSource, RowSource
from streampca.rows.report import logger
from streampca.stream import periods
from streampca.stream.engine import Engine
from streampca.stream.step import Steps

#: Maximum number of rows of a batch, so that progress is visible and Ctrl-C is prompt, and of its entries, so that
#: memory does not grow with the blocks of a source. They change no bit of any release.
ROWS, _NUMBERS = 4096, 2**17


class Batch(NamedTuple):
    """Rows to push together, and where they come from."""

    rows: FloatArray  #: (n, d), part of a block of the source
    source: str | None = None  #: name of a source with positions; None for others
    after: Callable[[int], Any] | None = None  #: position of that source after the first m rows of the block
    start: int = 0  #: number of rows of the block before these
    names: Names | None = None  #: of the people of the rows; None if the unit is a row

    def position(self, m: int) -> Position | None:
        """Return the position of the source after the first m of these rows; None if it has no positions."""
        if self.source is None or self.after is None:
            return None
        return Position(self.source, self.after(self.start + m))


def feed(engine: Engine, source: RowSource, *, new_source: bool = False) -> Iterator[Steps]:
    """Feed the rows of a source, lazily.

    If the iterator is closed early, the stream stays after a whole batch. Two feeds of one stream interleave whole
    batches, unless they read one source, whose rows would count twice. The steps of periods that end while the source
    waits precede those of its next rows.
    """
    closed, before = list[Steps](), None

    def tick() -> None:
        if len(steps := periods.push_many(engine)):
            closed.append(steps)

    if engine.calendar is not None:
        source.while_idle(tick)
    for batch in batches(engine, source, new_source=new_source):
        last = None if engine.log is None else engine.log.position(durable=False)
        if before is not None and last not in (None, before) and last.source == before.source:
            raise UsageError("another run read rows of this source meanwhile. Call run again to continue")
        yield from closed
        closed.clear()
        yield from push(engine, batch)
        before = batch.position(len(batch.rows))
    yield from closed


def batches(
    engine: Engine, source: RowSource, *, new_source: bool = False, limit: int | None = None, every: int | None = None,
    rest: Callable[[Iterator[FloatArray]], Iterator[FloatArray]] = iter,
) -> Iterator[Batch]:  # fmt: skip
    """Cut the rows of a source, at most ``limit``, into batches; see `Stream.run` for ``new_source``."""
    # Batches also end where the number of rows in the stream is a multiple of ``every``. ``rest`` selects the rows to
    # absorb from the blocks of a source without positions.
    engine.adopt(source)
    positioned = source if isinstance(source, PositionedSource) else None
    unit = engine.algorithm.unit
    if unit is not None:
        if not unit.columns:
            raise UsageError("unit: a source has no names of people. Use Person(column=...)")
        found = numbered(engine, source, unit.columns, new_source=new_source)
        blocks: Iterator[Batch] = (
            Batch(block.rows, getattr(source, "name", None), block.after, names=names_of(block.cells))
            for block in found
        )
    elif positioned is None:
        blocks = map(Batch, rest(source.blocks()))
    else:
        parts = positioned.blocks_from(engine.position_in(positioned.name, new_source=new_source))
        blocks = (Batch(block.rows, positioned.name, block.after) for block in parts)
    for block in blocks:
        durable = None if engine.log is None else engine.log.position(durable=True)
        if positioned is not None and durable is not None and durable.source == positioned.name:
            positioned.durable(durable.at)
        rows, start = block.rows[:limit], 0
        size = min(ROWS, max(1, _NUMBERS // max(1, rows.shape[1])))
        while start < len(rows):
            # The caller pushes the batch inside the `yield`, so that `engine.t` counts it in the next turn.
            count = size if every is None else min(size, every - engine.t % every)
            names = None if block.names is None else block.names[start : start + count]
            yield block._replace(rows=rows[start : start + count], start=start, names=names)
            start += count
        if limit is not None:
            limit -= len(rows)
            if limit == 0:
                return


def push(engine: Engine, batch: Batch) -> Iterator[Steps]:
    """Push a batch. Past the horizon, push the rows before it one by one and raise."""
    if engine.calendar is not None:
        yield periods.push_many(engine, batch.rows, batch.position, batch.names)
        return
    steps = None
    with suppress(HorizonReachedError):  # then nothing was absorbed
        steps = engine.push_many(batch.rows, batch.position, batch.names)
    if steps is not None:
        yield steps
        return
    # One by one, so that the rows that are left count.
    for i in range(len(batch.rows)):
        one = batch._replace(rows=batch.rows[i : i + 1], start=batch.start + i)
        yield engine.push_many(one.rows, one.position, None if batch.names is None else batch.names[i : i + 1])


def feed_timed(
    engine: Engine, source: RowSource, time: str, end: Any = None, *, new_source: bool = False
) -> Iterator[Steps]:  # fmt: skip
    """Feed rows in the order of their times, in column ``time``; close all periods up to ``end``. See `Stream.run`."""
    number = _last(engine, end)
    engine.adopt(source, (time,))
    name, latest, calendar = getattr(source, "name", None), None, periods.grid(engine)
    columns, seen, absent = columns_of(engine.algorithm.unit), 0, 0
    for rows, after, (cells, *others) in numbered(engine, source, (time, *columns), new_source=new_source):
        at = [instant(cell, naive=True) for cell in cells]
        # Absent: without a readable time, before the start, or from the end on.
        numbers = np.array([-1 if one is None else max(-1, calendar.number(one)) for one in at], dtype=np.int64)
        numbers[numbers >= number] = -1
        seen, absent = seen + len(at), absent + int((numbers < 0).sum())
        stop = len(at)
        for place, one in enumerate(at):
            if one is None:
                continue
            if (latest is not None and one < latest) or 0 <= numbers[place] < engine.t:
                stop = place
                break
            latest = one
        names = names_of(others)[:stop] if columns else None
        yield periods.push_timed(engine, rows[:stop], numbers[:stop], Batch(rows, name, after).position, names)
        if stop < len(at):
            # After the rows before it: the rows of both neighbors are in order. Its number would be a function of rows.
            raise SourceError(name, f"a row is out of order: sort the rows by {time}")
    if absent:
        logger.warning(
            "%d of %d rows have no readable %s, or one outside of the periods, and count for nothing (curator only)",
            absent, seen, time,
        )  # fmt: skip
    none = np.empty((0, len(source.features)))
    yield periods.push_timed(engine, none, np.empty(0, np.int64), lambda _: None, until=number)


def numbered(
    engine: Engine, source: RowSource, beside: Sequence[str], *, new_source: bool
) -> Iterator[PositionedBlock]:
    """Yield the rows of a source after those of a durable run, with the values of the columns ``beside``."""
    # Positions are those of the source, or else numbers of rows.
    if not isinstance(source, PositionedSource):
        source = NumberedRows(source, getattr(source, "name", None))
    at = engine.position_in(source.name, new_source=new_source) if source.name else None
    yield from source.blocks_from(at, beside)


def _last(engine: Engine, end: Any) -> int:
    """Return the number of periods up to a public end, by default those of the horizon."""
    calendar, horizon = periods.grid(engine), getattr(engine.algorithm, "horizon", None)
    if calendar.length is None:
        raise UsageError("time=, release_every='manual': not supported together. Use release_every='1d', for example")
    if end is None:
        if horizon is None:
            raise BadParameterError("end", end, "a public time", advice="Or give the algorithm a horizon")
        return int(horizon)
    at = Calendar.time("end", end)
    if (at - calendar.start) % calendar.length or at <= calendar.start:
        raise BadParameterError("end", end, f"the end of a period of {calendar.every} after start=")
    if horizon is not None and calendar.number(at) > horizon:
        raise BadParameterError("end", end, f"a time within horizon={horizon} periods")
    return calendar.number(at)
