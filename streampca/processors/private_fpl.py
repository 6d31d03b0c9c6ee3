"""Private follow-the-perturbed-leader: Algorithm 4 of DTTZ14, with less noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.centering import CONSTANT
from streampca.linalg.counts import check_components, check_count, use_plain_numbers
from streampca.linalg.eigen import power_step
from streampca.linalg.lattice import GramSum
from streampca.linalg.lazy import cached_property
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import MatrixFactorization, RunningNoise
from streampca.matrix_factorization.blt import AnytimeBLT, GeometricBLT
from streampca.matrix_factorization.participation import user_factor
from streampca.matrix_factorization.smoothing import InputModel, SmoothedSum, Smoothing
from streampca.matrix_factorization.tree import BinaryTree, ExactTree, ExactTreeNoise
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.discrete_gaussian import LatticeGram
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.processors.base import Processor
from streampca.processors.leader import DTTZ14, PANEL_ENDS, Leader, LeaderProcessor
from streampca.processors.rewards import GramWithRewards, RewardSum, joint_sensitivity
from streampca.release import Release, Terms, centered_fields
from streampca.state import repr_of

Noise = Literal["blt", "tree"]
Solver = Literal["exact", "tracking", "smoothed"]

DMRST22 = "Denisov, McMahan, Rush, Smith, Thakurta, NeurIPS 2022, Theorem 2.1"
SOURCE = {
    "blt": "Dvijotham, McMahan, Pillutla, Steinke, Thakurta, FOCS 2024 (buffered linear Toeplitz)",
    "tree": "Dwork, Naor, Pitassi, Rothblum, STOC 2010; Chan, Shi, Song, ICALP 2010 (binary tree)",
}


@dataclass(frozen=True, kw_only=True)
class PrivateFPL(Leader):
    """Private follow-the-perturbed-leader: a private subspace after every b rows.

    The Gram matrix of all rows is released after every ``release_every`` rows
    with noise that is correlated over time, so that all releases together
    cost one budget and the noise grows with log t only. The subspace and the
    eigenvalues are read off the released matrix.

    Parameters
    ----------
    n_components : dimension of the subspace, k.
    epsilon, delta : budget for the whole stream of releases.
    n_features : number of features, d; taken from the first row if left out.
    horizon : rows in the stream, for which the noise is calibrated; no more are taken. None for an
        endless stream (noise ``"blt"`` only; some 20 % more noise, and half more in the last release).
    noise : ``"blt"``, the least noise known; ``"tree"``, the paper's
        binary tree, exactly calibrated.
    release_every : rows between releases, b. Noise and time both fall with it.
    adjacency : ``"zero-out"`` (one row against the zero row) or ``"replace"``.
    publish_regret : release the noisy sum of rewards too, from which anyone
        can compute an interval for the regret (`PrivateRegret`). Costs 11.8 % more
        noise under zero-out, 6.1 % under replace.
    solver : ``"exact"``, the top eigenvectors of each released matrix, to which
        the regret bound applies; ``"tracking"``, one step of subspace iteration
        a release, from the subspace before: O(d^2 k) instead of O(d^3). It averages noise over releases and
        follows change slowly, so its regret is below that of ``"exact"`` where noise is large and up to five
        times it where noise is small; ``"smoothed"``, the top eigenvectors of the best linear estimate of the
        exact matrix from all releases so far (`matrix_factorization.smoothing`; noise ``"blt"`` only). The released
        matrix stays as it is; the estimate is `Release.smoothed`. A regret bound is proved for ``"exact"`` only.
        Regret of ``"smoothed"`` over ``"exact"``, at epsilon = .1, .3, 1 and 3: .93 on twelve tables (geometric mean;
        worst cell 1.25), .96 on streams that turn or jump (worst 1.30). ``docs/utility.md`` has them all.
    discrete_noise : integer arithmetic throughout, with exact discrete Gaussian noise, so that the
        guarantee holds without floating-point error
        (`privacy.discrete_gaussian`). With ``noise="tree"`` only; same noise level.
    center : release Gram matrices about the mean, with the sum of the rows released jointly (`linalg.centering`):
        11.8 % more noise under zero-out, 12.5 % under replace. `Stream` with ``center=True`` sets it.
    drift : of ``"smoothed"``: how fast the mean square of rows is taken to change. Its variance grows by
        ``drift / t`` a row, relative to that of rows of full norm; 0 for rows that keep to one distribution.
    max_rows_per_user : calibrate for all rows of a user together, of which so many count
        (`UserStream` sees to that); `matrix_factorization.participation` has the proof. None: for one row.
    seed : as `Stream` takes it, which is the place for it; that of the stream counts if both are given.

    Raises
    ------
    BadParameterError
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

    With ``center`` they are pairs (svec(a a^T), lambda a), lambda = 1/2, of sensitivity sqrt(1 + lambda**2) or
    sqrt(2) (1 + lambda**2 / 2) (`linalg.centering`, with the proof), and the matrix about the mean is post-processing
    of the two sums. What is said here of users holds as it is: only norms of what a row moves are used.

    *Differences from the paper.* DTTZ14 calibrate each tree node with variance
    50 log^3(m/delta)/epsilon^2 over the upper triangle; the same tree
    calibrated exactly in svec coordinates has some 50 times less noise, and
    the default mechanism some 180 times less. The extra noise of line 6 only
    evens out the tree's standard deviation and is left out.
    """

    n_components: int
    epsilon: float
    delta: float
    n_features: int | None = None
    horizon: int | None = None
    noise: Noise = "blt"
    release_every: int = 1
    adjacency: Adjacency = "zero-out"
    publish_regret: bool = False
    solver: Solver = "exact"
    discrete_noise: bool = False
    center: bool = field(default=False, repr=False)
    drift: float = field(default=1.0, repr=False)
    max_rows_per_user: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        use_plain_numbers(self)
        check_components(self.n_components, self.n_features)
        check_count("horizon", self.horizon, optional=True)
        check_count("release_every", self.release_every)
        check_count("max_rows_per_user", self.max_rows_per_user, optional=True)
        if self.noise not in SOURCE:
            raise BadParameterError(f"noise={self.noise!r}: expected 'blt' or 'tree'")
        if self.horizon is None and self.noise != "blt":
            raise BadParameterError(f"noise={self.noise!r} needs a known horizon; pass horizon=, or use noise='blt'")
        if self.solver not in ("exact", "tracking", "smoothed"):
            raise BadParameterError(f"solver={self.solver!r}: expected 'exact', 'tracking' or 'smoothed'")
        if self.solver == "smoothed" and self.noise != "blt":
            raise BadParameterError("solver='smoothed' needs noise='blt'")
        if isinstance(self.drift, bool) or not isinstance(self.drift, (int, float)) or not 0.0 <= self.drift < math.inf:
            raise BadParameterError(f"drift={self.drift!r} must be a finite number, at least 0")
        if self.drift != 1.0 and self.solver != "smoothed":
            raise BadParameterError(f"drift={self.drift!r} is for solver='smoothed' only; leave it out")
        if self.discrete_noise and (self.noise != "tree" or self.publish_regret):
            raise BadParameterError(
                "discrete_noise=True needs noise='tree' without publish_regret: integer noise is drawn node by node"
            )
        _ = self.mechanism

    def __repr__(self) -> str:
        return repr_of(self)

    @cached_property
    def budget(self) -> Budget:
        """The budget of the whole stream."""
        return Budget(self.epsilon, self.delta, self.adjacency)

    @cached_property
    def mechanism(self) -> MatrixFactorization:
        """The matrix factorization that the whole stream is released by."""
        mu, leaves = self.budget.mu, None if self.horizon is None else self.leaves(self.horizon)
        sensitivity = self.budget.sensitivity(center=self.center)
        if self.publish_regret:
            sensitivity = joint_sensitivity(sensitivity)
        kind: Callable[[float], MatrixFactorization]
        if leaves is None:
            kind = partial(AnytimeBLT, mu)
        elif self.noise == "blt":
            kind = partial(GeometricBLT, leaves, mu)
        else:
            kind = partial(ExactTree if self.discrete_noise else BinaryTree, leaves, mu)
        made = kind(sensitivity)
        if self.max_rows_per_user is None:
            return made
        return kind(sensitivity * user_factor(made, self.max_rows_per_user, self.release_every))

    @cached_property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta)-DP and mu-GDP for all releases together, known before any row."""
        rows = "an endless stream" if self.horizon is None else f"a stream of up to {self.horizon} rows"
        users = self.max_rows_per_user
        return Guarantee(
            self.epsilon,
            self.delta,
            mu=self.budget.mu,
            adjacency=self.adjacency,
            scope=f"all releases of {rows}"
            + (", with the noisy sums of rewards" if self.publish_regret else "")
            + (", with the noisy sums of rows" if self.center else ""),
            theorem="Gaussian matrix mechanism on running Gram matrices, adaptive rows; subspaces are post-processing"
            + ("; exact discrete Gaussian noise on integers" if self.discrete_noise else ""),
            citation=f"{DTTZ14}, Algorithm 4; {DMRST22}; {SOURCE[self.noise]}",
            unit="one row" if users is None else f"one user with up to {users} rows",
        )

    @property
    def absorbs_grams(self) -> bool:
        """False where rewards are released, each rounded by itself, or rows of users are capped."""
        return not self.publish_regret and self.max_rows_per_user is None

    def constants(self, n_features: int) -> tuple[object, ...]:
        """Every number of the noise."""
        return self.mechanism.constants()

    def std(self, n: int) -> float:
        """Standard deviation of a diagonal entry of the noise in release n."""
        return self.mechanism.std(n)

    def smoothing(self, n_features: int) -> Smoothing | None:
        """The estimate of exact sums of rows of so many features, with ``solver="smoothed"``."""
        mechanism = self.mechanism
        if self.solver != "smoothed" or not isinstance(mechanism, (GeometricBLT, AnytimeBLT)):
            return None
        return Smoothing(mechanism, InputModel.of_grams(n_features, self.n_components, self.release_every, self.drift))

    def _size(self, n_features: int) -> int:
        """Coordinates of a vector of noise."""
        return svec_size(n_features) + int(self.publish_regret)

    def _begun(self, n_features: int, source: NoiseSource, terms: Terms) -> FPLProcessor:
        return FPLProcessor(self, n_features, source, terms)

    def first_noise(self, n_features: int) -> RunningNoise | ExactTreeNoise:
        """The noise before the first release."""
        mechanism = self.mechanism
        if isinstance(mechanism, ExactTree):
            return mechanism.begin(n_features)
        return mechanism.start(self._size(n_features))

    def restored_noise(
        self, n_features: int, snapshot: Mapping[str, Any], source: NoiseSource
    ) -> RunningNoise | ExactTreeNoise:
        """The noise of a snapshot."""
        mechanism = self.mechanism
        if isinstance(mechanism, ExactTree):
            return mechanism.restore_exact(n_features, snapshot, source)
        return mechanism.restore(self._size(n_features), snapshot, source)


class FPLProcessor(LeaderProcessor):
    """State of a run of `PrivateFPL`.

    Attributes
    ----------
    noise : the noise of the latest release.
    span : (d, k) basis of the latest subspace, with ``solver="tracking"``.
    smoothed : estimate of the exact sum from the releases so far, with ``solver="smoothed"``.
    rewards : the exact sum of rewards, with ``publish_regret``.
    """

    __slots__ = ("noise", "rewards", "smoothed", "span")

    algorithm: PrivateFPL

    def __init__(self, algorithm: PrivateFPL, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(algorithm, n_features, source, terms)
        k = algorithm.n_components
        self.noise = algorithm.first_noise(n_features)
        d = n_features - int(algorithm.center)
        self.span = np.asfortranarray(np.eye(d, k)) if algorithm.solver == "tracking" else None
        smoothing = algorithm.smoothing(d)
        self.smoothed: SmoothedSum | None = None if smoothing is None else smoothing.start(svec_size(n_features))
        self.rewards: RewardSum | None = None
        if algorithm.publish_regret:
            replace = algorithm.adjacency == "replace"
            self.rewards = RewardSum.first(n_features, k, center=algorithm.center, replace=replace)

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        """Add the rows to the sums; release them if that is due."""
        algorithm, t, gram = self.algorithm, self.t + rows.shape[0], self.gram.add(rows)
        scored = self if self.rewards is None else self.after(self.t, self.chain, rewards=self.rewards.add(rows))
        if t % algorithm.release_every and t != algorithm.horizon:
            return scored.after(t, self.chain, gram=gram), None
        return scored.released(t, gram, outlet)

    def released(self, t: int, gram: GramSum, outlet: Outlet) -> tuple[FPLProcessor, Release]:
        """The processor after a release, and the release."""
        algorithm, d, n = self.algorithm, self.n_features, self.noise.n + 1
        first, stds = algorithm.mechanism.std_chunks.latest
        std = stds[n - first] if 0 <= n - first < len(stds) else algorithm.mechanism.std_chunks.at(n)
        details: dict[str, Any] = {}
        rewards, span, smoothed = self.rewards, self.span, self.smoothed
        if rewards is not None:
            noise, (packed, noisy) = outlet.running("gram", GramWithRewards(gram, rewards), self.noise, std)
            details["rewards"] = {**noisy, "split": int(outlet.coins("split").words(1)[0] >> np.uint64(11))}
        elif algorithm.discrete_noise:
            noise, packed = outlet.running("gram", LatticeGram(gram), self.noise, std)
        else:
            noise, packed = outlet.running("gram", gram, self.noise, std)
        count = self.terms.count(1, t) if algorithm.center else t
        if algorithm.center:
            packed[-1] = count * CONSTANT**2  # public
        if smoothed is not None:
            last = t % algorithm.release_every  # rows of a short leaf before the horizon; else 0
            smoothed = smoothed.after(packed, last / algorithm.release_every if last else 1.0)
            details |= {"solver": "smoothed", "smoothed_noise_std": self.terms.of_unit(smoothed.noise_std)}
        estimate = None if smoothed is None else smoothed.sum
        if span is not None:
            details["solver"] = "tracking"
        fields: dict[str, Any] = {
            "packed_gram": packed, "noise_std": std, "details": details, "packed_smoothed": estimate,
        }  # fmt: skip
        if algorithm.center:
            fields = centered_fields(packed, count, std, self.terms, details, estimate)
        if span is not None:
            # The shift is the size of the noise's eigenvalues: it keeps negative ones from leading.
            shift = std * math.sqrt(2.0 * d)
            # Released rewards are computed on this span: then it has the same bits without compiled kernels.
            span = power_step(fields["packed_gram"], span, shift, plain=rewards is not None)
        release = Release(t=t, n_components=algorithm.n_components, terms=self.terms, span=span, **fields)
        after = FPLProcessor.__new__(FPLProcessor)  # this runs once a release: no call of __init__
        after.algorithm, after.n_features, after.source, after.terms = algorithm, d, self.source, self.terms
        after.chain, after.t, after.gram = outlet.chain, t, gram
        after.noise, after.span, after.smoothed = noise, span, smoothed
        after.spectra = self.spectra_with(n, gram) if n in PANEL_ENDS and self._bounded else self.spectra
        # `Stream` hands out no release of a warm-up: the subspace in play stays what it was.
        after.rewards = rewards if rewards is None or t <= self.terms.warmup else rewards.playing_now(release)
        every, horizon = algorithm.release_every, algorithm.horizon
        due = algorithm.due(t) if algorithm.batches else every - t % every  # `Leader.due`, mostly without a call
        after.rows_until_release = due if horizon is None else min(due, horizon - t)
        return after, release

    def regret_bound(self, t: int, opt: float) -> float | None:
        """`LeaderProcessor.regret_bound` where it applies; otherwise none is proved."""
        return super().regret_bound(t, opt) if self._bounded else None

    @property
    def _bounded(self) -> bool:
        """Whether a regret bound is proved: leaders are exact, of the matrix about 0, and noise is smooth in time."""
        algorithm = self.algorithm
        exact = algorithm.solver == "exact" and not algorithm.center
        return exact and algorithm.noise == "blt"

    def snapshot(self) -> dict[str, Any]:
        """See `Processor.snapshot`."""
        out = {**super().snapshot(), "noise": self.noise.snapshot()}
        if self.span is not None:
            out["span"] = self.span
        if self.smoothed is not None:
            out["smoothed"] = self.smoothed.snapshot()
        if self.rewards is not None:
            out["rewards"] = self.rewards.snapshot()
        return out

    def restored(self, snapshot: Mapping[str, Any]) -> FPLProcessor:
        """See `Processor.restored`."""
        made, d = super().restored(snapshot), self.n_features
        if self.span is not None:
            made.span = np.asfortranarray(snapshot["span"])
        if self.smoothed is not None:
            made.smoothed = self.smoothed.smoothing.restore(svec_size(d), snapshot["smoothed"])
        if self.rewards is not None:
            made.rewards = self.rewards.restored(snapshot["rewards"])
        made.noise = self.algorithm.restored_noise(d, snapshot["noise"], self.source)
        return made
