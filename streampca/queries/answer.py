"""Arguments and answers of queries: checks of arguments, the noise of a release, values with error bars.

The noise E of a release with ``noise_std`` sigma is isotropic in svec coordinates: its diagonal has standard deviation
sigma and its other entries sigma / sqrt(2) (the Gaussian orthogonal ensemble). So for every fixed symmetric M

    <M, E> ~ N(0, sigma**2 ||M||_F**2)      exactly,

which is sigma for ``x^T E x`` with a unit x, |S| sigma for the indicator of S, and sigma sqrt(k) for a projector of
rank k. That holds for a query fixed before the release was seen (*pointwise*). A direction that is chosen from the
release needs a bound on all directions at once (*uniform*):

    P( ||E|| > sigma (sqrt(2 d) + sqrt(2 ln(2 / beta))) ) <= beta

because E lambda_max(E) <= sigma sqrt(2 d) (Sudakov-Fernique; Vershynin 2018, Theorem 7.3.1 and Exercise 7.3.5) and
lambda_max is 1-Lipschitz in svec coordinates (Gaussian concentration, ibid., Theorem 5.2.2).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, ndtri

from streampca.errors import BadParameterError, NoReleaseError
from streampca.linalg.centering import MeanNoise
from streampca.linalg.completion import CompletedNoise
from streampca.linalg.counts import check_share
from streampca.linalg.types import FloatArray, IntArray
from streampca.privacy.guarantee import Guarantee
from streampca.release.release import Release

Feature = int | str
Features = Collection[Feature] | Feature | npt.NDArray[np.bool_] | npt.NDArray[np.integer[Any]]
Vector = npt.ArrayLike | Mapping[str, float]
UNKNOWN = (
    "the release does not state the law of its noise (noise_std is None), so this answer has no error bar. "
    "Query a release of a Gaussian mechanism or processor."
)


@dataclass(frozen=True)
class GramNoise:
    """The noise in a released Gram matrix, from public numbers only."""

    std: float  #: of a diagonal entry, in the units of ``release.gram``, as `Release.noise_std`
    n_features: int  #: side of the matrix
    #: `Release.noise_law`, from which `through` is exact for centered releases, too.
    law: tuple[float, MeanNoise | None] | None = None
    completed: CompletedNoise | None = None  #: of a completed matrix, whose entries have unequal noise

    @classmethod
    def of(cls, release: Release) -> GramNoise | None:
        """Return the noise of a release, or None if the release does not state its distribution."""
        std, completed = release.noise_std, release.completed_noise()
        if completed is not None:
            return cls(release.row_norm**2, release.n_features, None, completed)  # a factor of `through` only
        return None if std is None else cls(std, release.n_features, release.noise_law)

    def through(self, matrix: FloatArray) -> float:
        """Return the exact standard deviation of ``<M, E>`` for a matrix fixed in advance.

        Of a completed matrix, that of the noise of privacy to first order.
        """
        # E is symmetric, so that <M, E> is that of the symmetric part of M.
        symmetric, (std, mean) = 0.5 * (matrix + matrix.T), self.law or (self.std, None)
        if self.completed is not None:
            return std * self.completed.through(symmetric)
        norm = float(np.linalg.norm(symmetric))
        if mean is None:
            return std * norm
        # <M, -(u e^T + e u^T)> and <M, 2 g u u^T> of `MeanNoise`.
        turned = symmetric @ mean.ratio
        return std * math.hypot(norm, 2.0 * float(np.linalg.norm(turned)), 2.0 * float(mean.ratio @ turned))

    def spectral(self, level: float = 0.95, size: int | None = None) -> float:
        """Return a bound on the spectral norm of E that holds with probability at least ``level``.

        With ``size``, a bound on ``|x^T E x|`` over all unit x with at most ``size`` non-zero entries, by a union bound
        over the supports: ``sigma (sqrt(2 s) + sqrt(2 ln(2 C(d, s) / beta)))``.
        """
        check_share("level", level)
        if self.completed is not None:
            raise NoReleaseError("entries of a completed matrix have unequal noise: no uniform bound is proved")
        d = self.n_features
        s = d if size is None else min(size, d)
        # ln C(d, s), which overflows as a number for a few hundred features.
        supports = float(gammaln(d + 1) - gammaln(s + 1) - gammaln(d - s + 1))
        return self.std * (math.sqrt(2.0 * s) + math.sqrt(2.0 * (supports + math.log(2.0 / (1.0 - level)))))


def around(value: Any, std: Any, level: float) -> tuple[Any, Any]:
    """Return the ends of intervals that cover numbers with normal errors of these deviations, each with ``level``."""
    check_share("level", level)  # a bad level is an error for every answer, so it is checked before the noise
    if std is None:
        raise NoReleaseError(UNKNOWN)
    half = float(ndtri(0.5 + 0.5 * level)) * std
    return value - half, value + half


@dataclass(frozen=True)
class Answer:
    """A number computed from a private Gram matrix: safe to publish."""

    value: float  #: the answer, in the units of ``release.gram``
    #: Exact standard deviation of the noise in `value`, for a query fixed before the release was seen; None if the
    #: release does not state its noise.
    std: float | None
    guarantee: Guarantee  #: that of the release: post-processing spends no budget

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return an interval that covers the noise-free answer with probability ``level`` (pointwise)."""
        return around(self.value, self.std, level)

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True, eq=False)
class Components:
    """Directions found in a private Gram matrix, by descending variance: safe to publish."""

    components: FloatArray  #: (n_features, k) array of unit columns
    values: FloatArray  #: (k,) array, ``x^T G x`` for each column x, G the released matrix
    #: Standard deviation of the noise in a value *for a direction fixed in advance* (pointwise). These directions are
    #: chosen on the noisy matrix, so it is their error to first order only, and too small where the gaps between values
    #: are not much larger than the noise. `interval` does not use it.
    std: float | None
    n_nonzero: int  #: bound on the non-zero entries of a direction
    noise: GramNoise | None  #: its distribution, or None if the release does not state it
    guarantee: Guarantee  #: that of the release: post-processing spends no budget

    def bound(self, level: float = 0.95) -> float:
        """Return the uniform error: with probability ``level``, no direction's value is further from the exact one."""
        if self.noise is None:
            raise NoReleaseError(UNKNOWN)
        # Where supports are many, the union bound over them is the larger one.
        return min(self.noise.spectral(level, self.n_nonzero), self.noise.spectral(level))

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Return lower and upper ends, (k,) each, that hold jointly for the noise-free values along `components`."""
        half = self.bound(level)
        return self.values - half, self.values + half

    def support(self, component: int = 0) -> IntArray:
        """Return the indices of the features with a non-zero weight, ascending."""
        return np.flatnonzero(self.components[:, component]).astype(np.int64)


def feature_index(release: Release, feature: Feature, name: str) -> int:
    """Return the position of a feature, a name or a (possibly negative) number."""
    if isinstance(feature, str):
        names = release.features or ()
        if feature not in names:
            listed = ", ".join(names) if names else "none. Pass numbers instead"
            raise BadParameterError(name, feature, f"a feature of this release; its names are {listed}")
        return names.index(feature)
    d = release.n_features
    if isinstance(feature, bool) or not isinstance(feature, (int, np.integer)) or not -d <= feature < d:
        raise BadParameterError(name, feature, f"the name or number of one of the {d} features")
    return int(feature) % d


def feature_indices(release: Release, features: Features, name: str) -> IntArray:
    """Return sorted, distinct positions of several features (or of the True entries of a boolean mask)."""
    if isinstance(features, (str, int)):
        features = [features]
    if isinstance(features, np.ndarray) and features.dtype == bool:
        if features.shape != (release.n_features,):
            raise BadParameterError(name, features, f"a mask of shape ({release.n_features},)")
        return np.flatnonzero(features).astype(np.int64)
    listed: list[Feature] = np.ravel(features).tolist() if isinstance(features, np.ndarray) else list(features)
    return np.array(sorted({feature_index(release, each, name) for each in listed}), dtype=np.int64)


def feature_vector(release: Release, vector: Vector, name: str) -> FloatArray:
    """Return a finite vector of n_features numbers; a mapping gives weights by feature name, others are 0."""
    d = release.n_features
    if isinstance(vector, Mapping):
        weights = np.zeros(d)
        for key, weight in vector.items():
            weights[feature_index(release, key, name)] = weight
    else:
        try:
            weights = np.asarray(vector, dtype=np.float64)
        except (TypeError, ValueError) as problem:
            raise BadParameterError(name, ..., f"a vector of numbers ({problem})") from problem
    if weights.shape != (d,) or not np.isfinite(weights).all():
        raise BadParameterError(name, weights, f"{d} finite numbers, one for each feature")
    return weights
