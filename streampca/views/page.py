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
    """A sequence of bounded length: when it is too long, every other item goes, and then fewer are kept.

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
        self._left_out: Callable[[], Item] | None = None

    @property
    def keeps_next(self) -> bool:
        """True if the next item offered will be kept."""
        return self._seen % self._step == 0

    def offer(self, make: Callable[[], Item]) -> None:
        """Count an item; make and keep it if it is its turn."""
        if self.keeps_next:
            self.items.append(make())
            self._left_out = None
            if len(self.items) > self._most:
                self.items = self.items[::2]
                self._step *= 2
        else:
            self._left_out = make
        self._seen += 1

    def finish(self) -> None:
        """Keep the latest item, whether it was its turn or not."""
        if self._left_out is not None:
            self.items.append(self._left_out())
            self._left_out = None


class Table(Thinned[list[Cell]]):
    """Rows of numbers over time, thinned; the first column is the time. What is not finite becomes None, as in JSON."""

    def __init__(self, columns: Sequence[str], most: int = 512) -> None:
        super().__init__(most)
        self.columns = tuple(columns)

    def add(self, make: Callable[[], Sequence[Cell]]) -> None:
        """Count a row; make and keep it if it is its turn."""
        self.offer(lambda: [_plain(cell) for cell in make()])

    def has(self, column: str) -> bool:
        """True if a column holds a number."""
        at = self.columns.index(column)
        return any(row[at] is not None for row in self.items)


@dataclass(frozen=True)
class Panel:
    """One chart, with the table of the same data below it."""

    name: str  #: of the panel, unique on the page
    title: str  #: what it shows
    note: str  #: how to read it
    table: str  #: the table it draws from
    series: Sequence[tuple[str, str]]  #: (column, label) of each curve
    band: tuple[str, str, str] | None = None  #: (low column, high column, label) of a shaded interval
    log: bool = False  #: draw the y axis in powers of ten at first
    unit: str = ""  #: of the y axis
    curator: bool = False  #: True if it shows exact functions of raw rows


class PageData(ABC):
    """Contents of a page under a public title. Written by the thread of the run, read by that of the server.

    Attributes
    ----------
    is_publishable : all of it is computed from private releases.
    notice : sentence at the head of the page: who may see it.
    ended : how the run ended; "" before.
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
        """The tables, by name."""

    @abstractmethod
    def panels(self) -> list[Panel]:
        """The charts that there are data for, in order."""

    @abstractmethod
    def facts(self) -> list[Fact]:
        """The figures at the head of the page."""

    @abstractmethod
    def more(self) -> dict[str, Any]:
        """Further JSON values of the page."""

    def changed(self) -> None:
        """Count a change, so that readers are sent the page again."""
        self.version += 1

    def end(self, how: str = "The run has ended") -> None:
        """Mark the page as ended; more may come nevertheless."""
        with self.lock:
            for table in self.tables().values():
                table.finish()
            if self.ended != how:
                self.ended = how
                self.changed()

    @property
    def stamp(self) -> int:
        """Changes whenever there is something new."""
        return self.version

    def state(self) -> dict[str, Any]:
        """Everything as JSON values."""
        with self.lock:
            return {
                "title": self.title,
                "publishable": self.is_publishable,
                "notice": self.notice,
                "ended": self.ended,
                "facts": [asdict(fact) for fact in self.facts()],
                "panels": [asdict(panel) for panel in self.panels()],
                "tables": {
                    name: {"columns": list(table.columns), "rows": table.items} for name, table in self.tables().items()
                },
                **self.more(),
            }

    def message(self) -> str:
        """`state` as JSON, made once for all readers."""
        with self.lock:
            if self._message[0] != self.stamp:
                self._message = self.stamp, json.dumps(self.state(), allow_nan=False, separators=(",", ":"))
            return self._message[1]


def _plain(cell: Cell) -> Cell:
    if cell is None or not math.isfinite(cell):
        return None
    # Seven digits are more than a chart shows, and half of the size.
    return int(cell) if isinstance(cell, int) else float(f"{cell:.7g}")
