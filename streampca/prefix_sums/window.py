"""Noise for sums over the last W inputs of an endless stream."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from streampca.linalg.types import FloatArray
from streampca.prefix_sums.base import PrefixSum, RunningNoise, check_length
from streampca.prefix_sums.buffered_noise import ConstantNoise, Generator
from streampca.prefix_sums.buffers import INFLATION, Buffers
from streampca.prefix_sums.fitting import fit_lagged
from streampca.privacy.randomness import NoiseStream


@lru_cache(maxsize=4096)
def _lagged_square(window: int, lag: int) -> float:
    return float(fit_lagged(window).lagged_square(lag))


@dataclass(frozen=True)
class _Lagged(PrefixSum):
    """A BLT for an endless stream, fitted to differences of prefix sums ``window`` apart.

    C is Toeplitz with all its columns of norm sqrt(S(infinity)), whatever the
    time, so one constant scale serves forever.
    """

    window: int
    mu: float
    sensitivity: float = 1.0

    horizon = None

    def __post_init__(self) -> None:
        self._validate()
        check_length("window", self.window)

    @cached_property
    def buffers(self) -> Buffers:
        """The fitted factorisation."""
        return fit_lagged(self.window)

    @cached_property
    def scale(self) -> float:
        """What multiplies every step of the noise: sensitivity times the norm of C's columns, over mu."""
        return self.sensitivity / self.mu * math.sqrt(self.buffers.column_square_limit() * INFLATION)

    def lag_std(self, lag: int) -> float:
        """Largest sd, over all times, of the noise in a difference of prefix sums ``lag`` apart."""
        return self.scale * math.sqrt(_lagged_square(self.window, lag))

    def difference_std(self, n: int, lag: int) -> float:
        """Exact sd of the noise in (sum of the first n) - (sum of the first n - lag)."""
        self._check(n)
        if (n - lag) * float(self.buffers.a_hat[0]) > 40.0:  # the start is forgotten to the last bit
            return self.lag_std(lag)
        return self.scale * math.sqrt(float(self.buffers.lagged_square(lag, n)))

    def encoder(self, n: int) -> FloatArray:
        """Dense C (n, n). For tests."""
        self._check(n)
        return self.buffers.encoder(n) / self.scale


@dataclass(frozen=True)
class StationaryBLT(_Lagged):
    """Prefix sums of an endless stream whose differences have noise that does not grow with time.

    The noise of a prefix sum itself grows like sqrt(t), slowly; that of a
    difference of two prefix sums depends on their distance only (`lag_std`). So every
    window, of any start, is post-processing of this one sequence.

    Parameters
    ----------
    window : the distance whose noise is made least.
    mu : Gaussian-DP parameter of the whole endless sequence.
    sensitivity : bound on the norm by which one input may change.

    Notes
    -----
    Privacy: C is Toeplitz with columns of norm at most sqrt(S(infinity)), so the noise ``sqrt(S(infinity)) A C**-1 z
    sensitivity / mu`` makes the endless sequence mu-GDP per input, adaptive inputs included.

    Noise of a window at mu = 1: 3.52, 4.14, 5.39, 6.02 for W = 2**8, 2**10, 2**14, 2**16. A fresh BLT a
    block of W costs 4.12 ... 6.90, differences of anytime prefixes 4.52 ... 7.08, a binary tree 12.7 ... 24.0.
    """

    def std(self, n: int) -> float:
        """Exact sd of the noise in the sum of the first n inputs."""
        self._check(n)
        return self.scale * math.sqrt(float(self.buffers.row_square(n)))

    def decoder(self, n: int) -> FloatArray:
        """Dense B (n, n). For tests."""
        self._check(n)
        return self.scale * np.cumsum(self.buffers.inverse(n), axis=0)

    def start(self, size: int, noise: NoiseStream) -> RunningNoise:
        """A fresh noise sequence for sums of vectors of ``size`` coordinates."""
        return ConstantNoise(self.buffers.omega_hat, self.buffers.a_hat, self.scale, size, noise)


@dataclass(frozen=True)
class LaggedTwin(_Lagged):
    """Sums over exactly the last W inputs, in memory that does not depend on W.

    Two generators share one key and the second runs W steps behind: the noise
    gains sqrt(S(infinity)) (y_t - y_{t-W}) at every step. Nothing but the two
    sets of buffers and the noise is stored.

    Parameters
    ----------
    window : W.
    mu : Gaussian-DP parameter of the whole endless sequence.
    sensitivity : bound on the norm by which one input may change.

    Notes
    -----
    Privacy: a difference of the prefix sums of `StationaryBLT`, so post-processing of a mu-GDP sequence.

    Noise at mu = 1: 3.52, 4.14, 5.39, 6.02 for W = 2**8, 2**10, 2**14, 2**16.
    """

    def std(self, n: int) -> float:
        """Exact sd of the noise in the n-th window sum (n < W: of all inputs so far)."""
        return self.difference_std(n, self.window)

    def workload(self, n: int) -> FloatArray:
        """Dense A (n, n): sums of the last W inputs. For tests."""
        ones = np.ones((n, n))
        return np.tril(ones) - np.tril(ones, -self.window)

    def decoder(self, n: int) -> FloatArray:
        """Dense B (n, n). For tests."""
        self._check(n)
        return self.scale * self.workload(n) @ self.buffers.inverse(n)

    def start(self, size: int, noise: NoiseStream) -> RunningNoise:
        """A fresh noise sequence for sums of vectors of ``size`` coordinates."""
        return TwinNoise(self, size, noise)


class TwinNoise(RunningNoise):
    """Running noise of a `LaggedTwin`. Curator only."""

    def __init__(self, mechanism: LaggedTwin, size: int, noise: NoiseStream) -> None:
        self.n = 0
        self._window, self._scale = mechanism.window, mechanism.scale
        blt = mechanism.buffers
        self._lead = Generator(blt.omega_hat, blt.a_hat, size, noise)
        self._lag = Generator(blt.omega_hat, blt.a_hat, size, noise)
        self._total = np.zeros(size)

    def advance(self) -> FloatArray:
        """The noise of the next window sum."""
        n = self._next(None)
        self._total += self._lead.emit(n, self._scale)
        if n > self._window:
            self._total -= self._lag.emit(n - self._window, self._scale)
        self.n = n
        return self._total

    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the sums."""
        return {"n": self.n, "lead": self._lead.state(), "lag": self._lag.state(), "total": self._total.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._lead.restore(state["lead"])
        self._lag.restore(state["lag"])
        self._total[...] = state["total"]
        self.n = int(state["n"])
