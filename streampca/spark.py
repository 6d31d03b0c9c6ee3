"""Spark: executors admit rows and sum them, the driver makes the releases.

A file, or many (the fast way; the paths are the same on every machine):

    for step in absorb_parquet(stream, spark, paths):
        step.release

Any DataFrame, in the order of its partitions:

    steps = absorb_frame(stream, frame)

A stream, exactly once, also after the driver was killed:

    store = Store("run.db")
    stream = Stream.resume(store) if started else Stream(algorithm, features=names, store=store)
    query = (frames.writeStream.foreachBatch(EpochSink(stream, store))
             .option("checkpointLocation", folder).start())

where ``frames`` is any streaming DataFrame, or `parquet_paths` of a folder
(then executors read the files without Spark's row format, several times faster).

streampca must be installed on the executors, in the version of the driver's
and in the Python that ``PYSPARK_PYTHON`` names. What travels to the driver are exact Gram matrices of
blocks, a raw-data secret: turn on ``spark.network.crypto.enabled`` and
``spark.io.encryption.enabled``. Executors are trusted as the curator is.

A block travels as some ``4 d (d + 1)`` bytes for d features and there is one a release, so
this pays once ``release_every`` is some times d: else the blocks are larger than the rows.

The releases are those of a `Stream` fed the same rows in the same order by
one process, bit for bit: sums of blocks are exact, and noise is drawn on the
driver, by position.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import accumulate, chain
from typing import Any

from streampca.errors import BadParameterError, HorizonReachedError, SourceError, StoreForkedError
from streampca.pool import FileRange, Paths, file_ranges, has_rows, keep_memory, local_path
from streampca.release.release import Release
from streampca.rows.admission import Counts
from streampca.rows.protocol import arrow_rows
from streampca.sources.parquet import from_parquet
from streampca.store.records import decode, encode
from streampca.store.store import Store
from streampca.stream.blocks import BlockCutter, BlockGram
from streampca.stream.step import BlockStep
from streampca.stream.stream import Stream

# Rows of a task: what Spark does once a task takes some 50 ms of CPU.
_TASK_ROWS = 2**18
# Tasks of a Spark job for each of its slots: the next job runs while the blocks of this one are absorbed.
_WAVE = 2
_SCHEMA = "partition int, block binary"
# Types of columns in the words of Spark and of Arrow, whose numbers both read alike.
_ARROW = {
    "double": "double", "float": "float", "bigint": "int64", "int": "int32", "smallint": "int16", "tinyint": "int8",
    "boolean": "bool",
}  # fmt: skip
_FILES = "path string, modificationTime timestamp, length long, content binary"


def absorb_parquet(
    stream: Stream,
    spark: Any,
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    rows_per_task: int = _TASK_ROWS,
    before: int = 0,
) -> Iterator[BlockStep]:
    """Feed the rows of Parquet files, in order, read and summed by executors.

    Rows that the stream has seen are left out, so a durable stream continues
    with ``absorb_parquet(Stream.resume(store), spark, the same paths)``.

    Parameters
    ----------
    stream : whose algorithm takes blocks (`Stream.push_block`) and known features.
    spark : the Spark session.
    paths : one file, or several in the order of rows, under paths that hold on every machine.
    columns : names of the columns, in the order of features; those of the stream if left out, or all.
    rows_per_task : rows of one Spark task, rounded up to whole row groups; fewer where
        slots would be idle. Carries no meaning: releases do not depend on it.
    before : rows that the stream got from elsewhere, before these files.

    Yields
    ------
    BlockStep : one a block; a release ends a block.

    Raises
    ------
    BadParameterError, HorizonReachedError, SourceError
        Before any row, if a parameter, the rows or a file do not fit.
    """
    cutter, slots = stream.leaves(), spark.sparkContext.defaultParallelism
    ranges = file_ranges(stream, paths, columns, rows_per_task, before)
    tasks = list(_tasks(ranges, rows_per_task, slots))
    size = _WAVE * slots
    waves = [tasks[i : i + size] for i in range(0, len(tasks), size)]
    # The next wave is computed while this one is absorbed.
    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(_run, spark, cutter, waves[0]) if waves else None
        for following in [*waves[1:], None]:
            if coming is None:
                return
            blocks = coming.result()
            coming = None if following is None else ahead.submit(_run, spark, cutter, following)
            yield from map(stream.push_block, blocks)


def absorb_frame(stream: Stream, frame: Any, *, columns: Sequence[str] | None = None) -> list[BlockStep]:
    """Feed the rows of a DataFrame, in the order of its partitions, summed by executors.

    Where the frame is what ``spark.read.parquet`` returned, or a selection of its columns, executors read the
    files themselves, in the frame's order. Any other plan runs twice, once to count the rows of each
    partition, and must give the same partitions again (cache it where it does not).

    Parameters
    ----------
    stream : whose algorithm takes blocks (`Stream.push_block`) and known features.
    frame : a Spark DataFrame that is not streaming.
    columns : names of the columns, in the order of features; those of the stream if left out, or all.

    Returns
    -------
    list of BlockStep : one a block; a release ends a block.

    Raises
    ------
    BadParameterError, HorizonReachedError
        If the frame does not fit. No row was absorbed.
    """
    return [stream.push_block(block) for block in _frame_blocks(stream, frame, columns)]


class EpochSink:
    """What ``foreachBatch`` calls: absorbs each epoch of a query once. Curator only.

    Parameters
    ----------
    stream : whose algorithm takes blocks (`Stream.push_block`) and known features.
    store : the `Store` of the stream. Reading its `releases` misses none, also after a crash.
    columns : names of the columns, in the order of features; those of the stream if left out, or all.
    files : the frames hold paths of Parquet files, from `parquet_paths`, not rows.
    on_release : called with each release once its epoch is durable; at most once each.
    new_query : go on with a query that starts over with a checkpoint of its
        own, where the store knows another. Its rows are new rows.

    Raises
    ------
    BadParameterError
        If the stream takes no blocks, or its features are not known.

    Notes
    -----
    Spark delivers an epoch at least once: after a crash, the last one comes
    again under the same number. All of an epoch and its number become durable
    in one commit of the store (`Store.in_one_commit`), so one that comes again
    is skipped, and one that broke off has left no trace; its rows were part of
    no release that was handed out. So nobody ever sees two releases with
    the same noise for different rows, even if the engine orders the rows of an
    epoch differently when it comes again.
    """

    def __init__(
        self,
        stream: Stream,
        store: Store,
        *,
        columns: Sequence[str] | None = None,
        files: bool = False,
        on_release: Callable[[Release], object] | None = None,
        new_query: bool = False,
    ) -> None:
        stream.leaves()
        self._stream = stream
        self._store = store
        self._columns = columns
        self._files = files
        self._on_release = on_release
        self._new_query = new_query

    def __call__(self, frame: Any, epoch: int) -> None:
        """Absorb an epoch, unless it is durable already.

        Raises
        ------
        StoreForkedError
            If the epoch is of another query than the store's, or does not follow its last.
        """
        query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if self._is_done(query, epoch):
            return
        blocks = self._file_blocks(frame) if self._files else _frame_blocks(self._stream, frame, self._columns)
        with self._store.in_one_commit({"query": query, "epoch": epoch}):
            steps = [self._stream.push_block(block) for block in blocks]
        self._new_query = False
        if self._on_release is not None:
            for step in steps:
                if step.release is not None:
                    self._on_release(step.release)

    def _is_done(self, query: str | None, epoch: int) -> bool:
        last = self._store.epoch
        if last is not None and last["query"] != query and not self._new_query:
            raise StoreForkedError(
                f"the store has absorbed epochs of query {last['query']}, this is query {query}: keep its "
                "checkpointLocation; or, if all rows of this query are new, pass new_query=True"
            )
        due = 0 if last is None or last["query"] != query else last["epoch"] + 1
        if epoch > due:
            raise StoreForkedError(
                f"epoch {epoch} given, epoch {due} is next for this store: epochs in between were absorbed elsewhere; "
                "go on with that store, or give the query a checkpointLocation of its own"
            )
        return epoch < due

    def _file_blocks(self, frame: Any) -> list[BlockGram]:
        found = sorted(frame.selectExpr("unix_micros(modificationTime)", "path").collect())
        stream, filled = self._stream, [path for _, path in found if has_rows(path)]
        ranges = file_ranges(stream, filled, self._columns, _TASK_ROWS, stream.t) if filled else []
        spark = frame.sparkSession
        tasks = list(_tasks(ranges, _TASK_ROWS, spark.sparkContext.defaultParallelism))
        return _run(spark, stream.leaves(), tasks)


def parquet_paths(spark: Any, folder: str, *, files_per_epoch: int | None = None) -> Any:
    """Stream the paths of Parquet files as they appear in a folder, for ``EpochSink(files=True)``.

    The rows of an epoch come in the order of the files' times, then names. A file must
    appear whole (write it elsewhere, then move it), as for Spark's own reader.
    """
    reader = spark.readStream.format("binaryFile").schema(_FILES).option("pathGlobFilter", "*.parquet")
    if files_per_epoch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_epoch)
    return reader.load(folder).select("path", "modificationTime")


def _tasks(ranges: list[FileRange], rows: int, slots: int) -> Iterator[list[FileRange]]:
    """Ranges that follow each other, in tasks of so many rows, or of an equal share of all if that is less."""
    rows = min(rows, sum(one.count for one in ranges) // slots)
    task: list[FileRange] = []
    for one in ranges:
        task.append(one)
        if sum(some.count for some in task) >= rows:
            yield task
            task = []
    if task:
        yield task


def _run(spark: Any, cutter: BlockCutter, tasks: list[list[FileRange]]) -> list[BlockGram]:
    """One Spark job: the blocks of these tasks, in order."""
    if not tasks:
        return []
    made = spark.sparkContext.parallelize(tasks, len(tasks)).map(partial(_task_blocks, cutter)).collect()
    return [block for blocks in made for block in blocks]


def _task_blocks(cutter: BlockCutter, task: list[FileRange]) -> list[BlockGram]:
    _begin()
    return [block for one in task for block in one.blocks(cutter)]


def _frame_blocks(stream: Stream, frame: Any, columns: Sequence[str] | None) -> list[BlockGram]:
    """The blocks of a frame that comes next, in order, checked to be of as many rows as were counted."""
    from pyspark.sql.functions import spark_partition_id
    from pyspark.sql.types import BooleanType, NumericType

    cutter = stream.leaves()
    names = list(columns if columns is not None else stream.features or frame.columns)
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    for name in names:
        if not isinstance(kinds.get(name), (BooleanType, NumericType)):
            what = "is not there" if name not in kinds else "does not hold numbers"
            raise BadParameterError(f"column {name!r} of the frame {what}; choose with columns=")
    ranges = _scanned(frame, {name: kinds[name].simpleString() for name in names}, stream.t)
    if ranges is not None:
        _check_room(stream, sum(one.count for one in ranges))
        spark = frame.sparkSession
        return _run(spark, cutter, list(_tasks(ranges, _TASK_ROWS, spark.sparkContext.defaultParallelism)))
    frame = frame.select(*(f"`{name}`" for name in names))
    counts = {row[0]: row[1] for row in frame.groupBy(spark_partition_id()).count().collect()}
    _check_room(stream, sum(counts.values()))
    starts, at = {}, stream.t
    for partition in sorted(counts):
        starts[partition] = at
        at += counts[partition]
    found = frame.mapInArrow(_PartitionBlocks(cutter, tuple(names), starts), _SCHEMA).collect()
    blocks, seen = [], dict.fromkeys(starts, 0)
    for row in found:
        high, low, count, marked, first, admission = decode(row.block)
        blocks.append(BlockGram(high, low, count, Counts.of_plain(marked), first, admission))
        seen[row.partition] = seen.get(row.partition, 0) + count
    if seen != counts:
        raise BadParameterError(
            "the frame gave other partitions when it was read again; cache it first (frame.cache())"
        )
    return sorted(blocks, key=lambda block: block.first or 0)


def _check_room(stream: Stream, rows: int) -> None:
    left = stream.engine.processor.rows_left
    if left is not None and rows > left:
        raise HorizonReachedError(f"{rows} rows given, but the horizon leaves room for {left}")


def _scanned(frame: Any, kinds: dict[str, str], at: int) -> list[FileRange] | None:
    """The row groups of files that a frame holds unchanged, in the order of its partitions; None if in doubt.

    Spark says where the first and the last row of each are among the rows of the frame. Executors then read the same
    columns, of the same types, without Spark's row format.

    Parameters
    ----------
    frame : any frame.
    kinds : the columns wanted, in order, and their types in Spark's words.
    at : rows of the stream before them.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    try:
        files = _files(frame)
        if not files:
            return None
        groups = [group for path in files for group in _groups(path, kinds)]
        edges = {row for _, _, start, count in groups for row in (start, start + count - 1)}
        # The last goes up from row to row by one, and from partition to partition by more.
        place = f.col("_metadata.file_path"), f.col("_metadata.row_index"), f.monotonically_increasing_id()
        found = frame.select(*place).toDF(*"prm").where(f"r in ({', '.join(map(str, edges))})").collect()
        places = {(str(local_path(path)), row): place for path, row, place in found}
        if len(places) != len(found):
            return None
        ordered = []
        for path, number, start, count in groups:
            first, last = places[path, start], places[path, start + count - 1]
            if last - first != count - 1:  # not all rows of the row group, one after the other
                return None
            ordered.append((first, path, number, count))
        ranges: list[FileRange] = []
        for _, path, number, count in sorted(ordered):
            before = ranges[-1] if ranges else None
            if before and (before.path, before.groups[-1] + 1) == (path, number) and before.count + count <= _TASK_ROWS:
                ranges[-1] = replace(before, groups=(*before.groups, number), count=before.count + count)
            else:
                ranges.append(FileRange(path, (number,), 0, count, at, tuple(kinds)))
            at += count
    except (PySparkException, BadParameterError, SourceError, OSError, KeyError):
        return None
    return ranges


def _files(frame: Any) -> list[str]:
    """The files of a frame that is what ``spark.read.parquet`` makes of them or their folder, or columns of it.

    None of any other frame.
    """
    paths = [str(local_path(path)) for path in frame.inputFiles()]
    kept = frame.storageLevel
    if not paths or kept.useMemory or kept.useDisk:
        return []
    folder = os.path.dirname(paths[0])
    with os.scandir(folder) as entries:
        whole = {one.path for one in entries if not one.name.startswith(("_", "."))} == set(paths)
    # Spark tells a path from the same one in other words, where there is only one.
    roots = [folder] * whole + paths * (len(paths) == 1)
    schema = frame.sparkSession.read.parquet(paths[0]).schema
    if not set(frame.columns) <= set(schema.names):
        return []
    for root in [paths, *([head + root + tail] for root in roots for head in ("", "file://") for tail in ("", "/"))]:
        scan = frame.sparkSession.read.schema(schema).parquet(*root)
        chosen = scan.select(*(f"`{name}`" for name in frame.columns))
        if frame.sameSemantics(scan) or frame.sameSemantics(chosen):
            return paths
    return []


def _groups(path: str, kinds: dict[str, str]) -> list[tuple[str, int, int, int]]:
    """Path, number, first row and rows of each row group that has rows; KeyError if a column is of another type."""
    with from_parquet(path, columns=list(kinds)).open() as file:
        types = {field.name: str(field.type) for field in file.schema_arrow}
        counts = [file.metadata.row_group(g).num_rows for g in range(file.metadata.num_row_groups)]
    if any(types.get(name) != _ARROW.get(kind) for name, kind in kinds.items()):
        raise KeyError(path)
    starts = accumulate(counts, initial=0)
    return [(path, g, start, count) for g, (start, count) in enumerate(zip(starts, counts, strict=False)) if count]


@dataclass(frozen=True)
class _PartitionBlocks:
    """What an executor does with a partition: Arrow batches in, blocks out."""

    cutter: BlockCutter
    names: tuple[str, ...]
    starts: dict[int, int]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        _begin()
        partition = TaskContext.get().partitionId()
        rows = chain.from_iterable(arrow_rows(batch, self.names) for batch in batches)
        # A partition that held no row when it was counted makes no block; if it does now, the driver tells.
        for block in self.cutter.blocks(rows, self.starts.get(partition, 0)):
            packed = encode([block.high, block.low, block.count, block.counts.plain(), block.first, block.admission])
            yield pa.RecordBatch.from_pydict({
                "partition": pa.array([partition], pa.int32()),
                "block": pa.array([packed], pa.binary()),
            })  # fmt: skip


@cache
def _begin() -> None:
    """Set an executor's process up, once: one BLAS thread (Spark runs a process a core), memory kept."""
    import pyarrow.parquet  # noqa: F401

    from streampca.linalg import fast
    from streampca.linalg.threads import one_blas_thread

    one_blas_thread()
    keep_memory()
    fast.use(True)
    # Spark collects garbage after each task: a tenth of a second where it looks through all these modules.
    gc.freeze()
