"""Private PCA of the last W rows of an endless stream, with a processor for each method to follow the window."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from streampca.errors import BadParameterError, UsageError
from streampca.linalg.counts import check_count, check_share
from streampca.linalg.lattice import LONGEST, ROUNDING, STEP, FadingSum, GramInParts, GramSum, difference, sum_of_rows
from streampca.linalg.memory import Recent
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray, IntArray
from streampca.matrix_factorization.base import DMRST22
from streampca.matrix_factorization.smoothing import MOST_LEAVES, WindowSmoothing
from streampca.matrix_factorization.window import ForgettingBLT, StationaryBLT, WindowDifference
from streampca.privacy.budget import DELTA, Adjacency
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.privacy.unit import Person
from streampca.processors.base import RELEASE_EVERY, Algorithm, Processor
from streampca.processors.spectral_histogram import Rules, SpectralHistogram
from streampca.release.release import Release
from streampca.release.terms import Terms, gram_fields

BLT24 = "Dvijotham, McMahan, Pillutla, Steinke, Thakurta, FOCS 2024 (buffered linear Toeplitz)"
#: Exact packed sum of rows, as `GramSum.high_low`.
Exactly = tuple[IntArray, IntArray]
UU21 = "Upadhyay, Upadhyay, ICML 2021 (spectral histogram; its printed mechanism is not used)"


@dataclass(frozen=True, kw_only=True)
class SlidingWindowPCA(Algorithm):
    """A private subspace of the last W rows, after every b rows of an endless stream.

    Parameters
    ----------
    window : rows in the window, W. With a calendar, a number of periods or a duration, such as ``"30d"``.
    n_components : dimension of the subspace, k.
    epsilon, delta : privacy budget per row for all releases together.
    eta : for ``"histogram"``: checkpoints are dropped when they agree within a factor 1 - eta/2.
    method : the method that follows the window.

        * ``"auto"``: ``"smoothed"`` if the window is at most 100 whole groups of ``release_every`` rows and
          ``checkpoint_every`` is None, ``"histogram"`` otherwise. The attribute holds which of the two.
        * ``"histogram"``: private running sums and a spectral histogram of them. Memory grows with log W. Covers the
          window and a few rows more (``release.details["window"]``).
        * ``"ring"``: exactly the window, with the same noise. Holds W rows, or the Gram matrices of their leaves.
        * ``"smoothed"``: the releases of ``"ring"``, with subspaces of an estimate of the window from the releases
          over two windows (`Release.smoothed`). Less error where rows change slowly, with some lag. At most 100
          releases a window.
        * ``"forgetting"``: the weight of rows falls by 1 - b/W a release. 30 % less noise and two matrices of memory,
          but old rows keep some weight.
    adjacency : ``"zero-out"`` (one row against the zero row) or ``"replace"``.
    release_every : rows between releases, b. Noise and running time decrease as b increases. If None, 100, or the next
        number of rows that the window and the method allow; with ``"auto"`` at most 100. Or the period of a calendar,
        as for `PrivateFPL`.
    checkpoint_every : for ``"histogram"``: rows between checkpoints, a multiple of ``release_every``. None uses the
        number of rows that move the Gram matrix by less than its noise.
    overhang : for ``"histogram"``: largest number of rows before the window that a release covers, as a share of the
        window. About 1 / overhang more checkpoints are kept.
    failure_rate : probability, at any one time, that `additive_error` is exceeded. The guarantee does not depend on it.
    center : release Gram matrices about the mean of the window, as `PrivateFPL` does: 12.5 % more noise. None means
        True. `additive_error` and `noise_bound` are then of the matrix before the mean is subtracted.
    unit : as for `PrivateFPL`. Rows that leave the window still count: earlier releases hold them.

    Notes
    -----
    *Guarantee.* One row changes one input of a matrix mechanism by at most 1 in Euclidean norm (zero-out) or sqrt(2)
    (replace). Each mechanism is mu-GDP over the endless sequence and for adaptive rows
    (`streampca.matrix_factorization.window`, `forgetting`), with mu solved exactly from (epsilon, delta). The choice of
    checkpoints and every subspace are computed from private sums, so they are post-processing.

    *Accuracy of the histogram.* Let z bound the noise of sums since a checkpoint, and f that of the rows between two,
    each at a quantile of failure_rate over all comparisons of two windows. Then, with S_W the exact Gram matrix of the
    window and probability 1 - failure_rate at any one time,

        S_W - z I <= gram <= (1 - eta/2)**-1 (S_W + (2 f + 1.5 eta z) I) + z I.

    Proof, number of checkpoints, and why the algorithms of the paper are not private: ``docs/theory/uu21.md``.
    """

    window: Any  # rows or periods; a duration is converted
    n_components: int
    epsilon: float
    delta: float = DELTA
    eta: float = 0.25
    method: Literal["auto", "histogram", "ring", "smoothed", "forgetting"] = "auto"
    adjacency: Adjacency = "zero-out"
    release_every: Any = None  # None is resolved by `__post_init__`
    checkpoint_every: int | None = None
    overhang: float = 0.125
    failure_rate: float = 0.01
    center: bool = None  # type: ignore[assignment]  # None is resolved by `Configuration`
    unit: Person | None = None  # a text is resolved, too
    #: Releases in a window, rounded up.
    leaves: int = field(init=False, repr=False, compare=False)
    #: Relative error by which the released matrix may exceed the window's; see `additive_error`.
    multiplicative_error: float = field(init=False, repr=False, compare=False)
    mechanism: Any = field(init=False, repr=False, compare=False)  # matrix factorization of all releases together
    processor: type[WindowProcessor] = field(init=False, repr=False, compare=False)  # type: ignore[misc]

    scope = "all releases of an endless stream"
    square_bytes = 85.0
    absorbs_periods = completes = can_count_cells = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("eta", self.eta)
        check_share("failure_rate", self.failure_rate)
        if self.overhang != 1.0:
            check_share("overhang", self.overhang)
        if self.method not in ("auto", *METHODS):
            raise BadParameterError("method", self.method, f"'auto' or one of {', '.join(map(repr, METHODS))}")
        if self.method == "auto":
            # Resolved once, like `center`: the attribute is the method that runs.
            method, given = "ring", vars(self)["release_every"]
            # Smoothing and checkpoints are models of the number of rows, which a calendar keeps private.
            if not self.has_calendar:
                every, most = given or _rows_between(self.window, "smoothed"), given or RELEASE_EVERY
                fits = every <= most and self.window % every == 0 and self.window <= every * MOST_LEAVES
                method = "smoothed" if fits and self.checkpoint_every is None else "histogram"
            object.__setattr__(self, "method", method)
        if self.has_calendar and self.method in ("smoothed", "histogram"):
            given = f"method={self.method!r}, release_every={self.release_every!r}"
            raise UsageError(f"{given}: use 'ring' or 'forgetting'")
        if vars(self)["release_every"] is None:
            object.__setattr__(self, "release_every", _rows_between(self.window, self.method))
        object.__setattr__(self, "leaves", -(-self.window // self.every))
        processor = METHODS[self.method]
        processor.check_parameters(self)
        sensitivity = self.unit_sensitivity + processor.rounding
        vars(self).update(
            processor=processor, theorem=processor.theorem, citation=processor.citation,
            mechanism=processor.factorization(self.leaves, self.mu, sensitivity),
            multiplicative_error=1.0 / (1.0 - self.eta / 2.0) - 1.0 if self.method == "histogram" else 0.0,
            square_bytes=150.0 + 25.0 * self.leaves if self.method == "smoothed" else self.square_bytes,
        )  # fmt: skip

    def products(self, inputs: IntArray, n: int) -> FloatArray:
        return np.asarray(self.mechanism.products(inputs, n))

    def noise_std(self, t: int) -> float:
        """Standard deviation of a diagonal entry of the noise in the latest released Gram matrix after t rows.

        In units of row_norm**2. For ``"histogram"`` it assumes that the oldest checkpoint is at the start of the
        window; `Release.noise_std` uses its actual place. `BadParameterError` if nothing has been released.
        """
        check_count("t", t)
        if t < self.every:
            raise BadParameterError("t", t, f"at least {self.every}, the row of the first release")
        return self.processor.std(self, t // self.every)

    def constants(self, n_features: int) -> tuple[object, ...]:
        numbers = self.mu, self.unit_sensitivity, self.noise_bound(n_features)
        return *numbers, *self.processor.constants(self, n_features), *self.mechanism.constants()

    def noise_bound(self, n_features: int) -> float:
        """Bound on the spectral norm of the noise in a release and its checkpoints; see ``failure_rate``."""
        return self.processor.noise_bound(self, n_features)

    def additive_error(self, n_features: int) -> float:
        """Return the a of ``S - a I <= gram <= (1 + multiplicative_error) S + a I``, in units of row_norm**2.

        S is the exact Gram matrix of the window (of the fading sum, with ``"forgetting"``); see ``failure_rate``.
        """
        return self.processor.additive_error(self, n_features)

    def norm(self, std: float, n_features: int, comparisons: float = 1.0) -> float:
        """Bound on the spectral norms of ``comparisons`` svec-GOE(std) matrices together, but for the failure rate."""
        # The largest eigenvalue has mean at most std sqrt(2 d) (Slepian) and is a Lipschitz function of the noise with
        # constant 1, so it exceeds its mean by std u with probability at most exp(-u**2 / 2). The union bound covers
        # both ends of each spectrum.
        tail = math.sqrt(2.0 * math.log(2.0 * comparisons / self.failure_rate))
        return std * (math.sqrt(2.0 * n_features) + tail)


def _rows_between(window: int, method: str) -> int:
    """Return the default number of rows between releases: at most 100 if the method allows it."""
    if method == "histogram":
        return min(RELEASE_EVERY, window)
    # The other methods divide the window into whole leaves, and ``"smoothed"`` into at most `MOST_LEAVES`.
    least = -(-window // MOST_LEAVES) if method == "smoothed" else 1
    fitting = [every for every in range(least, RELEASE_EVERY + 1) if window % every == 0]
    return fitting[-1] if fitting else next(every for every in range(least, window + 1) if window % every == 0)


class View(NamedTuple):
    """The content of one release."""

    packed: FloatArray  # entries of the private Gram matrix
    std: float  # of a diagonal entry of its noise
    first: int  # first row it covers
    details: Mapping[str, Any] = {}  # further publishable facts
    smoothed: FloatArray | None = None  # packed estimate of the exact Gram matrix
    weight: float | None = None  # sum of the weights of its rows, where these are not 1


class WindowProcessor(Processor):
    """State of a run of `SlidingWindowPCA`: the exact sums, and the noise of the latest private sum.

    Class attributes and class methods define the checks, noise and accuracy of one ``method``.
    """

    __slots__ = ("noise",)
    kept: ClassVar[tuple[str, ...]] = ("noise",)

    factorization: ClassVar[Any]  # class of the mechanism, of (leaves, mu, sensitivity)
    rounding: ClassVar[float] = 0.0  # of the sums, which adds to their sensitivity
    longest: ClassVar[float] = math.inf  # window whose sums fit the integers of the method, in rows
    theorem: ClassVar[str]
    citation: ClassVar[str] = f"{DMRST22}; {BLT24}"

    algorithm: SlidingWindowPCA

    @classmethod
    def check_parameters(cls, algorithm: SlidingWindowPCA) -> None:
        """Raise `BadParameterError` if parameters do not go together."""
        window, every, given = algorithm.window, algorithm.every, f"with method={algorithm.method!r}"
        if algorithm.checkpoint_every is not None:
            raise BadParameterError("checkpoint_every", algorithm.checkpoint_every, f"None {given}")
        if window % every:
            raise BadParameterError("window", window, f"a multiple of release_every={every} {given}")
        if window > cls.longest:
            raise BadParameterError("window", window, f"at most {cls.longest} {given}")

    @classmethod
    def std(cls, algorithm: SlidingWindowPCA, n: int) -> float:
        """Standard deviation of a diagonal entry of the noise in release n."""
        return float(algorithm.mechanism.std(n))

    @classmethod
    def noise_bound(cls, algorithm: SlidingWindowPCA, n_features: int) -> float:
        """Bound on the spectral norm of the noise in a release and in the sums that determine it."""
        return algorithm.norm(algorithm.mechanism.limit_std, n_features)

    @classmethod
    def additive_error(cls, algorithm: SlidingWindowPCA, n_features: int) -> float:
        """Absolute error of the released matrix against the window's."""
        return cls.noise_bound(algorithm, n_features)

    @classmethod
    def constants(cls, algorithm: SlidingWindowPCA, n_features: int) -> tuple[object, ...]:
        """Numbers that releases depend on, beyond those of the mechanism and `noise_bound`."""
        return ()

    def __init__(self, algorithm: SlidingWindowPCA, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(algorithm, n_features, source, terms)
        self.noise: Any = algorithm.mechanism.start(svec_size(n_features) + self.further, source)
        self.begin()

    @property
    def empty(self) -> GramSum:
        """The sum of no rows."""
        return GramSum(self.n_features, further=self.further)

    @abstractmethod
    def begin(self) -> None:
        """Set the further attributes to their values before the first row."""

    @abstractmethod
    def take(self, rows: FloatArray | Exactly) -> None:
        """Absorb admitted rows of one leaf, or their exact sum, in place. Called on a fresh copy, whose t is after."""

    @abstractmethod
    def close(self, outlet: Outlet) -> View:
        """Close the leaf that ends at row t, in place, and return the window's private Gram matrix."""

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        return self._after(rows.shape[0], rows, outlet)

    def step_gram(self, count: int, high: IntArray, low: IntArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        return self._after(count, (high, low), outlet)

    def _after(self, count: int, rows: FloatArray | Exactly, outlet: Outlet) -> tuple[Processor, Release | None]:
        ends = count == self.rows_until_release
        # All changes are made on a copy, so that an interrupt leaves this value as before.
        after = self.after(self.t + count, self.chain)
        after.take(rows)
        if not ends:
            return after, None
        view = after.close(outlet)
        after.chain = outlet.chain
        details = {"window": [view.first, after.t], **view.details}
        # A public number, in a decayed sum that of its weights; infinite where none is public.
        covered = self.terms.count(view.first, after.t)
        covered = covered if view.weight is None or math.isinf(covered) else view.weight
        about = covered if self.algorithm.center else None
        fields = gram_fields(view.packed, view.std, self.terms, details, about, view.smoothed, covered)
        return after, Release(t=after.t, n_components=self.algorithm.n_components, terms=self.terms, **fields)


class RingProcessor(WindowProcessor):
    """The exact sum of a window. Rows that leave it are subtracted, and so is their noise."""

    __slots__ = ("leaf", "ring", "window")
    kept: ClassVar[tuple[str, ...]] = ("window", "ring", "leaf")

    factorization = WindowDifference
    theorem = "Gaussian matrix mechanism on window Gram matrices, adaptive rows; subspaces are post-processing"

    ring: Recent  # what is subtracted later: exact sums of leaves, or rows
    window: GramSum  # at the end of a leaf, the exact sum of the window
    leaf: GramSum | None  # the exact sum of the open leaf; None in a ring of rows

    def begin(self) -> None:
        algorithm, d, size = self.algorithm, self.n_features + self.further, svec_size(self.n_features) + self.further
        self.window, self.leaf = self.empty, None
        # The ring is the smaller of two: the sum of a leaf has two float64 an entry, its rows four bytes a number.
        if algorithm.has_calendar or 16 * size < 4 * algorithm.every * d:
            self.leaf, self.ring = self.empty, Recent(algorithm.leaves, (2, size), np.float64)
        else:
            # Rows are multiples of 2**-20 in [-1, 1], so 32-bit integers hold them exactly. One leaf more than the
            # window: the oldest leaf is read when the newest one is complete.
            self.ring = Recent(algorithm.window + algorithm.every, (d,), np.int32)

    def take(self, rows: FloatArray | Exactly) -> None:
        # A ring of leaves adds its open leaf to the window when that closes. A ring of rows has none: its window
        # keeps the oldest leaf until then.
        if self.leaf is not None:
            self.leaf = _plus(self.leaf, rows)
        elif not isinstance(rows, tuple):
            self.window = self.window.add(rows)
            self.ring = self.ring.extend((rows * (1.0 / STEP)).astype(np.int32))

    def _shift(self) -> None:
        """Close the leaf: subtract what has left the window, in place."""
        last, every = self.t - self.algorithm.window, self.algorithm.every
        if self.leaf is None:
            if last > 0:
                self.window = without(self.window, self.empty.add(self.ring.between(last - every + 1, last) * STEP))
            return
        self.window = self.window.add_high_low(*self.leaf.high_low())
        if last > 0:
            self.window = without(self.window, GramSum(self.n_features, self.ring.item(last // every)))
        # The oldest sum has been read, so that the newest one may take its place.
        self.ring, self.leaf = self.ring.extend(self.leaf.parts[None]), self.empty

    def close(self, outlet: Outlet) -> View:
        self._shift()
        # Leaving rows take the noise of their leaf with them, so the noise of a window does not grow with time.
        std = self.algorithm.mechanism.std(self.noise.n + 1)
        self.noise, packed = outlet.running("window", self.window, self.noise, std)
        return View(packed, std, max(1, self.t - self.algorithm.window + 1))


class SmoothedProcessor(RingProcessor):
    """A ring whose subspaces are those of an estimate from its releases."""

    __slots__ = ("increments", "released", "smoothing")
    kept: ClassVar[tuple[str, ...]] = ("increments", "released")

    smoothing: WindowSmoothing
    increments: Recent  # of the private running sum, over two windows
    released: FloatArray  # the latest released matrix, packed

    @classmethod
    def check_parameters(cls, algorithm: SlidingWindowPCA) -> None:
        super().check_parameters(algorithm)
        if algorithm.leaves > MOST_LEAVES:
            least = -(-algorithm.window // MOST_LEAVES)
            raise BadParameterError(
                "release_every", algorithm.every,
                f"at least {least} with method='smoothed', which accepts up to {MOST_LEAVES} releases in a window"
            )  # fmt: skip

    def begin(self) -> None:
        super().begin()
        algorithm, size = self.algorithm, svec_size(self.n_features)
        d = self.n_features - int(algorithm.center)
        self.smoothing = WindowSmoothing(algorithm.mechanism, d, algorithm.n_components, algorithm.every)
        self.increments, self.released = Recent(2 * algorithm.leaves, (size,), np.float64), np.zeros(size)

    def close(self, outlet: Outlet) -> View:
        view, increments = super().close(outlet), self.increments
        # The difference of two successive windows is the new leaf less the oldest one.
        # It is a function of releases, so that the estimate is post-processing.
        matrix = view.packed[: len(view.packed) - self.further]
        increment = matrix - self.released
        leaving = increments.n + 1 - self.algorithm.leaves
        if leaving > 0:
            increment += increments.item(leaving)
        self.increments, self.released = increments.extend(increment[None]), matrix
        weights, noise_std = self.smoothing.solve(self.increments.n)
        total, std = sum_of_rows(self.increments.latest * weights[:, None]), noise_std * self.terms.row_norm**2
        return view._replace(smoothed=total, details={**view.details, "smoothed_noise_std": std})


def _plus(total: GramSum, rows: FloatArray | Exactly) -> GramSum:
    """Add admitted rows, or their exact sum."""
    return total.add_high_low(*rows) if isinstance(rows, tuple) else total.add(rows)


def without(total: GramSum, leaving: GramSum) -> GramSum:
    """Subtract a part from an exact sum."""
    rest = total.parts[1] - leaving.parts[1]
    # Invariant: the second part is in [0, 1). Differences of lattice values are exact in float64.
    whole = np.floor(rest)
    return GramSum(total.n_features, np.array([total.parts[0] - leaving.parts[0] + whole, rest - whole]))


class ForgettingProcessor(WindowProcessor):
    """Rows fade by 1 - b/W at every leaf: the exact fading sum of the closed leaves, and the exact open leaf."""

    __slots__ = ("fading", "leaf")
    kept = __slots__

    factorization = ForgettingBLT
    rounding = ROUNDING  # the fading sum is rounded at every leaf
    longest = LONGEST
    theorem = "Gaussian matrix mechanism on fading Gram matrices, adaptive rows; subspaces are post-processing"

    def begin(self) -> None:
        self.fading, self.leaf = FadingSum(self.n_features, further=self.further), self.empty

    def take(self, rows: FloatArray | Exactly) -> None:
        self.leaf = _plus(self.leaf, rows)

    def close(self, outlet: Outlet) -> View:
        mechanism = self.algorithm.mechanism
        # F_n = (1 - b / W) F_{n-1} + the sum of the leaf. A leaf fades as a whole, so its rows have one weight.
        self.fading = self.fading.after(self.leaf, mechanism.memory)
        self.leaf = self.empty
        std = mechanism.std(self.noise.n + 1)
        self.noise, packed = outlet.running("fading", self.fading, self.noise, std)
        # Sum of the weights of all rows: b (1 + gamma + ... + gamma**(n - 1)).
        weights = (1.0 - mechanism.decay**self.noise.n) / (1.0 - mechanism.decay)
        count = self.algorithm.every * weights
        return View(packed, std, 1, {"decay_per_release": mechanism.decay}, weight=count)


class HistogramProcessor(WindowProcessor):
    """The exact sum of all rows, and the spectral histogram of its private prefix sums as post-processing."""

    __slots__ = ("gram", "histogram")
    kept = __slots__

    factorization = StationaryBLT
    theorem = (
        "Gaussian matrix mechanism on running Gram matrices, adaptive rows; histogram and subspaces are post-processing"
    )
    citation = f"{WindowProcessor.citation}; {UU21}"

    @classmethod
    def check_parameters(cls, algorithm: SlidingWindowPCA) -> None:
        marks, every = algorithm.checkpoint_every, algorithm.every
        if algorithm.window < every:
            # Rows would leave the window before they are released.
            raise BadParameterError("window", algorithm.window, f"at least release_every={every}")
        if marks is not None and marks % every:
            raise BadParameterError("checkpoint_every", marks, f"a multiple of release_every={every}")

    @classmethod
    def std(cls, algorithm: SlidingWindowPCA, n: int) -> float:
        # As if the oldest checkpoint were at the start of the window.
        return float(algorithm.mechanism.window_std(n, min(n, algorithm.leaves)))

    @classmethod
    def spacing(cls, algorithm: SlidingWindowPCA) -> tuple[int, int]:
        """Rows between checkpoints, and between those that are never deleted. Both in whole leaves."""
        marks = algorithm.checkpoint_every
        if marks is None:
            # A row of norm 1 moves the Gram matrix by at most 1, so this number moves it by at most one noise std.
            rows = min(algorithm.mechanism.lag_std(algorithm.leaves), algorithm.window / 8.0)
            marks = max(1, int(rows / algorithm.every)) * algorithm.every
        return marks, max(1, int(algorithm.window * algorithm.overhang / marks)) * marks

    @classmethod
    def noise_bound(cls, algorithm: SlidingWindowPCA, n_features: int, rows: int | None = None) -> float:
        """Bound on the spectral norm of the noise in sums of ``rows`` rows. None means the longest sums kept."""
        longest = algorithm.window + sum(cls.spacing(algorithm))
        # Union bound: at any time within the longest sum, any two checkpoints within it, and the sum since each.
        marks = longest / cls.spacing(algorithm)[0]
        comparisons = marks * (longest / algorithm.every + marks)
        std = algorithm.mechanism.lag_std(-(-(longest if rows is None else rows) // algorithm.every))
        return algorithm.norm(std, n_features, comparisons)

    @classmethod
    def additive_error(cls, algorithm: SlidingWindowPCA, n_features: int) -> float:
        bound, (mark_every, pin_every) = cls.noise_bound(algorithm, n_features), cls.spacing(algorithm)
        between = 2.0 * cls.noise_bound(algorithm, n_features, pin_every) + 1.5 * algorithm.eta * bound
        factor = 1.0 + algorithm.multiplicative_error
        # The rows before the window are bounded by the deletion test, and by their number.
        before = min(factor * max(between, mark_every - 1.0), pin_every + mark_every - 1.0)
        return before + bound

    @classmethod
    def rules(cls, algorithm: SlidingWindowPCA, n_features: int) -> Rules:
        """Return the rules for keeping checkpoints of sums with ``n_features`` features."""
        longest = cls.noise_bound(algorithm, n_features)

        def slack(rows: int) -> float:
            return cls.noise_bound(algorithm, n_features, rows) + algorithm.eta * longest  # f + eta z

        keep = 1.0 - algorithm.eta / 2.0  # of K(i), which exceeds K(j) by a factor of at most 1 / keep
        return Rules(n_features, algorithm.window, keep, slack, *cls.spacing(algorithm))

    @classmethod
    def constants(cls, algorithm: SlidingWindowPCA, n_features: int) -> tuple[object, ...]:
        rules = cls.rules(algorithm, n_features)
        return rules.slack(rules.pin_every), rules.mark_every, rules.pin_every, algorithm.mechanism.window_std(1, 1)

    def begin(self) -> None:
        self.gram = self.empty
        self.histogram = SpectralHistogram.first(self.rules(self.algorithm, self.n_features), self.further)

    def take(self, rows: FloatArray | Exactly) -> None:
        self.gram = _plus(self.gram, rows)

    def close(self, outlet: Outlet) -> View:
        mechanism, every, t = self.algorithm.mechanism, self.algorithm.every, self.t
        # All sums are rounded on one grid, that of the least noise in a difference (that over a single leaf), so that
        # K(i) has no rounding error.
        least = mechanism.window_std(1, 1)
        self.noise, now = outlet.running("prefix", GramInParts(self.gram), self.noise, least)
        histogram = self.histogram.advanced(t, now)
        # The release is of the checkpoints before row t + 1 gets one.
        self.histogram = histogram.marked(t) if t % histogram.rules.mark_every == 0 else histogram
        first = histogram.starts[0]
        std = mechanism.window_std(t // every, (t - first + 1) // every)
        return View(difference(now, histogram.sums[0]), std, first, {"checkpoints": len(histogram.starts)})


METHODS: dict[str, type[WindowProcessor]] = {
    "histogram": HistogramProcessor, "ring": RingProcessor, "smoothed": SmoothedProcessor,
    "forgetting": ForgettingProcessor,
}  # fmt: skip
