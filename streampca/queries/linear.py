"""Principal components of the Gram matrix, queries that are linear in it, and linear regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

from streampca.errors import BadParameterError, UsageError
from streampca.linalg.counts import check_count
from streampca.linalg.eigen import top_eigh
from streampca.linalg.types import FloatArray, IntArray
from streampca.privacy.guarantee import Guarantee
from streampca.queries.answer import (
    Answer,
    Components,
    Features,
    GramNoise,
    Vector,
    around,
    feature_indices,
    feature_vector,
)
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


@dataclass(frozen=True, eq=False)
class Regression:
    """Coefficients of a private linear regression: safe to publish."""

    coefficients: FloatArray  #: (n_predictors, n_responses) array
    #: Standard deviation of the noise in each coefficient *to first order in the noise* (pointwise); None if the
    #: release does not state its noise. It measures the distance to the same (ridge) regression on the exact Gram
    #: matrix, not to the population.
    std: FloatArray | None
    residual: FloatArray  #: (n_responses,) residual sums of squares, in the units of ``release.gram``
    ridge: float  #: number added to the diagonal of the predictors' Gram matrix
    predictors: IntArray  #: numbers of the features
    responses: IntArray  #: numbers of the features
    #: Smallest eigenvalue of the predictors' matrix (with ridge) over the spectral bound on its noise. Below about 3
    #: the first order does not suffice and `std` is too small.
    signal_to_noise: float
    guarantee: Guarantee  #: that of the release: post-processing spends no budget

    def predict(self, rows: npt.ArrayLike) -> FloatArray:
        """Return predicted responses (n, n_responses) of rows (n, n_predictors), in the units of the rows."""
        return np.asarray(rows, dtype=np.float64) @ self.coefficients

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Return interval ends for each coefficient, with probability ``level`` each (pointwise, first order)."""
        return around(self.coefficients, self.std, level)


def regression(
    release: Release, responses: Features = -1, *, predictors: Features | None = None, ridge: float | None = None
) -> Regression:
    """Return the least-squares regression of the responses b on the predictors a, from one Gram matrix.

    Rows are joint, ``[a; b]``, and are clipped jointly: the sensitivity is that of the one Gram matrix, for any number
    of responses. Clipping a row scales a and b alike, which keeps a noiseless linear relation.

    Parameters
    ----------
    release : a release with a Gram matrix.
    responses : names or numbers of the response features; the last feature by default.
    predictors : names or numbers; all other features by default. A constant feature among them gives an intercept;
        a release of a stream with ``center=True`` needs none.
    ridge : non-negative number added to the diagonal, in the units of ``release.gram``. If None, it is 0 if the
        smallest eigenvalue exceeds twice the 95 % spectral bound on the noise, and otherwise the least that raises it
        to that: a rule on released numbers only. With it, the matrix must be positive definite.
    """
    d = release.n_features
    outputs = feature_indices(release, responses, "responses")
    others = np.setdiff1d(np.arange(d, dtype=np.int64), outputs)
    inputs = others if predictors is None else feature_indices(release, predictors, "predictors")
    if not len(outputs) or not len(inputs) or np.intersect1d(inputs, outputs).size:
        raise UsageError(
            f"responses={outputs.tolist()}, predictors={inputs.tolist()}: expected features in both, none in common"
        )
    gram, noise = release.gram, GramNoise.of(release)
    inner = gram[np.ix_(inputs, inputs)]
    # Weyl: noise moves the smallest eigenvalue by at most this.
    floor = 0.0 if noise is None else GramNoise(noise.std, len(inputs)).spectral(0.95)
    smallest = float(np.linalg.eigvalsh(inner)[0])
    if ridge is None:
        ridge = max(2.0 * floor - smallest, 0.0)
    if not (isinstance(ridge, (int, float)) and 0.0 <= ridge < np.inf) or smallest + ridge <= 0.0:
        raise BadParameterError(
            "ridge", ridge, f"a finite number above {max(-smallest, 0.0):.3g}; the predictors' matrix has the "
            f"eigenvalue {smallest + float(ridge):.3g}", advice="Use a larger ridge, more rows or more budget"
        )  # fmt: skip
    factor = cho_factor(inner + ridge * np.eye(len(inputs)))
    cross = gram[np.ix_(inputs, outputs)]
    coefficients: FloatArray = cho_solve(factor, cross)
    # ||b - A beta||^2 = b^T b - 2 beta^T A^T b + beta^T A^T A beta, in entries of the one Gram matrix.
    quadratic = np.einsum("ir,ij,jr->r", coefficients, inner, coefficients)
    residual = np.diag(gram)[outputs] - 2.0 * np.einsum("ir,ir->r", coefficients, cross) + quadratic
    std = None
    if noise is not None:
        # With H the predictors' matrix, H beta = G_ab, so d beta = H^-1 (E_ab - E_aa beta) = H^-1 E w with
        # w = (-beta; 1 at the response): the sd of u^T E w for u a row of H^-1, as in `GramNoise.through`.
        inverse = cho_solve(factor, np.eye(len(inputs)))
        u_square = np.einsum("ij,ij->i", inverse, inverse)
        w_square = 1.0 + np.einsum("ir,ir->r", coefficients, coefficients)
        std = noise.std * np.sqrt(0.5 * (np.outer(u_square, w_square) + (inverse @ coefficients) ** 2))
    ratio = (smallest + ridge) / floor if floor > 0.0 else np.inf
    return Regression(coefficients, std, residual, float(ridge), inputs, outputs, float(ratio), release.guarantee)
