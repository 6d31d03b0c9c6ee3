"""The window by a private spectral histogram: memory that does not grow with the window."""

from __future__ import annotations

import math
from typing import Any

from streampca.linalg.lattice import GramAccumulator
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray
from streampca.linalg.words import Words, noisy
from streampca.prefix_sums.window import StationaryBLT
from streampca.privacy.randomness import NoiseStream
from streampca.processors.sketched_histogram import SketchedHistogram
from streampca.processors.spectral_histogram import SpectralHistogram
from streampca.processors.window_engine import WindowEngine, WindowView


class HistogramEngine(WindowEngine):
    """Private prefix sums, and their spectral histogram as post-processing.

    Parameters
    ----------
    mechanism : noise for prefix sums, one leaf an input.
    histogram : which starts to remember.
    leaf, mark_every : rows in a leaf; rows between checkpoints.
    noise : where the randomness comes from.
    """

    def __init__(
        self, mechanism: StationaryBLT, histogram: SpectralHistogram, leaf: int, mark_every: int, noise: NoiseStream
    ) -> None:
        self.histogram = histogram
        self._mechanism, self._leaf, self._mark_every = mechanism, leaf, mark_every
        self.gram = GramAccumulator(histogram.n_features)
        self._noise = mechanism.start(svec_size(histogram.n_features), noise)
        # A prefix has at least the noise of a difference over a single leaf.
        self._least_std = mechanism.difference_std(1, 1)

    def add(self, rows: FloatArray) -> None:
        """Take admitted rows, all of one leaf."""
        self.gram.add(rows)

    def look(self, t: int) -> WindowView:
        """Close the leaf that ends at row t; K(1), the private Gram matrix since the oldest checkpoint."""
        histogram = self.histogram
        histogram.advance(t, self._private_sum())
        first = histogram.starts[0]
        packed = histogram.view(0)
        std: float | None = self._mechanism.difference_std(t // self._leaf, (t - first + 1) // self._leaf)
        details: dict[str, Any] = {"window": [first, t], "checkpoints": len(histogram.starts)}
        if isinstance(histogram, SketchedHistogram):
            details["sketch_error"] = histogram.error
            std = std if histogram.error == 0.0 else None
        if t % self._mark_every == 0:
            histogram.mark(t)
        return WindowView(packed, std, first, details)

    def _private_sum(self) -> Words:
        return noisy(self.gram.words(), self._noise.advance(), self.histogram.n_features, self._least_std)

    @property
    def nbytes(self) -> int:
        """Bytes held for the exact sum and the checkpoints."""
        return self.histogram.nbytes + 16 * svec_size(self.histogram.n_features) + 8 * self.histogram.n_features**2

    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the rows."""
        return {"gram": self.gram.state(), "noise": self._noise.state(), "histogram": self.histogram.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.gram.restore(state["gram"])
        self._noise.restore(state["noise"])
        self.histogram.restore(state["histogram"])


def noise_norm(std: float, n_features: int, comparisons: float, failure_rate: float) -> float:
    """Bound on the spectral norms of many svec-GOE(std) matrices at once, but for a failure rate.

    The largest eigenvalue has mean at most std sqrt(2 d) (Slepian) and is a
    Lipschitz function of the noise with constant 1, so it exceeds its mean by
    std u with probability at most exp(-u**2 / 2); both ends of the spectrum count.
    """
    return std * (math.sqrt(2.0 * n_features) + math.sqrt(2.0 * math.log(2.0 * comparisons / failure_rate)))
