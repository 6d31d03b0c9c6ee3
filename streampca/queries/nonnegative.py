"""The non-negative direction of most variance of one symmetric matrix."""

from __future__ import annotations

import numpy as np

from streampca.linalg.eigen import top_eigh
from streampca.linalg.types import FloatArray

#: Steps of the power method for all starts, and for the few that lead then.
SHORT, LONG = 30, 500
#: Coordinates that are starts, by variance.
COORDINATES = 64
#: Eigenvectors whose positive and negative parts are starts, and results that are pursued.
EIGENVECTORS, PURSUED = 10, 16


def best_nonnegative(gram: FloatArray) -> FloatArray:
    """A unit x >= 0 with large ``x^T G x``.

    The projected power method runs from all starts at once; the best
    results are polished until neither an exact step along one coordinate nor
    the top eigenvector of their support improves them. Deterministic.
    """
    d = gram.shape[0]
    vectors = top_eigh(gram, min(EIGENVECTORS, d))[1]
    axes = np.eye(d)[:, np.argsort(-np.diag(gram), kind="stable")[:COORDINATES]]
    starts = np.column_stack([axes, np.maximum(vectors, 0.0), np.maximum(-vectors, 0.0), np.full((d, 1), d**-0.5)])
    norms = np.linalg.norm(starts, axis=0)
    x = starts[:, norms > 0.0] / norms[norms > 0.0]
    # A shift makes the matrix PSD, without which the iteration need not ascend; unit vectors do not notice.
    shifted = gram - min(float(np.linalg.eigvalsh(gram)[0]), 0.0) * np.eye(d)
    leading = _distinct_best(gram, _power(shifted, x, SHORT))
    polished = [_polish(gram, v) for v in _power(shifted, leading, LONG).T]
    return max(polished, key=lambda v: float(v @ gram @ v))


def _power(shifted: FloatArray, x: FloatArray, steps: int) -> FloatArray:
    """The projected power method on all columns at once."""
    for _ in range(steps):
        y = np.maximum(shifted @ x, 0.0)
        norms = np.linalg.norm(y, axis=0)
        y = np.where(norms > 0.0, y / np.where(norms > 0.0, norms, 1.0), x)
        done = float(np.abs(y - x).max()) < 1e-12
        x = y
        if done:
            break
    return x


def _distinct_best(gram: FloatArray, x: FloatArray) -> FloatArray:
    """The columns of largest value, those left out that nearly repeat a better one."""
    order = np.argsort(-np.einsum("ij,ij->j", x, gram @ x), kind="stable")
    kept: list[int] = []
    for i in order.tolist():
        if len(kept) < PURSUED and all(float(x[:, i] @ x[:, j]) < 0.9999 for j in kept):
            kept.append(i)
    return x[:, kept]


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
    x = x.copy()
    pull = gram @ x
    value = float(x @ pull)
    for i in range(x.size):
        left = max(1.0 - x[i] ** 2, 0.0)  # squared norm of the other coordinates
        c = float(gram[i, i])
        if left < 1e-14:
            continue
        # With r the others, normalised: r^T G r, r^T G e_i.
        a = (value - 2.0 * x[i] * pull[i] + x[i] ** 2 * c) / left
        b = (pull[i] - x[i] * c) / np.sqrt(left)
        angle = 0.5 * np.arctan2(2.0 * b, a - c) if b > 0.0 else (0.0 if a >= c else 0.5 * np.pi)
        shrink, new = np.cos(angle) / np.sqrt(left), np.sin(angle)
        pull = shrink * (pull - x[i] * gram[:, i]) + new * gram[:, i]
        x *= shrink
        x[i] = new
        value = float(x @ pull)
    return x / np.linalg.norm(x)
