"""The running form of buffered linear Toeplitz noise."""

from __future__ import annotations

from typing import Any

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.types import FloatArray
from streampca.prefix_sums.base import RunningNoise
from streampca.privacy.randomness import NoiseStream

#: Coordinates worked on at a time, so that the buffers of long vectors stay in cache.
_PIECE = 4096


class Generator:
    """C**-1 z, step by step: as many decaying vectors as there are buffers.

    Step t draws z, emits ``y = z + sum_i mix_i r_i`` and lets each buffer
    decay, ``r_i <- r_i - rate_i r_i + z``.
    """

    def __init__(self, mix: FloatArray, rate: FloatArray, size: int, noise: NoiseStream) -> None:
        self._noise = noise
        self._mix = np.concatenate([[1.0], mix])
        self._rate = rate[:, None].copy()
        # Row 0 is the fresh draw, so that one contraction forms y.
        self._rows = np.zeros((rate.size + 1, size))
        self._decay = np.empty((rate.size, min(size, _PIECE)))
        self._step = np.empty(size)

    def emit(self, n: int, scale: float) -> FloatArray:
        """``scale`` times y of step n, whose draw has index n. Valid until the next call."""
        self._rows[0] = self._noise.normal(n, self._step.size)
        for start in range(0, self._step.size, _PIECE):
            piece = slice(start, start + _PIECE)
            rows = self._rows[:, piece]
            r, decay, step = rows[1:], self._decay[:, : rows.shape[1]], self._step[piece]
            # einsum's own loops, not BLAS: the bits do not depend on how threads split the vector.
            np.einsum("i,ij->j", self._mix, rows, out=step)
            step *= scale
            np.multiply(r, self._rate, out=decay)
            r -= decay
            r += rows[0]
        return self._step

    def clear(self) -> None:
        """Empty the buffers: a new, independent sequence starts."""
        self._rows[1:] = 0.0

    def state(self) -> FloatArray:
        """A copy of the buffers. As secret as the sums."""
        return self._rows[1:].copy()

    def restore(self, buffers: FloatArray) -> None:
        """Continue from `state`."""
        buffers = np.asarray(buffers)
        if buffers.shape != self._rows[1:].shape:
            raise BadParameter(
                f"the state holds buffers of shape {buffers.shape}, this mechanism has {self._rows[1:].shape}; "
                "restore with the parameters it was saved with"
            )
        self._rows[1:] = buffers


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
        self._total += self._generator.emit(n, self._scale(n))

    def _scale(self, n: int) -> float:
        """What multiplies step n."""
        raise NotImplementedError

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
