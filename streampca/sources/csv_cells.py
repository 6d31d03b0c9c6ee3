"""Which cells of a text file are numbers: the one definition, whatever parses them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_SPACE = " \t\n\r\v\f"
_NUMBER = r"[ \t\n\r\v\f]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t\n\r\v\f]*"
_ONE = re.compile(_NUMBER)
_MANY = re.compile(rf"{_NUMBER}(?:\x00{_NUMBER})*")
_INFINITE = re.compile(r"[+-]?inf(?:inity)?", re.IGNORECASE)
_NAN = re.compile(r"[+-]?nan", re.IGNORECASE)

#: Cells that stand for a missing value, besides nan of any case and sign; spaces around them do not count.
MISSING: Final = frozenset({"", "NA", "N/A", "n/a", "NULL", "null", "None", "<NA>", "#N/A"})


def number(cell: str) -> float | None:
    """The number in a cell: NaN if it is missing, None if it is something else.

    Numbers are decimal, as in ``3``, ``-3.``, ``.5`` or ``1e-5``, with or
    without spaces around them, and are rounded correctly. ``inf`` and
    ``infinity`` are infinite, and so is ``1e999``. ``1_000``, ``1,000``,
    ``0x10``, ``True`` and digits outside ASCII are not numbers.
    """
    if _ONE.fullmatch(cell):
        return float(cell)
    bare = cell.strip(_SPACE)
    if bare in MISSING or _NAN.fullmatch(bare):
        return float("nan")
    if _INFINITE.fullmatch(bare):
        return float(bare)
    return None


def numbers(cells: Sequence[str]) -> list[float] | None:
    """The numbers in some cells, if every cell plainly is one; None if any needs a closer look."""
    if not _MANY.fullmatch("\0".join(cells)):
        return None
    try:
        return [float(cell) for cell in cells]
    except ValueError:  # a NUL inside a cell
        return None


def is_blank(record: Sequence[str]) -> bool:
    """True for the record of a line that holds nothing, or nothing but spaces and tabs."""
    return not record or (len(record) == 1 and record[0] != "" and not record[0].strip(" \t"))
