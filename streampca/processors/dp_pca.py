"""DP-PCA: private PCA whose error falls with the data's own noise, in O(dk) memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streampca.errors import BadParameterError
from streampca.linalg.counts import check_components, check_count, use_plain_numbers
from streampca.linalg.memory import Rows
from streampca.linalg.types import FloatArray
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.processors.ascent import ENDS, Plan, hashable, released, schedule_of, start_basis
from streampca.processors.base import Algorithm, Processor
from streampca.processors.dp_pca_deflation import DeflationPlan
from streampca.processors.dp_pca_tangent import TangentPlan
from streampca.release.release import Release, Terms

CITATION = "Liu, Kong, Jain and Oh 2022, Algorithms 3 to 5; Duengler and Sanyal 2025 (arXiv 2508.10879), Algorithm 1"
#: Segments of longer streams would hold more rows than sums are exact for.
_LONGEST = 2**27


@dataclass(frozen=True, kw_only=True)
class DPPCA(Algorithm):
    """Private PCA by minibatch ascent with noise fitted to the rows' own noise.

    Where rows are signal plus a little noise, `PrivateOja` and the Gaussian
    mechanism add noise for the length of the rows. DP-PCA measures privately
    how far rows differ in a way that matters, clips to that and adds noise in
    proportion to it: its error falls to nothing with the rows' own noise.

    Any rows are private; only accuracy needs them to be alike (independent,
    light-tailed). As a rule its sine is 1.2 to 1.5 times that of PCA without
    privacy. `GaussianCovariance` has ``sqrt(d / 2) / (mu n gap)`` beside the
    sampling error, in squares: it is the better choice where that is less
    than some two thirds of the sampling error, which is so for noisy rows of few
    features. Scenario ``signal_noise`` shows where the lines cross.

    Parameters
    ----------
    n_components : dimension of the subspace, k.
    epsilon, delta : budget for everything that is ever released.
    horizon : rows in the stream, at most 2**27; no more are taken. Needed: minibatches are laid out before any row.
        At least so many that fewer than 1 run in 100 fails on rows whose squared norm is 1/16 or more on average:
        32 520 at 100 features, epsilon = 1 and delta = 1e-6. It beats `GaussianCovariance` from some 1e5 on.
    n_features : number of features, d; taken from the first row if left out.
    method : ``"tangent"``, all components at once, on the part of the gradients
        that moves the subspace (see `dp_pca_tangent`): needs the fewest rows
        and has the least noise; ``"deflation"``, the papers' way, one component
        after another on gradients about a private center (see `dp_pca_deflation`).
    batch_size : rows to a minibatch; ``"auto"`` lets each be half as long as
        all before it, as far as the mechanisms allow. With a number the horizon may be
        shorter, down to where the mechanisms work at all, and more runs fail.
    learning_rate : ``"adaptive"`` weighs each step by what private values show
        of its noise; ``(c1, c2)`` takes steps of ``c1 / (c2 + t)`` on the mean
        gradient at minibatch t; ``"search"`` (with deflation) runs
        `dp_pca_deflation.CANDIDATES` on rows of their own and keeps the one that privately
        captures most of further rows: the paper's search, at the price of that many
        times the rows.
    adjacency : ``"zero-out"`` or ``"replace"``.

    Notes
    -----
    *Guarantee.* (epsilon, delta)-DP under the stated adjacency for all
    releases and all steps together. Rows are laid out in public segments, one
    mechanism each, and each mechanism is (epsilon, delta)-DP in its own rows
    given what was released before. A row is in one segment, so they compose
    in parallel and each may spend the full budget.

    *No answer* never stops it: every mechanism that may have none has a public
    fallback, and ``release.details["fallbacks"]`` counts them (functions of
    private answers). Eigenvalues are t times private mean rewards of the
    latest minibatch (of each component's last one, with deflation).
    """

    n_components: int = 1
    epsilon: float
    delta: float
    horizon: int
    n_features: int | None = None
    method: Literal["tangent", "deflation"] = "tangent"
    batch_size: int | Literal["auto"] = "auto"
    learning_rate: Literal["adaptive", "search"] | tuple[float, float] = "adaptive"
    adjacency: Adjacency = "zero-out"

    def __post_init__(self) -> None:
        use_plain_numbers(self)
        check_components(self.n_components, self.n_features)
        _ = Budget(self.epsilon, self.delta, self.adjacency).mu
        check_count("horizon", self.horizon)
        if self.horizon > _LONGEST:
            raise BadParameterError(
                f"horizon={self.horizon} is too long for DPPCA, which takes {_LONGEST}; use PrivateOja"
            )
        if self.method not in ("tangent", "deflation"):
            raise BadParameterError(f"method={self.method!r} is not known; use 'tangent' or 'deflation'")
        if self.batch_size != "auto":
            check_count("batch_size", self.batch_size)
        object.__setattr__(self, "learning_rate", hashable(self.learning_rate))
        if self.learning_rate == "search":
            if self.method == "tangent":
                raise BadParameterError(
                    "learning_rate='search' goes with method='deflation'; use 'adaptive', which needs none"
                )
        else:
            schedule_of(self.learning_rate)
        if self.n_features is not None:
            self.plan(self.n_features)  # raises here rather than at the first row

    def plan(self, n_features: int) -> Plan:
        """The schedule for rows of so many features, or `BadParameterError` if the horizon is too short. Public."""
        budget = Budget(self.epsilon, self.delta, self.adjacency)
        given = n_features, self.n_components, self.horizon, budget, self.batch_size
        if self.learning_rate == "search":
            return DeflationPlan.make(*given, "search")
        make = TangentPlan.make if self.method == "tangent" else DeflationPlan.make
        return make(*given, schedule_of(self.learning_rate))

    def check(self, n_features: int) -> None:
        """Raise `BadParameterError` unless the features fit the parameters and the horizon is long enough."""
        super().check(n_features)
        self.plan(n_features)

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta)-DP for everything released. Known before any row."""
        return Guarantee(
            self.epsilon, self.delta, self.adjacency, "all releases of the stream, and every step in between",
            "parallel composition of votes, centers and means on disjoint rows", CITATION,
        )  # fmt: skip

    def constants(self, n_features: int) -> tuple[object, ...]:
        """Standard deviations, scales, thresholds, lattices and rates of all mechanisms."""
        return self.plan(n_features).constants()

    def _begun(self, n_features: int, source: NoiseSource, terms: Terms) -> DPPCAProcessor:
        return DPPCAProcessor(self, n_features, source, terms)


class DPPCAProcessor(Processor):
    """State of a run of `DPPCA`.

    Attributes
    ----------
    engine : the ascent. Curator only.
    waiting : rows that it has not seen yet. Curator only.
    """

    __slots__ = ("engine", "waiting")
    kept = __slots__

    algorithm: DPPCA

    def __init__(self, algorithm: DPPCA, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(algorithm, n_features, source, terms)
        basis = start_basis(n_features, algorithm.n_components, source.start)
        self.engine = algorithm.plan(n_features).begin(basis)
        self.waiting = Rows(n_features)

    @property
    def rows_left(self) -> int:
        """Rows until the horizon."""
        return self.algorithm.horizon - self.t

    @property
    def rows_until_release(self) -> int:
        """Rows until the end of the minibatch; 0 at the horizon."""
        following = self.engine.plan.segments[self.engine.at :]
        return next((segment.stop for segment in following if segment.purpose in ENDS), self.algorithm.horizon) - self.t

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[DPPCAProcessor, Release | None]:
        """Add rows to their segments; close the segments that end."""
        engine, waiting, ended = self.engine, self.waiting, False
        start, count, t = 0, rows.shape[0], self.t
        end = t + count
        while start < count and (segment := engine.segment) is not None:
            size = engine.chunk(segment)
            stop = min(count, start + size - waiting.count, start + segment.stop - t)
            waiting = waiting.append(rows[start:stop])
            start, t = stop, t + stop - start
            if waiting.count == size or t == segment.stop:
                engine, waiting = engine.take(segment, waiting.array), Rows(self.n_features)
            if t == segment.stop:
                engine, ended = engine.close(segment, outlet), segment.purpose in ENDS
        after = self.after(end, outlet.chain, engine=engine, waiting=waiting)
        return after, after.release() if ended or end == self.algorithm.horizon else None

    def release(self) -> Release:
        """The current subspace."""
        basis, values = self.engine.subspace()
        return released(self, basis, values * self.t, fallbacks=dict(self.engine.fallbacks))
