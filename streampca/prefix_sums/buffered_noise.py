"""The running form of buffered linear Toeplitz noise."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.fast import compiled
from streampca.linalg.memory import aligned_zeros
from streampca.linalg.types import FloatArray
from streampca.prefix_sums.base import RunningNoise
from streampca.privacy.randomness import NoiseStream

#: Steps made at once, while vectors are shorter than `_LONG`: the buffers are then read once for all of them.
_CHUNK = 8
_LONG = 2**17


class Generator:
    """C**-1 z, step by step: as many decaying vectors as there are buffers.

    Step t draws z, emits ``y = z + sum_i mix_i r_i`` and lets each buffer
    decay, ``r_i <- r_i - rate_i r_i + z``. A few steps are made at once, as one
    small matrix times the stack of their draws and the buffers: noise does not
    depend on rows, so it may be made ahead of them.
    """

    def __init__(self, mix: FloatArray, rate: FloatArray, size: int, noise: NoiseStream) -> None:
        self._noise = noise
        self._ahead = _CHUNK if size < _LONG else 1
        self._matrix = _several_steps(mix, rate, self._ahead)
        # Draws of a chunk, then the buffers as they are before it.
        self._stack = aligned_zeros(self._ahead + rate.size, size)
        # What the chunk emits, then the change of the buffers over it.
        self._made = aligned_zeros(self._ahead + rate.size, size)
        self._first = 0  # step at which the chunk begins; none yet
        self._step = np.empty(size)
        self._compiled = compiled()

    def emit(self, n: int, scale: float) -> FloatArray:
        """``scale`` times y of step n, whose draw has index n. Valid until the next call.

        Steps come one after the other, from any first one.
        """
        np.multiply(self._due(n), scale, out=self._step)
        return self._step

    def add_to(self, total: FloatArray, n: int, scale: float) -> None:
        """``total += emit(n, scale)``."""
        if self._compiled is None:
            total += self.emit(n, scale)
        else:
            self._compiled.add_scaled(self._due(n), scale, total)

    def _due(self, n: int) -> FloatArray:
        """What step n emits."""
        if not self._first:
            self._make(n)
        elif n == self._first + self._ahead:
            self._stack[self._ahead :] += self._made[self._ahead :]
            self._make(n)
        made: FloatArray = self._made[n - self._first]
        return made

    def _make(self, first: int) -> None:
        for i in range(self._ahead):
            self._noise.normal(first + i, self._step.size, self._stack[i])
        np.matmul(self._matrix, self._stack, out=self._made)
        self._first = first

    def clear(self) -> None:
        """Empty the buffers: a new, independent sequence starts."""
        self._stack[self._ahead :] = 0.0
        self._first = 0

    def state(self) -> dict[str, Any]:
        """A copy of the buffers, and the step they are at. As secret as the sums."""
        return {"first": self._first, "buffers": self._stack[self._ahead :].copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        buffers = np.asarray(state["buffers"])
        if buffers.shape != self._stack[self._ahead :].shape:
            raise BadParameter(
                f"the state holds buffers of shape {buffers.shape}, this mechanism has "
                f"{self._stack[self._ahead :].shape}; restore with the parameters it was saved with"
            )
        self._stack[self._ahead :] = buffers
        self._first = 0
        if state["first"]:
            self._make(int(state["first"]))


def _several_steps(mix: FloatArray, rate: FloatArray, steps: int) -> FloatArray:
    """The matrix from (draws, buffers before) to (what is emitted, change of the buffers)."""
    kept = np.stack([_kept(rate, k) for k in range(steps)])
    matrix = np.zeros((steps + rate.size, steps + rate.size))
    for i in range(steps):
        matrix[i, i] = 1.0
        for j in range(i):
            matrix[i, j] = mix @ kept[i - 1 - j]
        matrix[i, steps:] = mix * kept[i]
        matrix[steps:, i] = kept[steps - 1 - i]
    # As a change and not as a factor: slow buffers keep the digits of their rates.
    matrix[steps:, steps:] = np.diag(-_lost(rate, steps))
    return matrix


def _kept(rate: FloatArray, steps: int) -> FloatArray:
    """(1 - rate)**steps."""
    return 1.0 - _lost(rate, steps)


def _lost(rate: FloatArray, steps: int) -> FloatArray:
    """1 - (1 - rate)**steps, with all its digits for small rates."""
    lost: FloatArray = np.zeros_like(rate)
    for _ in range(steps):
        lost += rate - rate * lost
    return lost


class BufferedNoise(RunningNoise):
    """Running noise of a BLT: a generator and the sum of what it emits. Curator only."""

    #: Sums that may be noised; None if endless.
    limit: int | None = None

    def __init__(self, mix: FloatArray, rate: FloatArray, size: int, noise: NoiseStream) -> None:
        self.n = 0
        self._generator = Generator(mix, rate, size, noise)
        self._total = np.zeros(size)

    def advance(self) -> FloatArray:
        """The noise of the next sum."""
        n = self._next(self.limit)
        self._add(n)
        self.n = n
        return self._total

    def _add(self, n: int) -> None:
        self._generator.add_to(self._total, n, self._scale(n))

    @abstractmethod
    def _scale(self, n: int) -> float:
        """What multiplies step n."""

    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the sums."""
        return {"n": self.n, "buffers": self._generator.state(), "total": self._total.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._generator.restore(state["buffers"])
        self._total[...] = state["total"]
        self.n = int(state["n"])


class ConstantNoise(BufferedNoise):
    """Running noise of a BLT whose steps all have one scale."""

    def __init__(self, mix: FloatArray, rate: FloatArray, scale: float, size: int, noise: NoiseStream) -> None:
        super().__init__(mix, rate, size, noise)
        self._constant = scale

    def _scale(self, n: int) -> float:
        return self._constant
