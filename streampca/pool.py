"""Parquet files through several processes of one machine, with the releases of a single process, bit for bit.

Processes read, admit and sum rows; the calling process creates the releases.

    stream = Stream(PrivateFPL(..., release_every=1000), bounds=bounds, features=names)
    for step in absorb_parquet(stream, ["a.parquet", "b.parquet"]):
        step.release

A block of d features is about ``4 d (d + 1)`` bytes, and there is one a release: a pool is faster than one process if
``release_every`` is several times d. Start it under ``if __name__ == "__main__":``, as every pool of processes.
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
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from streampca.errors import BadParameterError, HorizonReachedError, UsageError
from streampca.linalg.counts import check_count
from streampca.linalg.threads import OneThread, one_blas_thread
from streampca.linalg.types import FloatArray
from streampca.rows.protocol import arrow_rows
from streampca.sources.parquet import from_parquet, read_batches
from streampca.stream.blocks import BlockCutter, BlockGram

if TYPE_CHECKING:  # processes of the pool start faster without these
    from streampca.stream.step import Step
    from streampca.stream.stream import Stream

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
#: Rows of a task, rounded up to whole row groups: about 0.1 s of work at 64 features.
TASK_ROWS = 2**16
# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def absorb_parquet(
    stream: Stream, paths: Paths, *, columns: Sequence[str] | None = None, processes: int | None = None, before: int = 0
) -> Iterator[Step]:
    """Feed the rows of Parquet files, in order, summed by a pool of processes; yield a `Step` a block.

    Rows that the stream has absorbed are skipped: a durable stream continues with the same paths.

    Parameters
    ----------
    stream : a stream whose algorithm accepts blocks (`Stream.push_block`) and whose features are known.
    paths : one file, or several in the order of rows.
    columns : names of the columns, in the order of features; by default those of the stream, or all.
    processes : number of processes that sum rows; by default one a core. 1 sums them in the calling process.
    before : rows that the stream absorbed from elsewhere, before these files.

    Raises
    ------
    UsageError, HorizonReachedError, SourceError
        Before any row, if a parameter, the rows or a file do not fit.
    """
    count = processes if processes is not None else os.cpu_count() or 1
    check_count("processes", count)
    cutter = stream.leaves()
    tasks = tasks_of(row_groups(stream, paths, columns, before), TASK_ROWS)
    if count == 1 or len(tasks) < 2:
        for task in tasks:
            yield from map(stream.push_block, task_blocks(cutter, task))
        return
    # Not "fork": a durable stream has a thread that may hold a lock at that moment.
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _begin) as pool:
        # At most 3 tasks a process are ahead of the stream, so that memory does not grow with the files.
        ahead: deque[Future[list[BlockGram]]] = deque()
        try:
            for task in tasks:
                ahead.append(pool.submit(task_blocks, cutter, task))
                if len(ahead) >= 3 * count:
                    yield from map(stream.push_block, ahead.popleft().result())
            while ahead:
                yield from map(stream.push_block, ahead.popleft().result())
        finally:
            for waiting in ahead:
                waiting.cancel()


def _begin() -> None:
    """Prepare a process: one BLAS thread, and exit when the parent ends, for any reason."""
    one_blas_thread()
    keep_memory()

    def exit_with_parent() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()


def keep_memory() -> None:
    """Keep freed memory in this process: its next task needs as much, and new pages cost time."""
    import pyarrow as pa

    # Of the pools of pyarrow, only that of the system obeys `mallopt`.
    pa.set_memory_pool(pa.system_memory_pool())
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc
        if mallopt is not None:
            for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
                mallopt(option, 2**30)


@dataclass(frozen=True)
class RowGroup:
    """Row group of a file, without rows at its start that were absorbed before."""

    path: str
    number: int
    skip: int  # rows at its start
    count: int  # rows after those
    before: int  # rows of the stream before them
    columns: tuple[str, ...] | None  # in the order of features; None for all

    def rows(self) -> Iterator[FloatArray]:
        """Yield the rows."""
        source, skip = from_parquet(self.path, columns=self.columns), self.skip
        with source.open() as file:
            for batch in read_batches(file, source.columns, (self.number,)):
                if batch.num_rows > skip:
                    yield from arrow_rows(batch.slice(skip), source.columns)
                skip = max(0, skip - batch.num_rows)


Task = list[RowGroup]


def task_blocks(cutter: BlockCutter, task: Task) -> list[BlockGram]:
    """Return the blocks of successive row groups, in any process."""
    # Invariant: blocks are cut at multiples of release_every of the stream, wherever tasks begin, because each
    # knows the rows before it.
    with OneThread():  # other processes use the other cores
        return list(cutter.blocks(chain.from_iterable(group.rows() for group in task), task[0].before))


def tasks_of(groups: Iterable[RowGroup], rows: int) -> list[Task]:
    """Return successive groups, in tasks of at least ``rows`` rows except the last."""
    tasks: list[Task] = []
    size = rows
    for group in groups:
        if size >= rows:
            tasks.append([])
            size = 0
        tasks[-1].append(group)
        size += group.count
    return tasks


def row_groups(stream: Stream, paths: Paths, columns: Sequence[str] | None, before: int) -> list[RowGroup]:
    """Return the row groups of files with rows that a stream has not absorbed, in order.

    ``before`` rows of the stream came from elsewhere, before these files. Raises `UsageError` if there is no
    file or the stream's position is before or after the files, and `HorizonReachedError` if there are too many rows.
    """
    # Tasks hold paths and numbers only, which are public: a task may be retried or inspected.
    names = tuple(columns) if columns is not None else stream.features
    files = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    sources = [from_parquet(local_path(path), columns=names) for path in files]
    if not sources:
        raise BadParameterError("paths", [], "at least one file")
    done, total = stream.t - before, sum(source.n_rows for source in sources)
    # Files that end before the position of the stream, or begin after it, are not the files it has absorbed.
    if not 0 <= done <= total:
        raise UsageError(
            f"the stream is at row {stream.t}, the {total} rows of these files come after row {before}; pass before= "
            "if rows from elsewhere came first"
        )
    check_room(stream, total - done)
    groups: list[RowGroup] = []
    at = before  # rows of the stream before the row group
    for source in sources:
        for number, count in enumerate(source.group_rows):
            # A durable stream resumes in the middle of a row group: the rows before its position are skipped.
            skip = max(0, stream.t - at)
            if skip < count:
                groups.append(RowGroup(str(source.path), number, skip, count - skip, at + skip, names))
            at += count
    return groups


def check_room(stream: Stream, rows: int) -> None:
    """Raise `HorizonReachedError` before any row, so that a stream never stops within the rows."""
    left = stream.engine.processor.rows_left
    if left is not None and rows > left:
        raise HorizonReachedError(f"{rows} rows given, but the horizon leaves room for {left}")


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return a path valid in every process on this machine or shared file system; refuse addresses of no file."""
    text = os.fspath(path)
    parts = urlsplit(text)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if "://" in text:
        raise UsageError(f"{text}: only files under a path can be read this way; use Spark's own reader for others")
    return Path(text).absolute()
