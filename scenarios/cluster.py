"""Rows per core-second of Parquet files through one process, a pool of processes and Spark.

    python scenarios/cluster.py --rows 4000000 --features 64

Needs pyspark and Java 17 for all but ``--ways pool``. Each way takes all rows in every pass, after the same rows went
through one process; the first pass is left out (the virtual machine compiles, files come into memory, Spark starts its
workers). Core-seconds are CPU seconds of this process and all below it, Java's included. ``floor`` is Spark alone: a
``mapInArrow`` that only counts the rows that it is given. Every way makes the releases of one process, bit for bit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import streampca as sp
from streampca import pool, sources

if TYPE_CHECKING:  # each process of a pool loads what is imported here
    from streampca.store.store import Store

FILES, GROUP = 16, 2**16
Releases = list[sp.Release]
WAYS = ("read", "pool", "parquet", "frame", "paths", "filtered", "rows", "floor")


def write_files(folder: Path, rows: int, features: int) -> list[Path]:
    """Parquet files of random rows, whose times are in the order of their names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    paths = []
    for at, part in enumerate(np.array_split(np.arange(rows), FILES)):
        values = np.random.default_rng(at).normal(size=(len(part), features)) / 5.0
        paths.append(folder / f"part{at:03d}.parquet")
        pq.write_table(pa.table({f"x{j}": values[:, j] for j in range(features)}), paths[-1], row_group_size=GROUP)
        os.utime(paths[-1], (1_000_000_000 + at, 1_000_000_000 + at))
    return paths


def new_session() -> Any:
    """Spark on this machine with two slots."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    return builder.config("spark.log.level", "ERROR").getOrCreate()


def core_seconds() -> float:
    """CPU time of this process and of all below it, those that ended included."""
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(stat.parent.name)], ticks[int(stat.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    below = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    return sum(ticks[one] for one in below) / os.sysconf("SC_CLK_TCK")


class Ways:
    """The ways of rows into a stream; each returns a digest of its releases.

    Parameters
    ----------
    paths : Parquet files.
    features : columns of each.
    spark : a session, or None.
    """

    def __init__(self, paths: list[Path], features: int, spark: Any) -> None:
        self._paths, self._spark = paths, spark
        self._names = [f"x{j}" for j in range(features)]

    def _stream(self, store: Store | None = None) -> sp.Stream:
        algorithm = sp.PrivateFPL(n_components=5, epsilon=1.0, delta=1e-9, horizon=2**23, release_every=1000)
        return sp.Stream(algorithm, features=self._names, row_norm=2.0, seed=1, store=store)

    def _frame(self) -> Any:
        return self._spark.read.parquet(*map(str, self._paths)).select(*self._names)

    def single(self) -> Releases:
        """One process."""
        stream = self._stream()
        return [
            release
            for path in self._paths
            for block in sources.from_parquet(path).blocks()
            for release in stream.push_many(block).releases
        ]

    def read(self) -> Releases:
        """One process that only reads the files."""
        for path in self._paths:
            for _ in sources.from_parquet(path).blocks():
                pass
        return []

    def pool(self) -> Releases:
        """Two processes, their start included."""
        return made(pool.absorb_parquet(self._stream(), self._paths, processes=2))

    def parquet(self) -> Releases:
        """Spark's executors read the files."""
        from streampca.spark import absorb_parquet

        return made(absorb_parquet(self._stream(), self._spark, self._paths))

    def frame(self) -> Releases:
        """A DataFrame that is some columns of files."""
        from streampca.spark import absorb_frame

        return made(absorb_frame(self._stream(), self._frame()))

    def filtered(self) -> Releases:
        """A DataFrame that is not: a filter, which keeps all rows."""
        from streampca.spark import absorb_frame

        return made(absorb_frame(self._stream(), self._frame().where("x0 > -1e9")))

    def floor(self) -> Releases:
        """Spark hands the rows of a DataFrame to Python, which counts them."""
        self._frame().mapInArrow(counted, "rows long").collect()
        return []

    def paths(self) -> Releases:
        """A Structured Streaming query of paths."""
        from streampca.spark import parquet_paths

        frames = parquet_paths(self._spark, str(self._paths[0].parent), files_per_epoch=FILES // 2)
        return self._query(frames, files=True)

    def rows(self) -> Releases:
        """A Structured Streaming query of rows."""
        reader = self._spark.readStream.schema(self._frame().schema)
        frames = reader.option("maxFilesPerTrigger", FILES // 2).parquet(str(self._paths[0].parent))
        return self._query(frames, files=False)

    def _query(self, frames: Any, *, files: bool) -> Releases:
        from streampca.spark import EpochSink
        from streampca.store.store import Store

        releases: Releases = []
        with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "run.db") as store:
            sink = EpochSink(self._stream(store), store, files=files, on_release=releases.append)
            writer = frames.writeStream.foreachBatch(sink).trigger(availableNow=True)
            writer.option("checkpointLocation", str(Path(folder) / "checkpoint")).start().awaitTermination()
        return releases


def counted(batches: Iterator[Any]) -> Iterator[Any]:
    """How many rows an executor is given."""
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def made(steps: Iterable[Any]) -> Releases:
    """The releases of some steps."""
    return [step.release for step in steps if step.release is not None]


def digest(releases: Releases) -> str:
    """A name for some releases."""
    whole = blake2b(digest_size=8)
    for release in releases:
        whole.update(release.gram.tobytes())
    return whole.hexdigest()


def timed(way: Callable[[], Releases]) -> tuple[float, float, str]:
    """Core-seconds, seconds, and the digest of what a way released."""
    cpu, wall = core_seconds(), time.perf_counter()
    out = way()
    cpu, wall = core_seconds() - cpu, time.perf_counter() - wall
    return cpu, wall, digest(out) if out else ""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--passes", type=int, default=3, help="after the first")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--data", type=Path, help="folder for the files, kept; a temporary one if left out")
    given = parser.parse_args()
    folder = given.data or Path(tempfile.mkdtemp())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = sorted(folder.glob("*.parquet")) or write_files(folder, given.rows, given.features)
        measure(paths, given)
    finally:
        if given.data is None:
            shutil.rmtree(folder)


def measure(paths: list[Path], given: argparse.Namespace) -> None:
    """Each way, beside one process."""
    spark = new_session() if set(given.ways) - {"pool", "read"} else None
    ways = Ways(paths, given.features, spark)
    rows = sum(len(sources.from_parquet(path)) for path in paths)
    print(f"{rows} x {given.features}: rows per core-second, share of one process's, rows per second", flush=True)
    for name in given.ways:
        found = []
        for at in range(given.passes + 1):
            alone, _, expected = timed(ways.single)
            cpu, wall, out = timed(getattr(ways, name))
            # Spark makes its own order of the files that come together in a query of rows.
            assert out in ("", expected) or name in ("frame", "filtered", "rows"), f"{name}: other releases"
            if at:
                found.append((rows / cpu, alone / cpu, rows / wall))
        speed, share, wall = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{name:8s} {speed:10.0f} {share:6.3f} {wall:10.0f}", flush=True)
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
