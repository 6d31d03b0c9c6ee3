"""A Spark driver that can be killed: it begins or resumes a durable run, and reports every release it reads.

python tests/integrations/spark_driver.py --how epochs --data folder --run run.db --world world.txt
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from hashlib import blake2b
from pathlib import Path

import numpy as np

from streampca.processors.private_fpl import PrivateFPL
from streampca.release.release import Release
from streampca.sources.parquet import from_parquet
from streampca.store.store import Store
from streampca.stream.stream import Stream

EVERY = 1000


def write_files(folder: Path, rows: int, features: int, files: int, group: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    for at, part in enumerate(np.array_split(np.arange(rows), files)):
        values = np.random.default_rng(at).normal(size=(len(part), features)) / 5.0
        path = folder / f"part{at:03d}.parquet"
        pq.write_table(pa.table({f"x{j}": values[:, j] for j in range(features)}), path, row_group_size=group)
        os.utime(path, (1_000_000_000 + at, 1_000_000_000 + at))


def new_stream(features: int, store: Store | None) -> Stream:
    algorithm = PrivateFPL(n_components=5, epsilon=1.0, delta=1e-6, horizon=2**21, release_every=EVERY)
    return Stream(algorithm, features=[f"x{j}" for j in range(features)], row_norm=2.0, seed=1, store=store)


def new_session():
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").appName("streampca").config("spark.ui.enabled", "false")
        return builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "ERROR").getOrCreate()


def digest(release: Release) -> str:
    return blake2b(release.to_json().encode(), digest_size=16).hexdigest()


def main() -> None:
    from streampca.spark import EpochSink, absorb_parquet, parquet_paths

    parser = argparse.ArgumentParser()
    parser.add_argument("--how", choices=["files", "epochs", "rows"], required=True)
    for name in ("--data", "--run", "--world"):
        parser.add_argument(name, type=Path, required=True)
    given = parser.parse_args()
    paths, fresh, out = sorted(given.data.iterdir()), not given.run.exists(), given.world.open("a", buffering=1)
    store = Store(given.run)
    stream = new_stream(len(from_parquet(paths[0]).features), store) if fresh else Stream.resume(store)

    def report(release: Release | None) -> None:
        if release is not None:
            out.write(f"{release.t} {digest(release)}\n")

    spark = new_session()
    if given.how == "files":
        for step in absorb_parquet(stream, spark, paths):
            report(step.release)
    else:
        if given.how == "epochs":
            frames = parquet_paths(spark, str(given.data), files_per_epoch=2)
        else:
            reader = spark.readStream.schema(spark.read.parquet(str(paths[0])).schema)
            frames = reader.option("maxFilesPerTrigger", 1).parquet(str(given.data))
        sink = EpochSink(stream, store, on_release=report)
        writer = frames.writeStream.foreachBatch(sink).trigger(availableNow=True)
        writer.option("checkpointLocation", str(given.run) + ".checkpoint").start().awaitTermination()
    store.close()


if __name__ == "__main__":
    main()
