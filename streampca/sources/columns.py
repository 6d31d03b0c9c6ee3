"""Tables of every kind, column by column, with cells that are no numbers: `open_columns`, for `sp.check`.

Rows for a release are opened by `open_rows` and `as_source`, which refuse such cells or turn their row into a bad one.
Here they are passed on, and nothing is refused because of a cell. Names, records and missing values are the same.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from streampca.conversion import arrow_reader, as_floats, framed, is_arrow, is_frame, is_sparse
from streampca.errors import BadParameterError, SourceError, UsageError
from streampca.rows.names import NAME_THEM, refuse_values
from streampca.rows.protocol import arrow_rows, is_number
from streampca.sources.base import BLOCK_ROWS, choose_named, feature_names
from streampca.sources.csv_cells import CellParser
from streampca.sources.csv_rows import CsvRows
from streampca.sources.files import format_of, matching
from streampca.sources.ndjson_rows import NdjsonRows
from streampca.sources.parquet import damage, read_batches
from streampca.sources.profile import CellBlock, Cells, cells_of
from streampca.sources.reading import Reading
from streampca.sources.records import split_records

#: A text that pyarrow and `number` read as the same finite number.
_PLAIN_NUMBER = r"^[ \t]*-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?[ \t]*$"
_WHOLE = (
    "a table, or the path of a regular file: a pipe, a topic or a generator can be read only once, and nothing would "
    "be left for the release"
)


@dataclass(frozen=True)
class ColumnTable:
    """Columns of a table.

    Attributes
    ----------
    names : tuple of str
        Names of the chosen columns, in order.
    blocks : callable
        Function from the largest number of rows to an iterator over blocks of their cells, from the first row on.
    """

    names: tuple[str, ...]
    blocks: Callable[[int], Iterator[CellBlock]]


def open_columns(
    data: Any, columns: Sequence[str | int] | None = None, read: Reading | None = None, format: str | None = None  # noqa: A002
) -> ColumnTable:  # fmt: skip
    """Open a table in memory, or the files of a path or pattern, for reading its cells column by column.

    Parameters
    ----------
    data : a path; a pandas or polars frame, an Arrow table or what converts to one, a sparse matrix, an array, or a
        list of rows.
    columns : names or positions of columns; None for all.
    read, format : of files, as in `open_rows`.

    Raises
    ------
    SourceError
        If a file cannot be opened, has no header, or lacks a column.
    BadParameterError
        If the data are no table, or can be read only once.
    """
    if not isinstance(read, Reading | None):
        raise BadParameterError("read", read, "a Reading")
    if isinstance(data, (str, os.PathLike)):
        options = {} if read is None else {f.name: getattr(read, f.name) for f in fields(read) if f.init}
        if options.get("follow"):
            raise BadParameterError("follow", True, "False: check reads a whole file")
        return _several([_file(path, columns, options, format) for path in matching(data)])
    if read is not None:
        raise UsageError("read= holds options for files. Omit it for rows in memory")
    data = framed(data)
    if is_frame(data):
        labels, slices = list(data.columns), getattr(data, "iloc", data)
        return _sliced(labels, columns, slices, len(data), lambda part, place: _series(part[labels[place]]))
    if is_arrow(data) and not hasattr(data, "read_next_batch"):  # a reader would be empty for the release
        labels, batches = arrow_reader(data).schema.names, partial(arrow_reader, data)
        return _chosen(labels, columns, lambda places: _batches(batches, [labels[place] for place in places]))
    if hasattr(data, "shape") and len(data.shape) == 2:
        names = [f"x{j}" for j in range(data.shape[1])]
        return _sliced(names, columns, data.tocsr() if is_sparse(data) else data, data.shape[0], _array_cells)
    if not isinstance(data, (list, tuple)):
        raise BadParameterError("data", data, _WHOLE, advice="For rows that arrive one by one use sp.Stream")
    first: Any = data[0] if data else ()
    if isinstance(first, Mapping):
        names = [str(name) for name in (first if columns is None else columns)]
    elif isinstance(first, (str, bytes)) or not hasattr(first, "__len__"):
        raise BadParameterError("data", ..., "rows, each a sequence of cells or a mapping by name")
    else:
        names = list(getattr(first, "_fields", [f"x{j}" for j in range(len(first))]))
    return _chosen(names, columns, lambda places: partial(_rows, data, names, places))


Blocks = Callable[[int], Iterator[CellBlock]]


def _chosen(
    labels: Sequence[Any], columns: Sequence[str | int] | None, blocks: Callable[[Sequence[int]], Blocks]
) -> ColumnTable:  # fmt: skip
    """Return the chosen columns of a table in memory; ``blocks`` reads those at given positions."""
    if columns is None:
        refuse_values(labels, "the table", NAME_THEM)
    names = [str(label) for label in labels]
    places = choose_named(names, columns, "the table", NAME_THEM, given=names)
    if not places:
        raise BadParameterError("data", ..., "a table with at least one column")
    return ColumnTable(feature_names(names, places), blocks(places))


def _sliced(
    labels: Sequence[Any], columns: Sequence[str | int] | None, rows: Any, count: int,
    cells: Callable[[Any, int], Cells],
) -> ColumnTable:  # fmt: skip
    """Return a table whose ``rows`` have slices; ``cells`` returns a column of a slice."""

    def blocks(places: Sequence[int], limit: int) -> Iterator[CellBlock]:
        for start in range(0, min(count, limit), BLOCK_ROWS):
            part = rows[start : min(start + BLOCK_ROWS, limit)]
            yield CellBlock([cells(part, place) for place in places])

    return _chosen(labels, columns, lambda places: partial(blocks, places))


def _several(tables: Sequence[ColumnTable]) -> ColumnTable:
    """Return the rows of several files with the same columns, one after the other."""
    if any(table.names != tables[0].names for table in tables):
        raise SourceError(None, "the files of the pattern have different columns; choose with columns=")

    def blocks(limit: int) -> Iterator[CellBlock]:
        for table in tables:
            for block in table.blocks(limit):
                limit -= len(block.columns[0].values) + block.unreadable
                yield block
            if limit <= 0:
                return

    return ColumnTable(tables[0].names, blocks)


def _file(path: Any, columns: Any, options: dict[str, Any], format: str | None) -> ColumnTable:  # noqa: A002
    # A pipe would be empty for the release. A path that is not there is refused by its reader.
    if str(path) == "-" or (os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)):
        raise BadParameterError("data", str(path), _WHOLE)
    kind = format_of(path, format)
    if kind == "parquet":
        return _parquet(path, columns, options)
    if kind == "ndjson":
        if columns is None:
            columns = NdjsonColumns(path, columns=["x"], **options).first_keys()
        lines = NdjsonColumns(path, columns=columns, **options)
        return ColumnTable(lines.features, lines.cells)
    if kind == "tsv" and options.get("delimiter") is None:
        options = {**options, "delimiter": "\t"}
    rows = CsvColumns(path, columns=columns, **options)
    return ColumnTable(rows.features, rows.cells)


class CsvColumns(CsvRows):
    """Cells of a CSV file, column by column; the parameters are those of `CsvRows`."""

    _needs_rows = False

    def cells(self, limit: int) -> Iterator[CellBlock]:
        """Yield the cells of the first ``limit`` rows. `SourceError` where the file is damaged."""
        mark = self._delimiter if self._quotes else None
        parser = CellParser(self._width, self._places, self._delimiter or ",", self._missing, quotes=self._quotes)
        texts: frozenset[str] = frozenset()  # columns with cells that are no numbers
        for piece in self._readable(self._start(lambda: self._opened()[1])):
            if limit <= 0:
                return
            if piece.count(b"\n") >= limit:
                # One record is passed on as it is: placeholders are known by identity.
                piece = b"".join(first) if len(first := split_records(piece, mark)[:limit]) > 1 else first[0]
            batch = parser.batch(piece, texts)
            if batch is None:
                batch = parser.batch(piece, frozenset(parser.wanted))
            if batch is not None:
                columns = [_arrow_cells(column, self._missing) for column in batch.columns]
                texts |= {name for name, (_, others) in zip(parser.wanted, columns, strict=True) if others}
                block = CellBlock(columns)
            else:
                rows = [self._cells(record) for record in split_records(piece, mark)]
                good = [row for row in rows if row is not None and len(row) == self._width]
                columns = [cells_of([row[place] for row in good], self._missing) for place in self._places]
                block = CellBlock(columns, len(rows) - len(good))
            limit -= len(block.columns[0].values) + block.unreadable
            yield block


class NdjsonColumns(NdjsonRows):
    """Cells of a file of JSON objects, key by key; the parameters are those of `NdjsonRows`."""

    def cells(self, limit: int) -> Iterator[CellBlock]:
        """Yield the cells of the first ``limit`` rows."""
        for piece in self._start(self._pieces):
            if limit <= 0:
                return
            lines = split_records(piece, None)[:limit]
            records = [record for line in lines if (record := self._record(line)) is not None]
            columns = [cells_of([record.get(name) for record in records], self._missing) for name in self.features]
            yield CellBlock(columns, len(lines) - len(records))
            limit -= len(lines)

    def first_keys(self) -> list[str]:
        """Return the keys of the first object. Curator only: a release must not take its columns from a row."""
        first = self._record(split_records(next(self._pieces()), None)[0])
        if not first:
            raise SourceError(self.name, "the first line is no JSON object with a key; choose with columns=", line=1)
        refuse_values(first, self.name, NAME_THEM)
        return [*first]


def _parquet(path: Any, columns: Any, options: dict[str, Any]) -> ColumnTable:
    _ = Reading(**options).only("Parquet", "chunk_rows")
    with damage(path, "cannot be read as Parquet"):
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            names = list(file.schema_arrow.names)
    places = choose_named(names, columns, str(path), NAME_THEM, given=columns)
    chosen = [names[place] for place in places]

    def batches() -> Iterator[Any]:
        with damage(path, "is damaged"), pq.ParquetFile(path, pre_buffer=False) as file:
            yield from read_batches(file, chosen)

    return ColumnTable(feature_names(names, places), _batches(batches, chosen))


def _batches(read: Callable[[], Iterable[Any]], names: Sequence[str]) -> Blocks:
    def blocks(limit: int) -> Iterator[CellBlock]:
        for batch in read():
            # Batches may be as large as the table.
            for start in range(0, min(batch.num_rows, limit), BLOCK_ROWS):
                part = batch.slice(start, min(BLOCK_ROWS, limit - start))
                yield CellBlock([_arrow_cells(part.column(name)) for name in names])
            limit -= batch.num_rows
            if limit <= 0:
                return

    return blocks


def _arrow_cells(column: Any, missing: frozenset[str] | None = None) -> Cells:
    """Return the cells of an Arrow array of any type."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as types

    kind, count = column.type, len(column)
    if is_number(kind):
        (values,) = arrow_rows(pa.record_batch([column], ["x"]), ["x"], max(count, 1)) if count else (np.empty((0, 1)),)
        return Cells(values[:, 0], {})
    if types.is_dictionary(kind):
        column = column.dictionary_decode()
    if not (types.is_string(column.type) or types.is_large_string(column.type)):
        known = count - column.null_count
        style = np.datetime64 if types.is_temporal(kind) else type(None)
        return Cells(np.full(count, np.nan), {style: known} if known else {})
    # Text: each distinct cell once. Most are plain numbers or none at all.
    coded = column.dictionary_encode()
    texts = coded.dictionary
    plain = pc.if_else(pc.match_substring_regex(texts, _PLAIN_NUMBER), texts, None)
    numbers = pc.cast(pc.utf8_trim_whitespace(plain), pa.float64())
    found = np.append(numbers.to_numpy(zero_copy_only=False), np.nan)  # the last one for missing cells
    codes = np.asarray(coded.indices.fill_null(len(texts)))
    times = np.bincount(codes, minlength=len(found))
    others: Counter[Any] = Counter()
    for at in np.flatnonzero(np.isnan(found[:-1])).tolist():
        text = texts[at].as_py()
        value, unknown = cells_of([text]) if missing is None else cells_of([text], missing)
        found[at] = value[0]
        if unknown:
            others[text] = int(times[at])
    return Cells(found[codes], others)


def _series(column: Any) -> Cells:
    """Return the cells of a pandas or polars column."""
    try:
        array = np.asarray(column)
        kind = getattr(column.dtype, "kind", array.dtype.kind)
        if kind in "fiub":  # with values for missing numbers, too
            return Cells(as_floats(column), {})
        if array.dtype.kind in "mM":
            known = int(np.count_nonzero(~np.isnat(array)))
            return Cells(np.full(len(array), np.nan), {np.datetime64: known} if known else {})
    except (TypeError, ValueError, OverflowError):
        pass
    return cells_of(column.to_list())


def _array_cells(part: Any, place: int) -> Cells:
    """Return a column of an array or a sparse matrix."""
    column = part[:, place]
    column = column.toarray().reshape(-1) if is_sparse(part) else column
    return Cells(as_floats(column), {}) if column.dtype.kind in "fiub" else cells_of(column.tolist())


def _rows(rows: Sequence[Any], names: Sequence[str], places: Sequence[int], limit: int) -> Iterator[CellBlock]:
    """Yield the cells of rows in a list. A row that is none, or has another length, is unreadable."""
    for start in range(0, min(len(rows), limit), BLOCK_ROWS):
        part, good = rows[start : min(start + BLOCK_ROWS, limit)], []
        for row in part:
            if isinstance(row, Mapping):
                by_name = {str(name): cell for name, cell in row.items()}
                good.append([by_name.get(name) for name in names])
            elif not isinstance(row, (str, bytes)) and hasattr(row, "__len__") and len(row) == len(names):
                good.append(list(row))
        yield CellBlock([cells_of([row[place] for row in good]) for place in places], len(part) - len(good))
