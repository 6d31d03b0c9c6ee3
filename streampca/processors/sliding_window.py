"""Private PCA of the last W rows of an endless stream."""

from __future__ import annotations

from dataclasses import dataclass

from streampca.errors import BadParameterError
from streampca.linalg.counts import check_count, check_share
from streampca.linalg.lazy import cached_property
from streampca.privacy.guarantee import Guarantee
from streampca.processors.spectral_histogram import HistogramMethod
from streampca.processors.window_methods import (
    ForgettingMethod,
    RingMethod,
    SmoothedMethod,
    WindowAlgorithm,
    WindowMethod,
    WindowProcessor,
)

METHODS: dict[str, type[WindowMethod]] = {
    "histogram": HistogramMethod,
    "ring": RingMethod,
    "smoothed": SmoothedMethod,
    "forgetting": ForgettingMethod,
}


@dataclass(frozen=True, kw_only=True, repr=False)
class SlidingWindowPCA(WindowAlgorithm):
    """A private subspace of the last W rows, after every b rows of an endless stream.

    Parameters
    ----------
    window : rows in the window, W.
    n_components : dimension of the subspace, k.
    epsilon, delta : privacy budget per row for all releases together.
    eta : for ``"histogram"``: checkpoints are dropped when they agree within a factor 1 - eta/2.
    method : the method that follows the window.

        * ``"histogram"``: private running sums and a spectral histogram of them. Memory grows with log W. Covers the
          window and a few rows more (``release.details["window"]``).
        * ``"ring"``: exactly the window, with the same noise. Holds W rows, or the Gram matrices of their leaves.
        * ``"smoothed"``: the releases of ``"ring"``, with subspaces of an estimate of the window from the releases
          over two windows (`Release.smoothed`). Less error where rows change slowly, with some lag. At most 100
          releases a window.
        * ``"forgetting"``: the weight of rows falls by 1 - b/W a release. 30 % less noise and two matrices of memory,
          but old rows keep some weight.
    adjacency : ``"zero-out"`` (one row against the zero row) or ``"replace"``.
    release_every : rows between releases, b. Noise and running time decrease as b increases.
    checkpoint_every : for ``"histogram"``: rows between checkpoints, a multiple of ``release_every``. None uses the
        number of rows that move the Gram matrix by less than its noise.
    overhang : for ``"histogram"``: largest number of rows before the window that a release covers, as a share of the
        window. About 1 / overhang more checkpoints are kept.
    failure_rate : probability, at any one time, that `additive_error` is exceeded. The guarantee does not depend on it.
    center : release Gram matrices about the mean of the window, as `PrivateFPL` does.
        `additive_error` and `noise_bound` are then of the matrix before the mean is subtracted.

    Raises
    ------
    BadParameterError
        If a parameter is outside its domain, or the method does not support it.

    Notes
    -----
    *Guarantee.* One row changes one input of a matrix mechanism by at most 1 in Euclidean norm (zero-out) or sqrt(2)
    (replace). Each mechanism is mu-GDP over the endless sequence and for adaptive rows
    (`streampca.matrix_factorization.window`, `forgetting`), with mu solved exactly from (epsilon, delta). The choice of
    checkpoints and every subspace are computed from private sums, so they are post-processing.

    *Accuracy of the histogram.* The checkpoints between checkpoints i < j are deleted if (1 - eta/2) K(i) - slack I is
    below K(j), where K(i) is the private sum since checkpoint i. Let z bound the noise of any K, and f that of the rows
    between i and j, each at a quantile of failure_rate over all comparisons of two windows, and slack = f + eta z.
    Then, with S_W the exact Gram matrix of the window and probability 1 - failure_rate at any one time,

        S_W - z I <= gram <= (1 - eta/2)**-1 (S_W + (2 f + 1.5 eta z) I) + z I.

    At most 2 + ceil((window - 1) / p) + (4/eta) sum_i ln(1 + lambda_i / z) checkpoints are kept, where every p-th row
    starts one that is never deleted, and lambda_i are the eigenvalues of the exact sum since the oldest checkpoint.
    Proofs, and why the algorithms of the paper are not private: ``docs/theory/uu21.md``.
    """

    square_bytes = 85.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share("eta", self.eta)
        check_share("failure_rate", self.failure_rate)
        if self.overhang != 1.0:
            check_share("overhang", self.overhang)
        _ = self.budget.mu
        if self.method not in METHODS:
            raise BadParameterError(f"method={self.method!r}: expected one of {', '.join(map(repr, METHODS))}.")
        self.followed.check()

    @cached_property
    def followed(self) -> WindowMethod:
        return METHODS[self.method](self)

    @cached_property
    def guarantee(self) -> Guarantee:
        method = self.followed
        return Guarantee(
            self.epsilon, self.delta, self.adjacency, "all releases of an endless stream",
            method.theorem, method.citation, mu=self.budget.mu,
        )  # fmt: skip

    def noise_std(self, t: int) -> float:
        """Standard deviation of a diagonal entry of the noise in the latest released Gram matrix after t rows.

        In units of row_norm**2. Off-diagonal entries have this over sqrt(2). For ``"histogram"`` it assumes that the
        oldest checkpoint is at the start of the window; `Release.noise_std` uses its actual place.

        Raises
        ------
        BadParameterError
            If nothing has been released after t rows.
        """
        check_count("t", t)
        if t < self.release_every:
            raise BadParameterError(f"t={t}: expected at least {self.release_every}, the row of the first release.")
        return self.followed.std(t // self.release_every)

    def constants(self, n_features: int) -> tuple[object, ...]:
        bound = self.noise_bound(n_features)
        return self.budget.mu, self.sensitivity, bound, *self.followed.constants(n_features)

    def noise_bound(self, n_features: int) -> float:
        """Bound on the spectral norm of the noise in a release and its checkpoints.

        It holds with probability 1 - failure_rate at any one time.
        """
        return self.followed.noise_bound(n_features)

    @property
    def multiplicative_error(self) -> float:
        """Relative error by which the released matrix may exceed the window's; see `additive_error`."""
        return self.followed.multiplicative_error

    def additive_error(self, n_features: int) -> float:
        """Absolute error of the released matrix against the window's, in units of row_norm**2.

        With a this number and S the exact Gram matrix of the window (of the fading sum, with ``"forgetting"``),
        ``S - a I <= gram <= (1 + multiplicative_error) S + a I`` with probability 1 - failure_rate at any one time.
        """
        return self.followed.additive_error(n_features)

    @property
    def processor(self) -> type[WindowProcessor]:  # type: ignore[override]
        return self.followed.processor
