"""Options that say how rows are read, shared by the commands that read rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from cyclopts import Parameter

from streampca.errors import BadParameterError

if TYPE_CHECKING:
    from streampca.bounds import Ranges
    from streampca.sources import BlockSource

#: A file, a pattern of files, or - for standard input.
SourcePath = Annotated[Path, Parameter(allow_leading_hyphen=True)]
_SCHEMES = re.compile(r"(kafka|postgres|postgresql|sqlite|duckdb)://")


class Address(str):
    """The address of a topic or a database, such as ``kafka://broker/topic`` or ``postgresql://...``."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The address without user, password and options, for titles; the scheme alone if they cannot be told apart."""
        plain = re.fullmatch(r"(\w+://)(?:[^/?#@]*@)?([^?#@]*)(?:[?#][^@]*)?", self)
        return "".join(plain.groups()) if plain else self.partition("//")[0] + "//..."


def _converted(_type: object, tokens: Sequence[Any]) -> Path | Address:
    text = str(tokens[0].value)
    return Address(text) if _SCHEMES.match(text) else Path(text)


#: A source of rows: a file, or an address.
SourceAddress = Annotated[Path | Address, Parameter(allow_leading_hyphen=True, converter=_converted)]
_Hyphen = Parameter(allow_leading_hyphen=True)
_MARKS = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";", "pipe": "|"}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Reading:
    """How rows are read.

    Parameters
    ----------
    columns
        Names of the columns to use, separated by commas, or their positions from 1. All, if left out.
    format
        Format of the rows; by the end of the file's name, if left out, and CSV for pipes.
    na
        Further texts that mean a missing value, separated by commas, such as "NA,?,-".
    delimiter
        One character, tab or space. Found in the header line, if left out.
    encoding
        Encoding of the text; utf-8, if left out.
    quoting
        csv: quoted cells may hold separators and line ends. none: each line is a record, a quote is a character.
    header
        Whether the first line names the columns. If neither is given, it does, and names like values are refused.
    names
        Names of all columns of a file without a header line, separated by commas; with --header, in place of its names.
    follow
        Wait for more rows at the end of the file, like tail -f, until Ctrl-C.
    rate
        Replay so many rows a second.
    rate_from
        Replay in real time: rows come at the distances that this column of times says. Times become public.
    query
        Of a database: a SELECT without ORDER BY.
    cursor
        Of a database: the column by which rows are ordered, and different from row to row.
    """

    columns: str | None = None
    format: Literal["csv", "tsv", "ndjson", "parquet", "arrow"] | None = None
    na: Annotated[str | None, _Hyphen] = None
    delimiter: Annotated[str | None, _Hyphen] = None
    encoding: str | None = None
    quoting: Literal["csv", "none"] | None = None
    header: Annotated[bool | None, Parameter(negative="--no-header")] = None
    names: str | None = None
    follow: Annotated[bool, Parameter(negative="")] = False
    rate: float | None = None
    rate_from: str | None = None
    query: str | None = None
    cursor: str | None = None

    def open(
        self,
        path: Path | Address,
        bounds: Ranges | None,
        on_bad_row: Literal["raise", "zero"],
        features: Sequence[str] | None = None,
    ) -> BlockSource:
        """The rows of a file, a pattern of files or - for standard input; see `streampca.sources.open_rows`.

        ``features`` are the columns where none are chosen.
        """
        from streampca.sources import open_rows

        columns = self._columns()
        if columns is None and features is not None and self._has_names:
            columns = list(features)
        if isinstance(path, Address):
            return self._elsewhere(path, columns, bounds, on_bad_row)
        if self.query is not None or self.cursor is not None:
            raise BadParameterError("--query and --cursor are of databases, such as postgresql://... or sqlite:///FILE")
        reading = {
            "na": self.na, "delimiter": _MARKS.get(self.delimiter or "", self.delimiter), "quoting": self.quoting,
            "header": self.header, "names": None if self.names is None else _listed(self.names),
            "encoding": self.encoding, "follow": self.follow,
        }  # fmt: skip
        return open_rows(
            str(path) if str(path) == "-" else path, format=self.format, columns=columns, bounds=bounds,
            rate=self.rate, rate_from=self.rate_from, on_bad_row=on_bad_row,
            **{name: value for name, value in reading.items() if value is not None},
        )  # fmt: skip

    def _elsewhere(
        self, address: Address, columns: Sequence[str | int] | None, bounds: Ranges | None,
        on_bad_row: Literal["raise", "zero"],
    ) -> BlockSource:  # fmt: skip
        """The rows of a topic or a query."""
        from streampca.sources import from_kafka, from_query

        names, parts = None if columns is None else [str(name) for name in columns], urlsplit(address)
        for field in fields(self):
            if (
                field.name not in ("columns", "follow", "query", "cursor")
                and getattr(self, field.name) != field.default
            ):
                raise BadParameterError(f"--{field.name.replace('_', '-')} does not apply to {address.name}")
        if parts.scheme != "kafka":
            if self.query is None or self.cursor is None:
                raise BadParameterError(
                    "a database needs --query and --cursor, e.g. --query 'SELECT * FROM t' --cursor id"
                )
            return from_query(
                str(address), self.query, self.cursor, columns=names, bounds=bounds, on_bad_row=on_bad_row,
                follow=self.follow,
            )  # fmt: skip
        if self.query is not None or self.cursor is not None:
            raise BadParameterError("--query and --cursor are of databases; a topic has neither")
        if names is None:
            raise BadParameterError("a topic has no header line; name the numbers of a message with --columns")
        config = dict(parse_qsl(parts.query))
        return from_kafka(
            parts.path.strip("/"), config.pop("group", "streampca"), servers=parts.netloc, features=names,
            bounds=bounds, on_bad_row=on_bad_row, follow=self.follow, config=config,
        )  # fmt: skip

    def _columns(self) -> list[str | int] | None:
        from streampca.sources.base import NameOrPosition

        if self.columns is None:
            return None
        chosen: list[str | int] = []
        for name in _listed(self.columns):
            if not name.isdecimal():
                chosen.append(name)
            elif self._has_names:
                chosen.append(NameOrPosition(name))
            elif int(name) == 0:
                raise BadParameterError("--columns 0: positions of columns count from 1")
            else:
                chosen.append(int(name) - 1)
        return chosen

    @property
    def _has_names(self) -> bool:
        """Whether columns have names of their own, rather than x0, x1, ..."""
        return self.header is not False or self.names is not None


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
