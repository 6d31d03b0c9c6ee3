"""The person as the unit of privacy, and the names by which rows are attributed to people."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np

from streampca.calendar import in_words, length_of
from streampca.errors import BadParameterError
from streampca.linalg.counts import check_count, use_plain_numbers

#: Whole numbers from which a floating-point type lacks some, so that two people could have one number.
_EXACT = {2: 2.0**11, 4: 2.0**24, 8: 2.0**53}
#: Largest number of digits that every setting of Python converts to text; a longer number names nobody.
_DIGITS = 600


@dataclass(frozen=True, kw_only=True)
class Person:
    """A person, with all of her rows, as the unit of privacy.

    Each row counts with a weight in [0, 1], such that the joint effect of the rows of a person on all releases never
    exceeds that of ``budget`` full rows. The first rows of a person count in full, later ones less, and none once the
    budget is spent (`streampca.rows.people` has the weights and the proof). With ``budget=1``, the default, the noise
    is that for single rows.

    Parameters
    ----------
    column : name of the column that holds the name of the person, or a tuple of several. It is not a feature. None if
        names are passed as ``person=``.
    budget : B, in full rows, from 1e-3 to 1e3. The noise is proportional to it. A budget below 1 shrinks also the first
        row; it suits rows that are all short.
    max_rows : most rows of a person that count, which bounds memory.
    period : duration such as ``"1d"``, a multiple of the ``release_every`` of a calendar: budgets begin anew in each of
        its periods, and the unit is a person in one of them. None for one budget in the whole run.
    name : word for the unit in the guarantee, such as ``"device"`` or ``"household"``.

    Notes
    -----
    The guarantee is for a *name*. Two people with one name share a budget, and each has the guarantee of replacement,
    sqrt(2) mu; a person with m names has m mu. Names are compared as texts: 12, 12.0, ``"12"`` and ``" 012 "`` are one
    (`name_of`).

    *Periods.* With a ``period``, the unit is the pair of a person and the period in which her rows are *counted*, which
    is a public number and never a time of their own (`streampca.calendar`). Its rows are weighted as those of a person
    with no others, so that all releases are mu-GDP for the pair. Let C D^(q) be what the rows of one person in period q
    add to all releases (`streampca.rows.people`), of norm at most B u on every path. Her rows in p periods add their
    sum, of norm at most p B u on every path, so that all releases are p mu-GDP for her in p periods: rho is p**2 times
    as large. The norms add up, not their squares, because later releases may hold the rows of earlier periods. A
    period of one grid overlaps two of another, so runs compose as those of one unit only if their periods begin
    together, which the unit of a stream's guarantee says ("one person in one day from 12:00 UTC"), and if both count
    each row in the same period, as by its time in a file.
    """

    column: str | tuple[str, ...] | None = None
    budget: float = 1.0
    max_rows: int = 64
    period: str | None = None
    name: str = "person"

    def __post_init__(self) -> None:
        use_plain_numbers(self)
        is_some = isinstance(self.column, str | tuple | None)
        columns = self.columns if is_some else ()
        if not is_some or not all(isinstance(one, str) and one for one in columns) or len({*columns}) < len(columns):
            raise BadParameterError(
                "unit.column", self.column, "the name of a column, a tuple of distinct ones, or None"
            )
        if not (isinstance(self.budget, (int, float)) and 1e-3 <= self.budget <= 1e3):
            raise BadParameterError("unit.budget", self.budget, "a number of full rows from 0.001 to 1000")
        check_count("unit.max_rows", self.max_rows, most=2**20)
        if self.period is not None:
            length_of("unit.period", self.period)
        if not isinstance(self.name, str) or not self.name.strip():
            raise BadParameterError("unit.name", self.name, "a word such as 'person'")

    @classmethod
    def of(cls, unit: Any) -> Person | None:
        """Return a unit: a text, or a tuple of texts, is short for its column; None is a row."""
        if isinstance(unit, (str, tuple)):
            return cls(column=unit)
        if not isinstance(unit, Person | None):
            raise BadParameterError("unit", unit, "a Person, such as Person(column='patient')")
        return unit

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that hold the name of the person."""
        if self.column is None or isinstance(self.column, str):
            return () if self.column is None else (self.column,)
        return tuple(self.column)

    @property
    def text(self) -> str:
        """The unit in words, for the guarantee: ``"one person"``, or ``"one person in one day"``."""
        return f"one {self.name}" + ("" if self.period is None else f" in {in_words(self.period)}")

    def contribution(self, *, at_once: bool) -> str:
        """Return the bound on what is counted of one person, for the guarantee."""
        effect = f"their joint effect equals that of {self.budget:g} full row{'s' * (self.budget != 1.0)}"
        if at_once:
            return f"rows under one name count with one weight, at which {effect} or less"
        anew = "" if self.period is None else f", anew in every period of {in_words(self.period)}"
        return f"rows under one name count until {effect}, at most {self.max_rows} rows{anew}"


def columns_of(unit: Person | None) -> tuple[str, ...]:
    """Return the columns that hold the names of people; none if the unit is a row."""
    return () if unit is None else unit.columns


def name_of(value: Any) -> bytes | None:
    """Return the text of a name, in bytes; None for a value that names nobody.

    Names that might be one person are one: a whole number is its decimal digits, as an integer, a float of a type that
    holds it exactly, or a text of ASCII digits with leading zeros or outer blanks. Other texts are compared in Unicode
    normal form C. A date is its ISO text, as is a time to the microsecond: in UTC if it has a zone, and without one as
    the date at midnight, because pandas has no dates. None, nan, an empty text, and values of other types name nobody.
    The parts of a tuple are joined.
    """
    if type(value) is str:  # the common case
        text = value.strip()
    elif isinstance(value, tuple):
        parts = [name_of(part) for part in value]
        # Privacy: with their lengths, so that ("a", "bc") and ("ab", "c") are two people.
        return None if None in parts else b"".join(b"%d:%b" % (len(part or b""), part or b"") for part in parts)
    else:
        text = _text(value.as_py() if hasattr(value, "as_py") else value)
    if text.isascii():
        digits = text.lstrip("0") or "0" if text.isdigit() else text
        return digits.encode() or None
    return unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass") or None


def _text(value: Any) -> str:
    """Return the text of a name that is no plain string; an empty one if the value names nobody."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "surrogateescape").strip()
    if isinstance(value, (str, UUID)):
        return str(value).strip()
    if isinstance(value, (int, np.integer, np.bool_)):
        return str(int(value)) if int(value).bit_length() < 3 * _DIGITS else ""
    if isinstance(value, (float, np.floating)):
        size, value = value.dtype.itemsize if isinstance(value, np.floating) else 8, float(value)
        # Other numbers are nobody, because rounding may have made two people equal.
        return str(int(value)) if abs(value) < _EXACT.get(size, 0.0) and value == math.floor(value) else ""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()  # an int beyond the years of Python
    if isinstance(value, datetime) and value == value:  # NaT is a datetime
        plain = value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
        return (plain if plain.tzinfo is None else plain.astimezone(UTC)).isoformat().removesuffix("T00:00:00")
    if type(value) is date:
        return value.isoformat()
    if isinstance(value, Decimal) and value.is_finite() and value.adjusted() < _DIGITS:
        return str(int(value)) if value == value.to_integral_value() else ""
    return ""


def names_of(columns: Sequence[Sequence[Any]]) -> list[bytes | None]:
    """Return the names of rows from the values of their columns."""
    if len(columns) == 1:
        return [name_of(value) for value in columns[0]]
    return [name_of(values) for values in zip(*columns, strict=True)]
