"""Sources of rows: named features, public bounds, and rows in blocks or one at a time.

Any iterable of rows can be streamed; a `RowSource` is faster. `as_source` converts tables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from streampca.conversion import (
    NOT_NUMBERS,
    arrow_reader,
    frame_values,
    is_arrow,
    is_frame,
    is_sparse,
    table_columns,
)  # fmt: skip
from streampca.errors import SourceError, short
from streampca.linalg.types import FloatArray
from streampca.rows.names import NAME_THEM, refuse_values

#: Lower and upper public bounds of each feature, two arrays of shape (n_features,).
Bounds = tuple[FloatArray, FloatArray]


class RowSource(ABC):
    """Rows of named features that can be read again from the start.

    Every call of `blocks` or `iter` starts over and yields the same rows. The cut of rows into blocks has no meaning.
    A record that is no row of numbers is a row of nan (`streampca.rows.admission.bad_values`), in its place. Where a
    file is damaged, a source yields every row before that, in order, and raises `streampca.errors.SourceError`, so that
    the rows read are always an exact prefix.

    Attributes
    ----------
    features : names of the features, in the order of the entries of a row.
    bounds : public lower and upper bounds of each feature, for ``Stream(bounds=source.bounds)``, or None.
    """

    features: tuple[str, ...]
    bounds: Bounds | None

    @abstractmethod
    def blocks(self) -> Iterator[FloatArray]:
        """Yield the rows as non-empty C-contiguous (n, n_features) blocks that the caller may keep."""

    #: Called between polls of a source that waits for rows.
    _idle: Callable[[], object] = staticmethod(lambda: None)

    def while_idle(self, call: Callable[[], object]) -> None:
        """Call a function from time to time while a source waits for rows, such as the tick of a calendar."""
        self._idle = call

    def blocks_with(self, names: Sequence[str]) -> Iterator[tuple[FloatArray, list[Sequence[Any]]]]:
        """Yield the rows as `blocks` does, and with them the values of further columns, by column.

        Values are as the source holds them: texts, numbers, times. That of a record that cannot be read is None.
        """
        named = ", ".join(names)
        raise SourceError(getattr(self, "name", None), f"the source has no further columns, such as {named}")

    @property
    def expected_rows(self) -> int | None:
        """Number of rows from start to end, by the file's own count or estimated from its bytes; else None."""
        return getattr(self, "n_rows", None)

    def count_rows(self) -> int | None:
        """Return the number of rows, counted by the records of a regular file; None for other sources.

        It does not depend on what the records hold, and takes one reading of a text.
        """
        return getattr(self, "n_rows", None)

    def __iter__(self) -> Iterator[FloatArray]:
        """Yield the rows one at a time, each of shape (n_features,)."""
        for block in self.blocks():
            yield from block

    def __repr__(self) -> str:
        name = f" {self.name!r}" if hasattr(self, "name") else ""
        features = ", ".join(self.features[:4]) + (", ..." if len(self.features) > 4 else "")
        bounds = "" if self.bounds is None else "; with bounds"
        return f"<{type(self).__name__}{name} {len(self.features)} features: {features}{bounds}>"


class Position(NamedTuple):
    """Position of a source. Curator only: it may hold values of raw rows, such as a cursor."""

    source: str  #: its name, the same in every process
    at: Any  #: plain values that determine where it continues


class PositionedBlock(NamedTuple):
    """Rows, (n, n_features), and a function for the position ``at`` of their source after the first m, m >= 1."""

    rows: FloatArray
    after: Callable[[int], Any]


class Part(NamedTuple):
    """Packed blocks, a function for the position ``at`` after the first m, m >= 1, and one for the name of the i-th."""

    blocks: list[bytes]
    after: Callable[[int], Any]
    place: Callable[[int], str]


class PositionedSource(RowSource):
    """A `RowSource` that can continue from a position; ``name`` identifies it, in any process.

    A durable stream keeps the position in the transaction of its rows, so that each row counts once at any kill.
    ``Stream.resume(store).run(source)`` and ``streampca resume`` continue from it. The rows after a position must be
    those that the source would have yielded.
    """

    name: str

    @abstractmethod
    def blocks_from(self, at: Any = None) -> Iterator[PositionedBlock]:
        """Yield the rows after a position, or from the start."""

    def blocks(self) -> Iterator[FloatArray]:
        for block in self.blocks_from():
            yield block.rows

    def durable(self, at: Any) -> None:
        """Take note that all rows up to a position are durable; called from time to time."""


#: Rows of a table converted at a time.
_BLOCK = 8192
#: Entries in a tile of rows that is copied at a time (half a megabyte), and its minimum number of rows.
_TILE_NUMBERS, _LEAST_TILE = 2**16, 64


def as_source(rows: Any, features: Sequence[str] | None = None, beside: Sequence[str] = ()) -> RowSource | None:
    """Return the rows of a table as a source; a source unchanged; None for anything else.

    Tables are pandas and polars frames, with columns ``features`` in any order and cells as in `frame_values`; Arrow
    tables, batches, readers, and objects that convert to them, such as a DuckDB relation; scipy sparse matrices. The
    columns ``beside`` are no features, and have any type (`RowSource.blocks_with`). Raises `SourceError` if a column
    does not hold numbers, columns are not the features, or pyarrow is missing.
    """
    if isinstance(rows, RowSource):
        return rows
    if is_sparse(rows):
        return Table((), None, partial(sparse_blocks, rows))
    unread: list[Any] = []
    if is_frame(rows):
        labels = list(rows.columns)
    elif is_arrow(rows):
        unread.append(arrow_reader(rows))  # the first reading uses this reader, as a stream can be read only once
        labels, kinds = unread[0].schema.names, unread[0].schema.types
        for name, kind in zip(labels, kinds, strict=True):
            if not is_number(kind) and name not in beside:
                raise SourceError(None, NOT_NUMBERS.format(short(name), kind))
    else:
        return None
    if features is None:
        refuse_values(labels, "the table", NAME_THEM)
    labels = [label for label in labels if label not in beside]
    columns = table_columns(labels, features if labels else None, SourceError)

    def read_with(names: Sequence[str]) -> Iterator[tuple[FloatArray, list[Sequence[Any]]]]:
        if is_frame(rows):
            for start in range(0, len(rows), _BLOCK):
                part = getattr(rows, "iloc", rows)[start : start + _BLOCK]
                yield frame_values(part, columns, SourceError), [list(part[name]) for name in names]
        else:
            for batch in arrow_reader(unread.pop() if unread else rows):
                yield from arrow_blocks_with(batch, tuple(columns), names)

    def read() -> Iterator[FloatArray]:
        if is_frame(rows):
            for start in range(0, len(rows), _BLOCK):
                part = getattr(rows, "iloc", rows)[start : start + _BLOCK]
                yield frame_values(part, columns, SourceError)
        else:
            for batch in arrow_reader(unread.pop() if unread else rows):
                yield from arrow_rows(batch, tuple(columns))

    return Table(tuple(columns), None, read, read_with if beside else None)


@dataclass(eq=False, repr=False)
class Table(RowSource):
    """Rows of a table, in the blocks that ``read`` returns."""

    features: tuple[str, ...]
    bounds: Bounds | None
    read: Callable[[], Iterator[FloatArray]]
    read_with: Callable[[Sequence[str]], Iterator[tuple[FloatArray, list[Sequence[Any]]]]] | None = None

    def blocks(self) -> Iterator[FloatArray]:
        return self.read()

    def blocks_with(self, names: Sequence[str]) -> Iterator[tuple[FloatArray, list[Sequence[Any]]]]:
        return super().blocks_with(names) if self.read_with is None else self.read_with(names)


def sparse_blocks(matrix: Any) -> Iterator[FloatArray]:
    """Yield the rows of a scipy sparse matrix in blocks."""
    matrix = matrix.tocsr()
    size = max(1, min(_BLOCK, 2**23 // max(1, matrix.shape[1])))
    for start in range(0, matrix.shape[0], size):
        yield np.ascontiguousarray(matrix[start : start + size].toarray(), dtype=np.float64)


def is_number(kind: Any) -> bool:
    """Return whether an Arrow type is numeric."""
    import pyarrow.types as types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind))


def arrow_blocks_with(
    batch: Any, columns: Sequence[str], names: Sequence[str]
) -> Iterator[tuple[FloatArray, list[Sequence[Any]]]]:
    """Yield the columns of an Arrow batch as numbers, with the values of the columns ``names``."""
    if batch.num_rows:
        rows = np.concatenate([*arrow_rows(batch, columns)])
        yield rows, [batch.column(name).to_pylist() for name in names]


def arrow_rows(batch: Any, names: Sequence[str], size: int = _BLOCK) -> Iterator[FloatArray]:
    """Yield columns of an Arrow batch as (n, d) blocks, n <= size; nan for missing values."""
    import pyarrow as pa
    import pyarrow.types as types

    columns = []
    for column in map(batch.column, names):
        if types.is_boolean(column.type):
            column = column.cast(pa.int8())
        if types.is_float16(column.type):
            column = column.cast(pa.float32())
        # Not "safe": integers above 2**53 are rounded.
        numbers = column.cast(pa.float64(), safe=False)
        if numbers.null_count or not len(numbers):
            floats: FloatArray = numbers.to_numpy(zero_copy_only=False)
        else:  # read the buffer: `to_numpy` would load pandas
            floats = np.frombuffer(
                numbers.buffers()[1], dtype=np.float64, count=len(numbers), offset=8 * numbers.offset
            )
        columns.append(floats)
    # Transpose a tile at a time, which fits the cache.
    tile = max(_LEAST_TILE, _TILE_NUMBERS // max(1, len(columns)))
    for start in range(0, batch.num_rows, size):
        rows = np.empty((min(size, batch.num_rows - start), len(columns)))
        for at in range(0, len(rows), tile):
            part = rows[at : at + tile]
            first = start + at
            for j, column in enumerate(columns):
                part[:, j] = column[first : first + len(part)]
        yield rows
