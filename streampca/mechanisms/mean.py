"""Private mean of vectors that gather around a public centre.

Step 2 of Alg. 5 of Liu, Kong, Jain and Oh 2022: vectors are clipped to a ball
around the centre and summed with Gaussian noise, which follows the radius of
the ball and not the length of the vectors. Clipping is always done: privacy
never rests on the radius or the centre being right. (The paper's B is the
number of vectors that are summed, not that of the whole minibatch.)
"""

from __future__ import annotations

import math

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.lattice import coarsen
from streampca.linalg.types import FloatArray
from streampca.privacy.budget import Adjacency, check_adjacency
from streampca.privacy.guarantee import Guarantee, gaussian_guarantee
from streampca.privacy.randomness import NoiseStream

CITATION = "Liu, Kong, Jain and Oh 2022, Algorithm 5"
#: Bits of the sum's lattice below the radius.
_BITS = 26


class ClippedMean:
    """A running sum of vectors clipped to a public ball, and its noisy mean.

    Guarantee: mu-GDP for one release, per vector added since the start.
    Zero-out: a zero vector adds nothing (it counts as lying at the centre), so
    one vector moves the sum by at most ``radius``. Replace: by at most twice
    that, or the diameter of the set of vectors (clipping moves no two of them
    apart). Sums and noise are on a lattice of step radius * 2**-26 or less,
    which the sensitivity allows for.

    Parameters
    ----------
    mu : Gaussian-DP parameter of the release.
    centre : (d,) array. Public, as are `radius` and the number of vectors.
    radius : vectors further from the centre are drawn in to this distance.
    adjacency : ``"zero-out"`` or ``"replace"``.
    diameter : bound on the distance of any two vectors, if there is one.
    """

    def __init__(
        self, mu: float, centre: FloatArray, radius: float, adjacency: Adjacency, diameter: float = math.inf
    ) -> None:
        check_adjacency(adjacency)
        if not 0.0 < mu < math.inf or not 0.0 < radius < math.inf:
            raise BadParameter(f"mu={mu!r} and radius={radius!r} must be positive and finite")
        self.mu, self.centre, self.radius = mu, centre, radius
        self.adjacency, self.diameter = adjacency, diameter
        self._grid = 2.0 ** (math.floor(math.log2(radius)) - _BITS)
        self._sum = np.zeros(centre.size)
        self.count = 0

    @property
    def std(self) -> float:
        """Sd of each coordinate of the noise in the sum; over the count, of that in the mean."""
        moved = self.radius if self.adjacency == "zero-out" else min(2.0 * self.radius, self.diameter)
        return (moved * (1.0 + 1e-9) + math.sqrt(self.centre.size) * self._grid) / self.mu

    def guarantee(self, epsilon: float, delta: float) -> Guarantee:
        """The claim, stated at (epsilon, delta)."""
        return gaussian_guarantee(
            self.mu, epsilon, delta, adjacency=self.adjacency, scope="one mean of one set of vectors",
            theorem="Gaussian mechanism on a clipped sum", citation=CITATION,
        )  # fmt: skip

    def add(self, vectors: FloatArray) -> None:
        """Add vectors. The block's bounds must not depend on the vectors."""
        apart = vectors - self.centre
        norms = np.sqrt(np.einsum("ij,ij->i", apart, apart))
        weights = self.radius / np.maximum(norms, self.radius)
        if self.adjacency == "zero-out":
            weights *= vectors.any(axis=1)
        self._sum += np.rint((weights @ apart) / self._grid) * self._grid
        self.count += vectors.shape[0]

    def release(self, noise: NoiseStream, index: int = 0) -> FloatArray:
        """The noisy mean of all vectors added. Once."""
        if self.count == 0:
            raise BadParameter("count=0: there is no mean of no vectors")
        drawn = np.rint(self.std * noise.normal(index, self._sum.size) / self._grid) * self._grid
        mean: FloatArray = self.centre + coarsen(self._sum + drawn, self.std) / self.count
        return mean

    @property
    def sum(self) -> FloatArray:
        """The exact sum of clipped vectors about the centre. Curator only; `state` of the running sum."""
        return self._sum.copy()

    def restore(self, total: FloatArray, count: int) -> None:
        """Continue from `sum` and `count`."""
        self._sum = np.array(total, dtype=np.float64)
        self.count = int(count)


class ClippedProducts:
    """A running sum of products ``left_i right_i^T`` clipped in Frobenius norm, and its noisy mean.

    Guarantee: mu-GDP for one release, per product added since the start. A
    zero row's product is zero: zeroing one out moves the sum by at most
    ``radius``, replacing one by at most twice that. Lattice as in `ClippedMean`.

    Parameters
    ----------
    mu : Gaussian-DP parameter of the release.
    shape : (d, k) of the products.
    radius : public bound on their norms.
    adjacency : ``"zero-out"`` or ``"replace"``.
    """

    def __init__(self, mu: float, shape: tuple[int, int], radius: float, adjacency: Adjacency) -> None:
        check_adjacency(adjacency)
        if not 0.0 < mu < math.inf or not 0.0 < radius < math.inf:
            raise BadParameter(f"mu={mu!r} and radius={radius!r} must be positive and finite")
        self.mu, self.radius, self.adjacency = mu, radius, adjacency
        self._grid = 2.0 ** (math.floor(math.log2(radius)) - _BITS)
        self.sum = np.zeros(shape)
        self.count = 0

    @property
    def std(self) -> float:
        """Sd of each entry of the noise in the sum; over the count, of that in the mean."""
        moved = self.radius if self.adjacency == "zero-out" else 2.0 * self.radius
        return (moved * (1.0 + 1e-9) + math.sqrt(self.sum.size) * self._grid) / self.mu

    def add(self, left: FloatArray, right: FloatArray) -> None:
        """Add the products of rows of (n, d) and (n, k). The block's bounds must not depend on them."""
        norms = np.sqrt(np.einsum("ij,ij->i", left, left) * np.einsum("ij,ij->i", right, right))
        weights = self.radius / np.maximum(norms, self.radius)
        self.sum += np.rint((left.T @ (right * weights[:, None])) / self._grid) * self._grid
        self.count += left.shape[0]

    def release(self, noise: NoiseStream, index: int = 0) -> FloatArray:
        """The noisy mean of all products added. Once."""
        if self.count == 0:
            raise BadParameter("count=0: there is no mean of no products")
        drawn = np.rint(self.std * noise.normal(index, self.sum.size) / self._grid) * self._grid
        mean: FloatArray = coarsen(self.sum + drawn.reshape(self.sum.shape), self.std) / self.count
        return mean
