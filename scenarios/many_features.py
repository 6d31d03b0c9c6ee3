"""PrivateSketch and PrivateOja on thousands of features.

``python scenarios/many_features.py`` prints the table of "Which algorithm", ``python scenarios/run.py many_features``
checks its figures.

Rows have eigenvalues 1/j over 200 directions, which hold .8 of the variance, and the rest alike in all directions. They
are scaled to norm 1, shifted by the mean and cut to norm 1. Captured is the share of the best subspace's variance about
the mean, for these eigenvalues. Medians over seeds. 4096 features take some minutes and 1 GB.
"""

import itertools
import math
import time
from functools import lru_cache
from typing import Any

import numpy as np
from real_tables import Found, markdown, measured
from scenario import Context

import streampca as sp
from streampca.linalg.types import FloatArray
from streampca.rows.admission import Admission

COMPONENTS, DIRECTIONS = 10, 200


@lru_cache(maxsize=1)
def rows_of(n: int, d: int, mean: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Directions, their eigenvalues with those of the rest, and rows in single precision."""
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.normal(size=(d, DIRECTIONS)))[0]
    values = 1.0 / np.arange(1.0, DIRECTIONS + 1.0)
    values *= 0.8 / values.sum()
    shift = rng.normal(size=d)
    shift *= mean / np.linalg.norm(shift)
    rows: Any = np.empty((n, d), dtype=np.float32)
    for block in np.array_split(rows, -(-n // 1000)):
        some = (rng.normal(size=(len(block), DIRECTIONS)) * np.sqrt(values)) @ directions.T
        some += rng.normal(size=some.shape) * math.sqrt(0.2 / d)
        some = shift + math.sqrt(1.0 - mean**2) * some / np.linalg.norm(some, axis=1, keepdims=True)
        block[:] = some / np.maximum(1.0, np.linalg.norm(some, axis=1, keepdims=True))
    return directions, values, rows


def features(context: Context) -> Found:
    """Captured share after the last release, and what it predicts, of each number of features, algorithm and mean.

    ``rate`` is the number of rows in a second of one core, ``rate_admitted`` that without checking and clipping them.
    """
    n, k, few = context.rows, COMPONENTS, context.rows < 20_000
    seeds = range(context.seed, context.seed + (1 if few else context.params["draws"]))
    algorithms: dict[str, sp.Algorithm] = {
        f"PrivateSketch, {center}, {releases}": sp.PrivateSketch(
            n_components=k, epsilon=1.0, horizon=n, release_every=-(-n // releases), center=center == "centered"
        )
        for center, releases in itertools.product(("centered", "about 0"), (1, 16))
    }
    algorithms["PrivateOja, about 0, all"] = sp.PrivateOja(n_components=k, epsilon=1.0, horizon=n)
    found: Found = {}
    for d in context.params["features"][: 1 if few else None]:
        for mean, (name, algorithm) in itertools.product(context.params["means"], algorithms.items()):
            found[f"{d}, {mean:g}, {name}"] = _captured(algorithm, rows_of(n, d, mean), seeds)
    return found


def _captured(
    algorithm: sp.Algorithm, made: tuple[FloatArray, FloatArray, FloatArray], seeds: range
) -> dict[str, float]:
    directions, values, rows = made
    d = rows.shape[1]
    best, found = float(values[:COMPONENTS].sum()) + 0.2 * COMPONENTS / d, []
    started = time.process_time()
    admission = Admission(row_norm=1.0, n_features=d)
    for block in np.array_split(rows, 20):
        admission.block(block, 1)
    admitting = time.process_time() - started
    for seed in seeds:
        stream = sp.Stream(algorithm, row_norm=1.0, seed=seed, regret=None)
        started = time.process_time()
        for block in np.array_split(rows, 20):
            stream.push_many(block)
        seconds = time.process_time() - started
        subspace, release = stream.engine.subspace(), stream.release
        share = float(values @ ((directions.T @ subspace.basis) ** 2).sum(axis=1)) + 0.2 * COMPONENTS / d
        predicted = release.details.get("predicted_captured", math.nan) if release else math.nan
        found.append((share / best, predicted, len(rows) / seconds, len(rows) / max(seconds - admitting, 1e-9)))
    names = "captured", "predicted", "rate", "rate_admitted"
    return dict(zip(names, map(float, np.median(found, axis=0)), strict=True))


if __name__ == "__main__":
    found = measured("many_features", features)
    lines: dict[tuple[str, ...], list[tuple[str, str, str]]] = {}
    for key, of in found.items():
        d, mean, *name = key.split(", ")
        text = f"{of['captured']:.3f} ({of['predicted']:.3f})".replace(" (nan)", "")
        lines.setdefault((d, *name), []).append((mean, text, f"{of['rate']:.0f} / {of['rate_admitted']:.0f}"))
    header = [
        "features",
        "algorithm",
        "center",
        "releases",
        *(f"mean of {mean}" for mean, _, _ in next(iter(lines.values()))),
    ]
    rows = [[*line, *(text for _, text, _ in cells), cells[0][2]] for line, cells in lines.items()]
    print(markdown([*header, "rows a core-second, with and without admission"], rows))
