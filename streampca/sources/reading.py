"""Options of reading, declared once for every format: the fields of `Reading`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, Self

from streampca.errors import BadParameterError, UsageError, short
from streampca.linalg.counts import check_count
from streampca.rows.parquet import BLOCK_ROWS

_DELIMITERS = "\t ,;:|!/~^#&@$%*="


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Options for reading rows from files and streams of every format.

    A record that is not a row of numbers is read as a row of NaN, which streams absorb as a zero vector and count for
    the curator. It cannot be skipped: positions in the stream are public, and all later rows would move.

    Parameters
    ----------
    chunk_rows : most rows in a block.
    na : further texts for a missing value, besides `MISSING`; a list, or text separated by commas.
    max_bytes : most bytes that a compressed text file may expand to; None for no limit.
    follow : wait for more lines at the end of a text file, forever.
    delimiter : one ASCII character. By default a comma if the header has one or none of ``;``, tab and ``|``. Without
        a header, a comma.
    quoting : with ``"csv"``, records follow RFC 4180, and a quoted cell may hold line ends. With ``"none"``, every line
        is a record and a quote is a character, for text that no CSV writer wrote.
    header : True if the first record names the columns, False if it is a row, which needs ``names``. By default it
        names them and is refused if a chosen name looks like a value.
    names : names of all columns of a file without a header; with ``header=True``, in place of those in the header.
    encoding : of the text. Its characters must be independent: UTF-7 is refused.
    beside : names of columns that are no features where all columns are read, such as those of people and times.

    Raises
    ------
    BadParameterError
        If an option is outside its domain.
    """

    chunk_rows: int = BLOCK_ROWS
    na: str | Sequence[str] = ()
    max_bytes: int | None = 2**36
    follow: bool = False
    delimiter: str | None = None
    quoting: Literal["csv", "none"] = "csv"
    header: bool | None = None
    names: Sequence[str] | None = None
    encoding: str = "utf-8"
    beside: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_count("chunk_rows", self.chunk_rows)
        check_count("max_bytes", self.max_bytes, optional=True)
        mark, names = self.delimiter, self.names
        is_list = not isinstance(names, str) and names and all(isinstance(name, str) for name in names)
        for option, is_valid, expected in (
            ("delimiter", mark is None or (isinstance(mark, str) and len(mark) == 1 and mark in _DELIMITERS),
             "one of the characters , ; : | tab space ! / ~ ^ # & @ $ % * ="),
            ("na", all(isinstance(text, str) for text in self.na),
             "texts that mean a missing value, such as na=['?', '-']"),
            ("beside", not isinstance(self.beside, str) and all(isinstance(name, str) for name in self.beside),
             "a list of names of columns"),
            ("quoting", self.quoting in ("csv", "none"), "'csv' or 'none'"),
            ("header", self.header in (None, True, False), "True, False or None. List names with names="),
            ("names", names is None or is_list, "a list of the names of all columns"),
        ):  # fmt: skip
            if not is_valid:
                raise BadParameterError(option, getattr(self, option), expected)
        if self.header is False and names is None:  # otherwise the first row would decide how many columns there are
            raise UsageError("header=False: name all columns, names=['a', 'b', ...]")

    def features(self, header: Sequence[str]) -> list[int] | None:
        """Return the positions of all columns but those ``beside``; None for all."""
        return [at for at, name in enumerate(header) if name not in self.beside] if self.beside else None

    def only(self, rows: str, *options: str) -> Self:
        """Return these options; `UsageError` if one is set that does not apply to such rows."""
        # An option that is set to its default cannot be told from one that is not set, and changes nothing.
        for option in fields(self):
            value = getattr(self, option.name)
            if option.name not in options and value != option.default:
                raise UsageError(f"{option.name}={short(value)} does not apply to {rows}")
        return self
