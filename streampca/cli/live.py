"""Views of a run: a live one in a terminal, plain lines elsewhere.

Everything but the number of rows, the guarantee and the intervals of the regret is curator only: exact functions
of raw rows. The live view says so, and plain lines have none of it.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from rich import progress as bars
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from streampca.cli.messages import console
from streampca.errors import printable
from streampca.linalg.memory import History
from streampca.privacy.guarantee import Guarantee
from streampca.regret.private_regret import PrivateRegretRecord
from streampca.regret.regret import RegretRecord
from streampca.release.release import Release
from streampca.rows.report import AdmissionReport
from streampca.views.card import card
from streampca.views.facts import ESTIMATED, SPENT, Fact, Marks, admission_facts, grouped, regret_facts, summary

#: Seconds between two updates of a live view.
PERIOD = 0.25


@dataclass(frozen=True)
class Progress:
    """State of a run: counts so far, and the latest release and records of the regret."""

    t: int  #: rows
    seconds: float
    releases: int
    record: RegretRecord | None
    private: PrivateRegretRecord | None = None
    release: Release | None = None
    admitted: AdmissionReport | None = None  #: changes of rows before they were absorbed
    expected: int | None = None  #: number of rows at the end, if known
    marks: Marks = Marks()  # noqa: RUF009  #: which components stand out


class View:
    """Base of the objects that show how a run proceeds."""

    period: ClassVar[float]  #: seconds between two updates
    due = 0.0  #: time of the next update, by the monotonic clock

    def add(self, record: RegretRecord) -> None:
        """Add a point to the regret curve."""

    def show(self, progress: Progress) -> None:
        self.due = time.monotonic() + self.period

    def end(self, progress: Progress) -> None:
        if progress.t:
            self.show(progress)


@dataclass(eq=False)
class LiveView(View):
    """View for terminals, redrawn in place four times a second."""

    console: Console
    title: str
    guarantee: Guarantee
    total: int | None

    period = PERIOD

    def __post_init__(self) -> None:
        self._seen, self._curve = 0, History(RegretRecord.of)
        columns = bars.BarColumn(), bars.MofNCompleteColumn(), bars.TaskProgressColumn(show_speed=True)
        self._bar = bars.Progress(*columns, bars.TimeElapsedColumn(), bars.TimeRemainingColumn(), console=self.console)
        self._rows = self._bar.add_task("rows", total=self.total)
        # Drawn between batches only: a thread of rich would compete with the stream for the interpreter.
        self._live = Live(console=self.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def add(self, record: RegretRecord) -> None:
        self._seen += 1
        if self._seen % self._curve.step == 0:  # the history keeps at most 512 points, in equal steps
            self._curve = self._curve.append(record)

    def show(self, progress: Progress) -> None:
        super().show(progress)
        self._live.start()  # no effect but for the first time
        self._live.update(self.render(progress), refresh=True)

    def end(self, progress: Progress) -> None:
        super().end(progress)
        self._live.stop()

    def render(self, progress: Progress) -> Group:
        """Return title, bar and facts, fitted to the terminal."""
        total = min((n for n in (self.total, progress.expected) if n), default=None)
        self._bar.update(self._rows, completed=progress.t, total=total)
        facts = [Fact(SPENT, summary(self.guarantee))]
        if progress.seconds > 0.0:
            facts.append(Fact("Rows per second", grouped(round(progress.t / progress.seconds))))
        facts += [] if progress.record is None else regret_facts(progress.record)
        # The logarithm of a regret that is zero, or below it by rounding, does not exist.
        averages = [record.average for record in self._curve.records if 0.0 < record.average < math.inf]
        if len(averages) > 1:
            facts.append(Fact("Its curve, on a log scale", trend(averages, self.console.width // 2)))
        facts += [] if progress.private is None else [Fact("Publishable", publishable(progress.private))]
        if progress.release is not None:
            shown = card(progress.release, estimated=ESTIMATED, marks=progress.marks)
            facts.append(Fact("Releases", grouped(progress.releases)))
            facts += [fact for fact in shown.facts if fact.label != SPENT]
        facts += [] if progress.admitted is None else admission_facts(progress.admitted)
        table = Table.grid(padding=(0, 1))
        for style, width in (("dim", min(len(SPENT), self.console.width // 2)), ("", None)):
            table.add_column(style=style, no_wrap=True, overflow="ellipsis", min_width=width)
        # Title and bar take two lines, and one is the cursor's.
        for fact in facts[: max(1, self.console.height - 3)]:
            table.add_row(fact.label, printable(fact.value))
        title = Text(f"{self.title} · curator only", "bold", no_wrap=True, overflow="ellipsis")
        return Group(title, self._bar, table)


@dataclass(eq=False)
class PlainView(View):
    """View for logs and pipes: its title, then a line every two seconds, publishable like the releases."""

    console: Console
    title: str
    total: int | None

    period = 2.0

    def __post_init__(self) -> None:
        self._shown = 0  # rows on the latest line
        self.console.print(self.title)
        self.due = time.monotonic() + self.period

    def show(self, progress: Progress) -> None:
        super().show(progress)
        # The end of a batch depends on the bytes of cells and on bad rows: a log counts thousands of rows.
        rows = progress.t - progress.t % 1000
        if rows > self._shown:
            self._shown = rows
            of = f" of {self.total}" if self.total else ""
            self.console.print(f"{rows}{of} rows, {progress.seconds:.1f} s")

    def end(self, progress: Progress) -> None:
        pass  # the command prints the last counts


def view(live: bool | None, title: str, guarantee: Guarantee, total: int | None) -> View:
    """Return the view that fits standard error, or the one asked for."""
    on, is_live = console(sys.stderr), live is not False and sys.stderr.isatty()
    return LiveView(on, title, guarantee, total) if is_live else PlainView(on, title, total)


def publishable(record: PrivateRegretRecord) -> str:
    """Describe a publishable record of the regret in one line."""
    low, high = record.average
    return f"regret per row in [{low:.4g}, {high:.4g}] at t = {record.t}, confidence {100.0 * record.confidence:g} %"


def trend(values: Sequence[float], width: int) -> str:
    """Draw positive values as bars of eight heights on a logarithmic scale, the latest on the right."""
    places = np.linspace(0, len(values) - 1, max(1, min(width, len(values)))).astype(int)
    logs = np.log(np.array(values)[places])  # regret a row falls by orders of magnitude
    heights = (logs - logs.min()) / max(float(np.ptp(logs)), 1e-9) * 7.0
    return "".join("▁▂▃▄▅▆▇█"[int(height)] for height in heights)
