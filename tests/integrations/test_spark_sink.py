"""Spark in local mode: the releases of one process, bit for bit, each epoch once.

Runs where pyspark and Java 17 are: ``pip install 'streampca[spark]'``. A session takes some 15 s to start.
The large test, killed twice: ``pytest -m long tests/integrations/test_spark_sink.py``.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

if importlib.util.find_spec("pyspark") is None:
    pytest.skip("needs pyspark: pip install 'streampca[spark]'", allow_module_level=True)
if shutil.which("java") is None:
    pytest.skip("Spark needs Java 17 on the path", allow_module_level=True)

from streampca.errors import BadParameterError, HorizonReachedError, StoreForkedError
from streampca.processors.private_fpl import PrivateFPL
from streampca.sources.parquet import from_parquet
from streampca.spark import EpochSink, absorb_frame, absorb_parquet, parquet_paths
from streampca.store.store import Store
from streampca.stream.stream import Stream

DRIVER = Path(__file__).with_name("spark_driver.py")
_spec = importlib.util.spec_from_file_location("spark_driver", DRIVER)
driver = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(driver)

# Of Spark's own: it warns of pandas 3, and leaves sockets to the garbage collector.
pytestmark = [pytest.mark.ci, pytest.mark.filterwarnings("ignore")]
N, D = 3300, 6
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PLAIN = "--conf spark.sql.codegen.wholeStage=false --conf spark.sql.adaptive.enabled=false"


@pytest.fixture(scope="module")
def spark():
    with pytest.MonkeyPatch.context() as patch:  # much of a short session is the compilation of Java code
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"--driver-java-options '{JAVA}' {PLAIN} pyspark-shell")
        session = driver.new_session()
    yield session
    session.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    driver.write_files(tmp_path / "data", N, D, files=3, group=400)
    return tmp_path / "data"


def stream(store: Store | None = None, horizon: int = N, **options) -> Stream:
    algorithm = PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, release_every=250, horizon=horizon)
    names = [f"x{j}" for j in range(D)]
    return Stream(algorithm, features=names, row_norm=2.0, seed=3, store=store, **options)


def single(rows: list[np.ndarray], **options) -> list[str]:
    one = stream(**options)
    return [release.to_json() for block in rows for release in one.push_many(block).releases]


def in_order(folder: Path) -> list[np.ndarray]:
    return [block for path in sorted(folder.iterdir()) for block in from_parquet(path).blocks()]


def releases(steps) -> list[str]:
    return [step.release.to_json() for step in steps if step.release is not None]


def run(frames, sink: EpochSink, checkpoint: Path) -> None:
    writer = frames.writeStream.foreachBatch(sink).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    query.awaitTermination()


def test_files_read_by_executors(spark, folder: Path) -> None:
    expected = single(in_order(folder))
    assert len(expected) == 14
    assert releases(absorb_parquet(stream(), spark, sorted(folder.iterdir()), rows_per_task=900)) == expected
    frame = spark.read.parquet(str(folder))
    assert releases(absorb_parquet(stream(), spark, sorted(frame.inputFiles()), columns=frame.columns)) == expected


def test_any_frame_in_the_order_of_its_partitions(spark, folder: Path) -> None:
    frame = spark.read.parquet(str(folder)).where("x0 > -0.2").withColumn("name", _text())
    rows = np.array([row[:D] for row in frame.toLocalIterator()])
    out = stream()
    assert releases(absorb_frame(out, frame)) == single([rows])
    assert out.t == len(rows) < N
    with pytest.raises(BadParameterError, match="'name' of the frame does not hold numbers"):
        absorb_frame(stream(), frame, columns=[*(f"x{j}" for j in range(D - 1)), "name"])
    with pytest.raises(HorizonReachedError, match="horizon leaves room for"):
        absorb_frame(out, frame)
    assert out.t == len(rows)


def _text():
    from pyspark.sql.functions import lit

    return lit("a")


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
    return [np.array([[row[f"x{j}"] for j in range(D)] for row in frame.toLocalIterator()], dtype=float)]


@pytest.mark.parametrize("split", [2**27, 20_000])
def test_a_frame_that_is_a_scan_is_read_from_its_files(spark, folder: Path, arrow_calls, split: int) -> None:
    """In the order of the frame, which goes by the sizes of files, or of parts of them."""
    driver.write_files(folder.parent / "one", 1000, D, files=1, group=300)
    (folder.parent / "one" / "part000.parquet").rename(folder / "a smaller one.parquet")
    read, paths = spark.read, [str(path) for path in folder.iterdir()]
    names = [f"x{j}" for j in range(D)]
    spark.conf.set("spark.sql.files.maxPartitionBytes", split)
    spark.conf.set("spark.sql.files.openCostInBytes", 1000)
    try:
        for frame in (
            read.parquet(str(folder)),
            read.parquet(f"file://{folder}/").select(*names[::-1]),
            read.parquet(*paths).select(*names),
            read.parquet(paths[1]),
        ):
            rows = rows_in_order(frame)
            assert releases(absorb_frame(stream(horizon=2 * N), frame)) == single(rows, horizon=2 * N)
            assert not arrow_calls
        with pytest.raises(HorizonReachedError, match="4300 rows given, but the horizon leaves room for 3300"):
            absorb_frame(stream(), read.parquet(*paths))
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.openCostInBytes")


def test_any_other_frame_goes_through_spark(spark, folder: Path, tmp_path: Path, arrow_calls) -> None:
    whole = spark.read.parquet(str(folder))
    by_day = tmp_path / "by day"
    whole.selectExpr("*", "cast(x0 > 0 as int) as day").write.partitionBy("day").parquet(str(by_day))
    floats, both = tmp_path / "floats", tmp_path / "both"
    whole.selectExpr(*(f"cast(x{j} as decimal(20, 12)) as x{j}" for j in range(D))).write.parquet(str(floats))
    shutil.copytree(folder, both)
    shutil.copy(next(floats.glob("*.parquet")), both / "z.parquet")
    cached = spark.read.parquet(*map(str, sorted(folder.iterdir()))).select("x5", *(f"x{j}" for j in range(D - 1)))
    cached.cache().count()
    frames = [
        whole.where("x0 > 1"),
        whole.limit(700),
        whole.sortWithinPartitions("x1"),
        whole.union(whole),
        whole.withColumn("x0", whole["x1"]),
        whole.selectExpr("x0 + 1 as x0", *(f"x{j}" for j in range(1, D))),
        whole.repartition(2, "x0").cache(),
        whole.sample(0.5, seed=1),
        whole.join(whole.select("x0").where("x0 > 0"), "x0"),
        spark.read.option("mergeSchema", "true").parquet(str(folder)),
        spark.read.parquet(str(by_day)),
        spark.read.parquet(str(floats)),
        spark.read.schema(whole.schema).parquet(str(folder)).where("x1 > 0").select("*"),
        cached,
        spark.createDataFrame([tuple(float(j) for j in range(D))], [f"x{j}" for j in range(D)]),
    ]
    for at, frame in enumerate(frames):
        rows = rows_in_order(frame)
        assert releases(absorb_frame(stream(horizon=2 * N), frame)) == single(rows, horizon=2 * N), at
        assert len(arrow_calls) == at + 1, at
    with pytest.raises(Exception, match="both"):  # of two types: Spark names the file
        absorb_frame(stream(horizon=4 * N), spark.read.schema(whole.schema).parquet(str(both)))
    for frame in (cached, frames[6]):
        frame.unpersist()


class StopError(Exception):
    """The driver dies."""


def test_epochs_that_come_again_are_absorbed_once(spark, folder: Path, tmp_path: Path) -> None:
    """The driver fails twice: before an epoch is durable, and after, before Spark knows."""
    expected = single(in_order(folder))
    frames = (
        spark.readStream.schema(spark.read.parquet(str(folder)).schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder))
    )
    store = Store(tmp_path / "run.db")
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

    with Store(tmp_path / "run.db") as store:
        resumed = Stream.resume(store)
        with pytest.raises(Exception, match="after the commit"):
            run(frames, EpochSink(resumed, store, on_release=after), tmp_path / "checkpoint")
        assert (store.durable, store.epoch["epoch"]) == (2200, 1)
    with Store(tmp_path / "run.db") as store:
        resumed = Stream.resume(store)
        run(frames, EpochSink(resumed, store, on_release=world.append), tmp_path / "checkpoint")
        assert (store.durable, store.epoch["epoch"]) == (N, 2)
        assert [release.to_json() for release in store.releases()] == expected
        assert {release.t: release.to_json() for release in world}.items() <= dict(
            zip(_times(), expected, strict=True)
        ).items()
        # A query with a new checkpoint would bring the same rows again.
        with pytest.raises(Exception, match="keep its checkpointLocation"):
            run(frames, EpochSink(resumed, store), tmp_path / "another")
        assert resumed.t == N


def _times() -> list[int]:
    return [*range(250, N, 250), N]


def test_paths_in_epochs(spark, folder: Path, tmp_path: Path) -> None:
    store = Store(":memory:")
    out = stream(store)
    sink = EpochSink(out, store, files=True)
    run(parquet_paths(spark, str(folder), files_per_epoch=2), sink, tmp_path / "checkpoint")
    assert store.epoch["epoch"] == 1
    assert [release.to_json() for release in store.releases()] == single(in_order(folder))
    with pytest.raises(StoreForkedError, match="epoch=7: expected 0"):
        EpochSink(out, store, files=True, new_query=True)(spark.range(1), 7)


def _start(how: str, data: Path, folder: Path) -> subprocess.Popen:
    command = [sys.executable, str(DRIVER), "--how", how, "--data", str(data), "--world", str(folder / f"{how}.txt")]
    if how != "single":
        command += ["--run", str(folder / f"{how}.db")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _seen(folder: Path, how: str) -> list[str]:
    path = folder / f"{how}.txt"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.long
@pytest.mark.parametrize("how", ["files", "epochs"])
def test_a_million_rows_killed_twice(tmp_path: Path, how: str) -> None:
    """10**6 x 64: some 3 minutes each on two cores."""
    data = tmp_path / "data"
    driver.write_files(data, 10**6, 64, files=16, group=2**14)
    alone = _start("single", data, tmp_path)
    print("\nsingle", alone.communicate()[0].strip())
    expected = _seen(tmp_path, "single")
    assert len(expected) == 1000
    for share in (150, 600):
        child = _start(how, data, tmp_path)
        while len(_seen(tmp_path, how)) < share:
            assert child.poll() is None, "the driver ended before it was killed"
            time.sleep(0.05)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        at = len(_seen(tmp_path, how))
        print(f"killed after {at} releases")
        assert at < 1000
    child = _start(how, data, tmp_path)
    print(how, child.communicate()[0].strip())
    assert child.returncode == 0
    # A release may be read again, or not at all by a driver that was killed; never another in its place.
    times = dict(line.split() for line in expected)
    for line in _seen(tmp_path, how):
        t, _, found = line.partition(" ")
        assert len(found) < 32 or times[t] == found
    with Store(tmp_path / f"{how}.db") as store:
        assert Stream.resume(store).t == 10**6
        assert [f"{release.t} {driver.digest(release)}" for release in store.releases()] == expected


@pytest.mark.long
def test_a_query_whose_driver_and_whose_worker_are_killed(tmp_path: Path) -> None:
    """A real Structured Streaming query of DataFrames. CI runs it by itself: three sessions, some two minutes."""
    data = tmp_path / "data"
    driver.write_files(data, 20_000, 6, files=20, group=2**10)
    whole = driver.new_stream(6, 1, None)
    rows = np.concatenate([block for path in sorted(data.iterdir()) for block in from_parquet(path).blocks()])
    expected = [f"{release.t} {driver.digest(release)}" for release in whole.push_many(rows).releases]
    assert len(expected) == 20
    for share, victim in ((3, "driver"), (8, "worker"), (None, None)):
        child = _start("rows", data, tmp_path)
        while share is not None and len(_seen(tmp_path, "rows")) < share and child.poll() is None:
            time.sleep(0.05)
        for pid in [child.pid] if victim == "driver" else _workers(child.pid) if victim else []:
            os.kill(pid, signal.SIGKILL)
        child.communicate()  # without its worker the query fails, or Spark tries the task again
        if victim is None:
            assert child.returncode == 0
    seen = _seen(tmp_path, "rows")
    assert set(seen) <= set(expected)
    assert len(seen) == len(set(seen))  # handed out at most once
    with Store(tmp_path / "rows.db") as store:
        assert Stream.resume(store).t == 20_000
        assert [f"{release.t} {driver.digest(release)}" for release in store.releases()] == expected


def _workers(pid: int) -> list[int]:
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = stat.read_text().rsplit(")", 1)
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(rest.split()[1]), "python" in name
    below = {pid}
    while more := {child for child, (parent, _) in parents.items() if parent in below} - below:
        below |= more
    found = [child for child in below - {pid} if parents[child][1]]
    assert found
    return found
