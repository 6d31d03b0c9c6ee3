"""The thread that writes for one durable stream, including the last commit of a store that was never closed.

An executor of `concurrent.futures` does not do: its locks are not released by an interrupt at any point, it accepts no
work once the interpreter ends, when open streams commit, and the child of a fork would wait for it.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread, get_ident

from streampca.errors import StoreLockedError, StreamBusyError


class Job:
    """A call for the writing thread."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self.is_done = False  # has returned, or failed
        self.problem: Exception | None = None  # the exception of a failed call
        # A plain lock: an interrupt while waiting leaves nothing to repair, unlike with conditions and futures.
        self._running = Lock()
        self._running.acquire()

    def run(self) -> None:
        try:
            self._work()
        except Exception as problem:
            self.problem = problem
        self.is_done = True
        self._running.release()

    def wait(self) -> None:
        """Wait until the call is done, for at most half a second."""
        # The child of a fork has no thread that would do it.
        if not self.is_done and self._running.acquire(timeout=0.5):
            self._running.release()


class WritingThread:
    """A thread that makes the calls of one writer in order. It ends with `stop` or `end`."""

    # It keeps references to ``files`` until then. Garbage is finalized in any order, and would otherwise close a
    # connection before the last call of a collected store uses it.

    def __init__(self, *files: object) -> None:
        self._process = os.getpid()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._ended = Job(lambda: None)
        # A daemon: the interpreter waits for other threads before its exit handlers, which commit with this one.
        thread = Thread(target=self._serve, args=files, name="streampca-store", daemon=True)
        thread.start()
        self.ident = thread.ident or 0

    def begin(self, work: Callable[[], None]) -> Job:
        """Queue a call, and return without waiting for it."""
        job = Job(work)
        self._jobs.put(job)
        return job

    def wait(self, job: Job) -> None:
        """Return when a call is done, or raise its exception. `StoreLockedError` if the thread cannot do it."""
        while not job.is_done:
            # The writing thread itself waits in a finalizer, or in a handler of log records.
            if self.ident == get_ident():
                raise StreamBusyError("this store is busy: it is committing in this thread. Call from another thread")
            job.wait()
            if not job.is_done and (self._ended.is_done or self._process != os.getpid()):
                raise StoreLockedError("the store was closed, or belongs to another process")
        if job.problem is not None:
            raise job.problem

    def end(self, last: Callable[[], None] | None = None) -> None:
        """End the thread after the calls in its queue and a last one, without waiting: for finalizers."""
        # They run while any lock may be held. A simple queue and a set can be changed at any point.
        if last is not None:
            FINISHING.add(self)
            self.begin(last)
        self._jobs.put(None)

    def stop(self, seconds: float = math.inf) -> None:
        """End the thread after the calls in its queue, and wait for the end unless the thread itself calls."""
        self._jobs.put(None)
        until = time.monotonic() + seconds
        while not (self._ended.is_done or self.ident == get_ident() or self._process != os.getpid()):
            if time.monotonic() > until:
                return
            self._ended.wait()

    def _serve(self, *files: object) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()
            del job  # otherwise the stream of the last call stays alive while the thread waits
        FINISHING.discard(self)
        self._ended.run()


#: Threads that make the last call of a collected store.
FINISHING: set[WritingThread] = set()


def wait_for_last_calls() -> None:
    """Wait until the stores of collected streams are closed, for each at most a minute."""
    for thread in list(FINISHING):
        thread.stop(60.0)
