"""Frequent Directions: a sketch of a Gram matrix in O(l d) memory, with a deterministic bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from streampca.linalg.centering import CONSTANT
from streampca.linalg.eigen import top_sum
from streampca.linalg.memory import Rows
from streampca.linalg.types import FloatArray
from streampca.state import State


@dataclass(eq=False, repr=False)
class FrequentDirections(State):
    """A sketch B of rows with Gram matrix G: ``B^T B <= G <= B^T B + shrunk I``. An immutable value.

    Rows are buffered until there are 2 l of them. Then the l leading right singular vectors are kept, with squared
    singular values less the (l + 1)-th, which is added to `shrunk`. Up to rounding

    - the top k eigenvalues of G sum to at least ``top_sum(k)`` and to at most ``top_sum(k) + slack(k)``;
    - a k-dimensional subspace captures at least ``captured(basis)`` of G, and at most ``slack(k)`` more.

    With ``sums``, rows end with the constant of `linalg.centering`, and all this holds about their mean, for ``G - s
    s^T / n`` and ``B^T B - s s^T / n``: their difference is that of G and ``B^T B``. Sum s and number n of the rows are
    exact. The sketch shrinks after fixed numbers of rows, so its bits do not depend on the sizes of blocks.

    Liberty, KDD 2013; Ghashami, Liberty, Phillips and Woodruff, SIAM J. Comput. 45(5), 2016.
    """

    kept = ("rows", "size", "shrunk", "energy", "sums")

    rows: Rows  # at most 2 l - 1 between two calls
    size: int  # l
    shrunk: float = 0.0
    energy: float = 0.0  # trace of G
    sums: FloatArray | None = None  # of the rows with their constants

    def add(self, rows: FloatArray) -> FrequentDirections:
        """Return the sketch with rows, (n, d), added; (n, d + 1) with ``sums``."""
        held, shrunk, energy, sums, start = self.rows, self.shrunk, self.energy, self.sums, 0
        if sums is not None:
            sums, rows = sums + rows.sum(axis=0), rows[:, :-1]  # exact in any order, on the lattice of rows
        for square in np.vecdot(rows, rows).tolist():  # one by one: block sizes cannot change a bit of the sum
            energy += square
        while start < len(rows):
            stop = min(len(rows), start + 2 * self.size - held.count)
            held, start = held.append(rows[start:stop]), stop
            if held.count == 2 * self.size:
                # Keep the l leading directions, with eigenvalues decreased by the (l + 1)-th.
                full = held.array
                # The (2 l, 2 l) products have the squares of the singular values, and d may be much larger than l.
                values, vectors = eigh(full @ full.T, driver="evd", overwrite_a=True, check_finite=False)
                lost = max(0.0, float(values[-self.size - 1]))
                kept = values[-self.size :]
                factors = np.sqrt(np.maximum(kept - lost, 0.0) / np.maximum(kept, np.finfo(np.float64).tiny))
                held = Rows(held.n_columns, (vectors[:, -self.size :] * factors).T @ full)
                shrunk += lost
        return FrequentDirections(held, self.size, shrunk, energy, sums)

    def top_sum(self, k: int) -> float:
        held, count, mean = self.rows.array, *self.mean
        if not count:
            return top_sum(held @ held.T, k) if len(held) > k else float(np.vdot(held, held))
        # B^T B - s s^T / n has the nonzero eigenvalues of root J root, with root^2 the products of the rows of B and of
        # s / sqrt(n), and J their signs.
        longer = np.vstack([held, math.sqrt(count) * mean])
        values, vectors = eigh(longer @ longer.T, driver="evd", check_finite=False)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        found = np.linalg.eigvalsh((root * np.append(np.ones(len(held)), -1.0)) @ root)
        return float(np.maximum(found[-k:], 0.0).sum())

    @property
    def mean(self) -> tuple[float, FloatArray]:
        """Number of rows that are present, and their mean; 0 without ``sums``, or without rows."""
        if self.sums is None or self.sums[-1] == 0.0:
            return 0.0, np.zeros(self.rows.n_columns)
        count = round(float(self.sums[-1]) / CONSTANT)
        return float(count), self.sums[:-1] / count

    def slack(self, k: int) -> float:
        lost = self.energy - float(np.vdot(self.rows.array, self.rows.array))  # less the trace of B^T B
        return max(0.0, min(k * self.shrunk, lost)) if self.shrunk else 0.0

    def captured(self, basis: FloatArray) -> float:
        products, (count, mean) = self.rows.array @ basis, self.mean
        of_mean = mean @ basis
        return max(0.0, float(np.vdot(products, products)) - count * float(of_mean @ of_mean))
