"""Parquet files through several processes of one machine: the same releases as through one, bit for bit.

Processes read, admit and sum rows; this one makes the releases.

    stream = Stream(PrivateFPL(..., release_every=1000), features=names)
    for step in absorb_parquet(stream, ["a.parquet", "b.parquet"]):
        step.release

A block travels as some ``4 d (d + 1)`` bytes for d features and there is one a release, so
this pays once ``release_every`` is some times d.

Start it under ``if __name__ == "__main__":``, as every pool of processes.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import numpy as np

from streampca.errors import BadParameterError, HorizonReachedError
from streampca.linalg.counts import check_count
from streampca.linalg.threads import OneThread, one_blas_thread
from streampca.linalg.types import FloatArray
from streampca.rows.protocol import arrow_rows
from streampca.sources.parquet import ParquetRows, from_parquet, read_batches
from streampca.stream.blocks import BlockCutter, BlockGram

if TYPE_CHECKING:  # what processes of the pool do not need
    from streampca.stream.step import BlockStep
    from streampca.stream.stream import Stream

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
#: Rows of a task: some 0.1 s of work at 64 features.
TASK_ROWS = 2**16
# Rows of a process from which compiled kernels gain more than they take to load, at 64 features.
_COMPILED = 2**22
# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def absorb_parquet(
    stream: Stream,
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    processes: int | None = None,
    rows_per_task: int = TASK_ROWS,
    before: int = 0,
) -> Iterator[BlockStep]:
    """Feed the rows of Parquet files, in order, summed by a pool of processes.

    Rows that the stream has seen are left out, so a durable stream continues
    with ``absorb_parquet(Stream.resume(store), the same paths)``.

    Parameters
    ----------
    stream : whose algorithm takes blocks (`Stream.push_block`) and known features.
    paths : one file, or several in the order of rows.
    columns : names of the columns, in the order of features; those of the stream if left out, or all.
    processes : how many, this one included, which sums rows too while it waits; one a processor core if left out.
    rows_per_task : rows that one process takes at a time, rounded up to whole
        row groups of the file. Carries no meaning: releases do not depend on it.
    before : rows that the stream got from elsewhere, before these files.

    Yields
    ------
    BlockStep : one a block; a release ends a block.

    Raises
    ------
    BadParameterError, HorizonReachedError, SourceError
        Before any row, if a parameter, the rows or a file do not fit.
    BadRowError
        At a bad row, after the rows of every task before its own.
    """
    count = processes if processes is not None else os.cpu_count() or 1
    check_count("processes", count)
    cutter = stream.leaves()
    tasks = deque(file_ranges(stream, paths, columns, rows_per_task, before))
    if count == 1 or len(tasks) < 2:
        for task in tasks:
            yield from map(stream.push_block, task.blocks(cutter))
        return
    compiled = sum(task.count for task in tasks) > _COMPILED * count
    # Not "fork": a durable stream has a thread that may hold a lock at that moment.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count - 1, context, _begin, (compiled,)) as pool:
        window: deque[Future[list[BlockGram]]] = deque()
        begun = [pool.submit(os.getpid) for _ in range(count - 1)]  # until then, nothing runs ahead of the stream
        try:
            while tasks or window:
                while tasks and begun[0].done() and sum(not one.done() for one in window) < 2 * (count - 1):
                    window.append(pool.submit(tasks.popleft().blocks, cutter))
                if tasks and (not window or not window[0].done()) and len(window) < 3 * count:
                    window.append(Future())  # of blocks that are made here; an error comes at its turn
                    try:
                        window[-1].set_result(tasks.popleft().blocks(cutter))
                    except Exception as problem:
                        window[-1].set_exception(problem)
                if not tasks or len(window) >= 3 * count or window[0].done():
                    yield from map(stream.push_block, window.popleft().result())
        finally:
            for waiting in window:
                waiting.cancel()


def _begin(compiled: bool) -> None:
    """Set a process up: one BLAS thread, and no life after its parent's, however that ends."""
    from streampca.linalg import fast

    if not compiled:  # blocks have the same bits
        fast.kernels = None
    one_blas_thread()
    keep_memory()
    threading.Thread(target=_outlived, daemon=True).start()


def keep_memory() -> None:
    """Let this process keep the memory that it frees: its next task takes as much, and pages that are new cost time."""
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc
        if mallopt is not None:
            for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
                mallopt(option, 2**30)


def _outlived() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


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

    def blocks(self, cutter: BlockCutter) -> list[BlockGram]:
        """The blocks of these rows; runs wherever it is sent."""
        with OneThread():  # other processes take the other cores
            return list(cutter.blocks(self._rows(), self.before))

    def _rows(self) -> Iterator[FloatArray]:
        # What is missing or not finite is left to the admission, which goes by on_bad_row.
        source = from_parquet(self.path, columns=self.columns, missing="nan")
        skip = self.skip
        with source.open() as file:
            for batch in read_batches(file, source.columns, self.groups):
                if batch.num_rows > skip:
                    yield from arrow_rows(batch, source.columns, skip=skip)
                skip = max(0, skip - batch.num_rows)


def file_ranges(
    stream: Stream, paths: Paths, columns: Sequence[str] | None, rows_per_task: int, before: int
) -> list[FileRange]:
    """Tasks for the rows of files that a stream has not seen, in order.

    ``before`` rows of the stream came from elsewhere, before these files.

    Raises
    ------
    BadParameterError
        If there is no file, or the stream stands before the files or after them.
    HorizonReachedError
        If there are more rows than the stream takes.
    SourceError
        If a file cannot be read, or lacks a column.
    """
    check_count("rows_per_task", rows_per_task)
    names = tuple(columns) if columns is not None else stream.features
    named = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    found = [from_parquet(local_path(path), columns=names) for path in named]
    if not found:
        raise BadParameterError("paths= names no file")
    done, total = stream.t - before, sum(source.n_rows for source in found)
    if not 0 <= done <= total:
        raise BadParameterError(
            f"the stream stands at row {stream.t}, the {total} rows of these files come after row {before}; "
            "pass before= if rows from elsewhere came first"
        )
    left = stream.engine.processor.rows_left
    if left is not None and total - done > left:
        raise HorizonReachedError(
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
    BadParameterError
        If it is an address that is not a file's.
    """
    text = os.fspath(path)
    parts = urlsplit(text)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if "://" in text:
        raise BadParameterError(
            f"{text}: only files under a path can be read this way; use Spark's own reader for others"
        )
    return Path(text).absolute()
