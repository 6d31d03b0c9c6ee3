"""Parquet files through several processes of one machine, with the releases of a single process, bit for bit.

Processes read, admit and sum rows; the calling process creates the releases.

    stream = Stream(PrivateFPL(..., release_every=1000), features=names)
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
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from streampca import _native
from streampca.errors import BadParameterError, HorizonReachedError
from streampca.linalg.counts import check_count
from streampca.linalg.threads import OneThread, one_blas_thread
from streampca.linalg.types import FloatArray
from streampca.rows.protocol import arrow_rows
from streampca.sources.parquet import from_parquet, read_batches
from streampca.stream.blocks import BlockCutter, BlockGram

if TYPE_CHECKING:  # processes of the pool start faster without these
    from streampca.stream.step import BlockStep
    from streampca.stream.stream import Stream

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
#: Rows of a task: about 0.1 s of work at 64 features.
TASK_ROWS = 2**16
# Rows of a process above which compiled kernels save more time than they take to load, at 64 features.
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

    Rows that the stream has absorbed are skipped, so a durable stream continues with
    ``absorb_parquet(Stream.resume(store), the same paths)``.

    Parameters
    ----------
    stream : a stream whose algorithm accepts blocks (`Stream.push_block`) and whose features are known.
    paths : one file, or several in the order of rows.
    columns : names of the columns, in the order of features; by default those of the stream, or all.
    processes : number of processes, the calling one included, which sums rows while it waits; by default one a core.
    rows_per_task : rows of one task, rounded up to whole row groups of the file. Releases do not depend on it.
    before : rows that the stream absorbed from elsewhere, before these files.

    Yields
    ------
    BlockStep : one a block; a release ends a block.

    Raises
    ------
    BadParameterError, HorizonReachedError, SourceError
        Before any row, if a parameter, the rows or a file do not fit.
    BadRowError
        At a bad row, after the rows of every earlier task.
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
        # Blocks are pushed in the order of tasks, from the left of the window; at most 3 tasks a process are ahead.
        window: deque[Future[list[BlockGram]]] = deque()
        # Until the other processes have started, tasks run here, and none runs ahead of the stream.
        begun = [pool.submit(os.getpid) for _ in range(count - 1)]
        try:
            while tasks or window:
                while tasks and begun[0].done() and sum(not one.done() for one in window) < 2 * (count - 1):
                    window.append(pool.submit(tasks.popleft().blocks, cutter))
                if tasks and (not window or not window[0].done()) and len(window) < 3 * count:
                    window.append(Future())  # of blocks summed here; an error is raised in the order of the rows
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
    """Prepare a process: one BLAS thread, and exit when the parent ends, for any reason."""
    if not compiled:  # blocks have the same bits
        _native.use(False)
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

    pa.set_memory_pool(pa.system_memory_pool())
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc
        if mallopt is not None:
            for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
                mallopt(option, 2**30)


@dataclass(frozen=True)
class FileRange:
    """Rows of whole row groups of a file, without rows at their start that were absorbed before."""

    path: str
    groups: tuple[int, ...]  # numbers of the row groups
    skip: int  # rows of the first group to skip
    count: int  # rows after those
    before: int  # rows of the stream before them
    columns: tuple[str, ...] | None  # in the order of features; None for all

    def blocks(self, cutter: BlockCutter) -> list[BlockGram]:
        """Return the blocks of these rows, in any process."""

        def rows() -> Iterator[FloatArray]:
            # Missing and infinite values are passed to the admission, which obeys on_bad_row.
            source = from_parquet(self.path, columns=self.columns, missing="nan")
            skip = self.skip
            with source.open() as file:
                for batch in read_batches(file, source.columns, self.groups):
                    if batch.num_rows > skip:
                        yield from arrow_rows(batch, source.columns, skip=skip)
                    skip = max(0, skip - batch.num_rows)

        with OneThread():  # other processes use the other cores
            return list(cutter.blocks(rows(), self.before))


def file_ranges(
    stream: Stream, paths: Paths, columns: Sequence[str] | None, rows_per_task: int, before: int
) -> list[FileRange]:
    """Return tasks for the rows of files that a stream has not absorbed, in order.

    ``before`` rows of the stream came from elsewhere, before these files. Raises `BadParameterError` if there is no
    file or the stream's position is before or after the files, and `HorizonReachedError` if there are too many rows.
    """
    check_count("rows_per_task", rows_per_task)
    names = tuple(columns) if columns is not None else stream.features
    files = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    sources = [from_parquet(local_path(path), columns=names) for path in files]
    if not sources:
        raise BadParameterError("paths=[]: expected at least one file")
    done, total = stream.t - before, sum(source.n_rows for source in sources)
    if not 0 <= done <= total:
        raise BadParameterError(
            f"the stream is at row {stream.t}, the {total} rows of these files come after row {before}; "
            "pass before= if rows from elsewhere came first"
        )
    # Checked for all files before any row, so that a stream never stops within them.
    left = stream.engine.processor.rows_left
    if left is not None and total - done > left:
        raise HorizonReachedError(
            f"the files hold {total - done} rows that the stream has not seen, its horizon leaves room for {left}"
        )
    tasks: list[FileRange] = []
    at = before  # rows of the stream up to the end of the row group
    for source in sources:
        with source.open() as file:
            counts = [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]
        groups: list[int] = []
        rows = 0
        for g, count in enumerate(counts):
            at += count
            # Whole groups that the stream has absorbed are skipped; one that holds its position is read from there.
            if at > stream.t:
                groups.append(g)
                rows += count
            if groups and (rows >= rows_per_task or g == len(counts) - 1):
                skip = max(0, stream.t - (at - rows))
                if rows:
                    tasks.append(FileRange(str(source.path), tuple(groups), skip, rows - skip, at - rows + skip, names))
                groups, rows = [], 0
    return tasks


def has_rows(path: str) -> bool:
    """Return False for a Parquet file without rows, such as engines write for empty partitions."""
    from pyarrow import ArrowException
    from pyarrow.parquet import read_metadata

    try:
        return bool(read_metadata(local_path(path)).num_rows)
    except (OSError, ArrowException):
        return True  # reading it raises the error


def local_path(path: str | os.PathLike[str]) -> Path:
    """Return a path valid in every process on this machine or shared file system; refuse addresses of no file."""
    text = os.fspath(path)
    parts = urlsplit(text)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if "://" in text:
        raise BadParameterError(
            f"{text}: only files under a path can be read this way; use Spark's own reader for others"
        )
    return Path(text).absolute()
