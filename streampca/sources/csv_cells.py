"""Cells of delimited text as numbers: one at a time by `number`, whole blocks by `CellParser`.

`number` defines which cells are numbers, and `streampca.sources.records` where records and cells end. `CellParser`
reads a block only if it reads all of it as they do, so that the outcome of a record depends on that record only.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Sequence
from functools import cache
from typing import Any

from streampca.linalg.types import FloatArray
from streampca.rows.names import MISSING
from streampca.rows.protocol import arrow_rows
from streampca.sources.records import OVERLONG, UNCLOSED, are_plain_quotes

#: Most columns of a row that pyarrow reads; its cost for each column and block exceeds that of a cell.
_WIDEST = 2**14
_SPACE = " \t\n\r\v\f"
# Possessive: time and memory are linear in the length of a cell, or of a row of a million cells.
_NUMBER = r"[ \t\n\r\v\f]*+[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+[ \t\n\r\v\f]*+"
_ONE = re.compile(_NUMBER)
_MANY = re.compile(rf"{_NUMBER}(?:\x00{_NUMBER})*+")
_INFINITE = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE)
_NAN = re.compile(r"[+-]?nan(?:\([0-9a-z_]*\))?", re.IGNORECASE)


def number(cell: str, missing: frozenset[str] = MISSING) -> float | None:
    """Return the number in a cell: NaN if it is missing, None if it is something else.

    Numbers are decimal, as in ``3``, ``-3.``, ``.5`` or ``1e-5``, with or without spaces around them, and are rounded
    correctly. ``inf``, ``infinity`` and ``1e999`` are infinite. ``1_000``, ``1,000``, ``0x10``, ``True`` and digits
    outside ASCII are not numbers.
    """
    bare = cell.strip(_SPACE)
    if bare in missing or _NAN.fullmatch(bare):
        return float("nan")
    if _ONE.fullmatch(cell) or _INFINITE.fullmatch(bare):
        return float(bare)
    return None


def known(cell: Any, missing: frozenset[str] = MISSING) -> Any:
    """Return the cell of a person or a time; None if it is a text for a missing value."""
    value = number(cell, missing) if isinstance(cell, str) else None
    return cell if value == value else None  # not nan


def numbers(cells: Sequence[str], missing: frozenset[str] = MISSING) -> list[float] | None:
    """Return the numbers in some cells; None if any is something else."""
    sentinels = _sentinels(missing)
    if _MANY.fullmatch("\0".join(cells)) and not (sentinels and {cell.strip(_SPACE) for cell in cells} & sentinels):
        try:
            return [float(cell) for cell in cells]
        except ValueError:  # a NUL inside a cell
            return None
    values = [value for cell in cells if (value := number(cell, missing)) is not None]
    return values if len(values) == len(cells) else None


@cache
def _sentinels(missing: frozenset[str]) -> frozenset[str]:
    """Return the texts for missing values that would be numbers, such as 999."""
    return frozenset(text for text in missing if _ONE.fullmatch(text) or _INFINITE.fullmatch(text))


class CellParser:
    """Numbers from blocks of whole records, through pyarrow if it is installed."""

    # ``places`` are the positions of the wanted cells among the ``width`` in a row, in the order wanted. ``quotes`` is
    # whether quotes enclose cells.

    def __init__(
        self, width: int, places: Sequence[int], delimiter: str, missing: frozenset[str] = MISSING, *,
        quotes: bool = True,
    ) -> None:  # fmt: skip
        self._width, self._delimiter, self._quotes = width, delimiter, quotes
        self.wanted = [str(at) for at in places]  # names of the columns that are read
        self._read: Any = None
        # pyarrow looks for missing values before it removes spaces, so that it would read " 999 " as a number.
        if width > _WIDEST or _sentinels(missing):
            return
        try:
            import pyarrow as pa
            from pyarrow import csv
        except ImportError:
            return
        names = [str(at) for at in range(width)]
        plain = {
            # One thread, because columns of a megabyte of text do not repay a second one; one block, because pyarrow
            # refuses records that span two.
            "read_options": csv.ReadOptions(use_threads=False, column_names=names, block_size=2**30),
            "parse_options": csv.ParseOptions(
                delimiter=delimiter, quote_char='"' if quotes else False, newlines_in_values=quotes,
                ignore_empty_lines=False,
            ),
            "convert_options": csv.ConvertOptions(
                column_types=dict.fromkeys(self.wanted, pa.float64()), include_columns=self.wanted,
                null_values=sorted(missing),
            ),
        }  # fmt: skip
        self._read, self._error = lambda text: csv.read_csv(pa.BufferReader(text), **plain), pa.ArrowInvalid

    def parse(self, text: bytes) -> FloatArray | None:
        """Return the rows of whole records, one a record, or None if `number` must read any of them."""
        if self._read is None or text is OVERLONG or text is UNCLOSED:
            return None
        # Four ways in which pyarrow reads other records than `records`: it ends them at a lone CR, skips a byte order
        # mark, takes a blank line for a row of missing values, and appends text behind a closing quote to the cell.
        text = text.replace(b"\r\n", b"\n")
        if b"\r" in text or text.startswith(BOM_UTF8):
            return None
        if self._width > 1 and (text.startswith(b"\n") or b"\n\n" in text):
            return None
        if self._quotes and b'"' in text and not are_plain_quotes(text, self._delimiter):
            return None
        try:
            table = self._read(text)
        except self._error:
            return None
        (batch,) = table.combine_chunks().to_batches()
        return next(arrow_rows(batch, self.wanted, batch.num_rows))
