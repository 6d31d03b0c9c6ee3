"""The page of a run: releases and records go in, one JSON state comes out.

A page of releases is post-processing, under their guarantee. The curator's page is the same page with exact functions
of raw rows beside it, each marked ``curator``; any other page refuses them. So no filter stands between exact figures
and a public reader: a public page never holds one.
"""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

from streampca.errors import UsageError
from streampca.linalg.eigen import signs_like
from streampca.linalg.types import FloatArray
from streampca.regret.private_regret import PrivateRegretRecord
from streampca.regret.regret import RegretRecord
from streampca.release.release import Release
from streampca.views import facts
from streampca.views.card import card
from streampca.views.facts import Cell, Fact, Looks
from streampca.views.plots import eigenvalue_title, has_drawable_gram

Item = TypeVar("Item")

#: Words about the readers of a page: of private releases, of releases without a guarantee, with exact figures.
_PUBLISHABLE = "Publishable. Everything here is computed from private releases only, under their guarantee."
_NOTHING = "Not private. What ran promises nothing: treat this page like the rows themselves."
_CURATOR = (
    "Curator only. Figures marked so are exact functions of raw rows and have no privacy at all: do not publish this "
    "page."
)
#: Points of a curve at most.
_MOST = 512


@dataclass(eq=False, repr=False)
class Thinned(Generic[Item]):
    """A sequence of bounded length: when it is too long, every other item is deleted, and the step doubles."""

    items: list[Item] = field(default_factory=list)
    _step: int = 1
    _seen: int = 0
    _pending: Callable[[], Item] | None = None  # makes the latest item, if it was not kept

    def offer(self, make: Callable[[], Item]) -> None:
        """Count an item; make and keep it if it is its turn."""
        # A pending item is a function, so that items that are not kept are never computed.
        self._pending = make
        if self._seen % self._step == 0:
            self.finish()
            # Invariant: kept items are equal steps apart, which `finish` breaks only by the last one.
            if len(self.items) > _MOST:
                self.items, self._step = self.items[::2], 2 * self._step
        self._seen += 1

    def finish(self) -> None:
        """Keep the latest item, whether it was its turn or not."""
        if self._pending is not None:
            self.items.append(self._pending())
            self._pending = None


@dataclass(frozen=True)
class Panel:
    """One chart, with the table of the same data below it."""

    name: str  #: unique on the page
    title: str
    note: str  #: explanation for the reader
    table: str  #: name of the table of its data
    series: Sequence[tuple[str, str]]  #: (column, label) of each curve; those of empty columns are not drawn
    band: tuple[str, str, str] | None = None  #: (low column, high column, label) of a shaded interval
    log: bool = False  #: draw the y axis in powers of ten at first
    unit: str = ""  #: of the y axis
    curator: bool = False  #: True if it shows exact functions of raw rows


#: Columns of each table; the first is the number of rows.
COLUMNS: Mapping[str, Sequence[str]] = {
    "regret": ("t", "average", "least", "most", "bound", "opt", "captured"),
    "releases": facts.COLUMNS,
    "intervals": ("t", "low", "high"),
}
_NUMBERS = range(1, facts.COMPONENTS + 1)
#: All charts, in the order of the page.
PANELS = (
    Panel(
        "regret", "Regret against the bound",
        "Exact regret per row (an interval, if there are very many features), and the bound on its expectation if one "
        "is proved. OPT per row for scale.",
        "regret", (
            ("average", "regret per row"), ("least", "regret per row, at least"), ("most", "at most"),
            ("bound", "bound"), ("opt", "OPT per row"),
        ), log=True, unit="squared row norm", curator=True,
    ),
    Panel(
        "captured", "Variance captured", "Share of what the best subspace captures of the rows so far.",
        "regret", (("captured", "captured share"),), unit="share of the best", curator=True,
    ),
    Panel(
        "intervals", "Regret per row: interval",
        "The exact regret lies in the band with the stated confidence, at each time separately.",
        "intervals", (), ("low", "high", "interval"), unit="squared row norm",
    ),
    Panel(
        "values", "",  # its title is that of the latest release
        "Of the released matrix. What lies under the noise level, where one is known, cannot be told from noise.",
        "releases", (*((f"value_{i}", f"component {i}") for i in _NUMBERS), ("noise", "noise level")),
        log=True, unit="squared row norm",
    ),
    Panel(
        "angles", "Angles to the release before",
        "Principal angles between successive released subspaces; the largest says how far it turned.",
        "releases", tuple((f"angle_{i}", f"angle {i}") for i in _NUMBERS), log=True, unit="degrees",
    ),
)  # fmt: skip


class Page:
    """Contents of a page. The thread of the run writes them, and that of the server reads them.

    The page of the ``curator`` accepts exact functions of raw rows and is never publishable. Any other one is, if all
    releases are private. Readers get the page again when its ``version`` grows.
    """

    def __init__(self, *, curator: bool = False) -> None:
        self.title, self.curator, self.ended, self.version = "streampca", curator, "", 0
        self.tables: dict[str, Thinned[list[Cell]]] = {name: Thinned() for name in COLUMNS}
        self.latest: Release | None = None
        self._parameters: Mapping[str, Any] = {}
        self.figures: Sequence[Fact] = ()
        self._record: RegretRecord | None = None
        self._count, self.looks = 0, Looks()  # number of releases, and which components stand out
        self.is_publishable, self._is_published = not curator, False
        self._drawn: FloatArray | None = None  # the next basis gets the same signs
        # Reentrant: `message` holds it around `state`. Invariant: `version` grows with each change under the lock, so a
        # message of a version holds all of it.
        self._lock = threading.RLock()
        self._message = -1, ""  # version, and its JSON

    def publish(self) -> None:
        """Refuse releases without a guarantee from now on. Raises `UsageError` if the page may not be public."""
        if not self.is_publishable:
            raise UsageError("exact figures, and releases without a privacy guarantee, may not be published")
        self._is_published = True

    def describe(self, parameters: Mapping[str, Any]) -> None:
        """Set the public parameters of the run."""
        with self._lock:
            if parameters != self._parameters:
                self._parameters = dict(parameters)
                # Privacy: the title follows from public parameters, never from the name of a file.
                if "processor" in parameters:
                    k = parameters.get("n_components")
                    self.title = f"streampca · {parameters['processor']}" + (f", k = {k}" if k else "")
                self.version += 1

    def add(self, events: Sequence[Release | RegretRecord]) -> None:
        """Add releases and, to the curator's page, records of the exact regret, each in order.

        Raises `UsageError` for anything else, and for a release without a guarantee on a page that was published.
        """
        accepted = (Release, RegretRecord) if self.curator else (Release,)
        with self._lock:
            for event in events:
                if type(event) not in accepted:  # by exact type: a subclass of a release could hold anything
                    raise UsageError(f"{type(event).__name__} may not be published; only releases may")
                if isinstance(event, Release):
                    self._add_release(event)
                else:
                    self._record = event
                    # An interval has columns of its own: no curve is exact in one place and a lower end in another.
                    most = event.per_row(event.regret + event.slack)
                    ends = (None, event.average, most) if event.slack else (event.average, None, None)
                    row = event.t, *ends, event.average_bound, event.per_row(event.opt), event.captured
                    self._offer("regret", partial(tuple, row))
                self.ended = ""
                self.version += 1

    def show(self, figures: Sequence[Fact]) -> None:
        """Show further figures, in place of the last ones. Raises `UsageError` if they may not be shown."""
        # Privacy: whether a fact is marked does not matter here. Figures of any kind may be functions of raw rows.
        if not self.curator:
            raise UsageError("figures of the curator may not be published")
        with self._lock:
            self.figures = tuple(figures)
            self.version += 1

    def end(self, how: str = "The run has ended") -> None:
        """Mark the page as ended; further data may follow."""
        with self._lock:
            for table in self.tables.values():
                table.finish()
            if self.latest is not None:
                self.looks.last(self.latest)
            if self.ended != how:
                self.ended = how
                self.version += 1

    def _add_release(self, release: Release) -> None:
        if not release.guarantee.is_private:  # as those of `Oja`
            if self._is_published:
                raise UsageError("a release without a privacy guarantee may not be published")
            self.is_publishable = False
        self.looks.see(release)
        self._offer("releases", partial(facts.release_row, release, self.latest))
        # The interval needs an eigenvalue problem of the Gram matrix, which is unpacked for it.
        has_rewards = release.details.get("rewards") is not None and release.noise_std is not None
        if has_rewards and has_drawable_gram(release):
            self._offer("intervals", lambda: (release.t, *PrivateRegretRecord.of(release).average))
        self.latest = release
        self._count += 1

    def _offer(self, table: str, make: Callable[[], Sequence[Cell]]) -> None:
        """Add a row to a table. It is computed only if it is kept."""

        def plain() -> list[Cell]:
            # JSON has no infinity, and seven digits are more than a chart shows, and half of the size.
            cells = [None if cell is None or not math.isfinite(cell) else cell for cell in make()]
            return [float(f"{cell:.7g}") if isinstance(cell, float) else cell for cell in cells]

        self.tables[table].offer(plain)

    def panels(self) -> list[Panel]:
        """Return the charts that have data."""
        drawn, titles = [], {} if self.latest is None else {"values": eigenvalue_title(self.latest)}
        for panel in PANELS:
            rows, columns = self.tables[panel.table].items, COLUMNS[panel.table]
            held = {name for name, *cells in zip(columns, *rows, strict=True) if any(one is not None for one in cells)}
            series = tuple((column, label) for column, label in panel.series if column in held)
            if series or (panel.band and panel.band[0] in held):
                drawn.append(replace(panel, series=series, title=titles.get(panel.name, panel.title)))
        return drawn

    def state(self) -> dict[str, Any]:
        """Return the whole page as JSON values."""
        with self._lock:
            further = [] if self._record is None else facts.regret_facts(self._record)
            further += self.figures
            tables = {name: table.items for name, table in self.tables.items() if table.items}
            state: dict[str, Any] = {
                "title": self.title, "publishable": self.is_publishable, "ended": self.ended, "lead": "", "formal": "",
                "notice": _CURATOR if self.curator else _PUBLISHABLE if self.is_publishable else _NOTHING,
                "facts": [asdict(fact) for fact in (Fact("Releases", "none yet"), *further)],
                "panels": [asdict(panel) for panel in self.panels()],
                "tables": {name: {"columns": COLUMNS[name], "rows": rows} for name, rows in tables.items()},
                "parameters": [(k, facts.parameter_text(v)) for k, v in self._parameters.items() if v is not None],
                "guarantee": [], "loadings": None,
            }  # fmt: skip
            if self.latest is not None:
                # Signs of a basis are arbitrary. Kept alike, loadings do not jump between two messages.
                basis, guarantee = self.latest.subspace.basis, self.latest.guarantee
                self._drawn = basis if self._drawn is None else signs_like(basis, self._drawn)
                shown = card(
                    self.latest, releases=self._count, further=further, most=facts.FEATURES, basis=self._drawn,
                    estimated=facts.ESTIMATED, marks=self.looks.marks,
                )  # fmt: skip
                heads = [["share of variance", *shown.shares]] if shown.shares else []
                state |= {
                    "lead": shown.hidden, "facts": [asdict(fact) for fact in shown.facts],
                    "guarantee": facts.in_words(guarantee), "formal": str(guarantee),
                    "loadings": {**shown.loadings, "heads": heads},
                }  # fmt: skip
            return state

    def message(self) -> str:
        """Return `state` as JSON, computed once for all readers."""
        with self._lock:
            if self._message[0] != self.version:
                self._message = self.version, json.dumps(self.state(), allow_nan=False, separators=(",", ":"))
            return self._message[1]
