"""Rows from files of JSON objects, one a line (NDJSON, JSON Lines)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from numbers import Real

import numpy as np

from streampca.errors import BadParameterError, SourceError, short
from streampca.linalg.counts import check_count
from streampca.linalg.types import FloatArray
from streampca.sources.base import (
    BLOCK_ROWS,
    BlockSource,
    BoundsLike,
    OnBadRow,
    bad_row,
    check_missing,
    check_on_bad_row,
    choose,
    source_bounds,
)
from streampca.sources.csv_cells import MISSING, as_seconds, missing_texts
from streampca.sources.csv_cells import number as number_in
from streampca.sources.csv_rows import REMEDY
from streampca.sources.text_files import LONGEST_RECORD, Readable, TextFile

_NAN = float("nan")


class NdjsonRows(BlockSource):
    """The rows of a file of JSON objects; made by `from_ndjson`.

    Attributes
    ----------
    path : the file, or the stream.
    features : the keys that are read.
    bounds : their public bounds, or None.
    """

    def __init__(
        self, path: Readable, *, columns: Sequence[str] | None, bounds: BoundsLike, missing: str,
        na: str | Sequence[str], on_bad_row: OnBadRow, chunk_rows: int, max_bytes: int | None,
        follow: bool, times: str | int | None,
    ) -> None:  # fmt: skip
        self.path = path
        self._nan, self._zero, self._chunk_rows = check_missing(missing), check_on_bad_row(on_bad_row), chunk_rows
        self._missing = MISSING | missing_texts(na)
        self._time = times
        self._file = TextFile(
            path, encoding="utf-8", max_bytes=max_bytes, by_name=self._zero, replace=False, follow=follow
        )
        lines = self._numbered()
        first = next(lines, None)
        if first is None:
            raise SourceError(f"{self._file.name}: no rows, the file is empty; check the path")
        self._begun = self._again(first, lines) if self._file.once else None
        if columns is None:
            if self._zero:
                raise BadParameterError(
                    "on_bad_row='zero' without columns=: the first record would say which columns there are; name them"
                )
            columns = list(self._record(*first))
        elif isinstance(columns, (str, bytes)) or not all(isinstance(name, str) for name in columns):
            raise BadParameterError(f"columns={short(columns)} must be a list of names; JSON objects have no positions")
        self.features = tuple(columns[at] for at in choose(columns, None, self._file.name))
        if not self.features:
            raise BadParameterError("columns=[] leaves no feature; name at least one column")
        self.bounds = source_bounds(bounds, self.features)

    @property
    def expected_rows(self) -> int | None:
        """Number of lines that the file is expected to have; None for pipes and streams."""
        return self._file.expected_lines()

    def blocks(self) -> Iterator[FloatArray]:
        """The rows from the start of the file, at most ``chunk_rows`` in a block."""
        lines, self._begun = self._begun, None
        if lines is None and self._file.once:
            raise SourceError(f"{self._file.name}: was read before, and can be read once only; save it to a file")
        rows: list[list[float]] = []
        try:
            for number, line in lines or self._numbered():
                rows.append(self._row(number, line))
                if len(rows) == self._chunk_rows:
                    yield np.array(rows)
                    rows = []
        except SourceError:
            if rows:
                yield np.array(rows)
            raise
        if rows:
            yield np.array(rows)

    def __repr__(self) -> str:
        return f"<NdjsonRows {self._file.name.rsplit('/', 1)[-1]!r} {self._describe()}>"

    @staticmethod
    def _again(first: tuple[int, bytes], lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        yield first
        yield from lines

    def _numbered(self) -> Iterator[tuple[int, bytes]]:
        """The lines and their numbers, without blank ones unless they are bad rows."""
        number = 0
        for piece in self._file.pieces(longest=LONGEST_RECORD if self._zero else None):
            for line in piece.removesuffix(b"\n").split(b"\n"):
                number += 1
                if self._zero or line.strip():
                    yield number, line

    def _record(self, number: int, line: bytes) -> dict[str, object]:
        try:
            record = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            raise SourceError(f"{self._file.name}, line {number}: not JSON ({short(str(error))}); {REMEDY}") from None
        if not isinstance(record, dict):
            raise SourceError(f"{self._file.name}, line {number}: {short(record)} is no JSON object; {REMEDY}")
        return record

    def _row(self, number: int, line: bytes) -> list[float]:
        reason = "unreadable record"
        try:
            record = self._record(number, line)
            reason = "not a number"
            return [self._value(record, name, number) for name in self.features]
        except SourceError:
            if self._zero:
                return bad_row(reason, len(self.features))
            raise

    def _value(self, record: dict[str, object], name: str, number: int) -> float:
        given = record.get(name)
        if name == self._time and isinstance(given, str) and (seconds := number_in(as_seconds(given))) is not None:
            given = seconds
        where = f"{self._file.name}, line {number}: column {short(name)}"
        value = _NAN
        if isinstance(given, Real):
            try:
                value = float(given)
            except OverflowError:
                value = float("inf")
        elif given is not None and not (isinstance(given, str) and given.strip() in self._missing):
            raise SourceError(f"{where} is not a number ({short(given)}); mend it, choose with columns=, or {REMEDY}")
        if not (self._nan or self._zero or np.isfinite(value)):
            what = "missing" if np.isnan(value) else "infinite"
            raise SourceError(f"{where} is {what} ({short(given)}); {REMEDY}")
        return value


def from_ndjson(
    path: Readable,
    *,
    columns: Sequence[str] | None = None,
    bounds: BoundsLike = None,
    missing: str = "raise",
    na: str | Sequence[str] = (),
    on_bad_row: OnBadRow = "raise",
    chunk_rows: int = BLOCK_ROWS,
    max_bytes: int | None = 2**36,
    follow: bool = False,
    times: str | int | None = None,
) -> NdjsonRows:
    """Rows of numbers from a file of JSON objects, one a line, plain or compressed, in UTF-8.

    Parameters
    ----------
    path : the file, a named pipe, ``"-"`` for standard input, or a binary stream.
    columns : keys to read, in that order; those of the first object by default. Other keys are left aside.
    bounds, missing, na, chunk_rows, max_bytes, follow, times : as in `from_csv`. A key that is absent or null is
        missing; true is 1.
    on_bad_row : "raise", or "zero", as in `from_csv`; then ``columns`` must be given.

    Raises
    ------
    SourceError
        Here, if the file cannot be opened or has no rows; while reading, as `from_csv`.
    """
    check_count("chunk_rows", chunk_rows)
    check_count("max_bytes", max_bytes, optional=True)
    return NdjsonRows(
        path, columns=columns, bounds=bounds, missing=missing, na=na, on_bad_row=on_bad_row, chunk_rows=chunk_rows,
        max_bytes=max_bytes, follow=follow, times=times,
    )  # fmt: skip
