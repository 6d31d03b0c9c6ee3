"""Subspaces of feature space: the subject of a release."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import subspace_angles

from streampca.linalg.types import FloatArray


@dataclass(frozen=True, eq=False)
class Subspace:
    """k-dimensional subspace of feature space."""

    #: (n_features, n_components) array with orthonormal columns, by descending eigenvalue where there are eigenvalues.
    #: The entry of largest magnitude of each column is positive.
    basis: FloatArray

    @property
    def projector(self) -> FloatArray:
        """Orthogonal projector onto the subspace, (d, d)."""
        return self.basis @ self.basis.T

    def captured(self, gram: FloatArray) -> float:
        """Return the energy of a Gram matrix in the subspace, tr(V^T G V), in the units of G."""
        return float(np.vdot(self.basis, gram @ self.basis))

    def distance(self, other: Subspace) -> float:
        """Return the sine of the largest principal angle to another subspace of the same dimension."""
        return float(np.sin(self.angles(other).max(initial=0.0)))

    def angles(self, other: Subspace) -> FloatArray:
        """Return the principal angles to another subspace, in radians, ascending."""
        return subspace_angles(self.basis, other.basis)[::-1]
