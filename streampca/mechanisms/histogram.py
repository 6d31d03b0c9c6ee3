"""Stability histograms: the popular bins among infinitely many, privately.

Only occupied bins get noise, and a bin is released only if its noisy count exceeds a threshold, so that a bin of a
single vote is released with probability delta at most. It is for votes that *move*, and has Laplace noise.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.lattice import coarsen
from streampca.linalg.types import FloatArray, IntArray
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import Counts, Outlet
from streampca.privacy.randomness import encoded

Label = TypeVar("Label", bound=Hashable)

CITATION = "Bun, Nissim and Stemmer 2019, Theorem 3.5; Karwa and Vadhan 2017, Lemma 2.3"
#: Noise is rounded to this lattice before it is added: sums are exact.
GRID = 2.0**-20


@dataclass(frozen=True)
class StabilityHistogram:
    """A histogram over unboundedly many bins by Laplace noise and a threshold, for votes that move.

    A neighbor moves one vote to another bin. The votes of subsamples move even when a row is only zeroed out: with
    noise for a vote that appears or vanishes, Lap(1/epsilon), the true delta would be 0.24 at epsilon = 1.

    *Theorem.* (epsilon, delta)-DP per vote, delta in (0, 0.5), and no smaller delta holds.

    *Proof.* Let b = 2 / epsilon be the scale of the noise and 1 + b ln(1 / (2 delta)) the threshold. A bin occupied on
    one side only has count 1 there, and shows with probability P(1 + Lap(b) > threshold) = delta. Bins occupied on both
    sides change by 1, at a cost of 1/b each. So two common bins cost 2/b = epsilon together; one common bin costs
    epsilon/2 beside one that shows with probability delta, and ``max(0, 1 - exp(epsilon/4) sqrt(1 - delta)) <= delta``
    bounds the other direction; with a lone bin on each side, both release nothing with the same probability. A lone bin
    gives exactly delta. (Bun, Nissim and Stemmer 2019, Theorem 3.5, with the constants of this case.)
    """

    epsilon: float
    delta: float
    scale: float = field(init=False, repr=False, compare=False)  # of the Laplace noise: two counts change
    threshold: float = field(init=False, repr=False, compare=False)  # noisy counts above it are released
    guarantee: Guarantee = field(init=False, repr=False, compare=False)  # (epsilon, delta), tight, for one vote

    def __post_init__(self) -> None:
        if not 0.0 < self.epsilon < math.inf:
            raise BadParameterError("epsilon", self.epsilon, "a positive finite number, e.g. 1.0")
        if not 0.0 < self.delta < 0.5:
            raise BadParameterError("delta", self.delta, "a number in (0, 0.5), e.g. 1e-6")
        scale = 2.0 / self.epsilon
        theorem = "Laplace counts above 1 + b ln(1/2delta), tight"
        claim = Guarantee(self.epsilon, self.delta, "replace", "one histogram", theorem, CITATION, unit="one vote")
        vars(self).update(scale=scale, threshold=1.0 + scale * math.log(0.5 / self.delta), guarantee=claim)

    def count_needed(self, failure: float) -> float:
        """Return the count at which a bin is released with probability at least 1 - failure, for failure up to 1/2."""
        return self.threshold + self.scale * math.log(0.5 / failure)

    def shown(self, exact: Counts, outlet: Outlet, kind: str) -> FloatArray:
        """Release noisy counts of bins, rounded by `coarsen`; ``-inf`` where a bin is empty or hidden."""
        # Only occupied bins have noise: an empty one is never shown, so its noise would decide nothing.
        size, scale = exact.counts.size, self.scale
        noisy = outlet.release(kind, exact, lambda draws: np.rint(scale * draws.laplace(size) / GRID) * GRID, scale)
        return coarsen(_above(exact.counts, noisy, self.threshold), scale)

    def release(self, labels: Iterable[Label], outlet: Outlet, kind: str) -> list[tuple[Label, float]]:
        """Return the popular bins and their noisy counts, largest first, from one label per vote in any order."""
        # Sorted by their encoding: the order of the votes must not show, nor select noise.
        tally = {encoded(label): (label, count) for label, count in Counter(labels).items()}
        names = sorted(tally)
        counts = np.array([tally[name][1] for name in names], dtype=np.int64)
        noisy = self.shown(Counts(counts, encoded(*names), names=names), outlet, kind)
        shown = [(tally[name][0], float(count)) for name, count in zip(names, noisy, strict=True) if count > -math.inf]
        return sorted(shown, key=lambda pair: -pair[1])


def _above(counts: IntArray, noisy: FloatArray, threshold: float) -> FloatArray:
    """Return noisy counts, exact on their lattice; -inf where the count is 0, or the sum not above the threshold."""
    # Half a lattice step more: rounding never shows a bin whose unrounded noisy count would have stayed hidden.
    return np.where((counts > 0) & (noisy > threshold + 0.5 * GRID), noisy, -np.inf)
