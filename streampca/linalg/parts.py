"""Packed sums in two parts, whole units and the rest: a difference of two of them is rounded once."""

from __future__ import annotations

import numpy as np

from streampca.linalg.lattice import GramSum, grid_bits
from streampca.linalg.svec import entry_weights
from streampca.linalg.types import FloatArray
from streampca.linalg.words import UNIT


class GramInParts:
    """An exact Gram matrix whose noisy form stays in two parts, as `GramSum.parts` are.

    Parameters
    ----------
    gram : the exact matrix.
    """

    __slots__ = ("gram",)

    def __init__(self, gram: GramSum) -> None:
        self.gram = gram

    @property
    def hidden(self) -> tuple[FloatArray]:
        """What an outlet hides."""
        return self.gram.hidden

    def noisy(self, noise: FloatArray, std: float) -> FloatArray:
        """The sum plus svec noise of this sd, (2, d (d + 1) / 2): what may be released.

        The noise is rounded to 2**-40 and added exactly; the rest is rounded to the grid of
        `lattice.coarsen`, but to no more than whole units. Post-processing of the sum plus noise.
        """
        exact, step = self.gram.parts, 2.0 ** min(grid_bits(std), 0)
        entries = noise * entry_weights(self.gram.n_features)
        whole = np.floor(entries)
        rest = np.rint((entries - whole) * UNIT) * (1.0 / UNIT) + exact[1]
        rest = np.rint(rest * (1.0 / step)) * step
        carried = np.floor(rest)
        return np.array([exact[0] + whole + carried, rest - carried])


def difference(later: FloatArray, earlier: FloatArray) -> FloatArray:
    """Packed entries of later - earlier. Exact before the one rounding, however large both are."""
    entries: FloatArray = (later[0] - earlier[0]) + (later[1] - earlier[1])
    return entries
