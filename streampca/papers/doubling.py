"""The doubling trick of DTTZ14 Algorithm 4, with a threshold that works for every epsilon.

A new epoch begins when X, the private estimate of OPT, passes the guess of OPT less a quantile of the noise in X; the
first guess is doubled until that threshold is at least half of it. (The paper's threshold: ``docs/theory/dttz14.md``.)
The last releases of the epochs before, about log2 of OPT of them, are added to those of the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streampca.linalg.eigen import top_sum
from streampca.linalg.lattice import GramSum
from streampca.linalg.lazy import cached_property
from streampca.linalg.svec import svec_size, unpack_entries
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import DMRST22
from streampca.matrix_factorization.blt import GeometricBLT
from streampca.matrix_factorization.noises import BLT
from streampca.privacy.budget import DELTA, Adjacency
from streampca.privacy.gaussian import mu_of
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.processors.base import RELEASE_EVERY
from streampca.processors.leader import DTTZ14, Leader, LeaderProcessor
from streampca.processors.private_fpl import RUNNING_GRAMS
from streampca.release.release import Release
from streampca.release.terms import Terms
from streampca.state import State

#: Probability that X is above its noiseless value by more than the quantile at any release of an epoch.
FAILURE = 1e-3


@dataclass(frozen=True, kw_only=True)
class DoublingFPL(Leader):
    """Follow the perturbed leader with the doubling trick of DTTZ14, Algorithm 4. For comparison with the paper.

    The sums restart with more noise when the guess of OPT is passed. No regret bound is proved, and the noise is never
    less than that of `PrivateFPL`, whose parameters of the same names it has; ``horizon`` is required.

    Notes
    -----
    *Guarantee.* Each epoch is a matrix mechanism on the rows after its start, which is chosen from releases only. A row
    is in one epoch, so the guarantee is that of the first epoch, which spends the whole budget. A release is the matrix
    of the epoch plus the last ones of the epochs before: post-processing.
    """

    n_components: int
    epsilon: float
    delta: float = DELTA
    horizon: int
    release_every: int = RELEASE_EVERY
    adjacency: Adjacency = "zero-out"
    mechanism: GeometricBLT = field(init=False, repr=False, compare=False)  # of an epoch that has the whole budget

    is_bounded = False
    theorem = RUNNING_GRAMS
    citation = f"{DTTZ14}, Algorithm 4; {DMRST22}; {BLT.citation}"

    def __post_init__(self) -> None:
        super().__post_init__()
        mechanism = GeometricBLT(self.leaves(self.horizon), self.mu, self.budget.sensitivity())
        vars(self).update(mechanism=mechanism, scope=f"all releases of a stream of up to {self.horizon} rows")

    def first_epoch(self, n_features: int) -> Doubling:
        """Return the first epoch of a run."""
        # The first guess is the OPT whose epoch runs at the whole epsilon (`Doubling`).
        scale = self.n_components * math.sqrt(n_features) * math.log(self.horizon / self.delta) ** 2
        nothing = np.zeros(svec_size(n_features))
        epoch = Doubling(self, n_features, scale, self.leaves(self.horizon), nothing, opt_guess=scale / self.epsilon**2)
        # The guess is doubled until the threshold is at least half of it. The paper's is passed at once for small
        # epsilon.
        while epoch.opt_guess < 2.0 * epoch.quantile(epoch.leaves):
            epoch = replace(epoch, opt_guess=2.0 * epoch.opt_guess)
        return epoch

    def constants(self, n_features: int) -> tuple[object, ...]:
        first = self.first_epoch(n_features)
        return (*first.mechanism.constants(), first.opt_guess, self.mu)


class DoublingProcessor(LeaderProcessor, of=DoublingFPL):
    """State of a run of `DoublingFPL`: the epoch, its noise and exact sum, and that of the epochs before (``past``)."""

    __slots__ = ("doubling", "noise", "past")
    kept = __slots__

    algorithm: DoublingFPL

    def __init__(self, algorithm: DoublingFPL, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(algorithm, n_features, source, terms)
        self.doubling = algorithm.first_epoch(n_features)
        self.noise = self.doubling.mechanism.start(svec_size(n_features))
        self.past = GramSum(n_features)

    def released(self, t: int, gram: GramSum, outlet: Outlet) -> tuple[DoublingProcessor, Release]:
        algorithm, doubling = self.algorithm, self.doubling
        std = doubling.mechanism.std_chunks.at(self.noise.n + 1)
        noise, own = outlet.running("gram", gram, self.noise, std)
        # The sum of the last releases of all epochs so far. Their noises are independent, so variances add up.
        packed, std = own + doubling.released, math.sqrt(std**2 + doubling.variance)
        release = Release(
            t=t, n_components=algorithm.n_components, terms=self.terms, packed_gram=packed, noise_std=std,
            details={"epoch": doubling.epoch, "epoch_start": doubling.start_row},
        )  # fmt: skip
        # Privacy: the start of an epoch depends on released matrices only.
        return self.after(t, outlet.chain, gram=gram, noise=noise).next_epoch(own, packed, std), release

    def next_epoch(self, own: FloatArray, released: FloatArray, std: float) -> DoublingProcessor:
        """Return the processor, in the next epoch if ``own``, released of this one, passes the guess of OPT."""
        t, d, doubling = self.t, self.n_features, self.doubling
        leaves = self.algorithm.leaves(self.algorithm.horizon - t)
        if leaves == 0 or not doubling.passed(own, self.noise.n):
            return self
        following = doubling.restarted(t, leaves, released, std)
        noise = following.mechanism.start(svec_size(d))
        return self.after(t, self.chain, gram=GramSum(d), past=self.curator_gram(), doubling=following, noise=noise)

    def curator_gram(self) -> GramSum:
        return self.past.add_high_low(*self.gram.high_low())

    def restored(self, snapshot: Mapping[str, Any], source: Any = None) -> DoublingProcessor:
        # The noise of a later epoch is that of another mechanism, so the epoch is restored first.
        doubling = self.doubling.restored(snapshot["doubling"])
        first = self.after(0, self.chain, noise=doubling.mechanism.start(svec_size(self.n_features)))
        return super(DoublingProcessor, first).restored(snapshot, source)


@dataclass(frozen=True, eq=False)
class Doubling(State):
    """One epoch: its guess of OPT and its noise. An immutable value.

    Epoch e runs at epsilon_e = min(epsilon, sqrt(k sqrt(d) log^2(m/delta) / OPT_e)), the paper's choice. X, the sum of
    the top k eigenvalues of the released matrix of the epoch, is post-processing, and so is every restart.
    """

    kept = ("epoch", "start_row", "leaves", "opt_guess", "released", "variance")

    algorithm: DoublingFPL
    n_features: int
    scale: float  # the paper's k sqrt(d) log^2(m/delta)
    leaves: int  # largest number of releases in the epoch
    released: FloatArray  # sum of the last releases of the epochs before, packed
    variance: float = 0.0  # of a diagonal entry of its noise
    opt_guess: float = 0.0
    epoch: int = 0
    start_row: int = 0  # rows before the epoch

    @cached_property
    def mechanism(self) -> GeometricBLT:
        """Matrix factorization of this epoch."""
        budget = self.algorithm.budget
        epsilon = min(budget.epsilon, math.sqrt(self.scale / self.opt_guess))
        return GeometricBLT(self.leaves, mu_of(epsilon, budget.delta), budget.sensitivity())

    def passed(self, packed: FloatArray, leaf: int) -> bool:
        """True if the private estimate of the epoch's OPT, from its own released matrix, passes the threshold."""
        found = top_sum(unpack_entries(packed, self.n_features), self.algorithm.n_components)
        return found > self.opt_guess - self.quantile(leaf)

    def restarted(self, row: int, leaves: int, released: FloatArray, std: float) -> Doubling:
        """Return the next epoch, with twice the guess, after ``row`` rows and with ``leaves`` releases to come."""
        return replace(
            self, epoch=self.epoch + 1, start_row=row, leaves=leaves, opt_guess=2.0 * self.opt_guess,
            released=released, variance=std**2,
        )  # fmt: skip

    def quantile(self, leaf: int) -> float:
        """Bound on k times the largest eigenvalue of the noise, for all releases of the epoch together."""
        # E lambda_1(GOE) <= sqrt(2 d), and lambda_1 is 1-Lipschitz in svec coordinates.
        deviation = math.sqrt(2.0 * self.n_features) + math.sqrt(2.0 * math.log(max(self.leaves, 1) / FAILURE))
        return self.algorithm.n_components * self.mechanism.std(leaf) * deviation
