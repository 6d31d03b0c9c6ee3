"""The data behind a page: tables of bounded size, charts and figures, as one JSON text."""

from __future__ import annotations

import json
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from streampca.views.facts import Cell, Fact

Item = TypeVar("Item")


class Thinned(Generic[Item]):
    """A sequence of bounded length: when it is too long, every other item is deleted, and the step doubles.

    Parameters
    ----------
    most : items kept at most, an even number; one more after `finish`.

    Attributes
    ----------
    items : the kept items, in order.
    """

    def __init__(self, most: int = 512) -> None:
        self.items: list[Item] = []
        self._most, self._step, self._seen = most, 1, 0
        self._pending: Callable[[], Item] | None = None  # makes the latest item, if it was not kept

    @property
    def keeps_next(self) -> bool:
        """True if the next item offered will be kept."""
        return self._seen % self._step == 0

    def offer(self, make: Callable[[], Item]) -> None:
        """Count an item; make and keep it if it is its turn."""
        self._pending = None if self.keeps_next else make
        if self.keeps_next:
            self.items.append(make())
            if len(self.items) > self._most:
                self.items = self.items[::2]
                self._step *= 2
        self._seen += 1

    def finish(self) -> None:
        """Keep the latest item, whether it was its turn or not."""
        if self._pending is not None:
            self.items.append(self._pending())
            self._pending = None


class Table(Thinned[list[Cell]]):
    """Rows of numbers over time, thinned; the first column is the time. Infinite cells become None, as in JSON."""

    def __init__(self, columns: Sequence[str], most: int = 512) -> None:
        super().__init__(most)
        self.columns = tuple(columns)

    def add(self, make: Callable[[], Sequence[Cell]]) -> None:
        """Count a row; make and keep it if it is its turn."""
        self.offer(lambda: [_plain(cell) for cell in make()])

    def has(self, column: str) -> bool:
        """Return True if a column holds a number."""
        at = self.columns.index(column)
        return any(row[at] is not None for row in self.items)


@dataclass(frozen=True)
class Panel:
    """One chart, with the table of the same data below it."""

    name: str  #: of the panel, unique on the page
    title: str
    note: str  #: explanation for the reader
    table: str  #: name of the table of its data
    series: Sequence[tuple[str, str]]  #: (column, label) of each curve
    band: tuple[str, str, str] | None = None  #: (low column, high column, label) of a shaded interval
    log: bool = False  #: draw the y axis in powers of ten at first
    unit: str = ""  #: of the y axis
    curator: bool = False  #: True if it shows exact functions of raw rows


class PageData(ABC):
    """Contents of a page under a public title. The thread of the run writes them, and that of the server reads them.

    Attributes
    ----------
    is_publishable : all of it is computed from private releases.
    notice : sentence at the head of the page about its readers.
    ended : words about the end of the run; "" before.
    version : number of changes. Readers get the page again when it grows.
    """

    is_publishable: bool
    notice: str

    def __init__(self, title: str) -> None:
        self.title = title
        self.lock = threading.RLock()
        self.version = 0
        self.ended = ""
        self._message = -1, ""

    @abstractmethod
    def tables(self) -> Mapping[str, Table]:
        """Return the tables by name."""

    @abstractmethod
    def panels(self) -> list[Panel]:
        """Return the charts with data, in order."""

    @abstractmethod
    def facts(self) -> list[Fact]:
        """Return the figures at the head of the page."""

    @abstractmethod
    def more(self) -> dict[str, Any]:
        """Return further JSON values of the page."""

    def end(self, how: str = "The run has ended") -> None:
        """Mark the page as ended; further data may follow."""
        with self.lock:
            for table in self.tables().values():
                table.finish()
            if self.ended != how:
                self.ended = how
                self.version += 1

    @property
    def stamp(self) -> int:
        """Number that changes whenever the page does."""
        return self.version

    def state(self) -> dict[str, Any]:
        """Return the whole page as JSON values."""
        with self.lock:
            tables = {name: {"columns": list(it.columns), "rows": it.items} for name, it in self.tables().items()}
            return {
                "title": self.title, "publishable": self.is_publishable, "notice": self.notice, "ended": self.ended,
                "facts": [asdict(fact) for fact in self.facts()],
                "panels": [asdict(panel) for panel in self.panels()],
                "tables": tables, **self.more(),
            }  # fmt: skip

    def message(self) -> str:
        """Return `state` as JSON, computed once for all readers."""
        with self.lock:
            if self._message[0] != self.stamp:
                self._message = self.stamp, json.dumps(self.state(), allow_nan=False, separators=(",", ":"))
            return self._message[1]


def _plain(cell: Cell) -> Cell:
    if cell is None or not math.isfinite(cell):
        return None
    # Seven digits are more than a chart shows, and half of the size.
    return int(cell) if isinstance(cell, int) else float(f"{cell:.7g}")
