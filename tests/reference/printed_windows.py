"""Sliding windows as printed (Upadhyay and Upadhyay, ICML 2021), none of them private: attacked in the tests beside.

Algorithms 2 and 3 (random projection), Algorithms 7 and 8 (Wishart noise).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from printed_mechanisms import wishart

from streampca.linalg.lattice import onto_ball
from streampca.linalg.types import FloatArray
from streampca.privacy.randomness import Randomness

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


def expire(starts: list[int], items: list[FloatArray], t: int, window: int) -> None:
    """Drop the oldest checkpoint while the next one is at or before the window's start."""
    while len(starts) > 1 and starts[1] <= t - window + 1:
        del starts[0], items[0]


class PrintedSlidingSketch:
    """A checkpoint is a random projection of [sigma I; rows]; each row adds ``g a^T`` to all of them.

    Claims (epsilon, delta) and has no guarantee: released at every row, two outputs of one checkpoint differ by ``g
    a^T``, a matrix of rank one whose rows are all multiples of the row. Its direction is read off in full, its norm up
    to that of a Gaussian vector of known size; and a zero row changes nothing at all.
    """

    def __init__(
        self, n_features: int, window: int, *, rank: int, epsilon: float, delta: float, randomness: Randomness,
        eta: float = 0.25,
    ) -> None:  # fmt: skip
        self.n_features, self.window, self.eta = n_features, window, eta
        self.size = math.ceil(4.0 * rank / eta**2)
        self.sigma = (16.0 * math.sqrt(rank * math.log(4.0 / delta)) + math.log(4.0 / delta)) / epsilon
        self.t = 0
        self.starts: list[int] = []
        self._sketches: list[FloatArray] = []
        self._noise = randomness.stream("uu21 sketch")
        self._projection = self._gaussian(0, n_features)

    def _gaussian(self, index: int, columns: int) -> FloatArray:
        """A (size, columns) matrix of N(0, 1/size)."""
        return self._noise.normal(index, self.size * columns).reshape(self.size, columns) / math.sqrt(self.size)

    def push(self, row: FloatArray) -> FloatArray:
        """Take a row; what the algorithm outputs, the oldest sketch, (size, d). Not safe to publish."""
        admitted = onto_ball(np.atleast_2d(row))[0]
        self.t += 1
        added = np.outer(self._gaussian(self.t, 1)[:, 0], admitted)
        expire(self.starts, self._sketches, self.t, self.window)
        for sketch in self._sketches:
            sketch += added
        self.starts.append(self.t)
        self._sketches.append(self.sigma * self._projection + added)
        # Algorithm 1 keeps a factor 1 - eta/2.
        delete_close(self.starts, self._sketches, lambda sketch: sketch.T @ sketch, self.eta / 2.0)
        return self._sketches[0].copy()


class PrintedSlidingWishart:
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
        self, n_features: int, window: int, *, epsilon: float, delta: float, randomness: Randomness, eta: float = 0.25,
        keep_order: bool = True,
    ) -> None:  # fmt: skip
        self.n_features, self.window, self.eta, self.keep_order = n_features, window, eta, keep_order
        self.degrees = math.floor(n_features + 14.0 * math.log(4.0 / delta) / epsilon**2)
        self.t = 0
        self.starts: list[int] = []
        self._grams: list[FloatArray] = []
        self._randomness = randomness

    def push(self, row: FloatArray) -> FloatArray:
        """Take a row; what the algorithm outputs, K(1), (d, d). Not safe to publish."""
        admitted = onto_ball(np.atleast_2d(row))[0]
        outer = np.outer(admitted, admitted)
        self.t += 1
        expire(self.starts, self._grams, self.t, self.window)
        for gram in self._grams:
            gram += outer
        noise = wishart(self._randomness.stream("uu21").draws(self.t), self.n_features, self.degrees)
        self.starts.append(self.t)
        self._grams.append(outer + noise)
        if self.keep_order:
            self._restore_order()
        delete_close(self.starts, self._grams, lambda gram: gram, self.eta)
        return self._grams[0].copy()

    def _restore_order(self) -> None:
        """Steps 10 to 12: the first checkpoint not above the newest is replaced by it, with all that follow."""
        newest = self._grams[-1]
        for p, gram in enumerate(self._grams[:-1]):
            if not loewner_below(newest, gram):
                del self.starts[p:-1], self._grams[p:-1]
                return
