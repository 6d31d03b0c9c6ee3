"""How time and memory grow with the number of rows n, features d, window W and components k."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence

import numpy as np

from streampca.bench.memory import peak_memory
from streampca.bench.row_suite import unit_rows
from streampca.bench.timing import Result
from streampca.linalg.types import FloatArray
from streampca.processors.base import Algorithm, Processor
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.stream import Stream


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Slope of log(cost) over log(size), by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def run_scale(rounds: int, *, small: bool = False, memory_rows: int | None = None) -> list[Result]:
    """The suite: fitted exponents, and the peak memory of a long stream."""
    f = 1 if small else 4
    rows = unit_rows(1000 * f, 20)

    def leader(count: int, d: int = 20, k: int = 2) -> Callable[[], Processor]:
        return lambda: _push(
            PrivateFPL(n_components=k, epsilon=1.0, delta=1e-6, horizon=count, solver="tracking"),
            rows[:count] if d == 20 else unit_rows(count, d),
        )

    def window(size: int) -> Callable[[], Processor]:
        algorithm = SlidingWindowPCA(window=size, n_components=2, epsilon=1.0, delta=1e-6, release_every=20)
        return lambda: _push(algorithm, rows)

    wide = (16, 32, 64) if small else (32, 64, 128, 256)
    measured: list[tuple[str, Sequence[int], list[Callable[[], Processor]], str]] = [
        ("n", s := [125 * f, 250 * f, 500 * f, 1000 * f], [leader(n) for n in s], "time: 1; memory: 0"),
        ("d", wide, [leader(50 * f, d) for d in wide], "time and memory: at most 2"),
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
    count = memory_rows or (20_000 if small else 500_000)
    found = peak_memory(count, 100)
    growth = found["end"] - found["quarter"]
    result.facts.append(
        f"{count} rows x 100 streamed: {found['end']:.0f} MB over the imports ({found['imports']:.0f} MB), "
        f"of which {growth:.1f} MB after the first quarter"
    )
    result.require(f"peak memory over the imports, MB, {count} rows x 100", "<=", 150.0, found["end"])
    result.require("growth of it after the first quarter, MB", "<=", 5.0, growth)
    return [result]


def _push(algorithm: Algorithm, rows: FloatArray) -> Processor:
    stream = Stream(algorithm, regret=None)
    for row in rows:
        stream.push(row)
    return stream.processor
