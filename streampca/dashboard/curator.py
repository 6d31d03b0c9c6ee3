"""The curator's face. Curator only: exact functions of raw rows, no privacy at all."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from streampca.dashboard.board import Board, Fact, Panel
from streampca.dashboard.public import PublicBoard, spaced
from streampca.dashboard.table import Table
from streampca.regret import RegretRecord


class CuratorBoard(Board):
    """What the curator sees: the exact regret, and what the public sees. Curator only.

    Parameters
    ----------
    public : the public face. It knows nothing of this one.
    """

    def __init__(self, public: PublicBoard) -> None:
        super().__init__(public.title)
        self.public = public
        self._regret = Table(("t", "average", "bound", "opt", "captured"))
        self._record: RegretRecord | None = None
        self._counts: list[tuple[str, str]] = []

    @property
    def face(self) -> str:
        """``"curator"``."""
        return "curator"

    def add(self, records: Sequence[RegretRecord]) -> None:
        """Take in records of the exact regret, in order."""
        with self.lock:
            for record in records:
                self._record = record
                self._regret.offer(lambda record=record: _row(record))  # type: ignore[misc]
            if records:
                self.ended = ""
                self.changed()

    def count(self, *, rows: int, rows_per_second: float | None, bad_rows: int | None) -> None:
        """Say how the run goes."""
        with self.lock:
            self._counts = [("Rows", spaced(rows))]
            if rows_per_second is not None:
                self._counts.append(("Rows per second", spaced(round(rows_per_second))))
            if bad_rows is not None:
                self._counts.append(("Bad rows, absorbed as zero rows", spaced(bad_rows)))
            self.changed()

    def end(self, how: str = "The run has ended") -> None:
        """Say that nothing more will come."""
        with self.lock:
            self.public.end(how)
            if self._record is not None and (self._regret.last or [None])[0] != self._record.t:
                self._regret.keep(_row(self._record))
            super().end(how)

    # -- what the page reads --------------------------------------------------------

    @property
    def stamp(self) -> int:
        """Changes whenever there is something new, on either face."""
        return self.version + self.public.version

    def since(self, cursor: str | None) -> tuple[str, dict[str, Any], str]:
        """What a reader who stands at ``cursor`` lacks."""
        with self.public.lock:
            return super().since(cursor)

    def tables(self) -> Mapping[str, Table]:
        """The tables, by name."""
        return {"regret": self._regret, **self.public.tables()}

    def facts(self) -> list[Fact]:
        """The figures at the head of the page."""
        facts = [Fact(label, value, curator=True) for label, value in self._counts]
        r = self._record
        if r is not None:
            facts += [
                Fact("Regret per row", f"{r.average:.4g}", curator=True),
                Fact("Bound on it", f"{r.bound / r.t:.4g}" if math.isfinite(r.bound) else "none known", curator=True),
                # Rounded down: what falls short of all never reads as all.
                Fact("Captured of the best subspace", f"{math.floor(1e5 * r.captured) / 1e3:.3f} %", curator=True),
            ]
        return facts + self.public.facts()

    def panels(self) -> list[Panel]:
        """The charts that there are data for."""
        own = []
        if self._regret.rows:
            own = [
                Panel(
                    "regret", "Regret against the bound",
                    "Exact regret per row, and the bound on its expectation. OPT per row gives the scale.",
                    "regret", (("average", "regret per row"), ("bound", "bound"), ("opt", "OPT per row")),
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
        """What the public sees beside charts and figures."""
        return self.public.more()


def _row(record: RegretRecord) -> list[float | int | None]:
    return [record.t, record.average, record.bound / record.t, record.opt / record.t, record.captured]
