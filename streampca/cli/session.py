"""One run: rows from a source through a stream into files and a view, until the rows end or the user stops it."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from streampca.cli.files import Files
from streampca.cli.live import Progress, View, publishable, spent
from streampca.cli.terminal import is_terminal, terminal_width
from streampca.errors import SourceError, StreamPCAError
from streampca.linalg.types import FloatArray
from streampca.regret.private_regret import PrivateRegretRecord
from streampca.regret.regret import RegretRecord
from streampca.release.release import Release
from streampca.rows.protocol import RowSource
from streampca.store.config import public_parameters
from streampca.store.store import Store
from streampca.stream.feed import batches, push
from streampca.stream.step import Steps
from streampca.stream.stream import Stream
from streampca.views.card import Card, curator_card

if TYPE_CHECKING:  # needs the extra serve
    from streampca.cli.page import Page

#: For `RegretLog.every`, where the session makes the records itself: the log keeps none, so memory stays flat.
NEVER = 2**62
_DO_NOT_PUBLISH = "Curator only: exact functions of raw rows, no privacy at all; do not publish."


def parameters_of_run(stream: Stream, source: RowSource) -> dict[str, Any]:
    """The parameters of a run that may be published."""
    admission = stream.engine.now.admission
    bounds = "private" if admission.warmup else source.bounds
    return public_parameters(stream.algorithm, row_norm=stream.row_norm, center=admission.center, bounds=bounds)


class Interrupts:
    """Handler of Ctrl-C and SIGTERM: the first stops a run between two batches, the second immediately."""

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
        """Stop immediately at the first signal: nothing is lost while the run waits for rows."""
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
    """How a run ended."""

    progress: Progress  #: the last state
    signal: int = 0  #: number of the signal that stopped it; 0 if none did
    problem: StreamPCAError | None = None  #: the error that stopped it, if any

    def exit_code(self) -> int:
        """Return the exit code of the command; raise the error that stopped the run."""
        if self.problem is not None:
            raise self.problem
        return 128 + self.signal if self.signal else 0


class Session:
    """One run. Its files are complete wherever it ends.

    Parameters
    ----------
    stream : what the rows go into.
    source : where they come from.
    files : what is written.
    views : where progress is shown.
    skip : first rows of the source to pass over.
    new_source : see `Stream.run`, for sources that continue from a position.
    limit : number of rows of the source after which the run stops.
    every : rows between the records of the regret.
    followed : make exact records at all, for a file or a view. One is made at the end in any case.
    store : of a durable run. Releases are written when their rows are durable, without waiting for each commit.
    page : shows the releases too.
    """

    def __init__(
        self,
        stream: Stream,
        source: RowSource,
        files: Files,
        views: Sequence[View],
        *,
        skip: int = 0,
        new_source: bool = False,
        limit: int | None = None,
        every: int = 1000,
        followed: bool = False,
        store: Store | None = None,
        page: Page | None = None,
    ) -> None:
        self._stream, self._source, self._files, self._views = stream, source, files, views
        self._skip, self._limit, self._every, self._followed = skip, limit, every, followed
        self._store, self._page, self._new_source = store, page, new_source
        self._waiting: deque[Steps] = deque()  # for their rows to be durable
        self._ended = False  # the rows: no error, no signal
        self._made, self._first = 0, stream.t
        self._release: Release | None = None
        self._record: RegretRecord | None = None
        self._private_record: PrivateRegretRecord | None = None
        self._started = time.perf_counter()

    def run(self) -> Ending:
        """Run to the end of the rows, or until interrupted."""
        for view in self._views:
            view.start()
        problem: StreamPCAError | None = None
        with Interrupts() as interrupts:
            try:
                self._loop(interrupts)
            except KeyboardInterrupt:
                pass
            except StreamPCAError as raised:
                problem = raised
            finally:
                for finish in (self._write_all, self._take_private_record, self._take_record):
                    try:
                        finish()
                    except StreamPCAError as raised:
                        problem = problem or raised
                self._files.close()
                for view in self._views:
                    view.end(self._progress(self._record))
        return Ending(self._progress(self._record), interrupts.asked, problem)

    def _loop(self, interrupts: Interrupts) -> None:
        rows = batches(
            self._stream.engine, self._source, new_source=self._new_source, limit=self._limit, rest=self._rest,
            every=self._every if self._followed else None,
        )  # fmt: skip
        while not interrupts.asked:
            with interrupts.waiting():
                batch = next(rows, None)
            if batch is None:
                self._ended = True
                return
            for steps in push(self._stream.engine, batch):
                self._waiting.append(steps)
            self._write()
            if self._followed and self._stream.t % self._every == 0:
                self._take_record()
            due = [view for view in self._views if view.due]
            if due:
                self._files.flush()
                progress = self._progress(self._latest())
                for view in due:
                    view.show(progress)

    def _rest(self, blocks: Iterator[FloatArray]) -> Iterator[FloatArray]:
        """The rows after those that are passed over. Refuses another file than that of a durable run."""
        skip, admission, passed = self._skip, self._stream.engine.now.admission, None
        if self._store is not None and self._stream.t:
            passed = self._store.passed_rows()
        for block in blocks:
            start = min(skip, len(block))
            if passed is not None and self._skip:
                admitted = admission.block(block[:start], passed.count + 1)[0]
                admitted[: max(0, admission.warmup - passed.count)] = 0.0  # as it was before the bounds were found
                passed.take(admitted)
            elif passed is not None:
                passed.check_next(admission.block(block[: passed.HEAD], self._stream.t + 1)[0])
            skip -= start
            if not skip:
                passed = None
            if start < len(block):
                yield block[start:]
        if skip:
            raise SourceError(
                f"the file has {self._skip - skip} rows, but the run has absorbed {self._skip}; give the whole file, "
                f"or pass --continues if it begins with row {self._skip + 1}"
            )

    def _write(self, *, last: bool = False) -> None:
        """Write the releases whose rows are durable; at the end, all of them, waiting for the commit."""
        while self._waiting:
            steps = self._waiting[0]
            if self._store is not None and not last and steps.first + len(steps) - 1 > self._store.durable:
                return
            self._waiting.popleft()
            releases = steps.releases
            if not releases:
                continue
            self._begin()
            self._made += len(releases)
            self._files.releases.add(releases)
            if self._page is not None:
                self._page.publish(releases)
            for release in releases:
                before = 0 if self._release is None else self._release.t
                self._release = release
                if release.t // self._every != before // self._every:
                    self._take_private_record()
            self._files.flush()  # for readers that follow the file

    def _write_all(self) -> None:
        self._write(last=True)
        if self._ended and self._stream.t:
            self._begin()

    def _begin(self) -> None:
        """Write the first lines of the files, unless they are written."""
        if self._files.is_begun:
            return
        parameters = parameters_of_run(self._stream, self._source)
        self._files.begin(self._stream.engine.processor.terms, parameters)
        if self._page is not None:
            self._page.describe(parameters)

    def _take_record(self) -> None:
        """Make the record of this moment for the file and the view, unless there is one."""
        record = self._latest()
        if record is None or record is self._record:
            return
        self._record = record
        for view in self._views:
            view.add(record)
        self._files.add_regret(record)

    def _take_private_record(self) -> None:
        """Make the publishable record of the latest release for its file, unless there is one."""
        release, record = self._release, self._private_record
        if release is None or self._stream.engine.private_log is None or (record is not None and record.t == release.t):
            return
        config = self._stream.private_regret.config
        self._private_record = PrivateRegretRecord.of(release, confidence=config.confidence, rows=config.rows)
        self._files.private_regret.write(self._private_record.to_json() + "\n")

    def _latest(self) -> RegretRecord | None:
        """Return the record of this moment, kept or not."""
        if self._stream.engine.regret_log is None or not self._stream.t:
            return None
        if self._record is not None and self._record.t == self._stream.t:
            return self._record
        return self._stream.regret.now()

    def _progress(self, record: RegretRecord | None) -> Progress:
        stream, seconds, admitted = self._stream, time.perf_counter() - self._started, self._stream.admission
        # Number of rows at the end, if the source knows; it may be off by what its lines do not say.
        expected: int | None = getattr(self._source, "expected_rows", None)
        if expected is not None and self._ended:
            expected = stream.t
        elif expected is not None:
            expected = expected + self._first - self._skip if self._limit is None else self._limit
        return Progress(
            stream.t, seconds, self._made, admitted.bad_rows, record, self._private_record,
            self._release, admitted, expected,
        )  # fmt: skip


def closing(ending: Ending, stream: Stream, files: Files, budget: str = "") -> list[str]:
    """Return the last lines of a run: what happened, which files may be published and which may not, and its card."""
    progress = ending.progress
    if ending.problem is not None and not progress.t:
        return []
    lines, is_begun = [], progress.releases or files.releases.is_written
    complete = "the files are complete up to there" if is_begun else "no file was written"
    if ending.signal:
        lines.append(f"Interrupted after {progress.t} rows; {complete}.")
    if ending.problem is not None:
        lines.append(f"Stopped after {progress.t} rows by the problem below; {complete}.")
    lines.append(f"{progress.t} rows, {progress.releases} releases, {progress.seconds:.1f} s")
    if progress.t and not progress.releases:
        warmup = progress.t + stream.warmup_left
        remedy = "or a smaller --release-every"
        if stream.warmup_left:
            remedy = f"a bounds.warmup smaller than {warmup}, which is for private bounds, or public bounds"
        lines.append(f"No release was due yet: give more rows, {remedy}.")
    for whose, file in (
        ("publishable: ", files.releases), ("publishable: ", files.private_regret),
        ("curator only:", files.regret), ("curator only:", files.summary),
    ):  # fmt: skip
        if file.is_written:
            lines.append(f"{whose} {file.path}")
    if progress.private is not None:
        lines.append(f"publishable:  {publishable(progress.private)}")
    made = card_of(ending, budget)
    if made is not None:
        return [*lines, "", *card_lines(made, ", or in a file by --summary")]
    lines.append(f"privacy:      {spent(stream.guarantee, progress.releases)}")
    return [*lines, f"budget:       {budget}"] if budget else lines


def card_lines(made: Card, elsewhere: str = "") -> list[str]:
    """Return the card of a run for standard error. Without the curator's figures unless that is a terminal."""
    if made.is_publishable or is_terminal(sys.stderr):
        return [made.text(terminal_width())]
    # Standard error may be a log that others read.
    hint = f"What was done to the rows, and exact figures: in a terminal{elsewhere} (curator only)."
    return [made.publishable.text(terminal_width()), hint]


def card_of(ending: Ending, budget: str = "") -> Card | None:
    """The card of a run; None without a release. Curator only."""
    progress = ending.progress
    if progress.release is None:
        return None
    return curator_card(progress.release, progress.record, progress.admitted, budget, releases=progress.releases)


def write_summary(title: str, ending: Ending, files: Files, budget: str = "") -> None:
    """Write the card of a run to its file, if there is one of each. Curator only, and marked so."""
    made = card_of(ending, budget)
    if made is not None:
        files.summary.write(f"# {title}\n\n**{_DO_NOT_PUBLISH}**\n\n{made.markdown()}")
        files.summary.close()
