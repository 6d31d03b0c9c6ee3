"""Rows from CSV files: plain blocks by `CellParser`, other records one by one by `number`, with one result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np

from streampca.errors import SourceError, UsageError
from streampca.linalg.types import FloatArray
from streampca.rows.admission import bad_values
from streampca.rows.names import NO_TYPES
from streampca.sources.base import BoundsLike, choose, choose_named, feature_names, source_bounds
from streampca.sources.csv_cells import CellParser, known, numbers
from streampca.sources.reading import Reading
from streampca.sources.records import LONGEST_HEADER, LONGEST_RECORD, OVERLONG, UNCLOSED, split_cells, split_records
from streampca.sources.text_files import Readable, TextRows

#: Bytes read at a time.
_BLOCK = 2**20
#: Records that are parsed together after a block was not, so that the good ones beside a bad one are read fast.
_GROUP = 64
_HEADER_REMEDY = (
    "pass names=[...] if the first line is a row, header=True if it holds names; leave out a column "
    "without a name with columns="
)


class CsvRows(TextRows):
    """Rows of numbers from a CSV file, plain, .gz or .zip, read in chunks; also called `from_csv`.

    The file is never held in memory. It may be read any number of times; a pipe or a stream only once.

    Parameters
    ----------
    path : the file, a named pipe, ``"-"`` for standard input, or a binary stream. A zip archive must hold one file.
    columns : names or positions of the columns to read, in that order, or "all". By default those that bounds name.
    bounds : public bounds of the columns: None, a pair (lower, upper) of numbers or arrays, or a mapping from name to
        (lower, upper). Public means known without looking at the rows.
    reading : the options of `Reading`; all apply.

    Raises
    ------
    SourceError
        By the constructor, if the file cannot be opened, has no rows or lacks a column, or its header looks like a
        row. While reading, at the end of the readable part of a damaged file, after every row before it.

    Notes
    -----
    *Records.* One record is one row, good or bad. A record ends at LF or CR LF
    outside quotes; any other CR is a character, and a blank line is a record. A quote opens a quoted cell at the start
    of the cell only; text behind the closing quote makes the record bad. A record of more than 1 MiB (or 4 times the
    header) is one bad row and is not held in memory. A file that ends inside quotes is damaged. `number` defines what
    a number or a missing value is.

    *Guarantee.* One record never decides the number of rows or the values of another row,
    for files that a CSV writer wrote and for every file with ``quoting="none"``. Without a header line, the end of the
    name decides whether the file is compressed.

    *Cost.* pyarrow (extra ``parquet``) parses blocks if it is installed. Otherwise, and for unusual records, `float`
    does, with the same result, more slowly.
    """

    def __init__(
        self, path: Readable, *, columns: Sequence[str | int] | Literal["all"] | None = None,
        bounds: BoundsLike = None, **reading: Any,
    ) -> None:  # fmt: skip
        options = Reading(**reading)
        names, header = options.names, options.header
        super().__init__(path, options, has_header=bool(header) or (header is None and names is None))
        self._longest = LONGEST_RECORD if names is None else max(LONGEST_RECORD, 64 * len(names))
        self._delimiter, self._quotes = options.delimiter, options.quoting == "csv"
        first, pieces = self._opened()
        if first is None:
            raise SourceError(self.name, "no rows, the file is empty; check the path")
        self._first_line = 1
        first = next(self._readable(iter([first])))
        self._first_line += first.count(b"\n") * self._has_header
        cells = self._cells(first)
        if names is None:
            if cells is None:
                is_long = first is OVERLONG
                problem = f"a record of more than {LONGEST_RECORD} bytes" if is_long else "text after a closing quote"
                raise SourceError(self.name, f"{problem}; mend the line", line=1)
            names = [cell.strip() for cell in cells] if self._has_header else [f"x{at}" for at in range(len(cells))]
            # Bytes that are not UTF-8 are lone surrogates.
            if any("\0" in name or (not name.isprintable() and "\udc80" <= max(name) <= "\udcff") for name in names):
                raise SourceError(self.name, f"the header is not {options.encoding} text; pass another encoding=")
        # A pipe cannot be opened again: `blocks` continues with these pieces.
        self._begun = pieces if self._once else None
        self._width, self._header = len(names), names
        # Which columns hold numbers must not be found from the rows: one cell would decide.
        if columns is None:
            columns = list(bounds) if isinstance(bounds, Mapping) else None
            if columns is None:
                raise UsageError(f"{self.name} {NO_TYPES}")
        elif columns == "all":
            columns = options.features(names)
        self._places = (
            choose(names, columns, self.name)
            if header is not None or not self._has_header  # the caller vouches for the names
            else choose_named(names, columns, self.name, _HEADER_REMEDY, self._missing)
        )
        self.features = feature_names(names, self._places)
        self.bounds = source_bounds(bounds, self.features, names)
        self._parser = CellParser(self._width, self._places, self._delimiter or ",", self._missing, quotes=self._quotes)

    def records(self) -> Iterator[list[list[str] | None]]:
        """Yield the chosen cells of every record, in blocks; None for an unreadable record."""
        for piece in self._start():
            yield [self._chosen(record) for record in split_records(piece, self._mark)]

    def blocks_with(self, names: Sequence[str]) -> Iterator[tuple[FloatArray, list[Sequence[Any]]]]:
        places = choose(self._header, names, self.name)
        for piece in self._start():
            records = [self._cells(record) for record in split_records(piece, self._mark)]
            good = [cells if cells is not None and len(cells) == self._width else None for cells in records]
            yield (
                np.concatenate([*self._parsed(piece)]),
                [[None if cells is None else known(cells[at], self._missing) for cells in good] for at in places],
            )

    def _parsed(self, piece: bytes) -> Iterator[FloatArray]:
        if (rows := self._parser.parse(piece)) is not None:
            yield rows
            return
        records = split_records(piece, self._mark)
        for start in range(0, len(records), _GROUP):
            group = records[start : start + _GROUP]
            rows = self._parser.parse(b"".join(group)) if len(group) < len(records) else None
            yield np.array([self._row(record) for record in group]) if rows is None else rows

    def _start(self) -> Iterator[bytes]:
        return self._readable(super()._start())

    def _readable(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the pieces; raise `SourceError` at a last record whose quotes are not closed."""
        line = self._first_line
        for piece in pieces:
            if piece is UNCLOSED:
                raise SourceError(
                    self.name, f"ends inside the quotes of the record that begins in line {line}; mend its quotes, or "
                    "pass quoting='none' if quotes are characters"
                )  # fmt: skip
            yield piece
            line += piece.count(b"\n")

    def _pieces(self) -> Iterator[bytes]:
        return self._opened()[1]

    def _opened(self) -> tuple[bytes | None, Iterator[bytes]]:
        """Return the first record, and pieces of all records but the header. Find the delimiter if it is unknown."""
        blocks = self._text(_BLOCK)
        if self._delimiter is None:
            head = b""
            for block in blocks:
                head += block
                if b"\n" in block or len(head) > LONGEST_HEADER:
                    break
            # The comma, unless the header has only another one. No row may decide.
            line = head.partition(b"\n")[0] if self._has_header else b","
            self._delimiter = "," if b"," in line else max(",;\t|", key=lambda mark: line.count(mark.encode()))
            blocks = chain([head], blocks)
        self._mark = self._delimiter if self._quotes else None
        pieces = self.whole_records(blocks, self._mark, longest=self._longest, header=self._has_header)
        piece = next(pieces, None)
        if piece is None:
            return None, pieces
        first = split_records(piece, self._mark)[0]
        if first is UNCLOSED or not self._has_header:
            return first, chain([piece], pieces)
        if b"\r" in first.replace(b"\r\n", b"").strip() and b"\0" not in first:
            raise SourceError(self.name, "lines end in CR; end them in LF or CR LF, as with tr '\\r' '\\n'")
        rest = piece[len(first) :] or next(pieces, None)
        if rest is None:
            raise SourceError(self.name, "no rows after the header; if that is a row, pass names=[...]")
        return first, chain([rest], pieces)

    def _row(self, record: bytes) -> list[float]:
        """Return the row of a record; `bad_values` of a bad one, because its position is public."""
        cells = self._chosen(record)
        row = None if cells is None else numbers(cells, self._missing)
        return row or bad_values("unreadable record" if cells is None else "not a number", len(self._places)).tolist()

    def _chosen(self, record: bytes) -> list[str] | None:
        """Return the chosen cells of a record; None if it cannot be read, or has another number of cells."""
        cells = self._cells(record)
        return [cells[at] for at in self._places] if cells is not None and len(cells) == self._width else None

    def _cells(self, record: bytes) -> list[str] | None:
        return split_cells(record, self._delimiter or ",", quotes=self._quotes)


from_csv = CsvRows
