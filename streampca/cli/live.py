"""What a run looks like while it runs: a live view in a terminal, plain lines elsewhere.

Everything but the number of rows and the guarantee is curator only: exact
functions of raw rows, for the eyes of the trusted side. The view says so.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from streampca.cli.chart import Curve, Line, chart
from streampca.privacy.guarantee import Guarantee
from streampca.private_regret import PrivateRegretRecord
from streampca.regret import RegretRecord

PERIOD = 0.25
PLAIN_PERIOD = 2.0
WIDEST = 140
_REGRET, _BOUND = "bold cyan", "yellow"


@dataclass(frozen=True)
class Progress:
    """Where a run stands."""

    t: int
    seconds: float
    releases: int
    bad_rows: int
    record: RegretRecord | None
    private: PrivateRegretRecord | None = None


class View(Protocol):
    """Something that shows how a run goes."""

    def start(self) -> None:
        """Begin showing."""

    def add(self, record: RegretRecord) -> None:
        """Take in a point of the regret curve."""

    @property
    def due(self) -> bool:
        """True if it is time to show again."""

    def show(self, progress: Progress) -> None:
        """Show where the run stands."""

    def end(self, progress: Progress) -> None:
        """Show the last state and stop."""


class _Clock:
    def __init__(self, period: float) -> None:
        self._period, self._next = period, 0.0

    @property
    def due(self) -> bool:
        return time.monotonic() >= self._next

    def again(self) -> None:
        self._next = time.monotonic() + self._period


class LiveView:
    """The view for terminals, redrawn in place four times a second."""

    def __init__(
        self, console: Console, title: str, guarantee: Guarantee, n_components: int, total: int | None
    ) -> None:
        self._console, self._title, self._guarantee = console, title, guarantee
        self._k, self._total = n_components, total
        self._clock = _Clock(PERIOD)
        self._regret, self._bound = Curve(), Curve()
        self._rate = 0.0
        self._last = (0, 0.0)
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def start(self) -> None:
        """Begin showing."""
        self._live.start()

    def add(self, record: RegretRecord) -> None:
        """Take in a point of the regret curve."""
        self._regret.add(record.t, record.regret / record.t)
        self._bound.add(record.t, record.bound / record.t)

    @property
    def due(self) -> bool:
        """True four times a second."""
        return self._clock.due

    def show(self, progress: Progress) -> None:
        """Redraw."""
        self._clock.again()
        t, seconds = self._last
        if progress.seconds > seconds:
            now = (progress.t - t) / (progress.seconds - seconds)
            self._rate = now if not self._rate else 0.8 * self._rate + 0.2 * now
        self._last = progress.t, progress.seconds
        self._live.update(self.render(progress), refresh=True)

    def end(self, progress: Progress) -> None:
        """Draw the last state and leave it on the screen."""
        self._rate = progress.t / progress.seconds if progress.seconds > 0.0 else 0.0
        if progress.t:
            self._live.update(self.render(progress), refresh=True)
        self._live.stop()

    def render(self, progress: Progress) -> Group:
        """The whole view, fitted to the terminal."""
        width, height = self._console.size
        facts = self._facts(progress)
        rows = min(height - facts.row_count - 4, 24)
        title = Text(self._title, "bold", no_wrap=True, overflow="ellipsis")
        if rows < 5:
            return Group(title, facts)
        curve = chart(
            [Line(self._bound.points, _BOUND), Line(self._regret.points, _REGRET)],
            min(width - 1, WIDEST), rows, x_max=self._total,
        )  # fmt: skip
        legend = Text.assemble(
            " " * 9, ("━━ regret per row", _REGRET), "   ", ("━━ bound on it", _BOUND), "   ",
            ("log scale, curator only", "dim"), no_wrap=True, overflow="ellipsis",
        )  # fmt: skip
        return Group(title, facts, legend, curve)

    def _facts(self, progress: Progress) -> Table:
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(style="dim", width=8, justify="right", no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        table.add_row("rows", self._progress(progress))
        for name, value in facts(progress, self._guarantee, self._k):
            table.add_row(name, value)
        return table

    def _progress(self, progress: Progress) -> Table:
        line = Table.grid(padding=(0, 2), expand=True)
        count = f"{progress.t:,}".replace(",", " ")
        speed = f"{self._rate:,.0f} rows/s".replace(",", " ")
        spent = f"{progress.seconds:.0f} s"
        if self._total is None:
            line.add_row(Text(f"{count}   {speed}   {spent}"))
            return line
        line.add_column(no_wrap=True)
        line.add_column(ratio=1)
        line.add_column(no_wrap=True)
        whole = f"{self._total:,}".replace(",", " ")
        bar = ProgressBar(self._total, min(progress.t, self._total))
        if self._rate > 0.0 and progress.t < self._total:
            spent += f", {(self._total - progress.t) / self._rate:.0f} s left"
        line.add_row(f"{count} of {whole}", bar, f"{speed}  {spent}")
        return line


def facts(progress: Progress, guarantee: Guarantee, n_components: int) -> list[tuple[str, str]]:
    """The lines of the view: name and value."""
    record, lines = progress.record, [("privacy", spent(guarantee, progress.releases))]
    if record is not None:
        bound = f"bound {record.bound / record.t:.4g}" if record.bound == record.bound else "no bound known"
        lines += [
            (
                "captured",
                f"{floor(100.0 * record.captured, 3)} % of the best {n_components}-dimensional subspace so far",
            ),
            ("regret", f"{record.regret / record.t:.4g} per row ({bound}); {record.regret:.5g} in all"),
        ]
    if progress.private is not None:
        lines.append(("public", publishable(progress.private)))
    if progress.bad_rows:
        lines.append(("bad rows", f"{progress.bad_rows} absorbed as zero rows"))
    return lines


def publishable(record: PrivateRegretRecord) -> str:
    """The one line about regret that may leave."""
    low, high = record.average
    return f"regret per row in [{low:.4g}, {high:.4g}] at t = {record.t}, confidence {100.0 * record.confidence:g} %"


def floor(share: float, digits: int) -> str:
    """A share rounded down, so that one that falls short of all never reads as all."""
    scale = 10.0**digits
    return f"{math.floor(share * scale + 1e-9) / scale:.{digits}f}"


def spent(guarantee: Guarantee, releases: int) -> str:
    """What the releases so far cost, in one line."""
    count = f"{releases:,}".replace(",", " ")
    if not guarantee.is_private:
        return f"none: {guarantee.theorem}"
    seeded = " [seeded]" if guarantee.caveat.startswith("seeded") else ""
    return (
        f"({guarantee.epsilon:g}, {guarantee.delta:g})-DP for {guarantee.unit}, {guarantee.adjacency}; "
        f"covers all {count} releases{seeded}"
    )


class PlainView:
    """The view for logs and pipes: a line every two seconds."""

    def __init__(
        self, console: Console, title: str, guarantee: Guarantee, n_components: int, total: int | None
    ) -> None:
        self._console, self._title, self._guarantee = console, title, guarantee
        self._total = total
        self._clock = _Clock(PLAIN_PERIOD)

    def start(self) -> None:
        """Say what runs."""
        self._say(self._title)
        self._clock.again()

    def add(self, record: RegretRecord) -> None:
        """Nothing is kept: lines are not redrawn."""

    @property
    def due(self) -> bool:
        """True every two seconds."""
        return self._clock.due

    def show(self, progress: Progress) -> None:
        """Print a line."""
        self._clock.again()
        share = f" of {self._total}" if self._total else ""
        line = f"{progress.t}{share} rows, {progress.releases} releases, {progress.seconds:.1f} s"
        if progress.record is not None:
            r = progress.record
            line += f" | curator only: captured {floor(r.captured, 5)}, "
            line += f"regret per row {r.average:.4g}, bound {r.bound / r.t:.4g}"
        if progress.private is not None:
            line += f" | publishable: {publishable(progress.private)}"
        if progress.bad_rows:
            line += f", {progress.bad_rows} bad rows"
        self._say(line)

    def end(self, progress: Progress) -> None:
        """Print the last line."""
        if progress.t:
            self.show(progress)

    def _say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


def view(live: bool | None, title: str, guarantee: Guarantee, n_components: int, total: int | None) -> View:
    """The view that fits standard error, or the one asked for."""
    console = Console(stderr=True)
    return (LiveView if is_live(live, console) else PlainView)(console, title, guarantee, n_components, total)


def is_live(live: bool | None, console: Console | None = None) -> bool:
    """Whether the view is the live one."""
    terminal = (console or Console(stderr=True)).is_terminal
    return terminal if live is None else live and terminal
