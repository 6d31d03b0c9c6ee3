"""Growth of time and memory with the number of rows n, features d, window W and components k."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from benchmark.peers import unit_rows
from benchmark.timing import Result
from streampca.linalg.lattice import GramSum, onto_ball
from streampca.linalg.types import FloatArray
from streampca.processors.base import Algorithm, Processor
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.processors.solvers import Tracking
from streampca.stream.blocks import BlockGram
from streampca.stream.stream import Stream


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Slope of log(cost) over log(size), by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def measure_scale(rounds: int, *, small: bool, full: bool = False) -> Result:
    """Fit exponents of time and of the memory held.

    Parameters
    ----------
    rounds : rounds of each size; the least time counts.
    small, full : small sizes, or up to 2000 features.
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
    result = Result("scale: exponents of time a run and of memory held, fitted over doublings", pd.DataFrame())
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
    return result


def _push(algorithm: Algorithm, rows: FloatArray) -> Processor:
    stream = Stream(algorithm, regret=None)
    for row in rows:
        stream.push(row)
    return stream.engine.processor


def _push_blocks(block: BlockGram, count: int) -> Processor:
    rows = block.count
    algorithm = PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, horizon=count * rows, release_every=rows)
    stream = Stream(algorithm, regret=None)
    for _ in range(count):
        stream.push_block(block)
    return stream.engine.processor
