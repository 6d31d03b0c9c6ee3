"""The base class of mechanisms that release a noisy Gram matrix."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.eigen import fix_signs
from streampca.linalg.lattice import GramSum
from streampca.linalg.svec import pack_entries, unpack_entries
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import Mechanism
from streampca.privacy.outlet import Outlet
from streampca.privacy.randomness import Draws
from streampca.release.release import Release, Terms, centered_fields

Projection = Literal["psd", "auto"] | None


class CovarianceMechanism(Mechanism):
    """A mechanism that releases the Gram matrix of the rows plus noise.

    Attributes
    ----------
    project : ``"psd"`` projects the noisy matrix onto the matrices that a data set could have (positive semidefinite,
        trace at most n); ``"auto"`` does so where the noise exceeds the average eigenvalue; None does not project.
    """

    n_components: int
    project: Projection = None
    #: Whether the matrix is about the mean; its rows then have the constant of `linalg.centering`.
    center: bool = False
    _noise_is_goe: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.project not in (None, "psd", "auto"):
            raise BadParameterError(f"project={self.project!r}: expected None, 'psd' or 'auto'.")

    @property
    def square_bytes(self) -> float:
        return 50.0  # of the sum, its noise, and the release

    @abstractmethod
    def noise(self, n_features: int, draws: Draws) -> FloatArray:
        """Compute the noise, in svec coordinates, from one vector of random numbers."""

    @abstractmethod
    def noise_std(self, n_features: int) -> float:
        """Standard deviation of a diagonal entry of the noise (rows in the unit ball). Public."""

    @abstractmethod
    def spectral_error(self, n_features: int) -> float:
        """Expected spectral norm of the noise, to leading order in n_features. Public."""

    def _details(self, n_features: int) -> dict[str, Any]:
        return {}

    def _noisy(self, gram: GramSum, outlet: Outlet) -> FloatArray:
        """Return packed entries of the noisy Gram matrix."""
        d = gram.n_features
        return outlet.release("gram", gram, partial(self.noise, d), self.noise_std(d))

    def released(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        n_rows, d = rows.shape
        count = terms.count(t - n_rows + 1, t)  # without those of a warm-up
        packed = self._noisy(GramSum.of(rows), outlet)
        details: dict[str, Any] = {"mechanism": type(self).__name__, "rows": count, **self._details(d)}
        # A public rule: no projection may depend on the exact matrix. On rows with spectra from flat to steep,
        # projecting reduced the Frobenius error by 25 to 90 % above this threshold; below it, it reduced the error
        # little and added bias.
        if self.project == "psd" or (self.project == "auto" and d * self.spectral_error(d) > n_rows):
            values, vectors = nearest_gram(unpack_entries(packed, d), float(n_rows))
            k = self.n_components
            return Release(
                t=t, n_components=k, terms=terms, details={**details, "projected": True},
                packed_gram=pack_entries((vectors * values) @ vectors.T),
                # Projecting keeps eigenvectors but may zero several eigenvalues, so the basis is stored separately.
                basis=fix_signs(vectors[:, :k]), eigenvalues=values[:k].copy(),
            )  # fmt: skip
        std = self.noise_std(d) if self._noise_is_goe else None
        fields: dict[str, Any] = {"packed_gram": packed, "noise_std": std, "details": details}
        if self.center:
            fields = centered_fields(packed, count, std or 0.0, terms, details, None)
        return Release(t=t, n_components=self.n_components, terms=terms, **fields)


def nearest_gram(matrix: FloatArray, trace: float) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues (descending) and eigenvectors of the nearest PSD matrix of at most that trace.

    The projection is orthogonal in Frobenius norm onto a convex set that holds every Gram matrix of ``trace`` rows from
    the unit ball, so it never increases the Frobenius error; it may reduce large eigenvalues.
    """
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    shrunk = np.maximum(values, 0.0)
    if shrunk.sum() > trace:
        excess = (np.cumsum(values) - trace) / np.arange(1.0, values.size + 1.0)
        shrunk = np.maximum(values - excess[np.flatnonzero(values > excess)[-1]], 0.0)
    return shrunk, vectors
