"""Exact packed sums as two words, units of 1 and of 2**-40: what `GramAccumulator.words` returns."""

from __future__ import annotations

import numpy as np

from streampca.linalg.lattice import grid_bits
from streampca.linalg.svec import entry_weights, mirror
from streampca.linalg.types import FloatArray, IntArray

UNIT_BITS = 40
UNIT = 2.0**UNIT_BITS
LOW = (1 << UNIT_BITS) - 1

Words = tuple[IntArray, IntArray]


def noisy(words: Words, noise: FloatArray, n_features: int, std: float) -> Words:
    """An exact sum plus svec noise of the sd ``std``, in integers, rounded to the grid of `lattice.coarsen`.

    Post-processing of the sum plus noise.
    """
    high, low = words
    entries = noise * entry_weights(n_features)
    whole = np.floor(entries)
    low = low + np.rint((entries - whole) * UNIT).astype(np.int64)
    dropped = min(grid_bits(std) + UNIT_BITS, UNIT_BITS)
    low = (low + (1 << dropped >> 1)) >> dropped << dropped
    return high + whole.astype(np.int64) + (low >> UNIT_BITS), low & LOW


def difference(later: Words, earlier: Words) -> FloatArray:
    """Packed entries of later - earlier. Exact before the last rounding, however large both are."""
    return (later[0] - earlier[0]) + (later[1] - earlier[1]) * (1.0 / UNIT)


def zero(size: int) -> Words:
    """The empty sum."""
    return np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)


def copy(words: Words) -> Words:
    """The same sum in arrays of its own."""
    return words[0].copy(), words[1].copy()


def is_plausible(words: Words, count: int, n_features: int) -> bool:
    """False if a sum cannot be that of so many rows of the unit ball: its trace or a diagonal entry tells.

    True proves nothing: whether each row was admitted cannot be told from their sum.
    """
    high, low = words
    at = mirror(n_features).diagonal()
    trace = (int(high[at].sum()) << UNIT_BITS) + int(low[at].sum())
    return bool(trace <= count << UNIT_BITS and high[at].min() >= 0 and low.min() >= 0 and low.max() <= LOW)
