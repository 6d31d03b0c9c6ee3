"""The story of a stream that does not end: memory stays flat."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from streampca.processors.private_fpl import PrivateFPL
from streampca.regret import RegretLog
from streampca.scenarios.runner import Context
from streampca.sources.synthetic import spiked
from streampca.stream import Stream


def run(context: Context) -> dict[str, dict[str, float]]:
    """Stream made-up rows through private PCA without a horizon; measure memory on the way.

    Memory is that of the whole process, in MB: ``at_tenth`` after a tenth of
    the rows, ``largest_later`` the largest after that, ``growth`` the difference.
    """
    every = int(context.params["release_every"])
    source = spiked(context.rows, int(context.params["n_features"]), 3, seed=context.seed)
    stream = Stream(
        PrivateFPL(n_components=3, epsilon=1.0, delta=1e-6, release_every=every), regret=RegretLog(), seed=context.seed
    )
    at_tenth = largest = 0.0
    for block in source.blocks():
        stream.push_many(block)
        if stream.t >= context.rows // 10:
            now = _resident()
            at_tenth = at_tenth or now
            largest = max(largest, now)
    record = stream.regret.now()
    values = {
        "rows": float(stream.t),
        "at_tenth": at_tenth,
        "largest_later": largest,
        "growth": largest - at_tenth,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10),
        "captured_variance": record.captured,
        "regret_per_row": record.average,
    }
    return {"anytime": values}


def _resident() -> float:
    """Memory of this process now; where the system does not tell, its peak."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    return pages * resource.getpagesize() / 2**20
