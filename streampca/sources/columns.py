"""Tables of every kind, column by column, with cells that are no numbers: `open_columns`, for `sp.check`.

Rows for a release are opened by `open_rows` and `as_source`, which turn the row of such a cell into a bad one. Here
cells are passed on. Names, records and missing values are the same.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from streampca.conversion import arrow_reader, as_floats, framed, is_arrow, is_frame, is_sparse
from streampca.errors import BadParameterError, SourceError, UsageError
from streampca.rows.names import MISSING, NAME_THEM, refuse_values
from streampca.rows.protocol import arrow_rows, is_number
from streampca.sources.base import BLOCK_ROWS, choose_named, feature_names
from streampca.sources.csv_cells import CellParser
from streampca.sources.csv_rows import CsvRows
from streampca.sources.files import format_of, matching
from streampca.sources.ndjson_rows import NdjsonRows
from streampca.sources.parquet import damage, read_batches
from streampca.sources.reading import Reading
from streampca.sources.records import split_records

_WHOLE = (
    "a table, or the path of a regular file: a pipe, a topic or a generator can be read only once, and nothing would "
    "be left for the release"
)


class CellBlock(NamedTuple):
    """Columns of readable rows, each numbers with nan for missing ones or a list of cells, and the unreadable rows."""

    columns: Sequence[Any]
    unreadable: int = 0


@dataclass(frozen=True)
class ColumnTable:
    """Columns of a table: the ``names`` of the chosen ones, and ``blocks``, which reads them from the first row on.

    ``missing`` are the texts that stand for a missing value.
    """

    names: tuple[str, ...]
    blocks: Callable[[], Iterator[CellBlock]]
    missing: frozenset[str] = MISSING


def open_columns(
    data: Any, columns: Sequence[str | int] | None = None, read: Reading | None = None, format: str | None = None  # noqa: A002
) -> ColumnTable:  # fmt: skip
    """Open a table in memory, or the files of a path or pattern; parameters and errors are those of `sp.check`."""
    if not isinstance(read, Reading | None):
        raise BadParameterError("read", read, "a Reading")
    if isinstance(data, (str, os.PathLike)):
        options = {} if read is None else {one.name: getattr(read, one.name) for one in fields(read)}
        if options.get("follow"):
            raise BadParameterError("follow", True, "False: check reads a whole file")
        files = [_file(path, columns, options, format) for path in matching(data)]
        if any(file.names != files[0].names for file in files):
            raise SourceError(None, "the files of the pattern have different columns; choose with columns=")
        return ColumnTable(files[0].names, lambda: (b for file in files for b in file.blocks()), files[0].missing)
    if read is not None:
        raise UsageError("read= holds options for files. Omit it for rows in memory")
    data = framed(data)
    if is_frame(data):
        labels, slices = list(data.columns), getattr(data, "iloc", data)
        return _sliced(labels, columns, slices, len(data), lambda part, at: part[labels[at]])
    if is_arrow(data) and not hasattr(data, "read_next_batch"):  # a reader would be empty for the release
        labels = arrow_reader(data).schema.names
        return _chosen(labels, columns, lambda places: _batches(arrow_reader(data), [labels[at] for at in places]))
    if hasattr(data, "shape") and len(data.shape) == 2:
        rows, names = data.tocsr() if is_sparse(data) else data, [f"x{j}" for j in range(data.shape[1])]
        dense = (lambda part, at: part[:, [at]].toarray()[:, 0]) if is_sparse(data) else (lambda part, at: part[:, at])
        return _sliced(names, columns, rows, rows.shape[0], dense)
    if not isinstance(data, (list, tuple)):
        raise BadParameterError("data", data, _WHOLE, advice="For rows that arrive one by one use sp.Stream")
    first: Any = data[0] if data else ()
    if isinstance(first, Mapping):
        names = [str(name) for name in (first if columns is None else columns)]
    elif isinstance(first, (str, bytes)) or not hasattr(first, "__len__"):
        raise BadParameterError("data", ..., "rows, each a sequence of cells or a mapping by name")
    else:
        names = list(getattr(first, "_fields", [f"x{j}" for j in range(len(first))]))
    return _chosen(names, columns, lambda places: _rows(data, names, places))


def _chosen(
    labels: Sequence[Any], columns: Sequence[str | int] | None, blocks: Callable[[Sequence[int]], Iterator[CellBlock]]
) -> ColumnTable:  # fmt: skip
    """Return the chosen columns of a table in memory; ``blocks`` reads those at given positions."""
    if columns is None:
        refuse_values(labels, "the table", NAME_THEM)
    names = [str(label) for label in labels]
    places = choose_named(names, columns, "the table", NAME_THEM, given=names)
    if not places:
        raise BadParameterError("data", ..., "a table with at least one column")
    return ColumnTable(feature_names(names, places), partial(blocks, places))


def _sliced(
    labels: Sequence[Any], columns: Sequence[str | int] | None, rows: Any, count: int, cells: Callable[[Any, int], Any]
) -> ColumnTable:
    """Return a table whose ``rows`` have slices; ``cells`` returns a column of a slice."""

    def blocks(places: Sequence[int]) -> Iterator[CellBlock]:
        for start in range(0, count, BLOCK_ROWS):
            part = rows[start : start + BLOCK_ROWS]
            yield CellBlock([_plain(cells(part, place)) for place in places])

    return _chosen(labels, columns, blocks)


def _plain(column: Any) -> Any:
    """Return a column of an array or a frame as floats or as a list."""
    try:
        if getattr(column.dtype, "kind", np.asarray(column[:0]).dtype.kind) in "fiub":  # with missing values, too
            return as_floats(column)
    except (TypeError, ValueError, OverflowError):
        pass
    return column.tolist() if isinstance(column, np.ndarray) else column.to_list()


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
        return NdjsonColumns(path, columns=columns, **options).table()
    if kind == "tsv" and options.get("delimiter") is None:
        options = {**options, "delimiter": "\t"}
    return CsvColumns(path, columns=columns, **options).table()


class CsvColumns(CsvRows):
    """Cells of a CSV file, column by column; the parameters are those of `CsvRows`."""

    _needs_columns = False

    def table(self) -> ColumnTable:
        """Return the columns."""
        return ColumnTable(self.features, self._columns, self._missing)

    def _columns(self) -> Iterator[CellBlock]:
        mark = self._delimiter if self._quotes else None
        parser = CellParser(self._width, self._places, self._delimiter or ",", self._missing, quotes=self._quotes)
        texts: frozenset[str] = frozenset()  # columns with cells that are no numbers
        for piece in self._readable(self._start(lambda: self._opened()[1])):
            batch = parser.batch(piece, texts)
            if batch is None:
                batch = parser.batch(piece, frozenset(parser.wanted))
                texts = frozenset(name for name in parser.wanted if batch and _is_text(batch.column(name)))
            if batch is not None:
                yield CellBlock([_arrow_cells(column) for column in batch.columns])
                continue
            rows = [self._cells(record) for record in split_records(piece, mark)]
            good = [row for row in rows if row is not None and len(row) == self._width]
            yield CellBlock([[row[place] for row in good] for place in self._places], len(rows) - len(good))


class NdjsonColumns(NdjsonRows):
    """Cells of a file of JSON objects, key by key; the parameters are those of `NdjsonRows`."""

    def table(self) -> ColumnTable:
        """Return the columns."""
        return ColumnTable(self.features, self._columns, self._missing)

    def _columns(self) -> Iterator[CellBlock]:
        for piece in self._start(self._pieces):
            lines = split_records(piece, None)
            records = [record for line in lines if (record := self._record(line)) is not None]
            columns = [[record.get(name) for record in records] for name in self.features]
            yield CellBlock(columns, len(lines) - len(records))

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

    def blocks() -> Iterator[CellBlock]:
        with damage(path, "is damaged"), pq.ParquetFile(path, pre_buffer=False) as file:
            yield from _batches(read_batches(file, chosen), chosen)

    return ColumnTable(feature_names(names, places), blocks)


def _batches(batches: Iterable[Any], names: Sequence[str]) -> Iterator[CellBlock]:
    for batch in batches:
        for start in range(0, batch.num_rows, BLOCK_ROWS):  # batches may be as large as the table
            part = batch.slice(start, BLOCK_ROWS)
            yield CellBlock([_arrow_cells(part.column(name)) for name in names])


def _is_text(column: Any) -> bool:
    import pyarrow as pa

    try:
        column.cast(pa.float64())
    except pa.ArrowInvalid:
        return True
    return False


def _arrow_cells(column: Any) -> Any:
    """Return an Arrow array of any type as floats or as a list."""
    if not is_number(column.type):
        return column.to_pylist()
    import pyarrow as pa

    blocks = arrow_rows(pa.record_batch([column], ["x"]), ["x"], max(len(column), 1))
    return next(blocks, np.empty((0, 1)))[:, 0]


def _rows(rows: Sequence[Any], names: Sequence[str], places: Sequence[int]) -> Iterator[CellBlock]:
    """Yield the cells of rows in a list. A row that is none, or has another length, is unreadable."""
    for start in range(0, len(rows), BLOCK_ROWS):
        part, good = rows[start : start + BLOCK_ROWS], []
        for row in part:
            if isinstance(row, Mapping):
                by_name = {str(name): cell for name, cell in row.items()}
                good.append([by_name.get(name) for name in names])
            elif not isinstance(row, (str, bytes)) and hasattr(row, "__len__") and len(row) == len(names):
                good.append(list(row))
        yield CellBlock([[row[place] for row in good] for place in places], len(part) - len(good))
