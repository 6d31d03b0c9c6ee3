"""The window by forgetting: every leaf, what was there before fades a little."""

from __future__ import annotations

from typing import Any

import numpy as np

from streampca.linalg.lattice import GramAccumulator, coarsen
from streampca.linalg.svec import entry_weights, svec_size
from streampca.linalg.types import FloatArray, IntArray
from streampca.linalg.words import LOW, UNIT, UNIT_BITS
from streampca.prefix_sums.forgetting import ForgettingBLT
from streampca.privacy.randomness import NoiseStream
from streampca.processors.window_engine import WindowEngine, WindowView

#: The longest memory whose sums fit the words, in leaves and in rows.
LONGEST = 2**22


#: What rounding may add to the sensitivity. The fading sum is kept in units of 2**-80 and rounded
#: down at each leaf, so neighbouring streams may drift apart by one unit more an entry and leaf: by
#: n_features * 2**-40 over 2**40 leaves, which this covers a thousandfold.
ROUNDING = 2.0**-20


class ForgettingEngine(WindowEngine):
    """The sum fades by 1 - 1/memory at every leaf: two matrices of memory, the least noise.

    Parameters
    ----------
    mechanism : noise of the fading sums, one leaf an input.
    n_features : side of the matrices.
    noise : where the randomness comes from.

    Notes
    -----
    The fading sum is held in integers (units of 2**-40 and of 2**-80), so it has the same bits
    whatever the block sizes, and its rounding is bounded (`ROUNDING`).
    """

    def __init__(self, mechanism: ForgettingBLT, n_features: int, noise: NoiseStream) -> None:
        self._mechanism, self._n_features = mechanism, n_features
        self._leaf = GramAccumulator(n_features)
        self._noise = mechanism.start(svec_size(n_features), noise)
        self._high: IntArray = np.zeros(svec_size(n_features), dtype=np.int64)
        self._low: IntArray = np.zeros(svec_size(n_features), dtype=np.int64)

    def add(self, rows: FloatArray) -> None:
        """Take admitted rows, all of one leaf."""
        self._leaf.add(rows)

    def look(self, t: int) -> WindowView:
        """Close the leaf that ends at row t; the private fading Gram matrix."""
        self._fade()
        high, low = self._leaf.words()
        self._high += (high << UNIT_BITS) + low
        self._leaf = GramAccumulator(self._n_features)
        entries = self._noise.advance() * entry_weights(self._n_features)
        whole = np.floor(entries)
        # Sum and noise are rounded to 2**-40 together, once: post-processing of exact sum plus noise.
        fraction = np.rint((entries - whole) * UNIT + self._low * (1.0 / UNIT)).astype(np.int64)
        packed = (whole + (self._high >> UNIT_BITS)) + ((self._high & LOW) + fraction) * (1.0 / UNIT)
        n = self._noise.n
        decay = self._mechanism.decay
        details = {"window": [1, t], "decay_per_release": decay}
        std = self._mechanism.std(n)
        return WindowView(coarsen(packed, std), std, 1, details)

    def _fade(self) -> None:
        """Subtract a memory-th of the sum, rounded down to a unit of 2**-80."""
        memory = self._mechanism.memory
        share, rest = np.divmod(self._high, memory)
        low_share = ((rest << UNIT_BITS) + self._low) // memory
        self._high -= share
        self._low -= low_share
        self._high += self._low >> UNIT_BITS
        self._low &= LOW

    @property
    def nbytes(self) -> int:
        """Bytes held for the sums."""
        return self._high.nbytes + self._low.nbytes + 24 * svec_size(self._n_features)

    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the rows."""
        return {
            "high": self._high.copy(),
            "low": self._low.copy(),
            "leaf": self._leaf.state(),
            "noise": self._noise.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self._high[...] = state["high"]
        self._low[...] = state["low"]
        self._leaf.restore(state["leaf"])
        self._noise.restore(state["noise"])
