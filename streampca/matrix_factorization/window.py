"""Noise for sums of an endless stream over the last W inputs, or with weights that decay."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.counts import check_count
from streampca.linalg.memory import Recent
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import LONGEST, MatrixFactorization, RunningNoise
from streampca.matrix_factorization.blt import BufferedFactorization, Recurrence
from streampca.matrix_factorization.buffers import INFLATION, fit_forgetting, fit_lagged
from streampca.privacy.outlet import NoiseSource
from streampca.privacy.randomness import NAME_BYTES, Draws

#: Bytes that name a vector in the ring: its number and its 16 bytes.
_ITEM = 8 + NAME_BYTES


@lru_cache(maxsize=4096)
def _lagged_square(window: int, lag: int) -> tuple[float, FloatArray, FloatArray]:
    """Return `Buffers.lagged_square`, and the weights and rates of what it loses with few steps before the lag."""
    buffers = fit_lagged(window)
    q = buffers.weights * -np.expm1(lag * buffers.log_theta_hat)
    rates = buffers.log_theta_hat[:, None] + buffers.log_theta_hat
    return float(buffers.lagged_square(lag)), (q[:, None] * q / buffers.gaps_hat).ravel(), rates.ravel()


@dataclass(frozen=True)
class StationaryBLT(BufferedFactorization):
    """Prefix sums of an endless stream whose differences have noise that does not grow with time.

    The noise of a prefix sum grows like sqrt(t). That of a difference of two prefix sums depends on their distance
    only (`lag_std`) and is smallest at distance ``window``. So every window is post-processing of this one sequence.

    *Guarantee.* Columns of C have norm at most sqrt(S(infinity)), so the noise
    ``sqrt(S(infinity)) A C**-1 z sensitivity / mu`` makes the endless sequence mu-GDP per input, also for inputs
    chosen adaptively.
    """

    window: int
    mu: float
    sensitivity: float = 1.0
    scale: float = field(init=False, repr=False, compare=False)
    limit_std: float = field(init=False, repr=False, compare=False)  # `lag_std` of a window

    horizon = None

    def __post_init__(self) -> None:
        check_count("window", self.window, most=LONGEST)
        buffers = fit_lagged(self.window)
        square = float(buffers.column_square(math.inf))
        self._complete(buffers, self.sensitivity / self.mu * math.sqrt(square * INFLATION))
        object.__setattr__(self, "limit_std", self.lag_std(self.window))

    def std(self, n: int) -> float:
        self._check(n)
        return self.scale * math.sqrt(float(self.buffers.row_square(n)))

    def lag_std(self, lag: int) -> float:
        """Largest standard deviation, over all times, of the noise in a difference of prefix sums ``lag`` apart."""
        return self.scale * math.sqrt(_lagged_square(self.window, lag)[0])

    def window_std(self, n: int, lag: int) -> float:
        """Exact standard deviation of the noise in (sum of the first n) - (sum of the first n - lag)."""
        self._check(n)
        if n < lag:
            return self.scale * math.sqrt(float(self.buffers.row_square(n)))
        # The limit of many steps before the lag, less what the exponentials lack at n - lag of them.
        limit, weights, rates = _lagged_square(self.window, lag)
        return self.scale * math.sqrt(limit - float((weights * np.exp((n - lag) * rates)).sum()))


@dataclass(frozen=True)
class WindowDifference(StationaryBLT):
    """Sums over exactly the last ``window`` inputs, in memory of 24 bytes an input.

    Two recurrences use the same vectors, the second with a delay of W steps: the noise gains
    sqrt(S(infinity)) (y_t - y_{t-W}) at every step. The names of the last W vectors are kept, and a vector is drawn a
    second time for the second recurrence.

    *Guarantee.* A sum is a difference of the prefix sums of `StationaryBLT`, so post-processing of a mu-GDP sequence.
    """

    def std(self, n: int) -> float:
        return self.window_std(n, self.window)

    def difference(self, a: int, b: int) -> FloatArray:
        return MatrixFactorization.difference(self, a, b)  # of sums over windows, not of the prefix sums

    def workload(self, n: int) -> FloatArray:
        ones = np.ones((n, n))
        return np.tril(ones) - np.tril(ones, -self.window)

    def start(self, size: int, source: NoiseSource | None = None) -> TwinNoise:
        if source is None:
            raise BadParameterError("source", None, "the keys, because WindowDifference draws vectors twice")
        zeros = np.zeros((self.recurrence.mix.size, size))
        names = Recent(self.window, (_ITEM,), np.uint8)
        return TwinNoise(self.recurrence, source, 0, zeros, zeros, np.zeros(size), names)


@dataclass(frozen=True)
class ForgettingBLT(BufferedFactorization):
    """Sums of an endless stream that decay by gamma = 1 - 1/memory a step, so that weights add up to ``memory``.

    *Guarantee.* With c_k the coefficients of a BLT, C_gamma has coefficients gamma**k c_k, its inverse gamma**k c^_k,
    and A_gamma C_gamma**-1 gamma**k b_k. Columns of C_gamma have squared norm at most
    S_gamma = sum_k gamma**2k c_k**2, so ``sqrt(S_gamma) A_gamma C_gamma**-1 z sensitivity / mu`` is mu-GDP per input
    over the endless sequence, also for inputs chosen adaptively.
    """

    memory: int
    mu: float
    sensitivity: float = 1.0

    horizon = None

    decay: float = field(init=False, repr=False, compare=False)  # factor of a sum in each step, gamma
    scale: float = field(init=False, repr=False, compare=False)
    limit_std: float = field(init=False, repr=False, compare=False)  # limit of `std` for large n, its largest value
    _fade: float = field(init=False, repr=False, compare=False)  # 1 - gamma**2, without cancellation

    def __post_init__(self) -> None:
        check_count("memory", self.memory, most=LONGEST)
        buffers, fade = fit_forgetting(self.memory), (2.0 - 1.0 / self.memory) / self.memory
        scale = self.sensitivity / self.mu * math.sqrt(buffers.faded_column_square(fade) * INFLATION)
        self._complete(buffers, scale, lost=1.0 / self.memory)
        limit_std = scale * math.sqrt(buffers.faded_row_square(fade))
        vars(self).update(decay=self.recurrence.keep, limit_std=limit_std, _fade=fade)

    def std(self, n: int) -> float:
        self._check(n)
        if n * self._fade > 40.0:
            return self.limit_std  # equal in float64
        return self.scale * math.sqrt(self.buffers.faded_row_square(self._fade, n))

    def workload(self, n: int) -> FloatArray:
        lag = np.arange(n)[:, None] - np.arange(n)
        return np.where(lag >= 0, self.decay ** np.maximum(lag, 0), 0.0)


@dataclass(eq=False, repr=False, slots=True)  # the noise is as secret as the rows
class TwinNoise(RunningNoise):
    """Noise of a `WindowDifference` after n steps of the recurrence ``rule``."""

    kept = ("n", "lead", "lag", "noise", "names")

    rule: Recurrence
    source: NoiseSource
    n: int
    lead: FloatArray  # buffers after n steps, (count, size)
    lag: FloatArray  # buffers after n - W steps
    noise: FloatArray
    names: Recent  # numbers and names of the last W vectors

    def advance(self, draws: Draws) -> TwinNoise:
        rule, lag, n = self.rule, self.lag, self.n + 1
        scale = rule.scale_at(n)
        lead, noise = rule.step(draws.normal(self.noise.size), self.lead, self.noise, scale)
        if n > self.names.length:
            item = self.names.item(n - self.names.length).tobytes()
            # The vector of step n - W, a second time: the noise of the input that leaves is removed exactly.
            gone = self.source.draws(int.from_bytes(item[:8], "little"), item[8:])
            lag, noise = rule.step(gone.normal(noise.size), lag, noise, -scale)
        item = draws.n.to_bytes(8, "little") + draws.name
        names = self.names.extend(np.frombuffer(item, dtype=np.uint8)[None])
        return TwinNoise(rule, self.source, n, lead, lag, noise, names)
