"""What queries return: a value, its error bar, and the guarantee it inherits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streampca.errors import NoRelease
from streampca.linalg.types import FloatArray, IntArray
from streampca.privacy.guarantee import Guarantee
from streampca.queries.noise import GramNoise, check_level, two_sided
from streampca.release import Subspace

UNKNOWN = (
    "the release does not state the law of its noise (noise_std is None), so this answer has no error bar; "
    "ask a release of a Gaussian mechanism or processor"
)


@dataclass(frozen=True)
class Answer:
    """A number computed from a private Gram matrix: safe to publish.

    Attributes
    ----------
    value : the answer, in the units of ``release.gram``.
    std : exact sd of the noise in `value`, for a query fixed before the
        release was seen; None if the release does not state its noise.
    guarantee : that of the release. Post-processing: nothing more is spent.
    """

    value: float
    std: float | None
    guarantee: Guarantee

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Interval that covers the noise-free answer with probability ``level`` (pointwise)."""
        check_level(level)
        if self.std is None:
            raise NoRelease(UNKNOWN)
        half = two_sided(level) * self.std
        return self.value - half, self.value + half

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True, eq=False)
class Components:
    """Directions found in a private Gram matrix, by descending variance: safe to publish.

    Attributes
    ----------
    components : (n_features, k) array of unit columns.
    values : (k,) array, ``x^T G x`` for each column x, G the released matrix.
    std : sd of the noise in a value *for a direction fixed in advance*
        (pointwise). These directions were chosen on the noisy matrix, so it is
        their error to first order only, and too small where the gaps between
        values are not much larger than the noise. `interval` does not use it.
    n_nonzero : bound on the non-zero entries of a direction.
    noise : the law of the noise, or None if the release does not state it.
    guarantee : that of the release. Post-processing: nothing more is spent.
    """

    components: FloatArray
    values: FloatArray
    std: float | None
    n_nonzero: int
    noise: GramNoise | None
    guarantee: Guarantee

    def bound(self, level: float = 0.95) -> float:
        """Uniform error: with probability ``level``, every direction's value is this close to the truth."""
        if self.noise is None:
            raise NoRelease(UNKNOWN)
        check_level(level)
        return min(self.noise.on_supports(self.n_nonzero, level), self.noise.spectral(level))

    def interval(self, level: float = 0.95) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends, (k,) each, that hold jointly for the noise-free values along `components`."""
        half = self.bound(level)
        return self.values - half, self.values + half

    def support(self, component: int = 0) -> IntArray:
        """Indices of the features with a non-zero weight, ascending."""
        return np.flatnonzero(self.components[:, component]).astype(np.int64)


@dataclass(frozen=True, eq=False)
class PrincipalComponents(Components):
    """Eigenvectors of a private Gram matrix.

    `bound` also holds for the eigenvalues of the exact matrix (Weyl).

    Attributes
    ----------
    gap : difference between the last eigenvalue kept and the next one of the released matrix.
    """

    gap: float

    @property
    def subspace(self) -> Subspace:
        """The span of the components."""
        return Subspace(self.components)

    def angle_bound(self, level: float = 0.95) -> float:
        """Largest principal angle to the exact top subspace, in radians; pi/2 if nothing can be said.

        Davis-Kahan: sin <= e / (gap - e), with e the spectral bound on the noise at ``level`` and
        `gap` that of the released matrix.
        """
        error = self.bound(level)
        return float(np.arcsin(error / (self.gap - error))) if self.gap > 2.0 * error else float(np.pi / 2)
