"""Noise for copies of a running stream: old draws stay as they were, new ones are the copy's own.

Two copies of a stream that went on with one key would put the same noise on
different rows, and the difference of their releases would be the rows
themselves. A copy that redrew *past* noise would break the correlation that the
mechanism's proof rests on. So a copy keeps the key for all draws that are in
releases already, and has a fresh key for those to come.

*What two copies cost.* Both releases up to the fork and both continuations are
one Gaussian mechanism. In it a row before the fork shifts the noise by the column of the
encoder once up to the fork and twice after it, which is at most sqrt(2) of the
column's norm: sqrt(2) mu, the price of running twice. A row that only one copy
sees costs mu.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from streampca.linalg.types import FloatArray
from streampca.prefix_sums.buffered_noise import _CHUNK
from streampca.privacy.randomness import NoiseStream, Randomness

#: (first index, key): the key of all draws from that index to the next part's. Secret.
Parts = tuple[tuple[int, bytes], ...]


class ContinuedRandomness(Randomness):
    """Randomness whose key changes at given indices of draws.

    Parameters
    ----------
    parts : (first index, key), ascending, the first at index 0.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts[-1][1])
        self.parts = parts

    def stream(self, *label: str | int) -> NoiseStream:
        """The noise stream of a label."""
        if len(self.parts) == 1:
            return super().stream(*label)
        return _ContinuedNoise([(first, Randomness(key).stream(*label)) for first, key in self.parts])


def parts_of(randomness: Randomness) -> Parts:
    """The keys of a running stream. Secret."""
    return randomness.parts if isinstance(randomness, ContinuedRandomness) else ((0, randomness._key),)


def forked(parts: Parts, index: int) -> ContinuedRandomness:
    """The randomness of a copy: the same draws before ``index``, fresh ones from there on."""
    kept = [part for part in parts if part[0] < index]
    # Draws of the chunk in progress are made again from their keys; older ones are in the state of the noise.
    while len(kept) > 1 and kept[1][0] <= index - _CHUNK:
        kept.pop(0)
    if kept:
        kept[0] = (0, kept[0][1])
    return ContinuedRandomness((*kept, (index if kept else 0, Randomness()._key)))


class _ContinuedNoise(NoiseStream):
    """A noise stream made of several, by index."""

    def __init__(self, parts: Sequence[tuple[int, NoiseStream]]) -> None:
        self._parts = parts
        self._last = parts[-1][1]

    def _of(self, index: int) -> NoiseStream:
        self._last = next(noise for first, noise in reversed(self._parts) if index >= first)
        return self._last

    def words(self, index: int, count: int) -> npt.NDArray[np.uint64]:
        """Uniform 64-bit words."""
        return self._of(index).words(index, count)

    def uniform(self, index: int, count: int) -> FloatArray:
        """Uniforms of (0, 1)."""
        return self._of(index).uniform(index, count)

    def normal(self, index: int, count: int, out: FloatArray | None = None) -> FloatArray:
        """Standard normals."""
        return self._of(index).normal(index, count, out)

    def laplace(self, index: int, count: int) -> FloatArray:
        """Laplace variables of scale 1."""
        return self._of(index).laplace(index, count)

    def permutation(self, index: int, count: int) -> npt.NDArray[np.int64]:
        """A uniform permutation."""
        return self._of(index).permutation(index, count)

    def word(self) -> int:
        """The next word after those of the latest draw."""
        return self._last.word()
