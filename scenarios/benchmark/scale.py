"""Growth of time and memory with the number of rows n, features d, window W and components k."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmark.peers import unit_rows
from benchmark.timing import Bar, Result
from streampca.linalg.lattice import GramSum, onto_ball
from streampca.linalg.types import FloatArray
from streampca.processors.base import Algorithm, Processor
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.processors.solvers import Tracking
from streampca.regret.regret import RegretLog
from streampca.stream.blocks import BlockGram
from streampca.stream.stream import Stream


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Slope of log(cost) over log(size), by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def measure_scale(rounds: int, *, small: bool, memory_rows: int, full: bool = False) -> Result:
    """Fit exponents of time and of the memory held, and measure the peak memory of a long stream.

    Parameters
    ----------
    rounds : rounds of each size; the least time counts.
    small, full : small sizes, or up to 2000 features.
    memory_rows : rows of the long stream.
    """
    f = 1 if small else 4
    rows = unit_rows(1000 * f, 20)

    def leader(count: int, d: int = 20, k: int = 2) -> Callable[[], Processor]:
        return lambda: _push(
            PrivateFPL(n_components=k, epsilon=1.0, delta=1e-6, horizon=count, solver=Tracking()),
            rows[:count] if d == 20 else unit_rows(count, d),
        )

    def window(size: int) -> Callable[[], Processor]:
        algorithm = SlidingWindowPCA(window=size, n_components=2, epsilon=1.0, delta=1e-6, release_every=20)
        return lambda: _push(algorithm, rows)

    def blocks(doublings: int) -> Callable[[], Processor]:
        gram, admitted = GramSum(20), onto_ball(rows[:1000])
        for _ in range(2**doublings):
            gram = gram.add(admitted)
        block = BlockGram(*gram.high_low(), count=1000 * 2**doublings)
        return lambda: _push_blocks(block, 100)

    wide = (16, 32, 64) if small else (250, 500, 1000, 2000) if full else (32, 64, 128, 256)
    of_wide, doublings = 10 if full else 50 * f, (0, 4, 7, 10)
    measured: list[tuple[str, Sequence[int], list[Callable[[], Processor]], str]] = [
        ("n", s := [125 * f, 250 * f, 500 * f, 1000 * f], [leader(n) for n in s], "time: 1; memory: 0"),
        ("n", [10**5 * 2**j for j in doublings], [blocks(j) for j in doublings], "100 blocks: time and memory: 0"),
        ("d", wide, [leader(of_wide, d) for d in wide], "time and memory: at most 2"),
        ("W", s := [50 * f, 100 * f, 200 * f, 400 * f], [window(w) for w in s], "both well below 1 (log W)"),
        ("k", s := [1, 2, 4, 8, 16], [leader(100 * f, k=k) for k in s], "time: at most 1"),
    ]
    result = Result("scale", "exponents of time a run and of memory held, fitted over doublings", [])
    for name, sizes, works, expected in measured:
        seconds, held = [], []
        for work in works:
            work()
            times = []
            for _ in range(rounds):
                started = time.process_time()
                processor = work()
                times.append(time.process_time() - started)
            seconds.append(min(times))
            held.append(float(len(pickle.dumps(processor.snapshot()))))
        result.facts.append(
            f"{name} = {', '.join(map(str, sizes))}: time ~ {name}^{exponent(sizes, seconds):.2f}, "
            f"memory ~ {name}^{exponent(sizes, held):.2f} (expected {expected})"
        )
    found = peak_memory(memory_rows, 100)
    growth, label = found["end"] - found["quarter"], f"{memory_rows} rows x 100"
    result.facts.append(
        f"{label} streamed: {found['end']:.0f} MB over the imports ({found['imports']:.0f} MB), "
        f"of which {growth:.1f} MB after the first quarter"
    )
    result.bars = [
        Bar(f"peak memory over the imports, MB, {label}", 150.0, "<=", found["end"]),
        Bar("growth of it after the first quarter, MB", 5.0, "<=", growth),
    ]
    return result


def _push(algorithm: Algorithm, rows: FloatArray) -> Processor:
    stream = Stream(algorithm, regret=None)
    for row in rows:
        stream.push(row)
    return stream.engine.processor


def _push_blocks(block: BlockGram, count: int) -> Processor:
    rows = block.count
    algorithm = PrivateFPL(
        n_components=2, epsilon=1.0, delta=1e-6, horizon=count * rows, release_every=rows, n_features=block.n_features
    )
    stream = Stream(algorithm, regret=None)
    for _ in range(count):
        stream.push_block(block)
    return stream.engine.processor


def peak_memory(rows: int, n_features: int) -> dict[str, float]:
    """Peak memory of a stream in its own process, in MB over the imports: after a quarter, and at the end."""
    command = [sys.executable, "-m", __name__, str(rows), str(n_features)]
    folder = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)  # noqa: S603
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _resident() -> float:
    """Peak megabytes of this process; nan where the system does not say."""
    try:
        line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    except (OSError, StopIteration):
        return float("nan")
    return int(line.split()[1]) / 1024.0


def _main(rows: int, n_features: int) -> None:
    threadpool_limits(1)
    block = 1000
    table = np.random.default_rng(0).standard_normal((block, n_features))
    imports, quarter = _resident(), 0.0
    algorithm = PrivateFPL(
        n_components=5, epsilon=1.0, delta=1e-6, horizon=rows, release_every=block, solver=Tracking()
    )
    stream = Stream(algorithm, regret=RegretLog(every=100 * block))
    for start in range(0, rows, block):
        stream.push_many(table)
        if start >= rows // 4 and not quarter:
            quarter = _resident() - imports
    print(json.dumps({"quarter": quarter, "end": _resident() - imports, "imports": imports}))


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
