"""One run: rows from a source through a stream into files and a view, until the rows end or the user stops it."""

from __future__ import annotations

import signal
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from types import FrameType
from typing import Any

from streampca.cli.files import Files
from streampca.cli.live import Progress, View, publishable
from streampca.cli.messages import SpentError, terminal_width
from streampca.errors import SourceError, StreamPCAError
from streampca.linalg.types import FloatArray
from streampca.privacy.unit import names_of
from streampca.regret.private_regret import PrivateRegretRecord
from streampca.regret.regret import RegretRecord
from streampca.release.release import Release
from streampca.rows.owners import named_values
from streampca.rows.people import NOBODY
from streampca.rows.protocol import RowSource
from streampca.store.config import public_parameters
from streampca.store.store import Store
from streampca.stream.feed import batches, feed_timed, push
from streampca.stream.step import Steps
from streampca.stream.stream import Stream
from streampca.views.card import Card, curator_card
from streampca.views.facts import Looks, Marks, summary
from streampca.views.page import Page

#: For `RegretLog.every`, where the session creates the records itself: the log keeps none, so memory stays flat.
NEVER = 2**62
#: What stops a run. Anything else is a bug.
_FAILURES = (StreamPCAError, OSError, MemoryError)
_DO_NOT_PUBLISH = "Curator only: exact functions of raw rows, no privacy at all; do not publish."


def repeated(stream: Stream, store: Store) -> Callable[[FloatArray, Sequence[Sequence[Any]]], None]:
    """Return a check of rows that a resumed run with a unit passes over: they are weighted again, as in the store."""
    engine, people, passed = stream.engine, NOBODY, store.passed_rows()
    # With a calendar, the store has no digest of rows to compare, and any rows are passed over.
    budgets = None if stream.algorithm.has_calendar else stream.algorithm.budgets(b"")

    def check(rows: FloatArray, cells: Sequence[Sequence[Any]]) -> None:
        nonlocal people
        if budgets is not None:
            first, names, every = passed.count, names_of(cells), engine.algorithm.every
            admission, values = engine.now.admission, named_values(rows, names)
            admitted, few = admission.block(values, first + 1)[0], max(0, admission.warmup - first)
            if few:  # these rows have found the bounds: the store holds zero rows in their place
                admitted[:few] = 0.0
                votes = replace(admission, found=None).block(values[:few], first + 1)[1].votes
                assert votes is not None
                people = budgets.voted(people, votes, names[:few])[1]
            numbers = [(first + i) // every + 1 for i in range(len(rows))]
            admitted, people = budgets.weighted(people, admitted, names, numbers)
            passed.take(admitted)

    return check


@dataclass(eq=False)
class Session:
    """One run of a source through a stream. Its files are complete wherever it ends."""

    # The first Ctrl-C or SIGTERM stops it between two batches, the second immediately.

    stream: Stream
    source: RowSource
    files: Files
    views: Sequence[View]
    _: KW_ONLY
    skip: int = 0  #: first rows of the source to pass over
    new_source: bool = False  #: see `Stream.run`, for sources that continue from a position
    limit: int | None = None  #: number of rows of the source after which the run stops
    every: int = 1000  #: rows between the records of the regret
    followed: bool = False  #: a file or a view needs exact records during the run; one is created at the end anyway
    #: of a durable run. Releases are written when their rows are durable, without waiting for each commit.
    store: Store | None = None
    page: Page | None = None  #: shows the releases too
    name: str = ""  #: of the source, for the card
    units: Mapping[str, str] = field(default_factory=dict)  #: of columns by name, for the card
    quiet: bool = False  #: whether the card on standard error lacks the curator's line
    paths: Sequence[Any] | None = None  #: of Parquet files that ``processes`` read, see `Stream.absorb`
    processes: int | None = None
    share: float | None = None  #: of the variance, which the components of each release are to hold
    time: str | None = None  #: for a calendar, the column with the times of the rows; None for arrivals
    end: str | None = None  #: with it, the public end of the periods

    def __post_init__(self) -> None:
        self.progress = Progress(0, 0.0, 0, None)  #: the last state, after the run
        self.signal = 0  #: number of the latest signal, which stops the run
        self._is_waiting = False  # for rows: nothing is lost then, and the first signal stops it immediately
        self.problem: StreamPCAError | OSError | MemoryError | None = None  #: the error that stopped the run, if any
        self._written = self._durable = 0  # rows of the last release in its file, and rows of the store
        self._waiting: deque[Steps] = deque()  # steps whose rows are not durable yet
        self._is_complete = False  # the source ended without error or signal
        self._releases, self._first, self._looks = 0, self.stream.t, Looks()
        self._release: Release | None = None
        self._record: RegretRecord | None = None
        self._private_record: PrivateRegretRecord | None = None
        self._started = time.perf_counter()
        self._inputs = "rows" if self.stream.engine.calendar is None else "periods"

    def run(self) -> Session:
        """Run to the end of the rows, or until interrupted; return this session."""
        before: dict[int, Any] = {}
        try:
            if threading.current_thread() is threading.main_thread():  # no other thread may set handlers
                for number in (signal.SIGINT, signal.SIGTERM):
                    before[number] = signal.signal(number, self._interrupt)
            try:
                self._loop()
            except KeyboardInterrupt:  # while waiting for rows, or the second one: the stream is before or after a push
                pass
            except BrokenPipeError:  # the reader of the output has all that it wants
                raise
            except _FAILURES as raised:
                self.problem = raised
            finally:
                # Each step is tried although an earlier one failed, and the first error is the one reported.
                last: list[Callable[[], object]] = [
                    self._tick, partial(self._write, last=True), self._take_private_record, self._take_record,
                    *(file.close for file in self.files.all), self._close_store,
                ]  # fmt: skip
                for finish in last:
                    self._try(finish)
                if self._release is not None:
                    self._looks.last(self._release)
                self.progress = self._progress(self._record)
                for view in self.views:
                    view.end(self.progress)
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
        return self

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        again, self.signal = bool(self.signal), number
        if self._is_waiting or again:
            raise KeyboardInterrupt

    def exit_code(self) -> int:
        if self.problem is None:
            return 128 + self.signal if self.signal else 0
        nothing = self.stream.t == self._first and self.stream.engine.now.period is None
        raise self.problem if nothing else SpentError(self.problem)

    def _try(self, finish: Callable[[], object]) -> None:
        """Finish something. An error is the problem of the run unless it has one."""
        try:
            finish()
        except _FAILURES as raised:
            self.problem = self.problem or raised

    def _close_store(self) -> None:
        if self.store is not None:
            with closing(self.store) as store:
                try:
                    store.flush()
                finally:  # a failure reports what is durable
                    self._durable = store.durable

    def stopped(self) -> str:
        rows, where = self._written, str(self.files.releases.path)
        if self.files.releases.path is None and self.store is not None:
            rows, where = self._durable, self.store.path
        guarantee = self.stream.guarantee
        spent = f"ε = {guarantee.epsilon:g} is spent; " if guarantee.is_private else ""
        kept = f"{rows} {self._inputs} are in {where}" if rows else "no file was written"
        return f"Stopped after {self.stream.t} {self._inputs} by the problem below: {spent}{kept}."

    def _tick(self) -> None:
        """Close the periods that are due by the clock, if rows count on arrival."""
        if self.stream.engine.calendar is not None and self.time is None:
            self._waiting.append(self.stream.tick())
            self._write()

    def _loop(self) -> None:
        if self.time is not None:
            for steps in feed_timed(self.stream.engine, self.source, self.time, self.end, new_source=self.new_source):
                self._waiting.append(steps)
                self._write()
                if self.signal:
                    return
            self._is_complete = True
            return
        self.stream.engine.adopt(self.source)
        self._tick()
        self.source.while_idle(self._tick)
        rows: Iterator[Any] = batches(
            self.stream.engine, self.source, new_source=self.new_source, limit=self.limit, rest=self._rest,
            every=self.every if self.followed else None,
        )  # fmt: skip
        if self.paths is not None:
            rows = self.stream.absorb(self.paths, self.processes)
        while not self.signal:
            self._is_waiting = True
            batch = next(rows, None)
            self._is_waiting = False
            if batch is None:
                self._is_complete = True
                return
            # Rows of a durable run wait for their commit: releases that a crash would forget are not published.
            if self.paths is None:
                self._waiting.extend(push(self.stream.engine, batch))
            else:
                self._waiting.append(batch.steps())
            self._write()
            # `batches` cuts at the multiples of ``every``, so that none is passed over.
            if self.followed and self.stream.t % self.every == 0:
                self._take_record()
            if due := [view for view in self.views if time.monotonic() >= view.due]:
                # `streampca serve` and tail -f read the files while the run proceeds.
                self.files.flush()
                progress = self._progress(self._latest())
                for view in due:
                    view.show(progress)

    def _rest(self, blocks: Iterator[FloatArray]) -> Iterator[FloatArray]:
        """Yield the rows after those that are passed over. Refuse another file than that of a durable run."""
        # Rows of a resumed run are admitted again and compared with the digest of those that the store holds.
        skip, admission, passed = self.skip, self.stream.engine.now.admission, None
        if self.store is not None and self.stream.t and self.stream.engine.calendar is None:
            passed = self.store.passed_rows()
        for block in blocks:
            start = min(skip, len(block))
            if passed is not None and self.skip:
                admitted = admission.block(block[:start], passed.count + 1)[0]
                # The first rows only found the bounds: the store holds zero rows in their place.
                admitted[: max(0, admission.warmup - passed.count)] = 0.0
                passed.take(admitted)
            elif passed is not None:
                passed.check_next(admission.block(block[: passed.HEAD], self.stream.t + 1)[0])
            skip -= start
            if not skip:
                passed = None
            if start < len(block):
                yield block[start:]
        if skip:
            raise SourceError(
                None, f"the file has {self.skip - skip} rows, but the run has absorbed {self.skip}; give the whole "
                f"file, or pass --continues if it begins with row {self.skip + 1}"
            )  # fmt: skip

    def _write(self, *, last: bool = False) -> None:
        """Write the releases whose rows are durable; at the end, all of them, waiting for the commit."""
        while self._waiting:
            steps = self._waiting[0]
            if self.store is not None and not last and steps.first + len(steps) - 1 > self.store.durable:
                return
            self._waiting.popleft()
            if not (releases := steps.releases):
                continue
            if self.share is not None:
                releases = [release.holding(self.share) for release in releases]
            self._begin()
            self._releases += len(releases)
            self.files.releases.add(releases)
            if self.page is not None:
                self.page.add(releases)
            for release in releases:
                before = 0 if self._release is None else self._release.t
                self._release = release
                if self.followed:
                    self._looks.see(release)
                # The first release after each multiple of ``every`` rows: a rule from public numbers only.
                if release.t // self.every != before // self.every:
                    self._take_private_record()
            self.files.flush()
            self._written = self.files.releases.t
        if last and self._is_complete and self.stream.t:
            self._begin()  # a complete run without a release has its header, too

    def _begin(self) -> None:
        if self.files.is_begun:
            return
        stream, admission = self.stream, self.stream.engine.now.admission
        bounds = "private" if admission.warmup else self.source.bounds
        parameters = public_parameters(stream.algorithm, row_norm=stream.row_norm, bounds=bounds)
        self.files.begin(stream.engine.processor.terms, parameters)
        if self.page is not None:
            self.page.describe(parameters)

    def _latest(self) -> RegretRecord | None:
        """Return the exact record of this moment, which may be the kept one."""
        if self.stream.engine.regret_log is None or not self.stream.t:
            return None
        return self._record if self._record and self._record.t == self.stream.t else self.stream.regret.now()

    def _take_record(self) -> None:
        """Create the exact record of this moment for the file and the views, unless it exists."""
        record = self._latest()
        # At most one record of a row number: readers of the file rely on growing t.
        if record is not None and record is not self._record:
            self._record = record
            for view in self.views:
                view.add(record)
            self.files.add_regret(record)

    def _take_private_record(self) -> None:
        """Create the publishable record of the latest release for its file, unless it exists."""
        release, record = self._release, self._private_record
        if release is None or self.stream.engine.private_log is None or (record is not None and record.t == release.t):
            return
        config = self.stream.private_regret.config
        self._private_record = PrivateRegretRecord.of(release, confidence=config.confidence, rows=config.rows)
        self.files.private_regret.write(self._private_record.to_json() + "\n")

    def _progress(self, record: RegretRecord | None) -> Progress:
        # A text file estimates its number of rows from its size.
        expected = None if self.stream.engine.calendar is not None else self.source.expected_rows
        if expected is not None and self._is_complete:
            expected = self.stream.t
        elif expected is not None:
            expected = expected + self._first - self.skip if self.limit is None else self.limit
        return Progress(
            self.stream.t, time.perf_counter() - self._started, self._releases, record, self._private_record,
            self._release, self.stream.admission, expected, self._looks.marks,
        )  # fmt: skip

    def card(self, budget: str = "") -> Card | None:
        """Return the card of the run; None without a release. Curator only."""
        progress = self.progress
        if progress.release is None:
            return None
        # The only release of a run is one release.
        marks = Marks.of(progress.release) if progress.releases == 1 else progress.marks
        title = f"{self.name} → {self.files.releases.path}" if self.files.releases.is_written else self.name
        made = curator_card(
            progress.release, progress.record, progress.admitted, budget,
            title=title, releases=progress.releases, marks=marks,
        )  # fmt: skip
        return replace(made, units=self.units)

    def conclude(self, title: str, budget: str = "", *, brief: bool = False) -> list[str]:
        """Write the summary of the run, and return its last lines: files with their readers, and its card or cost."""
        # With ``brief`` the card alone, which names the only file.
        progress, files, card, lines = self.progress, self.files, self.card(budget), []
        # A run that absorbed no row has nothing to conclude: its error is the message.
        if self.problem is not None and not progress.t:
            return []
        if card is not None:
            text = f"# {title}\n\n**{_DO_NOT_PUBLISH}**\n\n{textwrap.indent(card.text(100), '    ')}\n"
            self._try(lambda: files.summary.write(text))
            self._try(files.summary.close)
        if self.signal:
            is_begun = progress.releases or files.releases.is_written
            complete = "the files are complete up to there" if is_begun else "no file was written"
            lines.append(f"Interrupted after {progress.t} {self._inputs}; {complete}.")
        if self.problem is not None:
            lines.append(self.stopped())
        if not brief:
            lines.append(f"{progress.t} {self._inputs}, {progress.releases} releases, {progress.seconds:.1f} s")
        if progress.t and not progress.releases:
            remedy = "or a smaller --release-every"
            if self.stream.warmup_left:
                warmup = progress.t + self.stream.warmup_left
                remedy = f"a bounds.warmup smaller than {warmup}, which is for private bounds, or public bounds"
            lines.append(f"No release was due yet: give more rows, {remedy}.")
        for file in files.all:
            if file.is_written and not brief:
                lines.append(f"{'curator only:' if file.is_curators else 'publishable: '} {file.path}")
        if progress.private is not None:
            lines.append(f"publishable:  {publishable(progress.private)}")
        if card is not None:
            elsewhere = "" if brief else ", or in a file by --summary"
            return [*lines, *[""] * (not brief), *card_lines(card, elsewhere, quiet=self.quiet)]
        lines.append(f"privacy:      {summary(self.stream.guarantee)}")
        return [*lines, f"budget:       {budget}"] if budget else lines


def card_lines(card: Card, elsewhere: str = "", *, quiet: bool = False) -> list[str]:
    """Return the card of a run for standard error. The curator's figures are only for a terminal that is not quiet."""
    width = terminal_width()
    public = replace(card, facts=[fact for fact in card.facts if not fact.curator]).text(width)
    if quiet or card.is_publishable:
        return [public]
    if not sys.stderr.isatty():  # it may be a log that others read
        return [public, f"What was done to the rows, and exact figures: in a terminal{elsewhere} (curator only)."]
    told = textwrap.wrap(card.curator, width)
    # Where many rows were clipped, the components are those of the clipped rows: read this line first, in bold.
    return [*(f"\033[1m{line}\033[0m" for line in told), public] if card.is_clipped else [public, *told]
