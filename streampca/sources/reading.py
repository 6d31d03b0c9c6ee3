"""Options of reading, declared once for every format: the fields of `Reading`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, Self

from streampca.errors import BadParameterError, UsageError, short
from streampca.linalg.counts import check_count
from streampca.rows.admission import OnBadRow
from streampca.sources.base import BLOCK_ROWS

_DELIMITERS = "\t ,;:|!/~^#&@$%*="


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Options for reading rows from files and streams of every format.

    Parameters
    ----------
    on_bad_row : with ``"zero"``, every record that is not a row of numbers becomes a row of NaN, which
        ``Stream(on_bad_row="zero")`` absorbs as a zero row and counts, for the curator. With ``"raise"``, an error.
    missing : with ``"raise"``, a missing or infinite value is an error; with ``"nan"``, it is passed on and
        ``Stream(on_bad_row=...)`` decides. Rows cannot be skipped: positions in the stream are public, and a skipped
        row would move all later ones.
    chunk_rows : most rows in a block.
    na : further texts for a missing value, besides `MISSING`; a list, or text separated by commas.
    max_bytes : most bytes that a compressed text file may expand to; None for no limit.
    follow : wait for more lines at the end of a text file, forever.
    delimiter : one ASCII character. By default a comma if the header has one or none of ``;``, tab and ``|``. Without
        a header, and if bad rows are absorbed, a comma.
    quoting : with ``"csv"``, records follow RFC 4180, and a quoted cell may hold line ends. With ``"none"``, every line
        is a record and a quote is a character, for text that no CSV writer wrote.
    header : True if the first record names the columns, False if it is a row; columns are then called x0, x1, ... By
        default it names them and is refused if a chosen name looks like a value.
    names : names of all columns of a file without a header; with ``header=True``, in place of those in the header.
    encoding : of the text. If bad rows are absorbed, its characters must be independent: UTF-7 is refused.

    Attributes
    ----------
    is_absorbing : whether a bad record becomes a row of NaN.
    is_lenient : whether missing and infinite values are passed on.

    Raises
    ------
    BadParameterError
        If an option is outside its domain.
    """

    on_bad_row: OnBadRow = "raise"
    missing: Literal["raise", "nan"] = "raise"
    chunk_rows: int = BLOCK_ROWS
    na: str | Sequence[str] = ()
    max_bytes: int | None = 2**36
    follow: bool = False
    delimiter: str | None = None
    quoting: Literal["csv", "none"] = "csv"
    header: bool | None = None
    names: Sequence[str] | None = None
    encoding: str = "utf-8"
    is_absorbing: bool = field(init=False, repr=False, compare=False)
    is_lenient: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_count("chunk_rows", self.chunk_rows)
        check_count("max_bytes", self.max_bytes, optional=True)
        mark, names = self.delimiter, self.names
        is_list = not isinstance(names, str) and names and all(isinstance(name, str) for name in names)
        for option, is_valid, expected in (
            ("delimiter", mark is None or (isinstance(mark, str) and len(mark) == 1 and mark in _DELIMITERS),
             "one of the characters , ; : | tab space ! / ~ ^ # & @ $ % * ="),
            ("on_bad_row", self.on_bad_row in ("raise", "zero"), "'raise' or 'zero'"),
            ("missing", self.missing in ("raise", "nan"),
             "'raise' or 'nan'. Rows are never skipped, which would move the public position of every later row"),
            ("na", all(isinstance(text, str) for text in self.na),
             "texts that mean a missing value, such as na=['?', '-']"),
            ("quoting", self.quoting in ("csv", "none"), "'csv' or 'none'"),
            ("header", self.header in (None, True, False), "True, False or None. List names with names="),
            ("names", names is None or is_list, "a list of the names of all columns"),
        ):  # fmt: skip
            if not is_valid:
                raise BadParameterError(option, getattr(self, option), expected)
        object.__setattr__(self, "is_absorbing", self.on_bad_row == "zero")
        object.__setattr__(self, "is_lenient", self.is_absorbing or self.missing == "nan")
        if self.is_absorbing and self.header is False and names is None:
            raise UsageError("on_bad_row='zero' with header=False: name all columns, names=['a', 'b', ...]")

    def only(self, rows: str, *options: str) -> Self:
        """Return these options; `UsageError` if one is set that does not apply to such rows."""
        # An option that is set to its default cannot be told from one that is not set, and changes nothing.
        for option in fields(self):
            value = getattr(self, option.name)
            if option.init and option.name not in options and value != option.default:
                raise UsageError(f"{option.name}={short(value)} does not apply to {rows}")
        return self
