"""Memory of streams and windows that do not end."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

from scenario import Context

import streampca as sp
from streampca.sources.synthetic import spiked


def endless(context: Context) -> dict[str, dict[str, float]]:
    """Stream synthetic rows through private PCA without a horizon, and through a sliding window.

    Memory is that of the whole process, in MB: ``at_tenth`` after a tenth of
    the rows, ``largest_later`` the largest after that, ``growth`` the difference.
    """
    budget: dict[str, Any] = {"n_components": 3, "epsilon": 1.0, "delta": 1e-6}
    budget["release_every"] = int(context.params["release_every"])
    figures = {}
    for name, algorithm in (
        ("anytime", sp.PrivateFPL(**budget)),
        ("window", sp.SlidingWindowPCA(window=5000, **budget)),
    ):
        stream = sp.Stream(algorithm, regret=sp.RegretLog(), seed=context.seed)
        at_tenth = largest = 0.0
        for block in spiked(context.rows, int(context.params["n_features"]), 3, seed=context.seed).blocks():
            stream.push_many(block)
            if stream.t >= context.rows // 10:
                now = _resident()
                at_tenth = at_tenth or now
                largest = max(largest, now)
        record = stream.regret.now()
        figures[name] = {
            "rows": float(stream.t), "at_tenth": at_tenth, "largest_later": largest, "growth": largest - at_tenth,
            "captured_variance": record.captured, "regret_per_row": record.average,
        }  # fmt: skip
    return figures


def _resident() -> float:
    """Memory of this process now, in MB; its peak where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:  # ru_maxrss: bytes on macOS, kilobytes elsewhere
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    return pages * resource.getpagesize() / 2**20
