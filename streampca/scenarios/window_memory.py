"""The story of a window on a stream that does not end: memory stays flat."""

from __future__ import annotations

import resource
import sys

from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.scenarios.runner import Context
from streampca.scenarios.windows import window_of
from streampca.sources.synthetic import drift
from streampca.stream import Stream


def run(context: Context) -> dict[str, dict[str, float]]:
    """Follow a turning subspace through one window after another; measure memory on the way.

    ``checkpoints`` and ``mib`` (of checkpoints and the exact sum) are the largest ever,
    ``mib_growth`` how much larger the second half's largest is than the first half's,
    ``process_growth`` how many MB the whole process's peak rose after a tenth of the
    rows. Once with whole sums, once with sketched ones.
    """
    params = context.params
    common = {name: params[name] for name in ("window", "n_components", "eta", "release_every")}
    d, table = int(params["n_features"]), {}
    for name, rank in (("whole", None), ("sketched", int(params["sketch_rank"]))):
        algorithm = SlidingWindowPCA(epsilon=1.0, delta=1e-6, overhang=params["overhang"], sketch_rank=rank, **common)
        stream = Stream(algorithm, regret=None, seed=context.seed)
        source = drift(
            context.rows, d, common["n_components"], context.seed, quarter_turn=5 * common["window"], norm=0.9
        )
        most, at_tenth = 0, 0.0
        halves = [0, 0]
        for block in source.blocks():
            for start in range(0, len(block), 1000):
                stream.push_many(block[start : start + 1000])
                now = window_of(stream)
                most = max(most, len(now.checkpoints))
                half = int(2 * stream.t > context.rows)
                halves[half] = max(halves[half], now.memory)
                if not at_tenth and 10 * stream.t >= context.rows:
                    at_tenth = _peak()
        table[name] = {
            "rows": float(stream.t),
            "checkpoints": float(most),
            "mib": max(halves) / 2**20,
            "mib_growth": (halves[1] - halves[0]) / 2**20,
            "process_growth": _peak() - at_tenth,
        }
    return table


def _peak() -> float:
    """Largest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
