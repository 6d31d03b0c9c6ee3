"""Conversion of rows of any kind to arrays and frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from streampca.errors import BadRowError, SourceError, StreamPCAError, listed, short
from streampca.linalg.types import FloatArray

#: Attributes of Arrow tables, batches and streams, and of objects that convert to them, such as a DuckDB relation.
_ARROW = ("__arrow_c_stream__", "__arrow_c_array__", "fetch_arrow_reader")
#: Kinds of numpy types that convert to floats but are not real numbers: complex ones, dates, times, records.
_NOT_REAL = "cMmV"
#: Types of cells that numpy converts to floats with a warning. The warning would depend on a raw row.
WARNED_OF = {
    np.complex64, np.complex128, np.clongdouble, np.longdouble, np.ndarray, np.ma.MaskedArray, type(np.ma.masked),
}  # fmt: skip
#: Message for a column of a table that has another type.
NOT_NUMBERS = "column {} of the table ({}) does not hold numbers. Omit it, encode it, or name the entries of its lists."


def as_floats(values: Any) -> FloatArray:
    """Convert real numbers of any kind to an array of floats, with nan for masked values.

    Raises TypeError, ValueError or OverflowError if they are not real numbers.
    """
    if isinstance(values, (list, tuple)):
        values = [as_floats(one) if isinstance(one, np.ma.MaskedArray) else one for one in values]
    else:
        array = np.asanyarray(values)
        for kind in (array.dtype, getattr(values, "dtype", None)):  # pandas converts times with a zone to objects
            if getattr(kind, "kind", "O") in _NOT_REAL:
                raise TypeError(f"values of type {kind} are not real numbers")
        if isinstance(array, np.ma.MaskedArray):
            array = np.ma.filled(array.astype(np.float64), np.nan)
        if not array.dtype.hasobject:  # pandas converts missing values of an array of objects to nan below
            values = array
    with np.errstate(over="ignore"):  # numbers wider than floats
        return np.asarray(values, dtype=np.float64)


@lru_cache(maxsize=8)  # asked for each file and each batch of rows
def column_runs(names: tuple[str, ...], columns: tuple[str, ...]) -> Mapping[str, int]:
    """Return the columns that hold these features, in order, with the length of their lists; 0 for single numbers.

    ``name[0]``, ``name[1]``, ... are the entries of a column of lists. Raises `KeyError` for a name without a column.
    """
    runs, known = dict[str, int](), set(columns)
    for name in names:
        if name in known and name not in runs:
            runs[name] = 0
            continue
        column, _, place = name.removesuffix("]").rpartition("[")
        # In order and without gaps: a list is copied as a whole.
        if column not in known or place != str(runs.get(column, 0)) or (column in runs and column != [*runs][-1]):
            raise KeyError(name)
        runs[column] = runs.get(column, 0) + 1
    return runs


def entries(columns: Sequence[str], lengths: Mapping[str, int], d: int | None = None) -> tuple[str, ...]:
    """Replace columns of lists by the names of their entries, as in `column_runs`.

    ``lengths`` has the columns of lists, with 0 where their type has no length. One such column has the entries that
    are left of ``d`` features.
    """
    widths = {name: lengths.get(name, 0) for name in columns}
    unknown = [name for name in columns if lengths.get(name) == 0]
    if len(unknown) == 1 and d is not None:
        widths[unknown[0]] = max(0, d - sum(max(1, widths[name]) for name in columns if name != unknown[0]))
    return tuple(one for name in columns for one in [f"{name}[{i}]" for i in range(widths[name])] or [name])


def table_columns(
    labels: Sequence[Any], features: Sequence[str] | None, error: type[StreamPCAError]
) -> dict[str, Any]:  # fmt: skip
    """Return the labels of a table's columns by name, in the order of the features or else of the table.

    Raises ``error`` unless the columns hold the features (`column_runs`), each once, and nothing else.
    """
    # Features have names of text; a frame may have labels of any type.
    named = {str(label): label for label in labels}
    if len(named) != len(labels):
        raise error(None, "two columns of the table have one name. Rename one of them")
    try:
        wanted = dict(column_runs(tuple(named if features is None else features), tuple(named)))
    except KeyError:
        wanted = dict.fromkeys(features or (), 0)
    if wanted.keys() != named.keys():
        lacks, others = listed(sorted(wanted.keys() - named.keys())), listed(sorted(named.keys() - wanted.keys()))
        raise error(None, f"the table lacks columns [{lacks}] and has others, [{others}]. Select the stream's columns")
    return {name: named[name] for name in wanted}


def frame_values(
    frame: Any, columns: Mapping[str, Any], error: type[StreamPCAError], features: Sequence[str] | None = None
) -> npt.NDArray[Any]:  # fmt: skip
    """Return columns of a pandas or polars frame, (n, d). Raises ``error`` at a column that does not hold numbers.

    Where ``features`` are entries of lists, a list that is missing or has another length is a row of nan.

    One bad cell may determine the type of a pandas column, and spoils its own row only: a column of objects or text is
    returned unchanged, and complex numbers become nan.
    """
    arrays = []
    for (name, label), width in zip(
        columns.items(), column_runs(tuple(features or columns), tuple(columns)).values(), strict=True
    ):
        column = frame[label]
        if width:
            arrays.append(list_cells(column, width))
            continue
        kind, values = getattr(column.dtype, "kind", ""), None
        if kind == "c":
            values = np.asarray(column)
            values = np.where(values.imag == 0.0, values.real, np.nan)
        # Leave such cells to the admission, which refuses them one by one without a warning.
        elif kind == "O" and not WARNED_OF.isdisjoint(map(type, np.asarray(column, dtype=object).tolist())):
            values = np.asarray(column, dtype=object)
        else:
            try:
                values = as_floats(column)
            except (TypeError, ValueError, OverflowError):
                values = np.asarray(column, dtype=object) if kind == "O" else None
        if values is None or values.ndim != 1:  # polars has columns of arrays and structs
            raise error(None, NOT_NUMBERS.format(short(name), column.dtype))
        arrays.append(values)
    return np.column_stack(arrays)


def list_cells(column: Iterable[Any], width: int) -> FloatArray:
    """Return lists or arrays of numbers as (n, width); rows of nan for other cells."""
    cells = [*column]
    rows = np.full((len(cells), width), np.nan)
    for row, cell in zip(rows, cells, strict=True):
        try:
            if len(cell) == width and WARNED_OF.isdisjoint(map(type, cell)):
                row[:] = as_floats(cell)
        except (TypeError, ValueError, OverflowError):
            row[:] = np.nan
    return rows


def is_frame(rows: Any) -> bool:
    """Return whether rows are a pandas or polars frame."""
    return hasattr(rows, "to_numpy") and hasattr(rows, "columns")


def is_arrow(rows: Any) -> bool:
    """Return whether rows are an Arrow table, batch or stream, or anything that becomes one."""
    return any(hasattr(rows, name) for name in _ARROW)


def is_sparse(rows: Any) -> bool:
    """Return whether rows are a scipy sparse matrix."""
    return hasattr(rows, "tocsr") and len(rows.shape) == 2


def framed(rows: Any) -> Any:
    """Convert a pandas or polars series to a frame of one feature; return anything else unchanged."""
    if not hasattr(rows, "to_frame") or hasattr(rows, "columns"):
        return rows
    return rows.to_frame() if getattr(rows, "name", None) != "" else rows.to_frame(name="x0")


def arrow_reader(table: Any) -> Any:
    """Return the batches of an Arrow table, batch or stream as a ``pyarrow.RecordBatchReader``.

    Raises `SourceError` if pyarrow is not installed, for an array, which has no columns, and if reading fails.
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise SourceError("Arrow", "needs pyarrow. Install it with pip install 'streampca[parquet]'") from error
    try:
        if hasattr(table, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(table)
        elif hasattr(table, "fetch_arrow_reader"):  # a DuckDB relation of an old version
            reader = table.fetch_arrow_reader()
        else:
            return pa.Table.from_batches([pa.record_batch(table)]).to_reader()
    except pa.ArrowInvalid:
        kind = short(type(table).__name__)
        raise SourceError(None, f"rows of Arrow type {kind}: expected a table. Pass array.to_pylist()") from None
    except Exception as problem:
        raise unreadable("the table", problem) from None

    def batches() -> Iterator[Any]:
        try:
            yield from reader
        except Exception as problem:
            raise unreadable("the table", problem) from None

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def unreadable(what: str, problem: Exception) -> SourceError:
    """Return the error for a table, query or file that fails while rows are read."""
    # Privacy: the text of the problem may quote a cell, such as one that is no number.
    kind = type(problem).__name__
    return SourceError(None, f"{what} cannot be read ({kind}). Read it with the program that made it to see why")


def check_iterable(rows: Any) -> None:
    """Raise `BadRowError` unless rows are an iterable of rows."""
    if isinstance(rows, (str, PathLike)):
        raise BadRowError(None, f"rows={short(rows)}: expected rows. Read a file with sources.open_rows(path)")
    if not isinstance(rows, Iterable) or isinstance(rows, (bytes, Mapping, set, frozenset)):
        raise BadRowError(None, f"rows of type {type(rows).__name__}: expected a table or a sequence of rows")


def as_block(rows: Any) -> Any:
    """Convert rows of any kind to an array, a pandas or polars frame, or a list or tuple of rows.

    Others are a series, which is one feature; an Arrow table, batch or stream, such as a DuckDB relation; a scipy
    sparse matrix; an iterable of rows. Raises `BadRowError` for anything else, `SourceError` if pyarrow is missing.
    """
    rows = framed(rows)
    if isinstance(rows, (np.ndarray, list, tuple)) or is_frame(rows):
        return rows
    if is_arrow(rows):
        return arrow_reader(rows).read_pandas()
    if is_sparse(rows):
        return rows.toarray()
    check_iterable(rows)
    return list(rows)
