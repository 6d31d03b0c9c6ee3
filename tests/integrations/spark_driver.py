"""A Spark driver that can be killed: it begins or resumes a durable run, and reports every release it reads.

    python tests/integrations/spark_driver.py --how epochs --data folder --run run.db --world world.txt

``--how single`` is one process without Spark, for comparison.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from hashlib import blake2b
from pathlib import Path

import numpy as np

from streampca import pool
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


def new_stream(features: int, seed: int | None, store: Store | None) -> Stream:
    algorithm = PrivateFPL(n_components=5, epsilon=1.0, delta=1e-6, horizon=2**21, release_every=EVERY)
    return Stream(algorithm, features=[f"x{j}" for j in range(features)], row_norm=2.0, seed=seed, store=store)


def new_session():
    import warnings

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master("local[2]").appName("streampca").config("spark.ui.enabled", "false")
        session = builder.config("spark.sql.shuffle.partitions", "2").config("spark.log.level", "ERROR").getOrCreate()
    return session


def digest(release: Release) -> str:
    return blake2b(release.to_json().encode(), digest_size=16).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--how", choices=["single", "pool", "files", "frame", "epochs", "rows"], required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--world", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files-per-epoch", type=int, default=2)
    given = parser.parse_args()
    paths = sorted(given.data.iterdir())
    features = len(from_parquet(paths[0]).features)
    store, out = None, given.world.open("a", buffering=1)
    if given.run is not None:
        fresh = not given.run.exists()
        store = Store(given.run)
        stream = new_stream(features, given.seed, store) if fresh else Stream.resume(store)
    else:
        stream = new_stream(features, given.seed, None)

    def report(release: Release | None) -> None:
        if release is not None:
            out.write(f"{release.t} {digest(release)}\n")

    began = time.perf_counter()
    spark = None if given.how in ("single", "pool") else new_session()
    ready = time.perf_counter()
    if given.how == "single":
        for path in paths:
            for block in from_parquet(path).blocks():
                for release in stream.push_many(block).releases:
                    report(release)
    elif given.how in ("pool", "files"):
        from streampca import spark as through_spark

        steps = (
            pool.absorb_parquet(stream, paths, processes=2)
            if given.how == "pool"
            else through_spark.absorb_parquet(stream, spark, paths)
        )
        for step in steps:
            report(step.release)
    else:
        from streampca.spark import EpochSink, absorb_frame, parquet_paths

        if given.how == "frame":
            for path in paths:
                for step in absorb_frame(stream, spark.read.parquet(str(path))):
                    report(step.release)
        else:
            if given.how == "epochs":
                frames = parquet_paths(spark, str(given.data), files_per_epoch=given.files_per_epoch)
            else:
                reader = spark.readStream.schema(spark.read.parquet(str(paths[0])).schema)
                frames = reader.option("maxFilesPerTrigger", 1).parquet(str(given.data))
            sink = EpochSink(stream, store, files=given.how == "epochs", on_release=report)
            writer = frames.writeStream.foreachBatch(sink).trigger(availableNow=True)
            writer.option("checkpointLocation", str(given.run) + ".checkpoint").start().awaitTermination()
    end = time.perf_counter()
    print(f"{stream.t} rows, session {ready - began:.1f} s, rows {end - ready:.2f} s", flush=True)
    if store is not None:
        store.close()


if __name__ == "__main__":
    main()
