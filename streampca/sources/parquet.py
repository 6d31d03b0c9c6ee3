"""Rows from Parquet and Arrow IPC files, a batch at a time, through pyarrow (the extra ``parquet``)."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from streampca.errors import BadParameterError, SourceError, listed, reason, short
from streampca.linalg.types import FloatArray
from streampca.rows.protocol import arrow_rows, is_number
from streampca.sources.base import (
    BLOCK_ROWS,
    NAME_THEM,
    REMEDY,
    BlockSource,
    BoundsLike,
    choose_named,
    columns_remedy,
    feature_names,
    source_bounds,
)
from streampca.sources.reading import Reading
from streampca.sources.text_files import ByteFile, Readable

#: Rows and numbers that pyarrow decodes at a time: 32 MB at most, from 8192 rows on.
_BATCH_ROWS, _BATCH_NUMBERS = 2**16, 2**22
#: Further exceptions of pyarrow on damaged files.
_DAMAGE = (ValueError, TypeError, KeyError, OverflowError, MemoryError)


class ColumnarRows(BlockSource):
    """Rows of typed columns of the file ``path``: the base class of `ParquetRows` and `ArrowRows`."""

    def __init__(
        self, path: Any, schema: Any, columns: Sequence[str | int] | None, bounds: BoundsLike, reading: dict[str, Any]
    ) -> None:
        options = Reading(**reading).only(type(self).__name__, "on_bad_row", "missing", "chunk_rows")
        # In a typed column, the only bad values are missing and infinite ones: to absorb them is to pass them on.
        self._lenient, self._chunk_rows, self.path = options.is_lenient, options.chunk_rows, path
        with damage(path, "cannot be read"):  # a name that is not UTF-8
            names = list(schema.names)
        if not names:
            raise SourceError(f"{path}: no columns; check the path")
        places = choose_named(names, columns, str(path), NAME_THEM, given=columns)
        self.features = feature_names(names, places)
        kinds = [(names[place], schema.field(place).type) for place in places]
        if bad := [(name, kind) for name, kind in kinds if not is_number(kind)]:
            good = [name for name in names if is_number(schema.field(name).type)] if columns is None else []
            raise SourceError(
                f"{path}: column {listed(name for name, _ in bad)} ({str(bad[0][1])[:40]}) "
                f"does not hold numbers; leave it out with {columns_remedy(good)}"
            )
        # pyarrow selects by name, and reads every column of an ambiguous one.
        self.columns: list[str] = [names[place] for place in places]
        if any(names.count(name) > 1 for name in self.columns):
            raise SourceError(f"{path}: a chosen column shares its name with another; rename one")
        self.bounds = source_bounds(bounds, self.features, names)

    @abstractmethod
    def _batches(self) -> Iterator[Any]:
        """Yield the rows as Arrow batches that hold the columns."""

    def blocks(self) -> Iterator[FloatArray]:
        start = 0
        blocks = chain.from_iterable(arrow_rows(batch, self.columns, self._chunk_rows) for batch in self._batches())
        while True:
            with damage(self.path, f"damaged after row {start}"):
                rows = next(blocks, None)
            if rows is None:
                return
            if not (self._lenient or (finite := np.isfinite(rows)).all()):
                # The rows before a bad one are an exact prefix.
                bad, at = map(int, np.argwhere(~finite)[0])
                if bad:
                    yield rows[:bad]
                kind = "missing" if np.isnan(rows[bad, at]) else "infinite"
                name = short(self.features[at])
                raise SourceError(f"{self.path}, row {start + bad + 1}: column {name} is {kind}; {REMEDY}")
            yield rows
            start += len(rows)


class ParquetRows(ColumnarRows):
    """Rows of numbers from a Parquet file, read in batches; also called `from_parquet`.

    Memory holds one row group of the chosen columns at most. Booleans are 0 and 1. Decimals and large integers are
    rounded to floats.

    Parameters
    ----------
    path : the file.
    columns, bounds : as in `from_csv`.
    reading : ``on_bad_row``, ``missing`` and ``chunk_rows`` of `Reading`. In typed columns a row can be bad only by a
        null, NaN or infinite value, so that ``on_bad_row="zero"`` is the same as ``missing="nan"``.

    Attributes
    ----------
    n_rows : number of rows in the file, from its footer.

    Raises
    ------
    SourceError
        By the constructor, if the file cannot be read, has no rows or lacks a column, or a column does not hold
        numbers. While reading, at the first row that is missing a value, after every row before it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        columns: Sequence[str | int] | None = None,
        bounds: BoundsLike = None,
        **reading: Any,
    ) -> None:
        if path == "-":
            raise BadParameterError("path='-': Parquet cannot be read from a pipe. Write Arrow's streaming format")
        if not isinstance(path, (str, os.PathLike)):
            raise BadParameterError(f"path={short(path)}: expected the path of a file. Pass rows in memory directly")
        self.path = Path(path)
        # The footer gives names, types and the number of rows without reading any row.
        with self.open() as file, damage(path, "cannot be read as Parquet"):
            schema = file.schema_arrow
            self.n_rows: int = file.metadata.num_rows
        if self.n_rows == 0:
            raise SourceError(f"{path}: no rows; check the path")
        super().__init__(self.path, schema, columns, bounds, reading)

    def __len__(self) -> int:
        return self.n_rows

    def open(self) -> Any:
        """Return the file, open, as pyarrow's ``ParquetFile``."""
        with damage(self.path, "cannot be read as Parquet"):
            import pyarrow.parquet as pq

            return pq.ParquetFile(self.path, pre_buffer=False)

    def _batches(self) -> Iterator[Any]:
        with self.open() as file:
            yield from read_batches(file, self.columns, small=self._chunk_rows)


class ArrowRows(ColumnarRows):
    """Rows of numbers from an Arrow IPC file (Feather), or a stream in Arrow's streaming format; also `from_arrow`.

    Memory holds one record batch at most.

    Parameters
    ----------
    path : the file, a named pipe, ``"-"`` for standard input, or a binary stream.
    columns, bounds, reading : as in `from_parquet`.

    Raises
    ------
    SourceError
        As `from_parquet`.
    """

    def __init__(
        self, path: Readable, *, columns: Sequence[str | int] | None = None, bounds: BoundsLike = None, **reading: Any
    ) -> None:
        self._file = ByteFile(path)
        # Only a stream that can be read once stays open after the constructor.
        stream, reader = self._opened()
        with ExitStack() as stack:
            stack.callback(stream.close)
            super().__init__(self._file.name, reader.schema, columns, bounds, reading)
            if self._file.once:
                self._file.begun = stream, reader
                stack.pop_all()

    def _opened(self) -> tuple[Any, Any]:
        """Return the stream, and pyarrow's reader of the file format or of the streaming format."""
        with damage(self._file.name, "cannot be read as Arrow IPC"), ExitStack() as stack:
            from pyarrow import ipc

            stream = stack.enter_context(self._file.open())
            is_file = stream.peek(6)[:6] == b"ARROW1"
            if is_file and self._file.once:
                raise SourceError(f"{self._file.name}: a pipe holds Arrow's streaming format only, not its files")
            reader = ipc.open_file(stream) if is_file else ipc.open_stream(stream)
            stack.pop_all()
        return stream, reader

    def _batches(self) -> Iterator[Any]:
        stream, reader = self._file.start(self._opened)
        with stream:
            if hasattr(reader, "num_record_batches"):
                yield from map(reader.get_batch, range(reader.num_record_batches))
            else:
                yield from reader


def read_batches(
    file: Any, columns: Sequence[str], groups: Sequence[int] | None = None, *, small: int = BLOCK_ROWS
) -> Iterator[Any]:
    """Yield the columns of some row groups of a ``ParquetFile``, in batches that justify the overhead of a call.

    Large row groups are read one by one, so that a damaged one costs no row of those before it. If groups are smaller
    than a block, batches of ``small`` rows span several.
    """
    metadata, options = file.metadata, {"columns": columns, "use_threads": False}
    if metadata.num_rows < BLOCK_ROWS * metadata.num_row_groups:
        yield from file.iter_batches(small, row_groups=groups, **options)
        return
    size = min(_BATCH_ROWS, max(BLOCK_ROWS, _BATCH_NUMBERS // len(columns)))
    for group in range(metadata.num_row_groups) if groups is None else groups:
        yield from file.iter_batches(size, row_groups=[group], **options)


@contextmanager
def damage(where: object, problem: str) -> Iterator[None]:
    """Turn every error of pyarrow on a file, and its absence, into a `SourceError`."""
    try:
        import pyarrow as pa

        yield
    except ImportError as error:
        raise SourceError(f"{where}: needs pyarrow; install it with pip install 'streampca[parquet]'") from error
    except (OSError, pa.ArrowException, *_DAMAGE) as error:
        if isinstance(error, SourceError):
            raise
        raise SourceError(f"{where}: {problem}: {reason(error)}; check the path, or make the file again") from error


from_parquet = ParquetRows
from_arrow = ArrowRows
