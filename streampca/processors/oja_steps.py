"""What the Oja family shares: a starting basis, step sizes, and a cheap orthonormal update.

An Oja step is ``W <- orth(W + eta * G)`` with G the gradient ``sum a a^T W``.
Everything here works on (d, k) arrays: no d x d matrix exists.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from scipy.linalg.blas import dgemm, dtrsm
from scipy.linalg.lapack import dpotrf

from streampca.errors import BadParameter
from streampca.linalg.eigen import orthonormal
from streampca.linalg.types import FloatArray
from streampca.privacy.randomness import NoiseStream

LearningRate = Literal["adaptive"] | float | tuple[float, float]

#: Beyond this ratio of the diagonal of R, Cholesky QR gives way to Householder QR.
_WELL_CONDITIONED = 1e3
#: c in steps of c / (rayleigh * t): contraction like t**(-4 gap / lambda), 16/7 of the least noise.
_GAIN = 4.0


def random_basis(n_features: int, n_components: int, noise: NoiseStream, index: int = 0) -> FloatArray:
    """Draw an orthonormal (d, k) basis of a uniformly random subspace. Independent of any row."""
    normals = noise.normal(index, n_features * n_components).reshape(n_features, n_components)
    return np.asfortranarray(orthonormal(normals))


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


class StepSizes:
    """Learning rates of an Oja run, from public parameters and the gradients so far.

    Parameters
    ----------
    rate : ``"adaptive"`` divides each column by the root of the sum of its
        squared gradient norms (AdaOja: Henriksen and Ward 2019), which needs
        no scale; ``(c, offset)`` is ``c / (offset + t)`` for the sum of
        gradients of the rows up to t; a float is ``(rate, rate)``.
    """

    def __init__(self, rate: LearningRate, n_components: int) -> None:
        self._schedule = None if rate == "adaptive" else check_rate(rate)
        self._squares = np.zeros(n_components)

    def scale(self, gradient: FloatArray, t: int) -> FloatArray:
        """Return the step ``eta * gradient`` after t rows; may overwrite the gradient."""
        if self._schedule is not None:
            gradient *= self._schedule[0] / (self._schedule[1] + t)
            return gradient
        self._squares += np.einsum("ij,ij->j", gradient, gradient)
        gradient /= np.sqrt(np.maximum(self._squares, 1e-300))
        return gradient

    def state(self) -> FloatArray:
        """What `restore` needs."""
        return self._squares.copy()

    def restore(self, squares: Any) -> None:
        """Continue from `state`."""
        self._squares = np.array(squares, dtype=np.float64)


class PrivateStepSizes:
    """Learning rates from public parameters and gradients that are already private: post-processing.

    ``"adaptive"`` takes steps of ``4 / (rayleigh * t)`` a column, with
    ``rayleigh`` the running mean of w^T g over the rows so far, floored by its
    own noise. That is ``c / t`` with c = 4 / lambda, without knowing lambda:
    it suits eigengaps above lambda / 8.
    """

    def __init__(self, rate: LearningRate, n_components: int) -> None:
        self._schedule = None if rate == "adaptive" else check_rate(rate)
        self.collected = np.zeros(n_components)
        self._variance = 0.0

    def scale(self, gradient: FloatArray, basis: FloatArray, t: int, noise_std: float) -> FloatArray:
        """Return the step for the noisy sum of gradients of the latest rows, t rows in all."""
        self.collected += np.einsum("ij,ij->j", basis, gradient)
        self._variance += noise_std**2
        if self._schedule is not None:
            return gradient * (self._schedule[0] / (self._schedule[1] + t))
        return gradient * (_GAIN / np.maximum(self.collected, max(math.sqrt(self._variance), 1e-300)))

    def state(self) -> dict[str, Any]:
        """What `restore` needs."""
        return {"collected": self.collected.copy(), "variance": self._variance}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.collected = np.array(state["collected"], dtype=np.float64)
        self._variance = float(state["variance"])


class Chunks:
    """Rows in pieces whose bounds depend on t alone, so that sums have the same bits however rows arrive."""

    def __init__(self, size: int, n_features: int) -> None:
        self._rows = np.zeros((size, n_features))
        self._held = 0

    def feed(self, rows: FloatArray) -> Iterator[FloatArray]:
        """Take rows in; yield each full piece (a view: use it before the next)."""
        start, size = 0, self._rows.shape[0]
        while start < rows.shape[0]:
            take = min(rows.shape[0] - start, size - self._held)
            self._rows[self._held : self._held + take] = rows[start : start + take]
            self._held += take
            start += take
            if self._held == size:
                self._held = 0
                yield self._rows

    def push(self, row: FloatArray) -> FloatArray | None:
        """Take one row in; return the piece if that fills it. `feed`, without its overhead."""
        self._rows[self._held] = row
        self._held += 1
        if self._held < self._rows.shape[0]:
            return None
        self._held = 0
        return self._rows

    def flush(self) -> FloatArray:
        """Return the rows that wait, and forget them."""
        held, self._held = self._held, 0
        return self._rows[:held]

    def state(self) -> FloatArray:
        """The rows that wait. Raw rows: curator only."""
        return self._rows[: self._held].copy()

    def restore(self, rows: Any) -> None:
        """Continue from `state`."""
        waiting = np.asarray(rows, dtype=np.float64)
        self._held = waiting.shape[0]
        self._rows[: self._held] = waiting


def check_rate(rate: object) -> tuple[float, float]:
    """Return (c, offset) of a learning rate ``c / (offset + t)``, or raise `BadParameter`."""
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
