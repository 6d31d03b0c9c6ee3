"""Principal components under constraints: sparse, or non-negative.

Both problems are NP-hard, so these are searches: many deterministic starts,
an ascent that cannot decrease ``x^T G x``, and a local search around what it
finds. Everything they see is the released matrix, so they are post-processing
whatever they do; nothing is started, tuned or stopped on raw rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streampca.linalg.eigen import fix_signs
from streampca.linalg.types import FloatArray
from streampca.queries.answer import Components
from streampca.queries.arguments import check_size
from streampca.queries.noise import GramNoise
from streampca.queries.nonnegative import best_nonnegative
from streampca.queries.sparse import best_sparse
from streampca.release import Release


def sparse_pca(release: Release, n_nonzero: int, *, n_components: int = 1) -> Components:
    """Directions of most variance with few non-zero weights.

    Maximises ``x^T G x`` over unit x with at most ``n_nonzero`` non-zero
    entries, G the released Gram matrix, by the truncated power method (Yuan and
    Zhang 2013) from every coordinate, the thresholded eigenvector and a greedy
    path, each polished by swaps of one feature at a time. Later components do
    the same on the matrix deflated by those before (projection deflation, Mackey
    2008), so their values are net of them.

    Post-processing: adjacency, unit, epsilon and delta are those of ``release.guarantee``.

    Parameters
    ----------
    release : a release with a Gram matrix.
    n_nonzero : largest number of non-zero weights of each direction.
    n_components : number of directions.

    Returns
    -------
    Components whose error bar is uniform over all supports of that size
    (`Components.bound`): far smaller than for dense directions.

    Raises
    ------
    NoRelease
        If the release holds a subspace only.
    BadParameter
        If n_nonzero or n_components is not between 1 and the number of features.
    """
    size = check_size("n_nonzero", n_nonzero, release.n_features)
    return _deflate(release, lambda gram: best_sparse(gram, size), n_components, size)


def nonnegative_pca(release: Release, n_components: int = 1) -> Components:
    """Directions of most variance with non-negative weights.

    Maximises ``x^T G x`` over unit x >= 0, G the released Gram matrix, by the
    projected power method (Montanari and Richard 2016) from the coordinates of most variance
    and both signs of the leading eigenvectors, each polished by exact
    ascent on one coordinate at a time and by solving on its support. Later
    components do the same on the matrix deflated by those before.

    Post-processing: adjacency, unit, epsilon and delta are those of ``release.guarantee``.

    Parameters
    ----------
    release : a release with a Gram matrix.
    n_components : number of directions.

    Returns
    -------
    Components whose error bar is uniform over all directions.
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
    noise = GramNoise.of(release)
    return Components(found, values, None if noise is None else noise.std, size, noise, release.guarantee)
