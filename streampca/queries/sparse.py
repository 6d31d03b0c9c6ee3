"""Principal components with few non-zero weights.

The problem is NP-hard, so this is a search: many deterministic starts, an ascent that cannot decrease ``x^T G x``, and
a local search around its results. Its only input is the released matrix, so it is post-processing; no start, parameter
or stopping rule depends on raw rows.
"""

from __future__ import annotations

import numpy as np

from streampca.linalg.counts import check_count
from streampca.linalg.eigen import fix_signs, top_eigh
from streampca.linalg.types import FloatArray, IntArray
from streampca.queries.answer import Components, GramNoise
from streampca.release.release import Release

#: Steps of the power method, starts that are polished by swaps, features tried on each side of a swap.
_ITERATIONS, _POLISHED, _TRIED = 200, 16, 24


def sparse_pca(release: Release, n_nonzero: int, *, n_components: int = 1) -> Components:
    """Return directions of most variance with few non-zero weights.

    Maximizes ``x^T G x`` over unit x with at most ``n_nonzero`` non-zero entries, G the released Gram matrix, by the
    truncated power method (Yuan and Zhang 2013) from every coordinate, polished by swaps of one feature at a time.
    Later components do the same on the matrix deflated by those before (projection deflation, Mackey 2008), so their
    values are net of them. The error bar is uniform over all supports of that size (`Components.bound`): far smaller
    than for dense directions.
    """
    d = release.n_features
    check_count("n_nonzero", n_nonzero, most=d)
    check_count("n_components", n_components, most=d)
    gram = release.gram
    found = np.zeros((d, n_components))
    span = np.zeros((d, 0))
    for i in range(n_components):
        # (I - Q Q^T) G (I - Q Q^T), Q an orthonormal basis of the directions so far.
        left = gram - span @ (span.T @ gram)
        left -= (left @ span) @ span.T
        x = best_sparse(0.5 * (left + left.T), n_nonzero)
        found[:, i] = x
        rest = x - span @ (span.T @ x)
        if np.linalg.norm(rest) > 1e-9:
            span = np.column_stack([span, rest / np.linalg.norm(rest)])
    found = fix_signs(found)
    values = np.einsum("ik,ij,jk->k", found, gram, found)
    return Components(found, values, release.noise_std, n_nonzero, GramNoise.of(release), release.guarantee)


def best_sparse(gram: FloatArray, size: int) -> FloatArray:
    """Return a unit x with at most ``size`` non-zero entries and large ``x^T G x``. Deterministic."""
    d = gram.shape[0]
    if size == d:
        return top_eigh(gram, 1)[1][:, 0]
    # Ties are broken by the support itself: the result is a function of the matrix.
    ranked = sorted({tuple(s) for s in _sparse_power(gram, size)}, key=lambda s: (-_value(gram, s), s))
    best = max((_swap(gram, s) for s in ranked[:_POLISHED]), key=lambda s: _value(gram, s))
    x = np.zeros(d)
    x[list(best)] = top_eigh(gram[np.ix_(best, best)], 1)[1][:, 0]
    return x


def _sparse_power(gram: FloatArray, size: int) -> list[IntArray]:
    """Return the supports reached by the truncated power method from each coordinate."""
    d = gram.shape[0]
    # A PSD matrix that differs by a constant on unit vectors: on it, the power method ascends.
    shifted = gram - min(float(np.linalg.eigvalsh(gram)[0]), 0.0) * np.eye(d)
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
