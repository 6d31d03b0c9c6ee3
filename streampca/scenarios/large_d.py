"""Thousands of features: the Oja family in O(dk) memory, where a Gram matrix has d * d entries."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np

import streampca as sp
from streampca.linalg.types import FloatArray
from streampca.processors.base import Algorithm
from streampca.scenarios.runner import Context
from streampca.scenarios.signal_noise import sine

_BLOCK = 16


def run(context: Context) -> dict[str, dict[str, float]]:
    """Entry of the scenario: captured share, largest sine, and peak memory over that of a (d, k) and a (d, d) array."""
    params, rows = context.params, context.rows
    d, k = int(params["n_features"]), int(params["n_components"])
    budget: dict[str, Any] = {"n_components": k, "epsilon": float(params["epsilon"]), "delta": float(params["delta"])}
    made: dict[str, Algorithm] = {
        "oja": sp.Oja(n_components=k),
        "private_oja": sp.PrivateOja(**budget, horizon=rows),
        "dp_pca": sp.DPPCA(**budget, horizon=rows),
    }
    truth = np.linalg.qr(np.random.default_rng([context.seed, 0]).standard_normal((d, k)))[0]
    strengths = np.sqrt(np.linspace(1.0, 0.6, k) / k)
    # What is imported on first use is not the streams' memory.
    sp.Stream(sp.Oja(), regret=None, seed=context.seed).push_many(np.eye(2 * _BLOCK))
    table: dict[str, dict[str, float]] = {}
    for name, algorithm in made.items():
        tracemalloc.start()
        stream = sp.Stream(algorithm, row_norm=1.5, regret=None, seed=context.seed)
        for block in _rows(rows, truth, strengths, float(params["noise"]), context.seed):
            stream.push_many(block)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        basis = stream.subspace.basis
        share = float(np.sum(((truth.T @ basis) * strengths[:, None]) ** 2) / np.sum(strengths**2))
        table[name] = {
            "captured_signal": share,
            "sine": sine(basis, truth),
            "peak_over_dk": peak / (8.0 * d * k),
            "peak_over_dd": peak / (8.0 * d * d),
        }
    return table


def _rows(rows: int, truth: FloatArray, strengths: FloatArray, noise: float, seed: int) -> Iterator[FloatArray]:
    """Signal of random signs in the true subspace, plus noise; the noise of a row has norm ``noise``, roughly."""
    random = np.random.default_rng([seed, 1])
    d, k = truth.shape
    for start in range(0, rows, _BLOCK):
        count = min(_BLOCK, rows - start)
        signal = random.choice([-1.0, 1.0], size=(count, k)) * strengths
        yield signal @ truth.T + noise / np.sqrt(d) * random.standard_normal((count, d))
