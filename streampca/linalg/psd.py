"""The Loewner order: whether one symmetric matrix is below another."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from streampca.linalg.types import FloatArray


def is_positive(matrix: FloatArray) -> bool:
    """True if a symmetric matrix is positive definite, up to rounding. One Cholesky factorisation, at most."""
    if not (np.diagonal(matrix) > 0.0).all():
        return False
    return int(lapack.dpotrf(matrix, lower=1, clean=0)[1]) == 0


def negative_direction(matrix: FloatArray) -> FloatArray | None:
    """A unit vector x with x^T M x <= 0, or None if the symmetric matrix M is positive definite.

    If factorisation fails at the k-th pivot, the direction solves a triangular
    system of that size; so a failure costs no more than a success.
    """
    diagonal = np.diagonal(matrix)
    if not (diagonal > 0.0).all():
        x = np.zeros(diagonal.size)
        x[int(np.argmin(diagonal))] = 1.0
        return x
    factor, info = lapack.dpotrf(matrix, lower=1, clean=0)
    if info == 0:
        return None
    k = int(info) - 1  # the leading k x k minor is positive definite, the next is not
    x = np.zeros(diagonal.size)
    x[k] = 1.0
    if k:
        x[:k] = -lapack.dpotrs(factor[:k, :k], matrix[:k, k], lower=1)[0]
    x /= np.linalg.norm(x)
    return x


def loewner_below(a: FloatArray, b: FloatArray, slack: float = 0.0) -> bool:
    """True if ``a <= b + slack I`` in the Loewner order, up to rounding."""
    gap = b - a
    gap[np.diag_indices_from(gap)] += slack
    return is_positive(gap)


def nearest_psd(matrix: FloatArray) -> FloatArray:
    """The positive semidefinite matrix nearest in Frobenius norm: negative eigenvalues become 0."""
    values, vectors = np.linalg.eigh(matrix)
    projected: FloatArray = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return projected


def spectral_norm(matrix: FloatArray) -> float:
    """Largest absolute eigenvalue of a symmetric matrix."""
    return float(np.abs(np.linalg.eigvalsh(matrix)).max())
