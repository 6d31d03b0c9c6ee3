"""Sliding windows by random projection as printed (Upadhyay and Upadhyay 2021, Algorithms 2 and 3). Not private."""

from __future__ import annotations

import math

import numpy as np

from streampca.linalg.lattice import onto_ball
from streampca.linalg.types import FloatArray
from streampca.privacy.budget import Budget
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Randomness
from streampca.reference.uu21_histogram import CITATION, check, delete_close, expire


class PrintedSlidingSketch:
    """A checkpoint is a random projection of [sigma I; rows]; each row adds ``g a^T`` to all of them.

    Claims (epsilon, delta) and has no guarantee: released at every row, two
    outputs of one checkpoint differ by ``g a^T``, a matrix of rank one whose rows are all multiples
    of the row. Its direction is read off in full, its norm up to that of a Gaussian
    vector of known size; and a zero row changes nothing at all.

    Parameters
    ----------
    n_features, window, eta : as for `StreamingSpectralHistogram`.
    rank : rank to be kept, r; the sketch has 4 r / eta**2 rows.
    epsilon, delta : what the paper claims.
    randomness : noise; fresh if left out.
    """

    def __init__(
        self,
        n_features: int,
        window: int,
        *,
        rank: int,
        epsilon: float,
        delta: float,
        eta: float = 0.25,
        randomness: Randomness | None = None,
    ) -> None:
        check(window, eta)
        Budget(epsilon, delta)
        self.n_features, self.window, self.eta = n_features, window, eta
        self.size = math.ceil(4.0 * rank / eta**2)
        self.sigma = (16.0 * math.sqrt(rank * math.log(4.0 / delta)) + math.log(4.0 / delta)) / epsilon
        self.t = 0
        self.starts: list[int] = []
        self._sketches: list[FloatArray] = []
        self._noise = (Randomness() if randomness is None else randomness).stream("uu21 sketch")
        self._projection = self._gaussian(0, n_features)

    def _gaussian(self, index: int, columns: int) -> FloatArray:
        """A (size, columns) matrix of N(0, 1/size)."""
        return self._noise.normal(index, self.size * columns).reshape(self.size, columns) / math.sqrt(self.size)

    @property
    def guarantee(self) -> Guarantee:
        """None."""
        return Guarantee.none(
            "each row is added to a sketch that has been output before: the difference is a multiple of the row",
            f"{CITATION}, Algorithms 2 and 3, Theorem 3",
        )

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
