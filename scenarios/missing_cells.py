"""Missing cells: ``python scenarios/missing_cells.py`` prints what each policy captures, and how far it moves the mean.

Two tables without a gap get gaps at random: the flights of 2013, a fifth of the cells of every column; and made rows of
ten columns far from the middle of their ranges, of which 0 to 60 % are missing, 30 % on average. Captured is the share
of the best three-dimensional subspace's variance about the mean of the *whole* table; the error of the mean is the
largest over columns, in percent of their range. Medians over seeds, at delta 1e-7. Under a minute.
"""

import logging
from typing import Any

import numpy as np
from real_tables import markdown

import streampca as sp
from streampca.linalg.types import FloatArray
from streampca.sources import flights

COMPONENTS, EPSILON, DELTA, SEEDS = 3, 1.0, 1e-7, 9
#: Columns of the flights whose cells are all numbers in most rows.
COLUMNS = ("month", "dep_time", "sched_dep_time", "dep_delay", "arr_delay", "air_time", "distance", "hour")

Bounds = tuple[FloatArray, FloatArray]


def flown() -> tuple[FloatArray, FloatArray, Bounds]:
    """Return whole rows of the flights, clamped to their bounds, the rates of gaps, and the bounds."""
    rows = np.concatenate(list(flights.rows(COLUMNS).blocks()))
    low, high = np.array([flights.BOUNDS[name] for name in COLUMNS], dtype=np.float64).T
    return np.clip(rows[np.isfinite(rows).all(axis=1)], low, high), np.full(len(COLUMNS), 0.2), (low, high)


def made(n: int = 100_000, d: int = 10) -> tuple[FloatArray, FloatArray, Bounds]:
    """Return made rows, unequal rates of gaps, and the bounds."""
    rng = np.random.default_rng(0)
    mixing = np.linalg.qr(rng.normal(size=(d, d)))[0][:, :COMPONENTS]
    unit = 0.4 * rng.choice([-1.0, 1.0], d) + rng.normal(size=(n, COMPONENTS)) * [0.75, 0.6, 0.5] @ mixing.T
    unit = np.clip(unit + 0.1 * rng.normal(size=unit.shape), -1.0, 1.0)
    return 50.0 + 50.0 * unit, np.linspace(0.0, 0.6, d), (np.zeros(d), np.full(d, 100.0))


def measured(rows: FloatArray, rates: FloatArray, bounds: Bounds, options: dict[str, Any]) -> tuple[float, float]:
    """Return the captured share and the largest error of the mean, in shares of the range."""
    width = bounds[1] - bounds[0]
    about = (rows - rows.mean(axis=0)) / width
    gram, found = about.T @ about, []
    best = float(np.linalg.eigvalsh(gram)[-COMPONENTS:].sum())
    for seed in range(SEEDS):
        gaps = np.where(np.random.default_rng(seed).random(rows.shape) < rates, np.nan, rows)
        release = sp.pca(gaps, COMPONENTS, EPSILON, delta=DELTA, bounds=bounds, seed=seed, **options)
        error = float((np.abs(release.mean - rows.mean(axis=0)) / width).max())
        found.append((release.subspace.captured(gram) / best, error))
    captured, error = np.median(found, axis=0).tolist()
    return captured, error


def table() -> list[list[str]]:
    """Return a line for each table and policy."""
    lines = []
    for name, (rows, rates, bounds) in {"flights": flown(), "made": made()}.items():
        policies: dict[str, dict[str, Any]] = {
            "a row with a gap is bad": {}, "filled only": {"on_missing": "cell", "correct": False},
            "private shares": {"on_missing": "cell"},
            "public shares": {"on_missing": "cell", "missing_rates": tuple((1.0 - rates).tolist())},
        }  # fmt: skip
        for policy, options in policies.items():
            captured, error = measured(rows, rates, bounds, options)
            lines.append([name, policy, f"{captured:.4f}", f"{100.0 * error:.2f} %"])
    return lines


if __name__ == "__main__":
    logging.getLogger("streampca.curator").setLevel(logging.ERROR)
    print(markdown(["table", "policy", "captured", "error of the mean"], table()))
