"""Private mean of vectors or products that are clipped to a public radius.

Step 2 of Alg. 5 of Liu, Kong, Jain and Oh 2022: vectors are clipped to a ball
around the center and summed with Gaussian noise, which follows the radius of
the ball and not the length of the vectors. Clipping is always done: privacy
does not depend on a good radius or center. (The paper's B is the
number of vectors that are summed, not that of the whole minibatch.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.types import FloatArray
from streampca.privacy.budget import Adjacency, check_adjacency
from streampca.privacy.guarantee import Guarantee, gaussian_guarantee
from streampca.privacy.outlet import Outlet

CITATION = "Liu, Kong, Jain and Oh 2022, Algorithm 5"
#: Bits of the sum's lattice below the radius: sums of 2**26 vectors are exact.
_BITS = 26


@dataclass(frozen=True)
class ClippedMean:
    """The noisy mean of clipped vectors or matrices, from exact sums of blocks, which can be added.

    Guarantee: mu-GDP for one release. Zero-out: a zero vector adds nothing (it
    counts as lying at the center), so one vector moves the sum by at most
    ``radius``. Replace: by at most twice that, or the diameter of the set of
    vectors (clipping moves no two of them apart). Sums and noise are on a
    lattice of step radius * 2**-26 or less, which the sensitivity allows for.

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

    def __post_init__(self) -> None:
        check_adjacency(self.adjacency)
        if not 0.0 < self.mu < math.inf or not 0.0 < self.radius < math.inf:
            raise BadParameterError(f"mu={self.mu!r} and radius={self.radius!r} must be positive and finite")

    @property
    def grid(self) -> float:
        """Step of the lattice of sums."""
        return 2.0 ** (math.floor(math.log2(self.radius)) - _BITS)

    @property
    def std(self) -> float:
        """Standard deviation of each number of the noise in the sum; that in the mean is this over the count."""
        moved = self.radius if self.adjacency == "zero-out" else min(2.0 * self.radius, self.diameter)
        return (moved * (1.0 + 1e-9) + math.sqrt(self.size) * self.grid) / self.mu

    def guarantee(self, epsilon: float, delta: float) -> Guarantee:
        """The claim, stated at (epsilon, delta)."""
        return gaussian_guarantee(
            self.mu, epsilon, delta, adjacency=self.adjacency, scope="one mean of one set of vectors",
            theorem="Gaussian mechanism on a clipped sum", citation=CITATION,
        )  # fmt: skip

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
        count : how many vectors or products are in it. Public.
        outlet, kind : adds the noise to the sum; the name of the release.
        """
        if count == 0:
            raise BadParameterError("count=0: no vectors were summed, so there is no mean")
        return outlet.gaussian(kind, total, self.std, self.grid) / count

    def _weights(self, squares: FloatArray) -> FloatArray:
        weights: FloatArray = self.radius / np.maximum(np.sqrt(squares), self.radius)
        return weights

    def _on_lattice(self, total: FloatArray) -> FloatArray:
        return np.rint(total / self.grid) * self.grid
