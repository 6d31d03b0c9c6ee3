"""A hidden subspace, released exactly from a few dozen rows or not at all."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scenario import Context

from streampca.errors import BadParameterError
from streampca.linalg.eigen import principal_angles
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import Mechanism
from streampca.mechanisms.covariance import GaussianCovariance
from streampca.mechanisms.exact_subspace import ExactSubspace, orthonormal_basis, primitive, span_of
from streampca.papers.approximate_subspace import ApproximateSubspace
from streampca.privacy.randomness import Randomness

Rows = tuple[FloatArray, FloatArray]


def integers(n_rows: int, n_features: int, k: int, outliers: int, rng: np.random.Generator) -> Rows:
    """Integer rows in a hidden subspace, the last few anywhere, in random order; and its basis."""
    inside = rng.integers(-9, 10, (k, n_features))
    rows = rng.integers(-(10**6), 10**6, (n_rows - outliers, k)) @ inside
    rows = np.vstack([rows, rng.integers(-9, 10, (outliers, n_features))])
    return rng.permutation(rows).astype(np.float64), orthonormal_basis(
        span_of(map(primitive, inside.tolist())), n_features
    )


def gaussians(n_rows: int, n_features: int, k: int, gamma: float, rng: np.random.Generator) -> Rows:
    """Gaussian rows, of standard deviation 1 in a hidden subspace and gamma off it; and its basis."""
    axes = np.linalg.qr(rng.normal(size=(n_features, n_features)))[0]
    scales = np.r_[np.ones(k), np.full(n_features - k, gamma)]
    return rng.normal(size=(n_rows, n_features)) * scales @ axes.T, axes[:, :k]


def run(context: Context) -> dict[str, dict[str, float]]:
    """Estimate planted subspaces, a few times each.

    Measures, over the draws: ``found`` (share with the planted dimension),
    ``null`` (share of releases without a subspace), ``error`` (largest sine of an angle to the
    planted subspace, 1 if there is none), ``stated`` (largest error bound given),
    ``rows``, ``seconds``. Curator only: exact functions of raw rows.
    """
    params = context.params
    d, k, outliers, draws = (int(params[name]) for name in ("n_features", "n_components", "outliers", "draws"))
    budget: dict[str, Any] = {name: float(params[name]) for name in ("epsilon", "delta")}
    exact, unknown = ExactSubspace(n_components=k, **budget), ExactSubspace(max_components=k + 1, **budget)
    larger = ExactSubspace(n_components=2 * k + 1, **budget)
    close = ApproximateSubspace(n_components=k, **budget)
    n = exact.rows_needed(outliers)
    needed = max(n, unknown.rows_needed(outliers), larger.rows_needed(outliers), close.rows_needed())
    if context.rows < needed:
        raise BadParameterError(f"rows={context.rows} are too few for this scenario; give at least {needed}")
    rng = np.random.default_rng(context.seed)

    def planted(rows: int, k: int = k, outliers: int = outliers) -> list[Rows]:
        return [integers(rows, d, k, outliers, rng) for _ in range(draws)]

    def near(gamma: float) -> list[Rows]:
        return [gaussians(close.rows_needed(), d, k, gamma, rng) for _ in range(draws)]

    noisy = GaussianCovariance(n_components=k, **budget)
    cases: dict[str, tuple[Mechanism, list[Rows]]] = {
        "exact": (exact, planted(n)),
        "unknown_k": (unknown, planted(unknown.rows_needed(outliers))),
        "too_few_rows": (exact, planted(n // 3)),
        "no_subspace": (exact, planted(n, outliers=n)),
        "larger_k": (larger, planted(larger.rows_needed(outliers), 2 * k + 1)),
        "noisy_gram": (noisy, planted(n)),
        "nearly": (close, near(1e-5)),
        "not_near": (close, near(1e-3)),
    }
    return {name: _look(mechanism, data, context.seed) for name, (mechanism, data) in cases.items()}


def _look(mechanism: Mechanism, data: list[Rows], seed: int) -> dict[str, float]:
    started = time.perf_counter()
    made = [mechanism.release(rows, Randomness.from_seed(seed + i)) for i, (rows, _) in enumerate(data)]
    seconds = time.perf_counter() - started
    pairs = [(release.subspace.basis, truth) for release, (_, truth) in zip(made, data, strict=True)]
    same = [basis.shape == truth.shape for basis, truth in pairs]
    angles = [principal_angles(*pair)[-1] if equal else np.pi / 2 for pair, equal in zip(pairs, same, strict=True)]
    return {
        "found": float(np.mean(same)), "null": float(np.mean([release.n_components == 0 for release in made])),
        "error": float(np.sin(max(angles))), "rows": float(len(data[0][0])), "seconds": seconds / len(data),
        "stated": max(float(release.details.get("error_bound", 0.0)) for release in made),
    }  # fmt: skip
