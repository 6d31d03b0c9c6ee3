"""The card: the released components of a run and their guarantee, for terminals, notebooks, summaries and pages.

Post-processing of releases, but for facts marked ``curator``, which are exact functions of raw rows.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import zip_longest
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

    hidden: str  #: a sentence on components that do not stand out from the noise; "" without any
    lead: str  #: dimensions of the released subspace, centered or not
    promise: str  #: the guarantee in a sentence
    facts: Sequence[Fact]  #: figures; those of the curator are marked
    components: Sequence[Component]  #: of the latest release, that stand out from the noise
    loadings: dict[str, Any]  #: see `loadings`; of the same components, or of all if it is unknown

    @property
    def is_publishable(self) -> bool:
        """True if nothing in it is an exact function of raw rows."""
        return not any(fact.curator for fact in self.facts)

    def table(self) -> list[list[str]]:
        """Return components and loadings as rows of text, a head first."""
        k = self.loadings["components"]
        shown = [["component", *map(str, range(1, k + 1))], *component_rows(self.components[:k])]
        for row in self.loadings["rows"]:
            cells = [f"{round(value, 2) + 0.0:+.2f}" for value in row["values"]]  # + 0.0 turns -0.00 into +0.00
            if row["bars"]:
                cells = [f"{cell} ±{bar:.2f}" for cell, bar in zip(cells, row["bars"], strict=True)]
            shown.append([printable(row["feature"]), *cells])
        return shown

    @property
    def note(self) -> str:
        """Key to the table."""
        omitted = self.loadings["omitted"]
        has_bars = any(row["bars"] for row in self.loadings["rows"])
        return " ".join(filter(None, (
            "Variances are of rows as admitted: scaled by the bounds, if any." if self.components else "",
            "± is half an approximate 95 % interval, for the noise only." if has_bars else "",
            f"{omitted} features with smaller loadings are omitted." if omitted else "",
        )))  # fmt: skip

    def text(self, width: int = 80) -> str:
        """Return the card for a terminal of this width."""
        lines = [*textwrap.wrap(self.hidden, width), ""] if self.hidden else []
        lines += [*textwrap.wrap(self.lead, width), *textwrap.wrap(f"Promised: {self.promise}", width), ""]
        # Labels take at most half of the width, and values wrap beside them.
        column = min(max(len(fact.label) for fact in self.facts), max(12, width // 2))
        for fact in self.facts:
            value = printable(fact.value) + ("  [curator only]" if fact.curator else "")
            names = textwrap.wrap(printable(fact.label), column)
            values = textwrap.wrap(value, max(12, width - column - 2))
            for left, right in zip_longest(names, values, fillvalue=""):
                lines.append(f"{left:<{column}}  {right}".rstrip())
        table = self.table()
        if self.loadings["components"]:
            # All cells are as wide as the widest, so that columns align. Components that do not fit are counted.
            first = min(max(len(row[0]) for row in table), 24)
            cell = max(len(value) for row in table for value in row[1:]) + 2
            fits = max(1, (width - first) // cell)
            lines.append("")
            for row in table:
                head = row[0] if len(row[0]) <= first else row[0][: first - 1] + "…"
                lines.append(f"{head:<{first}}" + "".join(f"{value:>{cell}}" for value in row[1 : 1 + fits]))
            more = self.loadings["components"] - fits
            note = self.note + (f" {more} more components do not fit." if more > 0 else "")
            lines += textwrap.wrap(note, width)
        return "\n".join(lines)

    def html(self) -> str:
        """Return the card as HTML, for notebooks."""
        # Names of features come from the head of a file and may hold markup.
        facts = "".join(
            f"<li>{escape(fact.label)}: <b>{escape(fact.value)}</b>{' <em>(curator only)</em>' * fact.curator}</li>"
            for fact in self.facts
        )
        head, *rows = self.table()
        warning = "" if self.is_publishable else f"<p><b>{CURATOR_ONLY}</b></p>"
        hidden = f"<p><b>{escape(self.hidden)}</b></p>" if self.hidden else ""
        table = html_table(head, rows, note=self.note) if self.loadings["components"] else ""
        return (
            f"<div>{warning}{hidden}<p>{escape(self.lead)}</p><p>Promised: {escape(self.promise)}</p><ul>{facts}</ul>"
            f"{table}</div>"
        )


def card(
    release: Release, *, releases: int | None = None, further: Iterable[Fact] = (), most: int = 12,
    components: int = COMPONENTS, basis: FloatArray | None = None, estimated: int = LARGE, marks: Marks | None = None,
) -> Card:  # fmt: skip
    """Return the card of a run with this latest release.

    Parameters
    ----------
    release : the latest release.
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
    return Card(
        marks.text(release),
        f"{about} A {release.n_components}-dimensional subspace of {grouped(release.n_features)} features "
        "was released.",
        promise(release.guarantee),
        [*released_facts(release, releases, estimates, marks), *further],
        components_of(release, estimates, marks.clear),
        loadings(release, basis, estimates, most, min(components, marks.shown(release))),
    )


def curator_card(
    release: Release, record: RegretRecord | None, admitted: AdmissionReport | None, balance: str = "",
    *, releases: int | None = None, marks: Marks | None = None,
) -> Card:  # fmt: skip
    """Return the card of a run with the curator's figures: regret, changes of rows by admission, remaining budget."""
    further = [] if record is None else regret_facts(record)
    further += [] if admitted is None else admission_facts(admitted)
    further += [Fact("Budget in the ledger", balance, curator=True)] if balance else []
    return card(release, releases=releases, further=further, marks=marks or Marks.of(release, run=True))


def stream_html(stream: Stream, marks: Marks | None = None) -> str | None:
    """Return the card of a stream so far as HTML; None before the first release. Curator only."""
    # Any object that can be debited may pay for a stream; only the account of a ledger states what remains.
    release, remaining = stream.release, getattr(stream.engine.account, "remaining", None)
    if release is None:
        return None
    record = stream.regret.now() if stream.engine.regret_log is not None else None
    return curator_card(release, record, stream.admission, "" if remaining is None else remaining(), marks=marks).html()
