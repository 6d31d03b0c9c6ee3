"""Sliding windows as printed (Upadhyay and Upadhyay, ICML 2021), none of them private: attacked in the tests beside.

Algorithms 2 and 3 (random projection), Algorithms 7 and 8 (Wishart noise).
"""

import math
from collections.abc import Callable

import numpy as np
from printed_mechanisms import wishart

from streampca.linalg.types import FloatArray

#: Loewner comparisons allow for rounding by this much.
TOLERANCE = 1e-9


def loewner_below(a: FloatArray, b: FloatArray) -> bool:
    """True if a <= b in the Loewner order, up to rounding."""
    return bool(np.linalg.eigvalsh(b - a + TOLERANCE * np.eye(len(a)))[0] > 0.0)


def delete_close(
    starts: list[int], items: list[FloatArray], gram: Callable[[FloatArray], FloatArray], eta: float
) -> None:
    """Algorithms 1 and 6 as printed: for each i, delete all before the last p < len - 1 that is still close to it."""
    i = 0
    while i < len(starts) - 2:
        first = (1.0 - eta) * gram(items[i])
        close = [p for p in range(i + 1, len(starts) - 1) if loewner_below(first, gram(items[p]))]
        if close:
            del starts[i + 1 : close[-1]], items[i + 1 : close[-1]]
        i += 1


class Checkpoints:
    """Matrices of all rows since some row, the oldest first."""

    def __init__(self, window: int) -> None:
        self.window, self.t, self.starts, self.items = window, 0, list[int](), list[FloatArray]()

    def add(
        self, added: FloatArray, fresh: FloatArray, gram: Callable[[FloatArray], FloatArray], eta: float,
        keep_order: bool = False,
    ) -> FloatArray:  # fmt: skip
        """Add a row to each, and one that begins with it and ``fresh``; what the algorithm outputs, the oldest."""
        starts, items = self.starts, self.items
        self.t += 1
        while len(starts) > 1 and starts[1] <= self.t - self.window + 1:
            del starts[0], items[0]
        for item in items:
            item += added
        starts.append(self.t)
        items.append(fresh + added)
        # Steps 10 to 12: the first checkpoint not above the newest is replaced by it, with all that follow.
        last = len(items) - 1
        p = next((p for p in range(last) if keep_order and not loewner_below(items[-1], items[p])), last)
        del starts[p:-1], items[p:-1]
        delete_close(starts, items, gram, eta)
        return items[0].copy()


class PrintedSlidingSketch(Checkpoints):
    """A checkpoint is a random projection of [sigma I; rows]; each row adds ``g a^T`` to all of them.

    Claims (epsilon, delta) and has no guarantee: released at every row, two outputs of one checkpoint differ by ``g
    a^T``, a matrix of rank one whose rows are all multiples of the row. Its direction is read off in full, its norm up
    to that of a Gaussian vector of known size; and a zero row changes nothing at all.
    """

    def __init__(self, d: int, window: int, rank: int, epsilon: float, delta: float, rng: np.random.Generator) -> None:
        super().__init__(window)
        self.size, self.rng = math.ceil(4.0 * rank / 0.25**2), rng
        sigma = (16.0 * math.sqrt(rank * math.log(4.0 / delta)) + math.log(4.0 / delta)) / epsilon
        self.fresh = sigma * self.gaussian(d)

    def gaussian(self, columns: int) -> FloatArray:
        """A (size, columns) matrix of N(0, 1/size)."""
        return self.rng.normal(size=(self.size, columns)) / math.sqrt(self.size)

    def push(self, row: FloatArray) -> FloatArray:
        # Algorithm 1 keeps a factor 1 - eta/2.
        return self.add(self.gaussian(1) * row, self.fresh, lambda sketch: sketch.T @ sketch, 0.25 / 2.0)


class PrintedSlidingWishart(Checkpoints):
    """Each new checkpoint starts from fresh Wishart noise, and every row is then added *exactly* to all.

    Claims (epsilon, delta) and has no guarantee:

    * Released at every row, two outputs of one checkpoint differ by exactly
      ``a a^T``: rows are read off in full.
    * Released once, which checkpoint is released was decided by comparing
      matrices, so its noise is the largest of many fresh draws, not one.
    * Step 10 keeps checkpoints in Loewner order. Fresh noises are not ordered in
      two or more dimensions, so the oldest checkpoint soon is the newest, and the window one row.
    """

    def __init__(
        self, window: int, epsilon: float, delta: float, rng: np.random.Generator, keep_order: bool = True
    ) -> None:
        super().__init__(window)
        self.extra, self.rng, self.keep_order = 14.0 * math.log(4.0 / delta) / epsilon**2, rng, keep_order

    def push(self, row: FloatArray) -> FloatArray:
        noise = wishart(self.rng, row.size, math.floor(row.size + self.extra))
        return self.add(np.outer(row, row), noise, lambda gram: gram, 0.25, self.keep_order)
