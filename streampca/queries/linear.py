"""Principal components of the Gram matrix, and queries that are linear in it, whose error bars are exact."""

from __future__ import annotations

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.counts import check_count
from streampca.linalg.eigen import top_eigh
from streampca.linalg.types import FloatArray
from streampca.queries.answer import Answer, Components, GramNoise, Vector, feature_vector
from streampca.release.release import Release
from streampca.release.subspace import Subspace


def pca(release: Release, n_components: int | None = None) -> Components:
    """Return top eigenvalues and eigenvectors of the released Gram matrix.

    ``n_components`` is the number of the release by default. The error bar of the eigenvalues is uniform:
    ``interval(level)`` covers the exact eigenvalues, and the exact variance along each released direction, jointly
    (Weyl's inequality). ``std`` is pointwise, and the error of an eigenvalue to first order only.
    """
    gram, d = release.gram, release.n_features
    k = release.n_components if n_components is None else n_components
    check_count("n_components", k, most=d)
    # Those of a smoothed matrix are not of `gram`, to which the error bars refer.
    if k == release.n_components and release.eigenvalues is not None and release.smoothed is None:
        values, basis = release.eigenvalues, release.subspace.basis
    else:
        values, basis = top_eigh(gram, k)
    return Components(basis, values, release.noise_std, d, GramNoise.of(release), release.guarantee)


def directional_variance(release: Release, direction: Vector) -> Answer:
    """Return the quadratic form ``x^T G x``: the sum of squares of the rows' components along x, the ``direction``.

    x is an array of n_features numbers or a mapping of feature names to weights, not normalized: a unit vector gives a
    variance. The answer has ``std = noise_std * ||x||**2`` (less if the release is centered, `GramNoise.through`),
    exact for an x chosen independently of the release. For any other x, use the uniform bound ``||x||**2 *
    GramNoise.of(release).spectral(level)``.
    """
    x = feature_vector(release, direction, "direction")
    return _answer(release, float(x @ release.gram @ x), np.multiply.outer(x, x))


def captured_variance(release: Release, subspace: Subspace | FloatArray) -> Answer:
    """Return the sum of squares of the rows' projections on a subspace: ``<P, G>``, P its projector.

    ``subspace`` is a `Subspace` or an orthonormal basis (n_features, k). The answer has ``std = noise_std * sqrt(k)``
    (less if the release is centered), exact for a subspace chosen independently of this release.
    """
    basis = np.asarray(subspace.basis if isinstance(subspace, Subspace) else subspace, dtype=np.float64)
    if basis.ndim != 2 or basis.shape[0] != release.n_features:
        raise BadParameterError("subspace", basis, f"{release.n_features} rows, one for each feature")
    if not np.allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-8):
        raise BadParameterError("subspace", ..., "orthonormal columns", advice="Pass np.linalg.qr(basis)[0]")
    value = float(np.einsum("ik,ij,jk->", basis, release.gram, basis, optimize=True))
    return _answer(release, value, basis @ basis.T)


def _answer(release: Release, value: float, matrix: FloatArray) -> Answer:
    """Return the value ``<M, G>`` with its error bar."""
    noise = GramNoise.of(release)
    return Answer(value, None if noise is None else noise.through(matrix), release.guarantee)
