"""What durability costs: rows a second with and without a store.

    python tests/store/overhead.py

Features 100, a release every 100 rows, the default commit setting, blocks of
1000 rows or single rows; releases are read as soon as they are durable, as the
command line does. Without a store and with one take turns, in one run. The
last lines are for streams that keep no regret, which are some twenty times as
fast and make 40 KB of releases per 100 rows; they are given ten times the
rows. What snapshots cost is measured by ``stalls.py``.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from streampca.processors.private_fpl import PrivateFPL
from streampca.regret.regret import RegretLog
from streampca.store.store import Store
from streampca.stream.step import Step, Steps
from streampca.stream.stream import Stream

BLOCK = 1000


def stream(features: int, live_regret: bool, store: Store | None) -> Stream:
    processor = PrivateFPL(n_components=5, epsilon=1.0, delta=1e-6, n_features=features, release_every=100)
    return Stream(processor, regret=RegretLog() if live_regret else None, store=store)


def feed(fed: Stream, store: Store | None, rows: np.ndarray, single: bool) -> None:
    held: deque[tuple[int, Sequence[Step]]] = deque()
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        steps = [fed.push(row) for row in block] if single else fed.push_many(block)
        held.append((start + len(block), steps))
        while held and (store is None or store.durable >= held[0][0]):
            read(held.popleft()[1])
    if store is not None:
        store.flush()
    for _, steps in held:
        read(steps)


def read(steps: Sequence[Step]) -> None:
    releases = steps.releases if isinstance(steps, Steps) else [step.release for step in steps if step.release]
    assert len(releases) == BLOCK // 100


def overhead(rounds: int, rows: np.ndarray, *, live_regret: bool, single: bool) -> None:
    wall, cpu, rates = [], [], []
    for _ in range(rounds):
        times = []
        for durable in (False, True):
            with tempfile.TemporaryDirectory(dir=".") as folder:
                store = Store(Path(folder, "run.db")) if durable else None
                fed = stream(rows.shape[1], live_regret, store)
                began, spent = time.perf_counter(), time.process_time()
                feed(fed, store, rows, single)
                times.append((time.perf_counter() - began, time.process_time() - spent))
                if store is not None:
                    store.close()
        wall.append(times[1][0] / times[0][0] - 1.0)
        cpu.append(times[1][1] / times[0][1] - 1.0)
        rates.append(len(rows) / times[0][0])
    what = f"{'push' if single else 'push_many'}, {'live regret' if live_regret else 'no regret'}"
    print(
        f"{what:<24} {statistics.median(rates):9.0f} rows/s plain; store costs {statistics.median(wall):+.1%} wall, "
        f"{statistics.median(cpu):+.1%} CPU (medians of {rounds})"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    data = np.random.default_rng(0).normal(size=(200 * BLOCK, 100)) / 10.0
    for with_regret in (True, False):
        for one_by_one in (False, True):
            fed_rows = data[: 20 * BLOCK] if with_regret else data
            overhead(given.rounds, fed_rows, live_regret=with_regret, single=one_by_one)
