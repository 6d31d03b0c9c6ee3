"""Rewards, and their private sum released jointly with the Gram matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from streampca.linalg.lattice import GramSum, grid_bits
from streampca.linalg.types import FloatArray
from streampca.processors.base import REWARD_WEIGHT
from streampca.release.scoring import Scoring, score
from streampca.state import State

#: Rewards are summed in units of 2**-30.
_BITS = 30
_UNITS = 2.0**_BITS


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
