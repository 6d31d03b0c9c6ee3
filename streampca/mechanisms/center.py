"""Private center of vectors: the most popular bin of each coordinate.

Step 1 of Alg. 5 of Liu, Kong, Jain and Oh 2022, with Gaussian counts for all
coordinates at once in place of d composed histograms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streampca.errors import BadParameterError
from streampca.linalg.types import FloatArray, IntArray
from streampca.mechanisms.histogram import GaussianHistograms, Votes
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.gaussian import mu_of
from streampca.privacy.guarantee import Guarantee, gaussian_guarantee
from streampca.privacy.outlet import Outlet

CITATION = "Liu, Kong, Jain and Oh 2022, Algorithm 5; Karwa and Vadhan 2017"
#: Share of delta for bins of a single vote.
_SLACK = 0.1
#: Bins kept on each side of the public guess: memory is 257 counts a coordinate.
WINDOW = 128
BINS = 2 * WINDOW + 1


@dataclass(frozen=True)
class PrivateCenter:
    """The middle of each coordinate's most popular bin, among bins around a public guess.

    Guarantee: (epsilon, delta)-DP: mu-GDP counts plus a tenth of delta for
    bins of a single vote (`GaussianHistograms`). Zero vectors do not vote, so
    that zeroing one out removes its votes: noise of standard deviation sqrt(d)/mu.
    Replacing a vector moves them: sqrt(2 d)/mu.

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
        _ = Budget(self.epsilon, self.delta, self.adjacency).mu
        if _SLACK * self.delta > self.epsilon / 5.0:
            raise BadParameterError(
                f"delta={self.delta!r} is too large for epsilon={self.epsilon!r}: keep it below 2 epsilon"
            )

    @property
    def histograms(self) -> GaussianHistograms:
        """The histograms, one a coordinate."""
        slack = _SLACK * self.delta
        votes: Votes = "add-remove" if self.adjacency == "zero-out" else "moves"
        return GaussianHistograms(self.n_features, mu_of(self.epsilon, self.delta - slack), slack, votes)

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta)-DP; mu-GDP plus slack."""
        histograms = self.histograms
        return gaussian_guarantee(
            histograms.mu, self.epsilon, self.delta, adjacency=self.adjacency, scope="one center of one set of vectors",
            theorem="Gaussian counts above a threshold", citation=CITATION, slack=histograms.delta,
        )  # fmt: skip

    def rows(self, share: float = 0.4, failure: float = 0.001) -> int:
        """Vectors needed where a bin holds that share of a coordinate's votes."""
        return math.ceil(self.histograms.count_needed(failure) / share)

    def release(
        self, vectors: FloatArray, width: float, outlet: Outlet, kind: str, around: FloatArray | None = None
    ) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """The center of a set of vectors; see `count` and `decide`."""
        around = np.zeros(self.n_features) if around is None else around
        return self.decide(self.count(vectors, width, around), width, around, outlet, kind)

    def count(self, vectors: FloatArray, width: float, around: FloatArray) -> IntArray:
        """The votes of vectors, (d, BINS). Curator only: they are not private. Votes of blocks add up.

        Parameters
        ----------
        vectors : (n, d) array.
        width : public width of a bin.
        around : (d,) public guess; the middle of the middle bin.
        """
        if not 0.0 < width < math.inf:
            raise BadParameterError(f"width={width!r} must be positive and finite")
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
