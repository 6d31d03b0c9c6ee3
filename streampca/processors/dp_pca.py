"""DP-PCA: private PCA whose error falls with the data's own noise, in O(dk) memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from streampca.errors import BadParameterError
from streampca.linalg.counts import check_components, check_count, use_plain_numbers
from streampca.linalg.memory import Rows
from streampca.linalg.types import FloatArray
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.processors.ascent import ENDS, Plan, released, set_schedule, start_basis
from streampca.processors.base import Algorithm, Processor
from streampca.processors.dp_pca_deflation import DeflationPlan
from streampca.processors.dp_pca_tangent import TangentPlan
from streampca.release.release import Release, Terms

CITATION = "Liu, Kong, Jain and Oh 2022, Algorithms 3 to 5; Duengler and Sanyal 2025 (arXiv 2508.10879), Algorithm 1"
#: Longest horizon. Segments of longer streams would have more rows than sums are exact for.
_LONGEST = 2**27


@dataclass(frozen=True, kw_only=True)
class DPPCA(Algorithm):
    """Private PCA by minibatch ascent with noise fitted to the noise in the rows.

    `PrivateOja` and the Gaussian mechanism add noise in proportion to the length of the rows. DP-PCA measures
    privately the spread of the gradients that move the subspace, clips them to it and adds noise in proportion to it.
    Its error therefore falls to zero with the noise in the rows. All rows are private; only accuracy assumes that they
    are independent and light-tailed. `GaussianCovariance` is the better choice for noisy rows of few features.

    Parameters
    ----------
    n_components : dimension of the subspace, k.
    epsilon, delta : privacy budget of all releases.
    horizon : rows in the stream, at most 2**27, because minibatches are laid out before any row. The least horizon is
        one at which fewer than 1 run in 100 fails on rows whose squared norm is 1/16 or more on average.
    n_features : number of features, d. None uses that of the first row.
    method : ``"tangent"``: all components together, on the part of the gradients that moves the subspace
        (`dp_pca_tangent`); needs the fewest rows and has the least noise. ``"deflation"``: one component after another
        on gradients about a private center (`dp_pca_deflation`), as in the papers.
    batch_size : rows in a minibatch; ``"auto"`` makes each half as long as all before it, if the mechanisms allow. With
        a number, shorter horizons are accepted and more runs fail.
    learning_rate : ``"adaptive"`` weighs each step by private estimates of its noise; ``(c1, c2)`` makes steps of
        ``c1 / (c2 + t)`` on the mean gradient at minibatch t; ``"search"`` (with deflation) runs
        `dp_pca_deflation.CANDIDATES` on separate rows and keeps the one that privately captures most of further rows.
    adjacency : ``"zero-out"`` or ``"replace"``.

    Raises
    ------
    BadParameterError
        If a parameter is outside its domain, or the horizon is too short.

    Notes
    -----
    *Guarantee.* (epsilon, delta)-DP under the stated adjacency for all releases and all steps together. Rows are laid
    out in public segments, one mechanism each, and each mechanism is (epsilon, delta)-DP in its own rows given earlier
    releases. A row is in one segment, so by parallel composition each segment spends the full budget.

    A mechanism without an answer has a public fallback, and ``release.details["fallbacks"]`` counts them. Eigenvalues
    are t times private mean rewards of the latest minibatch (of each component's last one, with deflation).
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
    schedule: tuple[float, float] | None = field(init=False, default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        use_plain_numbers(self)
        check_components(self.n_components, self.n_features)
        _ = Budget(self.epsilon, self.delta, self.adjacency).mu
        check_count("horizon", self.horizon)
        if self.horizon > _LONGEST:
            raise BadParameterError(f"horizon={self.horizon}: expected at most {_LONGEST}. Use PrivateOja.")
        if self.method not in ("tangent", "deflation"):
            raise BadParameterError(f"method={self.method!r}: expected one of 'tangent', 'deflation'.")
        if self.batch_size != "auto":
            check_count("batch_size", self.batch_size)
        if self.learning_rate != "search":
            set_schedule(self)
        elif self.method == "tangent":
            raise BadParameterError("learning_rate='search': expected method='deflation'.")
        if self.n_features is not None:
            self.plan(self.n_features)  # raises here rather than at the first row

    def plan(self, n_features: int) -> Plan:
        """Return the public schedule for ``n_features`` features; `BadParameterError` if the horizon is too short."""
        budget = Budget(self.epsilon, self.delta, self.adjacency)
        layout = n_features, self.n_components, self.horizon, budget, self.batch_size
        if self.learning_rate == "search":
            return DeflationPlan.make(*layout, "search")
        make = TangentPlan.make if self.method == "tangent" else DeflationPlan.make
        return make(*layout, self.schedule)

    def check(self, n_features: int) -> None:
        super().check(n_features)
        self.plan(n_features)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            self.epsilon, self.delta, self.adjacency, "all releases of the stream, and every step in between",
            "parallel composition of votes, centers and means on disjoint rows", CITATION,
        )  # fmt: skip

    def constants(self, n_features: int) -> tuple[object, ...]:
        return self.plan(n_features).constants()

    def _begun(self, n_features: int, source: NoiseSource, terms: Terms) -> DPPCAProcessor:
        return DPPCAProcessor(self, n_features, source, terms)


class DPPCAProcessor(Processor):
    """State of a run of `DPPCA`: the ascent, and the rows that it has not absorbed yet. Curator only."""

    __slots__ = ("engine", "waiting")
    kept = __slots__

    algorithm: DPPCA

    def __init__(self, algorithm: DPPCA, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(algorithm, n_features, source, terms)
        basis = start_basis(n_features, algorithm.n_components, source.start)
        self.engine = algorithm.plan(n_features).begin(basis)
        self.waiting = Rows(n_features)

    @property
    def rows_until_release(self) -> int:
        following = self.engine.plan.segments[self.engine.at :]
        return next((segment.stop for segment in following if segment.purpose in ENDS), self.algorithm.horizon) - self.t

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[DPPCAProcessor, Release | None]:
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
        if not ended and end != self.algorithm.horizon:
            return after, None
        basis, values = engine.subspace()
        return after, released(after, basis, values * end, fallbacks=dict(engine.fallbacks))
