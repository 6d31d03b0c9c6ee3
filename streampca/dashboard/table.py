"""Columns of numbers over time that never grow beyond a bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Cell = float | int | None


class Table:
    """Rows of numbers, thinned: every other one goes when there are too many.

    Parameters
    ----------
    columns : their names; the first is the time.
    most : rows to keep at most.

    Attributes
    ----------
    rows : the kept rows, in order. Only ever appended to within one `generation`.
    generation : how often rows were dropped.
    """

    def __init__(self, columns: Sequence[str], most: int = 512) -> None:
        self.columns = tuple(columns)
        self.rows: list[list[Cell]] = []
        self.generation = 0
        self._most, self._step, self._seen = most, 1, 0

    @property
    def wants_next(self) -> bool:
        """True if the next row offered would be kept."""
        return self._seen % self._step == 0

    def offer(self, make: Callable[[], Sequence[float | int | None]]) -> None:
        """Count a row; make and keep it if it is due."""
        if self.wants_next:
            self.keep(make())
            if len(self.rows) > self._most:
                self.rows = self.rows[::2]
                self._step *= 2
                self.generation += 1
        self._seen += 1

    def keep(self, row: Sequence[float | int | None]) -> None:
        """Append a row whether it is due or not; what is not finite becomes None."""
        self.rows.append([plain(cell) for cell in row])

    @property
    def last(self) -> list[Cell] | None:
        """The last row."""
        return self.rows[-1] if self.rows else None


def plain(cell: float | int | None) -> Cell:
    """A JSON value: None for what is not finite."""
    if cell is None or not math.isfinite(cell):
        return None
    return int(cell) if isinstance(cell, int) else float(cell)
