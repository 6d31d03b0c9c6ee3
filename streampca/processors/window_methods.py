"""Methods to follow a sliding window, each with its processor.

A method defines the checks, the guarantee and the noise of `SlidingWindowPCA` for one value of ``method=``.
The method ``"histogram"`` is in `streampca.processors.spectral_histogram`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.centering import CONSTANT
from streampca.linalg.fading import LONGEST, ROUNDING, FadingSum
from streampca.linalg.lattice import STEP, GramSum, sum_of_rows
from streampca.linalg.lazy import cached_property
from streampca.linalg.memory import Recent
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.smoothing import MOST_LEAVES, WindowSmoothing
from streampca.matrix_factorization.window import ForgettingBLT, WindowDifference
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.processors.base import Algorithm, Processor
from streampca.release.release import Release, Terms, centered_fields

DMRST22 = "Denisov, McMahan, Rush, Smith, Thakurta, NeurIPS 2022, Theorem 2.1"
BLT24 = "Dvijotham, McMahan, Pillutla, Steinke, Thakurta, FOCS 2024 (buffered linear Toeplitz)"


@dataclass(frozen=True, kw_only=True, repr=False)
class WindowAlgorithm(Algorithm):
    """The parameters that the methods read. `SlidingWindowPCA` documents them."""

    window: int
    n_components: int
    epsilon: float
    delta: float
    n_features: int | None = None
    eta: float = 0.25
    method: Literal["histogram", "ring", "smoothed", "forgetting"] = "histogram"
    adjacency: Adjacency = "zero-out"
    release_every: int = 1
    checkpoint_every: int | None = None
    overhang: float = 0.125
    failure_rate: float = 0.01
    center: bool = field(default=False, repr=False)

    @cached_property
    def budget(self) -> Budget:
        """Privacy budget of all releases together."""
        return Budget(self.epsilon, self.delta, self.adjacency)

    @cached_property
    def sensitivity(self) -> float:
        """Sensitivity to one row of a Gram matrix, with the sum of rows if ``center``."""
        return self.budget.sensitivity(center=self.center)

    @property
    def leaves(self) -> int:
        """Releases in a window, rounded up."""
        return -(-self.window // self.release_every)

    @cached_property
    @abstractmethod
    def followed(self) -> WindowMethod:
        """The object that implements ``method``."""


class WindowMethod(ABC):
    """A method to follow a window: checks of parameters, noise, accuracy and processor."""

    processor: ClassVar[type[WindowProcessor]]
    theorem: ClassVar[str]
    citation: ClassVar[str] = f"{DMRST22}; {BLT24}"
    #: Relative error by which the released matrix may exceed the window's.
    multiplicative_error: float = 0.0

    def __init__(self, algorithm: WindowAlgorithm) -> None:
        self.algorithm = algorithm

    def check(self) -> None:
        """Raise `BadParameterError` if parameters do not go together."""
        algorithm, every = self.algorithm, self.algorithm.release_every
        if algorithm.checkpoint_every is not None:
            raise BadParameterError(
                f"checkpoint_every={algorithm.checkpoint_every}: expected None with method={algorithm.method!r}."
            )
        if algorithm.window % every:
            raise BadParameterError(
                f"window={algorithm.window}: expected a multiple of release_every={every} "
                f"with method={algorithm.method!r}."
            )

    @cached_property
    @abstractmethod
    def noise(self) -> Any:
        """The `MatrixFactorization` of the noise."""

    def std(self, n: int) -> float:
        """Standard deviation of a diagonal entry of the noise in release n."""
        std: float = self.noise.std(n)
        return std

    @abstractmethod
    def noise_bound(self, n_features: int) -> float:
        """Bound on the spectral norm of the noise in a release and in the sums that determine it."""

    def additive_error(self, n_features: int) -> float:
        """Absolute error of the released matrix against the window's."""
        return self.noise_bound(n_features)

    def constants(self, n_features: int) -> tuple[object, ...]:
        """Numbers of the noise beyond mu, sensitivity and `noise_bound`."""
        constants: tuple[object, ...] = self.noise.constants()
        return constants

    def norm(self, std: float, n_features: int, comparisons: float = 1.0) -> float:
        """Bound on the spectral norms of ``comparisons`` svec-GOE(std) matrices together, but for the failure rate.

        The largest eigenvalue has mean at most std sqrt(2 d) (Slepian) and is a Lipschitz function of the noise with
        constant 1, so it exceeds its mean by std u with probability at most exp(-u**2 / 2). The union bound covers
        both ends of each spectrum.
        """
        tail = math.sqrt(2.0 * math.log(2.0 * comparisons / self.algorithm.failure_rate))
        return std * (math.sqrt(2.0 * n_features) + tail)


class View(NamedTuple):
    """The content of one release."""

    packed: FloatArray  # entries of the private Gram matrix
    std: float  # of a diagonal entry of its noise
    first: int  # first row it covers
    details: Mapping[str, Any] = {}  # further publishable facts
    smoothed: FloatArray | None = None  # packed estimate of the exact Gram matrix
    weight: float | None = None  # sum of the weights of its rows, where these are not 1


class WindowProcessor(Processor):
    """State of a run of `SlidingWindowPCA`: the exact sums, and the noise of the latest private sum."""

    __slots__ = ("method", "noise")
    kept: ClassVar[tuple[str, ...]] = ("noise",)

    algorithm: WindowAlgorithm

    def __init__(self, algorithm: WindowAlgorithm, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(algorithm, n_features, source, terms)
        self.method: Any = algorithm.followed
        self.noise: Any = self.method.noise.start(svec_size(n_features), source)
        self.begin()

    @abstractmethod
    def begin(self) -> None:
        """Set the further attributes to their values before the first row."""

    @abstractmethod
    def take(self, rows: FloatArray) -> None:
        """Absorb admitted rows of one leaf, in place. Called on a fresh copy, whose t includes them."""

    @abstractmethod
    def close(self, outlet: Outlet) -> View:
        """Close the leaf that ends at row t, in place, and return the window's private Gram matrix."""

    @property
    def rows_until_release(self) -> int:
        return self.algorithm.release_every - self.t % self.algorithm.release_every

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        ends = rows.shape[0] == self.rows_until_release
        # All changes are made on a copy, so that an interrupt leaves this value as before.
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
            fields = centered_fields(view.packed, count, view.std, self.terms, details, view.smoothed)
        return after, Release(t=after.t, n_components=self.algorithm.n_components, terms=self.terms, **fields)


class RingProcessor(WindowProcessor):
    """The exact sum of a window. Rows that leave it are subtracted, and so is their noise.

    Attributes
    ----------
    window : at the end of a leaf, the exact sum of the window.
    ring : what is subtracted later: exact sums of leaves, or rows.
    leaf : the exact sum of the open leaf; None in a ring of rows.
    """

    __slots__ = ("leaf", "ring", "window")
    kept: ClassVar[tuple[str, ...]] = ("window", "ring", "leaf")

    method: RingMethod
    ring: Recent
    window: GramSum
    leaf: GramSum | None

    def begin(self) -> None:
        algorithm, d = self.algorithm, self.n_features
        self.window, self.leaf = GramSum(d), None
        # The ring is the smaller of two: the sum of a leaf has two float64 an entry, its rows four bytes a number.
        if 16 * svec_size(d) < 4 * algorithm.release_every * d:
            self.leaf, self.ring = GramSum(d), Recent(algorithm.leaves, (2, svec_size(d)), np.float64)
        else:
            # Rows are multiples of 2**-20 in [-1, 1], so 32-bit integers hold them exactly. One leaf more than the
            # window: the oldest leaf is read when the newest one is complete.
            self.ring = Recent(algorithm.window + algorithm.release_every, (d,), np.int32)

    def take(self, rows: FloatArray) -> None:
        if self.leaf is not None:
            self.leaf = self.leaf.add(rows)
        else:
            self.window = self.window.add(rows)
            self.ring = self.ring.extend((rows * (1.0 / STEP)).astype(np.int32))

    def _shift(self) -> None:
        """Close the leaf: subtract what has left the window, in place."""
        last, every = self.t - self.algorithm.window, self.algorithm.release_every
        if self.leaf is None:
            if last > 0:
                self.window = without(self.window, GramSum.of(self.ring.between(last - every + 1, last) * STEP))
            return
        self.window = self.window.add_high_low(*self.leaf.high_low())
        if last > 0:
            self.window = without(self.window, GramSum(self.n_features, self.ring.item(last // every)))
        # The oldest sum has been read, so that the newest one may take its place.
        self.ring, self.leaf = self.ring.append(self.leaf.parts), GramSum(self.n_features)

    def close(self, outlet: Outlet) -> View:
        self._shift()
        # Leaving rows take the noise of their leaf with them, so the noise of a window does not grow with time.
        std = self.method.noise.std(self.noise.n + 1)
        self.noise, packed = outlet.running("window", self.window, self.noise, std)
        first = max(1, self.t - self.algorithm.window + 1)
        if self.algorithm.center:
            # The number of rows is public, so the entry of the constants is replaced without noise.
            packed[-1] = (self.t - first + 1) * CONSTANT**2
        return View(packed, std, first)


class SmoothedProcessor(RingProcessor):
    """A ring whose subspaces are those of an estimate from its releases."""

    __slots__ = ("increments", "released", "smoothing")
    kept: ClassVar[tuple[str, ...]] = ("increments", "released")

    smoothing: WindowSmoothing
    increments: Recent  # of the private running sum, over two windows
    released: FloatArray  # the latest released matrix, packed

    def begin(self) -> None:
        super().begin()
        algorithm, size = self.algorithm, svec_size(self.n_features)
        d = self.n_features - int(algorithm.center)
        self.smoothing = WindowSmoothing(self.method.noise, d, algorithm.n_components, algorithm.release_every)
        self.increments, self.released = Recent(self.smoothing.length, (size,), np.float64), np.zeros(size)

    def close(self, outlet: Outlet) -> View:
        view, increments = super().close(outlet), self.increments
        # The difference of two successive windows is the new leaf less the oldest one.
        # It is a function of releases, so that the estimate is post-processing.
        increment = view.packed - self.released
        leaving = increments.n + 1 - self.algorithm.leaves
        if leaving > 0:
            increment += increments.item(leaving)
        self.increments, self.released = increments.append(increment), view.packed
        weights, noise_std = self.smoothing.solve(self.increments.n)
        total, std = sum_of_rows(self.increments.latest * weights[:, None]), noise_std * self.terms.row_norm**2
        return view._replace(smoothed=total, details={**view.details, "smoothed_noise_std": std})


def without(total: GramSum, leaving: GramSum) -> GramSum:
    """Subtract a part from an exact sum."""
    rest = total.parts[1] - leaving.parts[1]
    # Invariant: the second part is in [0, 1). Differences of lattice values are exact in float64.
    whole = np.floor(rest)
    return GramSum(total.n_features, np.array([total.parts[0] - leaving.parts[0] + whole, rest - whole]))


class ForgettingProcessor(WindowProcessor):
    """The exact fading sum of the closed leaves, and the exact sum of the open leaf."""

    __slots__ = ("fading", "leaf")
    kept = __slots__

    method: ForgettingMethod

    def begin(self) -> None:
        self.fading, self.leaf = FadingSum(self.n_features), GramSum(self.n_features)

    def take(self, rows: FloatArray) -> None:
        self.leaf = self.leaf.add(rows)

    def close(self, outlet: Outlet) -> View:
        mechanism = self.method.noise
        # F_n = (1 - b / W) F_{n-1} + the sum of the leaf. A leaf fades as a whole, so its rows have one weight.
        self.fading = self.fading.after(self.leaf, mechanism.memory)
        self.leaf = GramSum(self.n_features)
        std = mechanism.std(self.noise.n + 1)
        self.noise, packed = outlet.running("fading", self.fading, self.noise, std)
        # Sum of the weights of all rows: b (1 + gamma + ... + gamma**(n - 1)).
        weights = (1.0 - mechanism.decay**self.noise.n) / (1.0 - mechanism.decay)
        count = self.algorithm.release_every * weights
        return View(packed, std, 1, {"decay_per_release": mechanism.decay}, weight=count)


class RingMethod(WindowMethod):
    """Exactly the window: rows that leave it are subtracted."""

    processor: ClassVar[type[WindowProcessor]] = RingProcessor
    theorem = "Gaussian matrix mechanism on window Gram matrices, adaptive rows; subspaces are post-processing"

    @cached_property
    def noise(self) -> WindowDifference:
        return WindowDifference(self.algorithm.leaves, self.algorithm.budget.mu, self.algorithm.sensitivity)

    def noise_bound(self, n_features: int) -> float:
        return self.norm(self.noise.lag_std(self.algorithm.leaves), n_features)


class SmoothedMethod(RingMethod):
    """Exactly the window, as `RingMethod`, and an estimate of it from its releases over two windows."""

    processor = SmoothedProcessor

    def check(self) -> None:
        super().check()
        if self.algorithm.leaves > MOST_LEAVES:
            least = -(-self.algorithm.window // MOST_LEAVES)
            raise BadParameterError(
                f"release_every={self.algorithm.release_every}: expected at least {least} with method='smoothed', "
                f"which accepts up to {MOST_LEAVES} releases in a window."
            )


class ForgettingMethod(WindowMethod):
    """Rows fade by 1 - b/W at every leaf: two matrices of memory and the least noise."""

    processor = ForgettingProcessor
    theorem = "Gaussian matrix mechanism on fading Gram matrices, adaptive rows; subspaces are post-processing"

    def check(self) -> None:
        super().check()
        if self.algorithm.window > LONGEST:
            raise BadParameterError(
                f"window={self.algorithm.window}: expected at most {LONGEST} with method='forgetting'."
            )

    @cached_property
    def noise(self) -> ForgettingBLT:
        # The fading sum is rounded at every leaf, which adds ROUNDING to its sensitivity.
        return ForgettingBLT(self.algorithm.leaves, self.algorithm.budget.mu, self.algorithm.sensitivity + ROUNDING)

    def noise_bound(self, n_features: int) -> float:
        return self.norm(self.noise.limit_std, n_features)
