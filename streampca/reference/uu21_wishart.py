"""Sliding windows with Wishart noise as printed (Upadhyay and Upadhyay 2021, Algorithms 7 and 8). Not private."""

from __future__ import annotations

import math

import numpy as np

from streampca.linalg.lattice import onto_ball
from streampca.linalg.psd import loewner_below
from streampca.linalg.types import FloatArray
from streampca.mechanisms.matrix_laplace import wishart
from streampca.privacy.budget import Budget
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Randomness
from streampca.reference.uu21_histogram import CITATION, TOLERANCE, check, delete_close, expire


class PrintedSlidingWishart:
    """Each new checkpoint starts from fresh Wishart noise, and every row is then added *exactly* to all.

    Claims (epsilon, delta) and has no guarantee:

    * Released at every row, two outputs of one checkpoint differ by exactly
      ``a a^T``: rows are read off in full.
    * Released once, which checkpoint is released was decided by comparing
      matrices, so its noise is the largest of many fresh draws, not one.
    * Step 10 keeps checkpoints in Loewner order. Fresh noises are not ordered in
      two or more dimensions, so the oldest checkpoint soon is the newest, and the window one row.

    Parameters
    ----------
    n_features, window, eta : as for `StreamingSpectralHistogram`.
    epsilon, delta : what the paper claims.
    keep_order : leave step 10 out if False.
    randomness : noise; fresh if left out.
    """

    def __init__(
        self,
        n_features: int,
        window: int,
        *,
        epsilon: float,
        delta: float,
        eta: float = 0.25,
        keep_order: bool = True,
        randomness: Randomness | None = None,
    ) -> None:
        check(window, eta)
        Budget(epsilon, delta)
        self.n_features, self.window, self.eta, self.keep_order = n_features, window, eta, keep_order
        self.degrees = math.floor(n_features + 14.0 * math.log(4.0 / delta) / epsilon**2)
        self.t = 0
        self.starts: list[int] = []
        self._grams: list[FloatArray] = []
        self._randomness = Randomness() if randomness is None else randomness

    @property
    def guarantee(self) -> Guarantee:
        """None."""
        return Guarantee.none(
            "rows are added exactly to matrices that are already noised: outputs differ by a row's outer product",
            f"{CITATION}, Algorithms 7 and 8, Theorems 14 and 17",
        )

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
            if not loewner_below(newest, gram, TOLERANCE):
                del self.starts[p:-1], self._grams[p:-1]
                return
