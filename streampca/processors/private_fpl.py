"""Private follow-the-perturbed-leader: Algorithm 4 of DTTZ14, with less noise; and the private sum of its rewards."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from streampca.errors import UsageError
from streampca.linalg.centering import JOINT_FACTOR
from streampca.linalg.counts import check_strategy
from streampca.linalg.lattice import GramSum, grid_bits
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import DMRST22
from streampca.matrix_factorization.noises import BLT, FACTORIZATIONS, NOISES, Noise
from streampca.privacy.budget import DELTA, Adjacency
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.privacy.unit import Person
from streampca.processors.base import RELEASE_EVERY, REWARD_WEIGHT, Processor
from streampca.processors.leader import DTTZ14, Leader, LeaderProcessor, with_spectrum
from streampca.processors.solvers import SOLVERS, Exact, Reading, Smoothed, Solver
from streampca.release.release import Release
from streampca.release.scoring import Scoring, score
from streampca.release.terms import Terms, gram_fields
from streampca.state import State, fields_of

RUNNING_GRAMS = "Gaussian matrix mechanism on running Gram matrices, adaptive rows; subspaces are post-processing"


@dataclass(frozen=True, kw_only=True)
class PrivateFPL(Leader):
    """Private follow-the-perturbed-leader for streaming PCA.

    After every `release_every` rows, publishes the top-k subspace of a noisy Gram matrix of all rows so far. The noise
    of successive releases is correlated, so that all releases together satisfy one privacy budget and the standard
    deviation of the noise grows only logarithmically with the number of releases.

    Parameters
    ----------
    n_components : dimension of the subspace, k.
    epsilon, delta : privacy budget of the whole stream of releases.
    horizon : rows in the stream, for which the noise is calibrated. Further rows raise `HorizonReachedError`. None
        allows an endless stream (noise `BLT` only) and costs about 20 % more noise, 50 % in the last release.
    noise : matrix factorization of the correlated noise: `BLT`, the least noise known; `Tree`, the paper's binary tree,
        exactly calibrated; or another `Noise`. ``"blt"`` and ``"tree"`` are short for the first two.
    release_every : rows between releases, b. Noise and running time decrease as b increases. 1 is the form of the
        papers. A shorter last block ends at the horizon. Or the period of a calendar, such as ``"15min"``, ``"1d"`` or
        ``"manual"`` (`streampca.calendar`): each of its periods ends with a release, the number of rows is private, and
        ``horizon`` is a duration such as ``"365d"`` or a number of periods.
    adjacency : ``"zero-out"`` (one row against the zero row) or ``"replace"``.
    publish_regret : release the noisy sum of rewards too, which gives an interval for the regret (`PrivateRegret`).
        11.8 % more noise under zero-out, 6.1 % under replace.
    solver : method that computes the subspace from the released matrices: `Exact`, to which the regret bound applies;
        `Tracking`, in O(d^2 k) a release; `Smoothed`, with less regret where noise is large. ``"exact"``,
        ``"tracking"`` and ``"smoothed"`` are short for them. Post-processing.
    center : release Gram matrices about the mean, with the sum and the number of the rows released jointly
        (`linalg.centering`). 12.5 % more noise, and more along the mean (`linalg.centering.MeanNoise`). If False, the
        form of the papers, the first component of rows far from 0 is close to the direction of their mean. None means
        True, but False with ``publish_regret``.
    unit : a `Person`, or the name of its column, to protect all rows of a person together, which count with weights
        (`streampca.rows.people`). The noise is that for single rows (None), times the budget of the `Person`.

    Notes
    -----
    *Guarantee.* svec(a a^T) has norm ||a||**2 <= 1, so one row changes one input of the prefix-sum mechanism by at most
    1 in Euclidean norm (zero-out) or sqrt(2) (replace, since <a a^T, b b^T> >= 0). The mechanism is mu-GDP over all its
    outputs and for inputs chosen adaptively (`matrix_factorization.base`), with mu solved exactly from
    (epsilon, delta). Subspaces and eigenvalues are post-processing.

    With ``publish_regret`` the inputs are pairs (svec(a a^T), c r), where r is the reward of the row on the scoring
    subspace and c = 1/2. Their sensitivity is sqrt(1 + c**2) or sqrt(2 + c**2) (`joint_sensitivity`), and `noise_std`
    includes it. With ``center`` they are svec(b b^T) for b = (a, c), c**2 = 1/8, and 0 for an absent row: of
    sensitivity 1.125 or 1.125 sqrt(2) (proof in `linalg.centering`). The matrix about the mean is post-processing. The
    guarantee of people uses only these norms.

    *Differences from the paper*: ``docs/theory/dttz14.md``.
    """

    n_components: int
    epsilon: float
    delta: float = DELTA
    horizon: Any = None  # rows or periods; a duration is converted
    noise: Noise = BLT()  # noqa: RUF009 it is immutable
    release_every: int | str = RELEASE_EVERY
    adjacency: Adjacency = "zero-out"
    publish_regret: bool = False
    solver: Solver = Exact()  # noqa: RUF009 it is immutable
    center: bool = None  # type: ignore[assignment]  # None is resolved by `Configuration`
    unit: Person | None = None  # a text is resolved, too

    absorbs_periods = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_strategy(self, "noise", NOISES, Noise)  # type: ignore[type-abstract]
        check_strategy(self, "solver", SOLVERS, Solver)
        smoothed = isinstance(self.solver, Smoothed)
        options = {
            "horizon=None": self.horizon is None, "solver=Smoothed()": smoothed,
            "publish_regret=True": self.publish_regret,
        }  # fmt: skip
        for option, used in options.items():
            if used and option in self.noise.unsupported:
                raise UsageError(f"{option}: not supported by noise={self.noise!r}. Use noise=BLT()")
        if smoothed and self.has_calendar:
            # Its model of an input needs the number of rows in it, which is private.
            raise UsageError(f"solver=Smoothed(), release_every={self.release_every!r}: not supported. Use Exact()")
        leaves = None if self.horizon is None else self.leaves(self.horizon)
        inputs = "periods" if self.has_calendar else "rows"
        rows = "an endless stream" if self.horizon is None else f"a stream of up to {self.horizon} {inputs}"
        sensitivity = self.unit_sensitivity
        if self.publish_regret and self.unit is None:
            sensitivity = joint_sensitivity(sensitivity)
        elif self.publish_regret and self.unit is not None:
            # That of matrices and rewards together to all rows of a person (`rows.people`). Two persons' effects have
            # no negative product, except that of rewards about a mean.
            sensitivity = self.unit.budget * math.hypot(JOINT_FACTOR if self.center else 1.0, REWARD_WEIGHT)
            if self.adjacency == "replace":
                sensitivity *= 2.0 if self.center else math.sqrt(2.0)
        vars(self).update({
            # Rewards are rounded row by row, and rows of people are weighted, so a sum over a block is not enough.
            "absorbs_grams": not self.publish_regret and self.unit is None and not self.counts_cells,
            "is_bounded": self.solver.bounded and self.noise.smooth
            and not (self.center or self.has_calendar or self.is_corrected),
            "completes": not self.publish_regret,
            "can_count_cells": not self.publish_regret and self.noise.arithmetic is None,
            "mechanism": self.noise.mechanism(leaves, self.mu, sensitivity),
            "scope": f"all releases of {rows}"
            + (", with the noisy sums of rewards" if self.publish_regret else "")
            + (", with the noisy sums of rows" if self.center else ""),
            "theorem": RUNNING_GRAMS + self.noise.remark,
            "citation": f"{DTTZ14}, Algorithm 4; {DMRST22}; {self.noise.citation}",
        })  # fmt: skip

    def constants(self, n_features: int) -> tuple[object, ...]:
        return self.mechanism.constants()

    def run_terms(self) -> Mapping[str, Any] | None:
        kind = type(self.mechanism).__name__
        if FACTORIZATIONS.get(kind) is not type(self.mechanism):
            return None  # of the caller's own noise, which a reader of the file cannot compute
        run = {"release_every": self.every, "horizon": self.horizon, "factorization": kind}
        return {**run, "constants": fields_of(self.mechanism)}


class FPLProcessor(LeaderProcessor, of=PrivateFPL):
    """State of a run of `PrivateFPL`: noise of the latest release, state of the solver, and sum of rewards."""

    __slots__ = ("noise", "reading", "rewards")
    kept = __slots__

    algorithm: PrivateFPL

    def __init__(self, algorithm: PrivateFPL, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(algorithm, n_features, source, terms)
        k, size, d = algorithm.n_components, svec_size(n_features), n_features - int(algorithm.center)
        # With rewards, one more coordinate of the same vector of noise hides their sum; d hide the numbers of cells.
        self.noise = algorithm.mechanism.start(size + int(algorithm.publish_regret) + self.further)
        self.reading = algorithm.solver.start(algorithm.mechanism, d, k, algorithm.every, size)
        self.rewards: RewardSum | None = None
        if algorithm.publish_regret:
            scale = reward_scale(center=algorithm.center, replace=algorithm.adjacency == "replace")
            # The first axes score the rows before the first release.
            self.rewards = RewardSum(0, Scoring.first(n_features, k, center=algorithm.center), scale)

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        if self.rewards is None:
            return super().step(rows, outlet)
        # Rows are scored on the subspace that was released before them.
        return LeaderProcessor.step(self.after(self.t, self.chain, rewards=self.rewards.add(rows)), rows, outlet)

    def released(self, t: int, gram: GramSum, outlet: Outlet) -> tuple[FPLProcessor, Release]:
        algorithm, n = self.algorithm, self.noise.n + 1
        std = algorithm.mechanism.std_chunks.at(n)
        details: dict[str, Any] = {}
        rewards = self.rewards
        if rewards is None:
            arithmetic = algorithm.noise.arithmetic
            noise, packed = outlet.running("gram", gram if arithmetic is None else arithmetic(gram), self.noise, std)
        else:
            noise, (packed, noisy) = outlet.running("gram", GramWithRewards(gram, rewards), self.noise, std)
            details["rewards"] = {**noisy, "split": int(outlet.hide("split").words(1)[0] >> np.uint64(11))}
        reading, release = self.published(t, packed, std, self.reading, details, plain=rewards is not None)
        # `Stream` publishes no release of a warm-up, so the scoring subspace stays that of before.
        if rewards is not None and t > self.terms.warmup:
            scoring = Scoring.of_release(release) if algorithm.center else Scoring.of(release.subspace.basis)
            rewards = replace(rewards, scoring=scoring)
        spectra = with_spectrum(self.spectra, algorithm, n, gram)
        after = self.after(t, outlet.chain, gram=gram, noise=noise, reading=reading, spectra=spectra, rewards=rewards)
        return after, release

    def published(
        self, t: int, packed: FloatArray, std: float, reading: Reading, details: dict[str, Any], *, plain: bool = False
    ) -> tuple[Reading, Release]:
        """Return the state of the solver after a noisy sum, and the release of it. Post-processing."""
        algorithm = self.algorithm
        last = t % algorithm.every  # rows of a short leaf before the horizon; else 0
        matrix = packed[: len(packed) - self.further]
        reading = reading.observe(matrix, last / algorithm.every if last else 1.0)
        if reading.name is not None:
            details["solver"] = reading.name
        if reading.noise_std is not None:
            details["smoothed_noise_std"] = reading.noise_std * self.terms.row_norm**2
        rows = self.terms.count(1, t)
        about = rows if algorithm.center else None
        fields = gram_fields(packed, std, self.terms, details, about, reading.estimate, rows)
        # Released rewards are computed on its span, so that it must have the same bits without compiled kernels.
        reading = reading.follow(fields["packed_gram"], std * math.sqrt(2.0 * self.n_features), plain=plain)
        release = Release(t=t, n_components=algorithm.n_components, terms=self.terms, span=reading.span, **fields)
        return reading, release


#: Rewards are summed in units of 2**-30.
_BITS, _UNITS = 30, 2.0**30


def joint_sensitivity(gram_sensitivity: float) -> float:
    """Sensitivity to one row of the pair (sums of sensitivity ``gram_sensitivity``, c times the sum of scaled rewards).

    Scaled rewards (`reward_scale`) move by at most 1, so they add at most ``c**2`` to the square. Without centering
    both bounds are attained: sqrt(1 + c**2) under zero-out by a unit row in the scoring subspace, sqrt(2 + c**2) under
    replace by such a row against one orthogonal to it.
    """
    return math.hypot(gram_sensitivity, REWARD_WEIGHT)


def reward_scale(*, center: bool, replace: bool) -> int:
    """Sensitivity of the sum of rewards to one row, rounded up.

    A reward about 0 is between 0 and 1. In a centered stream, with m the mean that scores and u its part across the
    subspace, it is ``||V^T a||**2 + 2 u . a - ||u||**2``, from ``-3`` (a = -u, of length 1) to 1 for rows of the unit
    ball, and 0 for an absent row. So it moves by at most 3 under zero-out, and by 4 under replace.
    """
    return 1 if not center else 4 if replace else 3


@dataclass(frozen=True, slots=True, eq=False)
class RewardSum(State):
    """The exact sum of rewards on the released subspaces: an immutable value. Curator only.

    *Guarantee.* A reward is a function of its row and of earlier releases. The prefix-sum mechanism of sensitivity
    `joint_sensitivity` runs on (svec(a a^T), c r). Its inputs then depend on earlier outputs, which its theorem allows
    (`matrix_factorization.base`), so Gram matrices and rewards together are mu-GDP, and the sum of rewards carries
    noise of standard deviation ``std / c``, independent of that of the Gram matrix.
    """

    kept = ("total", "scoring")

    total: int  # of rewards over ``scale``, in units of 2**-30
    scoring: Scoring  # the subspace, and the mean if centered, that score the next row
    scale: int = 1  # `reward_scale`

    def add(self, rows: FloatArray) -> RewardSum:
        """Add the rewards of rows on the scoring subspace."""
        scoring, scale = self.scoring, self.scale
        # Privacy: rounding errors must not exceed the range that `reward_scale` bounds. The sum in integers is exact.
        least = -1.0 if scoring.linear is None else -3.0
        scores = np.clip(score(rows, scoring), least, 1.0) / scale
        units = np.rint(scores * _UNITS).astype(np.int64)
        return RewardSum(self.total + int(units.sum()), scoring, scale)

    def noisy(self, noise: float, std: float) -> dict[str, float]:
        """Return the noisy sum of rewards and the std of its noise, in units of row_norm**2. Publishable.

        ``noise`` is the last coordinate of the joint noise, of standard deviation ``std``. The sum is rounded to a
        power of two near 2**-20 of the standard deviation of its own noise.
        """
        factor = self.scale / REWARD_WEIGHT
        own = std * factor
        total = self.total * self.scale + round(noise * factor * _UNITS)
        # Low bits of the sum are dropped: floats of the noise are finer than its law, and would show exact digits.
        dropped = max(0, grid_bits(own) + _BITS)
        total = (total + (1 << dropped >> 1)) >> dropped << dropped
        return {"sum": total / _UNITS, "std": own}


class GramWithRewards(NamedTuple):
    """A Gram matrix and the sum of rewards, released together by one vector of noise."""

    gram: GramSum
    rewards: RewardSum

    @property
    def hidden(self) -> tuple[Any, ...]:
        """The exact values, for the outlet."""
        return self.gram.parts, str(self.rewards.total).encode()

    def noisy(self, noise: FloatArray, std: float) -> tuple[FloatArray, dict[str, float]]:
        """Return the noisy packed Gram matrix and sum of rewards. Publishable."""
        return self.gram.noisy(noise[:-1], std), self.rewards.noisy(float(noise[-1]), std)
