"""The thread that writes for one durable stream, including the last commit of a store that was never closed."""

from __future__ import annotations

import os
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
        """Make the call. In the writing thread."""
        try:
            self._work()
        except Exception as problem:
            self.problem = problem
        self.is_done = True
        self._running.release()

    def wait(self, seconds: float) -> None:
        """Wait until the call is done, for at most this time."""
        if not self.is_done and self._running.acquire(timeout=seconds):
            self._running.release()


class WritingThread:
    """A thread that makes the calls of one writer in order. It ends with `stop` or `finish_with`.

    Parameters
    ----------
    files : object
        References that the thread keeps until it ends. Garbage is finalized in any order: otherwise a connection
        that only a forgotten stream holds is closed before the stream can commit.
    """

    def __init__(self, *files: object) -> None:
        self._process = os.getpid()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._ended = Job(lambda: None)
        arguments = self._jobs, self._ended, files
        thread = Thread(target=_serve, args=arguments, name="streampca-store", daemon=True)
        thread.start()
        self.ident = thread.ident or 0

    def begin(self, work: Callable[[], None]) -> Job:
        """Queue a call, and return without waiting for it."""
        job = Job(work)
        self._jobs.put(job)
        return job

    def wait(self, job: Job) -> None:
        """Return when a call is done, or raise its exception.

        Raises
        ------
        StoreLockedError
            If the thread has ended, or runs in another process.
        StreamBusyError
            If the writing thread itself waits, in a finalizer or a handler of log records.
        """
        while not job.is_done:
            if self.is_this_thread:
                raise StreamBusyError("this store is busy: it is committing in this thread. Call from another thread")
            # A timeout, because the child of a fork has no thread that could release the lock.
            job.wait(0.5)
            if not job.is_done and (self._ended.is_done or self._process != os.getpid()):
                raise StoreLockedError("the store was closed, or belongs to another process")
        if job.problem is not None:
            raise job.problem

    def do(self, work: Callable[[], None]) -> None:
        """Make a call, and return when it is done."""
        self.wait(self.begin(work))

    def stop(self) -> None:
        """End the thread after the calls in its queue, and wait for the end unless the thread itself calls."""
        self._jobs.put(None)
        while not (self._ended.is_done or self.is_this_thread or self._process != os.getpid()):
            self._ended.wait(0.5)

    def finish_with(self, *works: Callable[[], None]) -> None:
        """Queue last calls and end, without waiting: for finalizers, which run while any lock may be held."""
        if works:
            _FINISHING[self._ended] = self
        for work in works:
            self.begin(work)
        self._jobs.put(None)

    @property
    def is_finishing(self) -> bool:
        """True from `finish_with` until the thread has ended."""
        return self._ended in _FINISHING

    @property
    def is_this_thread(self) -> bool:
        """True if the writing thread itself calls."""
        return self.ident == get_ident()


def _serve(jobs: SimpleQueue[Job | None], ended: Job, files: tuple[object, ...]) -> None:
    # A function, not a method: the running thread must not keep its writer alive.
    while (job := jobs.get()) is not None:
        job.run()
        del job  # otherwise the stream of the last call stays alive while the thread waits
    _FINISHING.pop(ended, None)
    ended.run()


#: Threads of this process that make their last calls, by their ends. The child of a fork has none of them.
_FINISHING: dict[Job, WritingThread] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_FINISHING.clear)


def wait_for_last_calls() -> None:
    """Wait until the stores of collected streams are closed, for each at most a minute."""
    for ended, thread in list(_FINISHING.items()):
        if not thread.is_this_thread:
            ended.wait(60.0)
