"""Remark 3.4 of LKJO22: Gaussian rows, whose own noise is as large as their signal.

No method can gain from rows being alike: all lose sqrt(d / n) to sampling and
something like d / (epsilon n) to privacy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from streampca.linalg.types import FloatArray
from streampca.scenarios.runner import Context
from streampca.scenarios.signal_noise import BLOCK, algorithms, compare


def run(context: Context) -> dict[str, dict[str, float]]:
    """Entry of the scenario: sines at a quarter of the rows and at all of them."""
    params = context.params
    d = int(params["n_features"])
    spectrum = np.full(d, float(params["second"]))
    spectrum[0] = 1.0
    row_norm = 1.3 * math.sqrt(float(spectrum.sum()))
    logs: dict[str, dict[str, list[float]]] = {}
    for i in range(int(params["repeats"])):
        random = np.random.default_rng([context.seed, i])
        turn = np.linalg.qr(random.standard_normal((d, d)))[0]
        for label, rows in (("sine_quarter", context.rows // 4), ("sine", context.rows)):
            made = algorithms(rows, float(params["epsilon"]), float(params["delta"]), deflation=False)
            blocks = _rows(rows, turn * np.sqrt(spectrum), random)
            for name, value in compare(blocks, turn[:, :1], made, context.seed + i, row_norm).items():
                logs.setdefault(name, {}).setdefault(label, []).append(math.log(value))
    return {
        name: {label: math.exp(float(np.mean(values))) for label, values in by_label.items()}
        for name, by_label in logs.items()
    }


def _rows(rows: int, root: FloatArray, random: np.random.Generator) -> Iterator[FloatArray]:
    for start in range(0, rows, BLOCK):
        yield random.standard_normal((min(BLOCK, rows - start), root.shape[1])) @ root.T
