"""The non-negative direction of most variance of one symmetric matrix."""

from __future__ import annotations

import numpy as np

from streampca.linalg.eigen import top_eigh
from streampca.linalg.types import FloatArray

ITERATIONS = 500
#: Eigenvectors whose positive and negative parts are starts, and results that are polished.
EIGENVECTORS, POLISHED = 10, 16


def best_nonnegative(gram: FloatArray) -> FloatArray:
    """A unit x >= 0 with large ``x^T G x``.

    The projected power method runs from all starts at once; the best
    results are polished until neither an exact step along one coordinate nor
    the top eigenvector of their support improves them. Deterministic.
    """
    d = gram.shape[0]
    vectors = top_eigh(gram, min(EIGENVECTORS, d))[1]
    starts = np.column_stack([np.eye(d), np.maximum(vectors, 0.0), np.maximum(-vectors, 0.0), np.full((d, 1), d**-0.5)])
    norms = np.linalg.norm(starts, axis=0)
    x = starts[:, norms > 0.0] / norms[norms > 0.0]
    # A shift makes the matrix PSD, without which the iteration need not ascend; unit vectors do not notice.
    shifted = gram - min(float(np.linalg.eigvalsh(gram)[0]), 0.0) * np.eye(d)
    for _ in range(ITERATIONS):
        y = np.maximum(shifted @ x, 0.0)
        norms = np.linalg.norm(y, axis=0)
        y = np.where(norms > 0.0, y / np.where(norms > 0.0, norms, 1.0), x)
        done = float(np.abs(y - x).max()) < 1e-12
        x = y
        if done:
            break
    values = np.einsum("ij,ij->j", x, gram @ x)
    order = np.argsort(-values, kind="stable")[:POLISHED]
    polished = [_polish(gram, x[:, i]) for i in order]
    return max(polished, key=lambda v: float(v @ gram @ v))


def _polish(gram: FloatArray, x: FloatArray) -> FloatArray:
    value = float(x @ gram @ x)
    while True:
        x = _by_coordinates(gram, _on_support(gram, x))
        now = float(x @ gram @ x)
        if now <= value + 1e-12 * abs(value):
            return x
        value = now


def _on_support(gram: FloatArray, x: FloatArray) -> FloatArray:
    """Move to the top eigenvector of the support, or as far towards it as signs allow."""
    support = np.flatnonzero(x > 0.0)
    top = top_eigh(gram[np.ix_(support, support)], 1)[1][:, 0]
    made = np.zeros_like(x)
    made[support] = top if top @ x[support] >= 0.0 else -top
    if (made >= 0.0).all():
        return made
    clipped = np.maximum(made, 0.0)
    clipped /= np.linalg.norm(clipped)
    return clipped if clipped @ gram @ clipped > x @ gram @ x else x


def _by_coordinates(gram: FloatArray, x: FloatArray) -> FloatArray:
    """Optimise each coordinate against the rest in turn: a 2 x 2 problem on a quarter circle."""
    for i in range(x.size):
        rest = x.copy()
        rest[i] = 0.0
        norm = float(np.linalg.norm(rest))
        if norm == 0.0:
            continue
        rest /= norm
        a, b, c = float(rest @ gram @ rest), float(rest @ gram[:, i]), float(gram[i, i])
        if b > 0.0:
            angle = 0.5 * np.arctan2(2.0 * b, a - c)
            x = np.cos(angle) * rest
            x[i] = np.sin(angle)
        elif a >= c:
            x = rest
        else:
            x = np.zeros_like(rest)
            x[i] = 1.0
    return x / np.linalg.norm(x)
