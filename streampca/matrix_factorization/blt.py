"""Prefix sums with buffered linear Toeplitz noise: the least noise known here in constant memory."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from streampca.linalg.lazy import cached_property
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import InChunks, check_length
from streampca.matrix_factorization.buffered_noise import BufferedFactorization, Recurrence
from streampca.matrix_factorization.buffers import INFLATION, Buffers, fit_buffers
from streampca.matrix_factorization.noise_std import noise_std

#: Constants that minimise the worst ratio of std(t) to (0.846 + ln(t)/pi) over 2**8 <= t <= 2**32.
ANYTIME = Buffers(2.384895e-11, 24.89204, 8, 0.44429)
ANYTIME_LIMIT = 2**32


class _BLT(BufferedFactorization):
    """A BLT whose standard deviations are computed in chunks."""

    @abstractmethod
    def stds(self, first: int, last: int) -> FloatArray:
        """`std` of the sums first..last."""

    def std(self, n: int) -> float:
        """Standard deviation of the noise in the sum of n inputs; exact, but to 5e-6 for horizons over 2**17."""
        self._check(n)
        return self.std_chunks.at(n)


@dataclass(frozen=True)
class GeometricBLT(_BLT):
    """Geometric BLT with column normalisation, for a known horizon. The default.

    Noise ``A D C**-1 z sensitivity / mu``, with C a buffered linear Toeplitz
    matrix (`Buffers`) fitted to the horizon, and D the diagonal matrix of the
    norms of its columns, sqrt(S(T - t + 1)).

    Parameters
    ----------
    horizon : number of inputs.
    mu : Gaussian-DP parameter of the whole sequence.
    sensitivity : bound on the norm by which one input may change.

    Notes
    -----
    Privacy: every column of ``C D**-1`` has norm 1 (at most; S is inflated by
    1e-6), and B C = A, so the sequence is mu-GDP per input, also for inputs
    chosen adaptively (`streampca.matrix_factorization.base`).

    Noise at mu = 1, max over t / RMS: 2.65/2.56 for 2**8 inputs, 3.96/3.87 for
    2**14, 5.28/5.19 for 2**20. Any factorisation has RMS at least 2.47, 3.79, 5.12.
    """

    horizon: int
    mu: float
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        self._validate()

    @cached_property
    def buffers(self) -> Buffers:
        """The fitted factorisation."""
        return fit_buffers(self.horizon)

    @property
    def unit(self) -> float:
        """Standard deviation of the noise of a single input: sensitivity / mu."""
        return self.sensitivity / self.mu

    def scales(self, first: int, last: int) -> FloatArray:
        """Norms of the columns ``first..last`` of C, which multiply the steps of the noise."""
        return self._norms(np.arange(first, last + 1, dtype=np.float64))

    def _norms(self, n: FloatArray) -> FloatArray:
        return np.sqrt(self.buffers.column_square(self.horizon + 1.0 - n) * INFLATION)

    @cached_property
    def recurrence(self) -> Recurrence:
        """The recurrence of one step."""
        scale = InChunks(self._some_scales, self.horizon)
        return Recurrence(self.buffers.omega_hat, self.buffers.a_hat, scale, horizon=self.horizon)

    def _some_scales(self, first: int, last: int) -> FloatArray:
        return self.unit * self.scales(first, last)

    def constants(self) -> tuple[object, ...]:
        """Mixes, rates, and the scales of the steps 1, 2, 4, ... and of the last."""
        some = np.append(2.0 ** np.arange(int(self.horizon).bit_length()), self.horizon)
        return *super().constants(), *(self.unit * self._norms(some)).tolist()

    def stds(self, first: int, last: int) -> FloatArray:
        """`std` of the sums first..last."""
        return self.unit * noise_std(self.horizon, np.arange(first, last + 1))

    def reconstruction(self, n: int) -> FloatArray:
        """Dense B (n, n). For tests."""
        self._check(n)
        steps = self.scales(1, n)[:, None] * self.buffers.inverse(n)
        return self.unit * np.cumsum(steps, axis=0)

    def strategy(self, n: int) -> FloatArray:
        """Dense C (n, n) with columns of norm at most mu / sensitivity. For tests."""
        self._check(n)
        return self.buffers.strategy(n) / (self.unit * self.scales(1, n))


@dataclass(frozen=True)
class AnytimeBLT(_BLT):
    """BLT for a stream of unknown length: noise ``A C**-1 z`` times a constant.

    The shape is good at every t at once: 22 to 36 % above 0.846 + ln(t)/pi, which is near
    the noise for a horizon of t, from 2**8 to 2**32. After ``restart_after`` sums the
    current noise is kept constant and a fresh sequence is added to it, so there is
    no horizon.

    Parameters
    ----------
    mu : Gaussian-DP parameter of the whole endless sequence.
    sensitivity : bound on the norm by which one input may change.
    restart_after : inputs in one sequence.

    Notes
    -----
    Privacy: columns of C have norm sqrt(S(restart_after)) at most, and an
    input is part of one sequence only; so mu-GDP per input over the endless
    sequence, adaptive inputs included.

    Noise at mu = 1: 3.56, 4.04, 4.92, 5.44, 6.55 at t = 2**8, 2**10, 2**14, 2**16, 2**20.
    """

    mu: float
    sensitivity: float = 1.0
    restart_after: int = ANYTIME_LIMIT

    horizon = None

    def __post_init__(self) -> None:
        self._validate()
        check_length("restart_after", self.restart_after)

    @property
    def buffers(self) -> Buffers:
        """The factorisation."""
        return ANYTIME

    @cached_property
    def scale(self) -> float:
        """Factor of every step of the noise: sensitivity times the norm of C's columns, over mu."""
        return self.sensitivity / self.mu * math.sqrt(float(ANYTIME.column_square(self.restart_after)) * INFLATION)

    @cached_property
    def recurrence(self) -> Recurrence:
        """The recurrence of one step."""
        return Recurrence(ANYTIME.omega_hat, ANYTIME.a_hat, self.scale, restart_after=self.restart_after)

    def stds(self, first: int, last: int) -> FloatArray:
        """`std` of the sums first..last."""
        n = np.arange(first, last + 1)
        whole = (n - 1) // self.restart_after
        squares = whole * float(ANYTIME.row_square(float(self.restart_after)))
        squares += ANYTIME.row_square((n - whole * self.restart_after).astype(np.float64))
        stds: FloatArray = self.scale * np.sqrt(squares)
        return stds

    def reconstruction(self, n: int) -> FloatArray:
        """Dense B (n, n). For tests."""
        self._check(n)
        return self.scale * np.cumsum(self._blocks(ANYTIME.inverse(min(n, self.restart_after)), n), axis=0)

    def strategy(self, n: int) -> FloatArray:
        """Dense C (n, n). For tests."""
        self._check(n)
        return self._blocks(ANYTIME.strategy(min(n, self.restart_after)), n) / self.scale

    def _blocks(self, block: FloatArray, n: int) -> FloatArray:
        """Block-diagonal (n, n) matrix of the leading parts of one block."""
        out = np.zeros((n, n))
        for start in range(0, n, self.restart_after):
            length = min(self.restart_after, n - start)
            out[start : start + length, start : start + length] = block[:length, :length]
        return out
