"""Parquet files as a row of tasks that other processes turn into blocks. Curator only, as the rows are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from streampca.blocks import BlockGram, Leaves
from streampca.errors import BadParameter, HorizonReached
from streampca.linalg.counts import check_count
from streampca.linalg.types import FloatArray
from streampca.sources.parquet import ParquetRows, as_floats, from_parquet
from streampca.stream import Stream

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
#: Rows of a task: some 0.1 s of work at 64 features.
TASK_ROWS = 2**16
_BATCH_ROWS = 2**13


@dataclass(frozen=True)
class FileRange:
    """Some whole row groups of a file, less rows at their start that were taken before.

    Attributes
    ----------
    path, groups : the file, and numbers of its row groups.
    skip : rows of the first group that are not wanted.
    count : rows that are.
    before : rows of the stream that come before them.
    columns : names of the columns, in the order of features; None for all.
    """

    path: str
    groups: tuple[int, ...]
    skip: int
    count: int
    before: int
    columns: tuple[str, ...] | None

    def blocks(self, leaves: Leaves) -> list[BlockGram]:
        """The blocks of these rows; runs wherever it is sent."""
        return list(leaves.blocks(self._rows(), self.before))

    def _rows(self) -> Iterator[FloatArray]:
        # What is missing or not finite is left to the row gate, which goes by on_bad_row.
        source = from_parquet(self.path, columns=self.columns, missing="nan")
        skip = self.skip
        with source.open() as file:
            groups, names = list(self.groups), source.columns
            for batch in file.iter_batches(_BATCH_ROWS, row_groups=groups, columns=names, use_threads=False):
                if batch.num_rows > skip:
                    yield columns_as_rows(batch, names)[skip:]
                skip = max(0, skip - batch.num_rows)


def columns_as_rows(batch: Any, names: Sequence[str]) -> FloatArray:
    """Columns of an Arrow batch as an (n, d) array; nan where a value is missing."""
    rows = np.empty((batch.num_rows, len(names)))
    for at, name in enumerate(names):
        rows[:, at] = as_floats(batch.column(name))
    return rows


def file_ranges(
    stream: Stream, paths: Paths, columns: Sequence[str] | None, rows_per_task: int, before: int
) -> list[FileRange]:
    """Tasks for the rows of files that a stream has not seen, in order.

    ``before`` rows of the stream came from elsewhere, before these files.

    Raises
    ------
    BadParameter
        If there is no file, or the stream stands before the files or after them.
    HorizonReached
        If there are more rows than the stream takes.
    SourceError
        If a file cannot be read, or lacks a column.
    """
    check_count("rows_per_task", rows_per_task)
    names = tuple(columns) if columns is not None else stream.features
    named = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    found = [from_parquet(local_path(path), columns=names) for path in named]
    if not found:
        raise BadParameter("paths= names no file")
    done, total = stream.t - before, sum(source.n_rows for source in found)
    if not 0 <= done <= total:
        raise BadParameter(
            f"the stream stands at row {stream.t}, the {total} rows of these files come after row {before}; "
            "pass before= if rows from elsewhere came first"
        )
    left = stream.processor.rows_left
    if left is not None and total - done > left:
        raise HorizonReached(
            f"the files hold {total - done} rows that the stream has not seen, its horizon leaves room for {left}"
        )
    tasks: list[FileRange] = []
    at = before
    for source in found:
        tasks += _tasks(source, names, rows_per_task, at, stream.t)
        at += source.n_rows
    return tasks


def _tasks(source: ParquetRows, names: tuple[str, ...] | None, size: int, at: int, t: int) -> Iterator[FileRange]:
    with source.open() as file:
        counts = [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]
    # Row groups that lie before row t as a whole are left out; one that holds it is read from there.
    ends = np.cumsum(counts, dtype=np.int64) + at
    start = len(list(takewhile(lambda end: end <= t, ends.tolist())))
    groups: list[int] = []
    for g in range(start, len(counts)):
        groups.append(g)
        rows = sum(counts[i] for i in groups)
        if rows >= size or g == len(counts) - 1:
            first = int(ends[g]) - rows
            skip = max(0, t - first)
            if rows > skip:
                yield FileRange(str(source.path), tuple(groups), skip, rows - skip, first + skip, names)
            groups = []


def has_rows(path: str) -> bool:
    """False for a Parquet file without rows, such as engines write for partitions in which there is nothing."""
    from pyarrow import ArrowException
    from pyarrow.parquet import read_metadata

    try:
        return bool(read_metadata(local_path(path)).num_rows)
    except (OSError, ArrowException):
        return True  # whoever reads it says what is wrong with it


def local_path(path: str | os.PathLike[str]) -> Path:
    """A path as every process on this machine or shared file system sees it.

    Raises
    ------
    BadParameter
        If it is an address that is not a file's.
    """
    text = os.fspath(path)
    parts = urlsplit(text)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if "://" in text:
        raise BadParameter(f"{text}: only files under a path can be read this way; use Spark's own reader for others")
    return Path(text).absolute()
