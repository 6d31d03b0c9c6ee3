"""DP-PCA beside Private Oja and the Gaussian mechanism, on Example 4.1 and Remark 3.4 of LKJO22.

In Example 4.1 rows are plus or minus one direction, plus noise of standard
deviation sigma. Sines at n = 1 000 000 (geometric means of 3 repetitions,
d = 50, epsilon = 1, delta = 1e-5, zero-out)::

    sigma               0.3      0.1      0.03     0.01     0.003    0.001
    DP-PCA             2.54e-03 8.85e-04 2.65e-04 8.87e-05 2.86e-05 9.62e-06
    Private Oja        2.60e-03 9.06e-04 3.02e-04 1.60e-04 1.34e-04 1.19e-04
    Gaussian mechanism 2.09e-03 6.70e-04 2.01e-04 8.02e-05 4.50e-05 4.51e-05
    not private        2.08e-03 6.64e-04 1.99e-04 6.63e-05 1.99e-05 6.63e-06

The Gaussian mechanism is best down to sigma = 0.01 here, to 0.02 at n = 200 000
and to 0.07 at n = 20 000: down to where its own error, sqrt(d / 2) / (mu n gap),
is some two thirds of the sampling error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
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
    params, d = context.params, int(context.params["n_features"])
    logs: dict[str, dict[float, list[float]]] = {}
    for sigma in params["sigmas"]:
        for i in range(int(params["repeats"])):
            random = np.random.default_rng([context.seed, i])
            truth = random.standard_normal((d, 1))
            truth /= np.linalg.norm(truth)
            blocks = (
                random.choice([-1.0, 1.0], size=(count, 1)) * truth[:, 0] + sigma * random.standard_normal((count, d))
                for count in _counts(context.rows)
            )
            for name, value in _sines(blocks, truth, context, i, context.rows, ROW_NORM).items():
                logs.setdefault(name, {}).setdefault(sigma, []).append(math.log(value))
    table: dict[str, dict[str, float]] = {}
    for name, by_sigma in logs.items():
        means = {sigma: float(np.mean(values)) for sigma, values in by_sigma.items()}
        table[name] = {f"sine_{sigma:g}": math.exp(mean) for sigma, mean in means.items()}
        for slope, largest in (("slope", math.inf), ("low_slope", float(params["low"]))):
            kept = {sigma: mean for sigma, mean in means.items() if sigma <= largest}
            table[name][slope] = float(np.polyfit(np.log(list(kept)), list(kept.values()), 1)[0])
    return table


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
            blocks = (random.standard_normal((count, d)) @ (turn * np.sqrt(spectrum)).T for count in _counts(rows))
            for name, value in _sines(blocks, turn[:, :1], context, i, rows, row_norm).items():
                logs.setdefault(name, {}).setdefault(label, []).append(math.log(value))
    return {
        name: {label: math.exp(float(np.mean(values))) for label, values in by_label.items()}
        for name, by_label in logs.items()
    }


def _sines(
    blocks: Iterator[FloatArray], truth: FloatArray, context: Context, i: int, rows: int, row_norm: float
) -> dict[str, float]:
    """Sine of the angle to the true direction, of all algorithms and of PCA without privacy, on the same rows."""
    budget: dict[str, Any] = {"n_components": 1, "horizon": rows}
    budget |= {name: float(context.params[name]) for name in ("epsilon", "delta")}
    made: dict[str, Algorithm] = {
        "dp_pca": sp.DPPCA(**budget),
        "private_oja": sp.PrivateOja(**budget),
        # `PrivateFPL` with a single release at the end is the Gaussian mechanism.
        "gaussian": sp.PrivateFPL(**budget, release_every=rows),
    }
    streams = {n: sp.Stream(p, row_norm=row_norm, regret=None, seed=context.seed + i) for n, p in made.items()}
    gram = np.zeros((len(truth), len(truth)))
    for block in blocks:
        clipped = block / np.maximum(np.linalg.norm(block, axis=1, keepdims=True) / row_norm, 1.0)
        gram += clipped.T @ clipped
        for stream in streams.values():
            stream.push_many(block)
    bases = {name: stream.engine.subspace.basis for name, stream in streams.items()}
    bases["exact"] = np.linalg.eigh(gram)[1][:, -1:]
    return {name: float(np.linalg.norm(basis - truth @ (truth.T @ basis), 2)) for name, basis in bases.items()}


def _counts(rows: int) -> Iterator[int]:
    """Sizes of the blocks that rows are cut into."""
    return (min(BLOCK, rows - start) for start in range(0, rows, BLOCK))
