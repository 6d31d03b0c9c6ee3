"""Oja's algorithm: streaming PCA in O(dk) memory. Not private."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.linalg.blas import dgemm

from streampca.linalg.memory import Rows
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.processors.ascent import LearningRate, orthonormalise, released, set_schedule, start_basis
from streampca.processors.base import Algorithm, Processor
from streampca.release.release import Release
from streampca.release.terms import Terms

CITATION = "Oja 1982; Liu, Kong, Jain and Oh 2022, Algorithm 1; Henriksen and Ward 2019"


@dataclass(frozen=True, kw_only=True)
class Oja(Algorithm):
    """Streaming PCA by stochastic gradient ascent: the baseline without privacy.

    Every ``batch_size`` rows the basis W makes one step, ``W <- orth(W + eta * sum a a^T W)``.

    Parameters
    ----------
    n_components : dimension of the subspace.
    learning_rate : ``"adaptive"`` divides each column by the root of the sum of its squared gradient norms (AdaOja:
        Henriksen and Ward 2019), which needs no scale; ``(c, offset)`` makes steps of ``c / (offset + t)`` after t
        rows, for which c times the eigengap of the mean of a a^T should exceed 1/2; a number c is ``(c, c)``.
    batch_size : rows in a step. Rows wait, so that the bits of a release do not depend on the blocks of rows.
    release_every : rows between releases. None uses batch_size.

    Notes
    -----
    *Guarantee.* None. A release is a function of the rows and of a random start. ``release.eigenvalues`` are sums of
    squared projections of the rows on the columns before them, which underestimate the eigenvalues of the Gram matrix.
    *Cost.* O(dk) time a row and O(dk) memory.
    """

    n_components: int
    learning_rate: LearningRate = "adaptive"
    batch_size: int = 32
    release_every: int | None = None
    schedule: tuple[float, float] | None = field(init=False, default=None, repr=False, compare=False)

    is_gaussian = False
    guarantee = Guarantee.none("Oja's algorithm adds no noise", CITATION)

    def __post_init__(self) -> None:
        super().__post_init__()
        set_schedule(self)

    @property
    def every(self) -> int:
        return self.release_every or self.batch_size

    def constants(self, n_features: int) -> tuple[object, ...]:
        return ()


class OjaProcessor(Processor, of=Oja):
    """State of a run of `Oja`: (d, k) basis, its columns in any order, sums by column, and rows of the current step."""

    __slots__ = ("basis", "energy", "squares", "waiting")
    kept = __slots__

    algorithm: Oja

    def __init__(self, algorithm: Oja, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(algorithm, n_features, source, terms)
        self.basis = start_basis(n_features, algorithm.n_components, source.start)
        # Sums of squared norms of gradients, and of squared projections.
        self.squares = self.energy = np.zeros(algorithm.n_components)
        self.waiting = Rows(n_features)

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[OjaProcessor, Release | None]:
        algorithm, size = self.algorithm, self.algorithm.batch_size
        basis, squares, energy, waiting = self.basis, self.squares, self.energy, self.waiting
        start, count, t = 0, rows.shape[0], self.t
        while start < count:
            stop = min(count, start + size - waiting.count)
            waiting = waiting.append(rows[start:stop])
            start, t = stop, t + stop - start
            if waiting.count == size:
                columns = waiting.array.T  # (d, b) in column-major order
                scores = dgemm(1.0, columns, basis, trans_a=1)
                gradient = dgemm(1.0, columns, scores)
                energy = energy + np.einsum("ij,ij->j", scores, scores)
                if algorithm.schedule is None:
                    # AdaOja: eta_j = 1 / sqrt(sum of squared gradient norms of column j), this step included.
                    squares = squares + np.einsum("ij,ij->j", gradient, gradient)
                    gradient /= np.sqrt(np.maximum(squares, 1e-300))
                else:
                    gradient *= algorithm.schedule[0] / (algorithm.schedule[1] + t)
                gradient += basis
                basis, waiting = orthonormalise(gradient), Rows(self.n_features)
        after = self.after(t, outlet.chain, basis=basis, squares=squares, energy=energy, waiting=waiting)
        return after, released(after, basis, energy) if t % algorithm.every == 0 else None
