"""Follow the perturbed leader with fresh noise: Algorithm 3 of DTTZ14. Not private across steps."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from streampca.linalg.lattice import GramSum
from streampca.linalg.svec import svec_size
from streampca.privacy.budget import DELTA
from streampca.privacy.gaussian import epsilon_at
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import Outlet
from streampca.processors.base import RELEASE_EVERY
from streampca.processors.leader import DTTZ14, Leader, LeaderProcessor, with_spectrum
from streampca.release.release import Release
from streampca.release.terms import gram_fields


@dataclass(frozen=True, kw_only=True)
class PerturbedLeader(Leader):
    """Follow the perturbed leader with fresh noise at every release. Not private across steps.

    One release is (epsilon, delta)-DP under zero-out. All releases together are not, because the noise of successive
    releases averages out. This is the online learner with which the private one is compared: DTTZ14 Algorithm 3 with
    standard deviation ``1 / mu(epsilon, delta)`` in svec coordinates. ``epsilon`` and ``delta`` are the strength of the
    regularization, not a privacy budget. The other parameters are those of `PrivateFPL`.
    """

    n_components: int
    epsilon: float
    delta: float = DELTA
    release_every: int = RELEASE_EVERY
    center: bool = None  # type: ignore[assignment]  # None is resolved by `Configuration`
    #: Standard deviation of a diagonal entry of the noise in every release.
    sigma: float = field(init=False, repr=False, compare=False)

    horizon = None

    def __post_init__(self) -> None:
        super().__post_init__()
        sigma = self.budget.sensitivity(center=self.center) / self.mu
        vars(self).update(sigma=sigma, is_bounded=not (self.center or self.is_corrected), completes=True)

    @property
    def guarantee(self) -> Guarantee:
        # n independent releases at mu are sqrt(n) mu together.
        composed = epsilon_at(math.sqrt(100.0) / self.sigma, self.delta)
        return Guarantee.none(
            "fresh noise at every step is a regularizer: one release is "
            f"({self.epsilon:g}, {self.delta:g})-DP, 100 of them together are at epsilon = {composed:.3g}",
            f"{DTTZ14}, Algorithm 3",
        )

    def constants(self, n_features: int) -> tuple[object, ...]:
        return (self.sigma,)

    def std(self, n: int) -> float:
        return self.sigma


class PerturbedLeaderProcessor(LeaderProcessor, of=PerturbedLeader):
    """State of a run of `PerturbedLeader`."""

    __slots__ = ()

    algorithm: PerturbedLeader

    def released(self, t: int, gram: GramSum, outlet: Outlet) -> tuple[PerturbedLeaderProcessor, Release]:
        algorithm = self.algorithm
        packed = outlet.gram("gram", gram, svec_size(self.n_features), algorithm.sigma)
        rows = self.terms.count(1, t) if algorithm.center else None
        fields = gram_fields(packed, algorithm.sigma, self.terms, {}, rows)
        release = Release(t=t, n_components=algorithm.n_components, terms=self.terms, **fields)
        spectra = with_spectrum(self.spectra, algorithm, algorithm.leaves(t), gram)
        return self.after(t, outlet.chain, gram=gram, spectra=spectra), release
