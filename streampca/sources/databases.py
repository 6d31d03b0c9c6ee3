"""Rows from a query with a keyset cursor: SQLite, DuckDB (extra ``duckdb``), PostgreSQL (``postgres``), any DB-API."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from streampca.conversion import unreadable
from streampca.errors import BadParameterError, SourceError, UsageError
from streampca.linalg.types import FloatArray
from streampca.rows.admission import bad_values
from streampca.rows.protocol import PositionedBlock, PositionedSource
from streampca.sources.base import NAME_THEM, BoundsLike, choose, choose_named, numbers, source_bounds
from streampca.sources.reading import Reading

# Addresses whose parts are unambiguous. Drivers quote parts of others, which may be those of a password.
_CODE = "%[0-9a-fA-F]{2}"
_PLAIN = re.compile(rf"postgres(ql)?://([^\s/?#@%]|{_CODE})*@?([^\s?#@%]|{_CODE})*(\?([^\s?#@%]|{_CODE})*)?")
#: Types of cells that numpy converts without a loop.
_NUMBERS = {int, float, bool}
_POLL = 1.0  # seconds between two looks at the end of a query that is followed


class QueryRows(PositionedSource):
    """Rows of numbers from a query, in the order of a column; exactly once with a durable stream.

    Also called `from_query`.

    Parameters
    ----------
    connect : ``"sqlite:///rows.db"``, ``"duckdb:///rows.db"``, ``"postgresql://user@host/db"``; or a function that
        returns a DB-API connection (with autocommit, so that no transaction stays open).
    query : a SELECT without ORDER BY. Together with the cursor, it identifies the source to a run.
    cursor : a column of whole numbers or text that differs from row to row; rows must become visible in its order.
    columns : names of the columns to read, in that order; by default, all but the cursor.
    bounds : public bounds of the columns, as in `from_csv`.
    reading : ``follow``, ``chunk_rows`` and ``beside`` of `Reading`. A null or any value that is no number makes a
        bad row. ``follow`` looks for more rows at the end, every second. ``chunk_rows`` is the length of a page: the
        database sorts once a page, and an index on the cursor makes that fast.

    Raises
    ------
    UsageError
        If a parameter is outside its domain.
    SourceError
        By the constructor or while reading, if the query fails, or the cursor is null, not unique, or of another type.

    Notes
    -----
    Rows are read in pages, ``SELECT * FROM (query) WHERE id > ? ORDER BY id LIMIT n``. Nothing stays open between
    pages, and a run resumes behind its last value of the cursor. A row that appears at or below a value already read is
    never read. Numbers of a sequence are assigned before their transactions commit: if several processes write
    concurrently, exclude the newest rows in the query, e.g. ``WHERE created < now() - interval '1 minute'``.
    """

    def __init__(
        self, connect: str | Callable[[], Any], query: str, cursor: str, *, columns: Sequence[str] | None = None,
        bounds: BoundsLike = None, **reading: Any,
    ) -> None:  # fmt: skip
        options = Reading(**reading).only("a query", "follow", "chunk_rows", "beside")
        for name, text in {"connect": "" if callable(connect) else connect, "query": query, "cursor": cursor}.items():
            if not isinstance(text, str):
                raise BadParameterError(name, ..., "text, or for connect a function that returns a connection")
        self._connect = connector(connect) if isinstance(connect, str) else connect
        self._follow, self._size = options.follow, options.chunk_rows
        self._query, self._cursor = query.strip().rstrip(";"), cursor
        self._quoted = '"' + cursor.replace('"', '""') + '"'
        self.name = f"query {' '.join(self._query.split())} by {cursor}"
        with closing(self._connect()) as connection:
            header, _ = self._page(connection, None, 0)
            if cursor not in header:
                raise SourceError("the query", f"no column {cursor!r}; it has {', '.join(header)}")
            self._at = header.index(cursor)
            wanted = columns
            if wanted is None:
                wanted = [name for name in header if name != cursor and name not in options.beside]
            self._places = choose_named(header, wanted, "the query", NAME_THEM, given=columns)
            if self._page(connection, None, 1, where=f"{self._quoted} IS NULL")[1]:
                raise SourceError(None, f"the cursor {cursor!r} is null in some rows; exclude them in the query")
        self.features, self._header = tuple(header[place] for place in self._places), header
        self.bounds = source_bounds(bounds, self.features, header)

    def blocks_from(self, at: Any = None, beside: Sequence[str] = ()) -> Iterator[PositionedBlock]:
        others = choose(self._header, beside, "the query") if beside else ()
        with closing(self._connect()) as connection:
            while True:
                # One row more than a page shows whether the cursor differs across the border of pages.
                header, page = self._page(connection, at, self._size + 1)
                if header != self._header:  # places of columns are those of the start
                    raise SourceError(None, "the query has other columns than at its start; name them in the query")
                keys, before = [row[self._at] for row in page], at
                for key in keys:
                    wide = isinstance(key, int) and not -(2**63) <= key < 2**63
                    if wide or not isinstance(key, (int, float, str)) or key != key:
                        kind = f"{type(key).__name__}{' of more than 64 bits' if wide else ''}"
                        raise SourceError(None, f"cursor {self._cursor!r} holds a {kind}; cast it to integer or text")
                    if key == before:
                        raise SourceError(None, f"the cursor {self._cursor!r} is not unique: {key!r} comes twice")
                    before = key
                # Python compares texts by their letters. A collation of the database may find two of them equal.
                is_text = bool(keys) and isinstance(keys[-1], str)
                if is_text and self._page(connection, at, len(keys), distinct=True)[1] != [(0,)]:
                    raise SourceError(None, f"the cursor {self._cursor!r} is not unique: its collation equates texts")
                page, keys = page[: self._size], keys[: self._size]
                if not page:
                    if not self._follow:
                        return
                    time.sleep(_POLL)
                    continue
                rows = as_rows([tuple(row[place] for place in self._places) for row in page])
                cells = [[row[place] for row in page] for place in others]
                yield PositionedBlock(rows, lambda m, keys=keys: keys[m - 1], cells)  # type: ignore[misc]
                # Only the last key of a whole page: rows behind it are read next.
                at = keys[-1]

    def _page(
        self, connection: Any, at: Any, count: int, where: str = "", *, distinct: bool = False
    ) -> tuple[list[str], list[Any]]:
        """Return the names of the columns, and the next rows; if ``distinct``, how many of them repeat a cursor."""
        # DB-API modules declare how they mark parameters; in "format" styles a percent sign of the query is doubled.
        style = getattr(sys.modules[type(connection).__module__.partition(".")[0]], "paramstyle", "qmark")
        mark = {"format": "%s", "pyformat": "%s"}.get(style, "?")
        # The text holds no value of a row: the cursor is a parameter, which needs no quoting.
        query, values = self._query, [] if at is None else [(at,)]
        if at is not None:
            where = f"{self._quoted} > {mark}"
            query = query.replace("%", "%%") if mark == "%s" else query
        text = f"SELECT * FROM ({query}\n) AS source {f'WHERE {where}' if where else ''} ORDER BY {self._quoted}"  # noqa: S608
        text = f"{text} LIMIT {count:d}"
        if distinct:
            text = f"SELECT count(*) - count(DISTINCT {self._quoted}) FROM ({text}) AS page"  # noqa: S608
        try:
            with closing(connection.cursor()) as cursor:
                cursor.execute(text, *values)
                columns, page = cursor.description, cursor.fetchall()
        except Exception as error:  # DB-API modules have no common base class of their errors
            if count:
                raise unreadable("the query", error) from None
            raise SourceError(None, f"the query failed: {type(error).__name__}: {error}") from error
        if any(name == self._cursor and str(kind).startswith("ENUM") for name, kind, *_ in columns):
            # DuckDB sorts them by their places, and compares them with a text by letters: pages would skip rows.
            raise SourceError(None, f"cursor {self._cursor!r} holds an ENUM; cast it to integer or text")
        return [column[0] for column in columns], page


def as_rows(page: Sequence[Sequence[Any]]) -> FloatArray:
    """Return rows of numbers: NaN for a null, and `bad_values` for a row with any other value that is no number."""
    # Python types decide, not numpy: one long text would widen the whole page, and bytes beside text raise.
    if {*map(type, chain.from_iterable(page))} <= _NUMBERS:
        with suppress(OverflowError):
            return np.array(page, dtype=np.float64)
    rows = np.tile(bad_values("not a number", len(page[0])), (len(page), 1))
    for row, values in zip(rows, page, strict=True):
        with suppress(TypeError, ValueError, OverflowError):
            row[:] = numbers(values, range(len(values)))
    return rows


def connector(url: str) -> Callable[[], Any]:
    """Return a function that opens the database ``sqlite:///FILE``, ``duckdb:///FILE`` or ``postgresql://…``."""
    scheme = url.partition(":")[0]
    if scheme not in ("sqlite", "duckdb", "postgres", "postgresql"):
        raise UsageError(f"{scheme}: is not known; use sqlite:///FILE, duckdb:///FILE, postgresql://... or a function")
    if scheme.startswith("postgres") and not _PLAIN.fullmatch(url):
        raise UsageError(f"{scheme}: the address cannot be read; write @ / ? # % and blanks as %40 %2F %3F %23 %25 %20")

    def connect() -> Any:
        try:
            if scheme.startswith("postgres"):
                return import_module("psycopg").connect(url, autocommit=True)
            parts = urlsplit(url)
            path = Path(unquote(parts.path.removeprefix("/") if parts.netloc == "" else parts.path))
            if scheme == "duckdb":
                return import_module("duckdb").connect(str(path), read_only=True)
            return import_module("sqlite3").connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        except ImportError as error:
            extra = "duckdb" if scheme == "duckdb" else "postgres"
            raise SourceError(scheme, f"needs another package: pip install 'streampca[{extra}]'") from error
        except Exception as error:
            problem = str(error).replace(url, f"{scheme}://...")  # drivers quote it, password included
            raise SourceError(scheme, f"cannot be opened: {problem}") from None

    return connect


from_query = QueryRows
