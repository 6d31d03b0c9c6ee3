"""The thread that writes for one store: one job after the other, and smaller steps while no job waits."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any

from streampca.errors import StoreLocked

#: Work to do while no job waits: it returns what to do after it, or None.
Idle = Callable[[], Any]


class Job:
    """Something for the thread to do.

    Parameters
    ----------
    work : called once, in the thread. It may return work to do while no job waits.

    Attributes
    ----------
    is_done : True once it was done, or failed.
    problem : why it failed, or None.

    Notes
    -----
    It is waited for with a plain lock: an interrupt while waiting leaves nothing to mend, which cannot be said of
    conditions and futures.
    """

    __slots__ = ("_running", "is_done", "problem", "work")

    def __init__(self, work: Callable[[], Idle | None]) -> None:
        self.work = work
        self.is_done = False
        self.problem: Exception | None = None
        self._running = Lock()
        self._running.acquire()

    def run(self) -> Idle | None:
        """Do it. Called by the thread."""
        idle = None
        try:
            idle = self.work()
        except Exception as problem:
            self.problem = problem
        self.end()
        return idle

    def end(self) -> None:
        """Wake up who waits."""
        self.is_done = True
        self._running.release()

    def wait(self, seconds: float) -> None:
        """Wait until it is done, at most so long."""
        if not self.is_done and self._running.acquire(timeout=seconds):
            self._running.release()


class WritingThread:
    """A thread of its own for one writer. It ends with `stop`, or when nobody holds this object any more."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._ended = Job(lambda: None)
        weakref.finalize(self, self._jobs.put, None).atexit = False
        Thread(target=_serve, args=(self._jobs, self._ended), name="streampca-store", daemon=True).start()

    def begin(self, work: Callable[[], Idle | None]) -> Job:
        """Hand a job over."""
        job = Job(work)
        self._jobs.put(job)
        return job

    def wait(self, job: Job) -> None:
        """Return when a job is done.

        Raises
        ------
        Exception
            As the job did.
        StoreLocked
            If the thread has ended, or runs in another process.
        """
        while not job.is_done:
            job.wait(0.5)
            if not job.is_done and (self._ended.is_done or self._process != os.getpid()):
                raise StoreLocked("the store was closed, or belongs to another process")
        if job.problem is not None:
            raise job.problem

    def do(self, work: Callable[[], Idle | None]) -> None:
        """Hand a job over, and return when it is done."""
        self.wait(self.begin(work))

    def stop(self) -> None:
        """Let the job under way end, and no other begin."""
        self._jobs.put(None)
        while not self._ended.is_done and self._process == os.getpid():
            self._ended.wait(0.5)


def _serve(jobs: SimpleQueue[Job | None], ended: Job) -> None:
    idle: Idle | None = None
    while True:
        try:
            job = jobs.get(block=idle is None)
        except Empty:
            idle = idle() if idle is not None else None
            continue
        if job is None:
            break
        idle = job.run() or idle
        del job  # what it holds may be collected while the thread waits
    ended.end()
