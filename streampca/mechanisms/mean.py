"""Private range and mean of gradients, the two mechanisms of `DPPCA` (Liu, Kong, Jain and Oh 2022, Alg. 4 and 5).

Subsamples vote for the octave of the largest norm among them. Gradients are clipped to the range that is found, and the
noise of their mean follows it, not the length of the rows. Privacy does not depend on the range: clipping is certain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from streampca.linalg.types import FloatArray, IntArray
from streampca.mechanisms.histogram import StabilityHistogram
from streampca.privacy.budget import Adjacency
from streampca.privacy.outlet import Outlet

#: Norms in a subsample.
SUBSAMPLE = 4
#: Votes, divided by the count at which a bin is released: they may be distributed evenly over this number of bins.
_SPLIT = 3.0
#: Largest probability of no answer in that case.
_FAILURE = 0.01
#: Label of the bin of exact zeros.
_ZERO = np.iinfo(np.int64).min
#: Bits of the sum's lattice below the radius: sums of 2**26 products are exact.
_BITS = 26


class PrivateRange(StabilityHistogram):
    """The largest squared norm in most subsamples, up to a factor of 2.

    *Guarantee.* (epsilon, delta)-DP under zero-out and under replacement of one vector. A vector is in one subsample,
    so one vote *moves*, also when a vector is only zeroed out, and the histogram is calibrated for that.
    """

    @property
    def rows(self) -> int:
        """Number of vectors for one estimate."""
        return SUBSAMPLE * math.ceil(_SPLIT * self.count_needed(_FAILURE))

    def cast(self, norms: FloatArray) -> IntArray:
        """Return the votes of whole subsamples, from the norms of their vectors. Exact: curator only."""
        largest = (norms.reshape(-1, SUBSAMPLE) ** 2).max(axis=1)
        # Exponents are exact, so that the bin of a number depends on no logarithm.
        return np.where(largest > 0.0, np.frexp(largest)[1].astype(np.int64) - 1, _ZERO)

    def decide(self, labels: IntArray, outlet: Outlet, kind: str) -> float | None:
        """Return the upper end of the most popular bin of `cast`, or None if no bin is popular enough."""
        shown = self.release(labels.tolist(), outlet, kind)
        if not shown:
            return None
        winner = shown[0][0]
        # A bin is an octave of squares, by its lower end; zeros have none, and a bin of their own.
        return 0.0 if winner == _ZERO else float(2.0 ** (winner + 1))


@dataclass(frozen=True)
class ClippedMean:
    """The noisy mean of clipped (d, k) products of vectors, from exact sums of blocks, which can be added.

    Bounds of the blocks must not depend on the rows.

    *Guarantee.* mu-GDP for one release. One row moves the sum by at most ``radius`` (zero-out) or twice that (replace).
    Sums and noise are on a lattice of step radius * 2**-26 or less, which the sensitivity allows for.
    """

    mu: float
    size: int  # numbers in a product
    radius: float  # public bound on the norm; longer products are scaled to it
    adjacency: Adjacency
    grid: float = field(init=False)  # step of the lattice of sums
    #: Standard deviation of each number of the noise in the sum; that in the mean is this over the count.
    std: float = field(init=False)

    def __post_init__(self) -> None:
        moved = self.radius if self.adjacency == "zero-out" else 2.0 * self.radius
        grid = 2.0 ** (math.floor(math.log2(self.radius)) - _BITS)
        # Rounding the sum moves each of its numbers by at most half a step, in either neighbor.
        std = (moved * (1.0 + 1e-9) + math.sqrt(self.size) * grid) / self.mu
        vars(self).update(grid=grid, std=std)

    def products(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Return the exact (d, k) sum of the clipped products of rows of (n, d) and (n, k). Curator only."""
        # |a b^T| = |a| |b| in Frobenius norm, so a row's product is clipped by a weight, and never formed. The sum is
        # rounded once, for which `std` allows.
        squares = np.einsum("ij,ij->i", left, left) * np.einsum("ij,ij->i", right, right)
        weights = self.radius / np.maximum(np.sqrt(squares), self.radius)
        total: FloatArray = np.rint(left.T @ (right * weights[:, None]) / self.grid) * self.grid
        return total

    def release(self, total: FloatArray, count: int, outlet: Outlet, kind: str) -> FloatArray:
        """Return the noisy mean, from a sum over ``count`` rows, a public number of at least 1."""
        return outlet.gaussian(kind, total, self.std, self.grid) / count
