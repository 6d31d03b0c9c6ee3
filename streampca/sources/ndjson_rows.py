"""Rows from files of JSON objects, one a line (NDJSON, JSON Lines)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from numbers import Real
from typing import Any

import numpy as np

from streampca.errors import BadParameterError, SourceError, UsageError
from streampca.linalg.types import FloatArray
from streampca.rows.admission import bad_values
from streampca.rows.names import NO_TYPES
from streampca.sources.base import BoundsLike, choose, source_bounds
from streampca.sources.csv_cells import known
from streampca.sources.reading import Reading
from streampca.sources.records import OVERLONG, split_records
from streampca.sources.text_files import Readable, TextRows

#: Most levels of lists and objects in a line. Python's parser allows more, but how many depends on its caller.
_DEEPEST = 200
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


class NdjsonRows(TextRows):
    """Rows of numbers from a file of JSON objects, one a line, plain or compressed; also called `from_ndjson`.

    Parameters
    ----------
    path : the file, in UTF-8, a named pipe, ``"-"`` for standard input, or a binary stream.
    columns : keys to read, in that order. Required, because a record must not decide them. Other keys are ignored.
    bounds : as in `from_csv`.
    reading : the options of `Reading` except those of delimited text. A key that is absent or null is missing; true is
        1. A line of more than 200 levels of nesting is a bad row.

    Raises
    ------
    SourceError
        By the constructor, if the file cannot be opened or has no rows; while reading, as `from_csv`.
    """

    def __init__(
        self, path: Readable, *, columns: Sequence[str] | None = None, bounds: BoundsLike = None, **reading: Any
    ) -> None:
        options = Reading(**reading).only("NDJSON", "chunk_rows", "na", "max_bytes", "follow", "beside")
        super().__init__(path, options, has_header=False)
        pieces = self._pieces()
        first = next(pieces, None)
        if first is None:
            raise SourceError(self.name, "no rows, the file is empty; check the path")
        self._begun = chain([first], pieces) if self._once else None
        if columns is None:
            raise UsageError(f"{self.name} {NO_TYPES}")
        if isinstance(columns, (str, bytes)) or not all(isinstance(name, str) for name in columns):
            raise BadParameterError("columns", columns, "a list of names", advice="JSON objects have no order")
        self.features = tuple(columns[at] for at in choose(columns, None, self.name))
        if not self.features:
            raise BadParameterError("columns", [], "at least one column")
        self.bounds = source_bounds(bounds, self.features)

    def _parsed(self, piece: bytes) -> list[FloatArray]:
        return [np.array([self._row(line) for line in split_records(piece, None)])]

    def records(self) -> Iterator[list[list[Any] | None]]:
        """Yield the entries of every record, in blocks; None for an unreadable record."""
        for piece in self._start():
            found = map(self._record, split_records(piece, None))
            yield [None if record is None else [*map(record.get, self.features)] for record in found]

    def blocks_with(self, names: Sequence[str]) -> Iterator[tuple[FloatArray, list[Sequence[Any]]]]:
        for piece in self._start():
            found = [self._record(line) or {} for line in split_records(piece, None)]
            cells: list[Any] = [[known(record.get(name), self._missing) for record in found] for name in names]
            yield self._parsed(piece)[0], cells

    def first_keys(self) -> list[str]:
        """Return the keys of the first record. Curator only: a release must not take its columns from a row."""
        first = self._record(split_records(next(self._pieces()), None)[0])
        if not first:
            raise SourceError(self.name, "the first line is no JSON object with a key; choose with columns=", line=1)
        return [*first]

    def _pieces(self) -> Iterator[bytes]:
        return self.whole_records(self._text())

    def _record(self, line: bytes) -> dict[str, Any] | None:
        try:
            check_levels(line)
            record = None if line is OVERLONG else json.loads(line.decode())
        except (ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) else None

    def _row(self, line: bytes) -> list[float]:
        record, d = self._record(line), len(self.features)
        if record is None:
            return bad_values("unreadable record", d).tolist()  # type: ignore[no-any-return]
        values = []
        for entry in map(record.get, self.features):
            # Absent, null and texts for missing values are NaN.
            value = math.nan
            if isinstance(entry, Real):
                try:
                    value = float(entry)
                except OverflowError:
                    value = math.inf
            elif entry is not None and not (isinstance(entry, str) and entry.strip() in self._missing):
                return bad_values("not a number", d).tolist()  # type: ignore[no-any-return]
            values.append(value)
        return values


def check_levels(text: bytes) -> None:
    """Raise ValueError if a JSON text has more than 200 levels of lists and objects."""
    # Counting is enough for most texts, and cheap.
    if text.count(b"[") + text.count(b"{") > _DEEPEST:
        marks = np.frombuffer(_STRING.sub(b"", text), np.uint8)
        steps = np.isin(marks, (91, 123)).astype(np.int64) - np.isin(marks, (93, 125))  # [ { and ] }
        if steps.cumsum().max(initial=0) > _DEEPEST:
            raise ValueError(f"more than {_DEEPEST} levels")


from_ndjson = NdjsonRows
