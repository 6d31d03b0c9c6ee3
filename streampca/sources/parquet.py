"""Rows from Parquet files, a batch at a time, through pyarrow (the extra ``parquet``)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from streampca.conversion import entries
from streampca.errors import BadParameterError, SourceError, UsageError, listed, short
from streampca.linalg.types import FloatArray
from streampca.rows.parquet import damage, read_batches
from streampca.rows.protocol import RowSource, arrow_blocks_with, holds, list_lengths
from streampca.sources.base import NAME_THEM, BoundsLike, choose_named, columns_of_entries, feature_names, source_bounds
from streampca.sources.reading import Reading


class ParquetRows(RowSource):
    """Rows of numbers from a Parquet file, read in batches; also called `from_parquet`.

    Memory holds one row group of the chosen columns at most. Booleans are 0 and 1. Decimals and large integers are
    rounded to floats.

    Parameters
    ----------
    path : the file.
    columns, bounds : as in `from_csv`. A column of lists stands for its entries, ``name[0]``, ``name[1]``, ...; if its
        type has no length, name all of them.
    any_type : whether columns that hold no numbers are accepted, for `batches`.
    reading : ``chunk_rows`` and ``beside`` of `Reading`.

    Attributes
    ----------
    n_rows : number of rows in the file, from its footer.

    Raises `SourceError` if the file cannot be read, has no rows or lacks a column, or a column does not hold numbers;
    and where it is damaged, after every row before that.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, columns: Sequence[str | int] | None = None, bounds: BoundsLike = None,
        any_type: bool = False, **reading: Any,
    ) -> None:  # fmt: skip
        if path == "-":
            raise UsageError("path='-': Parquet cannot be read from a pipe, because its types come last")
        if not isinstance(path, (str, os.PathLike)):
            raise BadParameterError("path", path, "the path of a file", advice="Pass rows in memory directly")
        options = Reading(**reading).only("Parquet", "chunk_rows", "beside")
        self._chunk_rows, self.path = options.chunk_rows, Path(path)
        # The footer gives names, types and the number of rows without reading any row.
        with self.open() as file, damage(path, "cannot be read as Parquet"):
            schema = file.schema_arrow
            names = list(schema.names)  # may fail, at a name that is not UTF-8
            self.n_rows: int = file.metadata.num_rows
        if self.n_rows == 0 or not names:
            raise SourceError(path, f"no {'columns' if self.n_rows else 'rows'}; check the path")
        given, lengths = columns_of_entries(columns, names)
        lengths = {} if any_type else list_lengths(schema) | lengths
        wanted = options.features(names) if given is None else given
        places = choose_named(names, wanted, str(path), NAME_THEM, given=given)
        # pyarrow selects by name, and reads every column of an ambiguous one.
        self.columns: list[str] = [names[place] for place in places]
        if any(names.count(name) > 1 for name in self.columns):
            raise SourceError(path, "a chosen column shares its name with another; rename one")
        kinds = {name: schema.field(name).type for name in self.columns}
        if bad := [name for name in kinds if not (any_type or holds(kinds[name], lengths.get(name, 0)))]:
            good = [name for name in self.columns if name not in bad] if columns is None else []
            remedy = f"leave it out with columns={good if good and len(repr(good)) <= 80 else ''}"
            if bad[0] in lengths:
                remedy = f"name all entries of its lists, columns=[{short(bad[0] + '[0]')}, ...]"
            raise SourceError(
                path, f"column {listed(bad)} ({str(kinds[bad[0]])[:40]}) does not hold numbers; {remedy}"
            )  # fmt: skip
        self._entries = entries(self.columns, lengths)
        public = dict(zip(feature_names(names, places), (lengths.get(name, 0) for name in self.columns), strict=True))
        self.features = entries([*public], public)
        self.bounds = source_bounds(bounds, self.features, names)

    def open(self) -> Any:
        """Return the file, open, as pyarrow's ``ParquetFile``."""
        with damage(self.path, "cannot be read as Parquet"):
            import pyarrow.parquet as pq

            return pq.ParquetFile(self.path, pre_buffer=False)

    def batches(self) -> Iterator[Any]:
        """Yield the rows as Arrow batches."""
        with self.open() as file, damage(self.path, "is damaged"):
            yield from read_batches(file, self.columns)

    def blocks_with(self, names: Sequence[str]) -> Iterator[tuple[FloatArray, list[Sequence[Any]]]]:
        start, size = 0, self._chunk_rows
        with self.open() as file:
            if names:
                choose_named(file.schema_arrow.names, names, str(self.path), NAME_THEM, given=names)
            batches = read_batches(file, [*self.columns, *names], small=size, numbers=len(self._entries))
            blocks = chain.from_iterable(arrow_blocks_with(batch, self._entries, names, size) for batch in batches)
            while True:
                with damage(self.path, f"damaged after row {start}"):
                    block = next(blocks, None)
                if block is None:
                    return
                yield block
                start += len(block[0])

    def blocks(self) -> Iterator[FloatArray]:
        return (rows for rows, _ in self.blocks_with(()))


from_parquet = ParquetRows
