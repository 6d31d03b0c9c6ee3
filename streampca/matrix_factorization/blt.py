"""Prefix sums with buffered linear Toeplitz (BLT) noise, in constant memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streampca.linalg.lazy import cached_property
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import InChunks, check_length
from streampca.matrix_factorization.buffered_noise import BufferedFactorization, Recurrence
from streampca.matrix_factorization.buffers import INFLATION, Buffers, fit_buffers
from streampca.matrix_factorization.noise_std import noise_std

#: Constants that minimize the worst ratio of std(t) to (0.846 + ln(t)/pi) over 2**8 <= t <= 2**32.
ANYTIME = Buffers(2.384895e-11, 24.89204, 8, 0.44429)
ANYTIME_LIMIT = 2**32


class _BLT(BufferedFactorization):
    """A BLT whose standard deviations are computed in chunks, by `stds`."""

    def std(self, n: int) -> float:
        self._check(n)
        return self.std_chunks.at(n)


@dataclass(frozen=True)
class GeometricBLT(_BLT):
    """Geometric BLT with column normalization, for a known horizon.

    Noise ``A D C**-1 z sensitivity / mu``, with C a buffered linear Toeplitz matrix (`Buffers`) fitted to the horizon,
    and D the diagonal matrix of the norms of its columns, sqrt(S(T - t + 1)).

    Notes
    -----
    *Guarantee.* Every column of ``C D**-1`` has norm at most 1 (S is inflated by 1e-6), and B C = A, so the sequence is
    mu-GDP per input, also for inputs chosen adaptively (`streampca.matrix_factorization.base`).
    """

    horizon: int
    mu: float
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        self._validate()

    @cached_property
    def buffers(self) -> Buffers:
        return fit_buffers(self.horizon)

    @property
    def unit(self) -> float:
        """Standard deviation of the noise of a single input, sensitivity / mu."""
        return self.sensitivity / self.mu

    def _norms(self, n: FloatArray) -> FloatArray:
        """Norms of the columns n of C, which multiply the steps of the noise."""
        return np.sqrt(self.buffers.column_square(self.horizon + 1.0 - n) * INFLATION)

    @cached_property
    def recurrence(self) -> Recurrence:
        scale = InChunks(self._scales, self.horizon)  # a method, because streams are pickled
        return Recurrence(self.buffers.omega_hat, self.buffers.a_hat, scale, horizon=self.horizon)

    def _scales(self, first: int, last: int) -> FloatArray:
        return self.unit * self._norms(np.arange(first, last + 1, dtype=np.float64))

    def constants(self) -> tuple[object, ...]:
        # A million scales make no label: those of the steps 1, 2, 4, ... and of the last one determine the fit.
        some = np.append(2.0 ** np.arange(int(self.horizon).bit_length()), self.horizon)
        return *super().constants(), *(self.unit * self._norms(some)).tolist()

    def stds(self, first: int, last: int) -> FloatArray:
        return self.unit * noise_std(self.horizon, np.arange(first, last + 1))


@dataclass(frozen=True)
class AnytimeBLT(_BLT):
    """BLT for a stream of unknown length: noise ``A C**-1 z`` times a constant.

    The noise is within 22 to 36 % of 0.846 + ln(t)/pi, which is near the noise for a horizon of t, for every t from
    2**8 to 2**32. After ``restart_after`` sums the current noise is kept constant and a fresh sequence is added to it,
    so there is no horizon.

    Notes
    -----
    *Guarantee.* Columns of C have norm at most sqrt(S(restart_after)), and an input is part of one sequence only, so
    the endless sequence is mu-GDP per input, also for inputs chosen adaptively.
    """

    mu: float
    sensitivity: float = 1.0
    restart_after: int = ANYTIME_LIMIT

    horizon = None

    def __post_init__(self) -> None:
        self._validate()
        check_length("restart_after", self.restart_after)

    @cached_property
    def buffers(self) -> Buffers:
        return ANYTIME

    @cached_property
    def scale(self) -> float:
        """Factor of every step of the noise."""
        return self._scale(float(ANYTIME.column_square(self.restart_after)))

    @cached_property
    def recurrence(self) -> Recurrence:
        return Recurrence(ANYTIME.omega_hat, ANYTIME.a_hat, self.scale, restart_after=self.restart_after)

    def stds(self, first: int, last: int) -> FloatArray:
        n = np.arange(first, last + 1)
        # The variances of the completed sequences, and that of the current one.
        whole = (n - 1) // self.restart_after
        squares = whole * float(ANYTIME.row_square(float(self.restart_after)))
        squares += ANYTIME.row_square((n - whole * self.restart_after).astype(np.float64))
        stds: FloatArray = self.scale * np.sqrt(squares)
        return stds
