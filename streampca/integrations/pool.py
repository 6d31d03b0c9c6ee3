"""Parquet files through several processes of one machine: the same releases as through one, bit for bit.

Processes read, admit and sum rows; this one makes the releases.

    stream = Stream(PrivateFPL(..., release_every=1000), features=names)
    for step in absorb_parquet(stream, ["a.parquet", "b.parquet"]):
        step.release

A block is ``8 d (d + 1)`` bytes for d features and there is one a release, so
this pays once ``release_every`` is some times d.

Start it under ``if __name__ == "__main__":``, as every pool of processes.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor

from streampca.blocks import BlockGram, Leaves
from streampca.integrations._file_ranges import TASK_ROWS, FileRange, Paths, file_ranges
from streampca.linalg.counts import check_count
from streampca.step import BlockStep
from streampca.stream import Stream


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
    processes : how many; one a processor core if left out.
    rows_per_task : rows that one process takes at a time, rounded up to whole
        row groups of the file. Carries no meaning: releases do not depend on it.
    before : rows that the stream got from elsewhere, before these files.

    Yields
    ------
    BlockStep : one a block; a release ends a block.

    Raises
    ------
    BadParameter, HorizonReached, SourceError
        Before any row, if a parameter, the rows or a file do not fit.
    BadRow
        At a bad row, after the rows of every task before its own.
    """
    count = processes if processes is not None else os.cpu_count() or 1
    check_count("processes", count)
    leaves = stream.leaves()
    tasks = iter(file_ranges(stream, paths, columns, rows_per_task, before))
    if count == 1:
        for task in tasks:
            yield from map(stream.push_block, task.blocks(leaves))
        return
    # Not "fork": a durable stream has a thread that may hold a lock at that moment.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context, _begin, (os.getpid(),)) as pool:
        window: deque[Future[list[BlockGram]]] = deque()
        try:
            for task in tasks:
                window.append(pool.submit(_blocks, leaves, task))
                if len(window) >= 2 * count:
                    yield from map(stream.push_block, window.popleft().result())
            while window:
                yield from map(stream.push_block, window.popleft().result())
        finally:
            for waiting in window:
                waiting.cancel()


def _blocks(leaves: Leaves, task: FileRange) -> list[BlockGram]:
    return task.blocks(leaves)


def _begin(parent: int) -> None:
    """Set a process up: one BLAS thread, and no life after its parent's, however that ends."""
    from streampca.linalg.threads import one_blas_thread

    one_blas_thread()
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
