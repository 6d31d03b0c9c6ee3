"""Exponentially decaying sums of Gram matrices, exact in integers."""

from __future__ import annotations

import numpy as np

from streampca.linalg.lattice import LOW, UNIT, UNIT_BITS, GramSum, coarsen
from streampca.linalg.svec import entry_weights, svec_size
from streampca.linalg.types import FloatArray, IntArray
from streampca.state import State

#: Largest memory, in leaves and in rows, whose sums fit 64-bit integers.
LONGEST = 2**22

#: Bound on what rounding adds to the sensitivity. The fading sum is kept in units of 2**-80 and rounded down at each
#: leaf, so neighboring streams may drift apart by one unit more an entry and leaf: by n_features * 2**-40 over 2**40
#: leaves, which this covers a thousandfold.
ROUNDING = 2.0**-20


class FadingSum(State):
    """A sum that decays by a fixed factor at each addition: an immutable value. Curator only."""

    # ``parts`` are (2, d (d + 1) / 2) integers, not to be written to: of each packed entry, units of 2**-40 and units
    # of 2**-80 in [0, 2**40). Integers give the same bits for every block size, and the rounding is bounded
    # (`ROUNDING`).

    __slots__ = ("hidden", "n_features", "parts")
    fixed = ("n_features",)
    kept = ("parts",)

    def __init__(self, n_features: int, parts: IntArray | None = None, *, further: int = 0) -> None:
        self.n_features = n_features
        self.parts = np.zeros((2, svec_size(n_features) + further), dtype=np.int64) if parts is None else parts
        self.hidden = (self.parts,)

    def after(self, leaf: GramSum, memory: int) -> FadingSum:
        """Return the sum less a ``memory``-th of it, rounded down to a unit of 2**-80, plus the matrix of a leaf."""
        high, low = self.parts
        # Both parts lose a memory-th. The remainder of the high part goes into the low one, so one rounding remains.
        share, rest = np.divmod(high, memory)
        low = low - ((rest << UNIT_BITS) + low) // memory
        units, rests = leaf.high_low()
        high = high - share + (low >> UNIT_BITS) + (units << UNIT_BITS) + rests
        return FadingSum(self.n_features, np.stack([high, low & LOW]))

    def noisy(self, noise: FloatArray, std: float) -> FloatArray:
        # Sum and noise are rounded to 2**-40 together, once: post-processing of exact sum plus noise.
        high, low = self.parts
        entries = noise * entry_weights(self.n_features, self.parts.shape[1] - svec_size(self.n_features))
        whole = np.floor(entries)
        fraction = np.rint((entries - whole) * UNIT + low * (1.0 / UNIT)).astype(np.int64)
        return coarsen((whole + (high >> UNIT_BITS)) + ((high & LOW) + fraction) * (1.0 / UNIT), std)
