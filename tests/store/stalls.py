"""How long a stream waits for its store, with and without snapshots of 8 MB under way, in one run.

    python tests/store/stalls.py

Phases without snapshots and phases in which one is always being written take
turns. Told of each: how long a block takes to push, how long its commit is then
waited for, as by who reads its release at once, and both together; how many
steps of a snapshot a commit had to wait for; and blocks of a stream at the
default setting, which does not wait for commits. The script ends with 1 if a
commit waited for more than one step, or if snapshots hold half of the blocks,
or 99 in 100 of them, up for longer than one ordinary commit takes (its median
and its 99th percentile).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streampca.processors.private_fpl import PrivateFPL
from streampca.store import writer
from streampca.store.store import Store
from streampca.store.thread import Idle, Job, WritingThread
from streampca.store.writer import Writer
from streampca.stream import Stream

NEVER = 2**62


class Counted:
    """What the writing thread does, counted."""

    def __init__(self) -> None:
        self.steps = self.snapshots = self.before = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count steps between commits, those that each commit had to wait for, and snapshots."""
        counted, step, write, folding, begin = (
            self, Writer._take_step, Writer._write, Writer._folding, WritingThread.begin
        )  # fmt: skip
        at = 0

        def one(self: Writer, fold: Iterator[int]) -> None:
            step(self, fold)
            counted.steps += 1

        def begun(self: WritingThread, work: Callable[[], Idle | None]) -> Job:
            nonlocal at
            at = counted.steps
            return begin(self, work)

        def written(self: Writer, snapshot: bool = False) -> Idle | None:
            counted.before = max(counted.before, counted.steps - at)
            return write(self, snapshot)

        def whole(self: Writer, *fed: Any) -> Iterator[int]:
            yield from folding(self, *fed)
            counted.snapshots += 1

        with pytest.MonkeyPatch.context() as patch:
            for name, by in (("_take_step", one), ("_write", written), ("_folding", whole)):
                patch.setattr(Writer, name, by)
            patch.setattr(WritingThread, "begin", begun)
            yield


def measure(features: int, block: int, phases: int, length: int, wait: bool) -> dict[str, np.ndarray | int | float]:
    """Times of blocks, without and with snapshots under way."""
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(block * 10, features)) / features**0.5
    processor = PrivateFPL(n_components=5, epsilon=1.0, delta=1e-6, n_features=features, release_every=block)
    counted = Counted()
    took: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory(dir=".") as folder, counted.counting():
        store = Store(Path(folder, "run.db"), snapshot_every="24h")
        fed = Stream(processor, regret=None, store=store)
        pen = store._writer
        assert pen is not None
        for phase in range(2 * phases + 1):
            snapshots = phase % 2 == 1
            pen._thread.do(pen._finish_fold)
            writer._LEAST_SNAPSHOT = 0 if snapshots else NEVER
            for number in range(length):
                pen._snapshot_bytes = 0
                start = (number % 10) * block
                began = time.perf_counter()
                fed.push_many(rows[start : start + block])
                pushed = time.perf_counter()
                if wait:
                    store.flush()
                done = time.perf_counter()
                if phase and number:  # the first of each phase begins it
                    took[snapshots].append((pushed - began, done - pushed))
        pen.finish()
        (size,) = pen._database.db.execute("SELECT sum(length(sealed)) FROM snapshot").fetchone()
        store.close()
    return {
        "without": np.array(took[False]),
        "with": np.array(took[True]),
        "snapshots": counted.snapshots,
        "before": counted.before,
        "steps": counted.steps,
        "mib": size / 2**20,
    }


def line(what: str, seconds: np.ndarray) -> str:
    p50, p99 = np.percentile(seconds, [50, 99]) * 1e3
    return f"{what:<44} p50 {p50:6.1f}  p99 {p99:6.1f}  worst {seconds.max() * 1e3:6.1f} ms"


def main(features: int, block: int, phases: int, length: int) -> int:
    got = measure(features, block, phases, length, wait=True)
    plain, under = got["without"], got["with"]
    assert isinstance(plain, np.ndarray)
    assert isinstance(under, np.ndarray)
    print(
        f"{features} features, blocks of {block} rows; {got['snapshots']} snapshots of {got['mib']:.1f} MiB, "
        f"{got['steps']} steps between commits"
    )
    print(f"releases read at once ({len(plain)} and {len(under)} blocks):")
    for name, columns in (("push", [0]), ("wait for the commit", [1]), ("both", [0, 1])):
        print(line(f"  {name}, no snapshot", plain[:, columns].sum(1)))
        print(line(f"  {name}, snapshot under way", under[:, columns].sum(1)))
    print(f"  steps of a snapshot that a commit had to wait for: at most {got['before']}")
    more = {q: np.percentile(under.sum(1), q) - np.percentile(plain.sum(1), q) for q in (50, 99)}
    commit = {q: float(np.percentile(plain[:, 1], q)) for q in (50, 99)}
    ratio = np.median(under[:, 1]) / np.median(plain[:, 1])
    print(
        f"  commits take {ratio:.2f} times as long; a block takes {more[50] * 1e3:+.1f} ms (p50), "
        f"{more[99] * 1e3:+.1f} ms (p99); an ordinary commit takes {commit[50] * 1e3:.1f} and {commit[99] * 1e3:.1f} ms"
    )
    free = measure(features, block, phases, length, wait=False)
    print("commits in the background:")
    assert isinstance(free["without"], np.ndarray)
    assert isinstance(free["with"], np.ndarray)
    print(line("  push, no snapshot", free["without"][:, 0]))
    print(line("  push, snapshot under way", free["with"][:, 0]))
    return int(got["before"] > 1 or more[50] > commit[50] or more[99] > commit[99])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--features", type=int, default=440)
    parser.add_argument("--block", type=int, default=200)
    parser.add_argument("--phases", type=int, default=10)
    parser.add_argument("--length", type=int, default=60)
    given = parser.parse_args()
    sys.exit(main(given.features, given.block, given.phases, given.length))
