"""Rows from Parquet files, a batch at a time, through pyarrow (the extra ``parquet``)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from streampca.errors import SourceError
from streampca.linalg.counts import check_count
from streampca.linalg.types import FloatArray
from streampca.sources.base import (
    BLOCK_ROWS,
    BlockSource,
    BoundsLike,
    as_bounds,
    as_path,
    check_missing,
    choose,
    feature_names,
)

#: What pyarrow also raises on damaged files.
_DAMAGE = (ValueError, TypeError, KeyError, OverflowError, MemoryError)


class ParquetRows(BlockSource):
    """The rows of a Parquet file; made by `from_parquet`.

    Attributes
    ----------
    path : the file.
    n_rows : how many rows it has, as its footer says.
    features : names of the columns read.
    bounds : their public bounds, or None.
    columns : the same names as the file spells them.
    """

    def __init__(
        self,
        path: Path,
        *,
        columns: Sequence[str | int] | None,
        bounds: BoundsLike,
        missing: str,
        chunk_rows: int,
    ) -> None:
        self.path = path
        self._nan = check_missing(missing)
        self._chunk_rows = chunk_rows
        with self.open() as file, self._told("cannot be read as Parquet"):
            schema = file.schema_arrow
            self.n_rows: int = file.metadata.num_rows
        names = list(schema.names)
        if not names or self.n_rows == 0:
            raise SourceError(f"{path}: no rows; check the path")
        places = choose(names, columns, str(path))
        self.features = feature_names(names, places)
        self._check_types([(names[place], schema.field(place).type) for place in places], columns is None, schema)
        # pyarrow selects by name, and reads every column of an ambiguous one.
        self.columns: list[str] = [names[place] for place in places]
        if any(names.count(name) > 1 for name in self.columns):
            raise SourceError(f"{path}: a chosen column shares its name with another; rename one")
        self.bounds = as_bounds(bounds, self.features, names)

    def blocks(self) -> Iterator[FloatArray]:
        """The rows from the start of the file, at most ``chunk_rows`` in a block."""
        start = 0
        file = self.open()
        with self._told("damaged"):
            batches = file.iter_batches(batch_size=self._chunk_rows, columns=self.columns, use_threads=False)
        with file:
            while True:
                with self._told(f"damaged after row {start}"):
                    batch = next(batches, None)
                    rows = None if batch is None else self._rows(batch)
                if rows is None:
                    return
                if rows.shape[0]:
                    yield from self._checked(rows, start)
                start += rows.shape[0]

    def _rows(self, batch: Any) -> FloatArray:
        rows = np.empty((batch.num_rows, len(self.columns)))
        for at, name in enumerate(self.columns):
            rows[:, at] = as_floats(batch.column(name))
        return rows

    def __len__(self) -> int:
        return self.n_rows

    def __repr__(self) -> str:
        return f"<ParquetRows {self.path.name!r} {self.n_rows} rows, {self._describe()}>"

    def open(self) -> Any:
        """The file, as pyarrow's ``ParquetFile``."""
        pq = _pyarrow_parquet()
        with self._told("cannot be read as Parquet"):
            return pq.ParquetFile(self.path, pre_buffer=False)

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        import pyarrow as pa

        try:
            yield
        except (OSError, pa.ArrowException, *_DAMAGE) as error:
            raise SourceError(f"{self.path}: {what}: {error}; check the path, or make the file again") from error

    def _check_types(self, chosen: list[tuple[str, Any]], every: bool, schema: Any) -> None:
        bad = [(name, kind) for name, kind in chosen if not _is_number(kind)]
        if bad:
            good = [name for name in schema.names if _is_number(schema.field(name).type)] if every else []
            remedy = f"columns={good}" if 0 < len(good) <= 12 else "columns="
            raise SourceError(
                f"{self.path}: column {', '.join(f'{name!r} ({kind})' for name, kind in bad[:6])} "
                f"does not hold numbers; leave it out with {remedy}"
            )

    def _checked(self, rows: FloatArray, start: int) -> Iterator[FloatArray]:
        """The rows, or those before the first missing or infinite value and then an error."""
        finite = np.isfinite(rows)
        if self._nan or finite.all():
            yield rows
            return
        bad, at = (int(place) for place in np.argwhere(~finite)[0])
        if bad:
            yield rows[:bad]
        what = "missing" if np.isnan(rows[bad, at]) else "infinite"
        raise SourceError(
            f"{self.path}, row {start + bad + 1}: column {self.features[at]!r} is {what}; "
            "pass missing='nan', and Stream(on_bad_row='zero') to absorb such rows as zero rows"
        )


def _is_number(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind))


def as_floats(column: Any) -> FloatArray:
    """The numbers of an Arrow column; nan where a value is missing."""
    import pyarrow as pa
    import pyarrow.types as types

    if types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if types.is_float16(column.type):
        column = column.cast(pa.float32())
    # Not "safe": integers past 2**53 are rounded, as they are in any float.
    floats: FloatArray = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return floats


def _pyarrow_parquet() -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise SourceError("Parquet files need pyarrow; install it with pip install 'streampca[parquet]'") from error
    return pq


def from_parquet(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str | int] | None = None,
    bounds: BoundsLike = None,
    missing: str = "raise",
    chunk_rows: int = BLOCK_ROWS,
) -> ParquetRows:
    """Rows of numbers from a Parquet file, read in batches.

    Memory holds one row group of the chosen columns at most. Booleans are 0
    and 1, decimals and large integers are rounded to floats.

    Parameters
    ----------
    path : the file.
    columns : names or positions of the columns to read, in that order; None for all.
    bounds : public bounds of the columns, as in `from_csv`.
    missing : "raise" makes a null, NaN or infinite value an error; "nan"
        passes it on, so that ``Stream(on_bad_row=...)`` decides.
    chunk_rows : most rows in a block.

    Returns
    -------
    A source of rows for ``Stream.run``, with ``features`` and ``bounds``.

    Raises
    ------
    SourceError
        Here, if pyarrow is missing, the file cannot be read, has no rows or
        lacks a column, or a column does not hold numbers; while reading, at
        the first row that is missing a value, after every row before it.
    """
    check_count("chunk_rows", chunk_rows)
    return ParquetRows(as_path(path), columns=columns, bounds=bounds, missing=missing, chunk_rows=chunk_rows)
