"""Rows from CSV files: plain blocks by `CellParser`, other records one by one by `number`, with one result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import isfinite
from typing import Any, ClassVar

import numpy as np

from streampca.errors import SourceError, listed, short
from streampca.linalg.types import FloatArray
from streampca.rows.admission import bad_values
from streampca.sources.base import (
    REMEDY,
    BoundsLike,
    choose,
    choose_named,
    columns_remedy,
    feature_names,
    in_blocks,
    source_bounds,
)
from streampca.sources.csv_cells import CellParser, number, numbers
from streampca.sources.reading import Reading
from streampca.sources.records import LONGEST_HEADER, LONGEST_RECORD, OVERLONG, UNCLOSED, CellSplitter, split_records
from streampca.sources.text_files import Readable, TextRows

#: Bytes read at a time.
_BLOCK = 2**20
#: Records that are parsed together after a block was not, so that the good ones beside a bad one are read fast.
_GROUP = 64
_HEADER_REMEDY = (
    "pass header=False or names=[...] if the first line is a row, header=True if it holds names; leave out a column "
    "without a name with columns="
)


class CsvRows(TextRows):
    """Rows of numbers from a CSV file, plain, .gz or .zip, read in chunks; also called `from_csv`.

    The file is never held in memory. It may be read any number of times; a pipe or a stream only once.

    Parameters
    ----------
    path : the file, a named pipe, ``"-"`` for standard input, or a binary stream. A zip archive must hold one file.
    columns : names or positions of the columns to read, in that order; None for all.
    bounds : public bounds of the columns: None, a pair (lower, upper) of numbers or arrays, or a mapping from name to
        (lower, upper). Public means known without looking at the rows.
    reading : the options of `Reading`; all apply.

    Raises
    ------
    SourceError
        By the constructor, if the file cannot be opened, has no rows or lacks a column, or its header looks like a
        row. While reading, at the end of the readable part of a damaged file and, unless bad rows are absorbed, at the
        first row that is short, long or not all numbers, after every row before it. Messages name the line.

    Notes
    -----
    *Records.* One record is one row, good or bad, whether bad rows are absorbed or not. A record ends at LF or CR LF
    outside quotes; any other CR is a character, and a blank line is a record. A quote opens a quoted cell at the start
    of the cell only; text behind the closing quote makes the record bad. A record of more than 1 MiB (or 4 times the
    header) is one bad row and is not held in memory. A file that ends inside quotes is damaged. `number` defines what
    a number or a missing value is.

    *Guarantee.* With ``on_bad_row="zero"``, one record never decides the number of rows or the values of another row,
    for files that a CSV writer wrote and for every file with ``quoting="none"``. Without a header line, the end of the
    name decides whether the file is compressed.

    *Cost.* pyarrow (extra ``parquet``) parses blocks if it is installed. Otherwise, and for unusual records, `float`
    does, with the same result, more slowly.
    """

    _needs_rows: ClassVar[bool] = True  # whether a header without rows is refused

    def __init__(
        self, path: Readable, *, columns: Sequence[str | int] | None = None, bounds: BoundsLike = None, **reading: Any
    ) -> None:
        options = Reading(**reading)
        names, header = options.names, options.header
        super().__init__(path, options, has_header=bool(header) or (header is None and names is None))
        self._longest = LONGEST_RECORD if names is None else max(LONGEST_RECORD, 64 * len(names))
        self._delimiter, self._quotes = options.delimiter, options.quoting == "csv"
        self._split: CellSplitter
        first, pieces = self._opened()
        if first is None:
            raise SourceError(self.name, "no rows, the file is empty; check the path")
        self._first_line = 1 + first.count(b"\n") * self._has_header
        cells = self._cells(first, 1)
        if names is None:
            if cells is None:
                problem = f"a record of more than {LONGEST_RECORD} bytes" if first is OVERLONG else _AFTER_QUOTE
                raise SourceError(self.name, f"{problem}; mend the line", line=1)
            names = [cell.strip() for cell in cells] if self._has_header else [f"x{at}" for at in range(len(cells))]
            # Bytes that are not UTF-8 are lone surrogates.
            if any("\0" in name or (not name.isprintable() and "\udc80" <= max(name) <= "\udcff") for name in names):
                raise SourceError(self.name, f"the header is not {options.encoding} text; pass another encoding=")
        # A pipe cannot be opened again: `blocks` continues with these pieces.
        self._begun = pieces if self._file.once else None
        self._width = len(names)
        self._places = (
            choose(names, columns, self.name)
            if header is not None or not self._has_header  # the caller vouches for the names
            else choose_named(names, columns, self.name, _HEADER_REMEDY, self._missing)
        )
        self.features = feature_names(names, self._places)
        self.bounds = source_bounds(bounds, self.features, names)

    def blocks(self) -> Iterator[FloatArray]:
        pieces = self._start(lambda: self._opened()[1])
        parser = CellParser(self._width, self._places, self._delimiter or ",", self._missing, quotes=self._quotes)
        line = self._first_line
        for piece in pieces:
            rows = parser.parse(piece)
            if rows is not None and (self._lenient or np.isfinite(rows).all()):
                parts: Iterable[FloatArray] = [rows]
            else:
                parts = self._in_groups(split_records(piece, self._delimiter if self._quotes else None), line, parser)
            for part in parts:
                for start in range(0, part.shape[0], self._chunk_rows):
                    yield part[start : start + self._chunk_rows]
            # One line a row, unless a quoted cell holds line ends.
            line += piece.count(b"\n") if rows is None or b'"' in piece else len(rows)

    def _pieces(self) -> Iterator[bytes]:
        return self._opened()[1]

    def _opened(self) -> tuple[bytes | None, Iterator[bytes]]:
        """Return the first record, and pieces of all records but the header. Find the delimiter if it is unknown."""
        blocks = self._file.blocks(_BLOCK)
        if self._delimiter is None:
            head = b""
            for block in blocks:
                head += block
                if b"\n" in block or len(head) > LONGEST_HEADER:
                    break
            # The comma, unless the header has only another one. No row may decide if bad rows are absorbed.
            line = head.partition(b"\n")[0] if self._has_header or not self._zero else b","
            self._delimiter = "," if b"," in line else max(",;\t|", key=lambda mark: line.count(mark.encode()))
            blocks = chain([head], blocks)
        self._split = CellSplitter(self._delimiter, quotes=self._quotes)
        mark = self._delimiter if self._quotes else None
        pieces = self._file.pieces(blocks, mark, longest=self._longest, header=self._has_header)
        piece = next(pieces, None)
        if piece is None:
            return None, pieces
        first = split_records(piece, mark)[0]
        if first is UNCLOSED or not self._has_header:
            return first, chain([piece], pieces)
        if b"\r" in first.replace(b"\r\n", b"").strip() and b"\0" not in first:
            raise SourceError(self.name, "lines end in CR; end them in LF or CR LF, as with tr '\\r' '\\n'")
        rest = piece[len(first) :] or next(pieces, None)
        if rest is None and self._needs_rows:
            raise SourceError(self.name, "no rows after the header; if that is a row, pass header=False or names=[...]")
        return first, chain([rest] if rest is not None else [], pieces)

    def _in_groups(self, records: list[bytes], line: int, parser: CellParser) -> Iterator[FloatArray]:
        """Yield the rows of records, the first of which is in ``line``; of groups with a bad one, singly."""
        for start in range(0, len(records), _GROUP):
            group = records[start : start + _GROUP]
            rows = parser.parse(b"".join(group)) if len(group) < len(records) else None
            if rows is not None and (self._lenient or np.isfinite(rows).all()):
                yield rows
            else:
                yield from in_blocks((self._row(group, at, line) for at in range(len(group))), self._chunk_rows)
            line += sum(record.count(b"\n") for record in group)

    def _row(self, records: list[bytes], at: int, line: int) -> list[float]:
        """Return the row of a record. A bad one is all NaN, which `Stream` absorbs as a zero row, or an error."""
        record = records[at]
        cells = self._cells(record, line)
        wanted: list[str] = []
        row = None
        if cells is not None and len(cells) == self._width:
            wanted = [cells[place] for place in self._places]
            row = numbers(wanted, self._missing)
        # With bad rows absorbed, no value of the record may raise: the position of the row is public.
        if self._zero:
            return row or bad_values("not a number" if wanted else "unreadable record", len(self._places)).tolist()
        if row is None or not (self._lenient or all(map(isfinite, row))):
            raise self._problem(record, cells, wanted, line + sum(record.count(b"\n") for record in records[:at]))
        return row

    def _cells(self, record: bytes, line: int) -> list[str] | None:
        """Return the cells of a record; None if it is too long, or text follows a closing quote."""
        if record is UNCLOSED:
            raise SourceError(
                self.name, f"ends inside the quotes of the record that begins in line {line}; mend its quotes, or pass "
                "quoting='none' if quotes are characters"
            )  # fmt: skip
        return None if record is OVERLONG else self._split(record)

    def _problem(self, record: bytes, cells: list[str] | None, wanted: list[str], line: int) -> SourceError:
        """Return the error of a bad record, with the line on which the record or its bad cell starts."""
        if not cells or not wanted:
            if record is OVERLONG:
                problem = f"a record of more than {LONGEST_RECORD} bytes"
            else:
                count = 0 if cells is None else len(cells)
                problem = f"{count} cell{'s' * (count != 1)} where {self._width} are due" if count else _AFTER_QUOTE
            return SourceError(
                self.name, f"{problem}; mend the line, check delimiter= and quoting=, or {REMEDY}", line=line
            )
        values = [number(cell, self._missing) for cell in wanted]
        bad = [at for at, value in enumerate(values) if value is None]
        first = bad[0] if bad else [value is not None and isfinite(value) for value in values].index(False)
        line += sum(cell.count("\n") for cell in cells[: self._places[first]])
        cell = f"({short(wanted[first])})"
        column = f"column {short(self.features[first])}"
        if not bad:
            kind = "missing" if values[first] != values[first] else "infinite"
            return SourceError(self.name, f"{column} is {kind} {cell}; {REMEDY}", line=line)
        others = listed(self.features[at] for at in bad[1:6])
        others = f" (nor {'is' if len(bad) == 2 else 'are'} {others})" if others else ""
        good = [name for at, name in enumerate(self.features) if at not in bad]
        return SourceError(
            self.name, f"{column} is not a number {cell}{others}; mend it, leave the column out with "
            f"{columns_remedy(good)}, or {REMEDY}", line=line
        )  # fmt: skip


_AFTER_QUOTE = "text after a closing quote"
from_csv = CsvRows
