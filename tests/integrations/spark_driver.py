"""A Spark driver that can be killed: it begins or resumes a durable run, and reports every release it reads.

PYTHONPATH=scenarios python tests/integrations/spark_driver.py --how epochs --data folder --run run.db --world world.txt
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Literal

from cluster import session
from cyclopts import App

import streampca as sp
from streampca.sources.parquet import from_parquet

EVERY = 1000


def new_stream(features: int, store: sp.Store | None) -> sp.Stream:
    algorithm = sp.PrivateFPL(n_components=5, epsilon=1.0, center=False, horizon=2**21, release_every=EVERY)
    return sp.Stream(algorithm, features=[f"x{j}" for j in range(features)], row_norm=2.0, seed=1, store=store)


def digest(release: sp.Release) -> str:
    return blake2b(release.to_json().encode(), digest_size=16).hexdigest()


def main(*, how: Literal["files", "epochs", "rows"], data: Path, run: Path, world: Path) -> None:
    from streampca.spark import EpochSink, absorb_parquet, parquet_paths

    paths, fresh, out = sorted(data.iterdir()), not run.exists(), world.open("a", buffering=1)
    store = sp.Store(run)
    stream = new_stream(len(from_parquet(paths[0]).features), store) if fresh else sp.Stream.resume(store)

    def report(release: sp.Release | None) -> None:
        if release is not None:
            out.write(f"{release.t} {digest(release)}\n")

    spark = session()
    if how == "files":
        for step in absorb_parquet(stream, spark, paths):
            report(step.release)
    else:
        if how == "epochs":
            frames = parquet_paths(spark, str(data), files_per_epoch=2)
        else:
            reader = spark.readStream.schema(spark.read.parquet(str(paths[0])).schema)
            frames = reader.option("maxFilesPerTrigger", 1).parquet(str(data))
        sink = EpochSink(stream, store, on_release=report)
        writer = frames.writeStream.foreachBatch(sink).trigger(availableNow=True)
        writer.option("checkpointLocation", f"{run}.checkpoint").start().awaitTermination()
    store.close()


if __name__ == "__main__":
    App(default_command=main)()
