"""Profile of the columns of a table, for the curator: kinds, gaps, and styles of the cells that are no numbers.

`Profile` reads blocks of cells once, in memory that does not grow with the rows. It keeps counts, and its figures hold
words of a fixed list and never a cell. `streampca.facade.check` prints them.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from streampca.conversion import as_floats
from streampca.errors import SourceError
from streampca.linalg.types import FloatArray
from streampca.privacy.unit import names_of
from streampca.rows.names import MISSING
from streampca.sources.csv_cells import known, number, numbers
from streampca.sources.tables import CellTable

#: Names of columns that number rows or people.
_IDENTIFIER = re.compile(r"(?i:(^|[_ .-])(id|uuid|guid)$|^index$|^Unnamed: )|(?<=[a-z])I[dD]$")
#: So many whole numbers, with such a share of different ones, are identifiers, too; fewer may have been measured.
_LEAST, _DIFFERENT = 1000, 0.99
_N = r"[+-]?(?:\d+|\d{1,3}(?:[.,]\d{3})+)(?:[.,]\d+)?"
#: Styles of text that is no number, the first that matches. The names are fixed, so that none shows a cell.
_STYLES = {
    "'-'": re.compile(r"[-\u2013\u2014\u2212]+"), "1,5": re.compile(_N),
    "<5": re.compile(rf"[<>\u2264\u2265~=]+ ?{_N}"), "5 kg": re.compile(rf"{_N} ?[^\W\d_%].*"),
}  # fmt: skip


def cells_of(column: Any, missing: frozenset[str] = MISSING) -> tuple[FloatArray, Counter[str]]:
    """Return the numbers in cells of any type, nan for others, and the styles of those others that are not missing."""
    if getattr(getattr(column, "dtype", None), "kind", "O") in "fiub":
        return as_floats(column), Counter()
    cells, others = column.tolist() if hasattr(column, "tolist") else list(column), Counter[str]()
    if all(isinstance(cell, str) for cell in cells) and (floats := numbers(cells, missing)) is not None:
        return np.array(floats), others
    values = np.full(len(cells), np.nan)
    for at, cell in enumerate(cells):
        if isinstance(cell, (Real, Decimal, np.bool_)):
            try:
                values[at] = float(cell)
            except (OverflowError, ValueError):  # beyond floats, or a signaling NaN of decimal
                values[at] = math.inf
        elif isinstance(cell, str):
            if (value := number(cell, missing)) is None:
                others[style_of(cell)] += 1
            else:
                values[at] = value
        elif not (cell is None or cell is np.ma.masked or cell is pd.NA or cell is pd.NaT):
            others["object"] += 1
    return values, others


def style_of(cell: str) -> str:
    """Return the style of a text that is no number: a word of a fixed list, never the cell."""
    text = cell.strip()[:64]
    return next((name for name, pattern in _STYLES.items() if pattern.fullmatch(text)), "text")


def _kind(name: str, values: FloatArray, others: Counter[str]) -> str:
    """Return the kind of a column: what most of its cells are, beside the missing ones."""
    known = values[~np.isnan(values)]
    if not (cells := len(known) + others.total()):
        return "empty"
    is_number = 2 * len(known) > cells
    is_different = cells >= _LEAST and len(np.unique(known)) >= _DIFFERENT * cells
    if _IDENTIFIER.search(name) or (is_number and is_different and (known == np.floor(known)).all()):
        return "identifier"
    return "number" if is_number else "text"


class Profile:
    """Counts of the cells, bad rows and long rows of a table."""

    # ``used`` are the positions of the columns that a row consists of; None for those of numbers in the first block.
    # ``complete`` rows have a finite number in each of these; ``long`` ones of them are longer than ``row_norm``, and
    # ``short`` ones at most a third as long. ``people`` has the number of complete rows of each person, whose name is
    # in the columns ``owners``, and ``nobody`` is the number of readable rows without one.

    def __init__(
        self, table: CellTable, bounds: tuple[FloatArray, FloatArray] | None, row_norm: float | None,
        used: Sequence[int] | None, owners: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self._owners, self.people, self.nobody = owners, Counter[bytes](), 0
        self._table, self._bounds, self.row_norm, self.used = table, bounds, row_norm, used
        self.rows = self.unreadable = self.complete = self.long = self.short = 0
        self._kinds = ["empty"] * len(table.names)
        self._finite, self._outside = np.zeros((2, len(table.names)), dtype=np.int64)
        self._styles = [Counter[str]() for _ in table.names]  # of the cells that are no finite numbers

    def read(self, limit: int | None) -> list[str]:
        """Count the first rows of the table; return a sentence where it is cut or damaged."""
        try:
            for columns, unreadable in self._table.blocks():
                left = sys.maxsize if limit is None else limit - self.rows
                part = [column[:left] for column in columns]
                self._add(part, min(unreadable, left - len(part[0])))
                if self.rows == limit:
                    return [f"Only the first {limit:,} rows were read."]
        except SourceError as damage:
            return [f"Reading ended after {self.rows:,} rows: {damage}"]
        return []

    def _add(self, columns: Sequence[Any], unreadable: int) -> None:
        """Count a block: the cells of its columns, and the number of unreadable rows beside them."""
        missing = self._table.missing
        cells = [cells_of(column, missing) for column in columns]
        values = np.stack([floats for floats, _ in cells], axis=1)
        if len(values) and self.rows == self.unreadable:  # the first readable rows
            self._kinds = [_kind(name, *column) for name, column in zip(self._table.names, cells, strict=True)]
            if self.used is None:
                numbers = [at for at, kind in enumerate(self._kinds) if kind == "number"]
                self.used = [at for at in numbers if at not in self._owners]
        self.rows, self.unreadable = self.rows + len(values) + unreadable, self.unreadable + unreadable
        finite, infinite = np.isfinite(values), np.isinf(values).sum(axis=0)
        self._finite += finite.sum(axis=0)
        for styles, (_, others), count in zip(self._styles, cells, infinite.tolist(), strict=True):
            styles.update(others)
            styles["infinite"] += count
        if self._bounds is not None:
            lower, upper = self._bounds
            self._outside += (finite & ((values < lower) | (values > upper))).sum(axis=0)
        if self.used:
            complete: Any = finite[:, self.used].all(axis=1)
            if self._owners:
                names = names_of([[known(one, missing) for one in columns[at]] for at in self._owners])
                self.nobody += names.count(None)
                self.people.update(
                    name for name, counts in zip(names, complete.tolist(), strict=True) if name and counts
                )
            rows = values[:, self.used][complete]
            self.complete += len(rows)
            with np.errstate(over="ignore"):
                norms = np.linalg.norm(rows, axis=1)
            self.long += int(np.count_nonzero(norms > (self.row_norm or math.inf)))
            self.short += int(np.count_nonzero(norms <= (self.row_norm or 0.0) / 3.0))

    def columns(self) -> pd.DataFrame:
        """Return the figures of the columns, a line each; see `streampca.views.check.Check`."""
        rows, bad = self.rows - self.unreadable, np.array([styles.total() for styles in self._styles])
        figures = pd.DataFrame({
            "kind": self._kinds, "missing": (rows - self._finite - bad) / max(rows, 1),
            "not_a_number": bad / max(rows, 1),
            "style": [max(styles, key=styles.__getitem__) if styles.total() else "" for styles in self._styles],
        }, index=pd.Index(self._table.names, name="column"))  # fmt: skip
        if self._bounds is not None:
            figures["outside"] = self._outside / np.maximum(self._finite, 1)
        return figures
