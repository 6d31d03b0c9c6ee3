"""Private PCA of the last W rows of an endless stream."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

from streampca.errors import BadParameter, NoRelease
from streampca.linalg.types import FloatArray
from streampca.prefix_sums.forgetting import ForgettingBLT
from streampca.prefix_sums.window import LaggedTwin, StationaryBLT
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.guarantee import Guarantee, gaussian_guarantee
from streampca.privacy.randomness import Randomness
from streampca.processors.base import Processor, check_components, check_count
from streampca.processors.sketched_histogram import SketchedHistogram
from streampca.processors.spectral_histogram import SpectralHistogram
from streampca.processors.window_engine import WindowEngine
from streampca.processors.window_forgetting import LONGEST, ROUNDING, ForgettingEngine
from streampca.processors.window_histogram import HistogramEngine, noise_norm
from streampca.processors.window_once import OnceEngine
from streampca.processors.window_ring import RingEngine
from streampca.release import Release

Method = Literal["histogram", "ring", "forgetting", "once"]

DMRST22 = "Denisov, McMahan, Rush, Smith, Thakurta, NeurIPS 2022, Theorem 2.1"
BLT24 = "Dvijotham, McMahan, Pillutla, Steinke, Thakurta, FOCS 2024 (buffered linear Toeplitz)"
UU21 = "Upadhyay, Upadhyay, ICML 2021 (spectral histogram; its printed mechanism is not used)"
_THEOREM = {
    "histogram": (
        "Gaussian matrix mechanism on running Gram matrices, adaptive rows; histogram and subspaces are post-processing"
    ),
    "ring": "Gaussian matrix mechanism on window Gram matrices, adaptive rows; subspaces are post-processing",
    "forgetting": "Gaussian matrix mechanism on fading Gram matrices, adaptive rows; subspaces are post-processing",
    "once": "Gaussian mechanism on the window's Gram matrix; the subspace is post-processing",
}
_CITATION = {
    "histogram": f"{DMRST22}; {BLT24}; {UU21}",
    "ring": f"{DMRST22}; {BLT24}",
    "forgetting": f"{DMRST22}; {BLT24}",
    "once": "Dwork, Talwar, Thakurta, Zhang, 'Analyze Gauss', STOC 2014, Algorithm 1",
}


class SlidingWindowPCA(Processor):
    """A private subspace of the last W rows, after every b rows, forever.

    Parameters
    ----------
    window : rows in the window, W.
    n_components : dimension of the subspace, k.
    epsilon, delta : budget per row for all releases together.
    n_features : number of features, d; taken from the first row if left out.
    eta : of ``"histogram"``: checkpoints are dropped when they agree within a factor 1 - eta/2.
    method : how the window is followed.

        * ``"histogram"``: private running sums and a spectral histogram of them. Memory grows with
          log W, not W. Covers the window and a few rows more (`window_bounds`).
        * ``"ring"``: exactly the window, with the same noise; holds W rows, or their leaves' Gram matrices.
        * ``"forgetting"``: rows fade by 1 - b/W a release; 30 % less noise and two matrices of memory,
          but old rows never quite leave.
        * ``"once"``: the last W of ``horizon`` rows, released once at the end with the noise of one release.
    adjacency : ``"zero-out"`` (one row against the zero row) or ``"replace"``.
    release_every : rows between releases, b. Noise and time both fall with it.
    checkpoint_every : of ``"histogram"``: rows between checkpoints, a multiple of
        ``release_every``. Left out, as many as cannot matter beside the noise.
    overhang : of ``"histogram"``: how many rows before the window the released sum may cover at most,
        as a share of it. Costs 1 / overhang checkpoints.
    sketch_rank : of ``"histogram"``: keep only so many directions between two checkpoints, in O(d
        rank) memory instead of O(d**2); `sketch_error` says what that costs. A good value is n_components / eta.
    failure_rate : probability, at any one time, that `additive_error` is exceeded. Privacy never fails.
    horizon : of ``"once"``: the row at which the window is released.
    seed : for tests and scenarios; see `Stream`.

    Raises
    ------
    BadParameter
        If a parameter is outside its domain.

    Notes
    -----
    *Guarantee.* One row changes one input of a matrix mechanism by at most 1 in Euclidean norm
    (zero-out) or sqrt(2) (replace). Each mechanism is mu-GDP over the endless sequence and for adaptive
    rows (`streampca.prefix_sums.window`, `forgetting`), with mu solved exactly from (epsilon, delta). Which checkpoints
    are kept, and every subspace, is computed from private sums: post-processing.

    *Accuracy of the histogram.* Checkpoints i < j allow what lies between them to be deleted if (1 - eta/2)
    K(i) - slack I is below K(j), K(i) the private sum since checkpoint i. With z a bound on the noise of any K,
    and f on that of the rows between i and j (both at most a quantile of failure_rate over all comparisons of two
    windows), slack = f + eta z. Then, with S_W the exact Gram matrix of the window and probability 1 - failure_rate
    at any one time,

        S_W - z I <= gram <= (1 - eta/2)**-1 (S_W + (2 f + 1.5 eta z) I) + z I,

    and there are at most 4 + 1/overhang + (4/eta) sum_i ln(1 + lambda_i / z) checkpoints, lambda_i the eigenvalues
    of the exact sum since the oldest. As f <= z, this implies the bounds with (4 - eta/2) z that a slack of 2 z has.

    *Differences from the paper.* UU21's algorithms add rows exactly to matrices that are
    already noised and choose checkpoints by comparing them: not private (`streampca.reference`).
    Here all checkpoints come from one sequence of private running sums, whose noise is
    shaped so that differences over W rows have the least of it. Its sd times mu, at W = 2**8
    and 2**14: 3.52 and 5.39; with a fresh mechanism per block of W rows 4.12 and 6.21; with the
    anytime mechanism 4.52 and 6.31; with a binary tree per block, 12.7 and 21.2.
    """

    def __init__(
        self,
        *,
        window: int,
        n_components: int,
        epsilon: float,
        delta: float,
        n_features: int | None = None,
        eta: float = 0.25,
        method: Method = "histogram",
        adjacency: Adjacency = "zero-out",
        release_every: int = 1,
        checkpoint_every: int | None = None,
        overhang: float = 0.125,
        sketch_rank: int | None = None,
        failure_rate: float = 0.01,
        horizon: int | None = None,
        seed: int | None = None,
    ) -> None:
        check_components(n_components, n_features)
        check_count("window", window)
        check_count("release_every", release_every)
        check_count("checkpoint_every", checkpoint_every, optional=True)
        check_count("sketch_rank", sketch_rank, optional=True)
        check_count("horizon", horizon, optional=True)
        for name, value in (("eta", eta), ("failure_rate", failure_rate), ("overhang", overhang)):
            if not (isinstance(value, (int, float)) and 0.0 < value <= 1.0) or (value == 1.0 and name != "overhang"):
                raise BadParameter(f"{name}={value!r} must be between 0 and 1")
        budget = Budget(epsilon, delta, adjacency)
        self.window = window
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.n_features = n_features
        self.eta = eta
        self.method = method
        self.adjacency = adjacency
        self.release_every = release_every
        self.checkpoint_every = checkpoint_every
        self.overhang = overhang
        self.sketch_rank = sketch_rank
        self.failure_rate = failure_rate
        self.horizon = horizon
        self.seed = seed
        self._check_method()
        self._mu = budget.mu
        self._sensitivity = budget.gram_sensitivity
        self._leaves = -(-window // release_every)
        self._mark_every = checkpoint_every or (self._default_marks() if method == "histogram" else 1)
        self._pin_every = max(1, int(window * overhang / self._mark_every)) * self._mark_every
        self._latest: tuple[int, int] | None = None
        self._engine: WindowEngine | None = None
        self._guarantee = gaussian_guarantee(
            self._mu,
            epsilon,
            delta,
            adjacency=adjacency,
            scope=f"one release, after row {horizon}" if method == "once" else "all releases of an endless stream",
            theorem=_THEOREM[method],
            citation=_CITATION[method],
        )

    def _check_method(self) -> None:
        if self.method not in _THEOREM:
            raise BadParameter(f"method={self.method!r} is not known; use 'histogram', 'ring', 'forgetting' or 'once'")
        once = self.method == "once"
        if once != (self.horizon is not None):
            remedy = "pass the row of the release" if once else "leave it out: the stream is endless"
            raise BadParameter(f"horizon={self.horizon!r} with method={self.method!r}: {remedy}")
        for name in ("checkpoint_every", "sketch_rank"):
            if getattr(self, name) is not None and self.method != "histogram":
                raise BadParameter(f"{name}={getattr(self, name)!r} is for method='histogram' only; leave it out")
        if self.method != "once" and self.window < self.release_every:
            raise BadParameter(
                f"window={self.window} must be at least release_every={self.release_every}: "
                "otherwise rows leave before they are released"
            )
        if self.method in ("ring", "forgetting") and self.window % self.release_every:
            raise BadParameter(
                f"window={self.window} must be a multiple of release_every={self.release_every} with "
                f"method={self.method!r}: rows leave in groups of release_every"
            )
        if self.checkpoint_every is not None and self.checkpoint_every % self.release_every:
            raise BadParameter(
                f"checkpoint_every={self.checkpoint_every} must be a multiple of release_every={self.release_every}"
            )
        if self.method == "forgetting" and self.window > LONGEST:
            raise BadParameter(f"window={self.window} must be at most {LONGEST} with method='forgetting'")

    def _default_marks(self) -> int:
        """As many rows as move the Gram matrix by no more than one sd of its noise, in whole leaves."""
        rows = min(self._histogram_noise().lag_std(self._leaves), self.window / 8.0)
        return max(1, int(rows / self.release_every)) * self.release_every

    def _histogram_noise(self) -> StationaryBLT:
        return StationaryBLT(self._leaves, self._mu, self._sensitivity)

    # -- what it promises and when --------------------------------------------------

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta)-DP and mu-GDP per row for all releases together, known before any row."""
        return self._guarantee

    @property
    def rows_left(self) -> int | None:
        """Rows until the horizon; None if endless."""
        return None if self.horizon is None else self.horizon - self.t

    @property
    def rows_until_release(self) -> int:
        """Rows until the next release; 0 once a one-time release is made."""
        left = self.rows_left
        return self.release_every - self.t % self.release_every if left is None else left

    def noise_std(self, t: int) -> float:
        """Sd of a diagonal entry of the noise in the latest released Gram matrix after t rows.

        In units of row_norm**2; off-diagonal entries have this over sqrt(2). For
        ``"histogram"``, as if the oldest checkpoint lay at the window's start; `Release.noise_std`
        has the sd for where it really lay.

        Raises
        ------
        BadParameter
            If nothing has been released after t rows.
        """
        check_count("t", t)
        first = self.horizon or self.release_every
        if t < first or (self.horizon is not None and t > self.horizon):
            raise BadParameter(f"t={t}: the first release comes after {first} rows")
        n = t // self.release_every
        if self.method == "once":
            return self._sensitivity / self._mu
        if self.method == "ring":
            return LaggedTwin(self._leaves, self._mu, self._sensitivity).std(n)
        if self.method == "forgetting":
            return self._forgetting_noise().std(n)
        return self._histogram_noise().difference_std(n, min(n, self._leaves))

    def _forgetting_noise(self) -> ForgettingBLT:
        return ForgettingBLT(self._leaves, self._mu, self._sensitivity + ROUNDING)

    # -- how it works ---------------------------------------------------------------

    def _start(self, n_features: int, randomness: Randomness) -> None:
        noise = randomness.stream("SlidingWindowPCA", self.method)
        if self.method == "once":
            assert self.horizon is not None
            first = max(1, self.horizon - self.window + 1)
            self._engine = OnceEngine(n_features, first, self.horizon, self._sensitivity / self._mu, noise)
        elif self.method == "ring":
            twin = LaggedTwin(self._leaves, self._mu, self._sensitivity)
            self._engine = RingEngine(twin, n_features, self.release_every, noise)
        elif self.method == "forgetting":
            self._engine = ForgettingEngine(self._forgetting_noise(), n_features, noise)
        else:
            self._engine = HistogramEngine(
                self._histogram_noise(), self._histogram(n_features), self.release_every, self._mark_every, noise
            )

    def _histogram(self, n_features: int) -> SpectralHistogram:
        common = self._noise_bound(n_features)

        @lru_cache(maxsize=1024)
        def slack(rows: int) -> float:
            return self._noise_bound(n_features, rows) + self.eta * common

        if self.sketch_rank is None:
            return SpectralHistogram(n_features, self.window, self.eta, slack, self._pin_every)
        return SketchedHistogram(n_features, self.window, self.eta, slack, self._pin_every, self.sketch_rank)

    def _absorb(self, rows: FloatArray) -> Release | None:
        assert self._engine is not None
        self._engine.add(rows)
        if self.t != self.horizon if self.method == "once" else self.t % self.release_every:
            return None
        view = self._engine.look(self.t)
        self._latest = (view.first, self.t)
        return Release(
            t=self.t,
            n_components=self.n_components,
            guarantee=self._guarantee,
            packed_gram=view.packed,
            noise_std=view.std,
            details=view.details,
        )

    def curator_gram(self) -> FloatArray | None:
        """The exact Gram matrix of all rows absorbed, packed, if it is kept. Curator only."""
        return self._engine.gram.plus() if isinstance(self._engine, HistogramEngine) else None

    # -- what may be read off -------------------------------------------------------

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """First rows of the sums that the histogram keeps, ascending. Publishable: post-processing."""
        return tuple(self._histogram_engine("checkpoints").histogram.starts)

    @property
    def sketch_error(self) -> float:
        """Bound on the spectral norm of what truncation cost the latest sum; 0 without `sketch_rank`. Publishable."""
        return self._histogram_engine("sketch_error").histogram.error

    def _histogram_engine(self, name: str) -> HistogramEngine:
        if self.method != "histogram":
            raise BadParameter(f"{name} is for method='histogram'; this is {self.method!r}")
        if not isinstance(self._engine, HistogramEngine):
            raise NoRelease("no row has been seen, so there are no checkpoints yet")
        return self._engine

    @property
    def window_bounds(self) -> tuple[int, int]:
        """First and last row that the latest released matrix covers (fading, with ``"forgetting"``). Publishable."""
        if self._latest is None:
            raise NoRelease("nothing has been released yet, so there is no window")
        return self._latest

    @property
    def multiplicative_error(self) -> float:
        """How far, relatively, the released matrix may exceed the window's; see `additive_error`."""
        return 1.0 / (1.0 - self.eta / 2.0) - 1.0 if self.method == "histogram" else 0.0

    @property
    def additive_error(self) -> float:
        """How far, absolutely, the released matrix may be from the window's, in units of row_norm**2.

        With a this number and S the exact Gram matrix of the window (of the
        fading sum, with ``"forgetting"``), ``S - a I <= gram <= (1 +
        multiplicative_error) S + a I`` with probability 1 - failure_rate at any one time.
        """
        if self.n_features is None:
            raise NoRelease("the number of features is not known yet; push a row, or give n_features=")
        bound = self._noise_bound(self.n_features)
        if self.method != "histogram":
            return bound
        between = 2.0 * self._noise_bound(self.n_features, self._pin_every) + 1.5 * self.eta * bound
        factor = 1.0 + self.multiplicative_error
        # What precedes the window is bounded by the deletion test, and by the number of its rows.
        before = min(factor * max(between, self._mark_every - 1.0), self._pin_every + self._mark_every - 1.0)
        return before + bound + (self.sketch_error if self._engine else 0.0)

    def _noise_bound(self, n_features: int, rows: int | None = None) -> float:
        """Bound on the spectral norm of the noise, for all that one release and its checkpoints rest on.

        Of sums of so many rows; of the longest there are, if left out.
        """
        if self.method == "once":
            return noise_norm(self._sensitivity / self._mu, n_features, 1.0, self.failure_rate)
        if self.method == "ring":
            std = LaggedTwin(self._leaves, self._mu, self._sensitivity).lag_std(self._leaves)
            return noise_norm(std, n_features, 1.0, self.failure_rate)
        if self.method == "forgetting":
            return noise_norm(self._forgetting_noise().limit_std(), n_features, 1.0, self.failure_rate)
        longest = self.window + self._pin_every + self._mark_every
        # At any time within the longest sum, any two checkpoints within it, and the sum since each.
        marks = longest / self._mark_every
        comparisons = marks * (longest / self.release_every + marks)
        std = self._histogram_noise().lag_std(-(-(longest if rows is None else rows) // self.release_every))
        return noise_norm(std, n_features, comparisons, self.failure_rate)

    @property
    def memory(self) -> int:
        """Bytes held for rows, sums and checkpoints; noise apart."""
        return 0 if self._engine is None else self._engine.nbytes

    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the rows."""
        assert self._engine is not None
        latest = None if self._latest is None else list(self._latest)
        return {"t": self.t, "latest": latest, "engine": self._engine.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        assert self._engine is not None
        self._engine.restore(state["engine"])
        self._latest = None if state["latest"] is None else (int(state["latest"][0]), int(state["latest"][1]))
        self.t = int(state["t"])
