"""Rows per core-second of Parquet files through one process, several processes and Spark.

    python scenarios/cluster.py --rows 4000000 --features 64

Needs pyspark and Java 17 for all but ``--ways pool``. Each way takes all rows in every pass, after the same rows went
through one process; the first pass is omitted (the virtual machine compiles, files come into memory, Spark starts its
workers). Core-seconds are CPU seconds of this process and all below it, Java's included. ``floor`` is Spark without
streampca: a ``mapInArrow`` that only counts the rows that it is given. Every way makes the releases of one process, bit
for bit.
"""

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from cyclopts import App

import streampca as sp
from streampca import sources
from streampca.stream.executors import Pool

FILES, GROUP = 16, 2**16
Releases = list[sp.Release]
Way = Literal["read", "here", "pool", "spark", "frame", "floor"]


def write_files(folder: Path, rows: int, features: int, files: int = FILES, group: int = GROUP) -> list[Path]:
    """Parquet files of random rows, whose times are in the order of their names."""
    folder.mkdir(exist_ok=True)
    paths = []
    for at, part in enumerate(np.array_split(np.arange(rows), files)):
        values = np.random.default_rng(at).normal(size=(len(part), features)) / 5.0
        paths.append(folder / f"part{at:03d}.parquet")
        frame = pd.DataFrame(values, columns=[f"x{j}" for j in range(features)])
        frame.to_parquet(paths[-1], engine="pyarrow", row_group_size=group)
        os.utime(paths[-1], (1_000_000_000 + at, 1_000_000_000 + at))
    return paths


def session() -> Any:
    """Spark with two executors in this process."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "ERROR")
    return builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()


def core_seconds() -> float:
    """CPU time of this process and of all below it, those that ended included."""
    parents, ticks = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # the process has ended
        parents[int(stat.parent.name)], ticks[int(stat.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    below = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    return sum(ticks[one] for one in below) / os.sysconf("SC_CLK_TCK")


def ways_of(
    paths: list[Path], features: int, spark: Any, pool: Any = None, every: int = 1000
) -> dict[str, Callable[[], Releases]]:
    """The ways of rows of Parquet files into a stream by name, and ``single``, one process; each returns its releases.

    ``spark`` is a session, or None; ``pool`` has the processes of the way ``pool``.
    """
    names = [f"x{j}" for j in range(features)]

    def stream(each: int = every) -> sp.Stream:
        algorithm = sp.PrivateFPL(
            n_components=5, epsilon=1.0, delta=1e-9, horizon=2**23, release_every=each, center=False
        )
        return sp.Stream(algorithm, features=names, row_norm=2.0, seed=1)

    def read(push: Callable[[Any], Releases]) -> Releases:
        return [one for path in paths for block in sources.from_parquet(path).blocks() for one in push(block)]

    def single() -> Releases:
        own = stream()
        return read(lambda block: own.push_many(block).releases)

    ways: dict[str, Callable[[], Releases]] = {
        "single": single,
        "read": lambda: read(lambda _: []),
        "here": lambda: made(stream().absorb(paths)),
        "pool": lambda: made(stream().absorb(paths, pool)),
    }
    if spark is None:
        return ways
    from streampca.spark import SparkExecutor, absorb_frame

    frame = spark.read.parquet(*map(str, paths)).select(*names)
    rows = frame.count()
    return (
        ways
        | {
            "spark": lambda: made(stream().absorb(paths, SparkExecutor(spark, workers=2))),
            "frame": lambda: made(absorb_frame(stream(rows), frame)),  # one release
            "floor": lambda: frame.mapInArrow(counted, "rows long").collect()[:0],
        }
    )


def counted(batches: Iterator[Any]) -> Iterator[Any]:
    """Number of rows that an executor is given."""
    import pyarrow as pa

    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


def made(steps: Iterable[Any]) -> Releases:
    """The releases of some steps."""
    return [step.release for step in steps if step.release is not None]


def timed(way: Callable[[], Releases]) -> tuple[float, float, list[bytes]]:
    """Core-seconds, seconds, and the Gram matrices that a way released."""
    cpu, wall = core_seconds(), time.perf_counter()
    out = way()
    cpu, wall = core_seconds() - cpu, time.perf_counter() - wall
    return cpu, wall, [release.gram.tobytes() for release in out]


def main(
    *, rows: int = 4_000_000, features: int = 64, every: int = 1000, passes: int = 3, ways: list[Way] | None = None
) -> None:
    """Measure each way, beside one process, and print.

    Parameters
    ----------
    rows, features
        Size of the files.
    every
        Rows between releases, which the curator creates alone.
    passes
        Passes after the first.
    ways
        All by default.
    """
    asked = ways or get_args(Way)
    with ExitStack() as opened:
        paths, spark = write_files(Path(opened.enter_context(tempfile.TemporaryDirectory())), rows, features), None
        if set(asked) - {"here", "pool", "read"}:
            spark = opened.enter_context(session())
        works = ways_of(paths, features, spark, opened.enter_context(Pool(2)), every)
        print(f"{rows} x {features}: rows per core-second, share of one process's, rows per second", flush=True)
        for name in asked:
            found = []
            for _ in range(passes + 1):
                alone, _, expected = timed(works["single"])
                cpu, wall, out = timed(works[name])
                assert not out or out == expected or name == "frame", f"{name}: other releases"
                found.append((rows / cpu, alone / cpu, rows / wall))
            speed, share, by_the_clock = np.median(found[1:], axis=0)
            print(f"{name:8s} {speed:10.0f} {share:6.3f} {by_the_clock:10.0f}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    App(help=__doc__, help_format="plaintext", default_command=main)()
