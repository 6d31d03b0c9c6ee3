"""The card: the released components of a run and their guarantee, for terminals, notebooks, summaries and pages.

Post-processing of releases, but for facts marked ``curator``, which are exact functions of raw rows.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from streampca.errors import printable
from streampca.linalg.types import FloatArray
from streampca.regret.regret import RegretRecord
from streampca.release.estimates import Estimates
from streampca.release.release import Release, rows_summed
from streampca.rows.report import AdmissionReport
from streampca.stream.stream import Stream
from streampca.tables import CURATOR_ONLY, html_table
from streampca.views.facts import (
    COMPONENTS,
    Fact,
    Marks,
    admission_facts,
    estimates_of,
    grouped,
    loadings,
    percent,
    promise,
    regret_facts,
    released_facts,
)
from streampca.views.plots import LARGE

#: Facts that are notes below the table of a terminal.
NOTES = ("Rows clipped to", "Error bars")


@dataclass(frozen=True)
class Component:
    """A released component: its variance per row with an interval, its share, and whether it exceeds the noise."""

    variance: float  #: per row, debiased if ``low`` and ``high`` are known; in units of squared row norm
    #: joint 95 % interval for all components; None without the law of the noise
    low: float | None = None
    high: float | None = None
    is_approximate: bool = False  #: the interval is valid to first order in the noise
    share: float | None = None  #: share of the total variance; None if unknown, or if the total may be noise

    @property
    def text(self) -> str:
        """Variance with its interval."""
        if self.low is None or self.high is None:
            return f"{self.variance:.3g}"
        if self.is_approximate:
            return f"{self.variance:.3g} ±{0.5 * (self.high - self.low):.1g}"
        return f"{self.low:.2g} to {self.high:.2g}"


def components_of(release: Release, estimates: Estimates | None, clear: int | None) -> list[Component]:
    """Return the components of a release that stand out from the noise, in order; none if it is unknown."""
    rows, values = rows_summed(release), release.eigenvalues
    if not clear or values is None:
        return []
    if estimates is None:
        return [Component(float(value) / rows) for value in values[:clear]]
    # Estimates are of the sum over rows, the card is per row.
    interval, ratio = estimates.approximate_interval(), estimates.explained_variance_ratio.tolist()
    sides, variances = (interval.low / rows, interval.high / rows), estimates.variances / rows
    shares = ratio if estimates.share(clear) else [None] * len(ratio)
    columns = (*(column.tolist() for column in (variances, *sides, interval.approximate)), shares)
    return [Component(*values) for values in zip(*columns, strict=True)][:clear]


def component_rows(components: Sequence[Component]) -> list[list[str]]:
    """Return variances and shares of components as rows of a table: a label, then a cell a component."""
    shown = [["variance per row", *(one.text for one in components)]] if components else []
    if any(one.share is not None for one in components):
        shown.append(["share of variance", *(percent(one.share or 0.0, 1) for one in components)])
    return shown


@dataclass(frozen=True, eq=False)
class Card:
    """A run at its end, or one release."""

    title: str  #: what was released from what; "" if unknown
    spent: str  #: the guarantee, in a few words
    summary: str  #: numbers of rows, columns and components in a line
    hidden: str  #: a sentence on components that do not stand out from the noise; "" without any
    lead: str  #: dimensions of the released subspace, centered or not
    promise: str  #: the guarantee in a sentence
    facts: Sequence[Fact]  #: figures; those of the curator are marked
    components: Sequence[Component]  #: of the latest release, that stand out from the noise
    together: str  #: their share of the variance, "" if it is unknown
    loadings: dict[str, Any]  #: see `loadings`; of the same components, or of all if it is unknown

    @property
    def is_publishable(self) -> bool:
        """True if nothing in it is an exact function of raw rows."""
        return not any(fact.curator for fact in self.facts)

    def table(self) -> list[list[str]]:
        """Return components and loadings as rows of text, a head first; the last column is the mean, if released."""
        k, rows = self.loadings["components"], self.loadings["rows"]
        has_mean = bool(rows) and rows[0]["mean"] is not None
        shown = [["", *(f"component {i}" for i in range(1, k + 1)), *["mean"] * has_mean]]
        if len(self.components) >= k > 0 and all(one.share is not None for one in self.components[:k]):
            shares = [percent(one.share or 0.0, 1) for one in self.components[:k]]
            shown.insert(0, ["share of variance", *shares, *[""] * has_mean])
        for row in rows:
            cells = [f"{round(value, 2) + 0.0:+.2f}" for value in row["values"]]  # + 0.0 turns -0.00 into +0.00
            if row["changes"]:
                cells = [f"{cell} {change:>+8.3g}" for cell, change in zip(cells, row["changes"], strict=True)]
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
            # All cells are as wide as the widest, so that columns align. Components that do not fit are counted.
            first = min(max(len(row[0]) for row in table), 24)
            cell = max(len(value) for row in table for value in row[1:]) + 2
            more = max(0, len(table[0]) - 1 - max(1, (width - first) // cell))
            for row in table:
                head = row[0] if len(row[0]) <= first else row[0][: first - 1] + "…"
                cells = row[1 : len(row) - more]
                lines.append((f"{head:<{first}}" + "".join(f"{value:>{cell}}" for value in cells)).rstrip())
                if row[0] == "share of variance" and self.together and len(lines[-1]) + len(self.together) + 2 < width:
                    lines[-1] += f"  {self.together}"
            lines += textwrap.wrap(self.note + (f" {more} more columns do not fit." if more else ""), width)
        return "\n".join(lines + textwrap.wrap(self.curator, width))

    def html(self) -> str:
        """Return the card as HTML, for notebooks."""
        # Names of features come from the head of a file and may hold markup.
        head, *rows = self.table()
        parts = [self.title, self.spent, self.summary, self.hidden, self.together]
        paragraphs = "".join(f"<p>{escape(part)}</p>" for part in parts if part)
        warning = "" if self.is_publishable else f"<p><b>{CURATOR_ONLY}</b></p>"
        table = html_table(head, rows, note=self.note) if self.loadings["components"] else ""
        return f"<div>{warning}{paragraphs}{table}<p>{escape(self.curator)}</p></div>"


def card(
    release: Release, *, title: str = "", releases: int | None = None, further: Iterable[Fact] = (), most: int = 12,
    components: int = COMPONENTS, basis: FloatArray | None = None, estimated: int = LARGE, marks: Marks | None = None,
) -> Card:  # fmt: skip
    """Return the card of a run with this latest release.

    Parameters
    ----------
    release : the latest release.
    title : what was released from what, such as the names of two files.
    releases : number of releases, if known.
    further : more figures, such as the exact regret, which is curator only.
    most, components : features and components listed at most.
    basis : that of the release, perhaps with other signs.
    estimated : number of features up to which estimates are computed.
    marks : which components stand out; None to test this release by itself.
    """
    marks, basis = marks or Marks.of(release), release.subspace.basis if basis is None else basis
    estimates, about = estimates_of(release, estimated), "Centered: components are directions around the private mean."
    if not release.is_centered:
        about = "Not centered: components are directions around zero, and the first may be that of the mean."
    k, guarantee = release.subspace.basis.shape[1], release.guarantee
    stand_out = f"{k} components" if marks.clear is None else f"{marks.clear} of {k} components stand out"
    summary = [
        f"{release.t:,} rows", f"{release.n_features:,} columns",
        "about their mean" if release.is_centered else "about zero", stand_out,
        *([f"{releases:,} releases"] if releases is not None and releases > 1 else []),
    ]  # fmt: skip
    share = estimates.share(marks.clear) if estimates is not None and marks.clear else None
    return Card(
        title,
        f"({guarantee.epsilon:g}, {guarantee.delta:g})-DP for {guarantee.unit}"
        if guarantee.is_private
        else "not private",
        " · ".join(summary),
        marks.text(release),
        f"{about} A {release.n_components}-dimensional subspace of {grouped(release.n_features)} features "
        "was released.",
        promise(guarantee),
        [*released_facts(release, releases, estimates, marks), *further],
        components_of(release, estimates, marks.clear),
        "" if share is None else f"together {percent(share[0], 1)[:-2]} ±{100.0 * share[1]:.1g} %",
        loadings(release, basis, estimates, most, min(components, marks.shown(release))),
    )


def curator_card(
    release: Release, record: RegretRecord | None, admitted: AdmissionReport | None, balance: str = "",
    *, title: str = "", releases: int | None = None, marks: Marks | None = None,
) -> Card:  # fmt: skip
    """Return the card of a run with the curator's figures: regret, changes of rows by admission, remaining budget."""
    further = [] if record is None else regret_facts(record)
    further += [] if admitted is None else admission_facts(admitted)
    further += [Fact("Budget in the ledger", balance, curator=True)] if balance else []
    return card(release, title=title, releases=releases, further=further, marks=marks or Marks.of(release, run=True))


def stream_html(stream: Stream, marks: Marks | None = None) -> str | None:
    """Return the card of a stream so far as HTML; None before the first release. Curator only."""
    # Any object that can be debited may pay for a stream; only the account of a ledger states what remains.
    release, remaining = stream.release, getattr(stream.engine.account, "remaining", None)
    if release is None:
        return None
    record = stream.regret.now() if stream.engine.regret_log is not None else None
    return curator_card(release, record, stream.admission, "" if remaining is None else remaining(), marks=marks).html()
