"""Sensitivity of a matrix factorization to a user with several rows.

A user with at most m rows changes inputs j of a set S, |S| <= m, by D_j each. In the units of the noise the outputs
move by ``|sum_j c_j (x) D_j|``, c_j the columns of the strategy C, whose square is

    sum over i, j in S of <c_i, c_j> <D_i, D_j>,    |<D_i, D_j>| <= (sensitivity to one row)**2,

also with the sum of the rows released jointly (`linalg.centering`). So the sensitivity to a user is that to a row times
`user_factor`, which bounds the square root of ``sum |<c_i, c_j>|`` over every S, with columns scaled to norm 1. Group
privacy gives m. Neighboring columns of a good strategy are far from parallel:

- *Toeplitz with column normalization* (non-negative, falling coefficients): for a fixed later column, ``<c_i, c_j>``
  falls with the lag, because its terms fall and the norm of the earlier column grows. Sorted positions satisfy
  ``s_j - s_i >= j - i``, so the sum is at most ``m + 2 sum_l (m - l) g(l)``, where g(l) is the largest normalized
  product at lag l over all positions, computed for every position.
- *Trees*: at each level an input is in one node, and a node of 2**h inputs has at most 2**h rows, so the counts of a
  level have a sum of squares of at most ``m min(m, 2**h)``.

With b rows to an input (`rows_per_input`), rows that are l apart are at least ``floor(l / b)`` inputs apart, and nodes
have b times as many rows.
"""

from __future__ import annotations

import math

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import MatrixFactorization
from streampca.matrix_factorization.blt import AnytimeBLT, GeometricBLT
from streampca.matrix_factorization.buffers import INFLATION
from streampca.matrix_factorization.tree import BinaryTree


def user_factor(mechanism: MatrixFactorization, max_rows: int, rows_per_input: int = 1) -> float:
    """Sensitivity to one user divided by that to one row, at most ``max_rows``, which is m.

    ``rows_per_input`` is b. For `GeometricBLT`, `AnytimeBLT` and `BinaryTree`; others have no proved bound and raise
    `BadParameterError`.
    """
    b, horizon = rows_per_input, mechanism.horizon
    m = max_rows if horizon is None else min(max_rows, horizon * b)
    if isinstance(mechanism, BinaryTree):
        sizes = b * 2.0 ** np.arange(mechanism.levels)
        square = float(np.minimum(m, sizes).sum()) * m / mechanism.levels
    elif isinstance(mechanism, (GeometricBLT, AnytimeBLT)):
        lags = np.arange(1, m)
        products = _products(mechanism, (m - 1) // b)[lags // b]
        # A sum in a fixed order: the scale of the noise must have the same bits under every BLAS.
        square = m + 2.0 * math.fsum((m - lags) * products)
    else:
        raise BadParameterError("mechanism", mechanism, "a BLT or a tree, for which a bound is proved")
    return min(float(m), math.sqrt(square) * (1.0 + 1e-9))


def _products(mechanism: GeometricBLT | AnytimeBLT, last: int) -> FloatArray:
    """Return the largest normalized products of columns at lags 0..last, which fall with the lag."""
    buffers = mechanism.buffers
    if isinstance(mechanism, AnytimeBLT):
        # The scale is constant, so full columns have the largest products; sums to infinity bound them.
        lags = np.arange(last + 1.0)
        tails = (buffers.omega[:, None] * buffers.omega / buffers.gaps).sum(axis=0)
        sums = buffers.coefficients(last + 1) + (buffers.theta[None, :] ** lags[:, None] * tails).sum(axis=1)
        square = float(buffers.column_square(mechanism.restart_after))
        bounds: FloatArray = np.minimum(1.0, sums / square)
        return bounds
    horizon = mechanism.horizon
    coefficients = buffers.coefficients(horizon)
    norms = np.sqrt(np.cumsum(coefficients**2))  # of columns with 1, 2, ... entries
    out = np.zeros(last + 1)
    for lag in range(last + 1):
        shared = np.cumsum(coefficients[: horizon - lag] * coefficients[lag:])
        out[lag] = float((shared / (norms[: horizon - lag] * norms[lag:])).max())
    return np.minimum(1.0, out * INFLATION)
