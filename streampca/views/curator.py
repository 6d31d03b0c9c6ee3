"""The curator's page. Curator only: exact functions of raw rows, no privacy at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from streampca.regret.regret import RegretRecord
from streampca.views.facts import Cell, Fact, grouped, regret_facts
from streampca.views.page import PageData, Panel, Table
from streampca.views.public import PublicPage


class CuratorPage(PageData):
    """The exact regret, and all of the public page, which has no reference to this one. Curator only."""

    is_publishable = False
    notice = (
        "Curator only. Figures marked so are exact functions of raw rows and have no privacy at all: do not publish "
        "this page."
    )

    def __init__(self, public: PublicPage) -> None:
        super().__init__(public.title)
        self.public = public
        self.lock = public.lock  # the two are read together
        self._regret = Table(("t", "average", "bound", "opt", "captured", "most"))
        self._record: RegretRecord | None = None
        self._counts: list[Fact] = []
        self._further: list[Fact] = []

    def add(self, records: Sequence[RegretRecord]) -> None:
        """Add records of the exact regret, in order."""
        with self.lock:
            for record in records:
                self._record = record
                self._regret.add(partial(_row, record))
            if records:
                self.ended = ""
                self.version += 1

    def count(self, *, rows: int, rows_per_second: float | None = None, further: Sequence[Fact] = ()) -> None:
        """Show the number of rows, their speed, and further figures in place of the last ones."""
        with self.lock:
            self._counts = [Fact("Rows", grouped(rows), curator=True)]
            if rows_per_second is not None:
                self._counts.append(Fact("Rows per second", grouped(round(rows_per_second)), curator=True))
            self._further = list(further)
            self.version += 1

    def show(self, fact: Fact) -> None:
        """Show one more figure, such as the remaining budget."""
        with self.lock:
            self._further.append(fact)
            self.version += 1

    def end(self, how: str = "The run has ended") -> None:
        with self.lock:
            self.public.end(how)
            super().end(how)

    @property
    def stamp(self) -> int:
        return self.version + self.public.version

    def tables(self) -> Mapping[str, Table]:
        return {"regret": self._regret, **self.public.tables()}

    def facts(self) -> list[Fact]:
        exact = [] if self._record is None else regret_facts(self._record)
        return [*self._counts, *self.public.facts(), *exact, *self._further]

    def panels(self) -> list[Panel]:
        own = []
        if self._regret.items:
            lines = [("average", "regret per row"), ("bound", "bound"), ("opt", "OPT per row")]
            note = "Exact regret per row, and the bound on its expectation if one is proved. OPT per row for scale."
            if self._regret.has("most"):
                lines[:1] = [("average", "regret per row, at least"), ("most", "at most")]
                note = f"With more than 1000 features it is computed as an interval. {note}"
            own = [
                Panel(
                    "regret", "Regret against the bound", note, "regret", lines,
                    log=True, unit="squared row norm", curator=True,
                ),
                Panel(
                    "captured", "Variance captured",
                    "Share of what the best subspace captures of the rows so far.",
                    "regret", (("captured", "captured share"),), unit="share of the best", curator=True,
                ),
            ]  # fmt: skip
        return own + self.public.panels()

    def more(self) -> dict[str, Any]:
        return self.public.more()


def _row(record: RegretRecord) -> list[Cell]:
    return [record.t, record.average, record.average_bound, record.opt / record.t, record.captured, record.average_most]
