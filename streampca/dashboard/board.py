"""What a page shows, and what changed since a reader last looked."""

from __future__ import annotations

import re
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streampca.dashboard.table import Table

_CURSOR = re.compile(r"[0-9a-f]{8}(\.[0-9]{1,9}-[0-9]{1,9}){0,8}")


@dataclass(frozen=True)
class Panel:
    """One chart, with the table of the same data below it.

    Attributes
    ----------
    name : of the panel, unique on the page.
    title, note : what it shows, and how to read it.
    table : the table it draws from.
    series : (column, label) of each curve.
    band : (low column, high column, label) of a shaded interval.
    log : draw the y axis in powers of ten at first.
    unit : of the y axis.
    curator : True if it shows exact functions of raw rows.
    """

    name: str
    title: str
    note: str
    table: str
    series: Sequence[tuple[str, str]]
    band: tuple[str, str, str] | None = None
    log: bool = False
    unit: str = ""
    curator: bool = False


@dataclass(frozen=True)
class Fact:
    """One figure at the head of the page."""

    label: str
    value: str
    curator: bool = False


class Board(ABC):
    """The state behind a page. Written by the thread of the run, read by that of the server.

    Parameters
    ----------
    title : head of the page. Public.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.lock = threading.RLock()
        self.version = 0
        self.ended = ""
        self._run = secrets.token_hex(4)

    # -- what a face provides -------------------------------------------------------

    @property
    @abstractmethod
    def face(self) -> str:
        """``"public"`` or ``"curator"``."""

    @abstractmethod
    def tables(self) -> Mapping[str, Table]:
        """The tables, by name."""

    @abstractmethod
    def panels(self) -> list[Panel]:
        """The charts, in order."""

    @abstractmethod
    def facts(self) -> list[Fact]:
        """The figures at the head of the page."""

    @abstractmethod
    def more(self) -> dict[str, Any]:
        """What else the page shows: JSON values."""

    # -- what all share -------------------------------------------------------------

    def changed(self) -> None:
        """Tell readers that there is something new."""
        self.version += 1

    def end(self, how: str = "The run has ended") -> None:
        """Say that nothing more will come, or not for now; more may come nevertheless."""
        with self.lock:
            if self.ended != how:
                self.ended = how
                self.changed()

    @property
    def stamp(self) -> int:
        """Changes whenever there is something new."""
        return self.version

    @property
    def cursor(self) -> str:
        """Where a reader stands who has seen everything."""
        with self.lock:
            places = (f"{table.generation}-{len(table.rows)}" for table in self.tables().values())
            return ".".join((self._run, *places))

    def state(self) -> dict[str, Any]:
        """Everything, as JSON values."""
        return self._state(None)

    def since(self, cursor: str | None) -> tuple[str, dict[str, Any], str]:
        """What a reader who stands at ``cursor`` lacks.

        Returns
        -------
        kind : ``"append"`` if the rows are to be added to those the reader has,
            ``"reset"`` if they replace them.
        state : JSON values.
        cursor : where the reader stands then.
        """
        with self.lock:
            seen = self._read(cursor)
            return "reset" if seen is None else "append", self._state(seen), self.cursor

    def _state(self, seen: Sequence[int] | None) -> dict[str, Any]:
        with self.lock:
            tables = self.tables()
            starts = [0] * len(tables) if seen is None else seen
            return {
                "title": self.title,
                "face": self.face,
                "ended": self.ended,
                "facts": [asdict(fact) for fact in self.facts()],
                "panels": [asdict(panel) for panel in self.panels()],
                "tables": {
                    name: {"columns": list(table.columns), "rows": table.rows[start:]}
                    for (name, table), start in zip(tables.items(), starts, strict=True)
                },
                **self.more(),
            }

    def _read(self, cursor: str | None) -> list[int] | None:
        """How many rows of each table were seen; None if the cursor is not of this state."""
        if cursor is None or not _CURSOR.fullmatch(cursor):
            return None
        run, *places = cursor.split(".")
        tables = list(self.tables().values())
        if run != self._run or len(places) != len(tables):
            return None
        seen = []
        for place, table in zip(places, tables, strict=True):
            generation, count = map(int, place.split("-"))
            if generation != table.generation or count > len(table.rows):
                return None
            seen.append(count)
        return seen
