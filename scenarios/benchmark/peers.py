"""Rows to time with, and other software on the same rows. None of it is private."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
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


def incremental_pca(rows: FloatArray, step: int) -> None:
    """scikit-learn's IncrementalPCA, fitted to ``step`` rows at a time after a first batch of at least k."""
    from sklearn.decomposition import IncrementalPCA

    model = IncrementalPCA(n_components=COMPONENTS)
    first = max(COMPONENTS, step)
    model.partial_fit(rows[:first])
    for start in range(first, len(rows), step):
        model.partial_fit(rows[start : start + step])


def bare_dsyrk(rows: FloatArray, step: int, times: int) -> FloatArray:
    """The Gram matrix of each block of rows added up by BLAS, and nothing else."""
    gram = np.zeros((rows.shape[1], rows.shape[1]), order="F")
    for start in [*range(0, len(rows), step)] * times:
        gram = dsyrk(1.0, rows[start : start + step].T, beta=1.0, c=gram, overwrite_c=1, lower=1)
    return gram


def floor(rows: FloatArray) -> None:
    """What a private release a row takes at least, by the kernels in use here: no stream, no admission, no regret."""
    d = rows.shape[1]
    noise, gram = GeometricBLT(len(rows), 1.0).start(svec_size(d)), GramSum(d)
    span, stream = np.asfortranarray(np.eye(d, COMPONENTS)), Randomness.from_seed(1).stream("floor")
    for n, row in enumerate(onto_ball(rows)[:, None]):
        gram = gram.add(row)
        noise, packed = noise.released(stream.draws(n), gram, 1.0)
        span = power_step(packed, span, 1.0)
        ritz_pairs(packed, span)


def rolling_covariance(rows: FloatArray, window: int, every: int) -> None:
    """River's Rolling(EmpiricalCovariance) with an eigendecomposition after each ``every`` rows, row by row."""
    from river.covariance import EmpiricalCovariance
    from river.utils import Rolling

    names = list(range(rows.shape[1]))
    rolling = Rolling(EmpiricalCovariance, window_size=window)
    for i, row in enumerate(rows.tolist(), start=1):
        rolling.update(dict(zip(names, row, strict=True)))
        if i % every == 0:
            matrix = np.array([[rolling[a, b].get() if a != b else rolling[a, a].get() for b in names] for a in names])
            np.linalg.eigh(matrix)


def pandas_chunks(file: Path, size: int) -> None:
    """Parse a CSV file with pandas, chunk by chunk, to arrays."""
    for chunk in pd.read_csv(file, chunksize=size):
        chunk.to_numpy(dtype=np.float64)
