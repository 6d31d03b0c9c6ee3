"""Principal components under constraints: sparse, or non-negative.

Both problems are NP-hard, so these are searches: many deterministic starts, an ascent that cannot decrease ``x^T G x``,
and a local search around its results. Their only input is the released matrix, so they are post-processing; no start,
parameter or stopping rule depends on raw rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streampca.linalg.eigen import fix_signs, top_eigh
from streampca.linalg.types import FloatArray, IntArray
from streampca.queries.answer import Components, GramNoise, check_size
from streampca.release.release import Release

#: Sparse: steps of the power method, starts that are polished by swaps, features tried on each side of a swap.
_ITERATIONS, _POLISHED, _TRIED = 200, 8, 24
#: Non-negative: steps of the power method for all starts, and for the best few of them.
_SHORT, _LONG = 30, 500
#: Non-negative: coordinates (by variance) and eigenvectors (both signs) used as starts, and results that are polished.
_COORDINATES, _EIGENVECTORS, _PURSUED = 64, 10, 16


def sparse_pca(release: Release, n_nonzero: int, *, n_components: int = 1) -> Components:
    """Return directions of most variance with few non-zero weights.

    Maximizes ``x^T G x`` over unit x with at most ``n_nonzero`` non-zero entries, G the released Gram matrix, by the
    truncated power method (Yuan and Zhang 2013) from every coordinate, the thresholded eigenvector and a greedy path,
    each polished by swaps of one feature at a time. Later components do the same on the matrix deflated by those before
    (projection deflation, Mackey 2008), so their values are net of them. The error bar is uniform over all supports of
    that size (`Components.bound`): far smaller than for dense directions.
    """
    size = check_size("n_nonzero", n_nonzero, release.n_features)
    return _deflate(release, lambda gram: best_sparse(gram, size), n_components, size)


def nonnegative_pca(release: Release, n_components: int = 1) -> Components:
    """Return directions of most variance with non-negative weights.

    Maximizes ``x^T G x`` over unit x >= 0, G the released Gram matrix, by the projected power method (Montanari and
    Richard 2016) from the coordinates of most variance and both signs of the leading eigenvectors, each polished by
    exact ascent on one coordinate at a time and by solving on its support. Later components do the same on the matrix
    deflated by those before. The error bar is uniform over all directions.
    """
    return _deflate(release, best_nonnegative, n_components, release.n_features)


def _deflate(release: Release, best: Callable[[FloatArray], FloatArray], n_components: int, size: int) -> Components:
    d = release.n_features
    k = check_size("n_components", n_components, d)
    gram = release.gram
    found = np.zeros((d, k))
    span = np.zeros((d, 0))
    for i in range(k):
        left = gram - span @ (span.T @ gram)
        left -= (left @ span) @ span.T
        x = best(0.5 * (left + left.T))
        found[:, i] = x
        rest = x - span @ (span.T @ x)
        if np.linalg.norm(rest) > 1e-9:
            span = np.column_stack([span, rest / np.linalg.norm(rest)])
    found = fix_signs(found)
    values = np.einsum("ik,ij,jk->k", found, gram, found)
    return Components(found, values, release.noise_std, size, GramNoise.of(release), release.guarantee)


def _shifted(gram: FloatArray) -> FloatArray:
    """Return a PSD matrix that differs by a constant on unit vectors: on it, power methods ascend."""
    return gram - min(float(np.linalg.eigvalsh(gram)[0]), 0.0) * np.eye(gram.shape[0])


# -- the sparse direction of most variance of one symmetric matrix --


def best_sparse(gram: FloatArray, size: int) -> FloatArray:
    """Return a unit x with at most ``size`` non-zero entries and large ``x^T G x``. Deterministic."""
    d = gram.shape[0]
    if size == d:
        return top_eigh(gram, 1)[1][:, 0]
    supports = {tuple(s) for s in _sparse_power(gram, size)}
    supports.add(tuple(_largest(np.abs(top_eigh(gram, 1)[1][:, 0]), size)))
    supports.add(tuple(_largest(np.diag(gram), size)))
    supports.add(tuple(_greedy(gram, size)))
    # Ties are broken by the support itself: the result is a function of the matrix.
    ranked = sorted(supports, key=lambda s: (-_value(gram, s), s))
    best = max((_swap(gram, s) for s in ranked[:_POLISHED]), key=lambda s: _value(gram, s))
    x = np.zeros(d)
    x[list(best)] = top_eigh(gram[np.ix_(best, best)], 1)[1][:, 0]
    return x


def _sparse_power(gram: FloatArray, size: int) -> list[IntArray]:
    """Return the supports reached by the truncated power method from each coordinate."""
    d = gram.shape[0]
    shifted = _shifted(gram)
    x = np.eye(d)
    kept = np.zeros((d, 0), dtype=np.int64)
    for _ in range(_ITERATIONS):
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
        weakest = np.argsort(np.abs(x), kind="stable")[:_TRIED]
        pull = np.abs(gram[:, support] @ x) + 0.5 * np.diag(gram)
        pull[list(support)] = -np.inf
        strongest = np.argsort(-pull, kind="stable")[: min(_TRIED, d - len(support))]
        # The margin keeps rounding from swapping without end.
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


# -- the non-negative direction of most variance of one symmetric matrix --


def best_nonnegative(gram: FloatArray) -> FloatArray:
    """Return a unit x >= 0 with large ``x^T G x``. Deterministic."""
    d = gram.shape[0]
    vectors = top_eigh(gram, min(_EIGENVECTORS, d))[1]
    axes = np.eye(d)[:, np.argsort(-np.diag(gram), kind="stable")[:_COORDINATES]]
    starts = np.column_stack([axes, np.maximum(vectors, 0.0), np.maximum(-vectors, 0.0), np.full((d, 1), d**-0.5)])
    norms = np.linalg.norm(starts, axis=0)
    x = starts[:, norms > 0.0] / norms[norms > 0.0]
    shifted = _shifted(gram)
    leading = _distinct_best(gram, _nonnegative_power(shifted, x, _SHORT))
    polished = [_polish(gram, v) for v in _nonnegative_power(shifted, leading, _LONG).T]
    return max(polished, key=lambda v: float(v @ gram @ v))


def _nonnegative_power(shifted: FloatArray, x: FloatArray, steps: int) -> FloatArray:
    """Run the projected power method on all columns."""
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
    """Return the columns of largest value, without those that nearly repeat a better one."""
    order = np.argsort(-np.einsum("ij,ij->j", x, gram @ x), kind="stable")
    kept: list[int] = []
    for i in order.tolist():
        if len(kept) < _PURSUED and all(float(x[:, i] @ x[:, j]) < 0.9999 for j in kept):
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
    best = np.zeros_like(x)
    best[support] = top if top @ x[support] >= 0.0 else -top
    if (best >= 0.0).all():
        return best
    clipped = np.maximum(best, 0.0)
    clipped /= np.linalg.norm(clipped)
    return clipped if clipped @ gram @ clipped > x @ gram @ x else x


def _by_coordinates(gram: FloatArray, x: FloatArray) -> FloatArray:
    """Optimize each coordinate against the rest in turn: a 2 x 2 problem on a quarter circle."""
    x = x.copy()
    pull = gram @ x
    value = float(x @ pull)
    for i in range(x.size):
        left = max(1.0 - x[i] ** 2, 0.0)  # squared norm of the other coordinates
        c = float(gram[i, i])
        if left < 1e-14:
            continue
        # With r the others, normalized: r^T G r, r^T G e_i.
        a = (value - 2.0 * x[i] * pull[i] + x[i] ** 2 * c) / left
        b = (pull[i] - x[i] * c) / np.sqrt(left)
        angle = 0.5 * np.arctan2(2.0 * b, a - c) if b > 0.0 else (0.0 if a >= c else 0.5 * np.pi)
        shrink, new = np.cos(angle) / np.sqrt(left), np.sin(angle)
        pull = shrink * (pull - x[i] * gram[:, i]) + new * gram[:, i]
        x *= shrink
        x[i] = new
        value = float(x @ pull)
    return x / np.linalg.norm(x)
