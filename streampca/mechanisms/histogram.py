"""Stability histograms: the popular bins among infinitely many, privately.

Only occupied bins get noise, and a bin is released only if its noisy count
exceeds a threshold, so that a bin of a single vote is released with
probability delta at most. How one neighbour may change the votes is public and
part of the calibration:

- ``"add-remove"``: one vote appears or vanishes. Noise Lap(1/epsilon).
- ``"moves"``: one vote changes its bin. Two counts change, so Lap(2/epsilon).
  Subsamples that vote move even when a row is only zeroed out; with
  Lap(1/epsilon) the true delta is then 0.24 at epsilon = 1.

Theorem. ``StabilityHistogram`` is (epsilon, delta)-DP for its kind of votes,
and no smaller delta holds. Proof, with b the noise scale and threshold
tau = 1 + b ln(1 / (2 delta)): a bin occupied on one side only has count 1
there, and shows with probability P(1 + Lap(b) > tau) = delta. Bins occupied on
both sides change by 1, at a cost of 1/b each. Add-remove: either one common
bin at cost epsilon, or one bin that shows with probability delta against
never. Moves: two common bins cost 2/b = epsilon together; one common bin costs
epsilon/2 beside one that shows with probability delta, and
``max(0, 1 - exp(epsilon/4) sqrt(1 - delta)) <= delta`` bounds the other
direction; with a lone bin on each side, both release nothing with the same probability.
Every case gives at most delta, a lone bin gives exactly delta. (Bun, Nissim
and Stemmer 2019, Theorem 3.5, with the constants of the case at hand.)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from streampca.errors import BadParameterError
from streampca.linalg.types import FloatArray, IntArray
from streampca.privacy.guarantee import Guarantee, gaussian_guarantee
from streampca.privacy.outlet import Counts, Outlet
from streampca.privacy.randomness import Draws, encoded

Votes = Literal["add-remove", "moves"]
Label = TypeVar("Label", bound=Hashable)

CITATION = "Bun, Nissim and Stemmer 2019, Theorem 3.5; Karwa and Vadhan 2017, Lemma 2.3"
#: Noise is rounded to this lattice before it is added: sums are exact, low bits hold no information.
GRID = 2.0**-20
_CHANGED_BINS: dict[str, int] = {"add-remove": 1, "moves": 2}


@dataclass(frozen=True)
class StabilityHistogram:
    """A histogram over unboundedly many bins by Laplace noise and a threshold.

    (epsilon, delta)-DP per vote, exactly; see the module's theorem.

    Parameters
    ----------
    epsilon : positive float.
    delta : float in (0, 0.5).
    votes : ``"add-remove"`` or ``"moves"``: how one neighbour changes the votes.
    """

    epsilon: float
    delta: float
    votes: Votes = "moves"

    def __post_init__(self) -> None:
        if not 0.0 < self.epsilon < math.inf:
            raise BadParameterError(f"epsilon={self.epsilon!r} must be a positive finite number, e.g. 1.0")
        if not 0.0 < self.delta < 0.5:
            raise BadParameterError(f"delta={self.delta!r} must be in (0, 0.5), e.g. 1e-6")
        _check_votes(self.votes)

    @property
    def scale(self) -> float:
        """Scale of the Laplace noise: the number of counts a neighbour changes, over epsilon."""
        return _CHANGED_BINS[self.votes] / self.epsilon

    @property
    def threshold(self) -> float:
        """Noisy counts above it are released: 1 + scale * ln(1 / (2 delta))."""
        return 1.0 + self.scale * math.log(0.5 / self.delta)

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta), tight; the unit is one vote."""
        return Guarantee(
            self.epsilon, self.delta, "add-remove" if self.votes == "add-remove" else "replace", "one histogram",
            "Laplace counts above 1 + b ln(1/2delta), tight", CITATION, unit="one vote",
        )  # fmt: skip

    def count_needed(self, failure: float) -> float:
        """The count at which a bin is released with probability at least 1 - failure."""
        if not 0.0 < failure <= 0.5:
            raise BadParameterError(f"failure={failure!r} must be a probability in (0, 0.5]")
        return self.threshold + self.scale * math.log(0.5 / failure)

    def noisy_counts(self, counts: npt.ArrayLike, outlet: Outlet, kind: str) -> FloatArray:
        """Noisy counts of bins, vectorised; ``-inf`` where the bin is not released.

        Parameters
        ----------
        counts : integers; empty bins (0) are never released.
        outlet, kind : adds the noise to the counts; the name of the release.
        """
        whole = _check_counts(counts)
        return self._shown(Counts(whole), outlet, kind)

    def release(self, labels: Iterable[Label], outlet: Outlet, kind: str) -> list[tuple[Label, float]]:
        """The popular bins and their noisy counts, largest first (the order follows from the counts).

        Parameters
        ----------
        labels : one label per vote, in any order: strings, numbers, bytes, or tuples of them.
        outlet, kind : adds the noise to the counts; the name of the release.
        """
        tally = {encoded(label): (label, count) for label, count in Counter(labels).items()}
        names = sorted(tally)
        counts = np.array([tally[name][1] for name in names], dtype=np.int64)
        noisy = self._shown(Counts(counts, encoded(*names), names=names), outlet, kind)
        shown = [(tally[name][0], float(count)) for name, count in zip(names, noisy, strict=True) if count > -math.inf]
        return sorted(shown, key=lambda pair: -pair[1])

    def winner(self, labels: Iterable[Label], outlet: Outlet, kind: str) -> Label | None:
        """The most popular released bin, or None if no bin is popular enough."""
        shown = self.release(labels, outlet, kind)
        return shown[0][0] if shown else None

    def _shown(self, exact: Counts, outlet: Outlet, kind: str) -> FloatArray:
        size, scale = exact.counts.size, self.scale
        noisy = outlet.release(kind, exact, lambda draws: _on_grid(scale * draws.laplace(size)), scale)
        return _above(exact.counts, noisy, self.threshold)


@dataclass(frozen=True)
class GaussianHistograms:
    """One histogram per coordinate, all at once, by Gaussian noise and a threshold.

    Every voter casts one vote in each of ``n_histograms`` histograms.

    Theorem. mu-GDP with ``delta`` added at every epsilon >= 5 delta. Counts
    common to both sides move by at most sqrt(c n) in Euclidean norm (c = 1 if
    votes are added or removed, 2 if they move); the noise has standard deviation
    sqrt(c n) / mu. At most n bins have a vote on one side only, and one vote there; each
    is released with probability delta / n, so that any of them is released with
    probability at most delta. Such bins of the other side, if not released,
    lower epsilon by no more than -ln(1 - delta/n) each, which is less than the shift that
    they no longer cause if delta <= epsilon / 5.

    Parameters
    ----------
    n_histograms : number of histograms that each voter votes in.
    mu : Gaussian-DP parameter of the counts.
    delta : probability that a bin of a single vote shows, over all histograms.
    votes : ``"add-remove"`` or ``"moves"``.
    """

    n_histograms: int
    mu: float
    delta: float
    votes: Votes = "moves"

    def __post_init__(self) -> None:
        if self.n_histograms < 1:
            raise BadParameterError(f"n_histograms={self.n_histograms!r} must be an integer of at least 1")
        if not 0.0 < self.mu < math.inf:
            raise BadParameterError(f"mu={self.mu!r} must be a positive finite number")
        if not 0.0 < self.delta < 0.5:
            raise BadParameterError(f"delta={self.delta!r} must be in (0, 0.5), e.g. 1e-6")
        _check_votes(self.votes)

    @property
    def std(self) -> float:
        """Standard deviation of the noise in each count."""
        return math.sqrt(_CHANGED_BINS[self.votes] * self.n_histograms) / self.mu

    @property
    def threshold(self) -> float:
        """Noisy counts above it are released: 1 + std * z, z the upper delta/n quantile."""
        return 1.0 - self.std * float(ndtri(self.delta / self.n_histograms))

    def guarantee(self, epsilon: float, delta: float) -> Guarantee:
        """The claim, stated at (epsilon, delta); the unit is one voter."""
        return gaussian_guarantee(
            self.mu, epsilon, delta, adjacency="add-remove" if self.votes == "add-remove" else "replace",
            scope="the histograms of one set of voters", theorem="Gaussian counts above a threshold",
            citation=CITATION, slack=self.delta,
        )  # fmt: skip

    def count_needed(self, failure: float) -> float:
        """The count at which a bin is released with probability at least 1 - failure."""
        if not 0.0 < failure <= 0.5:
            raise BadParameterError(f"failure={failure!r} must be a probability in (0, 0.5]")
        return self.threshold - self.std * float(ndtri(failure))

    def winners(self, counts: IntArray, outlet: Outlet, kind: str) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        """The most popular released bin of each histogram.

        Parameters
        ----------
        counts : (n_histograms, bins) integers: the votes for each bin of a
            public choice of bins. Votes for other bins are left out.
        outlet, kind : adds the noise to the counts; the name of the release.

        Returns
        -------
        winners : (n_histograms,) places of bins; 0 where none was released.
        found : (n_histograms,) False where no bin was popular enough.
        """
        whole = _check_counts(counts)
        if whole.ndim != 2 or whole.shape[0] != self.n_histograms:
            raise BadParameterError(f"counts of shape {whole.shape} given; ({self.n_histograms}, bins) expected")
        occupied = whole.nonzero()

        def draw(draws: Draws) -> FloatArray:
            noise = np.zeros(whole.shape)
            noise[occupied] = _on_grid(self.std * draws.normal(occupied[0].size))
            return noise

        table = _above(whole, outlet.release(kind, Counts(whole), draw, self.std), self.threshold)
        best = table.argmax(axis=1).astype(np.int64)
        found = table[np.arange(self.n_histograms), best] > -np.inf
        return np.where(found, best, 0), found


def _on_grid(noise: FloatArray) -> FloatArray:
    return np.rint(noise / GRID) * GRID


def _above(counts: IntArray, noisy: FloatArray, threshold: float) -> FloatArray:
    """Noisy counts, exact on their lattice; -inf where the count is 0, or the sum not above the threshold.

    Half a lattice step is added to the threshold, so that rounding never shows
    a bin whose unrounded noisy count would have stayed hidden.
    """
    return np.where((counts > 0) & (noisy > threshold + 0.5 * GRID), noisy, -np.inf)


def _check_votes(votes: str) -> None:
    if votes not in _CHANGED_BINS:
        raise BadParameterError(
            f"votes={votes!r} must be 'add-remove' (one vote appears) or 'moves' (one changes its bin)"
        )


def _check_counts(counts: npt.ArrayLike) -> IntArray:
    given = np.asarray(counts)
    if given.size and not (np.issubdtype(given.dtype, np.integer) and int(given.min()) >= 0):
        raise BadParameterError("counts must be integers of at least 0")
    return np.ascontiguousarray(given, dtype=np.int64)
