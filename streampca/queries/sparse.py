"""The sparse direction of most variance of one symmetric matrix."""

from __future__ import annotations

import numpy as np

from streampca.linalg.eigen import top_eigh
from streampca.linalg.types import FloatArray, IntArray

ITERATIONS = 200
#: Starts that are polished by swaps, and features tried on each side of a swap.
POLISHED, TRIED = 8, 24


def best_sparse(gram: FloatArray, size: int) -> FloatArray:
    """A unit x with at most ``size`` non-zero entries and large ``x^T G x``.

    The supports come from the truncated power method run from all coordinates
    at once, the thresholded top eigenvector, the largest diagonal entries and a
    greedy path; the best few are improved by swapping one feature at a time
    until no swap tried helps. Deterministic.
    """
    d = gram.shape[0]
    if size == d:
        return top_eigh(gram, 1)[1][:, 0]
    supports = {tuple(s) for s in _power(gram, size)}
    supports.add(tuple(_largest(np.abs(top_eigh(gram, 1)[1][:, 0]), size)))
    supports.add(tuple(_largest(np.diag(gram), size)))
    supports.add(tuple(_greedy(gram, size)))
    ranked = sorted(supports, key=lambda s: (-_value(gram, s), s))
    best = max((_swap(gram, s) for s in ranked[:POLISHED]), key=lambda s: _value(gram, s))
    x = np.zeros(d)
    x[list(best)] = top_eigh(gram[np.ix_(best, best)], 1)[1][:, 0]
    return x


def _power(gram: FloatArray, size: int) -> list[IntArray]:
    """Supports reached by the truncated power method from each coordinate."""
    d = gram.shape[0]
    # A shift makes the matrix PSD, without which the iteration need not ascend; unit vectors do not notice.
    shifted = gram - min(float(np.linalg.eigvalsh(gram)[0]), 0.0) * np.eye(d)
    x = np.eye(d)
    kept = np.zeros((d, 0), dtype=np.int64)
    for _ in range(ITERATIONS):
        y = shifted @ x
        now = np.sort(np.argsort(-np.abs(y), axis=0, kind="stable")[:size], axis=0)
        x = np.zeros_like(y)
        np.put_along_axis(x, now, np.take_along_axis(y, now, axis=0), axis=0)
        norms = np.linalg.norm(x, axis=0)
        x /= np.where(norms > 0.0, norms, 1.0)
        if kept.shape == now.shape and (kept == now).all():
            break
        kept = now
    return list(kept.T)


def _greedy(gram: FloatArray, size: int) -> IntArray:
    """Add the feature that correlates best with the direction so far, one at a time."""
    support = [int(np.argmax(np.diag(gram)))]
    while len(support) < size:
        _, x = top_eigh(gram[np.ix_(support, support)], 1)
        # First-order gain of a feature j beside x: the larger root of a 2 x 2 problem.
        cross = gram[:, support] @ x[:, 0]
        value = float(x[:, 0] @ gram[np.ix_(support, support)] @ x[:, 0])
        half = 0.5 * (np.diag(gram) - value)
        gain = half + np.sqrt(half**2 + cross**2)
        gain[support] = -np.inf
        support.append(int(np.argmax(gain)))
    return np.sort(np.array(support, dtype=np.int64))


def _swap(gram: FloatArray, start: tuple[int, ...]) -> tuple[int, ...]:
    """Swap features in and out while that increases the value."""
    support, value = start, _value(gram, start)
    d = gram.shape[0]
    while True:
        _, top = top_eigh(gram[np.ix_(support, support)], 1)
        x = top[:, 0]
        weakest = np.argsort(np.abs(x), kind="stable")[:TRIED]
        pull = np.abs(gram[:, support] @ x) + 0.5 * np.diag(gram)
        pull[list(support)] = -np.inf
        strongest = np.argsort(-pull, kind="stable")[: min(TRIED, d - len(support))]
        best = (value * (1.0 + 1e-12) if value > 0.0 else value + 1e-300, support)
        for out in weakest:
            rest = [f for i, f in enumerate(support) if i != out]
            for new in strongest:
                trial = tuple(sorted([*rest, int(new)]))
                best = max(best, (_value(gram, trial), trial))
        if best[1] == support:
            return support
        value, support = best


def _value(gram: FloatArray, support: tuple[int, ...]) -> float:
    return float(np.linalg.eigvalsh(gram[np.ix_(support, support)])[-1])


def _largest(weights: FloatArray, size: int) -> IntArray:
    return np.sort(np.argsort(-weights, kind="stable")[:size]).astype(np.int64)
