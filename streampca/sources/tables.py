"""Whole tables of every kind: the chosen columns of one in memory, and the cells of any, for `sp.pca` and `sp.check`.

A release turns the row of a cell that is no number into a bad one; here cells are passed on. All else is equal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from streampca.conversion import arrow_reader, as_floats, entries, framed, is_arrow, is_frame, is_sparse, table_columns
from streampca.errors import BadParameterError, SourceError, UsageError
from streampca.rows.names import MISSING, NO_TYPES, refuse_values
from streampca.rows.parquet import BLOCK_ROWS
from streampca.rows.protocol import list_lengths, sparse_blocks
from streampca.sources.base import NAME_THEM, choose, choose_named, columns_of_entries
from streampca.sources.files import format_of, matching, open_rows
from streampca.sources.ndjson_rows import NdjsonRows
from streampca.sources.parquet import ParquetRows
from streampca.sources.reading import Reading


class CellTable(NamedTuple):
    """Cells of a table: the names of its columns, and the texts of a missing value."""

    # ``blocks`` yields the columns of readable rows, each an array or a sequence, and the number of unreadable rows.

    names: tuple[str, ...]
    blocks: Callable[[], Iterator[tuple[Sequence[Any], int]]]
    missing: frozenset[str] = MISSING


def options_of(data: Any, read: Reading | None) -> dict[str, Any] | None:
    """Return the options for reading ``data``, the path of a regular file; None for rows in memory."""
    if not isinstance(read, Reading | None):
        raise BadParameterError("read", read, "a Reading")
    if not isinstance(data, (str, os.PathLike)):
        if read is not None:
            raise UsageError("read= holds options for files. Omit it for rows in memory")
        return None
    options = vars(read or Reading())
    # A pipe would be empty for a second reading. A path that is not there is refused by its reader.
    if options["follow"] or str(data) == "-" or (os.path.exists(data) and not os.path.isfile(data)):
        raise _not_whole(str(data))
    return options


def choose_columns(
    data: Any, columns: Sequence[str | int] | None, *, has_types: bool = True
) -> tuple[Any, tuple[str, ...]]:
    """Return the chosen columns of a table in memory, as a frame, an Arrow table or an array, and their names."""
    # With ``has_types``, tables whose types follow from rows need ``columns``.
    data = framed(data)
    first = data[0] if isinstance(data, (list, tuple)) and data else ()
    # Types of pandas follow from the rows: one cell of text changes that of its column.
    if has_types and columns is None and (isinstance(first, Mapping) or hasattr(data, "iloc")):
        raise UsageError(f"the table {NO_TYPES}")
    labels, lengths = list[Any](), dict[str, int]()
    if isinstance(data, (list, tuple)):
        if isinstance(first, Mapping):
            labels, columns = list(map(str, first if columns is None else columns)), None
            refuse_values(labels if has_types else first, "the table", NAME_THEM)
        data = np.array([_listed(row, labels) for row in data], dtype=object)
        if data.ndim != 2:
            raise BadParameterError("data", ..., "rows of one length, each a sequence of cells or a mapping by name")
    if is_frame(data) or is_arrow(data):
        data = data if is_frame(data) else arrow_reader(data).read_all()  # a reader can be read only once
        labels = list(data.columns) if is_frame(data) else data.schema.names
        if has_types:
            columns, lengths = columns_of_entries(columns, [*map(str, labels)])
            lengths = ({} if is_frame(data) else list_lengths(data.schema)) | lengths
        trusted = [*(columns or ()), *(str(label) for label in labels if not isinstance(label, str))]
        places = list(choose_named([*map(str, labels)], columns, "the table", NAME_THEM, given=trusted))
        data = getattr(data, "iloc", data)[:, places] if is_frame(data) else data.select(places)
    elif len(getattr(data, "shape", ())) == 2:
        labels = labels or [f"x{j}" for j in range(data.shape[1])]
        places = list(choose(labels, columns, "the table"))
        if columns is not None:
            data = (data.tocsr() if is_sparse(data) else data)[:, places]
    else:
        raise _not_whole(data)
    if 0 in data.shape:
        raise SourceError(None, "the table has no rows or no columns; there is nothing to release")
    return data, entries([*table_columns([labels[place] for place in places], None, SourceError)], lengths)


def open_cells(
    data: Any, columns: Sequence[str | int] | None = None, read: Reading | None = None, format: str | None = None  # noqa: A002
) -> CellTable:  # fmt: skip
    """Open the cells of a table in memory, or of the files of a path or pattern."""
    if (options := options_of(data, read)) is not None:
        files = []
        for path in matching(data):
            kind, chosen = format_of(path, format), "all" if columns is None else columns
            if kind == "ndjson" and columns is None:
                chosen = NdjsonRows(path, columns=["x"], **options).first_keys()
                refuse_values(chosen, str(path), NAME_THEM)
            own = options | ({"any_type": True} if kind == "parquet" else {})
            files.append(open_rows(path, format=kind, columns=chosen, **own))
        if any(file.features != files[0].features for file in files):
            raise SourceError(None, "the files of the pattern have different columns; choose with columns=")
        missing = getattr(files[0], "_missing", MISSING)
        return CellTable(files[0].features, lambda: (block for file in files for block in _of_file(file)), missing)
    if hasattr(data, "read_next_batch"):  # would be empty for the release
        raise _not_whole(data)
    rows, names = choose_columns(data, columns, has_types=False)

    def blocks() -> Iterator[tuple[Sequence[Any], int]]:
        starts = range(0, rows.shape[0], BLOCK_ROWS)
        parts = (getattr(rows, "iloc", rows)[start : start + BLOCK_ROWS] for start in starts)
        yield from ((_by_column(part), 0) for part in (sparse_blocks(rows) if is_sparse(rows) else parts))

    return CellTable(names, blocks)


def _not_whole(data: Any) -> BadParameterError:
    return BadParameterError(
        "data", data, "a table, or the path of a regular file: a pipe, a topic or a generator can be read only once",
        advice="For rows that arrive one by one use sp.Stream",
    )  # fmt: skip


def _listed(row: Any, names: Sequence[str]) -> Any:
    if isinstance(row, Mapping):
        by_name = {str(name): cell for name, cell in row.items()}
        return [by_name.get(name) for name in names]
    return as_floats(row) if isinstance(row, np.ma.MaskedArray) else row  # numpy would drop the mask


def _of_file(file: Any) -> Iterator[tuple[Sequence[Any], int]]:
    if isinstance(file, ParquetRows):
        yield from ((_by_column(batch), 0) for batch in file.batches())
        return
    for rows in file.records():
        good = [row for row in rows if row is not None]
        yield list(zip(*good, strict=True)) or [()] * len(file.features), len(rows) - len(good)


def _by_column(part: Any) -> Sequence[Any]:
    frame = part if is_frame(part) or not is_arrow(part) else part.to_pandas()
    return [frame[label] for label in frame.columns] if is_frame(frame) else frame.T
