"""Options of reading, declared once for every format: the fields of `Reading`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal, Self

from streampca.errors import BadParameterError, short
from streampca.linalg.counts import check_count
from streampca.rows.names import MISSING
from streampca.sources.base import BLOCK_ROWS, OnBadRow

_DELIMITERS = "\t ,;:|!/~^#&@$%*="


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How rows are read from files and streams of every format.

    Parameters
    ----------
    on_bad_row : ``"raise"``, or ``"zero"``: every record that is not a row of numbers becomes a row of NaN, which
        ``Stream(on_bad_row="zero")`` absorbs as a zero row and counts, for the curator.
    missing : ``"raise"`` makes a missing or infinite value an error; ``"nan"`` passes it on, so that
        ``Stream(on_bad_row=...)`` decides. There is no way to skip such rows: positions in the stream are public, and
        a skipped row would move all later ones.
    chunk_rows : most rows in a block.
    times : one of the columns, which may hold dates and times (of text: ISO 8601; UTC unless they say otherwise). They
        are read as seconds since 1970.
    na : more texts that mean a missing value, besides those of `MISSING`; a list, or text with commas between.
    max_bytes : most bytes that a compressed text file may expand to; None for no limit.
    follow : at the end of a text file, wait for more lines, for ever.
    delimiter : one ASCII character. By default a comma if the header has one or no other (``;``, tab or ``|``);
        without a header, and with bad rows absorbed, a comma.
    quoting : ``"csv"`` reads records as RFC 4180 has them, and a quoted cell may hold line ends. With ``"none"``, every
        line is a record and a quote is a character: for text that no CSV writer wrote.
    header : True if the first record names the columns, False if it is a row; then columns are called x0, x1, ... By
        default it names them and is refused if a chosen name looks like a value.
    names : names of all columns of a file without a header; with ``header=True``, in place of those in the header.
    encoding : of the text. With bad rows absorbed, one where every character stands on its own: not UTF-7, for example.

    Raises
    ------
    BadParameterError
        If an option is outside its domain.
    """

    on_bad_row: OnBadRow = "raise"
    missing: Literal["raise", "nan"] = "raise"
    chunk_rows: int = BLOCK_ROWS
    times: str | int | None = None
    na: str | Sequence[str] = ()
    max_bytes: int | None = 2**36
    follow: bool = False
    delimiter: str | None = None
    quoting: Literal["csv", "none"] = "csv"
    header: bool | None = None
    names: Sequence[str] | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        mark, names = self.delimiter, self.names
        if mark is not None and not (isinstance(mark, str) and len(mark) == 1 and mark in _DELIMITERS):
            raise BadParameterError(
                f"delimiter={short(mark)} must be one of the characters , ; : | tab space ! / ~ ^ # & @ $ % * ="
            )
        check_count("chunk_rows", self.chunk_rows)
        check_count("max_bytes", self.max_bytes, optional=True)
        if self.on_bad_row not in ("raise", "zero"):
            raise BadParameterError(f"on_bad_row={short(self.on_bad_row)} must be 'raise' or 'zero'")
        if self.missing not in ("raise", "nan"):
            raise BadParameterError(
                f"missing={short(self.missing)} must be 'raise' or 'nan' (then Stream(on_bad_row='zero') absorbs the "
                "row as a zero row; rows are never skipped, since that would move every later row's public position)"
            )
        if not all(isinstance(text, str) for text in self.na):
            raise BadParameterError(
                f"na={short(self.na)} must be texts that mean a missing value, such as na=['?', '-']"
            )
        if self.quoting not in ("csv", "none"):
            raise BadParameterError(f"quoting={short(self.quoting)} must be 'csv' or 'none'")
        if self.header not in (None, True, False):
            raise BadParameterError(f"header={short(self.header)} must be True, False or None; names= lists names")
        if names is not None and (isinstance(names, str) or not names or not all(isinstance(n, str) for n in names)):
            raise BadParameterError(f"names={short(names)} must be a list of the names of all columns")
        if self.is_absorbing and self.header is False and names is None:
            raise BadParameterError(
                "on_bad_row='zero' with header=False: the first record would say how many columns there are; "
                "name all columns, names=['a', 'b', ...]"
            )

    @property
    def is_absorbing(self) -> bool:
        """Whether a bad record becomes a row of NaN."""
        return self.on_bad_row == "zero"

    @property
    def is_lenient(self) -> bool:
        """Whether values that are missing or infinite are passed on."""
        return self.is_absorbing or self.missing == "nan"

    @property
    def has_header(self) -> bool:
        """Whether the first record of a delimited text is a header."""
        return self.header or (self.header is None and self.names is None)

    @cached_property
    def missing_texts(self) -> frozenset[str]:
        """Texts that stand for a missing value, without spaces around them."""
        texts = self.na.split(",") if isinstance(self.na, str) else self.na
        return MISSING | {text.strip(" \t\n\r\v\f") for text in texts}

    def only(self, rows: str, *options: str) -> Self:
        """These options; `BadParameterError` if one is set that is not among those that apply to such rows."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name not in options and value != field.default:
                raise BadParameterError(f"{field.name}={short(value)} does not apply to {rows}")
        return self
