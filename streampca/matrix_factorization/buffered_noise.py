"""The running form of buffered linear Toeplitz noise."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.linalg import toeplitz

from streampca import _native
from streampca.linalg.lattice import sum_of_rows
from streampca.linalg.lazy import cached_property
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import InChunks, MatrixFactorization, RunningNoise, next_sum
from streampca.matrix_factorization.buffers import INFLATION, Buffers
from streampca.privacy.outlet import NoiseSource
from streampca.privacy.randomness import Draws


@dataclass(frozen=True, eq=False)
class Recurrence:
    """The recurrence of a BLT.

    With a fresh vector z, step n computes ``y = z + sum_i mix_i r_i``, lets each buffer decay,
    ``r_i <- r_i - rate_i r_i + z``, and adds to the noise, ``total <- keep total + scale(n) y``.
    """

    mix: FloatArray  # (count,) weights of the buffers
    rate: FloatArray  # (count,) decay rates of the buffers
    scale: float | InChunks  # factor of a step, constant or by n
    keep: float = 1.0  # factor of the noise before
    horizon: int | None = None  # largest number of steps
    restart_after: int | None = None  # period, in steps, at which the buffers are emptied

    def scale_at(self, n: int) -> float:
        """Return the factor of step n."""
        return self.scale if isinstance(self.scale, float) else self.scale.at(n)

    def step(
        self, fresh: FloatArray, buffers: FloatArray, total: FloatArray, scale: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return the buffers and the noise after a step, in fresh arrays."""
        # The compiled kernel and NumPy have one order of operations with one rounding each, hence the same bits.
        kernels = _native.compiled
        if kernels is not None:
            after, out = np.empty_like(buffers), np.empty_like(total)
            kernels.buffered_step(fresh, buffers, total, self.mix, self.rate, scale, self.keep, after, out)
            return after, out
        steps = self.mix[:, None] * buffers
        step = sum_of_rows(steps) + fresh
        step *= scale
        out = step + (total if self.keep == 1.0 else total * self.keep)
        np.multiply(self.rate[:, None], buffers, out=steps)
        np.subtract(buffers, steps, out=steps)
        steps += fresh
        return steps, out


@dataclass(eq=False, repr=False)  # the noise is as secret as the rows
class BufferedNoise(RunningNoise):
    """Noise of a BLT after n steps of the recurrence ``rule``; ``buffers`` is a (count, size) array."""

    __slots__ = ("buffers", "n", "noise", "rule")
    kept = ("n", "buffers", "noise")

    rule: Recurrence
    n: int
    buffers: FloatArray
    noise: FloatArray

    def advance(self, draws: Draws) -> BufferedNoise:
        rule, buffers = self.rule, self.buffers
        n = next_sum(self.n, rule.horizon)
        if rule.restart_after is not None and (n - 1) % rule.restart_after == 0:
            buffers = np.zeros(buffers.shape)
        fresh = draws.normal(self.noise.size)
        return BufferedNoise(rule, n, *rule.step(fresh, buffers, self.noise, rule.scale_at(n)))


class BufferedFactorization(MatrixFactorization):
    """A BLT: a Toeplitz strategy C whose noise one recurrence computes.

    With a constant scale of the steps, noise ``A C**-1 z scale`` is mu-GDP per input, also for inputs chosen adaptively
    (`streampca.matrix_factorization.base`), because no column of C has a larger norm than that in the scale.
    """

    @cached_property
    @abstractmethod
    def buffers(self) -> Buffers:
        """The fitted factorization."""

    @cached_property
    @abstractmethod
    def recurrence(self) -> Recurrence:
        """The recurrence of one step."""

    def _scale(self, column_square: float) -> float:
        """Return the factor of every step, for a bound on the squared norm of a column of C."""
        return self.sensitivity / self.mu * math.sqrt(column_square * INFLATION)

    def constants(self) -> tuple[object, ...]:
        rule = self.recurrence
        scale = rule.scale if isinstance(rule.scale, float) else None
        return tuple(rule.mix.tolist()), tuple(rule.rate.tolist()), rule.keep, scale, rule.restart_after

    def start(self, size: int, source: NoiseSource | None = None) -> RunningNoise:
        rule = self.recurrence
        return BufferedNoise(rule, 0, np.zeros((rule.mix.size, size)), np.zeros(size))

    def reconstruction(self, n: int) -> FloatArray:
        self._check(n)
        # B = A D C**-1, D the scales of the steps. Decay fades C**-1, a restart cuts it into blocks.
        rule, step = self.recurrence, np.arange(n)
        lag = step[:, None] - step
        inverse: FloatArray = toeplitz(self.buffers.inverse_coefficients(n), np.zeros(n)) * rule.keep ** np.maximum(
            lag, 0
        )
        if rule.restart_after is not None:
            block = step // rule.restart_after
            inverse *= block[:, None] == block
        scales = np.array([rule.scale_at(i) for i in range(1, n + 1)])
        steps: FloatArray = scales[:, None] * inverse
        return self.workload(n) @ steps
