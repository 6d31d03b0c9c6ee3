"""Private estimate of the size of a covariance: subsamples vote for a bin of a statistic.

Alg. 4 of Liu, Kong, Jain and Oh 2022. Disjoint subsamples of differences of consecutive vectors, which have no mean,
vote for a bin on a logarithmic scale; a stability histogram releases the bin with most votes. Vectors need no bound.

*Guarantee.* (epsilon, delta)-DP under zero-out and under replacement of one vector. A vector is in one subsample, so
one vote *moves*, also when a vector is only zeroed out, and the histogram is calibrated for that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from streampca.linalg.types import FloatArray, IntArray
from streampca.mechanisms.histogram import StabilityHistogram
from streampca.privacy.outlet import Outlet

#: Largest probability of no answer, if the votes are distributed evenly over ``split`` bins.
_FAILURE = 0.01
#: Label of the bin of exact zeros.
_ZERO = np.iinfo(np.int64).min


@dataclass(frozen=True)
class PrivateEigenvalue:
    """A private estimate of the size of the covariance H of vectors.

    Parameters
    ----------
    epsilon, delta : budget of one estimate.
    pairs : differences in a subsample. If they are fewer than the dimension, the top eigenvalue is too large, by a
        factor of up to ``(1 + sqrt(d / pairs))**2``.
    statistic : ``"top"``, the largest eigenvalue of H; ``"range"``, the largest squared distance of a vector from the
        mean, as estimated from the longest difference in a subsample; ``"norm"``, the largest squared norm, without
        differences.
    bins_per_octave : resolution; the estimate is off by up to a bin.
    split : bins that the votes may be distributed over evenly, which determines `votes`; 2 suffices where subsamples
        nearly agree.
    """

    epsilon: float
    delta: float
    pairs: int = 16
    statistic: Literal["top", "range", "norm"] = "top"
    bins_per_octave: int = 4
    split: float = 2.0

    @property
    def histogram(self) -> StabilityHistogram:
        """Histogram of the votes, of which a neighbor moves one."""
        return StabilityHistogram(self.epsilon, self.delta)

    @property
    def votes(self) -> int:
        """Subsamples: ``split`` times the count at which a bin is released."""
        return math.ceil(self.split * self.histogram.count_needed(_FAILURE))

    @property
    def rows(self) -> int:
        """Number of vectors for one estimate."""
        return 2 * self.pairs * self.votes

    def cast(self, vectors: FloatArray) -> IntArray:
        """Return the votes of at most `votes` full subsamples of ``2 * pairs`` vectors. Exact: curator only."""
        size = 2 * self.pairs
        count = min(vectors.shape[0] // size, self.votes)
        labels = np.full(count, _ZERO, dtype=np.int64)
        for i in range(count):
            part = vectors[i * size : (i + 1) * size]
            if self.statistic != "norm":
                part = (part[1::2] - part[::2]) * math.sqrt(0.5)
            if self.statistic != "top":
                value = float(np.einsum("ij,ij->i", part, part).max())
            else:
                gram = part @ part.T if part.shape[0] < part.shape[1] else part.T @ part
                try:
                    value = float(np.linalg.eigvalsh(gram)[-1]) / self.pairs
                except np.linalg.LinAlgError:  # the vote is zero: no other subsample may be affected
                    value = 0.0
            if 0.0 < value < math.inf:
                labels[i] = math.floor(self.bins_per_octave * math.log2(value))
        return labels

    def decide(self, labels: IntArray, outlet: Outlet, kind: str) -> float | None:
        """Return the estimate from votes of `cast`, or None if no bin is popular enough.

        It is the middle of the winning bin for the top eigenvalue, else its upper end.
        """
        shown = self.histogram.release(labels.tolist(), outlet, kind)
        if not shown:
            return None
        winner = shown[0][0]
        if winner == _ZERO:
            return 0.0
        place = 0.5 if self.statistic == "top" else 1.0
        return float(2.0 ** ((winner + place) / self.bins_per_octave))
