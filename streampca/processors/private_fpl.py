"""Private follow-the-perturbed-leader: Algorithm 4 of DTTZ14, with less noise."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.counts import check_components, check_count, use_plain_numbers
from streampca.linalg.eigen import power_step
from streampca.linalg.lattice import GramSum
from streampca.linalg.lazy import cached_property
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import MatrixFactorization, RunningNoise
from streampca.matrix_factorization.blt import AnytimeBLT, GeometricBLT
from streampca.matrix_factorization.exact_tree import ExactTree, ExactTreeNoise
from streampca.matrix_factorization.participation import user_factor
from streampca.matrix_factorization.tree import BinaryTree
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.exact import LatticeGram
from streampca.privacy.guarantee import Guarantee, gaussian_guarantee
from streampca.privacy.outlet import Chain, NoiseSource, Outlet
from streampca.processors.base import Processor, chain_restored
from streampca.processors.doubling import Doubling
from streampca.processors.leader import DTTZ14, Leader, LeaderProcessor, leader_regret_bound
from streampca.processors.rewards import GramWithRewards, RewardSum, joint_sensitivity
from streampca.release import Release, Terms

Noise = Literal["blt", "tree"]
Regularisation = Literal["privacy", "doubling"]
Solver = Literal["exact", "tracking"]

DMRST22 = "Denisov, McMahan, Rush, Smith, Thakurta, NeurIPS 2022, Theorem 2.1"
_SOURCE = {
    "blt": "Dvijotham, McMahan, Pillutla, Steinke, Thakurta, FOCS 2024 (buffered linear Toeplitz)",
    "tree": "Dwork, Naor, Pitassi, Rothblum, STOC 2010; Chan, Shi, Song, ICALP 2010 (binary tree)",
}


@dataclass(frozen=True, kw_only=True)
class PrivateFPL(Leader):
    """Private follow-the-perturbed-leader: a private subspace after every b rows, forever.

    The Gram matrix of all rows is released after every ``release_every`` rows
    with noise that is correlated over time, so that all releases together
    cost one budget and the noise grows with log t only. The subspace and the
    eigenvalues are read off the released matrix.

    Parameters
    ----------
    n_components : dimension of the subspace, k.
    epsilon, delta : budget for the whole stream of releases.
    n_features : number of features, d; taken from the first row if left out.
    horizon : number of rows the noise is calibrated for, or None for an
        endless stream (noise ``"blt"`` only; some 20 % more noise).
    noise : ``"blt"``, the least noise known; ``"tree"``, the paper's
        binary tree, exactly calibrated.
    release_every : rows between releases, b. Noise and time both fall with it.
    adjacency : ``"zero-out"`` (one row against the zero row) or ``"replace"``.
    regularisation : ``"privacy"``, the noise that privacy needs and no more;
        ``"doubling"``, the paper's doubling trick, which adds noise as OPT
        grows and starts over when its guess of OPT is passed (needs a horizon).
    publish_regret : release the noisy sum of rewards too, from which anyone
        can tell an interval for the regret (`PrivateRegret`). Costs 11.8 % more
        noise under zero-out, 6.1 % under replace. Not with ``"doubling"``.
    solver : ``"exact"``, the top eigenvectors of each released matrix, to which
        the regret bound applies; ``"tracking"``, one step of subspace iteration
        a release, from the subspace before: O(d^2 k) instead of O(d^3), and
        less regret in every measurement, since it averages noise over
        releases, but no bound is proved for it.
    exact : integers from end to end, with exact discrete Gaussian noise, so that no
        floating-point arithmetic stands between the proof and the release
        (`privacy.exact`). With ``noise="tree"`` only; same noise level.
    max_rows_per_user : calibrate for all rows of a user together, of which so many count
        (`UserStream` sees to that); `matrix_factorization.participation` has the proof. None: for one row.
    seed : for tests and scenarios; see `Stream`.

    Raises
    ------
    BadParameter
        If a parameter is outside its domain.

    Notes
    -----
    *Guarantee.* svec(a a^T) has norm ||a||**2 <= 1, so one row changes one
    input of the prefix-sum mechanism by at most 1 in Euclidean norm (zero-out)
    or sqrt(2) (replace, since <a a^T, b b^T> >= 0). The mechanism is mu-GDP
    over all its outputs and for inputs chosen adaptively (`matrix_factorization.base`),
    with mu solved exactly from (epsilon, delta). Everything released is
    post-processing of them.

    With ``publish_regret`` the inputs are pairs (svec(a a^T), c r), r the reward
    of the row on the subspace in play and c = 1/2, and their sensitivity is
    sqrt(1 + c**2) or sqrt(2 + c**2) (`processors.rewards`). `noise_std` counts it in.

    *Differences from the paper.* DTTZ14 calibrate each tree node with variance
    50 log^3(m/delta)/epsilon^2 over the upper triangle; the same tree
    calibrated exactly in svec coordinates has some 50 times less noise, and
    the default mechanism some 180 times less. The extra noise of line 6 only
    evens out the tree's sd and is left out.

    With ``regularisation="doubling"`` each epoch is a mechanism of its own on
    the rows after its start, which is chosen by looking at releases only. A
    row is in one epoch, so the guarantee is that of the costliest epoch, the first.
    """

    n_components: int
    epsilon: float
    delta: float
    n_features: int | None = None
    horizon: int | None = None
    noise: Noise = "blt"
    release_every: int = 1
    adjacency: Adjacency = "zero-out"
    regularisation: Regularisation = "privacy"
    publish_regret: bool = False
    solver: Solver = "exact"
    exact: bool = False
    max_rows_per_user: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        use_plain_numbers(self)
        check_components(self.n_components, self.n_features)
        check_count("horizon", self.horizon, optional=True)
        check_count("release_every", self.release_every)
        check_count("max_rows_per_user", self.max_rows_per_user, optional=True)
        if self.noise not in _SOURCE:
            raise BadParameter(
                f"noise={self.noise!r} is not known; use 'blt' or 'tree' ('haar' was retired: 'blt' has less noise)"
            )
        if self.regularisation not in ("privacy", "doubling"):
            raise BadParameter(f"regularisation={self.regularisation!r} is not known; use 'privacy' or 'doubling'")
        doubling = self.regularisation == "doubling"
        if self.horizon is None and (self.noise != "blt" or doubling):
            what = f"noise={self.noise!r}" if self.noise != "blt" else "regularisation='doubling'"
            raise BadParameter(f"{what} needs a known horizon; pass horizon=, or use noise='blt' with 'privacy'")
        if self.publish_regret and doubling:
            raise BadParameter(
                "publish_regret=True needs regularisation='privacy': each epoch of 'doubling' sums its own rows only"
            )
        if self.solver not in ("exact", "tracking"):
            raise BadParameter(f"solver={self.solver!r} is not known; use 'exact' or 'tracking'")
        if self.exact and (self.noise != "tree" or doubling or self.publish_regret):
            raise BadParameter(
                "exact=True needs noise='tree' with regularisation='privacy' and without publish_regret: integer "
                "noise is drawn node by node"
            )
        if self.max_rows_per_user is not None and doubling:
            raise BadParameter("max_rows_per_user needs regularisation='privacy': a user may have rows in every epoch")
        _ = self.mechanism

    @cached_property
    def budget(self) -> Budget:
        """The budget of the whole stream."""
        return Budget(self.epsilon, self.delta, self.adjacency)

    @cached_property
    def mechanism(self) -> MatrixFactorization:
        """The matrix factorization that the whole stream is released by (of a first epoch, with ``"doubling"``)."""
        return self.calibrated(self.budget.mu, None if self.horizon is None else self.leaves(self.horizon))

    def calibrated(self, mu: float, leaves: int | None) -> MatrixFactorization:
        """The matrix factorization for this Gaussian-DP parameter and number of releases."""
        sensitivity = self.budget.gram_sensitivity
        if self.publish_regret:
            sensitivity = joint_sensitivity(sensitivity)
        kind: Callable[[float], MatrixFactorization]
        if leaves is None:
            kind = partial(AnytimeBLT, mu)
        elif self.noise == "blt":
            kind = partial(GeometricBLT, leaves, mu)
        else:
            kind = partial(ExactTree if self.exact else BinaryTree, leaves, mu)
        made = kind(sensitivity)
        if self.max_rows_per_user is None:
            return made
        return kind(sensitivity * user_factor(made, self.max_rows_per_user, self.release_every))

    @cached_property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta)-DP and mu-GDP for all releases together, known before any row."""
        rows = "an endless stream" if self.horizon is None else f"a stream of up to {self.horizon} rows"
        users = self.max_rows_per_user
        return gaussian_guarantee(
            self.budget.mu,
            self.epsilon,
            self.delta,
            adjacency=self.adjacency,
            scope=f"all releases of {rows}" + (", with the noisy sums of rewards" if self.publish_regret else ""),
            theorem="Gaussian matrix mechanism on running Gram matrices, adaptive rows; subspaces are post-processing"
            + ("; exact discrete Gaussian noise on integers" if self.exact else ""),
            citation=f"{DTTZ14}, Algorithm 4; {DMRST22}; {_SOURCE[self.noise]}",
            unit="one row" if users is None else f"one user with up to {users} rows",
        )

    @property
    def absorbs_grams(self) -> bool:
        """False where rewards are released: each is rounded by itself."""
        return not self.publish_regret

    def constants(self, n_features: int) -> tuple[object, ...]:
        """Every number of the noise; with ``"doubling"``, those of the first epoch and the rule for the others."""
        doubling = self._doubling(n_features)
        if doubling is None:
            return self.mechanism.constants()
        return (*doubling.mechanism.constants(), doubling.opt_guess, self.budget.mu)

    def _doubling(self, n_features: int) -> Doubling | None:
        if self.regularisation != "doubling" or self.horizon is None:
            return None
        leaves = self.leaves(self.horizon)
        return Doubling.first(self.budget, self.n_components, n_features, self.horizon, leaves, self.calibrated)

    def _std(self, leaf: int) -> float:
        return self.mechanism.std(leaf)

    def _size(self, n_features: int) -> int:
        """Coordinates of a vector of noise."""
        return svec_size(n_features) + int(self.publish_regret)

    def _begun(self, n_features: int, source: NoiseSource, terms: Terms) -> FPLProcessor:
        doubling = self._doubling(n_features)
        mechanism = self.mechanism if doubling is None else doubling.mechanism
        k = self.n_components
        return FPLProcessor(
            self, n_features, source, terms, source.first, 0, GramSum(n_features), mechanism,
            self.first_noise(mechanism, n_features),
            span=np.asfortranarray(np.eye(n_features, k)) if self.solver == "tracking" else None,
            rewards=RewardSum.first(n_features, k) if self.publish_regret else None,
            doubling=doubling,
            past=None if doubling is None else GramSum(n_features),
        )  # fmt: skip

    def first_noise(self, mechanism: MatrixFactorization, n_features: int) -> RunningNoise | ExactTreeNoise:
        """The noise of a mechanism before its first release."""
        if isinstance(mechanism, ExactTree):
            return mechanism.begin(n_features)
        return mechanism.start(self._size(n_features))

    def _continued(
        self, n_features: int, source: NoiseSource, terms: Terms, snapshot: Mapping[str, Any]
    ) -> FPLProcessor:
        first = self._begun(n_features, source, terms)
        doubling = None if first.doubling is None else first.doubling.restored(snapshot["doubling"])
        mechanism = self.mechanism if doubling is None else doubling.mechanism
        noise: RunningNoise | ExactTreeNoise
        if isinstance(mechanism, ExactTree):
            noise = mechanism.restore_exact(n_features, snapshot["noise"], source)
        else:
            noise = mechanism.restore(self._size(n_features), snapshot["noise"], source)
        return FPLProcessor(
            self, n_features, source, terms, chain_restored(snapshot["chain"]), int(snapshot["t"]),
            GramSum.restored(n_features, snapshot["gram"]), mechanism, noise,
            span=None if first.span is None else np.asfortranarray(snapshot["span"]),
            rewards=None if first.rewards is None else RewardSum.restored(snapshot["rewards"]),
            doubling=doubling,
            past=None if doubling is None else GramSum.restored(n_features, snapshot["past"]),
        )  # fmt: skip


class FPLProcessor(LeaderProcessor):
    """Where a `PrivateFPL` stands.

    Attributes
    ----------
    mechanism : the matrix factorization in use.
    noise : the noise of the latest release.
    span : (d, k) basis of the latest subspace, with ``solver="tracking"``.
    rewards : the exact sum of rewards, with ``publish_regret``.
    doubling, past : the epoch, and the Gram matrix of the epochs before, with ``regularisation="doubling"``.
    """

    __slots__ = ("doubling", "mechanism", "noise", "past", "rewards", "span")

    algorithm: PrivateFPL

    def __init__(
        self,
        algorithm: PrivateFPL,
        n_features: int,
        source: NoiseSource,
        terms: Terms,
        chain: Chain,
        t: int,
        gram: GramSum,
        mechanism: MatrixFactorization,
        noise: RunningNoise | ExactTreeNoise,
        span: FloatArray | None,
        rewards: RewardSum | None,
        doubling: Doubling | None,
        past: GramSum | None,
    ) -> None:
        super().__init__(algorithm, n_features, source, terms, chain, t, gram)
        self.mechanism = mechanism
        self.noise = noise
        self.span = span
        self.rewards = rewards
        self.doubling = doubling
        self.past = past

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        """Add the rows to the sums; release them if that is due."""
        algorithm, t, gram = self.algorithm, self.t + rows.shape[0], self.gram.add(rows)
        scored = self if self.rewards is None else self.changed(self.t, self.gram, rewards=self.rewards.add(rows))
        if t % algorithm.release_every and t != algorithm.horizon:
            return scored.changed(t, gram), None
        return scored.released(t, gram, outlet)

    def changed(self, t: int, gram: GramSum, **changes: Any) -> FPLProcessor:
        """The processor with other values."""
        made = copy.copy(self)
        made.t, made.gram, made.rows_until_release = t, gram, self.algorithm.due(t)
        for name, value in changes.items():
            setattr(made, name, value)
        return made

    def _at(self, t: int, gram: GramSum) -> FPLProcessor:
        return self.changed(t, gram)

    def released(self, t: int, gram: GramSum, outlet: Outlet) -> tuple[FPLProcessor, Release]:
        """The processor after a release, and the release."""
        algorithm, d, n = self.algorithm, self.n_features, self.noise.n + 1
        first, stds = self.mechanism.std_chunks.latest
        std = stds[n - first] if 0 <= n - first < len(stds) else self.mechanism.std_chunks.at(n)
        details: dict[str, Any] = {}
        rewards, span = self.rewards, self.span
        if rewards is not None:
            noise, (packed, told) = outlet.running("gram", GramWithRewards(gram, rewards), self.noise, std)
            details["rewards"] = {**told, "split": int(outlet.coins("split").words(1)[0] >> np.uint64(11))}
        elif algorithm.exact:
            noise, packed = outlet.running("gram", LatticeGram(gram), self.noise, std)
        else:
            noise, packed = outlet.running("gram", gram, self.noise, std)
        if self.doubling is not None:
            details |= {"epoch": self.doubling.epoch, "epoch_start": self.doubling.start_row}
        if span is not None:
            # The shift is the size of the noise's eigenvalues: it keeps negative ones from leading.
            span = power_step(packed, span, std * math.sqrt(2.0 * d))
            details["solver"] = "tracking"
        release = Release(
            t=t, n_components=algorithm.n_components, terms=self.terms, packed_gram=packed, span=span, noise_std=std,
            details=details,
        )  # fmt: skip
        after = FPLProcessor.__new__(FPLProcessor)  # this runs once a release: no call of __init__
        after.algorithm, after.n_features, after.source, after.terms = algorithm, d, self.source, self.terms
        after.chain, after.t, after.gram, after.mechanism = outlet.chain, t, gram, self.mechanism
        after.noise, after.span, after.doubling, after.past = noise, span, self.doubling, self.past
        after.rewards = None if rewards is None else RewardSum(rewards.total, release)
        every, horizon = algorithm.release_every, algorithm.horizon
        due = algorithm.due(t) if algorithm.batches else every - t % every  # `Leader.due`, mostly without a call
        after.rows_until_release = due if horizon is None else min(due, horizon - t)
        return (after if after.doubling is None else _next_epoch(after, after.doubling, release)), release

    def noise_std(self, t: int) -> float:
        """`PrivateFPL.noise_std`; with ``"doubling"``, of the epoch under way."""
        if self.doubling is None:
            return self.algorithm.noise_std(t)
        every = self.algorithm.release_every
        return self.mechanism.std(max(1, -(-t // every) - self.doubling.start_row // every))

    def regret_bound(self, t: int, opt: float) -> float:
        """Theorem 14 of DTTZ14 with its constants (`bounds.perturbed_leader_regret`).

        For noise whose sd is smooth in time (``"blt"``, without doubling) and
        exact leaders; otherwise the trivial bound, ``opt``.
        """
        algorithm = self.algorithm
        if algorithm.noise != "blt" or self.doubling is not None or algorithm.solver != "exact":
            return opt
        return leader_regret_bound(algorithm, self.mechanism, self.n_features, t, opt)

    def curator_gram(self) -> GramSum:
        """The exact Gram matrix of all rows absorbed. Curator only."""
        return self.gram if self.past is None else self.past.add_words(*self.gram.words())

    def snapshot(self) -> dict[str, Any]:
        """Plain values and arrays from which the processor is made again. As secret as the rows."""
        out = {**super().snapshot(), "noise": self.noise.snapshot()}
        if self.span is not None:
            out["span"] = self.span
        if self.rewards is not None:
            out["rewards"] = self.rewards.snapshot()
        if self.doubling is not None and self.past is not None:
            out["doubling"] = self.doubling.snapshot()
            out["past"] = self.past.snapshot()
        return out


def _next_epoch(after: FPLProcessor, doubling: Doubling, release: Release) -> FPLProcessor:
    """The processor, or that of the next epoch if the guess of OPT is passed."""
    algorithm, values = after.algorithm, release.eigenvalues
    leaves = algorithm.leaves(after.rows_left or 0)
    if values is None or leaves == 0 or not doubling.passed(values, after.noise.n):
        return after
    following, past = doubling.restarted(after.t, leaves), after.past or GramSum(after.n_features)
    return after.changed(
        after.t,
        GramSum(after.n_features),
        past=past.add_words(*after.gram.words()),
        doubling=following,
        mechanism=following.mechanism,
        noise=algorithm.first_noise(following.mechanism, after.n_features),
    )
