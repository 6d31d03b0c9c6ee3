"""PrivateSketch on thousands of features: ``python scenarios/many_features.py`` prints the table of "Which algorithm".

Rows have eigenvalues 1/j over 200 directions, which hold .8 of the variance, and the rest alike in all directions. They
are scaled to norm 1, shifted by the mean and cut to norm 1. Captured is the share of the best subspace's variance about
the mean, for these eigenvalues. Medians over seeds. 4096 features take some minutes and 1 GB.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from real_tables import markdown

from streampca.linalg.types import FloatArray
from streampca.processors.private_sketch import PrivateSketch
from streampca.stream.stream import Stream

FEATURES, MEANS, SEEDS = (768, 4096), (0.0, 0.3, 0.6), 3
ROWS, COMPONENTS, DIRECTIONS = 20_000, 10, 200


@lru_cache(maxsize=1)
def rows_of(d: int, mean: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Directions, their eigenvalues with those of the rest, and rows in single precision."""
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.normal(size=(d, DIRECTIONS)))[0]
    values = 1.0 / np.arange(1.0, DIRECTIONS + 1.0)
    values *= 0.8 / values.sum()
    shift = rng.normal(size=d)
    shift *= mean / np.linalg.norm(shift)
    rows: Any = np.empty((ROWS, d), dtype=np.float32)
    for block in np.split(rows, ROWS // 1000):
        some = (rng.normal(size=(1000, DIRECTIONS)) * np.sqrt(values)) @ directions.T
        some += rng.normal(size=some.shape) * math.sqrt(0.2 / d)
        some = shift + math.sqrt(1.0 - mean**2) * some / np.linalg.norm(some, axis=1, keepdims=True)
        block[:] = some / np.maximum(1.0, np.linalg.norm(some, axis=1, keepdims=True))
    return directions, values, rows


def captured(d: int, mean: float, center: bool, releases: int) -> tuple[float, float]:
    """Captured share after the last release, and its prediction: medians over seeds."""
    directions, values, rows = rows_of(d, mean)
    best, found = float(values[:COMPONENTS].sum()) + 0.2 * COMPONENTS / d, []
    for seed in range(SEEDS):
        algorithm = PrivateSketch(
            n_components=COMPONENTS, epsilon=1.0, horizon=ROWS, release_every=ROWS // releases, center=center
        )
        stream = Stream(algorithm, row_norm=1.0, seed=seed, regret=None)
        for block in np.split(rows, 20):
            stream.push_many(block)
        assert stream.release is not None
        shares = (directions.T @ stream.release.subspace.basis) ** 2
        share = (float(values @ shares.sum(axis=1)) + 0.2 * COMPONENTS / d) / best
        found.append((share, stream.release.details["predicted_captured"]))
    share, predicted = np.median(found, axis=0)
    return float(share), float(predicted)


def main() -> None:
    """Print the table."""
    lines = []
    for d in FEATURES:
        for center in (True, False):
            cells = []
            for mean in MEANS:
                pairs = [captured(d, mean, center, releases) for releases in (1, 16)]
                cells.append(" / ".join(f"{share:.3f} ({predicted:.3f} predicted)" for share, predicted in pairs))
            lines.append([f"{d}", str(center), *cells])
    print(markdown(["features", "center", *(f"mean of {mean:g}" for mean in MEANS)], lines))


if __name__ == "__main__":
    main()
