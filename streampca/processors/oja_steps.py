"""What the Oja family shares: a starting basis, step sizes, and a cheap orthonormal update.

An Oja step is ``W <- orth(W + eta * G)`` with G the gradient ``sum a a^T W``.
Everything here works on (d, k) arrays: no d x d matrix exists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.linalg.blas import dgemm, dtrsm
from scipy.linalg.lapack import dpotrf

from streampca.errors import BadParameter
from streampca.linalg.eigen import orthonormal
from streampca.linalg.types import FloatArray
from streampca.privacy.randomness import NoiseStream, Randomness

LearningRate = Literal["adaptive"] | float | tuple[float, float]

#: Sums over rows and their noise are multiples of this: low bits tell nothing.
GRID = 2.0**-30
#: Rows whose sum on the lattice is exact in float64, each number at most 1.
EXACT_ROWS = 2**23
#: c in steps of c / (rayleigh * t): contraction like t**(-4 gap / lambda), 16/7 of the least noise.
GAIN = 4.0
#: Beyond this ratio of the diagonal of R, Cholesky QR gives way to Householder QR.
_WELL_CONDITIONED = 1e3


def random_basis(n_features: int, n_components: int, noise: NoiseStream, index: int = 0) -> FloatArray:
    """Draw an orthonormal (d, k) basis of a uniformly random subspace. Independent of any row."""
    normals = noise.normal(index, n_features * n_components).reshape(n_features, n_components)
    return np.asfortranarray(orthonormal(normals))


def start_basis(n_features: int, n_components: int, start: bytes) -> FloatArray:
    """The random basis of a run: a public function of the 16 bytes of its start, so a resumed run has the same."""
    return random_basis(n_features, n_components, Randomness(start * 2).stream("start"))


def orthonormalise(matrix: FloatArray) -> FloatArray:
    """Orthonormal basis of the columns, with a positive diagonal of R: QR by Cholesky where that is safe.

    ``matrix`` is column-major and is overwritten. Oja's update leaves a basis
    well conditioned, so that the Gram matrix's factor is accurate; where it is
    not, Householder QR takes over.
    """
    factor, info = dpotrf(dgemm(1.0, matrix, matrix, trans_a=1), lower=0, overwrite_a=1)
    diagonal = factor.diagonal()
    if info != 0 or not diagonal.max() <= _WELL_CONDITIONED * diagonal.min():
        return np.asfortranarray(orthonormal(matrix))
    basis: FloatArray = dtrsm(1.0, factor, matrix, side=1, lower=0, overwrite_b=1)
    return basis


@dataclass(frozen=True, slots=True, eq=False)
class PrivateStepSizes:
    """Learning rates from public parameters and gradients that are already private: an immutable value.

    Without a schedule, steps are ``4 / (rayleigh * t)`` a column, with
    ``rayleigh`` the running mean of w^T g over the rows so far, floored by its
    own noise. That is ``c / t`` with c = 4 / lambda, without knowing lambda:
    it suits eigengaps above lambda / 8.

    Parameters
    ----------
    schedule : (c, offset) for steps of ``c / (offset + t)``, or None (`schedule_of`).
    collected : (k,) array: sum of w^T g over the steps so far.
    variance : of the noise in each entry of it.
    steps : steps so far.
    """

    schedule: tuple[float, float] | None
    collected: FloatArray
    variance: float = 0.0
    steps: int = 0

    def step(
        self, gradient: FloatArray, basis: FloatArray, t: int, noise_std: float
    ) -> tuple[PrivateStepSizes, FloatArray]:
        """The rates after one step more, and the step, for the noisy sum of gradients of the latest rows, t in all."""
        collected = self.collected + np.einsum("ij,ij->j", basis, gradient)
        after = PrivateStepSizes(self.schedule, collected, self.variance + noise_std**2, self.steps + 1)
        if self.schedule is not None:
            return after, gradient * (self.schedule[0] / (self.schedule[1] + t))
        return after, gradient * (GAIN / np.maximum(collected, max(math.sqrt(after.variance), 1e-300)))


def hashable(rate: Any) -> Any:
    """The learning rate, as a tuple if it is a list."""
    return tuple(rate) if isinstance(rate, list) else rate


def schedule_of(rate: object) -> tuple[float, float] | None:
    """(c, offset) of a learning rate ``c / (offset + t)``, None for ``"adaptive"``, or `BadParameter`."""
    if isinstance(rate, str) and rate == "adaptive":
        return None
    pair = rate if isinstance(rate, Sequence) and not isinstance(rate, str) else (rate, rate)
    try:
        c, offset = (float(part) for part in pair)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        c = offset = math.nan
    if not (0.0 < c < math.inf and 0.0 <= offset < math.inf):
        raise BadParameter(
            f"learning_rate={rate!r} must be 'adaptive', or (c, offset) for steps of c / (offset + t) "
            "with c > 0 and offset >= 0"
        )
    return c, offset
