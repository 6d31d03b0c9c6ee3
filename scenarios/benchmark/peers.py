"""Rows to time with, and other software on the same rows. None of it is private."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from scipy.linalg.blas import dsyrk

from streampca.linalg.eigen import power_step, ritz_pairs
from streampca.linalg.lattice import GramSum, onto_ball
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.blt import GeometricBLT
from streampca.privacy.randomness import Randomness
from streampca.sources.synthetic import spiked

COMPONENTS = 5


def unit_rows(count: int, n_features: int) -> FloatArray:
    """Rows of norm 1 around a subspace of `COMPONENTS` dimensions, (count, n_features)."""
    rows = np.concatenate(list(spiked(count, n_features, COMPONENTS, seed=1).blocks()))
    unit: FloatArray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def incremental_pca(rows: FloatArray, k: int, step: int, *, checks: bool = True) -> None:
    """scikit-learn's IncrementalPCA, fitted to ``step`` rows at a time after a first batch of at least k."""
    from sklearn.decomposition import IncrementalPCA

    model = IncrementalPCA(n_components=k)
    first = max(k, step)
    model.partial_fit(rows[:first])
    for start in range(first, len(rows), step):
        batch = rows[start : start + step]
        if checks:
            model.partial_fit(batch)
        else:
            model.partial_fit(batch.copy(), check_input=False)  # it centers its argument in place


def grouse(rows: FloatArray, k: int) -> FloatArray:
    """Rank-one rotations towards each row (Balzano, Nowak and Recht 2010), in few NumPy calls; the basis."""
    basis = np.linalg.qr(np.random.default_rng(0).normal(size=(rows.shape[1], k)))[0]
    for t, row in enumerate(rows):
        weights = basis.T @ row
        inside = basis @ weights
        rest = row - inside
        in_norm, out_norm = math.sqrt(weights @ weights), math.sqrt(rest @ rest)
        if in_norm > 1e-12 and out_norm > 1e-12:
            angle = math.atan(out_norm / in_norm) / (1.0 + 0.005 * t)
            turn = (math.cos(angle) - 1.0) / in_norm * inside + math.sin(angle) / out_norm * rest
            basis += np.outer(turn, weights / in_norm)
    return np.linalg.qr(basis)[0]


def pro_svd(rows: FloatArray, k: int) -> FloatArray:
    """Procrustean SVD (Draelos et al. 2021) by its authors' package, ``pip install proSVD``; the basis."""
    from proSVD import proSVD

    model = proSVD(k, w_len=1)
    model.initialize(rows[:k].T)
    model.run(rows.T, range(k, len(rows)))
    found: FloatArray = model.Q
    return found


def bare_dsyrk(rows: FloatArray, step: int) -> FloatArray:
    """The Gram matrix of each block of rows added up by BLAS, and nothing else."""
    gram = np.zeros((rows.shape[1], rows.shape[1]), order="F")
    for start in range(0, len(rows), step):
        gram = dsyrk(1.0, rows[start : start + step].T, beta=1.0, c=gram, overwrite_c=1, lower=1)
    return gram


def floor(rows: FloatArray, k: int) -> None:
    """What a private release a row takes at least, by the kernels in use here: no stream, no admission, no regret."""
    d = rows.shape[1]
    noise, gram, span = GeometricBLT(len(rows), 1.0).start(svec_size(d)), GramSum(d), np.asfortranarray(np.eye(d, k))
    stream = Randomness.from_seed(1).stream("floor")
    for n, row in enumerate(onto_ball(rows)[:, None]):
        gram = gram.add(row)
        noise, packed = noise.released(stream.draws(n), gram, 1.0)
        span = power_step(packed, span, 1.0)
        ritz_pairs(packed, span)


def rolling_covariance(rows: FloatArray, window: int, every: int) -> None:
    """River's Rolling(EmpiricalCovariance) with an eigendecomposition every so many rows, row by row."""
    from river.covariance import EmpiricalCovariance
    from river.utils import Rolling

    names = list(range(rows.shape[1]))
    rolling = Rolling(EmpiricalCovariance, window_size=window)
    for i, row in enumerate(rows.tolist(), start=1):
        rolling.update(dict(zip(names, row, strict=True)))
        if i % every == 0:
            matrix = np.array([[rolling[a, b].get() if a != b else rolling[a, a].get() for b in names] for a in names])
            np.linalg.eigh(matrix)


def pandas_chunks(file: Path, size: int) -> int:
    """Parse a CSV file with pandas, chunk by chunk, to arrays."""
    import pandas as pd

    count = 0
    for chunk in pd.read_csv(file, chunksize=size):
        count += chunk.to_numpy(dtype=np.float64).shape[0]
    return count
