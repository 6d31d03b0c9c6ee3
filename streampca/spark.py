"""Spark: workers admit rows and sum them, the driver creates the releases. Classic sessions and Spark Connect.

    stream.absorb("s3://bucket/folder", SparkExecutor(spark, workers=64))  # Parquet files, the fast way
    absorb_frame(stream, frame)  # any DataFrame: all of it in one release, or in the order of a column

A streaming query, each epoch exactly once, also after the driver was killed:

    sink = EpochSink("run.db", name="readings", algorithm=algorithm, bounds=bounds, features=names)
    query = frames.writeStream.foreachBatch(sink).option("checkpointLocation", folder).start()

Workers need the driver's version of streampca, in the Python that ``PYSPARK_PYTHON`` names. Exact sums, as secret as
the rows, travel between them: turn on ``spark.network.crypto.enabled`` and ``spark.io.encryption.enabled``. Workers are
trusted as the curator is.
"""

from __future__ import annotations

import gc
import os
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from itertools import accumulate, chain
from typing import Any

import numpy as np

from streampca.conversion import column_runs, entries
from streampca.errors import BadParameterError, HorizonReachedError, StoreForkedError, UsageError
from streampca.linalg.counts import check_count
from streampca.linalg.svec import svec_size
from streampca.processors.base import Algorithm
from streampca.release.release import Release
from streampca.rows.admission import NO_COUNTS
from streampca.rows.protocol import arrow_rows
from streampca.store.records import encode
from streampca.store.store import Store
from streampca.stream.absorb import Open, gathered
from streampca.stream.blocks import BlockCutter, BlockGram, chunk_rows
from streampca.stream.executors import prepare_worker
from streampca.stream.step import Step
from streampca.stream.stream import Stream

#: Tasks of a Spark job at most, whose results fit in ``spark.driver.maxResultSize``; seconds that it waits for more.
_JOB_TASKS, _GATHER = 8, 0.02
#: Partitions whose blocks become one; bytes that a worker joins at a time, and that the driver fetches at a time.
_JOINS, _JOIN_BYTES, _FETCH_BYTES = 64, 2**28, 2**24
#: For ``release_every`` where rows are only summed.
_ENDLESS = 2**62


class SparkExecutor:
    """Executor for `Stream.absorb` whose workers are those of a Spark session.

    ``spark`` is the session, classic or of Spark Connect; ``workers``, the number of tasks that it runs at a time.
    """

    def __init__(self, spark: Any, *, workers: int) -> None:
        check_count("workers", workers)
        self.workers, self._spark = workers, spark
        # Jobs of a quarter of the workers run beside each other, so that none waits for the slowest of all tasks.
        self._size = min(_JOB_TASKS, max(1, workers // 4))
        self._threads = ThreadPoolExecutor(-(-2 * workers // self._size), "spark-jobs")
        self._waiting: deque[tuple[Future[Any], Callable[[Any], Any], Any]] = deque()
        self._lock = threading.Lock()

    def submit(self, fn: Callable[[Any], Any], item: Any) -> Future[Any]:
        """Call a function with an item in a worker."""
        future: Future[Any] = Future()
        self._waiting.append((future, fn, item))
        self._threads.submit(self._job)
        return future

    def _job(self) -> None:
        """Run some of the waiting tasks, if another job has not taken them."""
        if len(self._waiting) < self._size:
            time.sleep(_GATHER)
        with self._lock:
            count = min(self._size, len(self._waiting))
            taken = [self._waiting.popleft() for _ in range(count)]
        tasks = [task for task in taken if task[0].set_running_or_notify_cancel()]
        if not tasks:
            return
        try:
            calls = [(fn, item) for _, fn, item in tasks]
            frame = self._spark.range(0, len(tasks), 1, len(tasks))
            for row in frame.mapInArrow(lambda batches: _called(calls, batches), "id long, result binary").collect():
                # From one's own workers, as the results of any pool of processes.
                tasks[row.id][0].set_result(pickle.loads(row.result))  # noqa: S301
        except BaseException as problem:
            for future, _, _ in tasks:
                if not future.done():
                    future.set_exception(problem)


def _called(calls: list[tuple[Callable[[Any], Any], Any]], batches: Iterator[Any]) -> Iterator[Any]:
    """Call functions by their numbers. Runs in a worker."""
    import pyarrow as pa

    _begin()
    for number in chain.from_iterable(batch.column("id").to_pylist() for batch in batches):
        fn, item = calls[number]
        yield pa.RecordBatch.from_pydict({"id": [number], "result": pa.array([pickle.dumps(fn(item))], pa.binary())})


def absorb_frame(
    stream: Stream, frame: Any, *, columns: Sequence[str] | None = None, order: str | None = None
) -> Iterator[Step]:
    """Feed the rows of a DataFrame, summed by workers; yield a `Step` for each block.

    Parameters
    ----------
    stream : a stream whose algorithm accepts blocks (`Stream.push_block`) and whose features are known.
    frame : a Spark DataFrame that is not streaming. Arrays and vectors hold the features ``name[0]``, ``name[1]``, ...
    columns : names of the columns, in the order of features; by default those of the stream, or all. A column of arrays
        stands for its entries.
    order : column of public row numbers, each there once, which sorts the rows. Without it, all rows must be part of
        one release, since Spark's own order depends on sizes of files and partitions, hence on the rows.

    Raises `UsageError` or `HorizonReachedError` if the frame does not fit. No row was absorbed.
    """
    cutter = stream.leaves()
    if order is None:
        block = _sum(cutter, _selected(cutter, frame, columns))
        if block is not None:
            if block.count > (room := cutter.due(stream.t)):
                raise UsageError(
                    f"order=None, release_every={cutter.release_every}: the {block.count} rows of the frame do not fit "
                    f"in one release, which has room for {room}. Give a column of public row numbers as order=, or a "
                    "larger release_every"
                )
            yield stream.push_block(block)
    else:
        yield from map(stream.push_block, _in_order(cutter, _selected(cutter, frame, columns, order), stream.t))


def _selected(
    cutter: BlockCutter, frame: Any, columns: Sequence[str] | None, order: str | None = None
) -> tuple[Any, tuple[str, ...]]:
    """Return a frame of the columns of features, behind ``order``, and the names of the features in it."""
    import pyspark.sql.functions as f
    from pyspark.sql.types import BooleanType, NumericType

    if not hasattr(frame, "mapInArrow") or frame.isStreaming:
        raise BadParameterError(
            "frame", ..., "a Spark DataFrame that is not streaming", advice="Give a query an EpochSink"
        )
    kinds, d = {field.name: field.dataType for field in frame.schema.fields}, cutter.admission.known_features()
    names = [columns] if isinstance(columns, str) else list(columns or cutter.admission.features or frame.columns)
    if len(names) != d:
        lists = {name: 0 for name, kind in kinds.items() if kind.simpleString().startswith(("array", "vector"))}
        names = list(entries(names, lists, d))
    if isinstance(columns, str) or len(names) != d:
        raise BadParameterError("columns", columns, f"the {d} features of the stream, in order")
    if order is not None and order not in kinds:
        raise UsageError(f"order={order!r}: the frame has no such column. Give one of public row numbers")
    try:
        runs = column_runs(tuple(names), tuple(kinds))
    except KeyError as problem:
        raise UsageError(f"no column of the frame for the feature {problem}. Choose with columns=") from None
    try:
        f.lit(0)
    except AssertionError:
        raise UsageError("the session of the frame was stopped. Begin another, and read the frame in it") from None
    chosen, features = [], list[str]()
    for i, (name, width) in enumerate(runs.items()):
        kind, column = kinds[name], f.col(f"`{name.replace('`', '``')}`")
        if width and kind.simpleString() == "vector":
            from pyspark.ml.functions import vector_to_array

            column = vector_to_array(column)
        elif not isinstance(getattr(kind, "elementType", kind) if width else kind, (BooleanType, NumericType)):
            raise UsageError(f"column {name!r} of the frame does not hold numbers. Choose with columns=")
        chosen.append((column if width else column.cast("double")).alias(f"f{i}"))
        features += [f"f{i}[{j}]" for j in range(width)] or [f"f{i}"]
    if not any(runs.values()):
        # One column instead of many: Spark hands over values one by one.
        chosen, features = [f.array(*chosen).alias("f")], [f"f[{j}]" for j in range(len(names))]
    first = [] if order is None else [f.col(f"`{order.replace('`', '``')}`").alias("order")]
    return frame.select(*first, *chosen), tuple(features)


def _sum(cutter: BlockCutter, selected: tuple[Any, tuple[str, ...]]) -> BlockGram | None:
    """Return the sum of all rows of a frame, in any order; None without rows."""
    whole = replace(cutter, release_every=_ENDLESS, horizon=None)
    blocks = list(_blocks(whole, selected, None))
    return reduce(BlockGram.then, blocks) if blocks else None


def _in_order(cutter: BlockCutter, selected: tuple[Any, tuple[str, ...]], t: int) -> Iterator[BlockGram]:
    """Yield the blocks of a frame in the order of its first column, after t rows of the stream."""
    # Kept, because Spark sorts by samples of the rows: another pass may cut partitions elsewhere.
    frame = selected[0].orderBy("order").persist()
    try:
        found = frame.select("order").mapInArrow(_numbered, "partition int, rows long, repeats boolean").collect()
        # Privacy hazard: Spark's order of equal numbers depends on the rows.
        if any(one.repeats for one in found):
            raise UsageError("order=: a row number of the frame is missing, or there twice. Number the rows")
        if not found:
            return
        # Workers need the first row of their partition, to cut blocks where releases are due.
        partitions, rows, _ = zip(*sorted(found), strict=True)
        *starts, end = accumulate(rows, initial=t)
        if cutter.horizon is not None and end > cutter.horizon:
            raise HorizonReachedError(f"{sum(rows)} rows given, but the horizon leaves room for {cutter.horizon - t}")
        opened = Open(cutter, t)
        for block in _blocks(cutter, (frame.drop("order"), selected[1]), dict(zip(partitions, starts, strict=True))):
            opened.join(block)
            while (due := opened.take()) is not None:
                yield due
        while (due := opened.take(partial=True)) is not None:
            yield due
        # Privacy hazard: with other rows in the second pass, a row could be summed twice or not at all.
        if opened.t != end:
            raise UsageError("the second pass over the frame gave other partitions; cache it first (frame.cache())")
    finally:
        frame.unpersist()


def _numbered(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the number of a partition and of its rows, and whether one of their sorted numbers is null or repeated."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark import TaskContext

    rows, repeats, last = 0, False, None
    for batch in batches:
        numbers = batch.column(0) if last is None else pa.concat_arrays([last, batch.column(0)])
        same = pc.equal(numbers.slice(1), numbers.slice(0, max(0, len(numbers) - 1)))
        repeats = repeats or same.null_count > 0 or pc.any(same).as_py() is True
        rows, last = rows + batch.num_rows, numbers.slice(max(0, len(numbers) - 1))
    if rows:
        yield pa.RecordBatch.from_pydict(
            {"partition": pa.array([TaskContext.get().partitionId()], pa.int32()), "rows": [rows], "repeats": [repeats]}
        )


def _blocks(
    cutter: BlockCutter, selected: tuple[Any, tuple[str, ...]], starts: dict[int, int] | None
) -> Iterator[BlockGram]:
    """Yield the blocks of a frame, joined by workers, in the order of releases."""
    frame, names = selected
    size = 16 * svec_size(cutter.admission.admitted_features or 0)
    schema, joins = "release long, part long, block binary", max(2, min(_JOINS, _JOIN_BYTES // size))
    joined = frame.mapInArrow(lambda batches: _partition_sums(cutter, names, starts, joins, batches), schema)
    most, reach = _JOINS if starts is None else min(_JOINS, len(starts)), 1
    while reach < most:  # once, unless blocks are large: each level costs a shuffle
        # Spark counts the parameters of a function.
        joined = joined.groupBy("release", "part").applyInArrow(lambda table: _join(cutter, joins, table), schema)
        reach *= joins
    if starts is not None:
        releases = (max(starts.values(), default=0) - min(starts.values(), default=0)) // cutter.release_every
        count = -(-(releases + len(starts)) * size // _FETCH_BYTES)
        joined = joined.repartitionByRange(count, "release", "part").sortWithinPartitions("release", "part")
    # One partition at a time is in the driver's memory, and counts for ``spark.driver.maxResultSize``.
    for row in joined.select("block").toLocalIterator(prefetchPartitions=True):
        yield pickle.loads(row.block)  # noqa: S301  from one's own workers


def _partition_sums(
    cutter: BlockCutter, names: tuple[str, ...], starts: dict[int, int] | None, joins: int, batches: Iterator[Any]
) -> Iterator[Any]:
    """Yield the blocks of a partition, whose first row follows ``starts[partition]`` rows. Runs in a worker."""
    from pyspark import TaskContext

    _begin()
    partition, size = TaskContext.get().partitionId(), chunk_rows(len(names))
    rows = gathered(chain.from_iterable(arrow_rows(batch, names, size) for batch in batches), size)
    # A partition without rows in the first pass has no start. If it has rows now, the driver raises.
    for block in cutter.blocks(rows, (starts or {}).get(partition, 0)):
        release = ((block.first or 1) - 1) // cutter.release_every
        yield _packed(release, partition // joins, block if starts is not None else replace(block, first=None))


def _join(cutter: BlockCutter, joins: int, table: Any) -> Any:
    """Join the blocks of a release and part, as a share of the next level's parts. Runs in a worker."""
    import pyarrow as pa

    blocks = [pickle.loads(packed) for packed in table.column("block").to_pylist()]  # noqa: S301  of other workers
    if blocks[0].first is None:
        blocks = [reduce(BlockGram.then, blocks)]
    else:
        opened = Open(cutter, 0)
        for block in blocks:
            opened.join(block)
        blocks = [*opened.runs.values()]
    release, part = table.column("release")[0].as_py(), table.column("part")[0].as_py()
    return pa.Table.from_batches([_packed(release, part // joins, block) for block in blocks])


def _packed(release: int, part: int, block: BlockGram) -> Any:
    import pyarrow as pa

    packed = pa.array([pickle.dumps(block)], pa.binary())
    return pa.RecordBatch.from_pydict({"release": [release], "part": [part], "block": packed})


@dataclass(eq=False)
class EpochSink:
    """Function for ``foreachBatch`` that absorbs each epoch of a query once. Curator only.

    It holds a path and public settings, and opens the store at its first epoch, in whichever process Spark calls it.
    Others read the releases meanwhile with ``streampca export``.

    Parameters
    ----------
    store : path of the `Store`, which is begun, or resumed if it holds a run.
    name : name of the query. Another name begins with epoch 0.
    algorithm, stream_options : of the `Stream` to begin.
    columns, order : as in `absorb_frame`. Without ``order``, an epoch has at most ``release_every`` rows. If the open
        release has no room for it, its other rows are absent, and the epoch is part of the next one.
    on_release : function of each release, called at most once each, after its epoch is durable.
    accept_changed : skip an epoch that is delivered again with other rows, e.g. of a topic that was compacted.

    Spark repeats the last epoch after a crash. The rows of an epoch, its number and a keyed digest of its sum are one
    commit of the store, so that a repeated epoch is summed again, and skipped if the digest is the same.
    """

    store: str | os.PathLike[str]
    name: str
    algorithm: Algorithm | None = None
    columns: Sequence[str] | None = None
    order: str | None = None
    on_release: Callable[[Release], object] | None = None
    accept_changed: bool = False
    stream_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._opened: tuple[Stream, Store] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": None}

    def open(self) -> tuple[Stream, Store]:
        """Return the stream and its store."""
        if self._opened is None:
            store = Store(self.store)
            try:
                stream = Stream.resume(store)
            except UsageError:  # no run yet
                if self.algorithm is None:
                    raise
                stream = Stream(self.algorithm, store=store, **self.stream_options)
            stream.leaves()  # raises unless the stream accepts blocks
            self._opened = stream, store
        return self._opened

    def close(self) -> None:
        """Close the store. The next epoch opens it again."""
        if self._opened is not None:
            self._opened = self._opened[1].close()

    def __call__(self, frame: Any, epoch: int) -> None:
        """Absorb an epoch, unless it is durable already.

        Raises `StoreForkedError` if the epoch does not follow the last one, or is the last one with other rows.
        """
        stream, store = self.open()
        cutter, last = stream.leaves(), store.epoch or {}
        due = last["epoch"] + 1 if last.get("name") == self.name else 0
        advice = f"If this query has a new checkpoint and all its rows are new, give it a name other than {self.name!r}"
        if epoch not in (due - 1, due):
            raise StoreForkedError(f"epoch={epoch}: expected {due}. {advice}")
        if self.order is None or epoch < due:
            block = _sum(cutter, _selected(cutter, frame, self.columns))
            blocks = [] if block is None else [block]
        else:
            blocks = list(_in_order(cutter, _selected(cutter, frame, self.columns, self.order), stream.t))
            block = reduce(BlockGram.then, (replace(one, first=None) for one in blocks)) if blocks else None
        sums = b"" if block is None else encode([block.count, block.high, block.low])
        note = {"name": self.name, "epoch": epoch, "digest": store.mark(sums)}
        if epoch < due:
            if not note.items() <= last.items() and not self.accept_changed:
                raise StoreForkedError(
                    f"epoch={epoch}: delivered again with other rows. {advice}. If its source has changed, pass "
                    "accept_changed=True"
                )
            return
        if self.order is None and block is not None and block.count > (room := cutter.due(stream.t)):
            if block.count > (most := cutter.due(stream.t + room)):
                raise UsageError(
                    f"order=None, release_every={cutter.release_every}: an epoch of {block.count} rows, but a release "
                    f"has room for {most}. Limit the rows of an epoch, or give a column of public row numbers as order="
                )
            zeros = np.zeros_like(block.high)  # absent rows
            blocks = [replace(block, high=zeros, low=zeros, count=room, counts=NO_COUNTS), block]
        # Invariant: an epoch and its note are durable together, so that a repeated epoch is recognized.
        with store.in_one_commit(note):
            steps = [stream.push_block(one) for one in blocks]
        # After the commit: a release that was handed out is durable.
        if self.on_release is not None:
            for release in filter(None, (step.release for step in steps)):
                self.on_release(release)


@cache
def _begin() -> None:
    """Prepare a worker's process, once; Spark runs a process a core."""
    import pyarrow.parquet  # noqa: F401  imported before `gc.freeze`

    prepare_worker()
    # Spark collects garbage after each task, which takes 0.1 s if it examines all these modules.
    gc.freeze()
