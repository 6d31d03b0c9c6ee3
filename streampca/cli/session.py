"""Driving a stream from a source to the files and the view, until the rows or the user's patience end."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

import numpy as np

from streampca.cli.live import Progress, View
from streampca.cli.outputs import PrivateRegretFile, RegretFile, ReleaseFile
from streampca.errors import BadRow, HorizonReached, StreamPCAError
from streampca.linalg.types import FloatArray
from streampca.private_regret import PrivateRegretRecord
from streampca.regret import RegretRecord
from streampca.release import Release
from streampca.rows import RowSource
from streampca.step import Step, Steps
from streampca.stream import Stream

#: For `RegretLog.every`, where the session makes the records itself: none are kept, so memory stays flat.
NEVER = 2**62
#: Rows pushed at a time: more of them while that takes no time to speak of, so that the view is smooth and Ctrl-C
#: prompt. Changes no bit of any release.
PIECE, LARGEST_PIECE = 1024, 8192
_QUICK, _SLOW = 0.005, 0.02  # seconds


class Interrupts:
    """Ctrl-C and SIGTERM ask a run to stop between two blocks; asked twice, it stops at once."""

    def __init__(self) -> None:
        self.asked = 0
        self._waiting = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While rows are awaited nothing is at stake, and a signal stops at once."""
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        again, self.asked = bool(self.asked), number
        if self._waiting or again:
            raise KeyboardInterrupt


@dataclass(frozen=True)
class Ending:
    """How a run ended: its last state, and the signal (0 if none) or the problem that ended it before the rows did."""

    progress: Progress
    signal: int = 0
    problem: StreamPCAError | None = None


class Durable(Protocol):
    """Tells how many rows are durable: a `streampca.store.Store`."""

    @property
    def durable(self) -> int:
        """Rows that are durable."""


class Session:
    """One run. Files are complete at whatever point it ends.

    Parameters
    ----------
    stream : what the rows go into.
    source : where they come from.
    releases, regret, private_regret : the files; None writes none.
    view : where progress is shown.
    header : writes the headers of the files; called when the first rows have been absorbed.
    limit : stop after so many rows.
    every : rows between the records of the regret.
    followed : make exact records at all, for a file or a view. One is made at the end in any case.
    store : of a durable run. Releases are written when their rows are durable,
        without waiting for each commit.
    publish : handed every release when it is written, and nothing else.
    """

    def __init__(
        self,
        stream: Stream,
        source: RowSource,
        *,
        releases: ReleaseFile | None,
        regret: RegretFile | None,
        private_regret: PrivateRegretFile | None = None,
        view: View,
        header: Callable[[], None] = lambda: None,
        limit: int | None = None,
        every: int = 1000,
        followed: bool = False,
        store: Durable | None = None,
        publish: Callable[[list[Release]], None] | None = None,
    ) -> None:
        self._stream, self._source = stream, source
        self._store = store
        self._publish_to = publish
        self._held: deque[Steps | Step] = deque()
        self._releases, self._regret, self._view = releases, regret, view
        self._private_regret = private_regret
        self._header, self._limit = header, limit
        self._every, self._followed = every, followed
        self._made = 0
        self._begun = False
        self._latest_release: Release | None = None
        self._record: RegretRecord | None = None
        self._private_record: PrivateRegretRecord | None = None
        self._started = time.perf_counter()

    def run(self) -> Ending:
        """Run to the end of the rows, or until interrupted."""
        self._stream.adopt(self._source)
        self._view.start()
        problem: StreamPCAError | None = None
        with Interrupts() as interrupts:
            try:
                self._loop(interrupts)
            except KeyboardInterrupt:
                pass
            except StreamPCAError as raised:
                problem = raised
            finally:
                late = [
                    self._tried(last) for last in (self._publish_rest, self._take_private_record, self._take_record)
                ]
                problem = problem or next(filter(None, late), None)
                self._flush()
                self._view.end(self._progress(self._record))
        return Ending(self._progress(self._record), interrupts.asked, problem)

    def _loop(self, interrupts: Interrupts) -> None:
        blocks = self._pieces()
        while not interrupts.asked:
            with interrupts.waiting():
                block = next(blocks, None)
            if block is None:
                return
            self._push(block)
            if self._followed and self._stream.t % self._every == 0:
                self._take_record()
            if self._view.due:
                self._flush()
                self._view.show(self._progress(self._latest()))

    def _pieces(self) -> Iterator[FloatArray]:
        left, size = self._limit, PIECE
        for block in self._source.blocks():
            if left is not None:
                block = block[:left]
                left -= len(block)
            start = 0
            while start < len(block):
                given = time.perf_counter()
                count = min(size, self._every - self._stream.t % self._every) if self._followed else size
                yield block[start : start + count]
                start += count
                spent = time.perf_counter() - given
                if spent < _QUICK:
                    size = min(2 * size, LARGEST_PIECE)
                elif spent > _SLOW:
                    size = max(size // 2, PIECE)
            if left == 0:
                return

    def _push(self, block: FloatArray) -> None:
        try:
            self._held.append(self._stream.push_many(block))
        except (BadRow, HorizonReached):  # nothing was absorbed; the rows before the bad one are not to be lost
            for row in block:
                self._held.append(self._stream.push(np.asarray(row)))
        self._publish()

    def _publish(self, *, last: bool = False) -> None:
        """Write the releases whose rows are durable; at the end, all, waiting for the commit."""
        while self._held:
            held = self._held[0]
            t = held.t if isinstance(held, Step) else held.first + len(held) - 1
            if self._store is not None and not last and t > self._store.durable:
                return
            self._held.popleft()
            releases = held.releases if isinstance(held, Steps) else [held.release] if held.release else []
            if not self._begun:
                self._begun = True
                self._header()
            self._made += len(releases)
            if self._releases is not None:
                self._releases.write(releases)
            if self._publish_to is not None:
                self._publish_to(releases)
            for release in releases:
                before = 0 if self._latest_release is None else self._latest_release.t
                self._latest_release = release
                if release.t // self._every != before // self._every:
                    self._take_private_record()

    def _publish_rest(self) -> None:
        self._publish(last=True)

    def _tried(self, last: Callable[[], None]) -> StreamPCAError | None:
        """Do one of the last things; return the problem that kept it from being done."""
        try:
            last()
        except StreamPCAError as problem:
            return problem
        return None

    def _take_record(self) -> None:
        """Make the record of this moment for the file and the view, unless there is one."""
        record = self._latest()
        if record is None or record is self._record:
            return
        self._record = record
        self._view.add(record)
        if self._regret is not None:
            self._regret.write([record])

    def _take_private_record(self) -> None:
        """Make the publishable record of the latest release for its file, unless there is one."""
        release, record = self._latest_release, self._private_record
        if release is None or not self._stream.publishes_regret or (record is not None and record.t == release.t):
            return
        config = self._stream.private_regret.config
        self._private_record = PrivateRegretRecord.of(release, confidence=config.confidence, rows=config.rows)
        if self._private_regret is not None:
            self._private_regret.write([self._private_record])

    def _flush(self) -> None:
        for file in (self._releases, self._regret, self._private_regret):
            if file is not None:
                file.flush()

    def _latest(self) -> RegretRecord | None:
        """The record of this moment, kept or not."""
        if not self._stream.keeps_regret or not self._stream.t:
            return None
        if self._record is not None and self._record.t == self._stream.t:
            return self._record
        return self._stream.regret.now()

    def _progress(self, record: RegretRecord | None) -> Progress:
        return Progress(
            self._stream.t, time.perf_counter() - self._started, self._made, self._stream.bad_rows, record,
            self._private_record,
        )  # fmt: skip
