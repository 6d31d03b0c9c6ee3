"""The card: the released components of a run and their guarantee, for terminals, notebooks, summaries and pages."""

from __future__ import annotations

import textwrap
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from html import escape
from itertools import accumulate
from typing import Any, Self

from streampca.errors import BadParameterError, NoReleaseError, UsageError, printable
from streampca.linalg.types import FloatArray
from streampca.regret.regret import RegretRecord
from streampca.release.release import Release
from streampca.rows.report import AdmissionReport
from streampca.stream.stream import Stream
from streampca.tables import CURATOR_ONLY, html_table
from streampca.views.facts import (
    COMPONENTS,
    SPENT,
    Fact,
    Looks,
    Marks,
    admission_facts,
    loadings,
    notes_on,
    over_periods,
    percent,
    regret_facts,
    summary,
)
from streampca.views.plots import LARGE, eigenvalue_title, spectrum

#: Facts that are notes below the table of a terminal.
NOTES = ("Rows clipped to", "Predicted", "Gradients clipped to", "Error bars")


@dataclass(frozen=True, eq=False)
class Card:
    """A run at its end, or one release."""

    title: str  #: what was released from what; "" if unknown
    spent: str  #: the guarantee, in a few words
    summary: str  #: numbers of rows, columns and components in a line
    hidden: str  #: on components that do not stand out from the noise, and on several periods; "" without either
    facts: Sequence[Fact]  #: figures; those of the curator are marked
    shares: Sequence[str]  #: of the variance, of each component shown; empty if the total may be noise
    together: str  #: their share of the variance, "" if it is unknown
    loadings: dict[str, Any]  #: see `loadings`; of the same components, or of all if it is unknown
    units: Mapping[str, str] = field(default_factory=dict)  #: of some features by name, as the user wrote them
    is_clipped: bool = False  #: whether over 1 % of the rows were clipped: the curator's line then comes first

    @property
    def is_publishable(self) -> bool:
        """True if nothing in it is an exact function of raw rows."""
        return not any(fact.curator for fact in self.facts)

    def table(self) -> list[list[str]]:
        """Return components and loadings as rows of text, a head first; the last column is the mean, if released."""
        k, rows = self.loadings["components"], self.loadings["rows"]
        has_mean = bool(rows) and rows[0]["mean"] is not None
        units = [printable(self.units.get(row["feature"], "")) for row in rows]
        width = 1 + max(map(len, units)) if any(units) else 0
        shown = [["", *(f"component {i}" for i in range(1, k + 1)), *["mean"] * has_mean]]
        if self.shares:
            shown.insert(0, ["share of variance", *self.shares, *[""] * has_mean])
        for row, unit in zip(rows, units, strict=True):
            cells = [f"{round(value, 2) + 0.0:+.2f}" for value in row["values"]]  # + 0.0 turns -0.00 into +0.00
            if row["changes"]:
                after = f" {unit}".ljust(width) if width else ""
                cells = [f"{cell} {change:>+8.3g}{after}" for cell, change in zip(cells, row["changes"], strict=True)]
            shown.append([printable(row["feature"]), *cells, *([f"{row['mean']:.4g}"] if has_mean else [])])
        return shown

    @property
    def note(self) -> str:
        """Key to the table, and what the figures leave out."""
        omitted, rows = self.loadings["omitted"], self.loadings["rows"]
        has_changes = any(row["changes"] for row in rows)
        return " ".join(filter(None, (
            "Second figures: change for one standard deviation, in the column's own units." if has_changes else "",
            f"{omitted} features with smaller loadings are omitted." if omitted else "",
            *(f"{fact.label}: {fact.value}." for fact in self.facts if fact.label in NOTES),
        )))  # fmt: skip

    @property
    def curator(self) -> str:
        """Line of the curator's figures; "" without any."""
        told = [f"{fact.label[0].lower()}{fact.label[1:]} {fact.value}" for fact in self.facts if fact.curator]
        return f"curator only: {' · '.join(map(printable, told))}" if told else ""

    def text(self, width: int = 80) -> str:
        """Return the card for a terminal of this width."""
        title, spent = printable(self.title), self.spent
        room = width - len(title)
        lines = [f"{title}{spent:>{room}}"] if room > len(spent) + 1 else [*filter(None, (title,)), spent]
        lines += [*textwrap.wrap(self.summary, width), *textwrap.wrap(self.hidden, width)]
        table = self.table()
        if self.loadings["components"]:
            # Cells are as wide as the widest of their column. Columns that do not fit are counted.
            first, *cells = (max(map(len, column)) + 2 for column in zip(*table, strict=True))
            first = min(first - 2, 24)
            fit = [total <= width - first for total in accumulate(cells)]
            more = len(cells) - max(1, sum(fit))
            for row in table:
                head = row[0] if len(row[0]) <= first else row[0][: first - 1] + "…"
                values = zip(row[1 : len(row) - more], cells, strict=False)
                lines.append((f"{head:<{first}}" + "".join(f"{value:>{cell}}" for value, cell in values)).rstrip())
                if row[0] == "share of variance" and self.together and len(lines[-1]) + len(self.together) + 2 < width:
                    lines[-1] += f"  {self.together}"
            lines += textwrap.wrap(self.note + (f" {more} more columns do not fit." if more else ""), width)
        return "\n".join(lines + textwrap.wrap(self.curator, width))

    def html(self) -> str:
        """Return the card as HTML, for notebooks."""
        # Names of features come from the head of a file and may hold markup.
        table = self.table()
        if self.shares:  # the shares stand above the names of the components in text, and below them in HTML
            table[:2] = table[1::-1]
        head, *rows = table
        parts = [self.title, self.spent, self.summary, self.hidden, self.together]
        paragraphs = "".join(f"<p>{escape(part)}</p>" for part in parts if part)
        warning = "" if self.is_publishable else f"<p><b>{CURATOR_ONLY}</b></p>"
        shown = html_table(head, rows, note=self.note) if self.loadings["components"] else ""
        return f"<div>{warning}{paragraphs}{shown}<p>{escape(self.curator)}</p></div>"


def card(
    release: Release, *, title: str = "", releases: int | None = None, further: Iterable[Fact] = (), most: int = 12,
    components: int = COMPONENTS, basis: FloatArray | None = None, estimated: int = LARGE, marks: Marks | None = None,
) -> Card:  # fmt: skip
    """Return the card of a run with this latest release, of which at most ``most`` features are listed.

    ``title`` is what was released from what, and ``basis`` that of the release, perhaps with other signs. Beyond
    ``estimated`` features, there are no estimates. Without ``marks``, the release is tested by itself.
    """
    marks, basis = marks or Marks.of(release), release.subspace.basis if basis is None else basis
    k, estimates = release.subspace.basis.shape[1], None
    count = min(components, k if marks.clear is None else marks.clear)  # all, if none is known to be noise
    if release.n_components and release.n_features <= estimated:  # they take O(d^3) time
        with suppress(NoReleaseError):
            estimates = release.component_estimates
    window = release.details.get("window")
    inputs = "rows" if release.terms.calendar is None else "periods"
    rows = f"{inputs} {window[0]:,} to {window[1]:,}" if isinstance(window, list) else f"{release.t:,} {inputs}"
    stand_out = f"{k} components" if marks.clear is None else f"{marks.clear} of {k} components stand out"
    figures = [
        rows, f"{release.n_features:,} columns",
        "about their mean" if release.is_centered else "about zero", stand_out,
        *([f"{releases:,} releases"] if releases is not None and releases > 1 else []),
    ]  # fmt: skip
    facts = [Fact("Latest release", " · ".join(figures)), Fact(SPENT, summary(release.guarantee))]
    together, shares = "", list[str]()
    if estimates is not None and marks.clear and (share := estimates.share(marks.clear)) is not None:
        together = f"together {percent(share[0], 1)[:-2]} ±{float(f'{100.0 * share[1]:.1g}'):g} %"
        shares = [percent(one, 1) for one in estimates.explained_variance_ratio[:count].tolist()]
        facts.append(Fact("Share of the variance", together))
    return Card(
        title, release.guarantee.brief, " · ".join(figures),
        " ".join(filter(None, [marks.text(release), *(": ".join(line) for line in over_periods(release.guarantee))])),
        [*facts, *notes_on(release), *further], shares, together, loadings(release, basis, estimates, most, count),
    )  # fmt: skip


def release_html(release: Release, *options: Any) -> str:
    """Return the card of a release as HTML with one figure, for notebooks. Publishable."""
    return f"<div>{card(release, *options).html()}{scree(release)}</div>"


def scree(release: Release) -> str:
    """Return the leading eigenvalues as bars of SVG: pale beyond the components, hollow if not clear."""
    values = None if release.n_features > LARGE else spectrum(release)
    if values is None or not len(values) or not values[0] > 0.0:
        return ""
    values, k = values[:12], release.subspace.basis.shape[1]  # bars of a small figure
    clear, title = Marks.of(release).clear, escape(eigenvalue_title(release))
    bars = []
    for i, share in enumerate((values / values[0]).tolist()):
        height, fill = 80.0 * max(0.0, share), "none" if clear is not None and clear <= i < k else "currentColor"
        place = f'x="{24 * i + 4}" y="{88.0 - height:.1f}" width="16" height="{height:.1f}"'
        bars.append(f'<rect {place} fill="{fill}" stroke="currentColor" opacity="{0.7 if i < k else 0.25}"/>')
        bars.append(f'<text x="{24 * i + 12}" y="102" font-size="10" text-anchor="middle">{i + 1}</text>')
    size = f'width="{24 * len(values)}" height="106"'
    key = "; hollow: does not stand out from the noise" if clear is not None and clear < k else ""
    return (
        f'<figure><svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{title}" fill="currentColor">'
        f"{''.join(bars)}</svg><figcaption>{title}{key}.</figcaption></figure>"
    )


def curator_card(
    release: Release, record: RegretRecord | None, admitted: AdmissionReport | None, balance: str = "",
    *, title: str = "", releases: int | None = None, marks: Marks | None = None,
) -> Card:  # fmt: skip
    """Return the card of a run with the curator's figures: regret, changes of rows by admission, remaining budget."""
    further = [] if record is None else regret_facts(record)
    further += [] if admitted is None else admission_facts(admitted)
    further += [Fact("Budget in the ledger", balance, curator=True)] if balance else []
    marks = marks or Marks.of(release, run=True)
    made = card(release, title=title, releases=releases, further=further, marks=marks)
    return replace(made, is_clipped=admitted is not None and admitted.is_clipped)


def stream_html(stream: Stream, marks: Marks | None = None) -> str | None:
    """Return the card of a stream so far as HTML; None before the first release. Curator only."""
    # Any object that can be debited may pay for a stream; only the account of a ledger states what remains.
    release, remaining = stream.release, getattr(stream.engine.account, "remaining", None)
    if release is None:
        return None
    record = stream.regret.now() if stream.engine.regret_log is not None else None
    return curator_card(release, record, stream.admission, "" if remaining is None else remaining(), marks=marks).html()


class Watch:
    """A card in a notebook, updated while a ``with`` block runs, or while rows are iterated.

    Parameters
    ----------
    stream : the stream to show.
    rows : rows as for `Stream.run`; iteration yields its steps.
    every : seconds between two updates.
    total : expected number of rows, for the progress bar; by default the length of ``rows``, if it has one.
    public : show the latest release only. Otherwise the card holds the exact regret and is for the curator.
    """

    def __init__(
        self, stream: Stream, rows: Any = None, *, every: float = 1.0, total: int | None = None, public: bool = False
    ) -> None:
        if not (isinstance(every, (int, float)) and every > 0.0):
            raise BadParameterError("every", every, "a positive number of seconds")
        if total is None and hasattr(rows, "__len__"):
            total = stream.t + len(rows)
        self._stream, self._rows = stream, rows
        self._every, self._total, self._public = every, total, public
        self._first, self._since = stream.t, time.monotonic()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._handle: Any = None
        self._looks = Looks()

    def html(self) -> str:
        """Return the current card."""
        # The row number and the release may be of two moments: a push may happen between. Each is right by itself.
        t, release = self._stream.t, self._stream.release
        shown: str | None = "<p>Nothing has been released yet.</p>"
        if release is not None:
            self._looks.see(release)
            if self._ended.is_set():
                self._looks.last(release)
            marks = self._looks.marks
            shown = card(release, marks=marks).html() if self._public else stream_html(self._stream, marks)
        count, bar = f"{t:,}", ""
        if self._total is not None:
            count, bar = f"{t:,} of {self._total:,}", f"<progress max='{max(1, self._total)}' value='{t}'></progress> "
        seconds = time.monotonic() - self._since
        rate = f", {(t - self._first) / seconds:,.0f} rows a second" if seconds > 0.0 and t > self._first else ""
        return f"<div><p>{bar}{count} rows{rate}</p>{shown or ''}</div>"

    def __enter__(self) -> Self:
        try:
            from IPython.display import HTML, display
        except ImportError:
            raise UsageError("watch needs IPython: pip install jupyter, or use print(stream)") from None
        self._first, self._since = self._stream.t, time.monotonic()
        self._show = HTML
        self._handle = display(HTML(self.html()), display_id=True)
        self._ended.clear()
        self._thread = threading.Thread(target=self._follow, name="streampca-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._handle.update(self._show(self.html()))

    def __iter__(self) -> Iterator[Any]:
        if self._rows is None:
            raise UsageError("there are no rows to run; call watch(rows), or use it in a with statement")
        with self:
            yield from self._stream.run(self._rows)

    def _follow(self) -> None:
        # `wait` returns early when the block ends, so that leaving it never takes ``every`` seconds.
        while not self._ended.wait(self._every):
            self._handle.update(self._show(self.html()))
