"""One run: rows from a source through a stream into files and a view, until the rows end or the user stops it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from glob import glob
from itertools import combinations
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, TextIO

from streampca.cli.live import Progress, View, publishable, spent
from streampca.cli.terminal import is_terminal, terminal_width
from streampca.errors import BadParameterError, SourceError, StreamPCAError
from streampca.linalg.types import FloatArray
from streampca.private_regret import PrivateRegretRecord
from streampca.regret import RegretRecord
from streampca.release import Release, Terms
from streampca.release_file import Header
from streampca.rows import RowSource
from streampca.store.config import public_parameters
from streampca.stream.feed import batches, push
from streampca.stream.step import Steps
from streampca.stream.stream import Stream
from streampca.views.card import Card, curator_card

if TYPE_CHECKING:  # optional parts
    from streampca.cli.page import Page
    from streampca.store.store import Store

#: For `RegretLog.every`, where the session makes the records itself: the log keeps none, so memory stays flat.
NEVER = 2**62
CURATOR_ONLY = "# curator only: exact functions of raw rows, no privacy at all; do not publish"
_DO_NOT_PUBLISH = "Curator only: exact functions of raw rows, no privacy at all; do not publish."
_COLUMNS = ("t", "reward", "opt", "regret", "bound", "captured", "slack")


# -- files --------------------------------------------------------------------------


def refuse_inputs(source: Path, *written: Path | None) -> None:
    """Refuse to write a file that is read, whatever is to be overwritten.

    Raises `BadParameterError` if one of the files that are written is one of those that ``source``, a path or a
    pattern, names.
    """
    read = [Path(name) for name in glob(str(source))] or [source]
    for path in written:
        if path is not None and path.exists() and any(one.exists() and path.samefile(one) for one in read):
            raise BadParameterError(f"{path} is read, and would be overwritten; name another file to write")


class OutputFile:
    """A text file that is opened by its first line: a run that absorbs nothing writes and overwrites nothing.

    The path ``-`` is standard output, and None is no file at all. Only its owner may read a file of the ``curator``.
    Raises `BadParameterError` if the file exists and ``force`` is false.
    """

    def __init__(self, path: Path | None, *, force: bool = False, curator: bool = False) -> None:
        self.path = path
        self._force, self._curator = force, curator
        self._file: TextIO | None = None
        self._is_stdout = str(path) == "-"
        if not force and path is not None and not self._is_stdout and path.exists():
            raise self._exists()

    def write(self, text: str) -> None:
        """Write text; the first call opens the file."""
        if self.path is None:
            return
        if self._file is None:
            self._file = sys.stdout if self._is_stdout else self._open(self.path)
        self._file.write(text)

    def _open(self, path: Path) -> TextIO:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            opener = partial(os.open, mode=0o600) if self._curator else None
            mode: Literal["w", "x"] = "w" if self._force else "x"
            file = open(path, mode, encoding="utf-8", newline="\n", opener=opener)  # noqa: SIM115
            if self._curator:  # one that is overwritten keeps its mode
                path.chmod(0o600)
            return file
        except FileExistsError:
            raise self._exists() from None

    def _exists(self) -> BadParameterError:
        return BadParameterError(f"{self.path} exists; pass another name, or --force to overwrite it")

    @property
    def is_written(self) -> bool:
        """True once it is there, and is a file and not standard output."""
        return self._file is not None and not self._is_stdout

    def flush(self) -> None:
        """Flush the file."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Finish the file."""
        self.flush()
        if self._file is not None and not self._is_stdout:
            self._file.close()


class ReleaseFile(OutputFile):
    """``releases.jsonl``: a header line, then one in ``keep_every`` releases a line. Publishable."""

    def __init__(self, path: Path | None, *, gram: bool = True, keep_every: int = 1, force: bool = False) -> None:
        if keep_every < 1:
            raise BadParameterError(f"keep_every={keep_every} must be at least 1")
        super().__init__(path, force=force)
        self._gram, self._every = gram, keep_every
        self._mark = ""
        self.made = self.written = 0

    def header(self, terms: Terms, parameters: Mapping[str, Any]) -> None:
        """Write the first line. `parameters` must be public: no seed, no key, nothing of the rows."""
        self._mark = terms.mark
        self.write(Header(terms, parameters).to_json() + "\n")

    def add(self, releases: list[Release]) -> None:
        """Write releases, in order, without what they share with the header."""
        for release in releases:
            if self.path is not None and self.made % self._every == self._every - 1:
                own = release.terms.mark != self._mark
                self.write(release.to_json(gram=self._gram, terms=own) + "\n")
                self.written += 1
            self.made += 1


class Files:
    """Files of a run, those that are asked for.

    Releases and the regret as intervals (``private_regret``) are publishable; the exact regret and the card of the run
    (``summary``) are curator only, and say so. Raises `BadParameterError` if two of them are one file, or one exists
    and ``force`` is false.
    """

    def __init__(
        self,
        releases: Path | None = None,
        *,
        gram: bool = True,
        keep_every: int = 1,
        regret: Path | None = None,
        private_regret: Path | None = None,
        summary: Path | None = None,
        force: bool = False,
    ) -> None:
        named = {"--out": releases, "--regret": regret, "--private-regret": private_regret, "--summary": summary}
        for (one, path), (other, same) in combinations(named.items(), 2):
            if path is not None and path == same:
                raise BadParameterError(f"{one} and {other} are both {path}; give each a file of its own")
        self.releases = ReleaseFile(releases, gram=gram, keep_every=keep_every, force=force)
        self.regret = OutputFile(regret, force=force, curator=True)
        self.private_regret = OutputFile(private_regret, force=force)
        self.summary = OutputFile(summary, force=force, curator=True)
        self._all = self.releases, self.regret, self.private_regret, self.summary
        self._early: list[str] | None = [f"{CURATOR_ONLY}\n{','.join(_COLUMNS)}\n"]  # of the regret; None once begun

    def begin(self, terms: Terms, parameters: Mapping[str, Any]) -> None:
        """Write the first lines. Until then nothing is written: without a release, a run that fails leaves no file."""
        self.releases.header(terms, parameters)
        self.regret.write("".join(self._early or ()))
        self._early = None

    def add_regret(self, record: RegretRecord) -> None:
        """Write a record of the exact regret."""
        if self.regret.path is not None:
            write = self.regret.write if self._early is None else self._early.append
            values = (getattr(record, name) for name in _COLUMNS)
            write(",".join("nan" if value is None else repr(value) for value in values) + "\n")

    def flush(self) -> None:
        """Flush the files."""
        for file in self._all:
            file.flush()

    def close(self) -> None:
        """Finish the files."""
        for file in self._all:
            file.close()


def parameters_of_run(stream: Stream, source: RowSource) -> dict[str, Any]:
    """The parameters of a run that may be published."""
    admission = stream.engine.now.admission
    bounds = "private" if admission.warmup else source.bounds
    return public_parameters(stream.algorithm, row_norm=stream.row_norm, center=admission.center, bounds=bounds)


# -- the loop -----------------------------------------------------------------------


class Interrupts:
    """Handler of Ctrl-C and SIGTERM: the first stops a run between two batches, the second at once."""

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
        """Stop at once at the first signal: nothing is lost while the run waits for rows."""
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
    """One run. Its files are complete at whatever point it ends.

    Parameters
    ----------
    stream : what the rows go into.
    source : where they come from.
    files : what is written.
    views : where progress is shown.
    skip : first rows of the source to pass over.
    new_source : see `Stream.run`, for sources that go on from a position.
    limit : stop after so many rows of the source.
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
        self._begun = False  # the files
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
            if releases and not self._begun:
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
            if releases:  # whoever follows the file sees them now
                self._files.flush()

    def _write_all(self) -> None:
        self._write(last=True)
        if self._ended and self._stream.t and not self._begun:
            self._begin()

    def _begin(self) -> None:
        self._begun = True
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
        seconds = time.perf_counter() - self._started
        admitted = self._stream.admission
        return Progress(
            self._stream.t, seconds, self._made, admitted.bad_rows, record,
            self._private_record, self._release, admitted, self._expected(),
        )  # fmt: skip

    def _expected(self) -> int | None:
        """Number of rows at the end, if the source knows; it may be off by what its lines do not say."""
        rows: int | None = getattr(self._source, "expected_rows", None)
        if rows is None:
            return None
        if self._ended:
            return self._stream.t
        return rows + self._first - self._skip if self._limit is None else self._limit


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
        if stream.warmup_left:
            remedy = f"a smaller --warmup than {warmup}, which is for private bounds, or public bounds"
        else:
            remedy = "or a smaller --release-every"
        lines.append(f"No release was due yet: give more rows, {remedy}.")
    made = card_of(ending, budget)
    publishables, curators = (files.releases, files.private_regret), (files.regret, files.summary)
    for file in (*publishables, *curators):
        if file.is_written:
            lines.append(f"{'publishable: ' if file in publishables else 'curator only:'} {file.path}")
    if progress.private is not None:
        lines.append(f"publishable:  {publishable(progress.private)}")
    if made is None:
        lines.append(f"privacy:      {spent(stream.guarantee, progress.releases)}")
        return [*lines, *([f"budget:       {budget}"] if budget else [])]
    return [*lines, "", *card_lines(made, ", or in a file by --summary")]


def card_lines(made: Card, elsewhere: str = "") -> list[str]:
    """Return the card of a run for standard error. The curator's figures are left out unless that is a terminal."""
    if made.is_publishable or is_terminal(sys.stderr):
        return [made.text(terminal_width())]
    # Standard error may be a log that others read.
    left_out = f"What was done to the rows, and exact figures: in a terminal{elsewhere} (curator only)."
    return [made.publishable.text(terminal_width()), left_out]


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
