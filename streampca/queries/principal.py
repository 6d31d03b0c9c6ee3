"""Principal components and low-rank approximation of a private Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streampca.linalg.eigen import top_eigh
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.queries.answer import GramNoise, PrincipalComponents, check_size
from streampca.release.release import Release


def pca(release: Release, n_components: int | None = None) -> PrincipalComponents:
    """Return top eigenvalues and eigenvectors of the released Gram matrix.

    ``n_components`` is the number of the release by default. The error bar of the eigenvalues is uniform:
    ``interval(level)`` covers the exact eigenvalues, and the exact variance along each released direction, jointly
    (Weyl's inequality). ``std`` is pointwise, and the error of an eigenvalue to first order only.
    """
    gram, d = release.gram, release.n_features
    k = check_size("n_components", release.n_components if n_components is None else n_components, d)
    if k == release.n_components and release.eigenvalues is not None and release.smoothed is None:
        values, basis = release.eigenvalues, release.subspace.basis
    else:
        values, basis = top_eigh(gram, k)
    following = np.linalg.eigvalsh(gram)[d - k - 1] if k < d else -np.inf
    return PrincipalComponents(
        components=basis,
        values=values,
        std=release.noise_std,
        n_nonzero=d,
        noise=GramNoise.of(release),
        guarantee=release.guarantee,
        gap=float(values[-1] - following),
    )


@dataclass(frozen=True, eq=False)
class LowRank:
    """A matrix of rank at most k, close to the exact Gram matrix: safe to publish.

    Attributes
    ----------
    matrix : (n_features, n_features) positive semidefinite array.
    captured : ``<P, G>``, the sum of the eigenvalues kept; P projects on their eigenvectors.
    std : ``noise_std * sqrt(k)``, exact standard deviation of the noise in ``<P, G>`` for a projector fixed in advance
        (pointwise). This one is chosen on the noisy matrix: `bound` is the uniform error.
    missed : largest magnitude among the other eigenvalues.
    guarantee : that of the release. Post-processing spends no budget.
    """

    matrix: FloatArray
    captured: float
    std: float | None
    missed: float
    components: PrincipalComponents
    guarantee: Guarantee

    def bound(self, level: float = 0.95) -> float:
        """Return the uniform error of `captured` at probability ``level``: k times the spectral bound on the noise."""
        return len(self.components.values) * self.components.bound(level)

    def spectral_error(self, level: float = 0.95) -> float:
        """Return a bound on ``||matrix - exact Gram||`` (spectral norm) that holds with probability ``level``.

        The largest other eigenvalue plus the noise; the best approximation of the exact matrix has the error
        lambda_{k+1}.
        """
        return self.missed + self.components.bound(level)


def low_rank(release: Release, n_components: int | None = None) -> LowRank:
    """Return the best positive semidefinite approximation of rank k of the released Gram matrix.

    ``n_components``, k, is the number of the release by default. Eigenvalues that the noise made negative are dropped,
    so the rank may be smaller.
    """
    found = pca(release, n_components)
    kept = np.maximum(found.values, 0.0)
    matrix = (found.components * kept) @ found.components.T
    matrix = 0.5 * (matrix + matrix.T)
    missed = float(np.abs(np.linalg.eigvalsh(release.gram - matrix)).max())
    k = len(kept)
    std = None if found.std is None else found.std * float(np.sqrt(k))
    return LowRank(matrix, float(found.values.sum()), std, missed, found, release.guarantee)
