"""DP-PCA beside Private Oja and the Gaussian mechanism, on Example 4.1 and Remark 3.4 of LKJO22.

In Example 4.1 rows are plus or minus one direction, plus noise of standard
deviation sigma. Sines at n = 1 000 000 (geometric means of 3 repetitions,
d = 50, epsilon = 1, delta = 1e-5, zero-out)::

    sigma               0.3      0.1      0.03     0.01     0.003    0.001
    DP-PCA, tangent    2.54e-03 8.85e-04 2.65e-04 8.87e-05 2.86e-05 9.62e-06
    DP-PCA, centered   2.61e-03 8.85e-04 2.69e-04 9.08e-05 2.73e-05 9.70e-06
    Private Oja        2.60e-03 9.06e-04 3.02e-04 1.60e-04 1.34e-04 1.19e-04
    Gaussian mechanism 2.09e-03 6.70e-04 2.01e-04 8.02e-05 4.50e-05 4.51e-05
    not private        2.08e-03 6.64e-04 1.99e-04 6.63e-05 1.99e-05 6.63e-06

The Gaussian mechanism is best down to sigma = 0.01 here, to 0.02 at n = 200 000
and to 0.07 at n = 20 000: down to where its own error, sqrt(d / 2) / (mu n gap),
is some two thirds of the sampling error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scenario import Context

import streampca as sp
from streampca.linalg.types import FloatArray
from streampca.processors.base import Algorithm

BLOCK = 4096
#: Public bound on the rows of Example 4.1; a longer row is scaled back.
ROW_NORM = 1.5


def signal_noise(context: Context) -> dict[str, dict[str, float]]:
    """Compare on Example 4.1, at several sigmas.

    Measures: the sine of the angle to the true direction at each sigma (geometric mean over
    repetitions), ``slope`` of log sine against log sigma, ``low_slope`` of those up to sigma = ``low``.
    """
    params = context.params
    d, epsilon, delta = int(params["n_features"]), float(params["epsilon"]), float(params["delta"])
    table: dict[str, dict[float, float]] = {}
    for sigma in params["sigmas"]:
        logs: dict[str, list[float]] = {}
        for i in range(int(params["repeats"])):
            random = np.random.default_rng([context.seed, i])
            truth = random.standard_normal((d, 1))
            truth /= np.linalg.norm(truth)
            blocks = _signal_rows(context.rows, sigma, random, truth)
            made = _algorithms(context.rows, epsilon, delta)
            for name, value in _sines(blocks, truth, made, context.seed + i, ROW_NORM).items():
                logs.setdefault(name, []).append(math.log(value))
        for name, values in logs.items():
            table.setdefault(name, {})[sigma] = math.exp(float(np.mean(values)))
    low = float(params["low"])
    return {
        name: {f"sine_{sigma:g}": value for sigma, value in sines.items()}
        | {"slope": _slope(sines), "low_slope": _slope(sines, low)}
        for name, sines in table.items()
    }


def gaussian_rows(context: Context) -> dict[str, dict[str, float]]:
    """Compare on Remark 3.4: Gaussian rows, whose own noise is as large as their signal.

    Every method loses sqrt(d / n) to sampling and about d / (epsilon n) to
    privacy. Measures: sines at a quarter of the rows and at all of them.
    """
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
            made = _algorithms(rows, float(params["epsilon"]), float(params["delta"]))
            del made["dp_pca_deflation"]
            blocks = (random.standard_normal((count, d)) @ (turn * np.sqrt(spectrum)).T for count in _counts(rows))
            for name, value in _sines(blocks, turn[:, :1], made, context.seed + i, row_norm).items():
                logs.setdefault(name, {}).setdefault(label, []).append(math.log(value))
    return {
        name: {label: math.exp(float(np.mean(values))) for label, values in by_label.items()}
        for name, by_label in logs.items()
    }


def _algorithms(rows: int, epsilon: float, delta: float) -> dict[str, Algorithm]:
    """Algorithms to compare. `PrivateFPL` with a single release at the end is the Gaussian mechanism."""
    budget: dict[str, Any] = {"n_components": 1, "epsilon": epsilon, "delta": delta, "horizon": rows}
    return {
        "dp_pca": sp.DPPCA(**budget),
        "dp_pca_deflation": sp.DPPCA(**budget, method="deflation"),
        "private_oja": sp.PrivateOja(**budget),
        "gaussian": sp.PrivateFPL(**budget, release_every=rows),
    }


def _sines(
    blocks: Iterator[FloatArray], truth: FloatArray, made: Mapping[str, Algorithm], seed: int, row_norm: float
) -> dict[str, float]:
    """Sine of the angle to the true direction, of all algorithms and of PCA without privacy, on the same rows."""
    d = truth.shape[0]
    streams = {name: sp.Stream(p, row_norm=row_norm, regret=None, seed=seed) for name, p in made.items()}
    gram = np.zeros((d, d))
    for block in blocks:
        lengths = np.linalg.norm(block, axis=1, keepdims=True)
        clipped = block / np.maximum(lengths / row_norm, 1.0)
        gram += clipped.T @ clipped
        for stream in streams.values():
            stream.push_many(block)
    bases = {name: stream.engine.subspace.basis for name, stream in streams.items()}
    bases["exact"] = np.linalg.eigh(gram)[1][:, -1:]
    return {name: float(np.linalg.norm(basis - truth @ (truth.T @ basis), 2)) for name, basis in bases.items()}


def _signal_rows(rows: int, sigma: float, random: np.random.Generator, truth: FloatArray) -> Iterator[FloatArray]:
    """Blocks of rows of Example 4.1."""
    for count in _counts(rows):
        signs = random.choice([-1.0, 1.0], size=(count, 1))
        yield signs * truth[:, 0] + sigma * random.standard_normal((count, len(truth)))


def _counts(rows: int) -> Iterator[int]:
    """Sizes of the blocks that so many rows are cut into."""
    return (min(BLOCK, rows - start) for start in range(0, rows, BLOCK))


def _slope(sines: Mapping[float, float], largest: float = math.inf) -> float:
    """Slope of log sine against log sigma, over sigmas up to ``largest``."""
    kept = {s: v for s, v in sines.items() if s <= largest}
    return float(np.polyfit(np.log(list(kept)), np.log(list(kept.values())), 1)[0])
