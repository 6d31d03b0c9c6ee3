"""Prefix sums with buffered linear Toeplitz noise: the least noise known here in constant memory."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from streampca.linalg.types import FloatArray, IntArray
from streampca.prefix_sums.base import PrefixSum, check_length
from streampca.prefix_sums.buffered_noise import BufferedNoise, ConstantNoise
from streampca.prefix_sums.buffers import INFLATION, Buffers
from streampca.prefix_sums.fitting import fit_buffers
from streampca.prefix_sums.spread import Spread, spread_of
from streampca.prefix_sums.spread_panels import PanelSpread
from streampca.privacy.randomness import NoiseStream

#: Constants that minimise the worst ratio of std(t) to (0.846 + ln(t)/pi) over 2**8 <= t <= 2**32.
ANYTIME = Buffers(2.384895e-11, 24.89204, 8, 0.44429)
ANYTIME_LIMIT = 2**32
#: Sds and scales are computed so many at a time, from aligned starts: the same bits whichever was asked for first.
_CHUNK = 64


class _BLT(PrefixSum):
    """Sds that are asked for one after the other."""

    @abstractmethod
    def _std_at(self, n: IntArray) -> FloatArray:
        """Sd of the noise in some consecutive sums."""

    def _near(self, n: int) -> float:
        chunk, place = divmod(n - 1, _CHUNK)
        latest = self.__dict__.get("_latest")
        if latest is None or latest[0] != chunk:
            first = 1 + chunk * _CHUNK
            end = first + _CHUNK if self.horizon is None else min(first + _CHUNK, self.horizon + 1)
            latest = self.__dict__["_latest"] = chunk, self._std_at(np.arange(first, end)).tolist()
        return float(latest[1][place])


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
    chosen adaptively (`streampca.prefix_sums.base`).

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
        """Sd of the noise of a single input: sensitivity / mu."""
        return self.sensitivity / self.mu

    def scales(self, first: int, last: int) -> FloatArray:
        """Norms of the columns ``first..last`` of C, which multiply the steps of the noise."""
        left: FloatArray = self.horizon + 1.0 - np.arange(first, last + 1, dtype=np.float64)
        return np.sqrt(self.buffers.column_square(left) * INFLATION)

    @cached_property
    def _spread(self) -> Spread | PanelSpread:
        return spread_of(self.horizon)

    def std(self, n: int) -> float:
        """Sd of the noise in the sum of the first n inputs: exact, or to 5e-6 for horizons over 2**20."""
        self._check(n)
        return self._near(n)

    def _std_at(self, n: IntArray) -> FloatArray:
        return self.unit * self._spread.at(n)

    def stds(self, n: int) -> FloatArray:
        """`std` of the sums 1..n, (n,)."""
        self._check(n)
        return self.unit * self._spread.stds(n)

    def decoder(self, n: int) -> FloatArray:
        """Dense B (n, n). For tests."""
        self._check(n)
        steps = self.scales(1, n)[:, None] * self.buffers.inverse(n)
        return self.unit * np.cumsum(steps, axis=0)

    def encoder(self, n: int) -> FloatArray:
        """Dense C (n, n) with columns of norm at most mu / sensitivity. For tests."""
        self._check(n)
        return self.buffers.encoder(n) / (self.unit * self.scales(1, n))

    def start(self, size: int, noise: NoiseStream) -> BufferedNoise:
        """A fresh noise sequence for sums of vectors of ``size`` coordinates."""
        return _HorizonNoise(self, size, noise)


@dataclass(frozen=True)
class AnytimeBLT(_BLT):
    """BLT for a stream of unknown length: noise ``A C**-1 z`` times a constant.

    The shape is good at every t at once (within 3 % of the best known curve
    0.846 + ln(t)/pi from 2**8 to 2**32). After ``restart_after`` sums the
    noise reached so far is frozen and a fresh sequence is added to it, so there is
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
        """What multiplies every step of the noise: sensitivity times the norm of C's columns, over mu."""
        return self.sensitivity / self.mu * math.sqrt(float(ANYTIME.column_square(self.restart_after)) * INFLATION)

    def std(self, n: int) -> float:
        """Exact sd of the noise in the sum of the first n inputs."""
        self._check(n)
        return self._near(n)

    def stds(self, n: int) -> FloatArray:
        """`std` of the sums 1..n, (n,)."""
        self._check(n)
        return self._std_at(np.arange(1, n + 1))

    def _std_at(self, n: IntArray) -> FloatArray:
        whole = (n - 1) // self.restart_after
        squares = whole * float(ANYTIME.row_square(float(self.restart_after)))
        squares += ANYTIME.row_square((n - whole * self.restart_after).astype(np.float64))
        stds: FloatArray = self.scale * np.sqrt(squares)
        return stds

    def decoder(self, n: int) -> FloatArray:
        """Dense B (n, n). For tests."""
        self._check(n)
        return self.scale * np.cumsum(self._blocks(ANYTIME.inverse(min(n, self.restart_after)), n), axis=0)

    def encoder(self, n: int) -> FloatArray:
        """Dense C (n, n). For tests."""
        self._check(n)
        return self._blocks(ANYTIME.encoder(min(n, self.restart_after)), n) / self.scale

    def _blocks(self, block: FloatArray, n: int) -> FloatArray:
        """Block-diagonal (n, n) matrix of the leading parts of one block."""
        out = np.zeros((n, n))
        for start in range(0, n, self.restart_after):
            length = min(self.restart_after, n - start)
            out[start : start + length, start : start + length] = block[:length, :length]
        return out

    def start(self, size: int, noise: NoiseStream) -> BufferedNoise:
        """A fresh noise sequence for sums of vectors of ``size`` coordinates."""
        return _AnytimeNoise(self, size, noise)


class _HorizonNoise(BufferedNoise):
    def __init__(self, mechanism: GeometricBLT, size: int, noise: NoiseStream) -> None:
        super().__init__(mechanism.buffers.omega_hat, mechanism.buffers.a_hat, size, noise)
        self._mechanism = mechanism
        self.limit = mechanism.horizon
        self._scales_from = 0
        self._scales = np.empty(0)

    def _scale(self, n: int) -> float:
        place = n - self._scales_from
        if not 0 <= place < self._scales.size:
            first = (n - 1) // _CHUNK * _CHUNK + 1
            last = min(first + _CHUNK - 1, self._mechanism.horizon)
            self._scales = self._mechanism.unit * self._mechanism.scales(first, last)
            self._scales_from = first
            place = n - first
        return float(self._scales[place])


class _AnytimeNoise(ConstantNoise):
    def __init__(self, mechanism: AnytimeBLT, size: int, noise: NoiseStream) -> None:
        super().__init__(ANYTIME.omega_hat, ANYTIME.a_hat, mechanism.scale, size, noise)
        self._restart_after = mechanism.restart_after

    def _add(self, n: int) -> None:
        if (n - 1) % self._restart_after == 0:
            self._generator.clear()
        super()._add(n)
