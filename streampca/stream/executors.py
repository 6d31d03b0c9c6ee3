"""Executors of tasks: this process, processes of this machine, and any object with ``submit``."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Protocol, TypeVar

from streampca.errors import AbsorbInterruptedError, StreamPCAError, StreamPCAWarning
from streampca.linalg.threads import one_blas_thread

T = TypeVar("T")
R = TypeVar("R")
# Successive looks that find no worker at work, and seconds from the first task, until that is worth a warning.
_LOOKS, _PATIENCE = 32, 10.0


class Executor(Protocol):
    """What runs tasks: the executors of `concurrent.futures`, loky, Dask's ``client.get_executor()`` and others."""

    def submit(self, fn: Callable[[T], R], item: T, /) -> Future[R]:
        """Call a function with an item, somewhere."""


class Here:
    """Executor that calls at once."""

    def submit(self, fn: Callable[[T], R], item: T, /) -> Future[R]:
        future: Future[R] = Future()
        future.set_result(fn(item))
        return future


class Pool(ProcessPoolExecutor):
    """Processes of this machine that end with their parent."""

    def __init__(self, workers: int) -> None:
        # Not "fork": a durable stream has a thread that may hold a lock at that moment.
        super().__init__(workers, multiprocessing.get_context("spawn"), begin)
        self.workers = workers


def prepare_worker() -> None:
    """Prepare a process that runs tasks: one BLAS thread, and the system's memory pool."""
    import pyarrow as pa

    one_blas_thread()
    # The pools of pyarrow return freed memory to the system: a fifth of the CPU time of 64 columns of float64.
    pa.set_memory_pool(pa.system_memory_pool())


def begin() -> None:
    """Prepare a process of a pool, which exits when the parent ends, for any reason."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the parent, too
    prepare_worker()

    def exit_with_parent() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()


@contextmanager
def _interruption() -> Iterator[None]:
    """Turn the exceptions of executors and workers into `AbsorbInterruptedError`."""
    try:
        yield
    except StreamPCAError:
        raise
    except Exception as problem:
        raise AbsorbInterruptedError(
            f"a worker failed ({type(problem).__name__}). The stream stands at its last step: call absorb again, with "
            "an executor that works; a number of processes needs `if __name__ == '__main__':`"
        ) from problem


def finished(
    executor: Executor, fn: Callable[[T], R], items: Iterable[T], room: Callable[[int], bool], kind: type
) -> Iterator[tuple[int, R]]:
    """Yield numbers of items and their results as they are finished. Submit while there is ``room`` for the unfinished.

    Raises `AbsorbInterruptedError` if a worker fails, or a result is not of this ``kind``. Closing the iterator cancels
    what has not begun.
    """
    waiting, unfinished = enumerate(items), dict[Future[R], int]()
    done: SimpleQueue[Future[R]] = SimpleQueue()
    following = next(waiting, None)
    since, looks = time.monotonic(), 0
    try:
        while True:
            # Looks at which all workers had ended while tasks were left.
            looks = looks + 1 if following is not None and unfinished and done.qsize() == len(unfinished) else 0
            if looks >= _LOOKS and time.monotonic() - since > _PATIENCE:
                warnings.warn("workers are idle; raise in_flight", StreamPCAWarning, stacklevel=4)
                since = math.inf
            while following is not None and (not unfinished or room(len(unfinished))):
                with _interruption():
                    future = executor.submit(fn, following[1])
                    future.add_done_callback(done.put)
                unfinished[future] = following[0]
                following = next(waiting, None)
            if not unfinished:
                return
            # Whichever is next, not the oldest: a slow task holds up no other.
            future = done.get()
            if (number := unfinished.pop(future, None)) is None:
                continue  # this executor reports a task twice
            with _interruption():
                result = future.result()
                if not isinstance(result, kind):
                    raise TypeError("not the result of the function")
            yield number, result
    finally:
        for future in unfinished:
            future.cancel()
