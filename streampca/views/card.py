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
from streampca.release.release import Release
from streampca.rows.report import AdmissionReport
from streampca.stream.stream import Stream
from streampca.tables import CURATOR_ONLY, html_table
from streampca.views.facts import (
    COMPONENTS,
    SPENT,
    Fact,
    Marks,
    admission_facts,
    estimates_of,
    loadings,
    notes_on,
    percent,
    regret_facts,
    summary,
)
from streampca.views.plots import LARGE

#: Facts that are notes below the table of a terminal.
NOTES = ("Rows clipped to", "Error bars")


@dataclass(frozen=True, eq=False)
class Card:
    """A run at its end, or one release."""

    title: str  #: what was released from what; "" if unknown
    spent: str  #: the guarantee, in a few words
    summary: str  #: numbers of rows, columns and components in a line
    hidden: str  #: a sentence on components that do not stand out from the noise; "" without any
    facts: Sequence[Fact]  #: figures; those of the curator are marked
    shares: Sequence[str]  #: of the variance, of each component shown; empty if the total may be noise
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
        if self.shares:
            shown.insert(0, ["share of variance", *self.shares, *[""] * has_mean])
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
    estimates, count = estimates_of(release, estimated), min(components, marks.shown(release))
    k, guarantee = release.subspace.basis.shape[1], release.guarantee
    window = release.details.get("window")
    rows = f"rows {window[0]:,} to {window[1]:,}" if isinstance(window, list) else f"{release.t:,} rows"
    stand_out = f"{k} components" if marks.clear is None else f"{marks.clear} of {k} components stand out"
    figures = [
        rows, f"{release.n_features:,} columns",
        "about their mean" if release.is_centered else "about zero", stand_out,
        *([f"{releases:,} releases"] if releases is not None and releases > 1 else []),
    ]  # fmt: skip
    spent = f"({guarantee.epsilon:g}, {guarantee.delta:g})-DP for {guarantee.unit}"
    facts = [Fact("Latest release", " · ".join(figures)), Fact(SPENT, summary(guarantee))]
    together, shares = "", list[str]()
    if estimates is not None and marks.clear and (share := estimates.share(marks.clear)) is not None:
        together = f"together {percent(share[0], 1)[:-2]} ±{100.0 * share[1]:.1g} %"
        shares = [percent(one, 1) for one in estimates.explained_variance_ratio[:count].tolist()]
        facts.append(Fact("Share of the variance", together))
    return Card(
        title,
        spent if guarantee.is_private else "not private",
        " · ".join(figures),
        marks.text(release),
        [*facts, *notes_on(release), *further],
        shares,
        together,
        loadings(release, basis, estimates, most, count),
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
