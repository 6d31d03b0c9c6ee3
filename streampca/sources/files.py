"""The entry point to files and streams of every format, at the requested rate: `open_rows`."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from streampca.errors import BadParameterError, SourceError, short
from streampca.linalg.types import FloatArray
from streampca.sources.base import BlockSource, BoundsLike, choose, source_bounds
from streampca.sources.csv_rows import from_csv
from streampca.sources.ndjson_rows import from_ndjson
from streampca.sources.parquet import from_arrow, from_parquet
from streampca.sources.text_files import Readable

Format = Literal["csv", "tsv", "ndjson", "parquet", "arrow"]
_READERS: dict[str, Any] = {
    "csv": from_csv, "tsv": from_csv, "ndjson": from_ndjson, "parquet": from_parquet, "arrow": from_arrow,
}  # fmt: skip
_ENDINGS: dict[str, Format] = {
    ".csv": "csv", ".txt": "csv", ".tsv": "tsv", ".tab": "tsv", ".ndjson": "ndjson", ".jsonl": "ndjson",
    ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow",
    ".ipc": "arrow",
}  # fmt: skip

#: Longest sleep, in seconds: a column of times may hold any number.
_LONGEST = 3600.0


class FileRows(BlockSource):
    """Rows of several ``files`` with the same features, one after the other; created by `open_rows`."""

    def __init__(self, files: Sequence[BlockSource], names: Sequence[str]) -> None:
        self.files = tuple(files)
        self.features, self.bounds = files[0].features, files[0].bounds
        for source, name in zip(files, names, strict=True):
            if source.features != self.features:
                raise SourceError(f"{name}: its columns are not those of {names[0]} in order; choose with columns=")

    @property
    def expected_rows(self) -> int | None:
        counts = [source.expected_rows for source in self.files]
        return None if None in counts else sum(count or 0 for count in counts)

    def blocks(self) -> Iterator[FloatArray]:
        for source in self.files:
            yield from source.blocks()


class PacedRows(BlockSource):
    """Rows of a source, none before its time; created by `open_rows`.

    The times follow a ``rate`` or the column ``times`` of the source, in seconds; a row without a time comes with the
    row before it. ``keep`` makes that column a feature. ``bounds`` are those of the features if ``times`` is given.
    """

    def __init__(
        self, source: BlockSource, rate: float | None, times: str | None, *, keep: bool = False,
        bounds: BoundsLike = None,
    ) -> None:  # fmt: skip
        if rate is not None and not (isinstance(rate, (int, float)) and 0 < rate < float("inf")):
            raise BadParameterError(f"rate={short(rate)}: expected a positive number of rows per second")
        self._source, self._rate = source, rate
        self.features, self.bounds = source.features, source.bounds
        self._place: int | None = None
        if times is not None:
            self._place = choose(source.features, [times], "the source")[0]
            if not keep:
                self.features = tuple(name for at, name in enumerate(source.features) if at != self._place)
            if not self.features:
                raise SourceError(f"there is no column but that of the times, {short(times)}")
            self.bounds = source_bounds(bounds, self.features, source.features)

    @property
    def expected_rows(self) -> int | None:
        return self._source.expected_rows

    def blocks(self) -> Iterator[FloatArray]:
        began, sent, first = 0.0, 0, float("nan")
        for block in self._source.blocks():
            began = began or time.monotonic()
            # Seconds after the start at which each row is due.
            if self._place is None:
                due = (sent + np.arange(len(block))) / (self._rate or 1.0)
            else:
                seconds = block[:, self._place]
                finite = np.isfinite(seconds)
                if np.isnan(first) and finite.any():
                    first = float(seconds[finite.argmax()])
                due = np.where(finite, seconds - first, 0.0)
                if len(self.features) < block.shape[1]:
                    block = np.delete(block, self._place, axis=1)
            sent += len(block)
            # As many rows as are due: a slow consumer catches up in one block.
            at = 0
            while at < len(block):
                passed = time.monotonic() - began
                late = due[at:] > passed
                count = int(late.argmax()) if late.any() else len(late)
                if count:
                    yield block[at : at + count]
                    at += count
                else:
                    time.sleep(min(due[at] - passed, _LONGEST))


def open_rows(
    path: Readable,
    *,
    format: Format | None = None,  # noqa: A002
    columns: Sequence[str | int] | None = None,
    bounds: BoundsLike = None,
    rate: float | None = None,
    rate_from: str | None = None,
    **reading: Any,
) -> BlockSource:
    """Open rows of numbers from files or a stream: CSV, TSV, NDJSON, Parquet or Arrow IPC.

    Parameters
    ----------
    path : a file, a pattern such as ``"day-*.csv"`` (files in the order of their names), a named pipe,
        ``"-"`` for standard input, or a binary stream.
    format : by default, the format of the end of the name: .csv, .txt, .tsv, .tab, .ndjson, .jsonl, .parquet, .pq,
        .arrow, .arrows, .feather or .ipc, with or without .gz or .zip behind it; CSV for other names, pipes, streams.
    columns, bounds : as in `from_csv`.
    rate : rows per second; earlier rows wait.
    rate_from : name of a column of times, whose differences are the waiting times. Numbers are seconds; text of CSV
        and NDJSON and Arrow's types may be dates and times, too. The column is a feature only if ``columns`` names it.
        Times must be public, because they decide when a release appears.
    reading : the options of `Reading`. At most one file can be followed.

    Returns
    -------
    BlockSource
        Rows for ``Stream.run``, with ``features`` and ``bounds``.

    Raises
    ------
    SourceError
        If no file matches or one cannot be read; see `from_csv`, `from_ndjson`, `from_parquet` and `from_arrow`.
    BadParameterError
        If an option does not apply to the format.
    """
    paths: list[Readable] = [path]
    if isinstance(path, (str, os.PathLike)) and glob.has_magic(os.fspath(path)) and not os.path.exists(path):
        paths = [*map(Path, sorted(glob.glob(os.fspath(path), recursive=True)))]
        if not paths:
            raise SourceError(f"{path}: no file matches this pattern; check the path")
    if rate is not None and rate_from is not None:
        raise BadParameterError("rate= and rate_from= exclude each other; pass one of them")
    if reading.get("follow") and len(paths) > 1:
        raise BadParameterError(f"follow=True with {len(paths)} files: the first one has no end; give one path")
    # The reader must read the column of times, even if it is no feature.
    kept = columns is None or rate_from is None or rate_from in columns
    read = columns if kept or columns is None else [*columns, rate_from or ""]
    sources = []
    for name in paths:
        kind: str = "csv" if format is None else format
        if format is None and isinstance(name, (str, os.PathLike)):
            plain = os.fspath(name).lower().removesuffix(".gz").removesuffix(".zip")
            kind = _ENDINGS.get(os.path.splitext(plain)[1], "csv")
        if kind not in _READERS:
            raise BadParameterError(f"format={short(format)}: expected one of {', '.join(_READERS)}")
        options = {"delimiter": "\t", **reading} if kind == "tsv" else reading
        # With a column of times, which may not be a feature, the bounds are those of `PacedRows`.
        given = bounds if rate_from is None else None
        sources.append(_READERS[kind](name, columns=read, bounds=given, times=rate_from, **options))
    rows = sources[0] if len(sources) == 1 else FileRows(sources, [str(name) for name in paths])
    if rate is None and rate_from is None:
        return rows
    return PacedRows(rows, rate, rate_from, keep=columns is not None and kept, bounds=bounds)
