"""Rows from files of JSON objects, one a line (NDJSON, JSON Lines)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from numbers import Real
from typing import Any

import numpy as np

from streampca.errors import BadParameterError, SourceError, UsageError, short
from streampca.linalg.types import FloatArray
from streampca.rows.admission import bad_values
from streampca.rows.names import refuse_values
from streampca.sources.base import NAME_THEM, REMEDY, BoundsLike, choose, in_blocks, source_bounds
from streampca.sources.reading import Reading
from streampca.sources.records import LONGEST_RECORD, OVERLONG, split_records
from streampca.sources.text_files import Readable, TextRows

#: Most levels of lists and objects in a line. Python's parser allows more, but how many depends on its caller.
_DEEPEST = 200
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


class NdjsonRows(TextRows):
    """Rows of numbers from a file of JSON objects, one a line, plain or compressed; also called `from_ndjson`.

    Parameters
    ----------
    path : the file, in UTF-8, a named pipe, ``"-"`` for standard input, or a binary stream.
    columns : keys to read, in that order; those of the first object by default. Other keys are ignored.
    bounds : as in `from_csv`.
    reading : the options of `Reading` except those of delimited text. A key that is absent or null is missing; true is
        1. A line of more than 200 levels of nesting is a bad row. If bad rows are absorbed, ``columns`` is required.

    Raises
    ------
    SourceError
        By the constructor, if the file cannot be opened or has no rows; while reading, as `from_csv`.
    """

    def __init__(
        self, path: Readable, *, columns: Sequence[str] | None = None, bounds: BoundsLike = None, **reading: Any
    ) -> None:
        options = Reading(**reading).only("NDJSON", "on_bad_row", "missing", "chunk_rows", "na", "max_bytes", "follow")
        super().__init__(path, options, has_header=False)
        pieces = self._numbered()
        first = next(pieces, None)
        if first is None:
            raise SourceError(self.name, "no rows, the file is empty; check the path")
        self._begun = chain([first], pieces) if self._file.once else None
        if columns is None:
            if self._zero:
                raise UsageError("on_bad_row='zero' without columns=: the first record would decide them; name them")
            columns = list(self._record(*first[0]))
            refuse_values(columns, self.name, NAME_THEM)
        elif isinstance(columns, (str, bytes)) or not all(isinstance(name, str) for name in columns):
            raise BadParameterError("columns", columns, "a list of names", advice="JSON objects have no order")
        self.features = tuple(columns[at] for at in choose(columns, None, self.name))
        if not self.features:
            raise BadParameterError("columns", [], "at least one column")
        self.bounds = source_bounds(bounds, self.features)

    def blocks(self) -> Iterator[FloatArray]:
        for lines in self._start(self._numbered):
            yield from in_blocks((self._row(number, line) for number, line in lines), self._chunk_rows)

    def _pieces(self) -> Iterator[bytes]:
        return self._file.pieces(self._file.blocks())

    def _numbered(self) -> Iterator[list[tuple[int, bytes]]]:
        """Yield the lines of each piece, with their numbers."""
        number = 1
        for piece in self._pieces():
            lines = [*enumerate(split_records(piece, None), number)]
            yield lines
            number += len(lines)

    def _record(self, number: int, line: bytes) -> dict[str, object]:
        try:
            if line is OVERLONG:
                raise ValueError(f"a line of more than {LONGEST_RECORD} bytes")
            check_levels(line)
            record = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            raise SourceError(self.name, f"not JSON ({short(str(error))}); {REMEDY}", line=number) from None
        if not isinstance(record, dict):
            raise SourceError(self.name, f"{short(record)} is no JSON object; {REMEDY}", line=number)
        return record

    def _row(self, number: int, line: bytes) -> list[float]:
        values: list[float] = []
        reason = "unreadable record"
        try:
            record = self._record(number, line)
            reason = "not a number"
            for name in self.features:
                entry = record.get(name)
                column = f"column {short(name)}"
                # Absent, null and texts for missing values are NaN.
                value = float("nan")
                if isinstance(entry, Real):
                    try:
                        value = float(entry)
                    except OverflowError:
                        value = float("inf")
                elif entry is not None and not (isinstance(entry, str) and entry.strip() in self._missing):
                    problem = f"{column} is not a number ({short(entry)}); choose with columns=, or {REMEDY}"
                    raise SourceError(self.name, problem, line=number)
                if not (self._lenient or np.isfinite(value)):
                    kind = "missing" if np.isnan(value) else "infinite"
                    raise SourceError(self.name, f"{column} is {kind} ({short(entry)}); {REMEDY}", line=number)
                values.append(value)
        except SourceError:
            # A bad record is one row, with the reason that the curator counts.
            if not self._zero:
                raise
            values = bad_values(reason, len(self.features)).tolist()
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
