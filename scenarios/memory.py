"""Memory of streams that do not end, of windows, and of rows with thousands of features."""

from __future__ import annotations

import resource
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
from scenario import Context, held_bytes

import streampca as sp
from streampca.processors.base import Algorithm
from streampca.processors.spectral_histogram import HistogramProcessor
from streampca.rows.protocol import Reader
from streampca.sources.synthetic import drift, spiked

_BLOCK = 16


def endless(context: Context) -> dict[str, dict[str, float]]:
    """Stream synthetic rows through private PCA without a horizon.

    Memory is that of the whole process, in MB: ``at_tenth`` after a tenth of
    the rows, ``largest_later`` the largest after that, ``growth`` the difference.
    """
    every = int(context.params["release_every"])
    source = spiked(context.rows, int(context.params["n_features"]), 3, seed=context.seed)
    algorithm = sp.PrivateFPL(n_components=3, epsilon=1.0, delta=1e-6, release_every=every)
    stream = sp.Stream(algorithm, regret=sp.RegretLog(), seed=context.seed)
    at_tenth = largest = 0.0
    for block in source.blocks():
        stream.push_many(block)
        if stream.t >= context.rows // 10:
            now = _resident()
            at_tenth = at_tenth or now
            largest = max(largest, now)
    record = stream.regret.now()
    figures = {"rows": float(stream.t), "at_tenth": at_tenth, "largest_later": largest, "growth": largest - at_tenth}
    figures |= {"peak": _peak(), "captured_variance": record.captured, "regret_per_row": record.average}
    return {"anytime": figures}


def window(context: Context) -> dict[str, dict[str, float]]:
    """Follow a turning subspace through many windows, with whole sums and with sketched ones.

    ``checkpoints`` and ``mib`` (of checkpoints and the exact sum) are the largest ever,
    ``mib_growth`` how much larger the second half's largest is than the first half's,
    ``process_growth`` how many MB the whole process's peak rose after a tenth of the rows.
    """
    params = context.params
    common = {name: params[name] for name in ("window", "n_components", "eta", "release_every", "overhang")}
    d, table = int(params["n_features"]), {}
    for name, rank in (("whole", None), ("sketched", int(params["sketch_rank"]))):
        algorithm = sp.SlidingWindowPCA(epsilon=1.0, delta=1e-6, sketch_rank=rank, **common)
        stream = sp.Stream(algorithm, regret=None, seed=context.seed)
        turning = {"quarter_turn": 5 * common["window"], "norm": 0.9}
        reader = Reader(drift(context.rows, d, common["n_components"], context.seed, **turning).blocks())
        most, at_tenth, halves = 0, 0.0, [0, 0]
        while len(block := reader.take(1000)):
            stream.push_many(block)
            now = stream.engine.processor
            assert isinstance(now, HistogramProcessor)
            most = max(most, len(now.checkpoints))
            half = int(2 * stream.t > context.rows)
            halves[half] = max(halves[half], held_bytes(now))
            if not at_tenth and 10 * stream.t >= context.rows:
                at_tenth = _peak()
        table[name] = {
            "rows": float(stream.t), "checkpoints": float(most), "mib": max(halves) / 2**20,
            "mib_growth": (halves[1] - halves[0]) / 2**20, "process_growth": _peak() - at_tenth,
        }  # fmt: skip
    return table


def large_d(context: Context) -> dict[str, dict[str, float]]:
    """Run the Oja family, which needs O(dk) memory where a Gram matrix has d * d entries.

    Measures: ``captured_signal``, ``sine`` of the largest angle to the true
    subspace, peak memory over that of a (d, k) and of a (d, d) array.
    """
    params, rows = context.params, context.rows
    d, k = int(params["n_features"]), int(params["n_components"])
    budget: dict[str, Any] = {"n_components": k, "epsilon": float(params["epsilon"]), "delta": float(params["delta"])}
    algorithms: dict[str, Algorithm] = {
        "oja": sp.Oja(n_components=k),
        "private_oja": sp.PrivateOja(**budget, horizon=rows),
        "dp_pca": sp.DPPCA(**budget, horizon=rows, batch_size=rows // 6),
    }
    truth = np.linalg.qr(np.random.default_rng([context.seed, 0]).standard_normal((d, k)))[0]
    strengths = np.sqrt(np.linspace(1.0, 0.6, k) / k)
    # Modules imported on first use are not the streams' memory.
    sp.Stream(sp.Oja(), regret=None, seed=context.seed).push_many(np.eye(2 * _BLOCK))
    table: dict[str, dict[str, float]] = {}
    for name, algorithm in algorithms.items():
        tracemalloc.start()
        stream = sp.Stream(algorithm, row_norm=1.5, regret=None, seed=context.seed)
        # Signal of random signs in the true subspace, plus noise whose norm is roughly ``noise`` a row.
        random, noise = np.random.default_rng([context.seed, 1]), float(params["noise"]) / np.sqrt(d)
        for start in range(0, rows, _BLOCK):
            count = min(_BLOCK, rows - start)
            signal = random.choice([-1.0, 1.0], size=(count, k)) * strengths
            stream.push_many(signal @ truth.T + noise * random.standard_normal((count, d)))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        basis = stream.engine.subspace.basis
        share = float(np.sum(((truth.T @ basis) * strengths[:, None]) ** 2) / np.sum(strengths**2))
        table[name] = {
            "captured_signal": share, "sine": float(np.linalg.norm(basis - truth @ (truth.T @ basis), 2)),
            "peak_over_dk": peak / (8.0 * d * k), "peak_over_dd": peak / (8.0 * d * d),
        }  # fmt: skip
    return table


def _resident() -> float:
    """Memory of this process now, in MB; its peak where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return _peak()
    return pages * resource.getpagesize() / 2**20


def _peak() -> float:
    """Peak memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
