"""Where vectors gather, privately: the popular bin of each coordinate.

Step 1 of Alg. 5 of Liu, Kong, Jain and Oh 2022, with Gaussian counts for all
coordinates at once in place of d composed histograms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streampca.errors import BadParameter
from streampca.linalg.types import FloatArray
from streampca.mechanisms.histogram import GaussianHistograms, Votes
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.gaussian import mu_of
from streampca.privacy.guarantee import Guarantee, gaussian_guarantee
from streampca.privacy.randomness import NoiseStream

CITATION = "Liu, Kong, Jain and Oh 2022, Algorithm 5; Karwa and Vadhan 2017"
#: Share of delta for bins of a single vote.
_SLACK = 0.1
#: Bins kept on each side of the public guess: memory is 257 counts a coordinate.
WINDOW = 128


@dataclass(frozen=True)
class PrivateCentre:
    """The middle of each coordinate's most popular bin, among bins around a public guess.

    Guarantee: (epsilon, delta)-DP: mu-GDP counts plus a tenth of delta for
    bins of a single vote (`GaussianHistograms`). Zero vectors do not vote, so
    that zeroing one out removes its votes: noise sd sqrt(d)/mu. Replacing a
    vector moves them: sqrt(2 d)/mu.

    Parameters
    ----------
    n_features : dimension of the vectors, d.
    epsilon, delta : budget of one centre.
    adjacency : ``"zero-out"`` or ``"replace"``.
    """

    n_features: int
    epsilon: float
    delta: float
    adjacency: Adjacency = "zero-out"

    def __post_init__(self) -> None:
        _ = Budget(self.epsilon, self.delta, self.adjacency).mu
        if _SLACK * self.delta > self.epsilon / 5.0:
            raise BadParameter(
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
            histograms.mu, self.epsilon, self.delta, adjacency=self.adjacency, scope="one centre of one set of vectors",
            theorem="Gaussian counts above a threshold", citation=CITATION, slack=histograms.delta,
        )  # fmt: skip

    def rows(self, share: float = 0.4, failure: float = 0.001) -> int:
        """Vectors needed where a bin holds that share of a coordinate's votes."""
        return math.ceil(self.histograms.count_needed(failure) / share)

    def release(
        self, vectors: FloatArray, width: float, noise: NoiseStream, index: int = 0, around: FloatArray | None = None
    ) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """The centre of a set of vectors; see `CentreVotes.release`."""
        votes = CentreVotes(self, width, np.zeros(self.n_features) if around is None else around)
        votes.add(vectors)
        return votes.release(noise, index)


class CentreVotes:
    """Running counts of votes for bins. Curator only until `release`.

    Parameters
    ----------
    mechanism : the calibration.
    width : public width of a bin.
    around : (d,) public guess; the middle of the middle bin.
    """

    def __init__(self, mechanism: PrivateCentre, width: float, around: FloatArray) -> None:
        if not 0.0 < width < math.inf:
            raise BadParameter(f"width={width!r} must be positive and finite")
        self.mechanism, self.width, self.around = mechanism, width, around
        self.counts = np.zeros((around.size, 2 * WINDOW + 1), dtype=np.int64)
        self._first = np.arange(around.size, dtype=np.int64) * (2 * WINDOW + 1) + WINDOW

    def add(self, vectors: FloatArray) -> None:
        """Count the votes of vectors."""
        voting = vectors[vectors.any(axis=1)] if self.mechanism.adjacency == "zero-out" else vectors
        bins = np.rint((voting - self.around) / self.width)
        near = np.abs(bins) <= WINDOW
        places = (np.where(near, bins, 0.0).astype(np.int64) + self._first)[near]
        self.counts += np.bincount(places, minlength=self.counts.size).reshape(self.counts.shape)

    def release(self, noise: NoiseStream, index: int = 0) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """The centre, and the coordinates for which there is one.

        Returns
        -------
        centre : (d,) array; the public guess where no bin was popular enough.
        found : (d,) False there.
        """
        winners, found = self.mechanism.histograms.winners(self.counts, noise, index)
        centre: FloatArray = self.around + np.where(found, winners - WINDOW, 0) * self.width
        return centre, found
