"""Spark in local mode: the releases of one process, bit for bit, each epoch once.

Runs where pyspark and Java 17 are: ``pip install 'streampca[spark]'``. A session takes some 15 s to start.
Drivers that are killed: ``pytest -m long tests/integrations/test_spark_sink.py``.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import spark_driver as driver
from cluster import session, write_files
from runs import of_steps, texts

if importlib.util.find_spec("pyspark") is None:
    pytest.skip("needs pyspark: pip install 'streampca[spark]'", allow_module_level=True)
if shutil.which("java") is None:
    pytest.skip("Spark needs Java 17 on the path", allow_module_level=True)

import streampca as sp
from streampca.errors import HorizonReachedError, StoreForkedError, UsageError
from streampca.sources.parquet import from_parquet
from streampca.spark import EpochSink, absorb_frame, absorb_parquet, parquet_paths

# Of Spark's own: it warns of pandas 3, and leaves sockets to the garbage collector.
pytestmark = [pytest.mark.ci, pytest.mark.filterwarnings("ignore")]
N, D = 3300, 6
NAMES = [f"x{j}" for j in range(D)]
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PLAIN = "--conf spark.sql.codegen.wholeStage=false --conf spark.sql.adaptive.enabled=false"


@pytest.fixture(scope="module")
def spark():
    with pytest.MonkeyPatch.context() as patch:  # much of a short session is the compilation of Java code
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"--driver-java-options '{JAVA}' {PLAIN} pyspark-shell")
        with session() as opened:
            yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "data", N, D, files=3, group=400)[0].parent


def stream(store: sp.Store | None = None, horizon: int = N, **options) -> sp.Stream:
    algorithm = sp.PrivateFPL(n_components=2, epsilon=1.0, center=False, release_every=250, horizon=horizon)
    return sp.Stream(algorithm, features=NAMES, row_norm=2.0, seed=3, store=store, **options)


def single(rows: list[np.ndarray], **options) -> list[str]:
    one = stream(**options)
    return [text for block in rows for text in texts(one.push_many(block).releases)]


def in_order(folder: Path) -> list[np.ndarray]:
    return [block for path in sorted(folder.iterdir()) for block in from_parquet(path).blocks()]


def run(frames, sink: EpochSink, checkpoint: Path) -> None:
    writer = frames.writeStream.foreachBatch(sink).trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()


def test_files_read_by_executors(spark, folder: Path) -> None:
    expected = single(in_order(folder))
    assert len(expected) == 14
    assert of_steps(absorb_parquet(stream(), spark, sorted(folder.iterdir()))) == expected
    frame = spark.read.parquet(str(folder))
    assert of_steps(absorb_parquet(stream(), spark, sorted(frame.inputFiles()), columns=frame.columns)) == expected


@pytest.fixture
def arrow_calls(spark, monkeypatch) -> list[str]:
    calls, kind = [], type(spark.range(1))
    before = kind.mapInArrow

    def counted(*given):
        calls.append("mapInArrow")
        return before(*given)

    monkeypatch.setattr(kind, "mapInArrow", counted)
    return calls


def rows_in_order(frame) -> list[np.ndarray]:
    return [np.array([[row[name] for name in NAMES] for row in frame.toLocalIterator()], dtype=float)]


@pytest.mark.parametrize("split", [2**27, 20_000])
def test_a_frame_that_is_a_scan_is_read_from_its_files(spark, folder: Path, arrow_calls, split: int) -> None:
    """In the order of the frame, which goes by the sizes of files, or of parts of them."""
    write_files(folder.parent / "one", 1000, D, files=1, group=300)
    (folder.parent / "one" / "part000.parquet").rename(folder / "a smaller one.parquet")
    paths = [str(path) for path in folder.iterdir()]
    spark.conf.set("spark.sql.files.maxPartitionBytes", split)
    spark.conf.set("spark.sql.files.openCostInBytes", 1000)
    try:
        by_files = spark.read.parquet(*paths)
        for frame in (by_files, spark.read.parquet(f"file://{folder}/").select(*NAMES[::-1])):
            rows = rows_in_order(frame)
            assert of_steps(absorb_frame(stream(horizon=2 * N), frame)) == single(rows, horizon=2 * N)
            assert not arrow_calls
        with pytest.raises(HorizonReachedError, match="4300 rows given, but the horizon leaves room for 3300"):
            absorb_frame(stream(), by_files)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.openCostInBytes")


def test_any_other_frame_goes_through_spark(spark, folder: Path, tmp_path: Path, arrow_calls) -> None:
    whole = spark.read.parquet(str(folder))
    by_day = tmp_path / "by day"
    whole.selectExpr("*", "cast(x0 > 0 as int) as day").write.partitionBy("day").parquet(str(by_day))
    decimals, both = tmp_path / "decimals", tmp_path / "both"
    whole.selectExpr(*(f"cast({name} as decimal(20, 12)) as {name}" for name in NAMES)).write.parquet(str(decimals))
    shutil.copytree(folder, both)
    shutil.copy(next(decimals.glob("*.parquet")), both / "z.parquet")
    frames = [
        whole.where("x0 > -0.2").selectExpr("*", "'a' as name"),
        whole.limit(700),
        whole.sortWithinPartitions("x1"),
        whole.union(whole),
        whole.withColumn("x0", whole["x1"]),
        whole.repartition(2, "x0").cache(),
        spark.read.option("mergeSchema", "true").parquet(str(folder)),
        spark.read.parquet(str(by_day)),
        spark.read.parquet(str(decimals)),
        spark.createDataFrame([tuple(float(j) for j in range(D))], NAMES),
    ]
    for at, frame in enumerate(frames):
        rows = rows_in_order(frame)
        assert of_steps(absorb_frame(stream(horizon=2 * N), frame)) == single(rows, horizon=2 * N), at
        assert len(arrow_calls) == at + 1, at
    with pytest.raises(Exception, match="both"):  # of two types: Spark names the file
        absorb_frame(stream(horizon=4 * N), spark.read.schema(whole.schema).parquet(str(both)))
    with pytest.raises(UsageError, match="'name' of the frame does not hold numbers"):
        absorb_frame(stream(), frames[0], columns=[*NAMES[1:], "name"])
    full = stream(horizon=300)
    with pytest.raises(HorizonReachedError, match="horizon leaves room for 300"):
        absorb_frame(full, frames[0])
    assert full.t == 0


class StopError(Exception):
    """The driver dies."""


def test_epochs_that_come_again_are_absorbed_once(spark, folder: Path, tmp_path: Path) -> None:
    """The driver fails twice: before an epoch is durable, and after, before Spark knows."""
    expected = single(in_order(folder))
    reader = spark.readStream.schema(spark.read.parquet(str(folder)).schema)
    frames = reader.option("maxFilesPerTrigger", 1).parquet(str(folder))
    store = sp.Store(tmp_path / "run.db")
    first = stream(store)
    push, world = first.push_block, []

    def failing(block):
        if first.t >= 2000:
            raise StopError("before the commit of the second epoch")
        return push(block)

    first.push_block = failing
    with pytest.raises(Exception, match="before the commit"):
        run(frames, EpochSink(first, store, on_release=world.append), tmp_path / "checkpoint")
    assert store.durable == 1100
    store.close()

    def after(release):
        world.append(release)
        if release.t == 2000:
            raise StopError("after the commit")

    with sp.Store(tmp_path / "run.db") as store:
        resumed = sp.Stream.resume(store)
        with pytest.raises(Exception, match="after the commit"):
            run(frames, EpochSink(resumed, store, on_release=after), tmp_path / "checkpoint")
        assert (store.durable, store.epoch["epoch"]) == (2200, 1)
    with sp.Store(tmp_path / "run.db") as store:
        resumed = sp.Stream.resume(store)
        run(frames, EpochSink(resumed, store, on_release=world.append), tmp_path / "checkpoint")
        assert (store.durable, store.epoch["epoch"]) == (N, 2)
        assert texts(store.releases()) == expected
        assert set(texts(world)) <= set(expected)
        # A query with a new checkpoint would bring the same rows again.
        with pytest.raises(Exception, match="keep its checkpointLocation"):
            run(frames, EpochSink(resumed, store), tmp_path / "another")
        assert resumed.t == N


def test_paths_in_epochs(spark, folder: Path, tmp_path: Path) -> None:
    store = sp.Store(":memory:")
    out = stream(store)
    sink = EpochSink(out, store)
    run(parquet_paths(spark, str(folder), files_per_epoch=2), sink, tmp_path / "checkpoint")
    assert store.epoch["epoch"] == 1
    assert texts(store.releases()) == single(in_order(folder))
    with pytest.raises(StoreForkedError, match="epoch=7: expected 0"):
        EpochSink(out, store, new_query=True)(spark.range(1), 7)


def _seen(world: Path) -> list[str]:
    return world.read_text().splitlines() if world.exists() else []


def _kill_workers(pid: int) -> int:
    """Kill the Python processes below a process, and return their number; one that has just ended is not counted."""
    killed = 0
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in map(int, path.read_text().split()):
                killed += _kill_workers(child)
                if "python" in Path(f"/proc/{child}/comm").read_text():
                    os.kill(child, signal.SIGKILL)
                    killed += 1
    return killed


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "rows", "features", "victims"),
    [
        ("files", 10**6, 64, {150: "driver", 600: "driver"}),  # 3 minutes each on two cores
        ("epochs", 10**6, 64, {150: "driver", 600: "driver"}),
        ("rows", 20_000, 6, {3: "driver", 8: "worker"}),  # a Structured Streaming query of DataFrames
    ],
)
def test_a_killed_driver_or_worker_loses_and_repeats_nothing(
    tmp_path: Path, how: str, rows: int, features: int, victims: dict[int, str]
) -> None:
    data, world = tmp_path / "data", tmp_path / "world.txt"
    write_files(data, rows, features, files=20, group=2**14)
    whole = driver.new_stream(features, None)
    made = [release for block in in_order(data) for release in whole.push_many(block).releases]
    expected = [f"{release.t} {driver.digest(release)}" for release in made]
    assert len(expected) == rows // driver.EVERY
    options = {"--how": how, "--data": data, "--world": world, "--run": tmp_path / "run.db"}
    command = [sys.executable, driver.__file__, *itertools.chain(*options.items())]
    found = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for share, victim in [*victims.items(), (rows, "")]:
        with subprocess.Popen(command, env=found, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            while len(_seen(world)) < share and child.poll() is None:
                time.sleep(0.05)
            if victim:
                assert child.returncode is None, "the driver ended before it was killed"
            if victim == "driver":
                child.kill()
            while victim == "worker" and not _kill_workers(child.pid):  # there is none between two tasks
                assert child.poll() is None, "the driver ended before its worker was killed"
        # Without its worker the query fails, or Spark tries the task again.
        assert victim or child.returncode == 0
    # A release of files may be read again, or not at all by a driver that was killed; never another in its place.
    seen = [line for line in _seen(world) if len(line.split()[-1]) == 32]
    assert set(seen) <= set(expected)
    assert how == "files" or len(seen) == len(set(seen))
    with sp.Store(tmp_path / "run.db") as store:
        assert sp.Stream.resume(store).t == rows
        assert [f"{release.t} {driver.digest(release)}" for release in store.releases()] == expected
