"""Spark in local mode: the releases of one process, bit for bit, each epoch once.

Runs where pyspark and Java 17 are: ``pip install 'streampca[spark]'``. A session takes some 15 s to start.
Drivers that are killed: ``pytest -m long tests/integrations/test_spark.py``.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import spark_driver as driver
from cluster import session, write_files
from runs import of_steps, texts

if importlib.util.find_spec("pyspark") is None:
    pytest.skip("needs pyspark: pip install 'streampca[spark]'", allow_module_level=True)
if shutil.which("java") is None:
    pytest.skip("Spark needs Java 17 on the path", allow_module_level=True)

import streampca as sp
from streampca.errors import AbsorbInterruptedError, HorizonReachedError, StoreForkedError, UsageError
from streampca.sources.parquet import from_parquet
from streampca.spark import EpochSink, SparkExecutor, _blocks, _selected, absorb_frame
from streampca.store.database import Database

# Of Spark's own: it warns of pandas 3, and leaves sockets to the garbage collector.
pytestmark = [pytest.mark.ci, pytest.mark.filterwarnings("ignore")]
N, D = 3300, 6
NAMES = [f"x{j}" for j in range(D)]
SIZES = 150, 400, 401, 500, 999, 2000, None
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PLAIN = "--conf spark.sql.codegen.wholeStage=false --conf spark.sql.adaptive.enabled=false"
LIMIT = "--conf spark.driver.maxResultSize=64m"


@pytest.fixture(scope="module")
def spark():
    with pytest.MonkeyPatch.context() as patch:  # much of a short session is the compilation of Java code
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"--driver-java-options '{JAVA}' {PLAIN} {LIMIT} pyspark-shell")
        with session() as opened:
            yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "data", N, D, files=3, group=400)[0].parent


def algorithm(every: int = 250, horizon: int = 2 * N) -> sp.PrivateFPL:
    return sp.PrivateFPL(n_components=2, epsilon=1.0, release_every=every, horizon=horizon)


OPTIONS = {"features": NAMES, "row_norm": 2.0, "seed": 3}


def stream(every: int = 250, horizon: int = 2 * N, **options) -> sp.Stream:
    return sp.Stream(algorithm(every, horizon), **OPTIONS | options)


def in_order(folder: Path) -> list[np.ndarray]:
    return [block for path in sorted(folder.iterdir()) for block in from_parquet(path, columns=NAMES).blocks()]


def single(rows: list[np.ndarray], every: int = 250) -> list[str]:
    return texts(stream(every).push_many(np.concatenate(rows)).releases)


def test_files_read_by_workers(spark, folder: Path) -> None:
    executor, expected = SparkExecutor(spark, workers=2), single(in_order(folder))
    assert len(expected) == 13
    for size in SIZES:
        assert of_steps(stream().absorb(folder, executor, rows_per_task=size)) == expected, size
    with pytest.raises(AbsorbInterruptedError):
        next(stream().absorb(folder, SparkExecutor(None, workers=2)))


def test_a_null_in_row_7_of_a_million_is_named_after_one_task(spark, tmp_path: Path, caplog, monkeypatch) -> None:
    column = pa.array([None if i == 6 else 0.5 for i in range(8)] + [0.5] * (10**6 - 8))
    pq.write_table(pa.table({"x0": column, "x1": column}), tmp_path / "long.parquet", row_group_size=2**14)
    executor, ran = SparkExecutor(spark, workers=2), []
    monkeypatch.setattr(pickle, "loads", lambda data, loads=pickle.loads: ran.append(loads(data)) or ran[-1])
    options = {"features": ["x0", "x1"]}
    with caplog.at_level(logging.WARNING, "streampca.curator"):
        next(stream(2**14, 2**20, **options).absorb(tmp_path, executor, rows_per_task=2**14, in_flight=2))
    assert f"row 7, row 7 of {tmp_path}/long.parquet, could not be used, as it lacks a number" in caplog.text
    assert len(ran) <= 5  # results of the workers, of which one is a footer: no task is repeated
    out = stream(10**6, 2**20, **options)
    assert len(of_steps(absorb_frame(out, spark.read.parquet(str(tmp_path))))) == 1
    assert out.admission.bad_rows == 1


def test_a_frame_in_one_release_or_in_the_order_of_a_column(spark, folder: Path, monkeypatch) -> None:
    rows = in_order(folder)
    frame = spark.read.parquet(str(folder)).repartition(4)
    expected = single(rows, N)
    assert len(expected) == 1
    assert of_steps(absorb_frame(stream(N), frame)) == expected
    # Large blocks are joined in several levels, here two at a time, until one is left of four partitions.
    monkeypatch.setattr("streampca.spark._JOIN_BYTES", 1)
    monkeypatch.setattr("streampca.spark._JOINS", 4)
    cutter = stream(N).leaves()
    joined = [*_blocks(cutter, _selected(cutter, frame, None), None)]
    assert [block.count for block in joined] == [N]
    assert of_steps(absorb_frame(stream(N), frame)) == expected
    with pytest.raises(UsageError, match=r"order=None, release_every=250: the 3300 rows .* room for 250"):
        next(absorb_frame(stream(), frame))
    values = np.concatenate(rows)
    numbered = np.column_stack([values, np.arange(N)]).tolist()
    np.random.default_rng(3).shuffle(numbered)
    ordered = spark.createDataFrame(numbered, [*NAMES, "row number"]).repartition(4)
    assert of_steps(absorb_frame(stream(), ordered, order="row number")) == single(rows)
    for number in ("nullif(`row number`, 7)", "floor(`row number` / 2)"):
        numbers = ordered.selectExpr(*NAMES, f"{number} as `at```")
        with pytest.raises(UsageError, match="a row number of the frame is missing, or there twice"):
            next(absorb_frame(stream(), numbers, order="at`"))
    with pytest.raises(HorizonReachedError, match="3300 rows given, but the horizon leaves room for 300"):
        next(absorb_frame(stream(horizon=300), ordered, order="row number"))
    with pytest.raises(UsageError, match="'name' of the frame does not hold numbers"):
        next(absorb_frame(stream(), frame.selectExpr("*", "'a' as name"), columns=[*NAMES[1:], "name"]))
    with pytest.raises(UsageError, match="no column of the frame for the feature 'y'"):
        next(absorb_frame(stream(), frame, columns=[*NAMES[1:], "y"]))
    for wrong in ({"columns": "abc"}, {"columns": NAMES[:1]}, {"order": "nowhere"}):
        with pytest.raises(UsageError, match=r"=.*: (expected the|the frame has no such column)"):
            next(absorb_frame(stream(), frame, **wrong))
    for other in (frame.toPandas(), spark.readStream.schema(frame.schema).parquet(str(folder))):
        with pytest.raises(UsageError, match="a Spark DataFrame that is not streaming"):
            next(absorb_frame(stream(), other))
    assert list(absorb_frame(stream(), frame.limit(0))) == []


def test_arrays_and_vectors_are_features(spark) -> None:
    from pyspark.ml.functions import array_to_vector

    rows = np.random.default_rng(2).normal(size=(100, 3))
    rows[[7, 9]] = np.nan
    cells = [(float(a), [b, c]) for a, b, c in rows.tolist()]
    cells[7], cells[9] = (None, [1.0, 2.0]), (1.0, [1.0])
    frame = spark.createDataFrame(cells, "a double, e array<double>")
    options = {"features": ["e[0]", "e[1]", "a"]}
    expected = texts(stream(100, **options).push_many(rows[:, [1, 2, 0]]).releases)
    vectors = frame.withColumn("e", array_to_vector("e"))
    for each in (frame, vectors):  # a column stands for its entries
        assert of_steps(absorb_frame(stream(100, **options), each, columns=["e", "a"])) == expected
    out = stream(100, **options)
    assert of_steps(absorb_frame(out, frame)) == expected
    assert out.admission.bad_rows == 2
    assert of_steps(absorb_frame(stream(100, **options), vectors)) == expected


def test_embeddings_have_the_digest_of_files(spark, tmp_path: Path) -> None:
    rows = np.random.default_rng(3).normal(size=(2000, 768)).astype(np.float32) / 30
    cells = [*rows]
    cells[7], cells[9] = None, rows[9][:700]
    rows[[7, 9]] = np.nan
    pq.write_table(pa.table({"e": pa.array(cells, pa.list_(pa.float32()))}), tmp_path / "e.parquet", row_group_size=300)
    options = {"features": [f"e[{i}]" for i in range(768)]}
    expected = texts(stream(2000, **options).push_many(rows).releases)
    assert of_steps(stream(2000, **options).absorb(tmp_path / "e.parquet")) == expected
    executor = SparkExecutor(spark, workers=2)
    assert of_steps(stream(2000, **options).absorb(tmp_path / "e.parquet", executor, rows_per_task=600)) == expected
    out, frame = stream(2000, **options), spark.read.parquet(str(tmp_path)).repartition(3)
    assert of_steps(absorb_frame(out, frame)) == expected
    assert out.admission.bad_rows == 2


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_blocks_of_more_bytes_than_a_result_may_have(spark, monkeypatch) -> None:
    """4000 blocks are 144 MB. Without a limit of what is fetched at a time, Spark ends at ``maxResultSize``."""
    n, names = 4000, [f"x{j}" for j in range(64)]
    frame = spark.range(n).selectExpr("id", *(f"id * {j + 1} % 7 / 50D as x{j}" for j in range(64)))
    rows = np.arange(n)[:, None] * (np.arange(64) + 1) % 7 / 50.0
    out, before, most = stream(1, n, features=names), _resident(), 0
    for _ in absorb_frame(out, frame, order="id"):
        most = max(most, _resident() - before)
    assert out.release.to_json() == stream(1, n, features=names).push_many(rows).releases[-1].to_json()
    assert most <= 200e6
    monkeypatch.setattr("streampca.spark._FETCH_BYTES", 2**50)
    with pytest.raises(Exception, match=r"bigger than spark.driver.maxResultSize"):
        next(absorb_frame(stream(1, n, features=names), frame.where("id < 2000"), order="id"))


class StopError(Exception):
    """The driver dies."""


def run(frames, sink: EpochSink, checkpoint: Path) -> None:
    writer = frames.writeStream.foreachBatch(sink).trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()


def released(path: Path) -> list[str]:
    with closing(Database(str(path), write=False)) as database:
        return texts(database.releases())


def test_epochs_that_come_again_are_absorbed_once(spark, folder: Path, tmp_path: Path) -> None:
    """The driver fails twice: before an epoch is durable, and after, before Spark knows."""
    path, world, rows = tmp_path / "run.db", [], in_order(folder)
    reader = spark.readStream.schema(spark.read.parquet(str(folder)).schema)
    frames = reader.option("maxFilesPerTrigger", 1).parquet(str(folder))
    options = {"algorithm": algorithm(1500), "stream_options": OPTIONS, "name": "rows"}
    sink = EpochSink(path, **options, on_release=world.append)
    out, store = sink.open()
    push = out.push_block

    def failing(block):
        if out.t >= 1100:
            raise StopError("before the commit of the second epoch")
        return push(block)

    out.push_block = failing
    with pytest.raises(Exception, match="before the commit"):
        run(frames, sink, tmp_path / "checkpoint")
    assert store.durable == 1100
    sink.close()

    def after(release) -> None:
        world.append(release)
        raise StopError("after the commit")

    sink = EpochSink(path, **options, on_release=after)
    with pytest.raises(Exception, match="after the commit"):
        run(frames, sink, tmp_path / "checkpoint")
    assert sink.open()[1].epoch["epoch"] == 1
    sink.close()
    sink = pickle.loads(pickle.dumps(EpochSink(path, **options)))
    run(frames, sink, tmp_path / "checkpoint")
    # An epoch of 1100 rows begins the next release where the open one has room for 400.
    absent = np.full((400, D), np.nan)
    parts = [rows[0], absent, rows[1], absent, rows[2]]
    assert (sink.open()[0].t, sink.open()[1].epoch["epoch"]) == (4100, 2)
    assert released(path) == single(parts, 1500)
    assert set(texts(world)) <= set(released(path))
    # A query with a new checkpoint brings the same rows again.
    with pytest.raises(Exception, match=r"epoch=0: expected 3.*name other than"):
        run(frames, sink, tmp_path / "another")
    frame = spark.read.parquet(str(folder)).limit(50)
    with pytest.raises(StoreForkedError, match="epoch=2: delivered again with other rows"):
        sink(frame, 2)
    EpochSink(path, **options, accept_changed=True)  # holds no store yet
    sink.accept_changed = True
    sink(frame, 2)
    assert sink.open()[0].t == 4100
    with pytest.raises(UsageError, match="an epoch of 3300 rows"):
        sink(spark.read.parquet(str(folder)), 3)
    # The same rows again, in other partitions: recognized by their sum.
    sink(spark.read.parquet(str(sorted(folder.iterdir())[2])).repartition(7), 2)
    assert sink.open()[0].t == 4100
    sink.close()
    other = EpochSink(path, **options | {"name": "others"})
    for rows_of_epoch, epoch in ((frame.limit(0), 0), (frame.limit(0), 0), (frame, 1), (frame.limit(0), 2)):
        other(rows_of_epoch, epoch)
    assert (other.open()[0].t, other.open()[1].epoch["epoch"]) == (4150, 2)
    with pytest.raises(StoreForkedError, match="epoch=2: delivered again"):
        other(frame, 2)
    other.close()


def test_epochs_in_the_order_of_a_column(spark, folder: Path, tmp_path: Path) -> None:
    rows = np.concatenate(in_order(folder))
    numbered = spark.createDataFrame(np.column_stack([rows, np.arange(N)]).tolist(), [*NAMES, "at"])
    epochs = [numbered.where(f"at >= {a} and at < {b}").orderBy("x0") for a, b in ((0, 700), (700, 700), (700, N))]
    options = {"algorithm": algorithm(horizon=N + 250), "stream_options": OPTIONS, "name": "rows"}
    sink, world = EpochSink(tmp_path / "run.db", **options, order="at"), []
    sink.on_release = world.append
    for epoch, frame in enumerate(epochs):
        for copies in (1, 3):  # delivered twice
            sink(frame.repartition(copies), epoch)
    assert texts(world) == released(tmp_path / "run.db") == texts(stream(horizon=N + 250).push_many(rows).releases)
    with pytest.raises(HorizonReachedError, match="700 rows given, but the horizon leaves room for 250"):
        sink(epochs[0], 3)
    # Without an order, the absent rows before an epoch and the epoch must both fit: nothing is absorbed otherwise.
    sink.order = None
    with pytest.raises(UsageError, match="an epoch of 210 rows, but a release has room for 50"):
        sink(epochs[0].limit(210), 3)
    assert sink.open()[0].t == N
    sink.close()


_CONNECT = """
import os, sys
sys.path[:0] = sys.argv[1].split(os.pathsep)
os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
from pathlib import Path
import test_spark as here
from pyspark.sql import SparkSession
from runs import of_steps
if __name__ == "__main__":
    folder, checkpoint, store = map(Path, sys.argv[2:])
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    executor, expected = here.SparkExecutor(spark, workers=2), here.single(here.in_order(folder))
    for size in here.SIZES:
        assert of_steps(here.stream().absorb(folder, executor, rows_per_task=size)) == expected, size
    frame = spark.read.parquet(str(folder))
    assert of_steps(here.absorb_frame(here.stream(here.N), frame)) == here.single(here.in_order(folder), here.N)
    frames = spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 3).parquet(str(folder))
    sink = here.EpochSink(store, algorithm=here.algorithm(here.N), stream_options=here.OPTIONS, name="rows")
    here.run(frames, sink, checkpoint)
    print("done", flush=True)
    os._exit(0)
"""


def test_spark_connect(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="needs pip install 'pyspark[connect]'")
    script, log = tmp_path / "connect.py", tmp_path / "log"
    script.write_text(_CONNECT)
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-W", "ignore", script, paths, folder, tmp_path / "checkpoint", tmp_path / "run.db"]
    with log.open("w") as out:  # the server outlives its client, and would hold a pipe
        done = subprocess.run(
            command, stdout=out, stderr=out, timeout=240, env=os.environ | {"PYTHONPATH": paths}, check=False
        )
    assert (done.returncode, log.read_text().splitlines()[-1][-4:]) == (0, "done"), log.read_text()[-2000:]
    assert released(tmp_path / "run.db") == single(in_order(folder), N)


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
        ("rows", 20_000, 6, {3: "driver", 8: "worker"}),  # a Structured Streaming query of DataFrames
    ],
)
def test_a_killed_driver_or_worker_loses_and_repeats_nothing(
    tmp_path: Path, how: str, rows: int, features: int, victims: dict[int, str]
) -> None:
    data, world = tmp_path / "data", tmp_path / "world.txt"
    paths = write_files(data, rows, features, files=20, group=2**14)
    blocks = [block for path in paths for block in from_parquet(path).blocks()]
    made = sp.Stream(driver.algorithm(), **driver.options(features)).push_many(np.concatenate(blocks)).releases
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
    with closing(Database(str(tmp_path / "run.db"), write=False)) as database:
        assert database.progress.rows == rows
        assert [f"{release.t} {driver.digest(release)}" for release in database.releases()] == expected
