"""Sparse and non-negative directions, recovered from a private release."""

from __future__ import annotations

import numpy as np
from scenario import Context

from streampca import queries
from streampca.linalg.types import FloatArray, IntArray
from streampca.processors.private_fpl import PrivateFPL
from streampca.stream.stream import Stream

SCALE = 0.35


def planted(
    n_rows: int, n_features: int, n_nonzero: int, rng: np.random.Generator
) -> tuple[FloatArray, IntArray, IntArray]:
    """Rows near a sparse signed direction and a sparse positive one, under a dense one of more variance.

    Returns the rows and the two supports, which share no feature.
    """
    order = rng.permutation(n_features)
    signed, positive, rest = np.split(order, [n_nonzero, 2 * n_nonzero])
    directions = np.zeros((3, n_features))
    directions[0, signed] = np.where(np.arange(n_nonzero) % 2, -1.0, 1.0) / np.sqrt(n_nonzero)
    directions[1, positive] = 1.0 / np.sqrt(n_nonzero)
    directions[2, rest] = np.where(np.arange(len(rest)) % 2, -1.3, 1.3) / np.sqrt(len(rest))
    factors = rng.normal(size=(n_rows, 3)) * np.array([1.05, 1.0, 1.0])
    rows = SCALE * (factors @ directions + rng.normal(size=(n_rows, n_features)) / np.sqrt(n_features))
    return rows, np.sort(signed), np.sort(positive)


def run(context: Context) -> dict[str, dict[str, float]]:
    """Stream rows with planted supports through private PCA at several budgets; read them off the last release.

    One run for each epsilon. Measures: ``sparse_found`` (share of the signed support that sparse PCA
    finds), ``nonnegative_found`` (share of the positive support among the largest weights of
    non-negative PCA), ``dense_found`` (share of the signed support among the largest weights of plain
    PCA), ``sparse_bound`` and ``dense_bound`` (uniform 95 % error bars of a direction's variance).
    The supports are those of made-up rows.
    """
    params = context.params
    size = int(params["n_nonzero"])
    rows, signed, positive = planted(
        context.rows, int(params["n_features"]), size, np.random.default_rng(context.seed)
    )  # fmt: skip
    measured: dict[str, dict[str, float]] = {}
    for epsilon in params["epsilons"]:
        leader = PrivateFPL(
            n_components=3, epsilon=float(epsilon), delta=float(params["delta"]), horizon=context.rows,
            release_every=max(1, context.rows // 10),
        )  # fmt: skip
        release = Stream(leader, regret=None, seed=context.seed).push_many(rows).releases[-1]
        sparse, free = queries.sparse_pca(release, size), queries.nonnegative_pca(release)
        dense = queries.pca(release, 1)
        measured[f"epsilon_{epsilon:g}"] = {
            "sparse_found": _share(sparse.components[:, 0], signed),
            "nonnegative_found": _share(free.components[:, 0], positive),
            "dense_found": _share(dense.components[:, 0], signed),
            "sparse_bound": sparse.bound(),
            "dense_bound": dense.bound(),
        }
    return measured


def _share(weights: FloatArray, support: IntArray) -> float:
    """Share of a support among as many of the largest weights."""
    largest = np.argsort(-np.abs(weights), kind="stable")[: len(support)]
    return len(np.intersect1d(largest, support)) / len(support)
