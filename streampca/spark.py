"""Spark: executors admit rows and sum them, the driver creates the releases.

    for step in absorb_parquet(stream, spark, paths):  # Parquet files, the fast way
        step.release
    steps = absorb_frame(stream, frame)  # any DataFrame, in the order of its partitions

A streaming query, each epoch exactly once, also after the driver was killed:

    store = Store("run.db")
    stream = Stream.resume(store) if started else Stream(algorithm, bounds=bounds, features=names, store=store)
    query = (frames.writeStream.foreachBatch(EpochSink(stream, store))
             .option("checkpointLocation", folder).start())

``frames`` is any streaming DataFrame, or `parquet_paths` of a folder, which executors read several times faster.

Install the driver's version of streampca on the executors, in the Python that ``PYSPARK_PYTHON`` names. Exact Gram
matrices of blocks travel to the driver. They are as secret as raw rows: turn on ``spark.network.crypto.enabled`` and
``spark.io.encryption.enabled``. Executors are trusted as the curator is. The releases are those of one process whose
`Stream` absorbs the same rows in the same order, bit for bit. A block of d features is about ``4 d (d + 1)`` bytes, and
there is one a release: executors help if ``release_every`` is several times d.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass
from functools import cache, partial
from itertools import chain, pairwise, product
from typing import Any

from streampca.errors import SourceError, StoreForkedError, UsageError
from streampca.pool import Paths, RowGroup, Task, check_room, keep_memory, local_path, row_groups, task_blocks, tasks_of
from streampca.readers import pack, unpack
from streampca.release.release import Release
from streampca.rows.protocol import arrow_rows
from streampca.sources.parquet import damage, from_parquet
from streampca.store.store import Store
from streampca.stream.blocks import BlockCutter, BlockGram
from streampca.stream.step import Step
from streampca.stream.stream import Stream

# Rows of a task, rounded up to whole row groups: about 50 ms of CPU, the overhead of a Spark task.
_TASK_ROWS = 2**18
# Tasks of a Spark job per slot: the next job runs while the blocks of the previous one are absorbed.
_WAVE = 2
_PATHS = ["path", "modificationTime"]  # columns of the frames of `parquet_paths`
# Spark's and Arrow's names of the types that both read as the same numbers.
_ARROW = {
    "double": "double", "float": "float", "bigint": "int64", "int": "int32", "smallint": "int16", "tinyint": "int8",
    "boolean": "bool",
}  # fmt: skip


def absorb_parquet(
    stream: Stream, spark: Any, paths: Paths, *, columns: Sequence[str] | None = None, before: int = 0
) -> Iterator[Step]:
    """Feed the rows of Parquet files, in order, read and summed by executors.

    Rows that the stream has absorbed are skipped: a durable stream continues with the same paths.

    Parameters
    ----------
    spark : the Spark session.
    stream, paths, columns, before : as in `streampca.pool.absorb_parquet`. Paths must be valid on every machine.

    Yields and raises the same.
    """
    cutter, size = stream.leaves(), _WAVE * spark.sparkContext.defaultParallelism
    tasks = _tasks(spark, row_groups(stream, paths, columns, before))
    # A wave keeps all slots busy and bounds the blocks that wait on the driver.
    waves = [tasks[start : start + size] for start in range(0, len(tasks), size)]
    with ThreadPoolExecutor(1) as ahead:
        jobs = (ahead.submit(_run, spark, cutter, wave) for wave in waves)
        # `pairwise` submits the next job before the blocks of this one are absorbed.
        for job, _ in pairwise(chain(jobs, [None])):
            assert job is not None
            yield from map(stream.push_block, job.result())


def absorb_frame(stream: Stream, frame: Any, *, columns: Sequence[str] | None = None) -> list[Step]:
    """Feed the rows of a DataFrame, in the order of its partitions, summed by executors.

    If the frame is the result of ``spark.read.parquet``, or a selection of its columns, executors read the files
    directly. Any other plan runs twice, once to count the rows of each partition, and must give the same partitions
    both times (otherwise, cache it).

    Parameters
    ----------
    stream, columns : as in `streampca.pool.absorb_parquet`.
    frame : a Spark DataFrame that is not streaming.

    Raises
    ------
    UsageError, HorizonReachedError
        If the frame does not fit. No row was absorbed.
    """
    return [stream.push_block(block) for block in _frame_blocks(stream, frame, columns)]


@dataclass(eq=False)
class EpochSink:
    """Function for ``foreachBatch`` that absorbs each epoch of a query once. Curator only.

    Parameters
    ----------
    stream : a stream whose algorithm accepts blocks (`Stream.push_block`) and whose features are known.
    store : the `Store` of the stream. Its `releases` are complete, also after a crash.
    columns : as in `streampca.pool.absorb_parquet`.
    on_release : function of each release, called at most once each, after its epoch is durable.
    new_query : whether to continue with a query of another checkpoint, all of whose rows are new.

    Notes
    -----
    Spark delivers an epoch at least once: after a crash, it repeats the last one under the same number. An epoch, its
    number and its releases become durable in one commit of the store, and a repeated epoch is skipped. The rows of an
    interrupted one were part of no release that left the process, so that two releases never have the same noise for
    different rows, even if the engine reorders the rows of a repeated epoch.
    """

    stream: Stream
    store: Store
    _: KW_ONLY
    columns: Sequence[str] | None = None
    on_release: Callable[[Release], object] | None = None
    new_query: bool = False

    def __post_init__(self) -> None:
        self.stream.leaves()  # raises unless the stream accepts blocks

    def __call__(self, frame: Any, epoch: int) -> None:
        """Absorb an epoch, unless it is durable already.

        Raises `StoreForkedError` if the epoch is of another query than the store's, or does not follow its last.
        """
        spark, last = frame.sparkSession, self.store.epoch
        query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        if last is not None and last["query"] != query and not self.new_query:
            raise StoreForkedError(
                f"the store has absorbed epochs of query {last['query']}, this is query {query}: keep its "
                "checkpointLocation; or, if all rows of this query are new, pass new_query=True"
            )
        due = 0 if last is None or last["query"] != query else last["epoch"] + 1
        if epoch > due:
            raise StoreForkedError(
                f"epoch={epoch}: expected {due}, since other epochs were absorbed elsewhere; continue with that store, "
                "or give the query a checkpointLocation of its own"
            )
        if epoch < due:
            return
        if frame.columns == _PATHS:
            # Times, then names: the order does not depend on how Spark lists the folder.
            files = sorted(frame.selectExpr("unix_micros(modificationTime)", "path").collect())
            filled = []
            for _, path in files:
                with damage(path, "cannot be read as Parquet"):
                    from pyarrow.parquet import read_metadata

                    if read_metadata(local_path(path)).num_rows:  # engines write files for empty partitions, too
                        filled.append(path)
            groups = row_groups(self.stream, filled, self.columns, self.stream.t) if filled else []
            blocks = _run(spark, self.stream.leaves(), _tasks(spark, groups))
        else:
            blocks = _frame_blocks(self.stream, frame, self.columns)
        # Invariant: an epoch and its number are durable together, so that a repeated epoch is recognized.
        with self.store.in_one_commit({"query": query, "epoch": epoch}):
            steps = [self.stream.push_block(block) for block in blocks]
        self.new_query = False
        # After the commit: a release that was handed out is durable.
        if self.on_release is not None:
            for step in steps:
                if step.release is not None:
                    self.on_release(step.release)


def parquet_paths(spark: Any, folder: str, *, files_per_epoch: int | None = None) -> Any:
    """Stream the paths of Parquet files as they appear in a folder, for `EpochSink`.

    The rows of an epoch are in the order of the files' times, then names. A file must appear whole (write it
    elsewhere, then move it), as for Spark's own reader.
    """
    schema = "path string, modificationTime timestamp, length long, content binary"
    reader = spark.readStream.format("binaryFile").schema(schema).option("pathGlobFilter", "*.parquet")
    if files_per_epoch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_epoch)
    return reader.load(folder).select(*_PATHS)


def _tasks(spark: Any, groups: list[RowGroup]) -> list[Task]:
    """Return tasks of `_TASK_ROWS` rows, or of an equal share of all rows if that is less: no slot is idle."""
    share = sum(group.count for group in groups) // spark.sparkContext.defaultParallelism
    return tasks_of(groups, min(_TASK_ROWS, share))


def _run(spark: Any, cutter: BlockCutter, tasks: list[Task]) -> list[BlockGram]:
    """Return the blocks of these tasks, in order, by one Spark job."""
    if not tasks:
        return []
    parts = spark.sparkContext.parallelize(tasks, len(tasks)).map(partial(_task_blocks, cutter)).collect()
    return list(chain.from_iterable(parts))


def _task_blocks(cutter: BlockCutter, task: Task) -> list[BlockGram]:
    _begin()
    return task_blocks(cutter, task)


def _frame_blocks(stream: Stream, frame: Any, columns: Sequence[str] | None) -> list[BlockGram]:
    """Return the blocks of the next frame, in order. Their row counts are checked against a first pass."""
    from pyspark.sql.functions import spark_partition_id
    from pyspark.sql.types import BooleanType, NumericType

    cutter = stream.leaves()
    names = list(columns if columns is not None else stream.features or frame.columns)
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    for name in names:
        if not isinstance(kinds.get(name), (BooleanType, NumericType)):
            problem = "does not exist" if name not in kinds else "does not hold numbers"
            raise UsageError(f"column {name!r} of the frame {problem}; choose with columns=")
    groups = _scanned(frame, {name: kinds[name].simpleString() for name in names}, stream.t)
    if groups is not None:
        check_room(stream, sum(group.count for group in groups))
        return _run(frame.sparkSession, cutter, _tasks(frame.sparkSession, groups))
    frame = frame.select(*(f"`{name}`" for name in names))
    counts = {row[0]: row[1] for row in frame.groupBy(spark_partition_id()).count().collect()}
    check_room(stream, sum(counts.values()))
    # Executors need the first row of their partition, to cut blocks where releases are due.
    starts, at = {}, stream.t
    for partition in sorted(counts):
        starts[partition] = at
        at += counts[partition]
    blocks, seen = [], dict.fromkeys(starts, 0)
    for row in frame.mapInArrow(_PartitionBlocks(cutter, tuple(names), starts), "block binary").collect():
        partition, block = unpack(row.block)
        blocks.append(block)
        seen[partition] = seen.get(partition, 0) + block.count
    # Privacy hazard: with other rows in the second pass, a row could be summed twice or not at all.
    if seen != counts:
        raise UsageError("the second pass over the frame gave other partitions; cache it first (frame.cache())")
    return sorted(blocks, key=lambda block: block.first or 0)


def _scanned(frame: Any, kinds: dict[str, str], at: int) -> list[RowGroup] | None:
    """Return the row groups of files that a frame holds unchanged, in the order of its partitions; None if in doubt.

    Spark reports the places of the first and the last row of each group among the rows of the frame. Executors then
    read the same columns, ``kinds`` (names, and types in Spark's words; others are in doubt), without Spark's row
    format. ``at`` rows of the stream come before.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    try:
        groups: list[tuple[str, int, int, int]] = []  # path, number, first row and rows of each group with rows
        for path in _files(frame):
            source, start = from_parquet(path, columns=list(kinds)), 0
            with source.open() as file:
                types = {field.name: str(field.type) for field in file.schema_arrow}
            if any(types.get(name) != _ARROW.get(kind) for name, kind in kinds.items()):
                return None
            for number, count in enumerate(source.group_rows):
                groups += [(path, number, start, count)] if count else []
                start += count
        if not groups:
            return None
        edges = {row for _, _, start, count in groups for row in (start, start + count - 1)}
        # The third increases by one from row to row, and by more from partition to partition.
        place = f.col("_metadata.file_path"), f.col("_metadata.row_index"), f.monotonically_increasing_id()
        rows = frame.select(*place).toDF(*"prm").where(f"r in ({', '.join(map(str, edges))})").collect()
        # One entry an edge, unless the frame repeats rows.
        places = {(str(local_path(path)), row): place for path, row, place in rows}
        if len(places) != len(rows):
            return None
        found: list[RowGroup] = []
        for path, number, start, count in sorted(groups, key=lambda group: places[group[0], group[2]]):
            if places[path, start + count - 1] - places[path, start] != count - 1:
                return None  # some rows of the group are missing or reordered
            found.append(RowGroup(path, number, 0, count, at, tuple(kinds)))
            at += count
    except (PySparkException, UsageError, SourceError, OSError, KeyError):
        return None
    return found


def _files(frame: Any) -> list[str]:
    """Return the files of a frame that ``spark.read.parquet`` reads from them or their folder; none of another."""
    paths = [str(local_path(path)) for path in frame.inputFiles()]
    kept = frame.storageLevel
    if not paths or kept.useMemory or kept.useDisk:
        return []
    schema = frame.sparkSession.read.parquet(paths[0]).schema
    if not set(frame.columns) <= set(schema.names):
        return []
    folder = os.path.dirname(paths[0])
    # Spark compares the spelling of paths.
    for root in [paths, *([head + folder + tail] for head, tail in product(("", "file://"), ("", "/")))]:
        scan = frame.sparkSession.read.schema(schema).parquet(*root)
        chosen = scan.select(*(f"`{name}`" for name in frame.columns))
        if frame.sameSemantics(scan) or frame.sameSemantics(chosen):
            return paths
    return []


@dataclass(frozen=True)
class _PartitionBlocks:
    """Function of an executor from the Arrow batches of a partition to its blocks."""

    cutter: BlockCutter
    names: tuple[str, ...]
    starts: dict[int, int]

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        _begin()
        partition = TaskContext.get().partitionId()
        rows = chain.from_iterable(arrow_rows(batch, self.names) for batch in batches)
        # A partition without rows in the first pass has no start. If it has rows now, the driver raises.
        for block in self.cutter.blocks(rows, self.starts.get(partition, 0)):
            yield pa.RecordBatch.from_pydict({"block": pa.array([pack(partition, block)], pa.binary())})


@cache
def _begin() -> None:
    """Prepare an executor's process, once: one BLAS thread (Spark runs a process a core), freed memory kept."""
    import pyarrow.parquet  # noqa: F401

    from streampca.linalg.threads import one_blas_thread

    one_blas_thread()
    keep_memory()
    # Spark collects garbage after each task, which takes 0.1 s if it examines all these modules.
    gc.freeze()
