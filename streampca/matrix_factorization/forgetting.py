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
    """Sums of an endless stream that decay by gamma = 1 - 1/memory a step, so that weights add up to ``memory``.

    Notes
    -----
    *Guarantee.* With c_k the coefficients of a BLT, C_gamma has coefficients gamma**k c_k, its inverse gamma**k c^_k,
    and A_gamma C_gamma**-1 gamma**k b_k. Columns of C_gamma have squared norm at most
    S_gamma = sum_k gamma**2k c_k**2, so ``sqrt(S_gamma) A_gamma C_gamma**-1 z sensitivity / mu`` is mu-GDP per input
    over the endless sequence, also for inputs chosen adaptively.
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
        """Factor of a sum in each step, gamma."""
        return 1.0 - 1.0 / self.memory

    @property
    def _fade(self) -> float:
        """1 - gamma**2, without cancellation."""
        return (2.0 - 1.0 / self.memory) / self.memory

    @cached_property
    def buffers(self) -> Buffers:
        """The fitted factorization, before the decay."""
        return fit_forgetting(self.memory)

    @cached_property
    def scale(self) -> float:
        """Factor of every step of the noise."""
        return self.sensitivity / self.mu * math.sqrt(self.buffers.faded_column_square(self._fade) * INFLATION)

    @cached_property
    def recurrence(self) -> Recurrence:
        # Buffers decay by gamma theta^_i, the noise by gamma.
        rate = 1.0 / self.memory + self.decay * self.buffers.a_hat  # 1 - gamma theta^_i
        return Recurrence(self.decay * self.buffers.omega_hat, rate, self.scale, keep=self.decay)

    def std(self, n: int) -> float:
        self._check(n)
        if n * self._fade > 40.0:  # equal to the limit in float64
            return self.limit_std
        return self.scale * math.sqrt(self.buffers.faded_row_square(self._fade, n))

    @cached_property
    def limit_std(self) -> float:
        """Limit of `std` for large n, its largest value."""
        return self.scale * math.sqrt(self.buffers.faded_row_square(self._fade))

    def workload(self, n: int) -> FloatArray:
        lag = np.arange(n)[:, None] - np.arange(n)
        return np.where(lag >= 0, self.decay ** np.maximum(lag, 0), 0.0)

    def reconstruction(self, n: int) -> FloatArray:
        self._check(n)
        return self.scale * self.workload(n) @ (self.workload(n) * self.buffers.inverse(n))

    def strategy(self, n: int) -> FloatArray:
        self._check(n)
        return self.workload(n) * self.buffers.strategy(n) / self.scale
