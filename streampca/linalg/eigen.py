"""Leading eigenvectors of small symmetric matrices, and a test of definiteness."""

from __future__ import annotations

import math
from importlib import import_module

import numpy as np
from scipy.linalg import lapack
from scipy.linalg.blas import dgemm, dspmv

from streampca import _native
from streampca.linalg.svec import mirror, unpack_entries
from streampca.linalg.threads import OneThread
from streampca.linalg.types import FloatArray

#: Features per column from which a packed matrix is multiplied column by column.
_PACKED_FROM = 60
#: Most features and columns up to which compiled kernels find eigenpairs faster than LAPACK.
_COMPILED_FEATURES, _COMPILED_COLUMNS = 256, 16


def top_eigh(matrix: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """Return the k largest eigenvalues of a symmetric (d, d) matrix, descending, and their eigenvectors, (d, k)."""
    # The columns are orthonormal; the entry of largest magnitude of each is positive. LAPACK ``dsyevr`` with
    # ``range='I'`` is a direct method, so the result depends on the matrix only.
    d = matrix.shape[0]
    with OneThread(d):
        values, vectors, _, _, info = lapack.dsyevr(
            matrix, range="I" if k < d else "A", il=d - k + 1, iu=d, compute_v=1, lower=1
        )
        values, vectors = values[:k], vectors[:, :k]
        # `info` reports internal errors only; near multiples of the identity, vectors may be zero without one.
        if info != 0 or not abs(np.vdot(vectors, vectors) - k) < 0.5:
            values, vectors = np.linalg.eigh(matrix)
            values, vectors = values[d - k :], vectors[:, d - k :]
        return values[::-1].copy(), fix_signs(vectors[:, ::-1])


def top_pairs(packed: FloatArray, k: int, *, plain: bool = False) -> tuple[FloatArray, FloatArray]:
    """Return `top_eigh` of a packed upper triangle; if ``plain``, by LAPACK, with the same bits without kernels."""
    # The compiled form (`_native/kernels.h`) is a direct method, too. It proves by residuals and Sturm counts that its
    # pairs are the top ones of the tridiagonal form, to 1e-12 of its norm; where it cannot, as for eigenvalues closer
    # than 1e-9 of the norm, LAPACK computes them.
    d, kernels = math.isqrt(8 * packed.size + 1) // 2, _native.compiled
    if kernels is not None and not plain and k < d <= _COMPILED_FEATURES and k <= _COMPILED_COLUMNS:
        values, basis = np.empty(k), np.empty((d, k))
        if kernels.top_pairs(np.ascontiguousarray(packed), values, basis):
            return values, basis
    return _top_of_tridiagonal(packed, k) if 2 < k < d and not plain else top_eigh(packed.take(mirror(d)), k)


def _top_of_tridiagonal(packed: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """Return `top_pairs` by ``dstemr``, for 2 < k < d, in three quarters of the time: ``dsyevr`` would bisect."""
    # LAPACK has the tridiagonal form as Q^T M Q, with Q = diag(1, the product of reflectors).
    d = math.isqrt(8 * packed.size + 1) // 2
    with OneThread(d):
        reduced, diagonal, off, tau, _ = lapack.dsytrd(packed.take(mirror(d)).T, 1, 32 * d, 1)
        beside = np.zeros(d)
        beside[:-1] = off
        count, values, vectors, info = lapack.dstemr(diagonal, beside, 2, 0.0, 0.0, d - k + 1, d)
        vectors = vectors[:, :k]
        if info != 0 or count != k or not abs(np.vdot(vectors, vectors) - k) < 0.5:
            return top_eigh(packed.take(mirror(d)), k)
        vectors[1:] = lapack.dormqr("L", "N", reduced[1:, :-1], tau, vectors[1:], 32 * k)[0]
        return values[k - 1 :: -1].copy(), fix_signs(vectors[:, ::-1])


def ritz_pairs(packed: FloatArray, span: FloatArray, *, plain: bool = False) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues (descending) and eigenvectors of a packed symmetric matrix within a subspace."""
    # ``span`` is a (d, k) array with orthonormal columns. Values and basis are as in `top_eigh`, for the matrix
    # compressed to the span; ``plain`` as for `top_pairs`.
    (d, k), kernels = span.shape, _native.compiled
    if kernels is not None and not plain and d <= _COMPILED_FEATURES and k <= _COMPILED_COLUMNS:
        values, basis = np.empty(k), np.empty((d, k))
        kernels.ritz_pairs(np.ascontiguousarray(packed), np.ascontiguousarray(span.T), values, basis)
        return values, basis
    with OneThread(d):
        compressed = span.T @ packed.take(mirror(d)) @ span
        values, rotation, info = lapack.dsyev(compressed)
        if info != 0:
            values, rotation = np.linalg.eigh(compressed)
        return values[::-1].copy(), fix_signs(span @ rotation[:, ::-1])


def top_sum(matrix: FloatArray, k: int) -> float:
    """Return the sum of the k largest eigenvalues of a symmetric matrix: the most energy that k dimensions capture."""
    d = matrix.shape[0]
    with OneThread(d):
        values, _, _, _, info = lapack.dsyevr(
            matrix, range="I" if k < d else "A", il=d - k + 1, iu=d, compute_v=0, lower=1
        )
        if info != 0:
            return float(np.linalg.eigvalsh(matrix)[d - k :].sum())
        return float(values[:k].sum())


def lanczos_sum(matrix: FloatArray, k: int) -> float:
    """Return `top_sum` of a large matrix, by Lanczos iterations from a fixed start."""
    # Accurate to 1e-12, unless a leading eigenvector is orthogonal to the start; then it is less.
    d = len(matrix)
    # Imported here: a tenth of a second, which streams of few features never need.
    sparse = import_module("scipy.sparse.linalg")
    start = np.random.default_rng(0).standard_normal(d)
    try:
        # The error of a sum of Ritz values is of second order in the residual, which is at most 1e-8.
        with OneThread(d):
            values = sparse.eigsh(matrix, min(k, d - 1), which="LA", tol=1e-8, v0=start, return_eigenvectors=False)
    except sparse.ArpackError:  # it did not converge, or the matrix is zero
        return top_sum(matrix, k)
    return float(values.sum()) if k < d else float(np.trace(matrix))


def power_step(packed: FloatArray, span: FloatArray, shift: float, *, plain: bool = False) -> FloatArray:
    """Return an orthonormal basis of ``(matrix + shift * I) span``: one step of subspace iteration."""
    # The matrix is packed; ``span`` is a (d, k) array in column-major order; ``plain`` as for `top_pairs`.
    (d, k), kernels = span.shape, _native.compiled
    if kernels is not None and not plain and d <= _COMPILED_FEATURES and k <= _COMPILED_COLUMNS:
        rows = np.empty((k, d))
        kernels.power_step(packed, np.ascontiguousarray(span.T), shift, rows)
        return rows.T
    with OneThread(d):
        if d < _PACKED_FROM * k:
            product = dgemm(1.0, unpack_entries(packed, d).T, span)
        else:  # reading the triangle k times costs less than filling the square
            product = np.empty((d, k), order="F")
            for column, into in zip(span.T, product.T, strict=True):
                dspmv(d, 1.0, packed, column, y=into, lower=1, overwrite_y=1)
        product += shift * span
        factors, tau, _, _ = lapack.dgeqrf(product, 32 * k, 1)
        basis: FloatArray = lapack.dorgqr(factors, tau, 32 * k, 1)[0]
        return basis


def fix_signs(basis: FloatArray) -> FloatArray:
    """Flip columns so that each one's entry of largest magnitude is positive."""
    signs = np.copysign(1.0, basis[np.abs(basis).argmax(axis=0), np.arange(basis.shape[1])])
    return np.ascontiguousarray(basis * signs)


def signs_like(basis: FloatArray, reference: FloatArray) -> FloatArray:
    """Return the basis with the signs that bring each column closest to the same column of the reference."""
    k = min(basis.shape[1], reference.shape[1])
    turned: FloatArray = basis.copy()
    if basis.shape[0] == reference.shape[0]:
        turned[:, :k] *= np.where(np.einsum("ij,ij->j", basis[:, :k], reference[:, :k]) < 0.0, -1.0, 1.0)
    return turned


def orthonormal(matrix: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the column span by Householder QR, positive diagonal of R."""
    q, r = np.linalg.qr(matrix)
    # The signs of R are arbitrary in LAPACK; positive ones make the basis a function of the columns.
    signs = np.where(np.diagonal(r) < 0.0, -1.0, 1.0)
    return np.ascontiguousarray(q * signs)


def negative_direction(matrix: FloatArray) -> FloatArray | None:
    """Return a unit vector x with x^T M x <= 0, or None if the symmetric matrix M is positive definite."""
    diagonal = np.diagonal(matrix)
    # A diagonal entry is x^T M x for a coordinate vector x: no factorization is needed.
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
    if k:  # a triangular system: a failure costs no more than a success
        # With M = [[A, b], [b^T, c]], x = (-A^-1 b, 1) gives x^T M x = c - b^T A^-1 b, the failed pivot.
        x[:k] = -lapack.dpotrs(factor[:k, :k], matrix[:k, k], lower=1)[0]
    x /= np.linalg.norm(x)
    return x
