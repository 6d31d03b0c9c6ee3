"""Profile of the columns of a table, for the curator: kinds, gaps, and styles of the cells that are no numbers.

`Profile` reads blocks of cells, in memory that does not grow with the rows. It keeps counts, and its figures hold words
of a fixed list and never a cell. `streampca.facade.check` prints them.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np

from streampca.linalg.types import FloatArray
from streampca.rows.names import MISSING, is_date
from streampca.sources.csv_cells import number

Kind = Literal["number", "text", "date", "identifier", "empty"]

#: Share of the cells of a column, beside the missing ones, from which on they determine its kind.
_MOSTLY = 0.5
#: Names of columns that number rows or people.
_IDENTIFIER = re.compile(r"(?i:(^|[_ .-])(id|uuid|guid)$|^index$|^Unnamed: )|(?<=[a-z])I[dD]$")
#: A column whose first cells are nearly all different looks like an identifier, from so many cells and shares on. Whole
#: numbers that were measured are different in small tables, too.
_FIRST, _FROM = 2**14, {"number": (1000, 0.99), "text": (100, 0.95)}
#: Longest cell with a style of its own.
_LONGEST = 64
_N = r"[+-]?(?:\d+(?:[.,]\d+)*|[.,]\d+)"
_DOTTED_DATE = re.compile(r"\d{1,4}\.\d\d?\.\d{2,4}")
#: Styles of cells. The names are fixed, so that none shows a cell.
_STYLES = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "'-'": r"[-\u2013\u2014\u2212]+", "'?'": r"\?+", "'.'": r"\.+", "'*'": r"\*+", "1,5": _N, "5%": rf"{_N} ?%",
        "<5": rf"[<>\u2264\u2265~=]+ ?{_N}", "$5": rf"[$\u20ac\u00a3\u00a5] ?{_N}", "5 kg": rf"{_N} ?[^\W\d_].*",
        "yes/no": "yes|no|true|false",
    }.items()
}  # fmt: skip


def cells_of(column: Any, missing: frozenset[str] = MISSING) -> tuple[FloatArray, Counter[Any]]:
    """Return the numbers in cells of any type, nan for others, and these others with their counts.

    Text is a number as in a CSV file. A cell that is neither number nor text counts by its type.
    """
    if isinstance(column, np.ndarray):
        return column, Counter()
    found: dict[Any, float | None] = {}  # many cells repeat
    values, others = np.full(len(column), np.nan), Counter[Any]()
    for at, cell in enumerate(column):
        is_text = type(cell) is str
        value = found.get(cell, math.pi) if is_text else _value(cell)
        if value is math.pi:
            value = found[cell] = number(cell, missing)
        if value is None:
            others[cell if is_text or isinstance(cell, date) else type(cell)] += 1
        else:
            values[at] = value
    return values, others


def _value(cell: Any) -> float | None:
    """Return the number in a cell that is no text, nan if it is missing, None if it is no number."""
    # pandas has values for missing numbers and times that convert to no float.
    if cell is None or cell is np.ma.masked or type(cell).__name__ in ("NAType", "NaTType"):
        return math.nan
    if not isinstance(cell, (Real, Decimal, np.bool_)):
        return None
    try:
        return float(cell)
    except OverflowError:
        return math.inf
    except (ValueError, TypeError):  # a signaling NaN of decimal
        return math.nan


def style_of(cell: Any) -> str:
    """Return the style of a cell that is no number: a word of a fixed list, never the cell."""
    if isinstance(cell, date):
        return "dates"
    if not isinstance(cell, str):
        return "objects"
    text = cell.strip()[: _LONGEST + 1]
    if len(text) > _LONGEST:
        return "words"
    is_number = _STYLES["1,5"].fullmatch(text) and not _DOTTED_DATE.fullmatch(text)
    if len(text) > 5 and any(map(str.isdigit, text)) and not is_number and is_date(text):
        return "dates"
    return next((name for name, pattern in _STYLES.items() if pattern.fullmatch(text)), "words")


def is_named(name: str) -> bool:
    """Return whether the name of a column is that of an identifier."""
    return _IDENTIFIER.search(name) is not None


@dataclass(frozen=True)
class ColumnProfile:
    """Figures of one column. Curator only: exact functions of raw rows.

    Attributes
    ----------
    name : str
    kind : {"number", "text", "date", "identifier", "empty"}
        What most cells are; "identifier" if the name or the number of different cells looks like one.
    missing : float
        Share of the cells that are missing.
    not_a_number : float
        Share of the cells that are neither missing nor a finite number.
    style : str or None
        The most frequent style of these, from a fixed list: ``'-'``, ``1,5``, ``<5``, ``infinite``, ``words``, ...
    outside : float or None
        Share of the finite numbers outside the given range; None without one.
    """

    name: str
    kind: Kind
    missing: float
    not_a_number: float
    style: str | None
    outside: float | None


@dataclass
class _Tally:
    """Counts of one column."""

    cells: int = 0
    finite: int = 0
    outside: int = 0
    styles: Counter[str] = field(default_factory=Counter)  # of the cells that are no finite numbers
    first: int = 0  # cells that are compared, and the different ones among them
    different: set[Any] = field(default_factory=set)
    is_whole: bool = True

    def add(self, values: FloatArray, others: Counter[Any], lower: float, upper: float) -> None:
        """Count the cells of a block."""
        numbers, count = values[np.isfinite(values)], others.total()
        self.cells += len(values)
        self.finite += len(numbers)
        self.outside += int(np.count_nonzero((numbers < lower) | (numbers > upper)))
        self.styles["infinite"] += int(np.count_nonzero(np.isinf(values)))
        for cell, times in others.items():
            self.styles[style_of(cell)] += times
        if self.first < _FIRST:
            self.is_whole = self.is_whole and bool((numbers == np.floor(numbers)).all())
            is_text = count > len(numbers)
            self.different.update(others if is_text else numbers.tolist() if self.is_whole else ())
            self.first += count if is_text else len(numbers)

    def profile(self, name: str, *, is_bounded: bool) -> ColumnProfile:
        """Return the profile of the column."""
        bad, total = self.styles.total(), max(self.cells, 1)
        cells, kind = self.finite + bad, "text"
        if self.finite + self.styles["infinite"] > _MOSTLY * cells:
            kind = "number"
        elif self.styles["dates"] > _MOSTLY * cells:
            kind = "date"
        least, share = _FROM.get(kind, (math.inf, 1.0))
        is_different = self.first >= least and len(self.different) >= share * self.first
        if kind != "date" and (is_named(name) or is_different):
            kind = "identifier"
        style = self.styles.most_common(1)[0][0] if bad else None
        outside = self.outside / max(self.finite, 1) if is_bounded else None
        return ColumnProfile(
            name, kind if cells else "empty", (self.cells - cells) / total, bad / total, style, outside,  # type: ignore[arg-type]
        )  # fmt: skip


class Profile:
    """Counts of the cells, bad rows and long rows of a table, block by block.

    ``used`` are the positions of the columns that a row consists of; None for those of numbers in the first block.
    ``complete`` rows have a finite number in each of these, and ``long`` ones of them are longer than ``row_norm``.
    """

    def __init__(
        self, names: Sequence[str], bounds: tuple[FloatArray, FloatArray] | None = None, row_norm: float | None = None,
        used: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        self.names, self._bounds, self._row_norm, self.used = tuple(names), bounds, row_norm, used
        self.rows = self.unreadable = self.complete = self.long = 0
        self._tallies = [_Tally() for _ in self.names]

    def add(self, columns: Sequence[tuple[FloatArray, Counter[Any]]], unreadable: int) -> None:
        """Count a block: the cells of its columns (`cells_of`), and the number of unreadable rows beside them."""
        lower, upper = self._bounds or (np.full(len(columns), -math.inf), np.full(len(columns), math.inf))
        for tally, cells, low, high in zip(self._tallies, columns, lower, upper, strict=True):
            tally.add(*cells, low, high)
        self.unreadable += unreadable
        self.rows += len(columns[0][0]) + unreadable
        if self.used is None and len(columns[0][0]):
            self.used = self.numeric()
        if self.used:
            rows = np.stack([columns[j][0] for j in self.used], axis=1)
            rows = rows[np.isfinite(rows).all(axis=1)]
            self.complete += len(rows)
            if self._row_norm is not None:
                with np.errstate(over="ignore"):
                    self.long += int(np.count_nonzero(np.linalg.norm(rows, axis=1) > self._row_norm))

    def numeric(self) -> list[int]:
        """Return the positions of the columns of numbers."""
        return [j for j, column in enumerate(self.columns()) if column.kind == "number"]

    def columns(self) -> tuple[ColumnProfile, ...]:
        """Return the profile of each column."""
        bounded = self._bounds is not None
        return tuple(one.profile(name, is_bounded=bounded) for one, name in zip(self._tallies, self.names, strict=True))
