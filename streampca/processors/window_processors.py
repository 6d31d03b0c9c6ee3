"""Where a run of `SlidingWindowPCA` stands: one processor for each way to follow a window.

A step works on a fresh copy of the processor, which nobody else sees before it
is complete.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from streampca.errors import BadParameter, NoRelease
from streampca.linalg.fading import FadingSum
from streampca.linalg.lattice import STEP, GramSum
from streampca.linalg.memory import Recent
from streampca.linalg.parts import GramInParts
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.processors.base import Processor, chain_restored, chain_snapshot
from streampca.processors.spectral_histogram import SpectralHistogram
from streampca.release import Release, Terms

if TYPE_CHECKING:
    from streampca.processors.sliding_window import SlidingWindowPCA


class View(NamedTuple):
    """One private look at the window.

    Attributes
    ----------
    packed : packed entries of the private Gram matrix.
    std : sd of a diagonal entry of its noise, or None if that is not the noise's law.
    first : first row it covers.
    details : further publishable facts for the release.
    """

    packed: FloatArray
    std: float | None
    first: int
    details: Mapping[str, Any] = {}


class WindowProcessor(Processor):
    """What the ways to follow a window share.

    Attributes
    ----------
    covered : first and last row of the latest released matrix, or None.
    """

    __slots__ = ("covered",)

    algorithm: SlidingWindowPCA

    def __init__(self, algorithm: SlidingWindowPCA, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(algorithm, n_features, source, terms, source.first, 0)
        self.covered: tuple[int, int] | None = None
        self.begin()

    # -- what a way to follow the window provides: called on a fresh copy -------------

    @abstractmethod
    def begin(self) -> None:
        """Hold nothing yet."""

    @abstractmethod
    def take(self, rows: FloatArray) -> None:
        """Take admitted rows, all of one leaf; t counts them already."""

    @abstractmethod
    def close(self, outlet: Outlet) -> View:
        """Close the leaf that ends at row t; the window's private Gram matrix."""

    @abstractmethod
    def held(self) -> dict[str, Any]:
        """The part of the snapshot that is of this way's own."""

    @abstractmethod
    def hold(self, snapshot: Mapping[str, Any]) -> None:
        """Take what `held` gave."""

    @property
    @abstractmethod
    def memory(self) -> int:
        """Bytes held for rows, sums and checkpoints; noise apart."""

    # -- what all share ---------------------------------------------------------------

    @property
    def rows_until_release(self) -> int:
        """Rows until the next release; 0 once a one-time release is made."""
        left, every = self.rows_left, self.algorithm.release_every
        return every - self.t % every if left is None else left

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        """Take rows of one leaf; release the window if the leaf ends with them."""
        ends = rows.shape[0] == self.rows_until_release
        after = copy.copy(self)
        after.t += rows.shape[0]
        after.take(rows)
        if not ends:
            return after, None
        view = after.close(outlet)
        after.chain, after.covered = outlet.chain, (view.first, after.t)
        release = Release(
            t=after.t,
            n_components=self.algorithm.n_components,
            terms=self.terms,
            packed_gram=view.packed,
            noise_std=view.std,
            details={"window": [view.first, after.t], **view.details},
        )
        return after, release

    def snapshot(self) -> dict[str, Any]:
        """Plain values and arrays from which the processor is made again. As secret as the rows."""
        covered = None if self.covered is None else list(self.covered)
        return {"t": self.t, "chain": chain_snapshot(self.chain), "covered": covered, **self.held()}

    def restored(self, snapshot: Mapping[str, Any]) -> Self:
        """The processor of a snapshot of the same run."""
        made, covered = copy.copy(self), snapshot["covered"]
        made.t = int(snapshot["t"])
        made.chain = chain_restored(snapshot["chain"])
        made.covered = None if covered is None else (int(covered[0]), int(covered[1]))
        made.hold(snapshot)
        return made

    # -- what may be read off -----------------------------------------------------------

    @property
    def window_bounds(self) -> tuple[int, int]:
        """First and last row that the latest released matrix covers (fading, with ``"forgetting"``). Publishable."""
        if self.covered is None:
            raise NoRelease("nothing has been released yet, so there is no window")
        return self.covered

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """First rows of the sums that the histogram keeps, ascending. Publishable: post-processing."""
        raise BadParameter(f"checkpoints is for method='histogram'; this is {self.algorithm.method!r}")

    @property
    def sketch_error(self) -> float:
        """Bound on the spectral norm of what truncation cost the latest sum; 0 without `sketch_rank`. Publishable."""
        raise BadParameter(f"sketch_error is for method='histogram'; this is {self.algorithm.method!r}")

    def noise_std(self, t: int) -> float:
        """`SlidingWindowPCA.noise_std`."""
        return self.algorithm.noise_std(t)

    @property
    def multiplicative_error(self) -> float:
        """`SlidingWindowPCA.multiplicative_error`."""
        return self.algorithm.multiplicative_error

    @property
    def additive_error(self) -> float:
        """`SlidingWindowPCA.additive_error` for these features, and what truncation cost."""
        return self.algorithm.additive_error(self.n_features)


class HistogramProcessor(WindowProcessor):
    """Private prefix sums, and their spectral histogram as post-processing.

    Attributes
    ----------
    gram : the exact sum of all rows.
    noise : the noise of the latest private sum.
    histogram : the checkpoints. Post-processing of private sums.
    """

    __slots__ = ("gram", "histogram", "noise")

    def begin(self) -> None:
        """Hold nothing yet."""
        self.gram = GramSum(self.n_features)
        self.noise = self.algorithm.prefix_noise.start(svec_size(self.n_features))
        self.histogram = SpectralHistogram.first(self.algorithm.rules(self.n_features))

    def take(self, rows: FloatArray) -> None:
        """Take admitted rows, all of one leaf."""
        self.gram = self.gram.add(rows)

    def close(self, outlet: Outlet) -> View:
        """K(1), the private Gram matrix since the oldest checkpoint."""
        algorithm, t = self.algorithm, self.t
        mechanism, every = algorithm.prefix_noise, algorithm.release_every
        self.noise, now = outlet.running("prefix", GramInParts(self.gram), self.noise, algorithm.prefix_grid)
        histogram = self.histogram.advanced(t, now)
        self.histogram = histogram.marked(t) if t % algorithm.mark_every == 0 else histogram
        first, details = histogram.starts[0], {"checkpoints": len(histogram.starts)}
        std: float | None = mechanism.difference_std(t // every, (t - first + 1) // every)
        if algorithm.sketch_rank is None:
            return View(histogram.view(0), std, first, details)
        error = histogram.error
        return View(histogram.view(0), None if error else std, first, {**details, "sketch_error": error})

    def held(self) -> dict[str, Any]:
        """The part of the snapshot that is of this way's own."""
        return {
            "gram": self.gram.snapshot(),
            "noise": self.noise.snapshot(),
            "histogram": self.histogram.snapshot(),
        }

    def hold(self, snapshot: Mapping[str, Any]) -> None:
        """Take what `held` gave."""
        size = svec_size(self.n_features)
        self.gram = GramSum.restored(self.n_features, snapshot["gram"])
        self.noise = self.algorithm.prefix_noise.restore(size, snapshot["noise"], self.source)
        self.histogram = SpectralHistogram.restored(self.histogram.rules, snapshot["histogram"])

    def curator_gram(self) -> GramSum:
        """The exact Gram matrix of all rows absorbed. Curator only."""
        return self.gram

    @property
    def memory(self) -> int:
        """Bytes held for the exact sum and the checkpoints."""
        return self.histogram.nbytes + self.gram.parts.nbytes

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """First rows of the sums that are kept, ascending. Publishable: post-processing."""
        return self.histogram.starts

    @property
    def sketch_error(self) -> float:
        """Bound on the spectral norm of what truncation cost the latest sum; 0 without `sketch_rank`. Publishable."""
        return self.histogram.error

    @property
    def additive_error(self) -> float:
        """`SlidingWindowPCA.additive_error` for these features, and what truncation cost."""
        return super().additive_error + self.sketch_error


class RingProcessor(WindowProcessor):
    """Exact expiry: what leaves the window is subtracted again. Noise of a lagged twin.

    Attributes
    ----------
    window : an exact sum: at the end of a leaf, of the window.
    ring : what will be subtracted.
    noise : the noise of the latest private sum.
    """

    __slots__ = ("noise", "ring", "window")

    ring: Recent

    def begin(self) -> None:
        """Hold nothing yet."""
        self.window = GramSum(self.n_features)
        self.noise = self.algorithm.ring_noise.start(svec_size(self.n_features), self.source)

    @abstractmethod
    def _shift(self) -> None:
        """Close the leaf: the window ends with it."""

    def close(self, outlet: Outlet) -> View:
        """The private Gram matrix of exactly the window."""
        self._shift()
        std = self.algorithm.ring_noise.std(self.noise.n + 1)
        self.noise, packed = outlet.running("window", self.window, self.noise, std)
        return View(packed, std, max(1, self.t - self.algorithm.window + 1))

    def held(self) -> dict[str, Any]:
        """The part of the snapshot that is of this way's own."""
        return {
            "window": self.window.snapshot(),
            "ring": {"n": self.ring.n, "latest": self.ring.latest()},
            "noise": self.noise.snapshot(),
        }

    def hold(self, snapshot: Mapping[str, Any]) -> None:
        """Take what `held` gave."""
        size, ring = svec_size(self.n_features), snapshot["ring"]
        self.window = GramSum.restored(self.n_features, snapshot["window"])
        self.ring = Recent.restored(self.ring.length, int(ring["n"]), ring["latest"])
        self.noise = self.algorithm.ring_noise.restore(size, snapshot["noise"], self.source)

    @property
    def memory(self) -> int:
        """Bytes held for the ring and the exact sums."""
        return self.ring.nbytes + self.window.parts.nbytes


class RowRingProcessor(RingProcessor):
    """A ring of rows, as 32-bit integers: rows are multiples of 2**-20 in [-1, 1]."""

    __slots__ = ()

    def begin(self) -> None:
        """Hold nothing yet."""
        super().begin()
        # The leaf that leaves is read when the one that comes is complete.
        self.ring = Recent(self.algorithm.window + self.algorithm.release_every, (self.n_features,), np.int32)

    def take(self, rows: FloatArray) -> None:
        """Take admitted rows, all of one leaf."""
        self.window = self.window.add(rows)
        self.ring = self.ring.extend((rows * (1.0 / STEP)).astype(np.int32))

    def _shift(self) -> None:
        last = self.t - self.algorithm.window
        if last > 0:
            rows = self.ring.between(last - self.algorithm.release_every + 1, last)
            self.window = _less(self.window, GramSum.of(rows * STEP))


class SumRingProcessor(RingProcessor):
    """A ring of the exact sums of leaves, in two parts each.

    Attributes
    ----------
    leaf : the exact sum of the open leaf.
    """

    __slots__ = ("leaf",)

    def begin(self) -> None:
        """Hold nothing yet."""
        super().begin()
        self.leaf = GramSum(self.n_features)
        self.ring = Recent(self.algorithm.leaves, (2, svec_size(self.n_features)), np.float64)

    def take(self, rows: FloatArray) -> None:
        """Take admitted rows, all of one leaf."""
        self.leaf = self.leaf.add(rows)

    def _shift(self) -> None:
        self.window = self.window.add_words(*self.leaf.words())
        leaving = self.ring.n + 1 - self.algorithm.leaves
        if leaving > 0:
            self.window = _less(self.window, GramSum(self.n_features, self.ring.item(leaving)))
        self.ring = self.ring.append(self.leaf.parts)
        self.leaf = GramSum(self.n_features)

    def held(self) -> dict[str, Any]:
        """The part of the snapshot that is of this way's own."""
        return {**super().held(), "leaf": self.leaf.snapshot()}

    def hold(self, snapshot: Mapping[str, Any]) -> None:
        """Take what `held` gave."""
        super().hold(snapshot)
        self.leaf = GramSum.restored(self.n_features, snapshot["leaf"])

    @property
    def memory(self) -> int:
        """Bytes held for the ring and the exact sums."""
        return super().memory + self.leaf.parts.nbytes


def _less(total: GramSum, leaving: GramSum) -> GramSum:
    """A sum without one that is part of it."""
    rest = total.parts[1] - leaving.parts[1]
    whole = np.floor(rest)
    return GramSum(total.n_features, np.array([total.parts[0] - leaving.parts[0] + whole, rest - whole]))


class ForgettingProcessor(WindowProcessor):
    """The sum fades by 1 - b/W at every leaf: two matrices of memory, the least noise.

    Attributes
    ----------
    fading : the exact fading sum of the closed leaves.
    leaf : the exact sum of the open leaf.
    noise : the noise of the latest private sum.
    """

    __slots__ = ("fading", "leaf", "noise")

    def begin(self) -> None:
        """Hold nothing yet."""
        self.fading, self.leaf = FadingSum(self.n_features), GramSum(self.n_features)
        self.noise = self.algorithm.fading_noise.start(svec_size(self.n_features))

    def take(self, rows: FloatArray) -> None:
        """Take admitted rows, all of one leaf."""
        self.leaf = self.leaf.add(rows)

    def close(self, outlet: Outlet) -> View:
        """The private fading Gram matrix."""
        mechanism = self.algorithm.fading_noise
        self.fading = self.fading.after(self.leaf, mechanism.memory)
        self.leaf = GramSum(self.n_features)
        std = mechanism.std(self.noise.n + 1)
        self.noise, packed = outlet.running("fading", self.fading, self.noise, std)
        return View(packed, std, 1, {"decay_per_release": mechanism.decay})

    def held(self) -> dict[str, Any]:
        """The part of the snapshot that is of this way's own."""
        return {"fading": self.fading.parts, "leaf": self.leaf.snapshot(), "noise": self.noise.snapshot()}

    def hold(self, snapshot: Mapping[str, Any]) -> None:
        """Take what `held` gave."""
        size = svec_size(self.n_features)
        self.fading = FadingSum(self.n_features, snapshot["fading"])
        self.leaf = GramSum.restored(self.n_features, snapshot["leaf"])
        self.noise = self.algorithm.fading_noise.restore(size, snapshot["noise"], self.source)

    @property
    def memory(self) -> int:
        """Bytes held for the sums."""
        return self.fading.parts.nbytes + self.leaf.parts.nbytes


class OnceProcessor(WindowProcessor):
    """Adds up the last rows before a known end; one Gaussian mechanism, nothing composes.

    The start of the window is public arithmetic on public numbers; it is never picked by looking at data.

    Attributes
    ----------
    gram : the exact sum of the window's rows.
    """

    __slots__ = ("gram",)

    def begin(self) -> None:
        """Hold nothing yet."""
        self.gram = GramSum(self.n_features)

    @property
    def _first(self) -> int:
        return max(1, self.t + (self.rows_left or 0) - self.algorithm.window + 1)

    def take(self, rows: FloatArray) -> None:
        """Rows before the window are passed over."""
        within = min(self.t - self._first + 1, rows.shape[0])
        if within > 0:
            self.gram = self.gram.add(rows[-within:])

    def close(self, outlet: Outlet) -> View:
        """Close the leaf; the window's private Gram matrix."""
        sigma = self.algorithm.sigma
        return View(outlet.gram("window", self.gram, svec_size(self.n_features), sigma), sigma, self._first)

    def held(self) -> dict[str, Any]:
        """The part of the snapshot that is of this way's own."""
        return {"gram": self.gram.snapshot()}

    def hold(self, snapshot: Mapping[str, Any]) -> None:
        """Take what `held` gave."""
        self.gram = GramSum.restored(self.n_features, snapshot["gram"])

    @property
    def memory(self) -> int:
        """Bytes held for the sum."""
        return self.gram.parts.nbytes
