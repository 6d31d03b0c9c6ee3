"""A fast parse of plain CSV text that gives up rather than guess.

pandas reads a short row as missing values, drops the end of a long one when
columns are chosen, and has its own views on NUL and byte order marks. So the
layout is checked here first, row by row, and pandas only turns cells into
numbers; anything unusual is left to the exact reader (`csv_rows`), and all of
it where pandas is not installed. Where numba is (extra ``fast``), decimals of
up to 19 digits do not even get as far (`csv_compiled`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from streampca.linalg import fast
from streampca.linalg.types import FloatArray
from streampca.sources.csv_cells import MISSING

_NEWLINE, _RETURN, _SPACE, _QUOTE, _PLUS = 10, 13, 32, 34, 43
_BOM = b"\xef\xbb\xbf"
_LONGEST_PAUSE = 31  # pieces


class FastParser:
    """Parses pieces of a file whose rows all have `width` cells.

    Parameters
    ----------
    width : cells in a row.
    places : positions of the wanted cells, in the order wanted.
    delimiter : one ASCII character.
    """

    def __init__(self, width: int, places: Sequence[int], delimiter: str) -> None:
        self.width = width
        self._read_csv, rounding = _pandas()
        self._kernel = _kernel()
        self._rest = self._pause = 0
        self._delimiter = ord(delimiter)
        inside = sorted(places)
        self._reads_last = width - 1 in places
        self._slots = np.full(width, -1)
        self._slots[list(places)] = np.arange(len(places))
        self._count = len(places)
        self._order = None if inside == list(places) else np.searchsorted(inside, places)
        # Missing values are matched before spaces are stripped, so the common padded forms are listed.
        missing = [padded for cell in sorted(MISSING) for padded in (cell, f" {cell}", f"{cell} ")]
        self._options: dict[str, Any] = {
            "sep": delimiter,
            "header": None,
            "names": range(width),
            "usecols": inside,  # even if it is all: otherwise pandas warns of long rows, for all threads to hear
            "index_col": False,
            "dtype": np.float64,
            "keep_default_na": False,
            "na_values": missing,
            "low_memory": False,
            **rounding,
        }

    def parse(self, piece: bytes, *, nan: bool) -> FloatArray | None:
        """The chosen cells of a piece of whole lines, or None if it must be read with care.

        Parameters
        ----------
        piece : UTF-8 text that ends where a row ends.
        nan : whether values that are missing or infinite are let through.
        """
        piece = self._plain(piece)
        if not piece:
            return None
        text = np.frombuffer(piece, dtype=np.uint8)
        count = int(np.count_nonzero(text == _NEWLINE))
        made = self._compiled(text, count)
        if made is not None:
            return made
        if self._read_csv is None:
            return None
        if np.count_nonzero(text == self._delimiter) != count * (self.width - 1):
            return None
        try:
            rows = self._cells(piece)
        except (ValueError, OverflowError, Warning):
            return None
        if rows.shape[0] != count or self._may_be_words(piece, rows):
            return None
        finite = bool(np.isfinite(rows).all())
        if not (finite or nan):
            return None
        # The number of cells is right in all, so a long row takes a short one, and that one's last
        # cell is missing: if the last column was read and is whole, no row can be either.
        if (finite and self._reads_last) or self._even(text, count):
            return rows
        return None

    def _compiled(self, text: npt.NDArray[np.uint8], count: int) -> FloatArray | None:
        """The rows of the plainest text; after a piece that was not so plain, some pieces are not tried."""
        if self._kernel is None:
            return None
        if self._rest:
            self._rest -= 1
            return None
        if text.size >= 2 * count * self.width:  # each cell has a character and an end, or there are no numbers
            rows = np.empty((count, self._count))
            if self._kernel(text, self._delimiter, self._slots, rows) == count:
                self._pause = 0
                return rows
        self._pause = min(2 * self._pause + 1, _LONGEST_PAUSE)
        self._rest = self._pause
        return None

    def _plain(self, piece: bytes) -> bytes:
        """The piece without needless quotes and with a final line end; empty if it is not plain."""
        if piece.startswith(_BOM) or b"\0" in piece:
            return b""
        if b"\r" in piece and piece.count(b"\r") != piece.count(b"\r\n"):
            return b""
        if not piece.endswith(b"\n"):
            piece += b"\n"
        if b'"' in piece:
            # With one column, an empty cell in quotes would turn into a blank line.
            if self.width == 1 or not self._quotes_idle(np.frombuffer(piece, dtype=np.uint8)):
                return b""
            piece = piece.translate(None, b'"')
        # pandas 3.1 reads +1e 5 as a number, and rounds other numbers with a plus sign at will.
        if b"+" in piece and self._leads_with_plus(np.frombuffer(piece, dtype=np.uint8)):
            return b""
        return piece

    def _leads_with_plus(self, text: npt.NDArray[np.uint8]) -> bool:
        """Whether a plus sign stands at the start of a cell, with or without spaces before it."""
        signs = np.flatnonzero(text == _PLUS)
        before = text[signs - 1]  # at the start of the piece: its last byte, a line end
        return bool(((before <= _SPACE) | (before == self._delimiter)).any())

    def _quotes_idle(self, text: npt.NDArray[np.uint8]) -> bool:
        """Whether quotes do nothing: each pair encloses one whole cell, without delimiters or line ends inside."""
        quotes = np.flatnonzero(text == _QUOTE)
        if quotes.size % 2:
            return False
        opening, closing = quotes[0::2], quotes[1::2]
        breaks = (text == self._delimiter) | (text == _NEWLINE)
        starts = breaks[opening - 1] | (opening == 0)
        ends = breaks[closing + 1] | (text[closing + 1] == _RETURN)
        if not (starts.all() and ends.all()):
            return False
        places = np.flatnonzero(breaks)
        return bool((np.searchsorted(places, opening) == np.searchsorted(places, closing)).all())

    @staticmethod
    def _may_be_words(piece: bytes, rows: FloatArray) -> bool:
        """Whether a column of ones and zeros may have been one of True and False, which pandas reads alike."""
        suspects = rows[:, ~((rows[0] != 0.0) & (rows[0] != 1.0) & (rows[0] == rows[0]))]
        binary = ((suspects == 0.0) | (suspects == 1.0) | np.isnan(suspects)).all(axis=0).any()
        if not binary:
            return False
        text = piece.lower()
        return b"true" in text or b"false" in text

    def _even(self, text: npt.NDArray[np.uint8], count: int) -> bool:
        """Whether each line has `width` cells, given that there are as many cells as that takes."""
        if self.width == 1:
            return True
        ends = np.flatnonzero(text == _NEWLINE)
        marks = np.flatnonzero(text == self._delimiter).reshape(count, self.width - 1)
        return bool((marks[:, -1] < ends).all() and (marks[1:, 0] > ends[:-1]).all())

    def _cells(self, piece: bytes) -> FloatArray:
        values: FloatArray = self._read_csv(_Feed(piece), **self._options).to_numpy(dtype=np.float64)
        if self._order is not None:
            values = values[:, self._order]
        return np.ascontiguousarray(values)


class _Feed:
    """The least that pandas reads from: bytes in, without a detour through text."""

    def __init__(self, piece: bytes) -> None:
        self._piece = piece
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        end = len(self._piece) if size < 0 else self._at + size
        part = self._piece[self._at : end]
        self._at += len(part)
        return part

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> bytes:
        raise StopIteration


def _kernel() -> Callable[..., int] | None:
    if fast.kernels is None:
        return None
    from streampca.sources.csv_compiled import parse

    return cast("Callable[..., int]", parse)


def _pandas() -> tuple[Any, dict[str, str]]:
    """The parser of pandas, or None where that is not installed, and its option for correct rounding."""
    try:
        import pandas as pd
    except ImportError:
        return None, {}
    major, minor = (int(part) for part in pd.__version__.split(".")[:2])
    # From 3.1 on, pandas rounds correctly by itself.
    return pd.read_csv, {} if (major, minor) >= (3, 1) else {"float_precision": "round_trip"}
