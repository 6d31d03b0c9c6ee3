"""Noise for sums that decay by one factor a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from streampca.linalg.lazy import cached_property
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import check_length
from streampca.matrix_factorization.buffered_noise import BufferedFactorization, Recurrence
from streampca.matrix_factorization.buffers import INFLATION, Buffers, fit_forgetting


@dataclass(frozen=True)
class ForgettingBLT(BufferedFactorization):
    """Sums of an endless stream that decay by gamma = 1 - 1/memory a step.

    Parameters
    ----------
    memory : limit of the total weight, 1/(1 - gamma).
    mu : Gaussian-DP parameter of the whole endless sequence.
    sensitivity : bound on the norm by which one input may change.

    Notes
    -----
    With c_k the coefficients of a BLT, C_gamma has coefficients gamma**k c_k, its
    inverse gamma**k c^_k, and A_gamma C_gamma**-1 gamma**k b_k. Columns of C_gamma have
    squared norm at most S_gamma = sum_k gamma**2k c_k**2, so ``sqrt(S_gamma) A_gamma C_gamma**-1 z
    sensitivity / mu`` is mu-GDP per input over the endless sequence, adaptive inputs included.

    Noise at mu = 1: 2.43, 2.88, 3.76, 4.20 for memory 2**8, 2**10, 2**14, 2**16.
    """

    memory: int
    mu: float
    sensitivity: float = 1.0

    horizon = None

    def __post_init__(self) -> None:
        self._validate()
        check_length("memory", self.memory)

    @property
    def decay(self) -> float:
        """gamma: factor of a sum in each step."""
        return 1.0 - 1.0 / self.memory

    @property
    def _fade(self) -> float:
        """1 - gamma**2."""
        return (2.0 - 1.0 / self.memory) / self.memory

    @cached_property
    def buffers(self) -> Buffers:
        """The fitted factorisation, before the decay."""
        return fit_forgetting(self.memory)

    @cached_property
    def scale(self) -> float:
        """Factor of every step of the noise."""
        return self.sensitivity / self.mu * math.sqrt(self.buffers.faded_column_square(self._fade) * INFLATION)

    @cached_property
    def recurrence(self) -> Recurrence:
        """The recurrence of one step: buffers decay by gamma theta^_i, the noise by gamma."""
        rate = 1.0 / self.memory + self.decay * self.buffers.a_hat  # 1 - gamma theta^_i
        return Recurrence(self.decay * self.buffers.omega_hat, rate, self.scale, keep=self.decay)

    def std(self, n: int) -> float:
        """Exact standard deviation of the noise in the n-th decayed sum."""
        self._check(n)
        if n * self._fade > 40.0:  # equal to the limit in float64
            return self.limit_std
        return self.scale * math.sqrt(self.buffers.faded_row_square(self._fade, n))

    @cached_property
    def limit_std(self) -> float:
        """Limit of `std` for large n, its largest value."""
        return self.scale * math.sqrt(self.buffers.faded_row_square(self._fade))

    def workload(self, n: int) -> FloatArray:
        """Dense A (n, n): decayed sums. For tests."""
        lag = np.arange(n)[:, None] - np.arange(n)
        return np.where(lag >= 0, self.decay ** np.maximum(lag, 0), 0.0)

    def reconstruction(self, n: int) -> FloatArray:
        """Dense B (n, n). For tests."""
        self._check(n)
        return self.scale * self.workload(n) @ (self.workload(n) * self.buffers.inverse(n))

    def strategy(self, n: int) -> FloatArray:
        """Dense C (n, n). For tests."""
        self._check(n)
        return self.workload(n) * self.buffers.strategy(n) / self.scale
