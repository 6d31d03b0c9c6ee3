"""Follow the perturbed leader with fresh noise: Algorithm 3 of DTTZ14. Not private across steps."""

from __future__ import annotations

import math
from typing import Any

from streampca.linalg.lattice import GramAccumulator
from streampca.linalg.svec import svec_size
from streampca.privacy.budget import Budget
from streampca.privacy.gaussian import epsilon_at
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import NoiseStream, Randomness
from streampca.processors.base import check_components, check_count
from streampca.processors.leader import DTTZ14, Leader, leader_regret_bound
from streampca.release import Release


class PerturbedLeader(Leader):
    """Follow the perturbed leader with fresh noise at every release. Not private across steps.

    Each release taken alone is (epsilon, delta)-DP under zero-out; together
    they are not: the noise of successive releases averages out. It is the
    online learner that the private one is compared with.

    Parameters
    ----------
    n_components : dimension of the subspace, k.
    epsilon, delta : strength of the regularisation; not a privacy budget.
    n_features : number of features, d; taken from the first row if left out.
    release_every : rows between releases.
    seed : for tests and scenarios; see `Stream`.

    Notes
    -----
    DTTZ14 Algorithm 3 with sd ``1 / mu(epsilon, delta)`` in svec coordinates.
    """

    horizon = None
    absorbs_grams = True

    def __init__(
        self,
        *,
        n_components: int,
        epsilon: float,
        delta: float,
        n_features: int | None = None,
        release_every: int = 1,
        seed: int | None = None,
    ) -> None:
        check_components(n_components, n_features)
        check_count("release_every", release_every)
        self.n_components = n_components
        self.n_features = n_features
        self.epsilon = epsilon
        self.delta = delta
        self.release_every = release_every
        self.seed = seed
        self._sigma = 1.0 / Budget(epsilon, delta).mu
        self._noise: NoiseStream | None = None

    @property
    def guarantee(self) -> Guarantee:
        """None: the releases together have no guarantee."""
        composed = epsilon_at(math.sqrt(100.0) / self._sigma, self.delta)
        return Guarantee.none(
            "fresh noise at every step is a regulariser: each release alone is "
            f"({self.epsilon:g}, {self.delta:g})-DP, 100 of them together are at epsilon = {composed:.3g}, and so on",
            f"{DTTZ14}, Algorithm 3",
        )

    def _start(self, n_features: int, randomness: Randomness) -> None:
        self._gram = GramAccumulator(n_features)
        self._noise = randomness.stream("PerturbedLeader")

    def _leave(self) -> Release | None:
        if self.t % self.release_every:
            return None
        assert self._noise is not None
        noise = self._noise.normal(self.t // self.release_every, svec_size(self._gram.n_features)) * self._sigma
        return Release(
            t=self.t,
            n_components=self.n_components,
            guarantee=self.guarantee,
            packed_gram=self._gram.plus(noise),
            noise_std=self._sigma,
        )

    def _std(self, leaf: int) -> float:
        return self._sigma

    def regret_bound(self, t: int, opt: float) -> float:
        """Theorem 14 of DTTZ14 with its constants (`bounds.perturbed_leader_regret`)."""
        return leader_regret_bound(self, t, opt, {})

    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the rows."""
        return {"t": self.t, "gram": self._gram.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.t = state["t"]
        self._gram.restore(state["gram"])
