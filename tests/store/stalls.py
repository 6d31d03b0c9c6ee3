"""How long commits take, with and without a snapshot in them.

    python tests/store/stalls.py

A stream makes a release every 200 rows, which is read at once. Told for each number of features: the size of a
snapshot, and how long the commits take that hold one and that hold none.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from streampca.processors.private_fpl import PrivateFPL
from streampca.store.store import Store
from streampca.stream.stream import Stream

BLOCK = 200


def measure(features: int, commits: int, every: int) -> tuple[float, np.ndarray, np.ndarray]:
    rows = np.random.default_rng(0).normal(size=(BLOCK, features)) / features**0.5
    algorithm = PrivateFPL(n_components=5, epsilon=1.0, delta=1e-6, n_features=features, release_every=BLOCK)
    took: dict[bool, list[float]] = {False: [], True: []}
    with (
        tempfile.TemporaryDirectory(dir=".") as folder,
        Store(Path(folder, "run.db"), commit_every="24h", snapshot_every="24h") as store,
    ):
        stream = Stream(algorithm, regret=None, store=store)
        writer = store._writer
        assert writer is not None
        for number in range(1, commits + 1):
            writer._snapshot_bytes = 2**62
            stream.push_many(rows)
            began = time.perf_counter()
            writer.commit(snapshot=number % every == 0)
            took[number % every == 0].append(time.perf_counter() - began)
        (size,) = store._open_database().db.execute("SELECT sum(length(sealed)) FROM snapshot").fetchone()
    return size, np.array(took[False]), np.array(took[True])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--commits", type=int, default=70)
    parser.add_argument("--every", type=int, default=7)
    parser.add_argument("--features", type=int, nargs="+", default=[20, 100, 500])
    given = parser.parse_args()
    for features in given.features:
        size, plain, snapshots = measure(features, given.commits, given.every)
        print(f"{features} features, snapshots of {size / 2**20:.2f} MiB")
        for what, seconds in (("commit", plain), ("commit with a snapshot", snapshots)):
            p50, p90 = np.percentile(seconds, [50, 90]) * 1e3
            print(f"  {what:<24} p50 {p50:6.1f}  p90 {p90:6.1f}  worst {seconds.max() * 1e3:6.1f} ms")
