"""Parquet files summed by any executor, with the releases of one process, bit for bit. See `Stream.absorb`.

A plan numbers the rows by the footers of the files. A task reads some row groups, which may span files, and returns
exact sums (`BlockGram`). The curator joins them as they finish, in any order, and creates the releases in the order of
the rows. Sums are integers, so that neither the tasks nor the order changes a bit.

Curator only: blocks are as secret as the rows, and workers are trusted as the curator is.
"""

from __future__ import annotations

import glob
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from hashlib import blake2b
from importlib import import_module
from itertools import chain, repeat, takewhile
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from streampca.conversion import column_runs, entries
from streampca.errors import (
    AbsorbInterruptedError,
    BadParameterError,
    HorizonReachedError,
    SourceError,
    StoreForkedError,
    StreamPCAWarning,
    UsageError,
    listed,
)  # fmt: skip
from streampca.linalg.counts import check_count
from streampca.linalg.svec import svec_size
from streampca.linalg.threads import OneThread
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import check_number
from streampca.privacy.randomness import encoded
from streampca.rows.admission import NO_COUNTS, Counts
from streampca.rows.parquet import damage, read_batches
from streampca.rows.protocol import Position, arrow_rows, holds, list_lengths
from streampca.stream.blocks import BlockCutter, BlockGram, chunk_rows
from streampca.stream.engine import Engine
from streampca.stream.executors import Executor, Here, Pool, finished
from streampca.stream.step import Step

#: Name of this source in the positions of a durable stream.
SOURCE = "absorb"
#: Files whose footers are read by one task, and threads that read them where each takes a round trip.
_LOT, _FOOTER_THREADS = 256, 16
#: Default rows of a task; fewer if there are few rows, and never so many that its blocks exceed some bytes.
_TASK_ROWS, _LEAST_ROWS, _TASK_BYTES = 2**18, 2**14, 2**26
#: Share of the rows outside bounds or norm that is usual in a task, and the one that is conspicuous after such tasks.
_USUAL, _CHANGED = 0.05, 0.5
#: CPU seconds of a release and of a row at 64 features, measured, to predict which of them takes longer.
_RELEASE_SECONDS, _ROW_SECONDS, _LEAST_SECONDS = 4e-4, 9e-7, 10.0

logger = logging.getLogger("streampca.curator")


class Footer(NamedTuple):
    """What a plan knows of a file. Workers check that it has not changed."""

    size: int  # bytes
    groups: npt.NDArray[np.int64]  # rows of each row group


class Piece(NamedTuple):
    """Successive row groups of one file."""

    path: str
    size: int  # bytes of the file
    total: int  # rows of the file
    start: int  # first row group
    stop: int
    skip: int  # rows at its start that were absorbed before
    kept: int  # rows after those
    before: int  # rows of the file before those


class Task(NamedTuple):
    """Successive rows, which may span files."""

    pieces: tuple[Piece, ...]
    before: int  # rows of the stream before them

    def place(self, row: int) -> str:
        """Return the file and place of a row of the stream."""
        at = row - self.before
        for piece in self.pieces:
            if at <= piece.kept:
                break
            at -= piece.kept
        return f"row {row}, row {piece.before + at} of {piece.path},"


class Result(NamedTuple):
    """What a worker found. An exception that it raised would make engines repeat the task."""

    blocks: list[BlockGram]
    refusal: SourceError | None  # why the rows after the blocks cannot be read
    bad: str | None  # place of the first bad row. Curator only
    path: str  # of most of its rows


@dataclass(frozen=True)
class FooterReader:
    """Function of a worker from paths to what the plan knows of each file, or what is wrong with it."""

    columns: tuple[str, ...]  # features, as in `arrow_rows`
    storage: Any  # pyarrow file system

    def __call__(self, paths: Sequence[str]) -> list[Footer | SourceError]:
        accepted: list[Any] = []  # schemas: most files have that of the one before
        if self.storage.type_name == "local":
            return [self._footer(path, accepted) for path in paths]
        with ThreadPoolExecutor(_FOOTER_THREADS) as threads:
            return list(threads.map(self._footer, paths, repeat(accepted)))

    def _footer(self, path: str, accepted: list[Any]) -> Footer | SourceError:
        import pyarrow.parquet as pq

        try:
            with damage(path, "cannot be read as Parquet"), self.storage.open_input_file(path) as file:
                found, size = pq.ParquetFile(file, pre_buffer=False).metadata, file.size()
                footer = Footer(size, np.array([found.row_group(i).num_rows for i in range(found.num_row_groups)], int))
                if accepted and found.schema.equals(accepted[-1]):
                    return footer
                schema = found.schema.to_arrow_schema()
                names = schema.names
            runs = column_runs(self.columns, tuple(names))
        except SourceError as problem:
            return problem
        except KeyError as problem:
            return SourceError(path, f"no column for the feature {problem}; choose with columns=")
        for name, width in runs.items():
            if names.count(name) > 1 or not holds(schema.field(name).type, width):
                said = (f"does not hold lists of {width}" if width else "does not hold") + " numbers, or is there twice"
                return SourceError(path, f"column {name!r} {said}; choose with columns=")
        accepted.append(found.schema)
        return footer


@dataclass(frozen=True)
class Plan:
    """Function of a worker from a task to its blocks. Public settings only, pickled with each task."""

    cutter: BlockCutter
    columns: tuple[str, ...]
    storage: Any

    def run(self, task: Task) -> Result:
        """Return the blocks of a task. Pure: it may run again anywhere, and gives the same bits."""
        refused, bad = list[SourceError](), list[int]()
        rows = read_pieces(self.storage, self.columns, task.pieces, refused)
        with OneThread():  # other workers use the other cores
            # Invariant: blocks are cut at multiples of release_every of the stream, wherever tasks begin.
            blocks = list(self.cutter.blocks(gathered(rows, chunk_rows(len(self.columns))), task.before, bad))
        place = task.place(bad[0]) if bad else None
        return Result(blocks, refused[0] if refused else None, place, max(task.pieces, key=lambda one: one.kept).path)


def read_pieces(
    storage: Any, columns: Sequence[str], pieces: Iterable[Piece], refused: list[SourceError]
) -> Iterator[FloatArray]:
    """Yield the rows of some pieces. Where a file is damaged or has changed, end, and append the reason."""
    import pyarrow.parquet as pq

    size = chunk_rows(len(columns))
    for piece in pieces:
        try:
            with damage(piece.path, "is damaged"), storage.open_input_file(piece.path) as opened:
                file = pq.ParquetFile(opened, pre_buffer=storage.type_name != "local")
                if (opened.size(), file.metadata.num_rows) != (piece.size, piece.total):
                    raise SourceError(piece.path, "changed since its footer was read; call absorb again")
                skip, chosen = piece.skip, list(column_runs(tuple(columns), tuple(file.schema_arrow.names)))
                for batch in read_batches(file, chosen, range(piece.start, piece.stop), numbers=len(columns)):
                    if batch.num_rows > skip:
                        yield from arrow_rows(batch.slice(skip), columns, size)
                    skip = max(0, skip - batch.num_rows)
        except SourceError as problem:
            refused.append(problem)
            return


def gathered(chunks: Iterable[FloatArray], least: int) -> Iterator[FloatArray]:
    """Join successive chunks with fewer than ``least`` rows, such as those of small files."""
    held: list[FloatArray] = []
    size = 0
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        if size >= least:
            yield held[0] if len(held) == 1 else np.concatenate(held)
            held, size = [], 0
    if held:
        yield np.concatenate(held)


class Open:
    """Sums of successive rows that wait for earlier ones."""

    def __init__(self, cutter: BlockCutter, t: int) -> None:
        self.cutter, self.t = cutter, t  # rows that were taken
        self.runs: dict[int, BlockGram] = {}  # by their first row
        self._starts: dict[int, int] = {}  # first row of the run, by its last row
        self.block_bytes = 16 * svec_size(cutter.admission.admitted_features or 0)

    @property
    def held(self) -> int:
        """Bytes of the sums."""
        return len(self.runs) * self.block_bytes

    def is_due(self, row: int) -> bool:
        """Return whether a release follows a row, or the horizon does."""
        return row % self.cutter.release_every == 0 or row == self.cutter.horizon

    def join(self, block: BlockGram) -> None:
        """Add a block to the runs that it touches, unless a release lies between."""
        first, last = block.first or 0, (block.first or 0) + block.count - 1
        if first - 1 in self._starts and not self.is_due(first - 1):
            first = self._starts.pop(first - 1)
            block = self.runs.pop(first).then(block)
        if last + 1 in self.runs and not self.is_due(last):
            block = block.then(self.runs.pop(last + 1))
            last = first + block.count - 1
        self.runs[first], self._starts[last] = block, first

    def take(self, *, partial: bool = False) -> BlockGram | None:
        """Return the sum of the next rows if it completes a release; also if not, where it may be ``partial``."""
        block = self.runs.get(self.t + 1)
        last = self.t + (0 if block is None else block.count)
        if block is None or not (partial or self.is_due(last)):
            return None
        del self.runs[self.t + 1], self._starts[last]
        self.t = last
        return block


@dataclass(frozen=True)
class Files:
    """Files whose rows follow the first ``before`` rows of a stream, in order."""

    columns: tuple[str, ...]
    storage: Any
    paths: list[str]
    footers: list[Footer]
    before: int

    @classmethod
    def found(
        cls, dataset: Any, storage: Any, columns: Sequence[str] | None, d: int, before: int, runner: Executor, most: int
    ) -> Files:
        """Find the files of a dataset, and let workers read their footers. Raises `SourceError` before any row."""
        paths, storage = files_of(dataset, storage)
        if columns is None or len(columns) != d:
            with damage(paths[0], "cannot be read as Parquet"), storage.open_input_file(paths[0]) as file:
                schema = import_module("pyarrow.parquet").read_schema(file)
                columns = entries(columns or schema.names, list_lengths(schema), d)
        if len(columns) != d:
            raise BadParameterError("columns", list(columns), f"the {d} features of the stream, in order")
        names = tuple(columns)
        lots = [paths[i : i + _LOT] for i in range(0, len(paths), _LOT)]
        parts = dict(finished(runner, FooterReader(names, storage), lots, most.__gt__, list))
        footers: list[Footer] = []
        for footer in chain.from_iterable(parts[i] for i in range(len(lots))):
            if isinstance(footer, SourceError):
                raise footer
            footers.append(footer)
        return cls(names, storage, paths, footers, before)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(int(footer.groups.sum()) for footer in self.footers)

    def tasks(self, done: int, size: int) -> Iterator[Task]:
        """Yield tasks of at least ``size`` rows but the last, after the first ``done`` rows."""
        pieces: list[Piece] = []
        t, count, at = self.before + done, 0, 0  # rows of the stream, of the task, and of the files before this one
        for path, (length, groups) in zip(self.paths, self.footers, strict=True):
            ends = np.cumsum(groups)
            rows = int(ends[-1]) if len(ends) else 0
            # A durable stream resumes in the middle of a row group: the rows before its position are skipped.
            start = int(np.searchsorted(ends, max(0, done - at), side="right"))
            while start < len(groups):
                first = int(ends[start - 1]) if start else 0
                skip = max(0, done - at - first)
                stop = min(len(groups), int(np.searchsorted(ends, first + skip + size - count)) + 1)
                kept = int(ends[stop - 1]) - first - skip
                pieces.append(Piece(path, length, rows, start, stop, skip, kept, first + skip))
                count, start = count + kept, stop
                if count >= size:
                    yield Task(tuple(pieces), t)
                    pieces, t, count = [], t + count, 0
            at += rows
        if pieces:
            yield Task(tuple(pieces), t)


class Places:
    """Positions of a stream in files: rows, and a digest of the files that hold them."""

    def __init__(self, files: Files) -> None:
        self._files, self._end = iter(zip(files.paths, files.footers, strict=True)), 0
        self._digest, self._before = blake2b(encoded(*files.columns), digest_size=16), files.before

    def at(self, rows: int) -> dict[str, Any]:
        """Return the position after some rows of these files. Rows must not decrease from call to call."""
        while self._end < rows:
            path, footer = next(self._files)
            self._digest.update(encoded(path, footer.size, footer.groups.tobytes()))
            self._end += int(footer.groups.sum())
        return {"before": self._before, "rows": rows, "digest": self._digest.hexdigest()}


#: Positions of streams without a store, so that they cannot skip the rows of other files either.
_POSITIONS: WeakKeyDictionary[Engine, dict[str, Any]] = WeakKeyDictionary()


def absorb(
    engine: Engine, leaves: Callable[[], BlockCutter], dataset: Any, executor: Executor | int | None, *,
    columns: Sequence[str] | None, rows_per_task: int | None, in_flight: int | None, memory: int, commit_every: float,
    before: int, storage: Any,
) -> Iterator[Step]:  # fmt: skip
    """See `Stream.absorb`; ``leaves`` is that of the stream."""
    engine.algorithm.check_blocks()
    d = engine.now.admission.known_features()
    for name, count in {"rows_per_task": rows_per_task, "in_flight": in_flight, "memory": memory}.items():
        check_count(name, count, optional=name != "memory")
    check_number("commit_every", commit_every)
    if before != 0:
        check_count("before", before)
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns or ()):
        raise BadParameterError("columns", columns, "a list of names")
    pool = None
    if executor is not None and not hasattr(executor, "submit"):
        check_count("executor", executor)
        pool = Pool(int(executor))
    runner: Any = pool or executor or Here()
    most = 1 if executor is None else in_flight or 2 * (getattr(runner, "workers", None) or os.cpu_count() or 1)
    try:
        files = Files.found(dataset, storage, columns or engine.now.admission.features, d, before, runner, most)
        done, left = continued(engine, files), engine.processor.rows_left
        if left is not None and files.rows - done > left:
            # Before any row, so that a stream never stops within the rows.
            raise HorizonReachedError(f"{files.rows - done} rows given, but the horizon leaves room for {left}")
        if engine.warmup_left:
            yield from warm_up(engine, files, done)
        opened = Open(leaves(), engine.t)
        size = task_rows(rows_per_task, most, files.rows - engine.t + before, opened)
        if executor is not None:
            warn_of_releases(opened, files.rows - engine.t + before, most)
        yield from sums(engine, files, opened, size, runner, most, memory, commit_every)
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)


def warm_up(engine: Engine, files: Files, done: int) -> Iterator[Step]:
    """Feed the rows that find private bounds, which vote one by one, as no sum of them can do."""
    places, refused = Places(files), list[SourceError]()
    pieces = chain.from_iterable(task.pieces for task in files.tasks(done, 1))
    with OneThread():
        for rows in read_pieces(files.storage, files.columns, pieces, refused):
            t, rows = engine.t - files.before, rows[: engine.warmup_left]
            steps = engine.push_many(rows, position=lambda m, t=t: Position(SOURCE, places.at(t + m)))  # type: ignore[misc]
            _POSITIONS[engine] = places.at(t + len(rows))
            yield steps[-1]
            if not engine.warmup_left:
                return
    if refused:
        raise refused[0]


def sums(
    engine: Engine, files: Files, opened: Open, size: int, runner: Executor, most: int, memory: int, commit_every: float
) -> Iterator[Step]:
    """Run the tasks, and push the sums of their rows in order."""
    places, plan = Places(files), Plan(opened.cutter, files.columns, files.storage)
    # Bytes that an unfinished task may return count as held, so that memory is bounded whichever task is late.
    # The last row group of a task may exceed its size.
    most_rows = size + max((int(footer.groups.max(initial=0)) for footer in files.footers), default=0)
    task_bytes = (most_rows // opened.cutter.release_every + 2) * opened.block_bytes
    ended, arrived = set[int](), 0  # finished tasks; all before ``arrived`` are
    refusals: dict[int, SourceError] = {}
    told, last = False, time.monotonic()
    usual: float | None = None  # greatest share of rows outside, as long as it is small

    def room(unfinished: int) -> bool:
        return unfinished < most and opened.held + (unfinished + 1) * task_bytes <= memory

    def push(block: BlockGram) -> Step:
        at = places.at(opened.t - files.before)
        step = engine.push_block(block, position=Position(SOURCE, at))
        _POSITIONS[engine] = at
        return step

    tasks = takewhile(lambda _: not refusals, files.tasks(engine.t - files.before, size))
    for number, result in finished(runner, plan.run, tasks, room, Result):
        ended.add(number)
        while arrived in ended:
            ended.remove(arrived)
            arrived += 1
        for part in result.blocks:
            opened.join(part)
        if result.bad is not None and not told:
            told = True
            logger.warning("%s could not be used, as it lacks a number (others may follow).", result.bad)
        counts = reduce(Counts.plus, (block.counts for block in result.blocks), NO_COUNTS)
        outside = counts.scaled if counts.clamped is None else counts.clamped.max()  # of one feature
        share = float(outside / max(1, sum(block.count for block in result.blocks)))
        if usual is not None and share > _CHANGED > _USUAL > usual:
            logger.warning(
                "%.0f %% of the rows in and near %s exceed their bounds or row_norm, unlike those before: another "
                "unit of measure?", 100.0 * share, result.path,
            )  # fmt: skip
        usual = max(usual or 0.0, share)
        if result.refusal is not None:
            refusals[number] = result.refusal
        overdue = engine.log is not None and time.monotonic() - last >= commit_every
        last = time.monotonic() if overdue else last
        # A long release is pushed in parts, so that a crash inside it costs seconds of work.
        while (block := opened.take(partial=overdue)) is not None:
            yield push(block)
        if refusals and min(refusals) < arrived:  # all rows before the damage have arrived
            break
    while (block := opened.take(partial=True)) is not None:
        yield push(block)
    if refusals:
        raise refusals[min(refusals)]
    if opened.t < files.before + files.rows:
        raise AbsorbInterruptedError(f"the executor lost results after row {opened.t}. Call absorb again with another")


def continued(engine: Engine, files: Files) -> int:
    """Return how many rows of these files a stream has absorbed. Refuse files that it has not."""
    done, before = engine.t - files.before, files.before
    # Also absorbs waiting rows. A stream without a store has no positions.
    at = engine.position_in(SOURCE, new_source=True) if engine.log is not None else _POSITIONS.get(engine)
    if done == 0:
        return 0
    remedy = f"pass before={engine.t} if all rows of these files are new"
    if done < 0 or at is None or (at["before"], at["rows"]) != (before, done):
        raise UsageError(f"before={before}: the stream is at row {engine.t}, and its rows came otherwise; {remedy}")
    if done > files.rows or Places(files).at(done) != at:
        raise StoreForkedError(
            f"the first {done} rows came from other files, or columns, than those that these begin with: keep the "
            f"list, which may grow at its end; or {remedy}"
        )
    return done


def task_rows(given: int | None, most: int, rows: int, opened: Open) -> int:
    """Return the rows of a task. Releases do not depend on it."""
    if given is not None:
        return given
    # The curator's time a task must be a small share of that of the workers; and each worker gets some tasks.
    size = min(max(_TASK_ROWS, 512 * most), max(_LEAST_ROWS, rows // (2 * most)))
    return min(size, max(1, _TASK_BYTES // opened.block_bytes) * opened.cutter.release_every)


def warn_of_releases(opened: Open, rows: int, most: int) -> None:
    """Warn if the releases, which the curator creates, take longer than the rows."""
    d = opened.cutter.admission.n_features or 1
    each, work = _RELEASE_SECONDS * (d / 64) ** 2, rows * _ROW_SECONDS * d / 64 / max(1, most // 2)
    seconds = rows // opened.cutter.release_every * each
    if seconds > max(work / 2, _LEAST_SECONDS):
        least = int(2 * rows * each / work) + 1
        warnings.warn(
            f"release_every={opened.cutter.release_every}: the releases take longer than the rows, and more workers do "
            f"not help. Raise release_every to {least}",
            StreamPCAWarning,
            stacklevel=3,
        )


def files_of(dataset: Any, storage: Any) -> tuple[list[str], Any]:
    """Return the paths of a dataset, in order, and their pyarrow file system."""
    with damage(None, "the dataset cannot be found"):
        import pyarrow.fs as fs

    if hasattr(dataset, "get_fragments"):
        kind = getattr(getattr(dataset, "format", None), "default_extname", "")
        try:  # pyarrow lists no fragments of a selection
            parts = {str(fragment.partition_expression) for fragment in dataset.get_fragments()} - {"true"}
        except ValueError:
            parts = {"a filter"}
        if parts or kind != "parquet":
            raise BadParameterError(
                "dataset", ..., "Parquet files without a filter or a partition expression",
                advice="Workers read whole files: write the selection first, or use stream.run",
            )  # fmt: skip
        return list(dataset.files), dataset.filesystem
    given = [dataset] if isinstance(dataset, (str, os.PathLike)) or not isinstance(dataset, Iterable) else [*dataset]
    if not all(isinstance(path, (str, os.PathLike)) and (path or storage) for path in given):
        raise BadParameterError(
            "dataset", dataset, "paths of Parquet files", advice="Read others with stream.run(source)"
        )
    texts = [os.fspath(path) for path in given]
    if storage is None:
        texts, storage = located(texts)
    elif not isinstance(storage, fs.FileSystem):
        raise BadParameterError(
            "storage", storage, "a pyarrow.fs.FileSystem", advice="Of fsspec, pass PyFileSystem(FSSpecHandler(storage))"
        )
    paths: list[str] = []
    for text in texts:
        with damage(text, "cannot be found"):
            info = storage.get_file_info(text) if len(texts) == 1 else None
            if info is None or info.type != fs.FileType.Directory:
                paths.append(text)
                continue
            found = storage.get_file_info(fs.FileSelector(text, recursive=True))
        inside = {one.path: one.path[len(info.path) :].split("/") for one in found if one.type == fs.FileType.File}
        paths += sorted((path for path, parts in inside.items() if not any(map(is_beside, parts))), key=os.fsencode)
        # Privacy: a row must not count twice, and a link to a folder above itself is one file under many paths.
        if storage.type_name == "local":
            with damage(text, "cannot be read"):
                known = {(at.st_dev, at.st_ino) for at in map(os.stat, paths)}
            if len(known) < len(paths):
                raise SourceError(text, "links lead to some of its files twice; remove them, or list the files")
    if others := [path for path in paths if path.lower().endswith((".csv", ".json", ".ndjson", ".arrow", ".feather"))]:
        raise BadParameterError("dataset", others[0], "Parquet files", advice="Read others with stream.run(source)")
    if not paths:
        raise SourceError(texts[0] if texts else None, "no Parquet file here; check the path")
    return paths, storage


def is_beside(name: str) -> bool:
    """Return whether engines write files beside the rows, and parts of files, under such a name."""
    return name[:1] in ("_", ".")


def located(texts: Sequence[str]) -> tuple[list[str], Any]:
    """Return the paths of addresses within their file system, and that."""
    import pyarrow.fs as fs

    if not any("://" in text for text in texts):
        paths = []
        for text in texts:
            is_pattern = glob.has_magic(text) and not os.path.exists(text)
            found = sorted(glob.glob(text, recursive=True), key=os.fsencode) if is_pattern else [text]
            paths += [os.path.abspath(path) for path in found if not (is_pattern and is_beside(os.path.basename(path)))]
        return paths, fs.LocalFileSystem()
    parts = [urlsplit(text.replace("s3a://", "s3://", 1).replace("s3n://", "s3://", 1)) for text in texts]
    if len({(part.scheme, part.netloc) for part in parts}) > 1:
        raise BadParameterError("dataset", listed(texts[:2]), "files of one bucket, or paths and storage=")
    with damage(None, "the address of the dataset cannot be used"):
        storage, first = fs.FileSystem.from_uri(parts[0].geturl())
    # The file system of the first one serves all: to find it may take a round trip.
    root = first[: len(first) - len(unquote(parts[0].path))]
    return [root + unquote(part.path) for part in parts], storage
