"""Sources of rows: named features, public bounds, and rows in blocks or one at a time.

Any iterable of rows can be streamed; a `RowSource` is streamed faster. `as_source` makes one of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from streampca.conversion import arrow_reader, frame_column, is_arrow, is_frame, is_sparse
from streampca.errors import SourceError, short
from streampca.linalg.types import FloatArray
from streampca.rows.names import NAME_THEM, refuse_values

#: Lower and upper public bounds of each feature, two arrays of shape (n_features,).
Bounds = tuple[FloatArray, FloatArray]


@runtime_checkable
class RowSource(Protocol):
    """Rows of named features that can be read again from the start.

    Every call of `blocks` or `iter` starts over and yields the same rows.
    How rows are cut into blocks carries no meaning.

    Notes
    -----
    A source that meets a bad row yields every row before it, in order, and
    then raises `streampca.errors.SourceError`: what was streamed is always an
    exact prefix of the rows.
    """

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, in the order of a row's entries."""
        ...

    @property
    def bounds(self) -> Bounds | None:
        """Public lower and upper bounds of each feature; None if there are none."""
        ...

    def blocks(self) -> Iterator[FloatArray]:
        """The rows as non-empty C-contiguous (n, n_features) blocks that the caller may keep."""
        ...

    def __iter__(self) -> Iterator[FloatArray]:
        """The rows one at a time, each of shape (n_features,)."""
        ...


class Reader:
    """The rows of some blocks, `count` at a time."""

    def __init__(self, blocks: Iterator[FloatArray]) -> None:
        self._blocks = blocks
        self._left: FloatArray | None = None

    def take(self, count: int) -> FloatArray:
        """The next rows; fewer at the end."""
        found: list[FloatArray] = []
        while count > 0:
            if self._left is None or not len(self._left):
                self._left = next(self._blocks, None)
                if self._left is None:
                    break
            found.append(self._left[:count])
            self._left = self._left[count:]
            count -= len(found[-1])
        return np.concatenate(found) if found else np.empty((0, 0))


class Position(NamedTuple):
    """Position of a source. Curator only: it may hold values of raw rows, such as a cursor.

    Attributes
    ----------
    source : name of the source, the same in every process.
    at : the place from which it continues; plain values.
    """

    source: str
    at: Any


class PositionedBlock(NamedTuple):
    """Rows, and the position of their source after each of them.

    Attributes
    ----------
    rows : (n, n_features).
    after : gives the plain value ``at`` after the first m of them, 1 <= m <= n.
    """

    rows: FloatArray
    after: Callable[[int], Any]


class Part(NamedTuple):
    """Packed blocks, the position of their source after each of them, and the name of each.

    Attributes
    ----------
    blocks : as bytes.
    after : gives the plain value ``at`` after the first m of them, 1 <= m.
    place : names the i-th, from 0, for messages.
    """

    blocks: list[bytes]
    after: Callable[[int], Any]
    place: Callable[[int], str]


@runtime_checkable
class PositionedSource(RowSource, Protocol):
    """A `RowSource` that can continue from a position; ``name`` identifies it.

    A durable run keeps the position in the transaction of its rows, so that each row counts once, whenever it
    is killed. What a source yields after a position must be what it would have yielded.
    """

    name: str

    def blocks_from(self, at: Any = None) -> Iterator[PositionedBlock]:
        """The rows after a position, or from the start."""
        ...

    def durable(self, at: Any) -> None:
        """Take note that all rows up to a position are durable; called from time to time."""
        ...


#: Rows of a table that are converted at a time.
_BLOCK = 8192
#: Numbers in a tile of rows that is copied at a time (half a megabyte), and the least number of its rows.
_TILE_NUMBERS, _LEAST_TILE = 2**16, 64


def as_source(rows: Any, features: Sequence[str] | None = None, *, mixed: bool = False) -> RowSource | None:
    """The rows of a table as a source; a source unchanged; None for anything else.

    Parameters
    ----------
    rows : a pandas or polars frame; an Arrow table, record batch or reader, or anything with an Arrow
        C stream or a ``fetch_arrow_reader``, such as a DuckDB relation; a scipy sparse matrix.
    features : names of its columns in the order wanted.
    mixed : of a frame, see `frame_column`: its blocks hold objects then where a cell is no number.

    Raises
    ------
    SourceError
        If a column does not hold numbers, columns are not the features, or pyarrow is needed and missing.
    """
    if isinstance(rows, RowSource):
        return rows
    if is_sparse(rows):
        return TableRows((), None, lambda _: sparse_blocks(rows))
    if is_frame(rows):
        return TableRows(list(rows.columns), features, lambda names: _frame_blocks(rows, names, mixed))
    if not is_arrow(rows):
        return None
    begun = [arrow_reader(rows)]  # a stream can be read once only
    schema = begun[0].schema
    for name, kind in zip(schema.names, schema.types, strict=True):
        if not is_number(kind):
            raise _not_numbers(name, kind)
    return TableRows(schema.names, features, lambda names: _arrow_blocks(begun.pop() if begun else rows, names))


class TableRows:
    """A `RowSource` of a table.

    Parameters
    ----------
    labels : of its columns; none if features have no names.
    features : the same as names, in the order wanted.
    read : gives the blocks of columns of these names, from the start.
    """

    bounds: Bounds | None = None

    def __init__(
        self, labels: Sequence[object], features: Sequence[str] | None,
        read: Callable[[Sequence[str]], Iterator[FloatArray]],
    ) -> None:  # fmt: skip
        if features is None:
            refuse_values(labels, "the table", NAME_THEM)
        names = [str(label) for label in labels]
        self.features = tuple(names if features is None or not names else features)
        if names and set(self.features) != set(names):
            lacks, others = sorted(set(self.features) - set(names)), sorted(set(names) - set(self.features))
            raise SourceError(f"the table lacks columns {lacks} and has others, {others}; select the stream's features")
        if len(self.features) != len(names) > 0:
            raise SourceError("two columns of the table have one name; names must differ")
        self._read = read

    def blocks(self) -> Iterator[FloatArray]:
        """The rows from the start, in blocks."""
        return self._read(self.features)

    def __iter__(self) -> Iterator[FloatArray]:
        """The rows from the start, one at a time."""
        for block in self.blocks():
            yield from block


def sparse_blocks(matrix: Any) -> Iterator[FloatArray]:
    """The rows of a scipy sparse matrix, in blocks."""
    matrix = matrix.tocsr()
    size = max(1, min(_BLOCK, 2**23 // max(1, matrix.shape[1])))
    for start in range(0, matrix.shape[0], size):
        yield np.ascontiguousarray(matrix[start : start + size].toarray(), dtype=np.float64)


def _frame_blocks(frame: Any, features: Sequence[str], mixed: bool) -> Iterator[FloatArray]:
    """The rows of a pandas or polars frame, in blocks."""
    names = {str(name): name for name in frame.columns}
    for start in range(0, len(frame), _BLOCK):
        part = getattr(frame, "iloc", frame)[start : start + _BLOCK]
        columns = []
        for name in features:
            column = frame_column(part[names[name]], mixed=mixed)
            if column is None:
                raise _not_numbers(name, part[names[name]].dtype)
            columns.append(column)
        yield np.stack(columns, axis=1)


def _arrow_blocks(table: Any, features: Sequence[str]) -> Iterator[FloatArray]:
    """The rows of an Arrow table or stream, in blocks."""
    for batch in arrow_reader(table):
        yield from arrow_rows(batch, features)


def _not_numbers(name: str, kind: object) -> SourceError:
    """The error of a column that does not hold numbers."""
    return SourceError(f"column {short(name)} of the table ({kind}) does not hold numbers; leave it out, or encode it")


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is one of numbers."""
    import pyarrow.types as types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind))


def is_time(kind: Any) -> bool:
    """Whether an Arrow type is one of dates, or of dates and times."""
    import pyarrow.types as types

    return bool(types.is_date(kind) or types.is_timestamp(kind))


def arrow_rows(batch: Any, names: Sequence[str], size: int = _BLOCK, skip: int = 0) -> Iterator[FloatArray]:
    """Columns of an Arrow batch as (n, d) blocks, n <= size, without the first ``skip`` rows; nan where one is missing.

    Columns become rows a tile at a time, which stays in the processor's cache.
    """
    columns = [floats_of_column(batch.column(name)) for name in names]
    tile = max(_LEAST_TILE, _TILE_NUMBERS // max(1, len(columns)))
    for start in range(skip, batch.num_rows, size):
        rows = np.empty((min(size, batch.num_rows - start), len(columns)))
        for at in range(0, len(rows), tile):
            part = rows[at : at + tile]
            first = start + at
            for j, column in enumerate(columns):
                part[:, j] = column[first : first + len(part)]
        yield rows


def floats_of_column(column: Any) -> FloatArray:
    """The numbers of an Arrow column; nan where a value is missing."""
    import pyarrow as pa
    import pyarrow.types as types

    if types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if is_time(column.type):  # not "safe": nanoseconds are cut off, as no row may stop the others
        return floats_of_column(column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())) / 1e6
    if types.is_float16(column.type):
        column = column.cast(pa.float32())
    # Not "safe": integers past 2**53 are rounded, as in any float.
    numbers = column.cast(pa.float64(), safe=False)
    if numbers.null_count or not len(numbers):
        floats: FloatArray = numbers.to_numpy(zero_copy_only=False)
        return floats
    # The same numbers without pandas, which `to_numpy` loads.
    return np.frombuffer(numbers.buffers()[1], dtype=np.float64, count=len(numbers), offset=8 * numbers.offset)
