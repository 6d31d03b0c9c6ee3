"""Profile of the columns of a table, for the curator: kinds, gaps, and styles of the cells that are no numbers.

`Profile` reads blocks of cells once, in memory that does not grow with the rows. It holds counts and words of a fixed
list and never a cell, so that its report shows no value of a row. `streampca.facade.check` prints it.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streampca.linalg.types import FloatArray
from streampca.rows.names import MISSING, is_date
from streampca.sources.csv_cells import number

Kind = Literal["number", "text", "date", "identifier", "empty"]

#: Share of the cells of a column, beside the missing ones, from which on they determine its kind.
_MOSTLY = 0.5
#: Names of columns that number rows or people.
_IDENTIFIER = re.compile(r"(?i:(^|[_ .-])(id|uuid|guid)$|^index$|^Unnamed: )|(?<=[a-z])I[dD]$")
#: Least number of cells, and of distinct ones for each cell, in a column that looks like an identifier. Whole numbers
#: that were measured are distinct in small tables, too.
_FROM: dict[str, tuple[int, float]] = {"number": (1000, 0.99), "text": (100, 0.95)}
#: Distinct cells for each cell of a block of so many cells, below which a column is no identifier and has no sketch.
_DISTINCT_IN_BLOCK, _LEAST = 0.9, 100
#: Most cells for which a sketch is exact to 0.4 %, and most columns that have sketches (64 MB).
_COUNTED, _SKETCHES = 2**21, 1000
#: Cells of a column that are no numbers until their styles are known; those of later ones are assumed to be the same.
_STYLED = 2**14
#: Longest cell with a style of its own.
_LONGEST = 64
_N = r"[+-]?(?:\d+(?:[.,]\d+)*|[.,]\d+)"
_NUMBERS, _DOTTED_DATE = re.compile(_N), re.compile(r"\d{1,4}\.\d\d?\.\d{2,4}")
#: Styles of cells. The names are fixed, so that none shows a cell.
_STYLES = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("'-'", r"[-\u2013\u2014\u2212]+"), ("'?'", r"\?+"), ("'.'", r"\.+"), ("'*'", r"\*+"),
        ("1,5", _N), ("5%", rf"{_N} ?%"), ("<5", rf"[<>\u2264\u2265~=]+ ?{_N}"),
        ("$5", rf"[$\u20ac\u00a3\u00a5] ?{_N}"),
        ("5 kg", rf"{_N} ?[^\W\d_].*"), ("yes/no", "yes|no|true|false"),
    )
)  # fmt: skip
#: Types of cells that numpy converts to floats exactly, None to nan.
_PLAIN = {float, int, bool, type(None), np.float64, np.float32, np.int64, np.int32}


class Cells(NamedTuple):
    """Cells of one column in a block of rows. ``values`` are nan where a cell is missing or no number.

    ``others`` are the cells that are no numbers, each with its count. Curator only.
    """

    values: FloatArray
    others: Mapping[Any, int]


class CellBlock(NamedTuple):
    """Cells of readable rows, a `Cells` for each column, and the number of unreadable rows beside them."""

    columns: Sequence[Cells]
    unreadable: int = 0


def cells_of(column: Sequence[Any], missing: frozenset[str] = MISSING) -> Cells:
    """Return cells of any types as numbers and others; text is a number as in a CSV file."""
    if {*map(type, column)} <= _PLAIN:
        try:
            return Cells(np.array(column, dtype=np.float64), {})
        except OverflowError:  # an integer beyond the floats
            pass
    values, others = np.full(len(column), np.nan), Counter[Any]()
    texts: dict[str, float | None] = {}  # most columns of text repeat few cells
    for at, cell in enumerate(column):
        if type(cell) is not str:
            value = _value(cell, missing)
        elif cell in texts:
            value = texts[cell]
        else:
            value = texts[cell] = number(cell, missing)
        if value is None:
            others[cell if isinstance(cell, (str, date)) else type(cell)] += 1
        else:
            values[at] = value
    return Cells(values, others)


def _value(cell: Any, missing: frozenset[str]) -> float | None:
    """Return the number in a cell of any type, nan if it is missing, None if it is no number."""
    if isinstance(cell, str):
        return number(cell, missing)
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
    if isinstance(cell, date) or cell is np.datetime64:
        return "dates"
    if not isinstance(cell, str):
        return "objects"
    text = cell.strip()[: _LONGEST + 1]
    if len(text) > _LONGEST:
        return "words"
    if any(map(str.isdigit, text)):
        if len(text) > 5 and is_date(text) and (_DOTTED_DATE.fullmatch(text) or not _NUMBERS.fullmatch(text)):
            return "dates"
    elif text.isalpha() and len(text) > 5:  # most cells of text
        return "words"
    return next((name for name, pattern in _STYLES if pattern.fullmatch(text)), "words")


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
        What most cells are; "identifier" if the name or the number of distinct cells looks like one.
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
    missing: int = 0
    finite: int = 0
    infinite: int = 0
    outside: int = 0
    styles: Counter[str] = field(default_factory=Counter)
    is_whole: bool = True
    counted: int = 0
    sketch: _Distinct | None = None

    def add(self, cells: Cells, finite: npt.NDArray[np.bool_], *, sketched: bool) -> None:
        """Count the cells of a block, of which some are ``finite`` numbers."""
        values, others = cells
        known, count = int(np.count_nonzero(finite)), sum(others.values())
        infinite = 0 if known == len(values) else int(np.count_nonzero(np.isinf(values)))
        self.cells += len(values)
        self.finite += known
        self.infinite += infinite
        self.missing += len(values) - known - infinite - count
        if others:
            if self.styles.total() < _STYLED:
                for cell, times in others.items():
                    self.styles[style_of(cell)] += times
            else:
                self.styles[self.styles.most_common(1)[0][0]] += count
        numbers = values[finite] if known < len(values) else values
        self.is_whole = self.is_whole and bool((numbers == np.floor(numbers)).all())
        if sketched and self.counted < _COUNTED:
            self._count_distinct(numbers, others)

    def _count_distinct(self, numbers: FloatArray, others: Mapping[Any, int]) -> None:
        """Add the cells to the sketch; drop it for good where a block shows that the column is no identifier."""
        # Numbers decide unless most cells are text. Measured numbers with a fraction are as distinct as identifiers.
        count = sum(others.values())
        if is_text := count > len(numbers):
            hashes = np.fromiter((zlib.crc32(str(cell).encode("utf-8", "replace")) for cell in others), np.uint64)
        elif self.is_whole:
            hashes, count = (np.unique(numbers) + 0.0).view(np.uint64), len(numbers)
        if not (is_text or self.is_whole) or (count >= _LEAST and len(hashes) < _DISTINCT_IN_BLOCK * count):
            self.counted, self.sketch = _COUNTED, None
        elif count:
            self.sketch = self.sketch or _Distinct()
            self.sketch.add(hashes)
            self.counted += count

    def kind(self, name: str) -> Kind:
        """Return the kind of the column."""
        cells = self.cells - self.missing
        numbers, kind = self.finite + self.infinite, "text"
        if not cells:
            return "empty"
        if numbers > _MOSTLY * cells:
            kind = "number"
        elif self.styles["dates"] > _MOSTLY * cells:
            return "date"
        least, share = _FROM[kind]
        is_distinct = self.sketch is not None and self.counted >= least and (kind == "text" or self.is_whole)
        if is_distinct and self.sketch is not None:
            is_distinct = self.sketch.estimate() >= share * self.counted
        if is_distinct or is_named(name):
            return "identifier"
        return "number" if kind == "number" else "text"


class _Distinct:
    """Estimate of the number of distinct values by linear counting, in 64 KB.

    Whang, Vander-Zanden and Taylor (1990): of m places, n distinct values leave the share exp(-n / m) empty. With
    m = 2**19, the relative standard error is 0.1 % at 300 000 values and 0.2 % at 2 million.
    """

    places = 2**19

    def __init__(self) -> None:
        self._bits = np.zeros(self.places // 8, dtype=np.uint8)

    def add(self, values: npt.NDArray[np.uint64]) -> None:
        """Add values as 64-bit words."""
        # The finalizer of SplitMix64: each bit of the result depends on each bit of the word.
        mixed = values * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        at = (mixed ^ (mixed >> np.uint64(31))) >> np.uint64(45)
        np.bitwise_or.at(self._bits, at >> np.uint64(3), np.uint8(1) << (at & np.uint64(7)).astype(np.uint8))

    def estimate(self) -> float:
        empty = self.places - int(np.bitwise_count(self._bits).sum())
        return self.places * math.log(self.places / max(empty, 1))


class Profile:
    """Counts of the cells, bad rows and long rows of a table, block by block.

    Parameters
    ----------
    names : names of the columns.
    bounds : lower and upper ends of the range of each column, or None.
    row_norm : length beyond which a row is long; None if rows are not measured.
    used : positions of the columns that a row consists of; None for the columns of numbers.

    Attributes
    ----------
    rows, unreadable : rows so far, and those of them that cannot be read as cells.
    complete, long : rows with a finite number in each used column, and those of them longer than ``row_norm``. Without
        ``used``, the columns of numbers of the first block count (see `is_settled`).
    """

    def __init__(
        self, names: Sequence[str], bounds: tuple[FloatArray, FloatArray] | None = None, row_norm: float | None = None,
        used: Sequence[int] | None = None,
    ) -> None:  # fmt: skip
        self.names, self._bounds, self._row_norm = tuple(names), bounds, row_norm
        self._used = used if used is None else [*used]
        self._counted = self._used
        self.rows = self.unreadable = self.complete = self.long = 0
        self._tallies = [_Tally() for _ in self.names]
        self._sketched = len(self.names) <= _SKETCHES

    def add(self, block: CellBlock) -> None:
        """Count a block."""
        self.unreadable += block.unreadable
        count = len(block.columns[0].values)
        self.rows += count + block.unreadable
        if not count:
            return
        finite = np.empty((len(self.names), count), dtype=np.bool_)
        for j, (tally, cells) in enumerate(zip(self._tallies, block.columns, strict=True)):
            np.isfinite(cells.values, out=finite[j])
            tally.add(cells, finite[j], sketched=self._sketched)
            if self._bounds is not None:
                lower, upper = self._bounds[0][j], self._bounds[1][j]
                with np.errstate(invalid="ignore"):
                    out = (cells.values < lower) | (cells.values > upper)
                tally.outside += int(np.count_nonzero(out & finite[j]))
        if self._counted is None:
            self._counted = self.used()
        if self._counted:
            good = finite[self._counted].all(axis=0)
            self.complete += int(np.count_nonzero(good))
            if self._row_norm is not None:
                with np.errstate(over="ignore"):
                    squares = sum(block.columns[j].values[good] ** 2 for j in self._counted)
                self.long += int(np.count_nonzero(np.sqrt(squares) > self._row_norm))

    def used(self) -> list[int]:
        """Return the positions of the columns that a row consists of."""
        if self._used is not None:
            return self._used
        kinds = (tally.kind(name) for tally, name in zip(self._tallies, self.names, strict=True))
        return [j for j, kind in enumerate(kinds) if kind == "number"]

    @property
    def is_settled(self) -> bool:
        """Whether `complete` and `long` are of the `used` columns. If not, count again with these."""
        return self._counted is None or self._counted == self.used()

    def columns(self) -> tuple[ColumnProfile, ...]:
        """Return the profile of each column."""
        found = []
        for name, tally in zip(self.names, self._tallies, strict=True):
            total = max(tally.cells, 1)
            styles = tally.styles + Counter(infinite=tally.infinite)
            found.append(
                ColumnProfile(
                    name, tally.kind(name), tally.missing / total, styles.total() / total,
                    styles.most_common(1)[0][0] if styles else None,
                    None if self._bounds is None else tally.outside / max(tally.finite, 1),
                )
            )  # fmt: skip
        return tuple(found)
