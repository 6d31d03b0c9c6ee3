"""Common parts of `Oja`, `PrivateOja` and `DPPCA`: the starting basis, orthonormal steps, rates and the release.

An ascent steps ``W <- orth(W + eta * G)`` with G the gradient ``sum a a^T W`` of a minibatch, on (d, k) arrays only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from scipy.linalg.blas import dgemm, dtrsm
from scipy.linalg.lapack import dpotrf

from streampca.errors import BadParameterError
from streampca.linalg.eigen import fix_signs, orthonormal
from streampca.linalg.types import FloatArray
from streampca.privacy.randomness import NoiseStream, Randomness
from streampca.processors.base import Processor
from streampca.release.release import Release

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
        object.__setattr__(configuration, "schedule", None)
        return
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
