"""A Spark driver that can be killed: it begins or resumes a durable run, and reports every release it reads.

PYTHONPATH=scenarios python tests/integrations/spark_driver.py --how rows --data folder --run run.db --world world.txt
"""

from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from cluster import session
from cyclopts import App

import streampca as sp
from streampca.sources.parquet import from_parquet

EVERY = 1000


def algorithm() -> sp.PrivateFPL:
    return sp.PrivateFPL(n_components=5, epsilon=1.0, horizon=2**21, release_every=EVERY)


def options(features: int) -> dict[str, Any]:
    return {"features": [f"x{j}" for j in range(features)], "row_norm": 2.0, "seed": 1}


def digest(release: sp.Release) -> str:
    return blake2b(release.to_json().encode(), digest_size=16).hexdigest()


def main(*, how: Literal["files", "rows"], data: Path, run: Path, world: Path) -> None:
    from streampca.spark import EpochSink, SparkExecutor

    out, spark = world.open("a", buffering=1), session()
    features = options(len(from_parquet(next(data.iterdir())).features))

    def report(release: sp.Release | None) -> None:
        if release is not None:
            out.write(f"{release.t} {digest(release)}\n")

    sink = EpochSink(run, name="rows", algorithm=algorithm(), stream_options=features, on_release=report)
    stream, _ = sink.open()
    if how == "files":
        for step in stream.absorb(data, SparkExecutor(spark, workers=2), commit_every=0.5):
            report(step.release)
    else:  # a file an epoch, which is a release
        reader = spark.readStream.schema(spark.read.parquet(str(data)).schema)
        frames = reader.option("maxFilesPerTrigger", 1).parquet(str(data))
        writer = frames.writeStream.foreachBatch(sink).trigger(availableNow=True)
        writer.option("checkpointLocation", f"{run}.checkpoint").start().awaitTermination()
    sink.close()


if __name__ == "__main__":
    App(default_command=main)()
