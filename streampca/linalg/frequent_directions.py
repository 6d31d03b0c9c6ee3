"""Frequent Directions: a sketch of a Gram matrix in O(l d) memory, with a deterministic bound."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from streampca.linalg.eigen import top_sum
from streampca.linalg.memory import Rows
from streampca.linalg.types import FloatArray
from streampca.state import State


class FrequentDirections(State):
    """A sketch B of rows with Gram matrix G: ``B^T B <= G <= B^T B + shrunk I``. An immutable value.

    Rows are held as they are until there are 2 l of them. Then the l leading right singular vectors are kept, with
    squared singular values less the (l + 1)-th, which is what `shrunk` grows by. Up to rounding

    - the top k eigenvalues of G sum to at least ``top_sum(k)`` and to at most ``top_sum(k) + slack(k)``;
    - a k-dimensional subspace captures at least ``captured(basis)`` of G, and at most ``slack(k)`` more.

    Parameters
    ----------
    rows : rows of the sketch, at most 2 l - 1 between two calls.
    size : l.
    shrunk : sum of all that eigenvalues were lessened by.
    energy : trace of G.

    Notes
    -----
    It shrinks after fixed numbers of rows, so its bits do not depend on the sizes of blocks. O(l d) a row.

    Liberty, KDD 2013; Ghashami, Liberty, Phillips and Woodruff, SIAM J. Comput. 45(5), 2016.
    """

    __slots__ = ("energy", "rows", "shrunk", "size")
    kept = ("rows", "size", "shrunk", "energy")

    def __init__(self, rows: Rows, size: int, shrunk: float = 0.0, energy: float = 0.0) -> None:
        self.rows, self.size, self.shrunk, self.energy = rows, size, shrunk, energy

    @classmethod
    def first(cls, n_features: int, size: int) -> FrequentDirections:
        """The sketch of no rows."""
        return cls(Rows(n_features), size)

    def emptied(self) -> FrequentDirections:
        """The sketch of no rows."""
        return FrequentDirections.first(self.rows.array.shape[1], self.size)

    def add(self, rows: FloatArray) -> FrequentDirections:
        """The sketch with rows, (n, d), added."""
        held, shrunk, energy, start = self.rows, self.shrunk, self.energy, 0
        for square in np.vecdot(rows, rows).tolist():  # one by one: block sizes cannot change a bit of the sum
            energy += square
        while start < len(rows):
            stop = min(len(rows), start + 2 * self.size - held.count)
            held, start = held.append(rows[start:stop]), stop
            if held.count == 2 * self.size:
                held, lost = _shrunk(held.array, self.size)
                shrunk += lost
        return FrequentDirections(held, self.size, shrunk, energy)

    def top_sum(self, k: int) -> float:
        """Sum of the top k eigenvalues of ``B^T B``."""
        held = self.rows.array
        return top_sum(held @ held.T, k) if len(held) > k else self.energy_kept

    @property
    def energy_kept(self) -> float:
        """Trace of ``B^T B``."""
        return float(np.vdot(self.rows.array, self.rows.array))

    def slack(self, k: int) -> float:
        """By how much k dimensions may capture more of G than of the sketch."""
        return max(0.0, min(k * self.shrunk, self.energy - self.energy_kept)) if self.shrunk else 0.0

    def captured(self, basis: FloatArray) -> float:
        """What a subspace captures of the sketch, for an orthonormal basis, (d, k)."""
        products = self.rows.array @ basis
        return float(np.vdot(products, products))


def _shrunk(held: FloatArray, size: int) -> tuple[Rows, float]:
    """The leading directions of a full sketch, and by how much their eigenvalues were lessened."""
    values, vectors = eigh(held @ held.T, driver="evd", overwrite_a=True, check_finite=False)
    lost = max(0.0, float(values[-size - 1]))
    kept = values[-size:]
    factors = np.sqrt(np.maximum(kept - lost, 0.0) / np.maximum(kept, np.finfo(np.float64).tiny))
    return Rows.of((vectors[:, -size:] * factors).T @ held), lost
