"""Rows from CSV files: plain blocks by `CellParser`, other records one by one by `csv` and `number`: one result."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import chain
from typing import NoReturn

import numpy as np

from streampca.errors import BadParameterError, SourceError, listed, reason, short
from streampca.linalg.types import FloatArray
from streampca.sources.base import (
    BLOCK_ROWS,
    REMEDY,
    BoundsLike,
    OnBadRow,
    bad_row,
    choose,
    feature_names,
    in_blocks,
    source_bounds,
)
from streampca.sources.csv_cells import LONGEST_CELL, CellParser, as_seconds, number, numbers
from streampca.sources.text_files import LONGEST_RECORD, Readable, TextFile, TextRows

_DELIMITERS = "\t ,;:|!/~^#&@$%*="
#: Bytes read at a time.
_BLOCK = 2**20
#: Pieces of a file that are read while the one before is parsed.
_AHEAD = 15
#: Lines that are looked at one by one at a time: a block may hold a million of them.
_LINES = 2**14
#: Records that are read one by one rather than divided further.
_FEW = 64
_BLANK = (b"\n", b"\r\n", b"\r")


class CsvRows(TextRows):
    """Rows of numbers from a CSV file, plain, .gz or .zip, read in chunks; also called `from_csv`.

    The file is never held in memory and may be read any number of times; a
    pipe or a stream once.

    Parameters
    ----------
    path : the file, a named pipe, ``"-"`` for standard input, or a binary stream. A zip archive must hold one file.
    columns : names or positions of the columns to read, in that order; None for all.
    bounds : public bounds of the columns: None, a pair (lower, upper) of
        numbers or arrays, or a mapping from name to (lower, upper). Public
        means known without looking at the rows.
    delimiter : one ASCII character. Left out, a comma if the header has one or no other
        (``;``, tab or ``|``); without a header, and with bad rows absorbed, a comma.
    header : whether the first line names the columns; if not, they are called x0, x1, ... A list
        of names of all columns says that the file has no header.
    encoding : of the text. With bad rows absorbed, one where every line stands on its own: not UTF-16, for example.
    missing : "raise" makes a missing or infinite value an error; "nan" passes
        it on, so that ``Stream(on_bad_row=...)`` decides. There is no way to
        skip such rows: positions in the stream are public, and a skipped row
        would move all later ones.
    na : more texts that mean a missing value, besides those of `MISSING`.
    on_bad_row : "raise", or "zero": every record that is not a row of numbers becomes a row of NaN, which
        ``Stream(on_bad_row="zero")`` absorbs as a zero row and counts, for the curator.
    chunk_rows : most rows in a block.
    max_bytes : most bytes that a compressed file may expand to; None for no limit.
    follow : at the end of the file, wait for more lines, for ever.
    times : one of the columns, whose cells may be dates and times (ISO 8601; UTC unless they say
        otherwise): they are read as seconds since 1970.

    Raises
    ------
    SourceError
        Here, if the file cannot be opened, has no rows or lacks a column;
        while reading, at the end of what can be read of a damaged file, and, unless bad rows are
        absorbed, at the first row that is short, long or not all
        numbers, after every row before it was yielded. Messages name the
        line of the file.

    Notes
    -----
    Quotes follow RFC 4180 and line ends may be LF, CR LF or CR. Blank lines
    are left out. What counts as a number or as missing is told in `number`.

    *With* ``on_bad_row="zero"`` one record never decides how many rows there are, or what becomes of
    another one. A record is a line that ends in LF or CR LF, of at most 1 MiB (or 4 times the header). A
    blank line is a bad row, and so is one that ends inside quotes. Without a header line, whether the file is
    compressed is told by the end of its name.

    Blocks are parsed by pyarrow where that is installed (extra ``parquet``), elsewhere by pandas, and
    where records are unusual by `csv` and `float`, with the same result, more slowly. No cell may have
    more than 131 072 characters.
    """

    def __init__(
        self,
        path: Readable,
        *,
        columns: Sequence[str | int] | None = None,
        bounds: BoundsLike = None,
        delimiter: str | None = None,
        header: bool | Sequence[str] = True,
        encoding: str = "utf-8",
        missing: str = "raise",
        na: str | Sequence[str] = (),
        on_bad_row: OnBadRow = "raise",
        chunk_rows: int = BLOCK_ROWS,
        max_bytes: int | None = 2**36,
        follow: bool = False,
        times: str | int | None = None,
    ) -> None:
        if delimiter is not None and not (
            isinstance(delimiter, str) and len(delimiter) == 1 and delimiter in _DELIMITERS
        ):
            raise BadParameterError(
                f"delimiter={short(delimiter)} must be one of the characters , ; : | tab space ! / ~ ^ # & @ $ % * ="
            )
        super().__init__(
            path, missing=missing, na=na, on_bad_row=on_bad_row, chunk_rows=chunk_rows, max_bytes=max_bytes
        )
        self._header, self._encoding = header, encoding
        if isinstance(header, str) or (isinstance(header, Sequence) and not header):
            raise BadParameterError(f"header={short(header)} must be True, False or a list of the names of all columns")
        if self._zero and header is False:
            raise BadParameterError(
                "on_bad_row='zero' with header=False: the first record would say how many columns there are; "
                "name all columns, header=['a', 'b', ...]"
            )
        self._file = TextFile(
            path, encoding=encoding, max_bytes=max_bytes, by_name=self._zero and header is not True,
            replace=self._zero, follow=follow,
        )  # fmt: skip
        self._where = self._file.name
        begun = self._text()
        self._delimiter = delimiter or self._found_delimiter(begun)
        names = self._names(begun)
        self._header_lines = begun.line
        self._begun: _Text | None = begun if self._file.once else None
        self._width = len(names)
        if columns is None and header is True and _look_like_a_row(names):
            raise SourceError(
                f"{self._where}: the first line holds numbers, and names of features are published; if it is a row, "
                "pass header=False; if these are names, say so with columns="
            )
        self._places = choose(names, columns, self._where)
        self._time = None if times is None else list(self._places).index(choose(names, [times], self._where)[0])
        self.features = feature_names(names, self._places)
        self.bounds = source_bounds(bounds, self.features, names)

    def blocks(self) -> Iterator[FloatArray]:
        """The rows from the start of the file, at most ``chunk_rows`` in a block."""
        text = self._rewound()
        parser = CellParser(self._width, self._places, self._delimiter, self._missing)
        ready: deque[tuple[bytes, FloatArray | None]] = deque()
        while (piece := text.next_piece()) is not None:
            while ready and ready[0][0] is not piece:
                ready.popleft()
            if not ready:  # of a pipe, what is there
                ready.extend(parser.parse_all([piece] if self._file.once else chain([piece], text.following())))
            parsed = ready.popleft()[1]
            for rows in self._zeroed(piece, parsed, parser) if self._zero else self._strict(piece, parsed, text):
                for start in range(0, rows.shape[0], self._chunk_rows):
                    yield rows[start : start + self._chunk_rows]

    def _rewound(self) -> _Text:
        """The text after the header."""
        if self._file.once:
            text, self._begun = self._begun, None
            if text is None:
                raise self._read_before()
            return text
        text = self._text()
        text.skip(self._header_lines)
        return text

    def _text(self) -> _Text:
        longest = max(LONGEST_RECORD, 64 * len(self._header)) if isinstance(self._header, Sequence) else LONGEST_RECORD
        pieces = self._file.pieces(_BLOCK, longest=longest if self._zero else None, header=self._header is True)
        return _Text(pieces, self._where, universal=not self._zero)

    def _found_delimiter(self, text: _Text) -> str:
        """The comma, unless the header has none but another one. A record must not decide."""
        line = text.peek() if self._header is True or not self._zero else None
        if line is None or b"," in line:
            return ","
        return max(",;\t|", key=lambda mark: line.count(mark.encode()))  # the comma, if there is none

    def _names(self, text: _Text) -> list[str]:
        """Read the names of all columns off the text, as far as it holds them.

        Raises
        ------
        SourceError
            If there is no row, or the header cannot be read.
        """
        if text.peek() is None:
            raise SourceError(f"{self._where}: no rows, the file is empty; check the path")
        if isinstance(self._header, Sequence):
            return [str(name) for name in self._header]
        first = text.next_line_as_record(self._delimiter) if self._zero else text.next_record(self._delimiter)
        if first is None:
            raise SourceError(f"{self._where}: no rows, the file is empty; check the path")
        if not self._header:
            text.put_back_record()
            return [f"x{at}" for at in range(len(first))]
        names = [name.strip() for name in first]
        if any("\0" in name or (not name.isprintable() and "\udc80" <= max(name) <= "\udcff") for name in names):
            raise SourceError(f"{self._where}: the header is not {self._encoding} text; pass another encoding=")
        if text.peek() is None:
            raise SourceError(
                f"{self._where}: no rows after the header; if its one line is a row, pass header=False or their names"
            )
        return names

    def _cells(self, record: list[str]) -> list[str]:
        """The wanted cells of a record."""
        cells = [record[place] for place in self._places]
        if self._time is not None:
            cells[self._time] = as_seconds(cells[self._time])
        return cells

    # -- bad rows are zero rows: a record is a line, and no line has a say in what becomes of another --

    def _zeroed(self, piece: bytes, rows: FloatArray | None, parser: CellParser) -> Iterator[FloatArray]:
        if rows is not None:
            yield rows
            return
        lines = piece.removesuffix(b"\n").split(b"\n")
        for start in range(0, len(lines), _LINES):
            yield self._lines(lines[start : start + _LINES], parser)

    def _lines(self, lines: list[bytes], parser: CellParser) -> FloatArray:
        """The rows of some lines; a bad one is all NaN, which `Stream` absorbs as a zero row and counts."""
        if len(lines) <= _FEW:
            return np.array([self._line(line) for line in lines])
        half = len(lines) // 2
        halves = []
        for part in (lines[:half], lines[half:]):
            rows = parser.parse(b"\n".join(part) + b"\n")
            halves.append(self._lines(part, parser) if rows is None else rows)
        return np.concatenate(halves)

    def _line(self, line: bytes) -> list[float]:
        try:
            record = one_record(line, self._delimiter)
        except csv.Error:
            record = []
        if len(record) != self._width:
            return bad_row("unreadable record", len(self._places))
        row = numbers(self._cells(record), self._missing)
        return bad_row("not a number", len(self._places)) if row is None else row

    # -- a bad row is an error --

    def _strict(self, piece: bytes, rows: FloatArray | None, text: _Text) -> Iterator[FloatArray]:
        if rows is not None and (np.isfinite(rows).all() or (self._nan and not self._may_be_blank(piece, rows))):
            text.line += rows.shape[0]
            yield rows
        else:
            text.put_back(piece)
            yield from self._exact(text)

    def _may_be_blank(self, piece: bytes, rows: FloatArray) -> bool:
        """Whether some row may have come of a blank line, which is to be left out."""
        if not np.isnan(rows).all(axis=1).any():
            return False
        return self._width == 1 or piece.startswith((b"\n", b"\r")) or b"\n\n" in piece or b"\n\r" in piece

    def _exact(self, text: _Text) -> Iterator[FloatArray]:
        """Read what lies in store with `csv`, up to the first bad row."""

        def rows() -> Iterator[list[float]]:
            while text.stored and (record := text.next_record(self._delimiter)) is not None:
                yield self._row(record, text.record_line)

        yield from in_blocks(rows(), self._chunk_rows)

    def _row(self, record: list[str], line: int) -> list[float]:
        if len(record) != self._width:
            raise SourceError(
                f"{self._where}, line {line}: {len(record)} cell{'s' * (len(record) != 1)} where {self._width} are "
                f"due; mend the line, check delimiter= and header=, or {REMEDY}"
            )
        cells = self._cells(record)
        row = numbers(cells, self._missing)
        if row is None:
            self._refuse_text(record, cells, line)
        if not self._nan:
            for at, value in enumerate(row):
                if not np.isfinite(value):
                    what = "missing" if np.isnan(value) else "infinite"
                    raise SourceError(f"{self._cell(record, at, line)} is {what} ({short(cells[at])}); {REMEDY}")
        return row

    def _refuse_text(self, record: list[str], cells: list[str], line: int) -> NoReturn:
        parsed = [number(cell, self._missing) for cell in cells]
        bad = [at for at, value in enumerate(parsed) if value is None]
        good = [name for name, value in zip(self.features, parsed, strict=True) if value is not None]
        others = (
            f" (nor {'is' if len(bad) == 2 else 'are'} {listed(self.features[at] for at in bad[1:6])})"
            if len(bad) > 1
            else ""
        )
        remedy = f"columns={good}" if good and len(repr(good)) <= 80 else "columns="
        raise SourceError(
            f"{self._cell(record, bad[0], line)} is not a number ({short(cells[bad[0]])}){others}; "
            f"mend it, leave the column out with {remedy}, or {REMEDY}"
        )

    def _cell(self, record: list[str], at: int, line: int) -> str:
        """Name of the cell of feature `at`, by the physical line on which it starts."""
        before = record[: self._places[at]]
        line += sum(cell.count("\n") + cell.count("\r") - cell.count("\r\n") for cell in before)
        return f"{self._where}, line {line}: column {short(self.features[at])}"


def _look_like_a_row(names: Sequence[str]) -> bool:
    """Whether all names are numbers, but for those that count from 0 or 1."""
    values = [number(name) for name in names]
    if None in values or all(value != value for value in values):
        return False
    return not any([*names] == [str(at + first) for at in range(len(names))] for first in (0, 1))


def one_record(line: bytes, delimiter: str) -> list[str]:
    """The cells of a line, which may not go on in the next one.

    Raises `csv.Error` if its quotes are not closed, it holds a carriage return, or a cell is too long.
    """
    # Bytes that are not UTF-8 matter only in a header or a number, and are refused there.
    text = line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")
    if '"' in text or "\r" in text:
        return next(csv.reader([text], delimiter=delimiter, strict=True), [])
    record = text.split(delimiter)
    if len(text) > LONGEST_CELL and max(map(len, record)) > LONGEST_CELL:
        raise csv.Error(f"a cell of more than {LONGEST_CELL} characters")
    return record


class _Text:
    """Lines, records and pieces of a text, and where they are.

    Attributes
    ----------
    line : lines read so far.
    record_line : the line on which the last record began.
    """

    def __init__(self, pieces: Iterator[bytes], where: str, *, universal: bool) -> None:
        self.line = 0
        self.record_line = 0
        self._pieces = pieces
        self._lines: deque[bytes] = deque()
        self._record: list[bytes] = []
        self._following: deque[bytes | SourceError] = deque()
        self._where = where
        self._universal = universal  # lines may end in CR, too

    @property
    def stored(self) -> bool:
        """Whether lines are in store that were not read as records yet."""
        return bool(self._lines)

    def next_piece(self) -> bytes | None:
        """All that is in store, or the next piece of the file."""
        if self._lines:
            piece = b"".join(self._lines)
            self._lines.clear()
            return piece
        return self._read()

    def following(self) -> Iterator[bytes]:
        """The next few pieces of the file, as far as it can be read; they stay in store."""
        while len(self._following) < _AHEAD:
            try:
                piece = next(self._pieces, None)
            except SourceError as problem:
                self._following.append(problem)
                return
            if piece is None:
                return
            self._following.append(piece)
            yield piece

    def _read(self) -> bytes | None:
        """The next piece of the file."""
        piece = self._following.popleft() if self._following else next(self._pieces, None)
        if isinstance(piece, SourceError):
            raise piece
        return piece

    def put_back(self, piece: bytes) -> None:
        """Store a piece as lines."""
        self._lines.extend(piece.splitlines(keepends=True) if self._universal else BytesIO(piece).readlines())

    def put_back_record(self) -> None:
        """Undo the last `next_record`."""
        self._lines.extendleft(reversed(self._record))
        self.line -= len(self._record)

    def peek(self) -> bytes | None:
        """The next line that is not blank, or the next one if blank lines count; it stays in store."""
        while True:
            if not self._lines:
                piece = self._read()
                if piece is None:
                    return None
                self.put_back(piece)
            if self._lines[0].strip() or not self._universal:
                return self._lines[0]
            self._lines.popleft()
            self.line += 1

    def skip(self, count: int) -> None:
        """Pass over so many lines."""
        for _ in range(count):
            if not self._lines:
                self.put_back(self._read() or b"")
            if self._lines:
                self._lines.popleft()
                self.line += 1

    def next_line_as_record(self, delimiter: str) -> list[str]:
        """The cells of the next line."""
        self.line += 1
        try:
            return one_record(self._lines.popleft(), delimiter)
        except csv.Error as error:
            raise SourceError(f"{self._where}, line {self.line}: {reason(error)}; mend the header's quotes") from error

    def next_record(self, delimiter: str) -> list[str] | None:
        """The next record that is not blank, reading on past the store if need be; None at the end."""
        while True:
            while self._lines and self._lines[0] in _BLANK:  # quickly, since there may be a gigabyte of them
                self._lines.popleft()
                self.line += 1
            self.record_line = self.line + 1
            self._record = []
            try:
                record = next(csv.reader(self._feed(), delimiter=delimiter, strict=True), None)
            except csv.Error as error:
                problem = f"{reason(error)}; mend the line's quotes"
                if "field limit" in str(error):
                    problem = f"a cell of more than {LONGEST_CELL} characters; mend the line: are its quotes closed?"
                raise SourceError(f"{self._where}, line {self.record_line}: {problem}") from error
            # A line that holds nothing, or nothing but spaces and tabs.
            if record is None or len(record) > 1 or (record and (record[0] == "" or record[0].strip(" \t"))):
                return record

    def _feed(self) -> Iterator[str]:
        while True:
            while self._lines:
                self.line += 1
                self._record.append(self._lines.popleft())
                yield self._record[-1].decode("utf-8", "surrogateescape")
            piece = self._read()
            if piece is None:
                return
            self.put_back(piece)


from_csv = CsvRows
