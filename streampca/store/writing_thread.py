"""The thread that writes for one durable stream, and the last call that it makes for a store that nobody closed."""

from __future__ import annotations

import os
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread, get_ident

from streampca.errors import StoreLockedError, StreamBusyError


class Job:
    """A call for the writing thread.

    It is waited for with a plain lock: an interrupt while waiting leaves nothing to mend, which cannot be said of
    conditions and futures.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self.is_done = False  # has returned, or failed
        self.problem: Exception | None = None  # why it failed
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
        """Wait until it is done, at most so long."""
        if not self.is_done and self._running.acquire(timeout=seconds):
            self._running.release()


class WritingThread:
    """A thread for one writer, which makes one call after the other. It ends with `end`, `stop` or `finish_with`.

    Parameters
    ----------
    files : kept until the thread ends. Garbage is finalized in any order: a connection that only a forgotten stream
        held would be closed before the stream can commit.
    """

    def __init__(self, *files: object) -> None:
        self._process = os.getpid()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._ended = Job(lambda: None)
        arguments = self._jobs, self._ended, files
        thread = Thread(target=_serve, args=arguments, name="streampca-store", daemon=True)
        thread.start()
        #: Identifier of the thread.
        self.ident = thread.ident or 0

    def begin(self, work: Callable[[], None]) -> Job:
        """Hand a call over."""
        job = Job(work)
        self._jobs.put(job)
        return job

    def wait(self, job: Job) -> None:
        """Return when a call is done.

        Raises
        ------
        Exception
            As the call did.
        StoreLockedError
            If the thread has ended, or runs in another process.
        StreamBusyError
            If the thread itself waits, in a finalizer or a handler of log records that it runs.
        """
        while not job.is_done:
            if self.is_this_thread:
                raise StreamBusyError("this store is busy: it is committing in this thread. Call from another thread")
            job.wait(0.5)
            if not job.is_done and (self._ended.is_done or self._process != os.getpid()):
                raise StoreLockedError("the store was closed, or belongs to another process")
        if job.problem is not None:
            raise job.problem

    def do(self, work: Callable[[], None]) -> None:
        """Hand a call over, and return when it is done."""
        self.wait(self.begin(work))

    def end(self) -> None:
        """Make the calls that were handed over, and no other. Does not wait for them."""
        self._jobs.put(None)

    def stop(self) -> None:
        """`end`, and wait for it, unless the thread itself calls."""
        self.end()
        while not (self._ended.is_done or self.is_this_thread or self._process != os.getpid()):
            self._ended.wait(0.5)

    def finish_with(self, work: Callable[[], None]) -> None:
        """Make a last call, without waiting for it: for finalizers, which run while any lock may be held."""
        _FINISHING[self._ended] = self
        self.begin(work)
        self.end()

    @property
    def is_finishing(self) -> bool:
        """True from `finish_with` until the thread has ended."""
        return self._ended in _FINISHING

    @property
    def is_this_thread(self) -> bool:
        """True in the thread itself."""
        return self.ident == get_ident()


def _serve(jobs: SimpleQueue[Job | None], ended: Job, files: tuple[object, ...]) -> None:
    while (job := jobs.get()) is not None:
        job.run()
        del job  # what it holds may be collected while the thread waits
    _FINISHING.pop(ended, None)
    ended.run()


#: The threads of this process that make their last call, by their ends.
_FINISHING: dict[Job, WritingThread] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_FINISHING.clear)


def wait_for_last_calls() -> None:
    """Wait until the stores of collected streams are closed, for each at most a minute."""
    for ended, thread in list(_FINISHING.items()):
        if not thread.is_this_thread:
            ended.wait(60.0)
