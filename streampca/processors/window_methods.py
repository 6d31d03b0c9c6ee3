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
Method = Literal["histogram", "ring", "smoothed", "forgetting", "once"]
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
    method: Method = "histogram"
    adjacency: Adjacency = "zero-out"
    release_every: int = 1
    checkpoint_every: int | None = None
    overhang: float = 0.125
    sketch_rank: int | None = None
    failure_rate: float = 0.01
    horizon: int | None = None
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


class WindowMethod(ABC):
    """A method to follow a window: checks of parameters, noise, accuracy and processor."""

    processor: ClassVar[type[WindowProcessor]]
    theorem: ClassVar[str]
    citation: ClassVar[str] = f"{DMRST22}; {BLT24}"
    scope: str = "all releases of an endless stream"
    #: Whether the window must be a multiple of ``release_every``.
    whole_leaves: ClassVar[bool] = False
    #: Optional parameters that the method accepts.
    options: ClassVar[tuple[str, ...]] = ()
    #: Relative error by which the released matrix may exceed the window's.
    multiplicative_error: float = 0.0

    def __init__(self, algorithm: WindowAlgorithm) -> None:
        self.algorithm = algorithm

    def check(self) -> None:
        """Raise `BadParameterError` if parameters do not go together."""
        algorithm, every = self.algorithm, self.algorithm.release_every
        for name in ("horizon", "checkpoint_every", "sketch_rank"):
            value = getattr(algorithm, name)
            if value is not None and name not in self.options:
                raise BadParameterError(f"{name}={value!r}: expected None with method={algorithm.method!r}.")
        if algorithm.window < every and algorithm.horizon is None:
            # Rows would leave the window before they are released.
            raise BadParameterError(f"window={algorithm.window}: expected at least release_every={every}.")
        if self.whole_leaves and algorithm.window % every:
            raise BadParameterError(
                f"window={algorithm.window}: expected a multiple of release_every={every} "
                f"with method={algorithm.method!r}."
            )

    @cached_property
    def noise(self) -> Any:
        """The `MatrixFactorization` of the noise; None if there is one release only."""
        return None

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
        return () if self.noise is None else self.noise.constants()

    def kind(self, n_features: int) -> type[WindowProcessor]:
        """Class of the processors for rows of ``n_features`` features."""
        return self.processor

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
    std: float | None  # of a diagonal entry of its noise; None if the noise is not svec-GOE
    first: int  # first row it covers
    details: Mapping[str, Any] = {}  # further publishable facts
    smoothed: FloatArray | None = None  # packed estimate of the exact Gram matrix
    weight: float | None = None  # sum of the weights of its rows, where these are not 1


class WindowProcessor(Processor):
    """State of a run of `SlidingWindowPCA`: the exact sums, and the noise of the latest private sum."""

    __slots__ = ("method", "noise")
    kept: ClassVar[tuple[str, ...]] = ("noise",)

    algorithm: WindowAlgorithm
    #: Names of the attributes that hold exact Gram matrices, and of those that hold sequences of latest items.
    sums: ClassVar[tuple[str, ...]] = ("gram",)
    rings: ClassVar[tuple[str, ...]] = ()

    def __init__(self, method: WindowMethod, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(method.algorithm, n_features, source, terms)
        self.method: Any = method
        noise = method.noise
        self.noise: Any = None if noise is None else noise.start(svec_size(n_features), source)
        for name in self.sums:
            setattr(self, name, GramSum(n_features))
        self.begin()

    def begin(self) -> None:
        """Set the attributes beyond `sums` to their values before the first row."""

    @abstractmethod
    def take(self, rows: FloatArray) -> None:
        """Absorb admitted rows of one leaf, in place. Called on a fresh copy, whose t includes them."""

    @abstractmethod
    def close(self, outlet: Outlet) -> View:
        """Close the leaf that ends at row t, in place, and return the window's private Gram matrix."""

    @property
    def memory(self) -> int:
        """Bytes for rows, sums and checkpoints, without the noise."""
        sums = sum(getattr(self, name).parts.nbytes for name in self.sums)
        return int(sums + sum(getattr(self, name).nbytes for name in self.rings))

    @property
    def rows_until_release(self) -> int:
        left, every = self.rows_left, self.algorithm.release_every
        return every - self.t % every if left is None else left

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
            fields = centered_fields(view.packed, count, view.std or 0.0, self.terms, details, view.smoothed)
        return after, Release(t=after.t, n_components=self.algorithm.n_components, terms=self.terms, **fields)


class RingProcessor(WindowProcessor):
    """The exact sum of a window. Rows that leave it are subtracted, and so is their noise."""

    __slots__ = ("ring", "window")
    kept: ClassVar[tuple[str, ...]] = ("window", "ring")

    method: RingMethod
    ring: Recent  # rows or sums that are subtracted later
    window: GramSum  # at the end of a leaf, the exact sum of the window
    sums: ClassVar[tuple[str, ...]] = ("window",)
    rings: ClassVar[tuple[str, ...]] = ("ring",)

    @abstractmethod
    def _shift(self) -> None:
        """Close the leaf: subtract what has left the window, in place."""

    def close(self, outlet: Outlet) -> View:
        self._shift()
        std = self.method.noise.std(self.noise.n + 1)
        self.noise, packed = outlet.running("window", self.window, self.noise, std)
        first = max(1, self.t - self.algorithm.window + 1)
        if self.algorithm.center:
            # The number of rows is public, so the entry of the constants is replaced without noise.
            packed[-1] = (self.t - first + 1) * CONSTANT**2
        return View(packed, std, first)


class RowRingProcessor(RingProcessor):
    """A ring of rows, as 32-bit integers: rows are multiples of 2**-20 in [-1, 1]."""

    __slots__ = ()

    def begin(self) -> None:
        # One leaf more than the window: the oldest leaf is read when the newest one is complete.
        self.ring = Recent(self.algorithm.window + self.algorithm.release_every, (self.n_features,), np.int32)

    def take(self, rows: FloatArray) -> None:
        self.window = self.window.add(rows)
        self.ring = self.ring.extend((rows * (1.0 / STEP)).astype(np.int32))

    def _shift(self) -> None:
        last = self.t - self.algorithm.window
        if last > 0:
            rows = self.ring.between(last - self.algorithm.release_every + 1, last)
            self.window = without(self.window, GramSum.of(rows * STEP))


class SumRingProcessor(RingProcessor):
    """A ring of the exact sums of leaves, in two parts each."""

    __slots__ = ("leaf",)
    kept: ClassVar[tuple[str, ...]] = ("leaf",)

    leaf: GramSum  # the exact sum of the open leaf
    sums = ("window", "leaf")

    def begin(self) -> None:
        self.ring = Recent(self.algorithm.leaves, (2, svec_size(self.n_features)), np.float64)

    def take(self, rows: FloatArray) -> None:
        self.leaf = self.leaf.add(rows)

    def _shift(self) -> None:
        self.window = self.window.add_high_low(*self.leaf.high_low())
        leaving = self.ring.n + 1 - self.algorithm.leaves
        if leaving > 0:
            self.window = without(self.window, GramSum(self.n_features, self.ring.item(leaving)))
        self.ring = self.ring.append(self.leaf.parts)
        self.leaf = GramSum(self.n_features)


class SmoothedRingProcessor(RingProcessor):
    """A ring whose subspaces are those of an estimate from its releases."""

    smoothing: WindowSmoothing
    increments: Recent  # of the private running sum, over two windows
    released: FloatArray  # the latest released matrix, packed
    rings = ("ring", "increments")
    kept: ClassVar[tuple[str, ...]] = ("increments", "released")

    def begin(self) -> None:
        super().begin()
        algorithm, size = self.algorithm, svec_size(self.n_features)
        d = self.n_features - int(algorithm.center)
        self.smoothing = WindowSmoothing(self.method.noise, d, algorithm.n_components, algorithm.release_every)
        self.increments, self.released = Recent(self.smoothing.length, (size,), np.float64), np.zeros(size)

    def close(self, outlet: Outlet) -> View:
        view, increments = super().close(outlet), self.increments
        # The difference of two successive windows is the new leaf less the oldest one.
        increment = view.packed - self.released
        leaving = increments.n + 1 - self.algorithm.leaves
        if leaving > 0:
            increment += increments.item(leaving)
        self.increments, self.released = increments.append(increment), view.packed
        weights, noise_std = self.smoothing.solve(self.increments.n)
        total, std = sum_of_rows(self.increments.latest * weights[:, None]), self.terms.of_unit(noise_std)
        return view._replace(smoothed=total, details={**view.details, "smoothed_noise_std": std})


class SmoothedRowRingProcessor(SmoothedRingProcessor, RowRingProcessor):
    """A ring of rows, with an estimate."""


class SmoothedSumRingProcessor(SmoothedRingProcessor, SumRingProcessor):
    """A ring of the exact sums of leaves, with an estimate."""


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
    leaf: GramSum
    sums = ("leaf",)

    def begin(self) -> None:
        self.fading = FadingSum(self.n_features)

    def take(self, rows: FloatArray) -> None:
        self.leaf = self.leaf.add(rows)

    def close(self, outlet: Outlet) -> View:
        mechanism = self.method.noise
        self.fading = self.fading.after(self.leaf, mechanism.memory)
        self.leaf = GramSum(self.n_features)
        std = mechanism.std(self.noise.n + 1)
        self.noise, packed = outlet.running("fading", self.fading, self.noise, std)
        # Sum of the weights of all rows: b (1 + gamma + ... + gamma**(n - 1)).
        weights = (1.0 - mechanism.decay**self.noise.n) / (1.0 - mechanism.decay)
        count = self.algorithm.release_every * weights
        return View(packed, std, 1, {"decay_per_release": mechanism.decay}, weight=count)

    @property
    def memory(self) -> int:
        return super().memory + self.fading.parts.nbytes


class OnceProcessor(WindowProcessor):
    """The exact sum of the last rows before a known end."""

    __slots__ = ("gram",)
    kept = __slots__

    method: OnceMethod
    gram: GramSum

    def take(self, rows: FloatArray) -> None:
        # Privacy: the start of the window is a function of public numbers only.
        within = min(self.t - self.method.first + 1, rows.shape[0])
        if within > 0:
            self.gram = self.gram.add(rows[-within:])

    def close(self, outlet: Outlet) -> View:
        sigma = self.method.sigma
        return View(outlet.gram("window", self.gram, svec_size(self.n_features), sigma), sigma, self.method.first)


class RingMethod(WindowMethod):
    """Exactly the window: rows that leave it are subtracted."""

    processor: ClassVar[type[WindowProcessor]] = RowRingProcessor
    of_sums: ClassVar[type[WindowProcessor]] = SumRingProcessor
    theorem = "Gaussian matrix mechanism on window Gram matrices, adaptive rows; subspaces are post-processing"
    whole_leaves = True

    @cached_property
    def noise(self) -> WindowDifference:
        return WindowDifference(self.algorithm.leaves, self.algorithm.budget.mu, self.algorithm.sensitivity)

    def noise_bound(self, n_features: int) -> float:
        return self.norm(self.noise.lag_std(self.algorithm.leaves), n_features)

    def kind(self, n_features: int) -> type[WindowProcessor]:
        # Keep the smaller of the two: the sum of a leaf has two float64 an entry, its rows four bytes a number.
        small = 16 * svec_size(n_features) < 4 * self.algorithm.release_every * n_features
        return self.of_sums if small else self.processor


class SmoothedMethod(RingMethod):
    """Exactly the window, as `RingMethod`, and an estimate of it from its releases over two windows."""

    processor = SmoothedRowRingProcessor
    of_sums = SmoothedSumRingProcessor

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
    whole_leaves = True

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


class OnceMethod(WindowMethod):
    """The last rows before a known end, released once: one Gaussian mechanism, without composition."""

    processor = OnceProcessor
    theorem = "Gaussian mechanism on the window's Gram matrix; the subspace is post-processing"
    citation = "Dwork, Talwar, Thakurta, Zhang, 'Analyze Gauss', STOC 2014, Algorithm 1"
    options = ("horizon",)

    def __init__(self, algorithm: WindowAlgorithm) -> None:
        super().__init__(algorithm)
        self.scope = f"one release, after row {algorithm.horizon}"
        self.sigma = algorithm.sensitivity / algorithm.budget.mu
        self.first = max(1, (algorithm.horizon or 0) - algorithm.window + 1)

    def check(self) -> None:
        if self.algorithm.horizon is None:
            raise BadParameterError("horizon=None: expected the row of the release with method='once'.")
        super().check()

    def std(self, n: int) -> float:
        return self.sigma

    def noise_bound(self, n_features: int) -> float:
        return self.norm(self.sigma, n_features)
