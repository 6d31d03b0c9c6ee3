"""The entry point to files and streams of every format, at the requested rate: `open_rows`."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from streampca.errors import BadParameterError, SourceError, UsageError, refuse_web
from streampca.linalg.types import FloatArray
from streampca.rows.protocol import RowSource
from streampca.sources.base import BoundsLike
from streampca.sources.csv_rows import from_csv
from streampca.sources.ndjson_rows import from_ndjson
from streampca.sources.parquet import from_parquet
from streampca.sources.text_files import Readable
from streampca.stream.absorb import files_of

#: Reader of each format, and the ends of the names of its files.
FORMATS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "csv": (from_csv, (".csv", ".txt")),
    "tsv": (from_csv, (".tsv", ".tab")),
    "ndjson": (from_ndjson, (".ndjson", ".jsonl")),
    "parquet": (from_parquet, (".parquet", ".pq")),
}
#: Seconds; a tiny rate must not overflow the clock of the system.
_LONGEST_SLEEP = 3600.0


class FileRows(RowSource):
    """Rows of one or several ``files`` with the same features, one after the other; created by `open_rows`."""

    # ``names`` are those of the files, for messages. ``rate`` is the maximum number of rows per second.

    def __init__(self, files: Sequence[RowSource], names: Sequence[str], rate: float | None = None) -> None:
        if rate is not None and not (isinstance(rate, (int, float)) and 0 < rate < float("inf")):
            raise BadParameterError("rate", rate, "a positive number of rows per second")
        self.features, self.bounds = files[0].features, files[0].bounds
        for source, name in zip(files, names, strict=True):
            if source.features != self.features:
                raise SourceError(name, f"its columns are not those of {names[0]} in order; choose with columns=")
        self._files, self._rate = tuple(files), rate

    @property
    def expected_rows(self) -> int | None:
        counts = [source.expected_rows for source in self._files]
        return None if None in counts else sum(count or 0 for count in counts)

    def count_rows(self) -> int | None:
        counts = [source.count_rows() for source in self._files]
        return None if None in counts else sum(count or 0 for count in counts)

    def blocks_with(self, names: Sequence[str]) -> Iterator[tuple[FloatArray, list[Sequence[Any]]]]:
        yield from chain.from_iterable(source.blocks_with(names) for source in self._files)

    def blocks(self) -> Iterator[FloatArray]:
        began, sent = 0.0, 0
        for block in chain.from_iterable(source.blocks() for source in self._files):
            if self._rate is None:
                yield block
                continue
            began = began or time.monotonic()
            at = 0
            while at < len(block):
                # As many rows as are due: a slow consumer catches up in one block.
                passed = time.monotonic() - began
                due = block[at : at + max(0, int(passed * self._rate) + 1 - sent)]
                if len(due):
                    yield due
                    at, sent = at + len(due), sent + len(due)
                else:
                    time.sleep(min(max(0.0, sent / self._rate - passed), _LONGEST_SLEEP))


def open_rows(
    path: Readable, *, format: str | None = None, columns: Sequence[str | int] | Literal["all"] | None = None,  # noqa: A002
    bounds: BoundsLike = None, rate: float | None = None, **reading: Any,
) -> RowSource:  # fmt: skip
    """Open rows of numbers from files or a stream: CSV, TSV, NDJSON or Parquet.

    Parameters
    ----------
    path : a file, a pattern such as ``"day-*.csv"`` (files in the order of their names), a folder of Parquet files, a
        named pipe, ``"-"`` for standard input, or a binary stream.
    format : by default, the format of the end of the name: .csv, .txt, .tsv, .tab, .ndjson, .jsonl, .parquet or
        .pq, with or without .gz or .zip behind it; CSV for other names, pipes and streams.
    columns, bounds : as in `from_csv`. Bounds by name choose the columns, too, if these are not given. Text files have
        no types, and need one of the two, or ``columns="all"``.
    rate : rows per second; earlier rows wait.
    reading : the options of `Reading`. At most one file can be followed.

    Returns
    -------
    RowSource
        Rows for ``Stream.run``, with ``features`` and ``bounds``.

    Raises
    ------
    SourceError
        If no file matches or one cannot be read; see `from_csv`, `from_ndjson` and `from_parquet`.
    UsageError
        If an option does not apply to the format.
    """
    paths = matching(path)
    if columns is None and isinstance(bounds, Mapping):
        columns = [str(name) for name in bounds]
    if reading.get("follow") and len(paths) > 1:
        raise UsageError(f"follow=True with {len(paths)} files: the first one has no end; give one path")
    sources = []
    for name in paths:
        kind = format_of(name, format)
        options = reading if kind != "tsv" or reading.get("delimiter") else reading | {"delimiter": "\t"}
        chosen = None if columns == "all" and kind == "parquet" else columns
        sources.append(FORMATS[kind][0](name, columns=chosen, bounds=bounds, **options))
    is_plain = len(sources) == 1 and rate is None
    return sources[0] if is_plain else FileRows(sources, [str(name) for name in paths], rate)


def matching(path: Readable) -> list[Readable]:
    """Return the files of a pattern or folder, in the order of their names; any other path or stream unchanged."""
    if not isinstance(path, (str, os.PathLike)):
        return [path]
    refuse_web(path)
    if os.path.isdir(path):
        return [*map(Path, files_of(path, None)[0])]
    if not glob.has_magic(os.fspath(path)) or os.path.exists(path):
        return [path]
    paths: list[Readable] = [*map(Path, sorted(glob.glob(os.fspath(path), recursive=True)))]
    if not paths:
        raise SourceError(path, "no file matches this pattern; check the path")
    return paths


def format_of(path: Readable, given: str | None = None) -> str:
    """Return the key in `FORMATS` of a file: that ``given``, or else that of the end of its name; csv without one."""
    kind = "csv" if given is None else given
    if given is None and isinstance(path, (str, os.PathLike)):
        plain = os.fspath(path).lower().removesuffix(".gz").removesuffix(".zip")
        if plain.endswith((".arrow", ".feather")):
            raise BadParameterError(
                "path", path, ", ".join(FORMATS), advice="Pass pyarrow.feather.read_table(path) as rows"
            )
        kind = next((kind for kind, (_, ends) in FORMATS.items() if plain.endswith(ends)), kind)
    if kind not in FORMATS:
        raise BadParameterError("format", given, f"one of {', '.join(FORMATS)}")
    return kind
