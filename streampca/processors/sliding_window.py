"""Private PCA of the last W rows of an endless stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from streampca.errors import BadParameterError
from streampca.linalg.counts import check_components, check_count, check_share, use_plain_numbers
from streampca.linalg.lazy import cached_property
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import NoiseSource
from streampca.processors.base import Algorithm
from streampca.processors.spectral_histogram import HistogramMethod
from streampca.processors.window_methods import (
    ForgettingMethod,
    OnceMethod,
    RingMethod,
    SmoothedMethod,
    WindowMethod,
    WindowProcessor,
)
from streampca.release.release import Terms

Method = Literal["histogram", "ring", "smoothed", "forgetting", "once"]

METHODS: dict[str, type[WindowMethod]] = {
    "histogram": HistogramMethod,
    "ring": RingMethod,
    "smoothed": SmoothedMethod,
    "forgetting": ForgettingMethod,
    "once": OnceMethod,
}


@dataclass(frozen=True, kw_only=True, repr=False)
class SlidingWindowPCA(Algorithm):
    """A private subspace of the last W rows, after every b rows of an endless stream.

    Parameters
    ----------
    window : rows in the window, W.
    n_components : dimension of the subspace, k.
    epsilon, delta : budget per row for all releases together.
    n_features : number of features, d; taken from the first row if left out.
    eta : of ``"histogram"``: checkpoints are dropped when they agree within a factor 1 - eta/2.
    method : how the window is followed.

        * ``"histogram"``: private running sums and a spectral histogram of them. Memory grows with
          log W, not W. Covers the window and a few rows more (``release.details["window"]``).
        * ``"ring"``: exactly the window, with the same noise; holds W rows, or their leaves' Gram matrices.
        * ``"smoothed"``: the releases of ``"ring"``, and subspaces read off an estimate of the window from the
          releases over two windows (`Release.smoothed`): less error where rows change slowly beside the window, at
          the price of some lag. Keeps two windows' releases; at most 100 releases a window.
        * ``"forgetting"``: the weight of rows falls by 1 - b/W a release; 30 % less noise and two matrices of
          memory, but old rows keep some weight.
        * ``"once"``: the last W of ``horizon`` rows, released once at the end with the noise of one release.
    adjacency : ``"zero-out"`` (one row against the zero row) or ``"replace"``.
    release_every : rows between releases, b. Noise and time both fall with it.
    checkpoint_every : of ``"histogram"``: rows between checkpoints, a multiple of
        ``release_every``. Left out, as many as move the Gram matrix by less than its noise.
    overhang : of ``"histogram"``: how many rows before the window the released sum may cover at most,
        as a share of it. About 1 / overhang more checkpoints are kept.
    sketch_rank : of ``"histogram"``: keep only so many directions between two checkpoints, in O(d
        rank) memory instead of O(d**2), with an error of at most `sketch_error`. A good value is n_components / eta.
    failure_rate : probability, at any one time, that `additive_error` is exceeded. It does not affect the guarantee.
    horizon : rows in the stream, for ``"once"``: the window is released after the last of them, and no more are taken.
    center : release Gram matrices about the mean of the window, as `PrivateFPL` does. Not with ``sketch_rank``.
        `additive_error` and `noise_bound` are then of the matrix before its mean is taken out.

    Notes
    -----
    *Guarantee.* One row changes one input of a matrix mechanism by at most 1 in Euclidean norm
    (zero-out) or sqrt(2) (replace). Each mechanism is mu-GDP over the endless sequence and for adaptive rows
    (`streampca.matrix_factorization.window`, `forgetting`), with mu solved exactly from (epsilon, delta).
    Which checkpoints are kept, and every subspace, is computed from private sums: post-processing.

    *Accuracy of the histogram.* The checkpoints between checkpoints i < j are deleted if (1 - eta/2)
    K(i) - slack I is below K(j), K(i) the private sum since checkpoint i. With z a bound on the noise of any K,
    and f on that of the rows between i and j (both at most a quantile of failure_rate over all comparisons of two
    windows), slack = f + eta z. Then, with S_W the exact Gram matrix of the window and probability 1 - failure_rate
    at any one time,

        S_W - z I <= gram <= (1 - eta/2)**-1 (S_W + (2 f + 1.5 eta z) I) + z I,

    and there are at most 2 + ceil((window - 1) / p) + (4/eta) sum_i ln(1 + lambda_i / z) checkpoints: every p-th row
    starts one that is never deleted, with p the largest multiple of ``checkpoint_every`` up to overhang * window
    (the least one if there is none), and lambda_i are the eigenvalues of the exact sum since the oldest.
    As f <= z, this implies the bounds with (4 - eta/2) z that a slack of 2 z has.

    *Rows of one distribution.* `Tumbling` with ``release_every=window`` puts each row in one release, with
    noise of standard deviation 1 / mu; its latest release lags by up to a window. Where rows do not change that
    is closer to the window's subspace than any method here.

    *Noise of the histogram.* All checkpoints come from one sequence of private running sums, whose noise is
    shaped so that differences over W rows have the least of it. (The algorithms of the paper are not private:
    ``docs/theory/uu21.md``.) Its standard deviation times mu, at W = 2**8 and 2**14: 3.52 and 5.39; with a fresh
    mechanism per block of W rows 4.12 and 6.21; with the anytime mechanism 4.52 and 6.31; with a binary tree per
    block, 12.4 and 20.9.
    """

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

    def __post_init__(self) -> None:
        use_plain_numbers(self)
        check_components(self.n_components, self.n_features)
        check_count("window", self.window)
        check_count("release_every", self.release_every)
        for name in ("checkpoint_every", "sketch_rank", "horizon"):
            check_count(name, getattr(self, name), optional=True)
        check_share("eta", self.eta)
        check_share("failure_rate", self.failure_rate)
        if self.overhang != 1.0:
            check_share("overhang", self.overhang)
        _ = self.mu
        if self.method not in METHODS:
            raise BadParameterError(
                f"method={self.method!r} is not known; use 'histogram', 'ring', 'smoothed', 'forgetting' or 'once'"
            )
        if self.center and self.sketch_rank is not None:
            raise BadParameterError("center=True keeps whole matrices; leave out sketch_rank=")
        self.followed.check()

    @property
    def square_bytes(self) -> float:
        """Of sums, their noise, and a release that is read."""
        return 85.0

    @cached_property
    def followed(self) -> WindowMethod:
        """The object that implements ``method``."""
        return METHODS[self.method](self)

    # -- guarantee --------------------------------------------------------------------

    @cached_property
    def budget(self) -> Budget:
        """The target budget of all releases together."""
        return Budget(self.epsilon, self.delta, self.adjacency)

    @cached_property
    def mu(self) -> float:
        """The Gaussian-DP parameter of all releases together."""
        return self.budget.mu

    @property
    def sensitivity(self) -> float:
        """Sensitivity to one row of a Gram matrix, with the sum of rows if ``center``."""
        return self.budget.sensitivity(center=self.center)

    @cached_property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta)-DP and mu-GDP per row for all releases together, known before any row."""
        method = self.followed
        return Guarantee(
            self.epsilon, self.delta, self.adjacency, method.scope, method.theorem, method.citation, mu=self.mu
        )

    # -- noise and accuracy -----------------------------------------------------------

    @property
    def leaves(self) -> int:
        """Releases in a window."""
        return -(-self.window // self.release_every)

    def noise_std(self, t: int) -> float:
        """Standard deviation of a diagonal entry of the noise in the latest released Gram matrix after t rows.

        In units of row_norm**2; off-diagonal entries have this over sqrt(2). For
        ``"histogram"``, as if the oldest checkpoint lay at the window's start; `Release.noise_std`
        has the standard deviation for where it really lay.

        Raises
        ------
        BadParameterError
            If nothing has been released after t rows.
        """
        check_count("t", t)
        first = self.horizon or self.release_every
        if t < first or (self.horizon is not None and t > self.horizon):
            raise BadParameterError(f"t={t}: the first release comes after {first} rows")
        return self.followed.std(t // self.release_every)

    def constants(self, n_features: int) -> tuple[object, ...]:
        """Every number of the noise, and of the choice of checkpoints."""
        return self.mu, self.sensitivity, self.noise_bound(n_features), *self.followed.constants(n_features)

    def noise_bound(self, n_features: int) -> float:
        """Bound on the spectral norm of the noise, for all that one release and its checkpoints rest on.

        It holds with probability 1 - failure_rate at any one time.
        """
        return self.followed.noise_bound(n_features)

    @property
    def multiplicative_error(self) -> float:
        """Relative error by which the released matrix may exceed the window's; see `additive_error`."""
        return self.followed.multiplicative_error

    def additive_error(self, n_features: int) -> float:
        """Absolute error of the released matrix against the window's, in units of row_norm**2.

        With a this number and S the exact Gram matrix of the window (of the
        fading sum, with ``"forgetting"``), ``S - a I <= gram <= (1 +
        multiplicative_error) S + a I`` with probability 1 - failure_rate at any one time.
        With `sketch_rank` the truncation error, ``release.details["sketch_error"]``, adds to it.
        """
        return self.followed.additive_error(n_features)

    def _begun(self, n_features: int, source: NoiseSource, terms: Terms) -> WindowProcessor:
        return self.followed.kind(n_features)(self, n_features, source, terms)
