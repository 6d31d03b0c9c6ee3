"""Leading eigenvectors of small symmetric matrices, and angles between subspaces."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from streampca.linalg.types import FloatArray


def top_eigh(matrix: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """The k largest eigenvalues (descending) and their eigenvectors.

    Parameters
    ----------
    matrix : (d, d) symmetric array.
    k : number of eigenpairs, at most d.

    Returns
    -------
    values : (k,) array, descending.
    basis : (d, k) array with orthonormal columns; the entry of largest
        magnitude of each column is positive.

    Notes
    -----
    LAPACK ``dsyevr`` with ``range='I'``: a direct method, so the result
    depends on the matrix alone.
    """
    d = matrix.shape[0]
    values, vectors, _, _, info = lapack.dsyevr(
        matrix, range="I" if k < d else "A", il=d - k + 1, iu=d, compute_v=1, lower=1
    )
    if info != 0:  # documented as "internal error" only: the plain QR iteration is the way out
        values, vectors = np.linalg.eigh(matrix)
        values, vectors = values[d - k :], vectors[:, d - k :]
    else:
        values, vectors = values[:k], vectors[:, :k]
    return values[::-1].copy(), fix_signs(vectors[:, ::-1])


def ritz(matrix: FloatArray, span: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues (descending) and eigenvectors of a symmetric matrix within a subspace.

    Parameters
    ----------
    matrix : (d, d) symmetric array.
    span : (d, k) array with orthonormal columns.

    Returns
    -------
    values, basis : as `top_eigh`, for the matrix compressed to the span.
    """
    values, rotation = np.linalg.eigh(span.T @ matrix @ span)
    return values[::-1].copy(), fix_signs(span @ rotation[:, ::-1])


def power_step(matrix: FloatArray, span: FloatArray, shift: float) -> FloatArray:
    """Orthonormal basis of ``(matrix + shift * I) span``: one step of subspace iteration."""
    product = matrix @ span
    product += shift * span
    factors, tau, _, _ = lapack.dgeqrf(product)
    basis: FloatArray = lapack.dorgqr(factors, tau)[0]
    return basis


def fix_signs(basis: FloatArray) -> FloatArray:
    """Flip columns so that each one's entry of largest magnitude is positive."""
    peak = np.abs(basis).argmax(axis=0)
    signs = np.where(basis[peak, np.arange(basis.shape[1])] < 0.0, -1.0, 1.0)
    return np.ascontiguousarray(basis * signs)


def orthonormal(matrix: FloatArray) -> FloatArray:
    """Orthonormal basis of the column span by Householder QR, positive diagonal of R."""
    q, r = np.linalg.qr(matrix)
    signs = np.where(np.diagonal(r) < 0.0, -1.0, 1.0)
    return np.ascontiguousarray(q * signs)


def principal_angles(a: FloatArray, b: FloatArray) -> FloatArray:
    """Principal angles in radians, ascending, between the spans of two orthonormal bases.

    Uses sines where angles are small, so that tiny angles keep their digits.
    """
    cosines = np.clip(np.linalg.svd(a.T @ b, compute_uv=False), 0.0, 1.0)
    sines = np.clip(np.linalg.svd(b - a @ (a.T @ b), compute_uv=False)[::-1], 0.0, 1.0)
    count = min(a.shape[1], b.shape[1])
    small = cosines[:count] ** 2 > 0.5
    angles: FloatArray = np.where(small, np.arcsin(sines[:count]), np.arccos(cosines[:count]))
    return angles
