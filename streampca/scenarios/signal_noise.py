"""Example 4.1 of LKJO22: rows are plus or minus one direction, plus noise of sd sigma.

The sine of the angle to the direction, against sigma, for DP-PCA, Private Oja
and the Gaussian mechanism on the same rows. ``python -m
streampca.scenarios.signal_noise OUT --rows 1000000`` writes the table
``OUT.csv`` and the picture ``OUT.svg`` (the picture needs matplotlib). It
takes a minute; what it found (geometric means of 3 repetitions, d = 50,
epsilon = 1, delta = 1e-5, zero-out, n = 1 000 000)::

    sigma               0.3      0.1      0.03     0.01     0.003    0.001
    DP-PCA, tangent    2.54e-03 8.85e-04 2.65e-04 8.87e-05 2.86e-05 9.62e-06
    DP-PCA, centred    2.61e-03 8.85e-04 2.69e-04 9.08e-05 2.73e-05 9.70e-06
    Private Oja        2.60e-03 9.06e-04 3.02e-04 1.60e-04 1.34e-04 1.19e-04
    Gaussian mechanism 2.09e-03 6.70e-04 2.01e-04 8.02e-05 4.50e-05 4.51e-05
    not private        2.08e-03 6.64e-04 1.99e-04 6.63e-05 1.99e-05 6.63e-06

The Gaussian mechanism is best down to sigma = 0.01 here, to 0.02 at n = 200 000
and to 0.07 at n = 20 000: down to where its own error, sqrt(d / 2) / (mu n gap),
is some two thirds of the sampling error.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import streampca as sp
from streampca.linalg.threads import one_blas_thread
from streampca.linalg.types import FloatArray
from streampca.processors.base import Algorithm
from streampca.scenarios.runner import Context

BLOCK = 4096
#: Public bound on the rows of the example; a longer row is scaled back.
ROW_NORM = 1.5
LABELS = {
    "dp_pca": "DP-PCA, tangent",
    "dp_pca_deflation": "DP-PCA, centred (Alg. 3-5)",
    "private_oja": "Private Oja",
    "gaussian": "Gaussian mechanism (svec-GOE)",
    "exact": "not private",
}


def algorithms(rows: int, epsilon: float, delta: float, k: int = 1, *, deflation: bool = True) -> dict[str, Algorithm]:
    """What is compared. `PrivateFPL` with a single release at the end is the Gaussian mechanism."""
    budget: dict[str, Any] = {"n_components": k, "epsilon": epsilon, "delta": delta, "horizon": rows}
    made: dict[str, Algorithm] = {"dp_pca": sp.DPPCA(**budget)}
    if deflation:
        made["dp_pca_deflation"] = sp.DPPCA(**budget, method="deflation")
    made["private_oja"] = sp.PrivateOja(**budget)
    made["gaussian"] = sp.PrivateFPL(**budget, release_every=rows)
    return made


def sine(basis: FloatArray, truth: FloatArray) -> float:
    """Sine of the largest angle from a subspace to the true one."""
    return float(np.linalg.norm(basis - truth @ (truth.T @ basis), 2))


def compare(
    blocks: Iterator[FloatArray], truth: FloatArray, made: Mapping[str, Algorithm], seed: int, row_norm: float
) -> dict[str, float]:
    """Sines of all algorithms, and of PCA without privacy, on the same rows."""
    d, k = truth.shape
    streams = {name: sp.Stream(p, row_norm=row_norm, regret=None, seed=seed) for name, p in made.items()}
    gram = np.zeros((d, d))
    for block in blocks:
        lengths = np.linalg.norm(block, axis=1, keepdims=True)
        clipped = block / np.maximum(lengths / row_norm, 1.0)
        gram += clipped.T @ clipped
        for stream in streams.values():
            stream.push_many(block)
    sines = {name: sine(stream.subspace.basis, truth) for name, stream in streams.items()}
    return sines | {"exact": sine(np.linalg.eigh(gram)[1][:, -k:], truth)}


def signal_and_noise(
    rows: int, d: int, sigma: float, random: np.random.Generator, truth: FloatArray
) -> Iterator[FloatArray]:
    """Blocks of rows of Example 4.1."""
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        signs = random.choice([-1.0, 1.0], size=(count, 1))
        yield signs * truth[:, 0] + sigma * random.standard_normal((count, d))


def sweep(rows: int, seed: int, params: Mapping[str, Any]) -> dict[str, dict[float, float]]:
    """Geometric mean of the sine over repetitions, for each method and sigma."""
    d, epsilon, delta = int(params["n_features"]), float(params["epsilon"]), float(params["delta"])
    table: dict[str, dict[float, float]] = {}
    for sigma in params["sigmas"]:
        logs: dict[str, list[float]] = {}
        for i in range(int(params["repeats"])):
            random = np.random.default_rng([seed, i])
            truth = random.standard_normal((d, 1))
            truth /= np.linalg.norm(truth)
            blocks = signal_and_noise(rows, d, sigma, random, truth)
            for name, value in compare(blocks, truth, algorithms(rows, epsilon, delta), seed + i, ROW_NORM).items():
                logs.setdefault(name, []).append(math.log(value))
        for name, values in logs.items():
            table.setdefault(name, {})[sigma] = math.exp(float(np.mean(values)))
    return table


def slope(sines: Mapping[float, float], largest: float = math.inf) -> float:
    """Slope of log sine against log sigma, over sigmas up to ``largest``."""
    kept = {s: v for s, v in sines.items() if s <= largest}
    return float(np.polyfit(np.log(list(kept)), np.log(list(kept.values())), 1)[0])


def run(context: Context) -> dict[str, dict[str, float]]:
    """Entry of the scenario: sines, their slope, and the slope where noise should be all that is left."""
    table = sweep(context.rows, context.seed, context.params)
    low = float(context.params["low"])
    return {
        name: {f"sine_{sigma:g}": value for sigma, value in sines.items()}
        | {"slope": slope(sines), "low_slope": slope(sines, low)}
        for name, sines in table.items()
    }


def write(out: Path, table: Mapping[str, Mapping[float, float]], title: str) -> list[Path]:
    """Write ``out``.csv and, if matplotlib is there, ``out``.svg; return what was written."""
    out.parent.mkdir(parents=True, exist_ok=True)
    csv_path, picture = out.with_suffix(".csv"), out.with_suffix(".svg")
    sigmas = list(next(iter(table.values())))
    with csv_path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["sigma", *table])
        lines.writerows([f"{s:g}", *(f"{sines[s]:.4e}" for sines in table.values())] for s in sigmas)
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return [csv_path]
    figure = Figure(figsize=(6.5, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="sigma, sd of the rows' own noise", ylabel="sine of the angle", title=title)
    for name, sines in table.items():
        style = "k--" if name == "exact" else "o-"
        axes.loglog(
            list(sines), list(sines.values()), style, label=f"{LABELS.get(name, name)}: slope {slope(sines):.2f}"
        )
    axes.grid(which="both", alpha=0.3)
    axes.legend()
    figure.savefig(picture)
    return [csv_path, picture]


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line of the larger run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=41)
    given = parser.parse_args(arguments)
    one_blas_thread()
    sigmas = [0.3, 0.1, 0.03, 0.01, 0.003, 0.001]
    params = {"n_features": given.features, "epsilon": given.epsilon, "delta": given.delta}
    table = sweep(given.rows, given.seed, params | {"repeats": given.repeats, "sigmas": sigmas})
    title = f"n = {given.rows:,}, d = {given.features}, epsilon = {given.epsilon:g}, delta = {given.delta:g}"
    for path in write(given.out, table, title):
        print(path)
    for name, sines in table.items():
        print(f"{name:18s}", *(f"{value:.2e}" for value in sines.values()), f"slope {slope(sines):.2f}")


if __name__ == "__main__":
    main()
