"""Private PCA of the last W rows of an endless stream."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from streampca.errors import BadParameter
from streampca.linalg.counts import check_components, check_count, use_plain_numbers
from streampca.linalg.fading import LONGEST, ROUNDING
from streampca.linalg.lazy import cached_property
from streampca.linalg.svec import svec_size
from streampca.matrix_factorization.forgetting import ForgettingBLT
from streampca.matrix_factorization.window import LaggedTwin, StationaryBLT
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.guarantee import Guarantee, gaussian_guarantee
from streampca.privacy.outlet import NoiseSource
from streampca.processors.base import Algorithm
from streampca.processors.spectral_histogram import Rules
from streampca.processors.window_processors import (
    ForgettingProcessor,
    HistogramProcessor,
    OnceProcessor,
    RowRingProcessor,
    SumRingProcessor,
    WindowProcessor,
)
from streampca.release import Terms

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
#: What follows the window, by method (``"ring"`` has another one, for long leaves).
PROCESSORS: dict[str, type[WindowProcessor]] = {
    "histogram": HistogramProcessor,
    "ring": RowRingProcessor,
    "forgetting": ForgettingProcessor,
    "once": OnceProcessor,
}


@dataclass(frozen=True, kw_only=True)
class SlidingWindowPCA(Algorithm):
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
    (zero-out) or sqrt(2) (replace). Each mechanism is mu-GDP over the endless sequence and for adaptive rows
    (`streampca.matrix_factorization.window`, `forgetting`), with mu solved exactly from (epsilon, delta).
    Which checkpoints are kept, and every subspace, is computed from private sums: post-processing.

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
    seed: int | None = None

    def __post_init__(self) -> None:
        use_plain_numbers(self)
        check_components(self.n_components, self.n_features)
        check_count("window", self.window)
        check_count("release_every", self.release_every)
        for name in ("checkpoint_every", "sketch_rank", "horizon"):
            check_count(name, getattr(self, name), optional=True)
        for name in ("eta", "failure_rate", "overhang"):
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and 0.0 < value <= 1.0) or (value == 1.0 and name != "overhang"):
                raise BadParameter(f"{name}={value!r} must be between 0 and 1")
        _ = self.mu
        self._check_method()

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
        if not once and self.window < self.release_every:
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

    # -- what it promises -------------------------------------------------------------

    @cached_property
    def mu(self) -> float:
        """The Gaussian-DP parameter of all releases together."""
        return Budget(self.epsilon, self.delta, self.adjacency).mu

    @property
    def sensitivity(self) -> float:
        """How far one row moves a Gram matrix."""
        return Budget(self.epsilon, self.delta, self.adjacency).gram_sensitivity

    @cached_property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta)-DP and mu-GDP per row for all releases together, known before any row."""
        once = self.method == "once"
        return gaussian_guarantee(
            self.mu,
            self.epsilon,
            self.delta,
            adjacency=self.adjacency,
            scope=f"one release, after row {self.horizon}" if once else "all releases of an endless stream",
            theorem=_THEOREM[self.method],
            citation=_CITATION[self.method],
        )

    # -- the noise --------------------------------------------------------------------

    @property
    def leaves(self) -> int:
        """Releases in a window."""
        return -(-self.window // self.release_every)

    @cached_property
    def prefix_noise(self) -> StationaryBLT:
        """The noise of ``"histogram"``, in sums of all rows."""
        return StationaryBLT(self.leaves, self.mu, self.sensitivity)

    @cached_property
    def prefix_grid(self) -> float:
        """The least sd there is in a sum of all rows: that of a difference over a single leaf."""
        return self.prefix_noise.difference_std(1, 1)

    @cached_property
    def ring_noise(self) -> LaggedTwin:
        """The noise of ``"ring"``, in sums of the last rows."""
        return LaggedTwin(self.leaves, self.mu, self.sensitivity)

    @cached_property
    def fading_noise(self) -> ForgettingBLT:
        """The noise of ``"forgetting"``, in fading sums."""
        return ForgettingBLT(self.leaves, self.mu, self.sensitivity + ROUNDING)

    @property
    def sigma(self) -> float:
        """Sd of the noise of ``"once"``."""
        return self.sensitivity / self.mu

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
            return self.sigma
        if self.method == "ring":
            return self.ring_noise.std(n)
        if self.method == "forgetting":
            return self.fading_noise.std(n)
        return self.prefix_noise.difference_std(n, min(n, self.leaves))

    def constants(self, n_features: int) -> tuple[object, ...]:
        """Every number of the noise, and of the choice of checkpoints."""
        shared = self.mu, self.sensitivity, self.noise_bound(n_features)
        if self.method == "once":
            return shared
        if self.method == "ring":
            return *shared, *self.ring_noise.constants()
        if self.method == "forgetting":
            return *shared, *self.fading_noise.constants()
        choice = self.slack(n_features, self.pin_every), self.mark_every, self.pin_every
        return *shared, *choice, self.prefix_grid, *self.prefix_noise.constants()

    # -- accuracy ---------------------------------------------------------------------

    @cached_property
    def mark_every(self) -> int:
        """Rows between checkpoints, in whole leaves.

        Unless given, as many as move the Gram matrix by no more than one sd of its noise.
        """
        if self.checkpoint_every is not None:
            return self.checkpoint_every
        rows = min(self.prefix_noise.lag_std(self.leaves), self.window / 8.0)
        return max(1, int(rows / self.release_every)) * self.release_every

    @property
    def pin_every(self) -> int:
        """Rows between checkpoints that are never deleted."""
        return max(1, int(self.window * self.overhang / self.mark_every)) * self.mark_every

    def noise_bound(self, n_features: int, rows: int | None = None) -> float:
        """Bound on the spectral norm of the noise, for all that one release and its checkpoints rest on.

        Of sums of so many rows; of the longest there are, if left out.
        """
        if self.method == "once":
            return self._norm(self.sigma, n_features)
        if self.method == "ring":
            return self._norm(self.ring_noise.lag_std(self.leaves), n_features)
        if self.method == "forgetting":
            return self._norm(self.fading_noise.limit_std, n_features)
        longest = self.window + self.pin_every + self.mark_every
        # At any time within the longest sum, any two checkpoints within it, and the sum since each.
        marks = longest / self.mark_every
        comparisons = marks * (longest / self.release_every + marks)
        std = self.prefix_noise.lag_std(-(-(longest if rows is None else rows) // self.release_every))
        return self._norm(std, n_features, comparisons)

    def _norm(self, std: float, n_features: int, comparisons: float = 1.0) -> float:
        """Bound on the spectral norms of many svec-GOE(std) matrices at once, but for the failure rate.

        The largest eigenvalue has mean at most std sqrt(2 d) (Slepian) and is a
        Lipschitz function of the noise with constant 1, so it exceeds its mean by
        std u with probability at most exp(-u**2 / 2); both ends of the spectrum count.
        """
        tail = math.sqrt(2.0 * math.log(2.0 * comparisons / self.failure_rate))
        return std * (math.sqrt(2.0 * n_features) + tail)

    def slack(self, n_features: int, rows: int) -> float:
        """Additive slack of the deletion test for checkpoints so many rows apart."""
        return self.noise_bound(n_features, rows) + self.eta * self.noise_bound(n_features)

    def rules(self, n_features: int) -> Rules:
        """Which checkpoints the histogram keeps."""
        slack = partial(self.slack, n_features)
        return Rules(n_features, self.window, 1.0 - self.eta / 2.0, slack, self.pin_every, self.sketch_rank)

    @property
    def multiplicative_error(self) -> float:
        """How far, relatively, the released matrix may exceed the window's; see `additive_error`."""
        return 1.0 / (1.0 - self.eta / 2.0) - 1.0 if self.method == "histogram" else 0.0

    def additive_error(self, n_features: int) -> float:
        """How far, absolutely, the released matrix may be from the window's, in units of row_norm**2.

        With a this number and S the exact Gram matrix of the window (of the
        fading sum, with ``"forgetting"``), ``S - a I <= gram <= (1 +
        multiplicative_error) S + a I`` with probability 1 - failure_rate at any one time.
        With `sketch_rank`, the processor's `additive_error` counts in what truncation cost.
        """
        bound = self.noise_bound(n_features)
        if self.method != "histogram":
            return bound
        between = 2.0 * self.noise_bound(n_features, self.pin_every) + 1.5 * self.eta * bound
        factor = 1.0 + self.multiplicative_error
        # What precedes the window is bounded by the deletion test, and by the number of its rows.
        before = min(factor * max(between, self.mark_every - 1.0), self.pin_every + self.mark_every - 1.0)
        return before + bound

    # -- how it works -----------------------------------------------------------------

    def _begun(self, n_features: int, source: NoiseSource, terms: Terms) -> WindowProcessor:
        kind = PROCESSORS[self.method]
        # Two numbers an entry of a leaf's sum, against four bytes a number of its rows.
        if self.method == "ring" and 16 * svec_size(n_features) < 4 * self.release_every * n_features:
            kind = SumRingProcessor
        return kind(self, n_features, source, terms)

    def _continued(
        self, n_features: int, source: NoiseSource, terms: Terms, snapshot: Mapping[str, Any]
    ) -> WindowProcessor:
        return self._begun(n_features, source, terms).restored(snapshot)
