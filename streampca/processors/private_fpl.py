"""Private follow-the-perturbed-leader: Algorithm 4 of DTTZ14, with less noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.eigen import power_step
from streampca.linalg.lattice import GramAccumulator
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray
from streampca.prefix_sums.base import PrefixSum, RunningNoise
from streampca.prefix_sums.blt import AnytimeBLT, GeometricBLT
from streampca.prefix_sums.exact_tree import ExactTree, ExactTreeNoise
from streampca.prefix_sums.haar import HaarTree
from streampca.prefix_sums.participation import user_factor
from streampca.prefix_sums.tree import BinaryTree
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.exact import exact_sum
from streampca.privacy.guarantee import Guarantee, gaussian_guarantee
from streampca.privacy.randomness import Randomness
from streampca.processors.base import check_components, check_count
from streampca.processors.doubling import Doubling
from streampca.processors.leader import DTTZ14, Leader, leader_regret_bound
from streampca.processors.rewards import RewardSum, joint_sensitivity
from streampca.release import Release

Noise = Literal["blt", "tree", "haar"]
Regularisation = Literal["privacy", "doubling"]
Solver = Literal["exact", "tracking"]

DMRST22 = "Denisov, McMahan, Rush, Smith, Thakurta, NeurIPS 2022, Theorem 2.1"
_SOURCE = {
    "blt": "Dvijotham, McMahan, Pillutla, Steinke, Thakurta, FOCS 2024 (buffered linear Toeplitz)",
    "tree": "Dwork, Naor, Pitassi, Rothblum, STOC 2010; Chan, Shi, Song, ICALP 2010 (binary tree)",
    "haar": "Xiao, Wang, Gehrke, ICDE 2010 (Haar wavelet)",
}


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
        binary tree, exactly calibrated; ``"haar"``, a wavelet tree with random access.
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
        (`UserStream` sees to that); `prefix_sums.participation` has the proof. None: for one row.
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
    over all its outputs and for inputs chosen adaptively (`prefix_sums.base`),
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

    def __init__(
        self,
        *,
        n_components: int,
        epsilon: float,
        delta: float,
        n_features: int | None = None,
        horizon: int | None = None,
        noise: Noise = "blt",
        release_every: int = 1,
        adjacency: Adjacency = "zero-out",
        regularisation: Regularisation = "privacy",
        publish_regret: bool = False,
        solver: Solver = "exact",
        exact: bool = False,
        max_rows_per_user: int | None = None,
        seed: int | None = None,
    ) -> None:
        check_components(n_components, n_features)
        check_count("horizon", horizon, optional=True)
        check_count("release_every", release_every)
        budget = Budget(epsilon, delta, adjacency)
        if noise not in _SOURCE:
            raise BadParameter(f"noise={noise!r} is not known; use 'blt', 'tree' or 'haar'")
        if regularisation not in ("privacy", "doubling"):
            raise BadParameter(f"regularisation={regularisation!r} is not known; use 'privacy' or 'doubling'")
        if horizon is None and (noise != "blt" or regularisation == "doubling"):
            what = f"noise={noise!r}" if noise != "blt" else "regularisation='doubling'"
            raise BadParameter(f"{what} needs a known horizon; pass horizon=, or use noise='blt' with 'privacy'")
        if publish_regret and regularisation == "doubling":
            raise BadParameter(
                "publish_regret=True needs regularisation='privacy': each epoch of 'doubling' sums its own rows only"
            )
        if solver not in ("exact", "tracking"):
            raise BadParameter(f"solver={solver!r} is not known; use 'exact' or 'tracking'")
        if exact and (noise != "tree" or regularisation != "privacy" or publish_regret):
            raise BadParameter(
                "exact=True needs noise='tree' with regularisation='privacy' and without publish_regret: integer "
                "noise is drawn node by node"
            )
        check_count("max_rows_per_user", max_rows_per_user, optional=True)
        if max_rows_per_user is not None and regularisation == "doubling":
            raise BadParameter("max_rows_per_user needs regularisation='privacy': a user may have rows in every epoch")
        self.max_rows_per_user = max_rows_per_user
        self.n_components = n_components
        self.n_features = n_features
        self.epsilon = epsilon
        self.delta = delta
        self.horizon = horizon
        self.noise = noise
        self.solver = solver
        self.exact = bool(exact)
        self.release_every = release_every
        self.adjacency = adjacency
        self.regularisation = regularisation
        self.publish_regret = bool(publish_regret)
        self.seed = seed
        self._budget = budget
        self._mu = budget.mu
        self._prefix = self._mechanism(self._mu, self._total_leaves)
        self._doubling: Doubling | None = None
        self._rewards: RewardSum | None = None
        self._stds: dict[int, float] = {}
        rows = "an endless stream" if horizon is None else f"a stream of up to {horizon} rows"
        self._guarantee = gaussian_guarantee(
            self._mu,
            epsilon,
            delta,
            adjacency=adjacency,
            scope=f"all releases of {rows}" + (", with the noisy sums of rewards" if publish_regret else ""),
            theorem="Gaussian matrix mechanism on running Gram matrices, adaptive rows; subspaces are post-processing"
            + ("; exact discrete Gaussian noise on integers" if exact else ""),
            citation=f"{DTTZ14}, Algorithm 4; {DMRST22}; {_SOURCE[noise]}",
            unit="one row" if max_rows_per_user is None else f"one user with up to {max_rows_per_user} rows",
        )

    @property
    def _total_leaves(self) -> int | None:
        return None if self.horizon is None else self._leaves(self.horizon)

    def _mechanism(self, mu: float, leaves: int | None) -> PrefixSum:
        sensitivity = self._budget.gram_sensitivity
        if self.publish_regret:
            sensitivity = joint_sensitivity(sensitivity)
        kind: Callable[[float], PrefixSum]
        if leaves is None:
            kind = partial(AnytimeBLT, mu)
        else:
            kinds = {"blt": GeometricBLT, "tree": ExactTree if self.exact else BinaryTree, "haar": HaarTree}
            kind = partial(kinds[self.noise], leaves, mu)
        made = kind(sensitivity)
        if self.max_rows_per_user is None:
            return made
        return kind(sensitivity * user_factor(made, self.max_rows_per_user, self.release_every))

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta)-DP and mu-GDP for all releases together, known before any row."""
        return self._guarantee

    def _start(self, n_features: int, randomness: Randomness) -> None:
        self._gram = GramAccumulator(n_features)
        self._randomness = randomness
        if self.regularisation == "doubling":
            assert self.horizon is not None
            self._doubling = Doubling(
                self._budget, self.n_components, n_features, self.horizon, self._total_leaves or 1, self._mechanism
            )
            self._past = GramAccumulator(n_features)
            self._prefix = self._doubling.mechanism
        if self.publish_regret:
            self._rewards = RewardSum(n_features, self.n_components, randomness.stream("PrivateFPL", "split"))
        self._running = self._begin(n_features, 0)
        self._span = np.asfortranarray(np.eye(n_features, self.n_components))

    def _begin(self, n_features: int, epoch: int) -> RunningNoise | ExactTreeNoise:
        if isinstance(self._prefix, ExactTree):
            return self._prefix.begin(n_features, self._randomness.stream("PrivateFPL", "exact tree", epoch))
        size = svec_size(n_features) + (1 if self.publish_regret else 0)
        return self._prefix.start(size, self._randomness.stream("PrivateFPL", self.noise, epoch))

    @property
    def absorbs_grams(self) -> bool:  # type: ignore[override]
        """False where rewards are released: each is rounded by itself."""
        return not self.publish_regret

    def _absorb(self, rows: FloatArray) -> Release | None:
        if self._rewards is not None:
            self._rewards.add(rows)
        self._gram.add(rows)
        return self._leave()

    def _leave(self) -> Release | None:
        if self.t % self.release_every and self.t != self.horizon:
            return None
        noise: Any = self._running.advance()  # floats in svec coordinates, or lattice integers if exact
        std = self._prefix.std(self._running.n)
        details: dict[str, Any] = {}
        if self._rewards is not None:
            details["rewards"] = self._rewards.noisy(float(noise[-1]), std, self._running.n)
            noise = noise[:-1]
        if self._doubling is not None:
            details |= {"epoch": self._doubling.epoch, "epoch_start": self._doubling.start_row}
        packed = exact_sum(self._gram, noise) if self.exact else self._gram.noisy(noise, std)
        tracking = self.solver == "tracking"
        if tracking:
            d = self._gram.n_features
            # The shift is the size of the noise's eigenvalues: it keeps negative ones from leading.
            self._span = power_step(packed, self._span, std * math.sqrt(2.0 * d))
            details["solver"] = self.solver
        release = Release(
            t=self.t,
            n_components=self.n_components,
            guarantee=self._guarantee,
            packed_gram=packed,
            span=self._span if tracking else None,
            noise_std=std,
            details=details,
        )
        if self._rewards is not None:
            self._rewards.play(release)
        if self._doubling is not None and self._doubling.passed(release.eigenvalues, self._running.n):
            self._next_epoch()
        return release

    def _next_epoch(self) -> None:
        assert self._doubling is not None
        assert self.n_features is not None
        leaves = self._leaves(self.rows_left or 0)
        if leaves == 0:
            return
        self._past.add_gram(*self._gram.words())
        self._gram = GramAccumulator(self.n_features)
        self._doubling.restart(self.t, leaves)
        self._prefix = self._doubling.mechanism
        self._running = self._begin(self.n_features, self._doubling.epoch)
        self._stds = {}

    def _std(self, leaf: int) -> float:
        if self._doubling is not None:
            leaf = max(1, leaf - self._doubling.start_row // self.release_every)
        return self._prefix.std(leaf)

    def regret_bound(self, t: int, opt: float) -> float:
        """Theorem 14 of DTTZ14 with its constants (`bounds.perturbed_leader_regret`).

        For noise whose sd is smooth in time (``"blt"``, without doubling) and
        exact leaders; otherwise the trivial bound, ``opt``.
        """
        proved = self.noise == "blt" and self.regularisation == "privacy" and self.solver == "exact"
        if not proved or self.n_features is None:
            return opt
        return leader_regret_bound(self, t, opt, self._stds)

    def curator_gram(self) -> FloatArray:
        """The exact Gram matrix of all rows absorbed, packed. Curator only."""
        if self._doubling is None:
            return self._gram.plus()
        total = GramAccumulator(self._gram.n_features)
        total.add_gram(*self._past.words())
        total.add_gram(*self._gram.words())
        return total.plus()

    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the rows."""
        out: dict[str, Any] = {"t": self.t, "gram": self._gram.state(), "noise": self._running.state()}
        if self.solver == "tracking":
            out["span"] = self._span.copy()
        if self._doubling is not None:
            out["doubling"] = self._doubling.state()
            out["past"] = self._past.state()
        if self._rewards is not None:
            out["rewards"] = self._rewards.state()
        return out

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.t = state["t"]
        self._gram.restore(state["gram"])
        if self.solver == "tracking":
            self._span = np.asfortranarray(state["span"])
        if self._doubling is not None:
            assert self.n_features is not None
            self._doubling.restore(state["doubling"])
            self._past.restore(state["past"])
            self._prefix = self._doubling.mechanism
            self._running = self._begin(self.n_features, self._doubling.epoch)
        if self._rewards is not None:
            self._rewards.restore(state["rewards"])
        self._running.restore(state["noise"])
