"""Symmetric matrices as packed vectors.

``svec`` keeps the upper triangle row by row and multiplies off-diagonal entries by sqrt(2), so that Frobenius inner
products of matrices become plain inner products of vectors: ``norm(svec(a a^T)) = norm(a)**2``. Independent N(0, s**2)
noise in these coordinates is GOE noise: variance ``s**2`` on the diagonal and ``s**2 / 2`` off it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from streampca.linalg.types import FloatArray, IntArray

SQRT_HALF = float(np.sqrt(0.5))
#: Squared norm of the coordinates of a row without a missing cell, beside its matrix (`linalg.completion`).
PRESENCE = 0.1


def svec_size(n_features: int) -> int:
    """Return the length d(d+1)/2 of a packed symmetric d x d matrix."""
    return n_features * (n_features + 1) // 2


@lru_cache(maxsize=64)
def upper(n_features: int) -> IntArray:
    """Return the flat (row-major) positions of the upper triangle, row by row."""
    rows, columns = np.triu_indices(n_features)
    positions = (rows * n_features + columns).astype(np.int64)
    positions.flags.writeable = False
    return positions


@lru_cache(maxsize=64)
def mirror(n_features: int) -> IntArray:
    """Return the place in the packed vector of each entry of a d x d matrix."""
    places = np.empty((n_features, n_features), dtype=np.int64)
    rows, columns = np.triu_indices(n_features)
    places[rows, columns] = places[columns, rows] = np.arange(svec_size(n_features))
    places.flags.writeable = False
    return places


@lru_cache(maxsize=64)
def entry_weights(n_features: int, further: int = 0) -> FloatArray:
    """Return the packed vector of 1 on the diagonal and sqrt(1/2) off it: svec -> entries."""
    # ``further`` coordinates are counts of the cells that are present (`linalg.completion`).
    rows, columns = np.triu_indices(n_features)
    weights = np.where(rows == columns, 1.0, SQRT_HALF)
    if further:
        weights = np.append(weights, np.full(further, np.sqrt(further / PRESENCE)))
    weights.flags.writeable = False
    return weights


def pack_entries(matrix: FloatArray) -> FloatArray:
    """Return the upper triangle of a symmetric matrix, row by row, unscaled."""
    return np.ascontiguousarray(matrix).reshape(-1)[upper(matrix.shape[0])]


def unpack_entries(packed: FloatArray, n_features: int) -> FloatArray:
    """Return the full symmetric (d, d) matrix: inverse of `pack_entries`."""
    return packed.take(mirror(n_features))


def svec(matrix: FloatArray) -> FloatArray:
    """Pack a symmetric (d, d) matrix isometrically."""
    return pack_entries(matrix) / entry_weights(matrix.shape[0])


def unsvec(vector: FloatArray, n_features: int) -> FloatArray:
    """Invert `svec`."""
    return unpack_entries(vector * entry_weights(n_features), n_features)
