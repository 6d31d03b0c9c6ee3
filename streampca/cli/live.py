"""Views of a run: a live one in a terminal, plain lines elsewhere.

Everything but the number of rows, the guarantee and the intervals of the regret is curator only: exact functions
of raw rows. The view says so, and plain lines have it in a terminal only.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from streampca.cli.messages import console
from streampca.errors import printable
from streampca.linalg.memory import History
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.regret.private_regret import PrivateRegretRecord
from streampca.regret.regret import RegretRecord
from streampca.release.release import Release
from streampca.rows.report import AdmissionReport, share_text
from streampca.views.facts import clear_components, estimates_of, floor, percent
from streampca.views.plots import feature_names, signs_like

#: Seconds between two updates of a live view.
PERIOD = 0.25
#: Number of components shown during a run, in terminals higher than this, with loadings of at least this size.
_COMPONENTS, _TALL_ENOUGH, _LIGHTEST = 3, 18, 0.1


@dataclass(frozen=True)
class Progress:
    """State of a run: counts so far, and the latest release and records of the regret."""

    t: int  #: rows
    seconds: float
    releases: int
    bad_rows: int
    record: RegretRecord | None
    private: PrivateRegretRecord | None = None
    release: Release | None = None
    admitted: AdmissionReport | None = None  #: changes of rows before they were absorbed
    expected: int | None = None  #: number of rows at the end, if known

    def least_total(self, total: int | None) -> int | None:
        """Return the number of rows at the end: ``total`` or `expected`, the smaller one if both are known."""
        return min((n for n in (total, self.expected) if n), default=None)

    def so_far(self, total: int | None) -> tuple[str, str]:
        """Return the share of the rows at the end, and the remaining time at the rate so far; empty if not known."""
        if not total:
            return "", ""
        share = f"{min(100, 100 * self.t // total)} %"
        if not 0 < self.t < total:
            return share, ""
        seconds = (total - self.t) * self.seconds / self.t
        return share, f", {seconds:.0f} s left" if seconds < 300.0 else f", {seconds / 60.0:.0f} min left"


class View:
    """Base of the objects that show how a run proceeds."""

    period: ClassVar[float]  #: seconds between two updates

    _next = 0.0

    @property
    def due(self) -> bool:
        """True if it is time to show the state again."""
        return time.monotonic() >= self._next

    def start(self) -> None:
        """Start showing."""

    def add(self, record: RegretRecord) -> None:
        """Add a point to the regret curve."""

    def show(self, progress: Progress) -> None:
        """Show the state of the run."""
        self._next = time.monotonic() + self.period

    def end(self, progress: Progress) -> None:
        """Show the last state and stop."""
        if progress.t:
            self.show(progress)


@dataclass(eq=False)
class _ConsoleView(View):
    """Base of the views in a terminal or log."""

    console: Console
    title: str
    guarantee: Guarantee
    n_components: int
    total: int | None


@dataclass(eq=False)
class LiveView(_ConsoleView):
    """View for terminals, redrawn in place four times a second."""

    period = PERIOD

    def __post_init__(self) -> None:
        self._seen, self._curve = 0, History()
        self._basis: FloatArray | None = None  # as drawn: the next one gets the same signs
        self._live = Live(console=self.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def start(self) -> None:
        self._live.start()

    def add(self, record: RegretRecord) -> None:
        self._seen += 1
        if self._seen % self._curve.step == 0:  # the history keeps at most 512 points, in equal steps
            self._curve = self._curve.append(record)

    def show(self, progress: Progress) -> None:
        super().show(progress)
        self._live.update(self.render(progress), refresh=True)

    def end(self, progress: Progress) -> None:
        super().end(progress)
        self._live.stop()

    def render(self, progress: Progress) -> Group:
        """Return title and facts, fitted to the terminal."""
        width, height = self.console.size
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(style="dim", width=11, justify="right", no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        rate = progress.t / progress.seconds if progress.seconds > 0.0 else 0.0
        count, speed, seconds = grouped(progress.t), f"{grouped(rate)} rows/s", f"{progress.seconds:.0f} s"
        rows: Text | Table = Text(f"{count}   {speed}   {seconds}")
        if total := progress.least_total(self.total):
            share, left = progress.so_far(total)
            rows = Table.grid(padding=(0, 2), expand=True)
            for ratio in (None, 1, None):  # the bar takes the room that both texts leave
                rows.add_column(ratio=ratio, no_wrap=ratio is None)
            bar = ProgressBar(total, min(progress.t, total))
            rows.add_row(f"{count} of {grouped(total)} ({share})", bar, f"{speed}  {seconds}{left}")
        table.add_row("rows", rows)

        lines = facts(progress, self.guarantee, self.n_components)
        averages = [record.average for record in self._curve.records if 0.0 < record.average < math.inf]
        if len(averages) > 1:
            lines.append(("its curve", f"{trend(averages, width - 56)}  regret per row, log scale, curator only"))
        release = progress.release
        if release is not None and height > _TALL_ENOUGH:
            # The leading components, as the features of largest loadings that fit.
            basis = release.subspace.basis[:, :_COMPONENTS]
            self._basis = basis = basis if self._basis is None else signs_like(basis, self._basis)
            names = feature_names(release.features, len(basis))
            for i, column in enumerate(basis.T, 1):
                heavy = np.argsort(-np.abs(column), kind="stable")
                parts = [f"{column[j]:+.2f} {printable(names[j])}" for j in heavy if abs(column[j]) >= _LIGHTEST]
                while len(parts) > 1 and len("  ".join(parts)) > width - 13:
                    parts.pop()
                lines.append((f"component {i}", "  ".join(parts)))
        for line in lines:
            table.add_row(*line)
        return Group(Text(self.title, "bold", no_wrap=True, overflow="ellipsis"), table)


class PlainView(_ConsoleView):
    """View for logs and pipes: a line every two seconds. In a terminal, with the curator's figures."""

    period = 2.0

    _shown = 0  # rows on the latest line of a log

    def start(self) -> None:
        self._print(self.title)
        self._next = time.monotonic() + self.period

    def show(self, progress: Progress) -> None:
        super().show(progress)
        # The end of a batch depends on the bytes of cells and on bad rows: a log counts thousands of rows.
        rows = progress.t - progress.t % 1000
        if self.console.file.isatty():
            self._show(progress)
        elif rows > self._shown:
            self._shown = rows
            self._show(replace(progress, t=rows, record=None, private=None), releases="")

    def end(self, progress: Progress) -> None:
        if progress.t:
            self._show(progress)

    def _show(self, progress: Progress, releases: str | None = None) -> None:
        terminal, total, record = self.console.file.isatty(), self.total, progress.record
        if terminal:  # a text file's expected number of rows is estimated from the bytes of its cells: not for a log
            total = progress.least_total(self.total)
        share, left = progress.so_far(total)
        share = f" of {total} ({share})" if share else ""
        releases = f"{progress.releases} releases, " if releases is None else releases
        line = f"{progress.t}{share} rows, {releases}{progress.seconds:.1f} s{left}"
        if record is not None and terminal:
            least, bound = _least_and_bound(record)
            line += f" | curator only: captured {least}{floor(record.captured, 5)}, "
            line += f"regret per row {record.average_text}, {bound}"
        if progress.private is not None:
            line += f" | publishable: {publishable(progress.private)}"
        if progress.bad_rows and terminal:
            line += f", {progress.bad_rows} bad rows"
        self._print(line)

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


def view(live: bool | None, title: str, guarantee: Guarantee, n_components: int, total: int | None) -> View:
    """Return the view that fits standard error, or the one asked for."""
    kind = LiveView if is_live(live) else PlainView
    return kind(console(sys.stderr), title, guarantee, n_components, total)


def is_live(live: bool | None) -> bool:
    """Return True if the view is the live one: standard error is a terminal, and it is not switched off."""
    return live is not False and sys.stderr.isatty()


def _least_and_bound(record: RegretRecord) -> tuple[str, str]:
    """Words before the exact figures of a record that are bounds themselves, and its proved bound."""
    bound = "no bound proved" if record.average_bound is None else f"bound {record.average_bound:.4g}"
    return "at least " if record.is_interval else "", bound


def facts(progress: Progress, guarantee: Guarantee, n_components: int) -> list[tuple[str, str]]:
    """Return the lines of the view, as pairs of name and value."""
    record, lines = progress.record, [("privacy", spent(guarantee, progress.releases))]
    if record is not None:
        least, bound = _least_and_bound(record)
        share = f"{least}{percent(record.captured)} of the best {n_components}-dimensional subspace so far"
        regret = f"{record.average_text} per row ({bound}); {least}{record.regret:.5g} in all"
        lines += [("captured", share), ("regret", regret)]
    estimates = None if progress.release is None else estimates_of(progress.release)
    if estimates is not None:
        clear = f"{sum(clear_components(estimates))} of {n_components} components above the noise"
        lines.append(("release", f"predicts {percent(estimates.predicted_captured, 1)} captured; {clear}"))
    if progress.private is not None:
        lines.append(("public", publishable(progress.private)))
    report = progress.admitted
    # The feature that is clamped most stands for all: the card at the end lists them.
    if report is not None and (report.share_scaled > 0.0 or any(report.share_clamped.values())):
        name, most = max(report.share_clamped.items(), key=lambda item: item[1], default=("", 0.0))
        worst = f"; {share_text(most)} of {printable(name)} clamped" if most > 0.0 else ""
        lines.append(("clipped", f"{share_text(report.share_scaled)} of the rows scaled{worst}"))
    if report is not None and not math.isnan(report.ball_used):
        lines.append(("ball", f"{share_text(report.ball_used)} used on average; noise is for rows that use all of it"))
    if progress.bad_rows:
        reasons = "" if report is None else f" ({report.reasons})"
        lines.append(("bad rows", f"{progress.bad_rows} absorbed as zero rows{reasons}"))
    return lines


def publishable(record: PrivateRegretRecord) -> str:
    """Describe a publishable record of the regret in one line."""
    low, high = record.average
    return f"regret per row in [{low:.4g}, {high:.4g}] at t = {record.t}, confidence {100.0 * record.confidence:g} %"


def spent(guarantee: Guarantee, releases: int) -> str:
    """Describe the cost of the releases so far in one line."""
    if not guarantee.is_private:
        return f"none: {guarantee.theorem}"
    seeded = " [seeded]" if guarantee.caveat.startswith("seeded") else ""
    return (
        f"({guarantee.epsilon:g}, {guarantee.delta:g})-DP for {guarantee.unit}, {guarantee.adjacency}; "
        f"covers all {grouped(releases)} releases{seeded}"
    )


def grouped(number: float) -> str:
    """Write a number without decimals, its digits in groups of three: 336 776."""
    return f"{number:,.0f}".replace(",", " ")


def trend(values: Sequence[float], width: int) -> str:
    """Draw positive values as bars of eight heights on a logarithmic scale, the latest on the right."""
    places = np.linspace(0, len(values) - 1, max(1, min(width, len(values)))).astype(int)
    logs = np.log(np.array(values)[places])  # regret a row falls by orders of magnitude
    heights = (logs - logs.min()) / max(float(np.ptp(logs)), 1e-9) * 7.0
    return "".join("▁▂▃▄▅▆▇█"[int(height)] for height in heights)
