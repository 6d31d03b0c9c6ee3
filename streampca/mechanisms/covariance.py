"""What the mechanisms share that release a noisy Gram matrix."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, Literal

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.eigen import fix_signs
from streampca.linalg.lattice import GramSum
from streampca.linalg.svec import pack_entries, unpack_entries
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import Mechanism
from streampca.privacy.outlet import Outlet
from streampca.privacy.randomness import Draws
from streampca.release import Release, Terms

Projection = Literal["psd", "auto"] | None


class CovarianceMechanism(Mechanism):
    """A mechanism that releases the Gram matrix of the rows plus noise.

    Attributes
    ----------
    project : ``"psd"`` moves the noisy matrix to the nearest one that a data
        set could have (positive semidefinite, trace at most n);
        ``"auto"`` does so where the noise exceeds the average eigenvalue;
        None leaves it alone.
    """

    n_components: int
    project: Projection = None

    @abstractmethod
    def noise(self, n_features: int, draws: Draws) -> FloatArray:
        """Make the noise of one vector of random numbers, in svec coordinates."""

    @abstractmethod
    def noise_scale(self, n_features: int) -> float:
        """Sd of a diagonal entry of the noise (rows in the unit ball). Public."""

    @abstractmethod
    def spectral_error(self, n_features: int) -> float:
        """Give the expected spectral norm of the noise, to leading order in n_features. Public."""

    @property
    def _noise_is_goe(self) -> bool:
        return False

    def _details(self, n_features: int) -> dict[str, Any]:
        return {}

    def _noisy(self, gram: GramSum, outlet: Outlet) -> FloatArray:
        """Packed entries of the noisy Gram matrix."""
        d = gram.n_features
        return outlet.release("gram", gram, partial(self.noise, d), self.noise_scale(d))

    def _projects(self, n_rows: int, n_features: int) -> bool:
        # A public rule. On rows with spectra from flat to steep, projecting cut the Frobenius error by a
        # quarter to nine tenths above this threshold and by little below it, where it only costs bias.
        return self.project == "psd" or (
            self.project == "auto" and n_features * self.spectral_error(n_features) > n_rows
        )

    def _release(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        n_rows, d = rows.shape
        packed = self._noisy(GramSum.of(rows), outlet)
        details: dict[str, Any] = {"mechanism": type(self).__name__, "rows": n_rows, **self._details(d)}
        if not self._projects(n_rows, d):
            std = self.noise_scale(d) if self._noise_is_goe else None
            return Release(
                t=t, n_components=self.n_components, terms=terms, packed_gram=packed, noise_std=std, details=details
            )  # fmt: skip
        values, vectors = nearest_gram(unpack_entries(packed, d), float(n_rows))
        k = self.n_components
        return Release(
            t=t, n_components=k, terms=terms, details={**details, "projected": True},
            packed_gram=pack_entries((vectors * values) @ vectors.T),
            # Projecting keeps eigenvectors but may tie their eigenvalues at zero, so the basis is kept apart.
            basis=fix_signs(vectors[:, :k]), eigenvalues=values[:k].copy(),
        )  # fmt: skip


def check_projection(project: object) -> None:
    """Raise `BadParameter` unless ``project`` is None, "psd" or "auto"."""
    if project not in (None, "psd", "auto"):
        raise BadParameter(f"project={project!r} is not known; use None, 'psd' or 'auto'")


def nearest_gram(matrix: FloatArray, trace: float) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues (descending) and eigenvectors of the nearest PSD matrix of at most that trace.

    The projection is orthogonal in Frobenius norm onto a convex set that holds
    every Gram matrix of ``trace`` rows from the unit ball, so it never
    increases the Frobenius error; it does pull large eigenvalues down.
    """
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    shrunk = np.maximum(values, 0.0)
    if shrunk.sum() > trace:
        excess = (np.cumsum(values) - trace) / np.arange(1.0, values.size + 1.0)
        shrunk = np.maximum(values - excess[np.flatnonzero(values > excess)[-1]], 0.0)
    return shrunk, vectors
