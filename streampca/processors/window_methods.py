"""Methods to follow a sliding window, each with its processor.

A method defines the checks, the guarantee and the noise of `SlidingWindowPCA` for one value of
``method=``. A step of a processor works on a copy, which replaces the processor when complete. The method
``"histogram"`` is in `streampca.processors.spectral_histogram`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg import fast
from streampca.linalg.centering import CONSTANT
from streampca.linalg.fading import LONGEST, ROUNDING, FadingSum
from streampca.linalg.lattice import STEP, GramSum
from streampca.linalg.lazy import cached_property
from streampca.linalg.memory import Recent
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.forgetting import ForgettingBLT
from streampca.matrix_factorization.smoothing import MOST_LEAVES, WindowSmoothing
from streampca.matrix_factorization.window import WindowDifference
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.processors.base import Processor
from streampca.release.release import Release, Terms, centered_fields

if TYPE_CHECKING:
    from streampca.processors.sliding_window import SlidingWindowPCA

DMRST22 = "Denisov, McMahan, Rush, Smith, Thakurta, NeurIPS 2022, Theorem 2.1"
BLT24 = "Dvijotham, McMahan, Pillutla, Steinke, Thakurta, FOCS 2024 (buffered linear Toeplitz)"


class WindowMethod(ABC):
    """A method to follow a window: checks of parameters, noise, accuracy and processor.

    Parameters
    ----------
    algorithm : the public parameters.
    """

    processor: ClassVar[type[WindowProcessor]]
    theorem: ClassVar[str]
    citation: ClassVar[str] = f"{DMRST22}; {BLT24}"
    scope: str = "all releases of an endless stream"
    #: Whether the window must be a multiple of ``release_every``.
    whole_leaves: ClassVar[bool] = False
    #: Parameters that no other method takes.
    options: ClassVar[tuple[str, ...]] = ()
    #: Relative error by which the released matrix may exceed the window's.
    multiplicative_error: float = 0.0

    def __init__(self, algorithm: SlidingWindowPCA) -> None:
        self.algorithm = algorithm

    def check(self) -> None:
        """Raise `BadParameterError` if parameters do not go together."""
        given, every = self.algorithm, self.algorithm.release_every
        for name in ("horizon", "checkpoint_every", "sketch_rank"):
            value = getattr(given, name)
            if value is not None and name not in self.options:
                raise BadParameterError(f"{name}={value!r} is not for method={given.method!r}; leave it out")
        if given.window < every and given.horizon is None:
            raise BadParameterError(
                f"window={given.window} must be at least release_every={every}: "
                "otherwise rows would leave the window before they are released"
            )
        if self.whole_leaves and given.window % every:
            raise BadParameterError(
                f"window={given.window} must be a multiple of release_every={every} with "
                f"method={given.method!r}: rows leave the window in groups of release_every"
            )

    @cached_property
    def noise(self) -> Any:
        """The `MatrixFactorization` that makes the noise; None if there is one release only."""
        return None

    def std(self, n: int) -> float:
        """Standard deviation of a diagonal entry of the noise in release n."""
        std: float = self.noise.std(n)
        return std

    @abstractmethod
    def noise_bound(self, n_features: int) -> float:
        """Bound on the spectral norm of the noise, for all that one release rests on."""

    def additive_error(self, n_features: int) -> float:
        """Absolute error of the released matrix against the window's."""
        return self.noise_bound(n_features)

    def constants(self, n_features: int) -> tuple[object, ...]:
        """Numbers of the noise beyond mu, sensitivity and `noise_bound`."""
        return () if self.noise is None else self.noise.constants()

    def kind(self, n_features: int) -> type[WindowProcessor]:
        """The class of processors for rows of so many features."""
        return self.processor

    def norm(self, std: float, n_features: int, comparisons: float = 1.0) -> float:
        """Bound on the spectral norms of many svec-GOE(std) matrices at once, but for the failure rate.

        The largest eigenvalue has mean at most std sqrt(2 d) (Slepian) and is a
        Lipschitz function of the noise with constant 1, so it exceeds its mean by
        std u with probability at most exp(-u**2 / 2); both ends of the spectrum count.
        """
        tail = math.sqrt(2.0 * math.log(2.0 * comparisons / self.algorithm.failure_rate))
        return std * (math.sqrt(2.0 * n_features) + tail)


class View(NamedTuple):
    """The content of one release.

    Attributes
    ----------
    packed : packed entries of the private Gram matrix.
    std : standard deviation of a diagonal entry of its noise, or None if the noise is not svec-GOE.
    first : first row it covers.
    details : further publishable facts for the release.
    smoothed : packed estimate of the window's exact Gram matrix, if there is one.
    weight : sum of the weights of its rows, where these are not 1.
    """

    packed: FloatArray
    std: float | None
    first: int
    details: Mapping[str, Any] = {}
    smoothed: FloatArray | None = None
    weight: float | None = None


class WindowProcessor(Processor):
    """State of a run of `SlidingWindowPCA`.

    Attributes
    ----------
    method : how the window is followed.
    noise : the noise of the latest private sum; None with one release only.
    """

    __slots__ = ("method", "noise")
    kept: ClassVar[tuple[str, ...]] = ("noise",)

    algorithm: SlidingWindowPCA
    #: Names of the exact Gram matrices that it holds, and of its sequences of latest items.
    sums: ClassVar[tuple[str, ...]] = ("gram",)
    rings: ClassVar[tuple[str, ...]] = ()

    def __init__(self, algorithm: SlidingWindowPCA, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(algorithm, n_features, source, terms)
        self.method: Any = algorithm.followed
        noise = self.method.noise
        self.noise: Any = None if noise is None else noise.start(svec_size(n_features), source)
        for name in self.sums:
            setattr(self, name, GramSum(n_features))
        self.begin()

    # -- what a method's processor provides: called on a fresh copy --------------------

    def begin(self) -> None:
        """Hold nothing yet, beyond `sums`."""

    @abstractmethod
    def take(self, rows: FloatArray) -> None:
        """Take admitted rows, all of one leaf; t counts them already."""

    @abstractmethod
    def close(self, outlet: Outlet) -> View:
        """Close the leaf that ends at row t; the window's private Gram matrix."""

    # -- common to all methods --------------------------------------------------------

    @property
    def memory(self) -> int:
        """Bytes held for rows, sums and checkpoints; noise apart."""
        sums = sum(getattr(self, name).parts.nbytes for name in self.sums)
        return int(sums + sum(getattr(self, name).nbytes for name in self.rings))

    @property
    def rows_until_release(self) -> int:
        """Rows until the next release; 0 once a one-time release is made."""
        left, every = self.rows_left, self.algorithm.release_every
        return every - self.t % every if left is None else left

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        """Take rows of one leaf; release the window if the leaf ends with them."""
        ends = rows.shape[0] == self.rows_until_release
        after = self.after(self.t + rows.shape[0], self.chain)
        after.take(rows)
        if not ends:
            return after, None
        view = after.close(outlet)
        after.chain = outlet.chain
        details = {"window": [view.first, after.t], **view.details}
        fields: dict[str, Any] = {
            "packed_gram": view.packed, "noise_std": view.std, "details": details, "packed_smoothed": view.smoothed,
        }  # fmt: skip
        if self.algorithm.center:
            count = self.terms.count(view.first, after.t) if view.weight is None else view.weight
            fields = centered_fields(view.packed, count, view.std or 0.0, self.terms, details, view.smoothed)
        return after, Release(t=after.t, n_components=self.algorithm.n_components, terms=self.terms, **fields)

    def noise_std(self, t: int) -> float:
        """`SlidingWindowPCA.noise_std`."""
        return self.algorithm.noise_std(t)


class RingProcessor(WindowProcessor):
    """The exact sum of a window. Rows that leave it are subtracted, and so is their noise.

    Attributes
    ----------
    window : an exact sum: at the end of a leaf, of the window.
    ring : rows or sums that will be subtracted.
    """

    __slots__ = ("ring", "window")
    kept: ClassVar[tuple[str, ...]] = ("window", "ring")

    method: RingMethod
    ring: Recent
    window: GramSum
    sums: ClassVar[tuple[str, ...]] = ("window",)
    rings: ClassVar[tuple[str, ...]] = ("ring",)

    @abstractmethod
    def _shift(self) -> None:
        """Close the leaf: the window ends with it."""

    def close(self, outlet: Outlet) -> View:
        """The private Gram matrix of exactly the window."""
        self._shift()
        std = self.method.noise.std(self.noise.n + 1)
        self.noise, packed = outlet.running("window", self.window, self.noise, std)
        first = max(1, self.t - self.algorithm.window + 1)
        if self.algorithm.center:
            packed[-1] = (self.t - first + 1) * CONSTANT**2  # public
        return View(packed, std, first)


class RowRingProcessor(RingProcessor):
    """A ring of rows, as 32-bit integers: rows are multiples of 2**-20 in [-1, 1]."""

    __slots__ = ()

    def begin(self) -> None:
        """Hold no row yet."""
        # The oldest leaf is read when the newest one is complete.
        self.ring = Recent(self.algorithm.window + self.algorithm.release_every, (self.n_features,), np.int32)

    def take(self, rows: FloatArray) -> None:
        """Take admitted rows, all of one leaf."""
        self.window = self.window.add(rows)
        self.ring = self.ring.extend((rows * (1.0 / STEP)).astype(np.int32))

    def _shift(self) -> None:
        last = self.t - self.algorithm.window
        if last > 0:
            rows = self.ring.between(last - self.algorithm.release_every + 1, last)
            self.window = _without(self.window, GramSum.of(rows * STEP))


class SumRingProcessor(RingProcessor):
    """A ring of the exact sums of leaves, in two parts each.

    Attributes
    ----------
    leaf : the exact sum of the open leaf.
    """

    __slots__ = ("leaf",)
    kept: ClassVar[tuple[str, ...]] = ("leaf",)

    leaf: GramSum
    sums = ("window", "leaf")

    def begin(self) -> None:
        """Hold no leaf yet."""
        self.ring = Recent(self.algorithm.leaves, (2, svec_size(self.n_features)), np.float64)

    def take(self, rows: FloatArray) -> None:
        """Take admitted rows, all of one leaf."""
        self.leaf = self.leaf.add(rows)

    def _shift(self) -> None:
        self.window = self.window.add_high_low(*self.leaf.high_low())
        leaving = self.ring.n + 1 - self.algorithm.leaves
        if leaving > 0:
            self.window = _without(self.window, GramSum(self.n_features, self.ring.item(leaving)))
        self.ring = self.ring.append(self.leaf.parts)
        self.leaf = GramSum(self.n_features)


class SmoothedRingProcessor(RingProcessor):
    """A ring whose subspaces are those of an estimate from its releases.

    Attributes
    ----------
    smoothing : the weights of increments.
    increments : the latest increments of the private running sum, of two windows.
    released : the latest released matrix, packed.
    """

    smoothing: WindowSmoothing
    increments: Recent
    released: FloatArray
    rings = ("ring", "increments")
    kept: ClassVar[tuple[str, ...]] = ("increments", "released")

    def begin(self) -> None:
        """Hold no release yet."""
        super().begin()
        algorithm, size = self.algorithm, svec_size(self.n_features)
        d = self.n_features - int(algorithm.center)
        self.smoothing = WindowSmoothing(self.method.noise, d, algorithm.n_components, algorithm.release_every)
        self.increments, self.released = Recent(self.smoothing.length, (size,), np.float64), np.zeros(size)

    def close(self, outlet: Outlet) -> View:
        """The private Gram matrix of exactly the window, and the estimate."""
        view, increments = super().close(outlet), self.increments
        # Difference of two successive windows: the new leaf less the oldest one.
        increment = view.packed - self.released
        leaving = increments.n + 1 - self.algorithm.leaves
        if leaving > 0:
            increment += increments.item(leaving)
        self.increments, self.released = increments.append(increment), view.packed
        total = fast.sum_of_rows(self.increments.latest * self.smoothing.weights(self.increments.n)[:, None])
        std = self.terms.of_unit(self.smoothing.noise_std(self.increments.n))
        return view._replace(smoothed=total, details={**view.details, "smoothed_noise_std": std})


class SmoothedRowRingProcessor(SmoothedRingProcessor, RowRingProcessor):
    """A ring of rows, with an estimate."""


class SmoothedSumRingProcessor(SmoothedRingProcessor, SumRingProcessor):
    """A ring of the exact sums of leaves, with an estimate."""


def _without(total: GramSum, leaving: GramSum) -> GramSum:
    """A sum less a part of it."""
    rest = total.parts[1] - leaving.parts[1]
    whole = np.floor(rest)
    return GramSum(total.n_features, np.array([total.parts[0] - leaving.parts[0] + whole, rest - whole]))


class ForgettingProcessor(WindowProcessor):
    """The fading sum.

    Attributes
    ----------
    fading : the exact fading sum of the closed leaves.
    leaf : the exact sum of the open leaf.
    """

    __slots__ = ("fading", "leaf")
    kept = __slots__

    method: ForgettingMethod
    leaf: GramSum
    sums = ("leaf",)

    def begin(self) -> None:
        """Hold nothing yet."""
        self.fading = FadingSum(self.n_features)

    def take(self, rows: FloatArray) -> None:
        """Take admitted rows, all of one leaf."""
        self.leaf = self.leaf.add(rows)

    def close(self, outlet: Outlet) -> View:
        """The private fading Gram matrix."""
        mechanism = self.method.noise
        self.fading = self.fading.after(self.leaf, mechanism.memory)
        self.leaf = GramSum(self.n_features)
        std = mechanism.std(self.noise.n + 1)
        self.noise, packed = outlet.running("fading", self.fading, self.noise, std)
        weights = (1.0 - mechanism.decay**self.noise.n) / (1.0 - mechanism.decay)
        count = self.algorithm.release_every * weights
        return View(packed, std, 1, {"decay_per_release": mechanism.decay}, weight=count)

    @property
    def memory(self) -> int:
        """Bytes held for the sums."""
        return super().memory + self.fading.parts.nbytes


class OnceProcessor(WindowProcessor):
    """The sum of the last rows before a known end.

    The start of the window is public arithmetic on public numbers; it never depends on the rows.

    Attributes
    ----------
    gram : the exact sum of the window's rows.
    """

    __slots__ = ("gram",)
    kept = __slots__

    method: OnceMethod
    gram: GramSum

    @property
    def _first(self) -> int:
        return max(1, self.t + (self.rows_left or 0) - self.algorithm.window + 1)

    def take(self, rows: FloatArray) -> None:
        """Add the rows that are in the window."""
        within = min(self.t - self._first + 1, rows.shape[0])
        if within > 0:
            self.gram = self.gram.add(rows[-within:])

    def close(self, outlet: Outlet) -> View:
        """The window's private Gram matrix."""
        sigma = self.method.sigma
        return View(outlet.gram("window", self.gram, svec_size(self.n_features), sigma), sigma, self._first)


class RingMethod(WindowMethod):
    """Exactly the window: rows that leave it are subtracted."""

    processor: ClassVar[type[WindowProcessor]] = RowRingProcessor
    of_sums: ClassVar[type[WindowProcessor]] = SumRingProcessor
    theorem = "Gaussian matrix mechanism on window Gram matrices, adaptive rows; subspaces are post-processing"
    whole_leaves = True

    @cached_property
    def noise(self) -> WindowDifference:
        """The noise, in sums of the last rows."""
        return WindowDifference(self.algorithm.leaves, self.algorithm.mu, self.algorithm.sensitivity)

    def noise_bound(self, n_features: int) -> float:
        """Bound on the spectral norm of the noise in a whole window."""
        return self.norm(self.noise.lag_std(self.algorithm.leaves), n_features)

    def kind(self, n_features: int) -> type[WindowProcessor]:
        """A ring of rows, or of their leaves' sums where these are smaller."""
        # A leaf's sum takes two numbers an entry, its rows four bytes a number.
        small = 16 * svec_size(n_features) < 4 * self.algorithm.release_every * n_features
        return self.of_sums if small else self.processor


class SmoothedMethod(RingMethod):
    """Exactly the window, as `RingMethod`, and an estimate of it from its releases over two windows."""

    processor = SmoothedRowRingProcessor
    of_sums = SmoothedSumRingProcessor

    def check(self) -> None:
        """Raise `BadParameterError` if parameters do not go together, or a window has too many releases."""
        super().check()
        if self.algorithm.leaves > MOST_LEAVES:
            raise BadParameterError(
                f"release_every={self.algorithm.release_every} makes {self.algorithm.leaves} releases in a window; "
                f"method='smoothed' takes at most {MOST_LEAVES}: release every "
                f"{-(-self.algorithm.window // MOST_LEAVES)} rows or more"
            )


class ForgettingMethod(WindowMethod):
    """Rows fade by 1 - b/W at every leaf: two matrices of memory, the least noise."""

    processor = ForgettingProcessor
    theorem = "Gaussian matrix mechanism on fading Gram matrices, adaptive rows; subspaces are post-processing"
    whole_leaves = True

    def check(self) -> None:
        """Raise `BadParameterError` if parameters do not go together, or the window is longer than `LONGEST`."""
        super().check()
        if self.algorithm.window > LONGEST:
            raise BadParameterError(
                f"window={self.algorithm.window} must be at most {LONGEST} with method='forgetting'"
            )

    @cached_property
    def noise(self) -> ForgettingBLT:
        """The noise, in fading sums."""
        return ForgettingBLT(self.algorithm.leaves, self.algorithm.mu, self.algorithm.sensitivity + ROUNDING)

    def noise_bound(self, n_features: int) -> float:
        """Bound on the spectral norm of the noise after any number of releases."""
        return self.norm(self.noise.limit_std, n_features)


class OnceMethod(WindowMethod):
    """The last rows before a known end, released once: one Gaussian mechanism, without composition."""

    processor = OnceProcessor
    theorem = "Gaussian mechanism on the window's Gram matrix; the subspace is post-processing"
    citation = "Dwork, Talwar, Thakurta, Zhang, 'Analyze Gauss', STOC 2014, Algorithm 1"
    options = ("horizon",)

    def __init__(self, algorithm: SlidingWindowPCA) -> None:
        super().__init__(algorithm)
        self.scope = f"one release, after row {algorithm.horizon}"
        #: Standard deviation of the noise.
        self.sigma = algorithm.sensitivity / algorithm.mu

    def check(self) -> None:
        """Raise `BadParameterError` if parameters do not go together, or the end is not known."""
        if self.algorithm.horizon is None:
            raise BadParameterError("horizon=None with method='once': pass the row of the release")
        super().check()

    def std(self, n: int) -> float:
        """Standard deviation of the noise."""
        return self.sigma

    def noise_bound(self, n_features: int) -> float:
        """Bound on the spectral norm of the noise."""
        return self.norm(self.sigma, n_features)
