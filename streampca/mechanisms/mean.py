"""Private mean of vectors or products: a center, and the mean of vectors clipped to a ball around it.

Alg. 5 of Liu, Kong, Jain and Oh 2022, with Gaussian counts of all coordinates jointly in place of d composed
histograms. The noise follows the public radius and not the length of the vectors. Clipping is always done: privacy does
not depend on a good radius or center.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streampca.errors import BadParameterError
from streampca.linalg.types import FloatArray, IntArray
from streampca.mechanisms.histogram import GaussianHistograms
from streampca.privacy.budget import Adjacency
from streampca.privacy.gaussian import mu_of
from streampca.privacy.outlet import Outlet

#: Share of delta for bins of a single vote.
_SLACK = 0.1
#: Bins kept on each side of the public guess: memory is 257 counts a coordinate.
WINDOW = 128
BINS = 2 * WINDOW + 1
#: A center is sure where a bin holds this share of a coordinate's votes, but for this probability.
_SHARE, _FAILURE = 0.4, 0.001
#: Bits of the sum's lattice below the radius: sums of 2**26 vectors are exact.
_BITS = 26


@dataclass(frozen=True)
class PrivateCenter:
    """The middle of each coordinate's most popular bin, among bins around a public guess.

    *Guarantee.* (epsilon, delta)-DP: mu-GDP counts plus a tenth of delta for bins of a single vote
    (`GaussianHistograms`). Zero vectors do not vote, so that zeroing one out removes its votes.
    """

    n_features: int
    epsilon: float
    delta: float
    adjacency: Adjacency = "zero-out"

    def __post_init__(self) -> None:
        if _SLACK * self.delta > self.epsilon / 5.0:
            raise BadParameterError(f"delta={self.delta!r}: expected less than 2 epsilon, epsilon={self.epsilon!r}.")

    @property
    def histograms(self) -> GaussianHistograms:
        """Histograms, one a coordinate."""
        slack = _SLACK * self.delta
        return GaussianHistograms(self.n_features, mu_of(self.epsilon, self.delta - slack), slack, self.adjacency)

    @property
    def rows(self) -> int:
        """Vectors needed where a bin holds 40 % of a coordinate's votes."""
        return math.ceil(self.histograms.count_needed(_FAILURE) / _SHARE)

    def count(self, vectors: FloatArray, width: float, around: FloatArray) -> IntArray:
        """Return the votes of vectors, (d, BINS), for bins of a width about a public guess. Exact: curator only."""
        voting = vectors[vectors.any(axis=1)] if self.adjacency == "zero-out" else vectors
        bins = np.rint((voting - around) / width)
        near = np.abs(bins) <= WINDOW
        first = np.arange(self.n_features) * BINS + WINDOW
        places = (np.where(near, bins, 0.0).astype(np.int64) + first)[near]
        return np.bincount(places, minlength=self.n_features * BINS).astype(np.int64).reshape(-1, BINS)

    def decide(
        self, counts: IntArray, width: float, around: FloatArray, outlet: Outlet, kind: str
    ) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """Return the center, (d,), and the coordinates that have one and not the guess, from sums of `count`."""
        winners, found = self.histograms.winners(counts, outlet, kind)
        center: FloatArray = around + np.where(found, winners - WINDOW, 0) * width
        return center, found


@dataclass(frozen=True)
class ClippedMean:
    """The noisy mean of clipped vectors or matrices, from exact sums of blocks, which can be added.

    Bounds of the blocks must not depend on the rows.

    *Guarantee.* mu-GDP for one release. Zero-out: a zero vector adds nothing (it counts as lying at the center), so one
    vector moves the sum by at most ``radius``. Replace: by at most twice that, or the diameter of the set of vectors
    (clipping moves no two of them apart). Sums and noise are on a lattice of step radius * 2**-26 or less, which the
    sensitivity allows for.

    Parameters
    ----------
    mu : Gaussian-DP parameter of the release.
    size : numbers in a vector or matrix.
    radius : public bound on the norm; longer vectors are scaled to it.
    adjacency : ``"zero-out"`` or ``"replace"``.
    diameter : bound on the distance of any two vectors before clipping, if there is one.
    """

    mu: float
    size: int
    radius: float
    adjacency: Adjacency
    diameter: float = math.inf

    @property
    def grid(self) -> float:
        """Step of the lattice of sums."""
        return 2.0 ** (math.floor(math.log2(self.radius)) - _BITS)

    @property
    def std(self) -> float:
        """Standard deviation of each number of the noise in the sum; that in the mean is this over the count."""
        moved = self.radius if self.adjacency == "zero-out" else min(2.0 * self.radius, self.diameter)
        # Rounding the sum moves each of its numbers by at most half a step, in either neighbor.
        return (moved * (1.0 + 1e-9) + math.sqrt(self.size) * self.grid) / self.mu

    def vectors(self, vectors: FloatArray, center: FloatArray) -> FloatArray:
        """Return the exact sum of (n, d) vectors, clipped about a public center, less the center. Curator only."""
        apart = vectors - center
        weights = self._weights(np.einsum("ij,ij->i", apart, apart))
        if self.adjacency == "zero-out":
            weights *= vectors.any(axis=1)
        return np.rint(weights @ apart / self.grid) * self.grid

    def products(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the exact (d, k) sum of the clipped products of rows of (n, d) and (n, k). Curator only."""
        squares = np.einsum("ij,ij->i", left, left) * np.einsum("ij,ij->i", right, right)
        return np.rint(left.T @ (right * self._weights(squares)[:, None]) / self.grid) * self.grid

    def release(self, total: FloatArray, count: int, outlet: Outlet, kind: str) -> FloatArray:
        """Return the noisy mean, less the center, from a sum over ``count`` rows, a public number of at least 1."""
        return outlet.gaussian(kind, total, self.std, self.grid) / count

    def _weights(self, squares: FloatArray) -> FloatArray:
        return self.radius / np.maximum(np.sqrt(squares), self.radius)
