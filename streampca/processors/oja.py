"""Oja's algorithm, without privacy, and what it shares with `PrivateOja`, `DPPCA` and `PrivateSketch`.

An ascent steps ``W <- orth(W + eta * G)`` with G the gradient ``sum a a^T W`` of a minibatch, on (d, k) arrays only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.linalg.blas import dgemm, dtrsm
from scipy.linalg.lapack import dpotrf

from streampca.errors import BadParameterError
from streampca.linalg.eigen import fix_signs, orthonormal
from streampca.linalg.memory import Rows
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.privacy.randomness import NoiseStream, Randomness
from streampca.processors.base import Algorithm, Processor
from streampca.release.release import Release
from streampca.release.terms import Terms

LearningRate = Literal["adaptive"] | float | tuple[float, float]

#: Sums over rows and their noise are multiples of this, so that low bits hold no information.
GRID = 2.0**-30
#: Number of rows whose sum on the lattice is exact in float64, each number at most 1.
EXACT_ROWS = 2**23
#: c in steps of c / (rayleigh * t): contraction like t**(-4 gap / lambda), 16/7 of the least noise.
GAIN = 4.0
#: Largest ratio of the diagonal of R for which Cholesky QR is used.
_WELL_CONDITIONED = 1e3


def random_basis(n_features: int, n_components: int, noise: NoiseStream) -> FloatArray:
    """Draw an orthonormal (d, k) basis of a uniformly random subspace. Independent of any row."""
    normals = noise.normal(0, n_features * n_components).reshape(n_features, n_components)
    return np.asfortranarray(orthonormal(normals))


def start_basis(n_features: int, n_components: int, start: bytes) -> FloatArray:
    """Draw the random basis of a run from the 16 bytes of its start, so that a resumed run has the same basis."""
    return random_basis(n_features, n_components, Randomness(start * 2).stream("start"))


def default_clip(columns: int, n_features: int) -> float:
    """Return a bound that few unit rows exceed with ``||a|| ||W^T a||``, W random with that many columns. Public."""
    # The root mean square of ||W^T a|| is sqrt(columns / d), and its spread falls with the number of columns.
    return min(1.0, 1.15 * math.sqrt(columns / n_features))


def released(processor: Processor, basis: FloatArray, values: FloatArray, **details: Any) -> Release:
    """Release the subspace of a (d, k) basis, with its columns by descending values."""
    # A stable order and fixed signs: equal values give equal bits on every machine.
    order = np.argsort(-values, kind="stable")
    return Release(
        t=processor.t, n_components=processor.algorithm.n_components, terms=processor.terms,
        basis=fix_signs(basis[:, order]), eigenvalues=values[order], details=details,
    )  # fmt: skip


def orthonormalise(matrix: FloatArray) -> FloatArray:
    """Return the Q of a QR factorization with a positive diagonal of R. Overwrites the column-major ``matrix``."""
    # Cholesky QR squares the condition number. After a step of Oja's update the basis is well conditioned, so the
    # factor of its Gram matrix is accurate. Otherwise Householder QR is used.
    factor, info = dpotrf(dgemm(1.0, matrix, matrix, trans_a=1), lower=0, overwrite_a=1)
    diagonal = factor.diagonal()
    if info != 0 or not diagonal.max() <= _WELL_CONDITIONED * diagonal.min():
        return np.asfortranarray(orthonormal(matrix))
    return dtrsm(1.0, factor, matrix, side=1, lower=0, overwrite_b=1)


def set_schedule(configuration: Any) -> None:
    """Set ``schedule`` of a frozen configuration to (c, offset) of steps of c / (offset + t), or None if adaptive."""
    rate = configuration.learning_rate
    if isinstance(rate, list):  # configurations are hashable
        object.__setattr__(configuration, "learning_rate", tuple(rate))
    if isinstance(rate, str) and rate == "adaptive":
        return  # None is its default
    # A number c is short for (c, c), whose first steps are not longer than 1.
    pair = rate if isinstance(rate, Sequence) and not isinstance(rate, str) else (rate, rate)
    try:
        c, offset = (float(part) for part in pair)
    except (TypeError, ValueError):
        c = offset = math.nan
    if not (0.0 < c < math.inf and 0.0 <= offset < math.inf):
        raise BadParameterError(
            "learning_rate", rate, "'adaptive', or (c, offset) with c > 0 and offset >= 0 for steps of c / (offset + t)"
        )
    object.__setattr__(configuration, "schedule", (c, offset))


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
