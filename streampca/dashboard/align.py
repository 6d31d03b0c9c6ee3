"""Signs that stay alike over time, so that pictures do not flip. Post-processing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from streampca.linalg.types import FloatArray


def signs_like(basis: FloatArray, reference: FloatArray) -> FloatArray:
    """The same columns, each with the sign that brings it closer to the same column of the reference."""
    k = min(basis.shape[1], reference.shape[1])
    turned: FloatArray = basis.copy()
    if basis.shape[0] == reference.shape[0]:
        turned[:, :k] *= np.where(np.einsum("ij,ij->j", basis[:, :k], reference[:, :k]) < 0.0, -1.0, 1.0)
    return turned


def aligned(bases: Sequence[FloatArray]) -> list[FloatArray]:
    """Bases over time with each column followed through changes of order and sign.

    The last keeps its order and signs, for it is what reports show; each
    earlier one is matched to its successor, the columns by the largest sum of
    absolute inner products. Within a near-degenerate group eigenvectors turn
    freely, and nothing can be followed there.
    """
    out = list(bases)
    for i in range(len(out) - 2, -1, -1):
        after, now = out[i + 1], out[i]
        if now.shape != after.shape or not now.shape[1]:
            continue
        overlap = after.T @ now
        order = linear_sum_assignment(-np.abs(overlap))[1]
        signs = np.where(overlap[np.arange(len(order)), order] < 0.0, -1.0, 1.0)
        out[i] = now[:, order] * signs
    return out
