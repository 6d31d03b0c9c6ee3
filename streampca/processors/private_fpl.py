"""Private follow-the-perturbed-leader: Algorithm 4 of DTTZ14, with less noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.centering import CONSTANT
from streampca.linalg.counts import check_count, check_strategy
from streampca.linalg.lattice import GramSum
from streampca.linalg.lazy import cached_property
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import MatrixFactorization
from streampca.matrix_factorization.noises import BLT, NOISES, Noise
from streampca.matrix_factorization.participation import user_factor
from streampca.privacy.budget import Adjacency
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.processors.base import Processor
from streampca.processors.leader import DTTZ14, PANEL_ENDS, Leader, LeaderProcessor
from streampca.processors.rewards import GramWithRewards, RewardSum, joint_sensitivity
from streampca.processors.solvers import SOLVERS, Exact, Smoothed, Solver
from streampca.release.release import Release, Terms, centered_fields

DMRST22 = "Denisov, McMahan, Rush, Smith, Thakurta, NeurIPS 2022, Theorem 2.1"


@dataclass(frozen=True, kw_only=True, repr=False)
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
        endless stream (noise `BLT` only; some 20 % more noise, and half more in the last release).
    noise : the matrix factorization: `BLT`, the least noise known; `Tree`, the paper's binary tree, exactly
        calibrated; or another `Noise`. ``"blt"`` and ``"tree"`` are short for the first two.
    release_every : rows between releases, b. Noise and time both fall with it.
    adjacency : ``"zero-out"`` (one row against the zero row) or ``"replace"``.
    publish_regret : release the noisy sum of rewards too, from which anyone
        can compute an interval for the regret (`PrivateRegret`). Costs 11.8 % more
        noise under zero-out, 6.1 % under replace.
    solver : how subspaces are computed from the released matrices: `Exact`, to which the regret bound applies;
        `Tracking`, in O(d^2 k) a release; `Smoothed`, with less regret where noise is large. ``"exact"``,
        ``"tracking"`` and ``"smoothed"`` are short for them. Post-processing.
    center : release Gram matrices about the mean, with the sum of the rows released jointly (`linalg.centering`):
        11.8 % more noise under zero-out, 12.5 % under replace. `Stream` with ``center=True`` sets it.
    max_rows_per_user : calibrate for all rows of a user together, of which so many count
        (`UserStream` sees to that); `matrix_factorization.participation` has the proof. None: for one row.

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
    noise: Noise = BLT()  # noqa: RUF009 it is immutable
    release_every: int = 1
    adjacency: Adjacency = "zero-out"
    publish_regret: bool = False
    solver: Solver = Exact()  # noqa: RUF009 it is immutable
    center: bool = field(default=False, repr=False)
    max_rows_per_user: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("max_rows_per_user", self.max_rows_per_user, optional=True)
        check_strategy(self, "noise", NOISES, Noise)  # type: ignore[type-abstract]
        check_strategy(self, "solver", SOLVERS, Solver)  # type: ignore[type-abstract]
        smoothed = isinstance(self.solver, Smoothed)
        given = {"horizon=None": self.horizon is None, "solver=Smoothed()": smoothed}
        for option, used in (given | {"publish_regret=True": self.publish_regret}).items():
            if used and option in self.noise.unsupported:
                raise BadParameterError(f"noise={self.noise!r} does not support {option}; use noise=BLT()")
        _ = self.mechanism

    @cached_property
    def mechanism(self) -> MatrixFactorization:
        """The matrix factorization that the whole stream is released by."""
        mu, leaves = self.budget.mu, None if self.horizon is None else self.leaves(self.horizon)
        sensitivity = self.budget.sensitivity(center=self.center)
        if self.publish_regret:
            sensitivity = joint_sensitivity(sensitivity)
        made = self.noise.mechanism(leaves, mu, sensitivity)
        if self.max_rows_per_user is None:
            return made
        factor = user_factor(made, self.max_rows_per_user, self.release_every)
        return self.noise.mechanism(leaves, mu, sensitivity * factor)

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
            + self.noise.remark,
            citation=f"{DTTZ14}, Algorithm 4; {DMRST22}; {self.noise.citation}",
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

    def _begun(self, n_features: int, source: NoiseSource, terms: Terms) -> FPLProcessor:
        return FPLProcessor(self, n_features, source, terms)


class FPLProcessor(LeaderProcessor):
    """State of a run of `PrivateFPL`.

    Attributes
    ----------
    noise : the noise of the latest release.
    reading : state of the solver.
    rewards : the exact sum of rewards, with ``publish_regret``.
    """

    __slots__ = ("noise", "reading", "rewards")
    kept = __slots__

    algorithm: PrivateFPL

    def __init__(self, algorithm: PrivateFPL, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(algorithm, n_features, source, terms)
        k, size, d = algorithm.n_components, svec_size(n_features), n_features - int(algorithm.center)
        self.noise = algorithm.mechanism.start(size + int(algorithm.publish_regret))
        self.reading = algorithm.solver.start(algorithm.mechanism, d, k, algorithm.release_every, size)
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
        rewards = self.rewards
        if rewards is None:
            arithmetic = algorithm.noise.arithmetic
            noise, packed = outlet.running("gram", gram if arithmetic is None else arithmetic(gram), self.noise, std)
        else:
            noise, (packed, noisy) = outlet.running("gram", GramWithRewards(gram, rewards), self.noise, std)
            details["rewards"] = {**noisy, "split": int(outlet.coins("split").words(1)[0] >> np.uint64(11))}
        count = self.terms.count(1, t) if algorithm.center else t
        if algorithm.center:
            packed[-1] = count * CONSTANT**2  # public
        reading = self.reading
        if reading.name is not None:
            details["solver"] = reading.name
        if reading.observes:
            last = t % algorithm.release_every  # rows of a short leaf before the horizon; else 0
            reading = reading.observe(packed, last / algorithm.release_every if last else 1.0)
            details["smoothed_noise_std"] = self.terms.of_unit(reading.noise_std)
        fields: dict[str, Any] = {
            "packed_gram": packed, "noise_std": std, "details": details, "packed_smoothed": reading.estimate,
        }  # fmt: skip
        if algorithm.center:
            fields = centered_fields(packed, count, std, self.terms, details, reading.estimate)
        if reading.span is not None:
            # Released rewards are computed on this span: then it has the same bits without compiled kernels.
            reading = reading.follow(fields["packed_gram"], std * math.sqrt(2.0 * d), plain=rewards is not None)
        release = Release(t=t, n_components=algorithm.n_components, terms=self.terms, span=reading.span, **fields)
        after = FPLProcessor.__new__(FPLProcessor)  # this runs once a release: no call of __init__
        after.algorithm, after.n_features, after.source, after.terms = algorithm, d, self.source, self.terms
        after.chain, after.t, after.gram = outlet.chain, t, gram
        after.noise, after.reading = noise, reading
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
        return algorithm.solver.bounded and algorithm.noise.smooth and not algorithm.center
