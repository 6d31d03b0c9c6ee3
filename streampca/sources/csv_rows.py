"""Rows from CSV files, in chunks, with the exact place of whatever is wrong."""

from __future__ import annotations

import csv
import os
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from streampca.errors import BadParameter, SourceError
from streampca.linalg.counts import check_count
from streampca.linalg.types import FloatArray
from streampca.sources import csv_text
from streampca.sources.base import (
    BLOCK_ROWS,
    BlockSource,
    BoundsLike,
    as_bounds,
    as_path,
    check_missing,
    choose,
    feature_names,
)
from streampca.sources.csv_cells import is_blank, number, numbers
from streampca.sources.csv_fast import FastParser

_PIECE = 2**20
_WIDEST_PIECE = 2**25


class CsvRows(BlockSource):
    """The rows of a CSV file; made by `from_csv`.

    Attributes
    ----------
    path : the file.
    features : names of the columns read.
    bounds : their public bounds, or None.
    """

    def __init__(
        self,
        path: Path,
        *,
        columns: Sequence[str | int] | None,
        bounds: BoundsLike,
        delimiter: str,
        header: bool,
        encoding: str,
        missing: str,
        chunk_rows: int,
        max_bytes: int | None,
    ) -> None:
        self.path = path
        self._delimiter = delimiter
        self._header = header
        self._encoding = encoding
        self._nan = check_missing(missing)
        self._chunk_rows = chunk_rows
        self._max_bytes = max_bytes
        names = self._first_record()
        self._width = len(names)
        self._names = names
        self._places = choose(names, columns, str(path))
        self.features = feature_names(names, self._places)
        self.bounds = as_bounds(bounds, self.features, names)

    def blocks(self) -> Iterator[FloatArray]:
        """The rows from the start of the file, at most ``chunk_rows`` in a block."""
        fast = FastParser(self._width, self._places, self._delimiter)
        text = _Text(self._pieces(), self._delimiter, self.path)
        if self._header:
            text.next_record()
        while True:
            piece = text.next_piece()
            if piece is None:
                return
            rows = fast.parse(piece, nan=self._nan)
            if rows is None:
                text.put_back(piece)
                yield from self._exact(text)
            else:
                text.line += rows.shape[0]
                for start in range(0, rows.shape[0], self._chunk_rows):
                    yield rows[start : start + self._chunk_rows]

    def __repr__(self) -> str:
        return f"<CsvRows {self.path.name!r} {self._describe()}>"

    def _pieces(self) -> Iterator[bytes]:
        # Wide rows come in larger pieces, since pandas takes its time for every column of every piece.
        width = getattr(self, "_width", 1)
        size = min(max(_PIECE, 4096 * width), _WIDEST_PIECE)
        return csv_text.pieces(self.path, size=size, encoding=self._encoding, max_bytes=self._max_bytes)

    def _first_record(self) -> list[str]:
        """The names of all columns; raises if the file holds no row."""
        text = _Text(self._pieces(), self._delimiter, self.path)
        first = text.next_record()
        if first is None:
            raise SourceError(f"{self.path}: no rows, the file is empty; check the path")
        if not self._header:
            return [f"x{at}" for at in range(len(first))]
        if text.next_record() is None:
            raise SourceError(f"{self.path}: no rows after the header; pass header=False if its one line is a row")
        names = [name.strip() for name in first]
        if any("\0" in name or "\udc80" <= letter <= "\udcff" for name in names for letter in name):
            raise SourceError(f"{self.path}: the header is not {self._encoding} text; pass another encoding=")
        return names

    def _exact(self, text: _Text) -> Iterator[FloatArray]:
        """Read what lies in store with `csv`, up to the first bad row."""
        rows: list[list[float]] = []
        try:
            while text.stored and (record := text.next_record()) is not None:
                rows.append(self._row(record, text.record_line))
                if len(rows) == self._chunk_rows:
                    yield np.array(rows)
                    rows = []
        except SourceError:
            if rows:
                yield np.array(rows)
            raise
        if rows:
            yield np.array(rows)

    def _row(self, record: list[str], line: int) -> list[float]:
        if len(record) != self._width:
            raise SourceError(
                f"{self.path}, line {line}: {len(record)} cell{'s' * (len(record) != 1)} where {self._width} are due; "
                "mend the line, or check delimiter= and header="
            )
        cells = [record[place] for place in self._places]
        row = numbers(cells)
        if row is not None and np.isfinite(row).all():
            return row
        parsed = [number(cell) for cell in cells]
        if any(value is None for value in parsed):
            self._refuse_text(record, cells, parsed, line)
        row = [value for value in parsed if value is not None]
        if not self._nan:
            for at, value in enumerate(row):
                if not np.isfinite(value):
                    what = "missing" if np.isnan(value) else "infinite"
                    raise SourceError(
                        f"{self._cell(record, at, line)} is {what} ({cells[at]!r}); "
                        "pass missing='nan', and Stream(on_bad_row='zero') to absorb such rows as zero rows"
                    )
        return row

    def _refuse_text(self, record: list[str], cells: list[str], parsed: list[float | None], line: int) -> None:
        bad = [at for at, value in enumerate(parsed) if value is None]
        good = [name for name, value in zip(self.features, parsed, strict=True) if value is not None]
        others = (
            f" (nor {'is' if len(bad) == 2 else 'are'} {', '.join(repr(self.features[at]) for at in bad[1:6])})"
            if len(bad) > 1
            else ""
        )
        remedy = f"columns={good}" if 0 < len(good) <= 12 else "columns="
        raise SourceError(
            f"{self._cell(record, bad[0], line)} is not a number ({_short(cells[bad[0]])}){others}; "
            f"mend it, or leave the column out with {remedy}"
        )

    def _cell(self, record: list[str], at: int, line: int) -> str:
        """Names the cell of feature `at`, by the physical line on which it starts."""
        before = record[: self._places[at]]
        line += sum(cell.count("\n") + cell.count("\r") - cell.count("\r\n") for cell in before)
        return f"{self.path}, line {line}: column {self.features[at]!r}"


class _Text:
    """Records and pieces of a file, and the lines they are on.

    Attributes
    ----------
    line : lines read so far.
    record_line : the line on which the last record began.
    """

    def __init__(self, pieces: Iterator[bytes], delimiter: str, path: Path) -> None:
        self.line = 0
        self.record_line = 0
        self._pieces = pieces
        self._lines: deque[bytes] = deque()
        self._path = path
        self._reader = csv.reader(self._feed(), delimiter=delimiter, strict=True)

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
        return next(self._pieces, None)

    def put_back(self, piece: bytes) -> None:
        """Store a piece as lines (ending in LF, CR LF or CR)."""
        self._lines.extend(piece.splitlines(keepends=True))

    def next_record(self) -> list[str] | None:
        """The next record that is not blank, reading on past the store if need be; None at the end."""
        while True:
            self.record_line = self.line + 1
            try:
                record = next(self._reader, None)
            except csv.Error as error:
                raise SourceError(f"{self._path}, line {self.record_line}: {error}; mend the line's quotes") from error
            if record is None or not is_blank(record):
                return record

    def _feed(self) -> Iterator[str]:
        while True:
            while self._lines:
                self.line += 1
                # Bytes that are not UTF-8 matter only in a header or a number, and are refused there.
                yield self._lines.popleft().decode("utf-8", "surrogateescape")
            piece = next(self._pieces, None)
            if piece is None:
                return
            self.put_back(piece)


def _short(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")


def from_csv(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str | int] | None = None,
    bounds: BoundsLike = None,
    delimiter: str = ",",
    header: bool = True,
    encoding: str = "utf-8",
    missing: str = "raise",
    chunk_rows: int = BLOCK_ROWS,
    max_bytes: int | None = 2**36,
) -> CsvRows:
    """Rows of numbers from a CSV file, plain, .gz or .zip, read in chunks.

    The file is never held in memory and may be read any number of times.

    Parameters
    ----------
    path : the file. A zip archive must hold one file.
    columns : names or positions of the columns to read, in that order; None for all.
    bounds : public bounds of the columns: None, a pair (lower, upper) of
        numbers or arrays, or a mapping from name to (lower, upper). Public
        means known without looking at the rows.
    delimiter : one ASCII character.
    header : whether the first line names the columns; if not, they are called x0, x1, ...
    encoding : of the text.
    missing : "raise" makes a missing or infinite value an error; "nan" passes
        it on, so that ``Stream(on_bad_row=...)`` decides. There is no way to
        skip such rows: positions in the stream are public, and a skipped row
        would move all later ones.
    chunk_rows : most rows in a block.
    max_bytes : most bytes that a compressed file may expand to; None for no limit.

    Returns
    -------
    A source of rows for ``Stream.run``, with ``features`` and ``bounds``.

    Raises
    ------
    SourceError
        Here, if the file cannot be opened, has no rows or lacks a column;
        while reading, at the first row that is short, long or not all
        numbers, after every row before it was yielded. Messages name the
        line of the file.

    Notes
    -----
    Quotes follow RFC 4180 and line ends may be LF, CR LF or CR. Blank lines
    are left out. What counts as a number or as missing is told in
    `streampca.sources.csv_cells`; two parsers, a fast one for plain text and
    an exact one, agree on it bit by bit.
    """
    if not (isinstance(delimiter, str) and len(delimiter) == 1 and (delimiter in "\t ,;:|!/~^#&@$%*=")):
        raise BadParameter(
            f"delimiter={delimiter!r} must be one of the characters , ; : | tab space ! / ~ ^ # & @ $ % * ="
        )
    check_count("chunk_rows", chunk_rows)
    check_count("max_bytes", max_bytes, optional=True)
    csv_text.is_utf8(encoding)
    return CsvRows(
        as_path(path),
        columns=columns,
        bounds=bounds,
        delimiter=delimiter,
        header=bool(header),
        encoding=encoding,
        missing=missing,
        chunk_rows=chunk_rows,
        max_bytes=max_bytes,
    )
