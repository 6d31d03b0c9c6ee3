"""Private mean of vectors or products, in two steps: a center, and the mean of what is clipped to a ball around it.

Alg. 5 of Liu, Kong, Jain and Oh 2022. The center is the most popular bin of each coordinate, by Gaussian counts for all
coordinates at once in place of d composed histograms. The vectors are then clipped to a ball of public radius and
summed with Gaussian noise, which follows the radius and not the length of the vectors. Clipping is always done: privacy
does not depend on a good radius or center.
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

    Guarantee: (epsilon, delta)-DP: mu-GDP counts plus a tenth of delta for bins of a single vote
    (`GaussianHistograms`). Zero vectors do not vote, so that zeroing one out removes its votes.

    Parameters
    ----------
    n_features : dimension of the vectors, d.
    epsilon, delta : budget of one center.
    adjacency : ``"zero-out"`` or ``"replace"``.
    """

    n_features: int
    epsilon: float
    delta: float
    adjacency: Adjacency = "zero-out"

    def __post_init__(self) -> None:
        if _SLACK * self.delta > self.epsilon / 5.0:
            raise BadParameterError(
                f"delta={self.delta!r} is too large for epsilon={self.epsilon!r}: keep it below 2 epsilon"
            )

    @property
    def histograms(self) -> GaussianHistograms:
        """The histograms, one a coordinate."""
        slack = _SLACK * self.delta
        return GaussianHistograms(self.n_features, mu_of(self.epsilon, self.delta - slack), slack, self.adjacency)

    @property
    def rows(self) -> int:
        """Vectors needed where a bin holds 40 % of a coordinate's votes."""
        return math.ceil(self.histograms.count_needed(_FAILURE) / _SHARE)

    def count(self, vectors: FloatArray, width: float, around: FloatArray) -> IntArray:
        """The votes of vectors, (d, BINS). Curator only: they are not private. Votes of blocks add up.

        Parameters
        ----------
        vectors : (n, d) array.
        width : public width of a bin.
        around : (d,) public guess; the middle of the middle bin.
        """
        voting = vectors[vectors.any(axis=1)] if self.adjacency == "zero-out" else vectors
        bins = np.rint((voting - around) / width)
        near = np.abs(bins) <= WINDOW
        first = np.arange(self.n_features) * BINS + WINDOW
        places = (np.where(near, bins, 0.0).astype(np.int64) + first)[near]
        return np.bincount(places, minlength=self.n_features * BINS).astype(np.int64).reshape(-1, BINS)

    def decide(
        self, counts: IntArray, width: float, around: FloatArray, outlet: Outlet, kind: str
    ) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """The center, and the coordinates for which there is one.

        Parameters
        ----------
        counts : sum of the votes from `count`, with the same ``width`` and ``around``.
        outlet, kind : adds the noise to the votes; the name of the release.

        Returns
        -------
        center : (d,) array; the public guess where no bin was popular enough.
        found : (d,) False there.
        """
        winners, found = self.histograms.winners(counts, outlet, kind)
        center: FloatArray = around + np.where(found, winners - WINDOW, 0) * width
        return center, found


@dataclass(frozen=True)
class ClippedMean:
    """The noisy mean of clipped vectors or matrices, from exact sums of blocks, which can be added.

    Guarantee: mu-GDP for one release. Zero-out: a zero vector adds nothing (it counts as lying at the center), so one
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
        return (moved * (1.0 + 1e-9) + math.sqrt(self.size) * self.grid) / self.mu

    def vectors(self, vectors: FloatArray, center: FloatArray) -> FloatArray:
        """Sum of vectors, (n, d), clipped about a public center, less the center. Curator only.

        The block's bounds must not depend on the vectors.
        """
        apart = vectors - center
        weights = self._weights(np.einsum("ij,ij->i", apart, apart))
        if self.adjacency == "zero-out":
            weights *= vectors.any(axis=1)
        return self._on_lattice(weights @ apart)

    def products(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Sum of the clipped products of rows of (n, d) and (n, k), a (d, k) matrix. Curator only.

        The block's bounds must not depend on them. The product of a zero row is zero.
        """
        squares = np.einsum("ij,ij->i", left, left) * np.einsum("ij,ij->i", right, right)
        return self._on_lattice(left.T @ (right * self._weights(squares)[:, None]))

    def release(self, total: FloatArray, count: int, outlet: Outlet, kind: str) -> FloatArray:
        """The noisy mean, less the center.

        Parameters
        ----------
        total : sum of what `vectors` or `products` returned.
        count : how many vectors or products are in it, at least 1. Public.
        outlet, kind : adds the noise to the sum; the name of the release.
        """
        return outlet.gaussian(kind, total, self.std, self.grid) / count

    def _weights(self, squares: FloatArray) -> FloatArray:
        return self.radius / np.maximum(np.sqrt(squares), self.radius)

    def _on_lattice(self, total: FloatArray) -> FloatArray:
        return np.rint(total / self.grid) * self.grid
