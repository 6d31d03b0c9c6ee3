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
    column_runs,
    entries,
    frame_values,
    is_arrow,
    is_frame,
    is_sparse,
    table_columns,
)  # fmt: skip
from streampca.errors import SourceError, listed, short
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
    cells: Sequence[Sequence[Any]] = ()  #: values of further columns, by column


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
    def blocks_from(self, at: Any = None, beside: Sequence[str] = ()) -> Iterator[PositionedBlock]:
        """Yield the rows after a position, or from the start, with the values of the columns ``beside``."""

    def blocks(self) -> Iterator[FloatArray]:
        for block in self.blocks_from():
            yield block.rows

    def durable(self, at: Any) -> None:
        """Take note that all rows up to a position are durable; called from time to time."""


class NumberedRows(PositionedSource):
    """Rows of a source that can be read again; a position is the number of rows before it.

    Rows may be appended to the source, such as ``from_csv(...)`` or ``open_rows("day-*.csv")``. ``passed`` is called
    with the rows that are passed over, and their values of the columns ``beside``.
    """

    def __init__(
        self,
        rows: RowSource,
        name: str | None,
        passed: Callable[[FloatArray, list[Sequence[Any]]], object] | None = None,
    ) -> None:
        self._rows, self._passed = rows, passed
        self.name = name or ""
        self.features, self.bounds = rows.features, rows.bounds

    def while_idle(self, call: Callable[[], object]) -> None:
        self._rows.while_idle(call)

    @property
    def expected_rows(self) -> int | None:
        return self._rows.expected_rows

    def count_rows(self) -> int | None:
        return self._rows.count_rows()

    def blocks_from(self, at: Any = None, beside: Sequence[str] = ()) -> Iterator[PositionedBlock]:
        """Yield the rows after the first ``at``, which are read and discarded. `SourceError` if there are fewer."""
        before, done = int(at or 0), 0
        # `blocks_with` splits the text of every record: only where it must.
        found = self._rows.blocks_with(beside) if beside else ((rows, list[Any]()) for rows in self._rows.blocks())
        for rows, cells in found:
            start, done = done, done + len(rows)
            skip = min(max(0, before - start), len(rows))
            if skip and self._passed is not None:
                self._passed(rows[:skip], [column[:skip] for column in cells])
            if skip < len(rows):
                yield PositionedBlock(rows[skip:], (start + skip).__add__, [column[skip:] for column in cells])
        if done < before:
            where = self.name or None
            raise SourceError(where, f"{done} rows, fewer than the {before} of the run; pass all rows from the first")


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
        labels = unread[0].schema.names
    else:
        return None
    if features is None:
        refuse_values(labels, "the table", NAME_THEM)
    if absent := [name for name in beside if name not in labels]:
        refuse_values(labels, "the table", NAME_THEM)  # the message has them
        raise SourceError(None, f"the table has no column {listed(absent)}; its columns are {listed(labels)}")
    labels = [label for label in labels if label not in beside]
    if features is None and unread:
        features = entries(labels, list_lengths(unread[0].schema)) or None
    columns = table_columns(labels, features if labels else None, SourceError)
    names = tuple(columns if features is None or not labels else features)
    if not is_frame(rows):
        known = dict(zip(unread[0].schema.names, unread[0].schema.types, strict=True))
        for name, width in column_runs(names, tuple(columns)).items():
            if not holds(known[name], width):
                raise SourceError(None, NOT_NUMBERS.format(short(name), known[name]))

    def read_with(others: Sequence[str]) -> Iterator[tuple[FloatArray, list[Sequence[Any]]]]:
        if is_frame(rows):
            for start in range(0, len(rows), _BLOCK):
                part = getattr(rows, "iloc", rows)[start : start + _BLOCK]
                yield frame_values(part, columns, SourceError, names), [list(part[name]) for name in others]
        else:
            for batch in arrow_reader(unread.pop() if unread else rows):
                yield from arrow_blocks_with(batch, names, others)

    return Table(names, None, lambda: (block for block, _ in read_with(())), read_with if beside else None)


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
    """Return whether an Arrow type is numeric, or a dictionary of numbers."""
    import pyarrow.types as types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind))


def arrow_blocks_with(
    batch: Any, columns: Sequence[str], names: Sequence[str], size: int = _BLOCK
) -> Iterator[tuple[FloatArray, list[Sequence[Any]]]]:
    """Yield the columns of an Arrow batch as numbers, with the values of the columns ``names``."""
    start = 0
    for rows in arrow_rows(batch, columns, size):
        yield rows, [batch.column(name).slice(start, len(rows)).to_pylist() for name in names]
        start += len(rows)


def list_length(kind: Any) -> int | None:
    """Return the length of the lists of numbers that an Arrow type holds, 0 if it has none; None for other types."""
    kind = getattr(kind, "storage_type", kind)
    # Dictionaries and run-end encoded numbers have values, too.
    is_list = kind.num_fields == 1 and hasattr(kind, "value_type") and is_number(kind.value_type)
    return getattr(kind, "list_size", 0) if is_list and getattr(kind, "list_size", 1) else None


def list_lengths(schema: Any) -> dict[str, int]:
    """Return the columns of lists of an Arrow schema, with their lengths."""
    lengths = zip(schema.names, map(list_length, schema.types), strict=True)
    return {name: length for name, length in lengths if length is not None}


def holds(kind: Any, width: int) -> bool:
    """Return whether an Arrow type holds single numbers, for width 0, or else lists of ``width`` numbers."""
    return list_length(kind) in (0, width) if width else is_number(kind)


def arrow_rows(batch: Any, names: Sequence[str], size: int = _BLOCK) -> Iterator[FloatArray]:
    """Yield the features of an Arrow batch as (n, d) blocks, n <= size; nan for missing values.

    Features are those of `column_runs`. A list that is missing or has another length is a row of nan.
    """
    import pyarrow as pa

    columns, runs = [], column_runs(tuple(names), tuple(batch.schema.names))
    batch = batch.select(list(runs))
    is_list = len(runs) == 1 != len(names)
    if is_list or {pa.float32(), pa.float64()}.issuperset(batch.schema.types):
        # A call for all columns: files may have few rows. And a slice at a time, which fits the cache.
        for start in range(0, batch.num_rows, size):
            part = batch.slice(start, size)
            found = arrow_lists(part.column(0), len(names)) if is_list else part.to_tensor(null_to_nan=True)
            yield np.asarray(found, dtype=np.float64)
        return
    for name, width in runs.items():
        column = batch.column(name)
        columns.append(arrow_lists(column, width) if width else arrow_floats(column)[:, None])
    # Transpose a tile at a time, which fits the cache.
    tile = max(_LEAST_TILE, _TILE_NUMBERS // max(1, len(names)))
    for start in range(0, batch.num_rows, size):
        rows = np.empty((min(size, batch.num_rows - start), len(names)))
        for at in range(0, len(rows), tile):
            part = rows[at : at + tile]
            first, j = start + at, 0
            for column in columns:
                part[:, j : j + column.shape[1]] = column[first : first + len(part)]
                j += column.shape[1]
        yield rows


def arrow_floats(column: Any) -> FloatArray:
    """Return an Arrow array of numbers, with nan for missing ones."""
    import pyarrow as pa
    import pyarrow.types as types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if types.is_float16(column.type):
        column = column.cast(pa.float32())
    # Not "safe": integers above 2**53 are rounded.
    numbers = column.cast(pa.float64(), safe=False)
    if numbers.null_count or not len(numbers):
        floats: FloatArray = numbers.to_numpy(zero_copy_only=False)
        return floats
    # Read the buffer: `to_numpy` would load pandas.
    return np.frombuffer(numbers.buffers()[1], dtype=np.float64, count=len(numbers), offset=8 * numbers.offset)


def arrow_lists(column: Any, width: int) -> FloatArray:
    """Return an Arrow array of lists as (n, width); rows of nan for lists that are missing or of another length."""
    import pyarrow.compute as pc

    column = getattr(column, "storage", column)  # of a tensor
    if column.null_count or getattr(column.type, "list_size", None) != width:
        good = pc.fill_null(pc.equal(pc.list_value_length(column), width), False).to_numpy(zero_copy_only=False)
        if not good.all():
            rows = np.full((len(column), width), np.nan)
            rows[good] = arrow_floats(column.filter(good).flatten()).reshape(-1, width)
            return rows
    # `flatten` respects the offsets of a slice and leaves out missing lists, unlike `values`.
    return arrow_floats(column.flatten()).reshape(-1, width)
