"""Rewards, and their private sum released jointly with the Gram matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from streampca.linalg.centering import CONSTANT
from streampca.linalg.lattice import GramSum, grid_bits
from streampca.linalg.types import FloatArray
from streampca.release.release import Release
from streampca.release.scoring import Scoring, score
from streampca.state import State

#: Weight c of a reward relative to its row's Gram matrix, whose noise grows by sqrt(1 + c**2) = 11.8 % (zero-out).
REWARD_WEIGHT = 0.5

#: Rewards are summed in units of 2**-30.
_BITS = 30
_UNITS = 2.0**_BITS


def joint_sensitivity(gram_sensitivity: float) -> float:
    """Sensitivity to one row of the pair (sums of sensitivity ``gram_sensitivity``, c times the sum of scaled rewards).

    Scaled rewards (`reward_scale`) move by at most 1, so they add at most ``c**2`` to the square.
    Without centering both bounds are met: sqrt(1 + c**2) under zero-out by a unit row in the
    subspace in play, sqrt(2 + c**2) under replace by such a row against one orthogonal to it.
    """
    return math.hypot(gram_sensitivity, REWARD_WEIGHT)


def reward_scale(*, center: bool, replace: bool) -> int:
    """How far one row moves the sum of rewards, at most.

    A reward about 0 is between 0 and 1. In a centered stream, with m the mean in play and u its part across the
    subspace, it is ``||V^T a||**2 + 2 u . a - ||u||**2``. The last term does not depend on the row. The rest is 0
    for the zero row, and from ``-2 ||u||`` to ``1 + ||u||**2`` for rows of the unit ball, where ||u|| is at most 1.
    """
    return 1 if not center else 4 if replace else 2


class RewardSum(State):
    """The exact sum of rewards on the released subspaces: an immutable value. Curator only.

    Parameters
    ----------
    total : the sum of rewards over ``scale``, less those of as many zero rows, in units of 2**-30.
    playing : the subspace in play: a release, or its `Scoring`.
    scale : `reward_scale`.
    of_zeros : sum of the rewards of as many zero rows, in units of 2**-30. Public: a function of releases.

    Notes
    -----
    *Privacy.* A reward is a function of its row and of earlier releases. Let
    the prefix-sum mechanism of sensitivity `joint_sensitivity` run on (svec(a
    a^T), c r): its inputs then depend on earlier outputs, which its theorem
    allows (`matrix_factorization.base`). So Gram matrices and rewards together are
    mu-GDP, and the sum of rewards carries noise of standard deviation ``std / c``, independent
    of that of the Gram matrix. Published without noise, rewards would have no
    guarantee at all.

    Rewards are clipped to the range that `reward_scale` rests on, rounded to multiples of 2**-30 and summed in
    integers.
    """

    __slots__ = ("of_zeros", "playing", "scale", "total")
    kept = ("total", "of_zeros", "scoring")

    def __init__(self, total: int, playing: Release | Scoring, scale: int = 1, of_zeros: int = 0) -> None:
        self.total, self.playing, self.scale, self.of_zeros = total, playing, scale, of_zeros

    @classmethod
    def first(cls, n_features: int, n_components: int, *, center: bool, replace: bool) -> RewardSum:
        """No reward yet; the first axes are in play."""
        scale = reward_scale(center=center, replace=replace)
        return cls(0, Scoring.first(n_features, n_components, center=center), scale)

    def add(self, rows: FloatArray) -> RewardSum:
        """The sum with the rewards of rows on the subspace in play added."""
        scoring, scale, of_zeros = self.scoring, self.scale, self.of_zeros
        scores = score(rows, scoring)
        if scoring.linear is not None:
            of_zero = 2.0 * (CONSTANT * float(scoring.linear[-1]))
            scores = (scores - of_zero) / scale
            of_zeros += rows.shape[0] * round(of_zero * _UNITS)
        most = 2.0 / scale if scale > 1 else 1.0
        units = np.rint(np.clip(scores, -most, most) * _UNITS).astype(np.int64)
        return RewardSum(self.total + int(units.sum()), scoring, scale, of_zeros)

    def playing_now(self, playing: Release) -> RewardSum:
        """The same sum with a release in play."""
        return RewardSum(self.total, playing, self.scale, self.of_zeros)

    @property
    def scoring(self) -> Scoring:
        """That of the subspace in play."""
        playing = self.playing
        if not isinstance(playing, Release):
            return playing
        return Scoring.of_release(playing) if playing.is_centered else Scoring.of(playing.subspace.basis)

    def noisy(self, noise: float, std: float) -> dict[str, float]:
        """The noisy sum of rewards, from joint noise and its standard deviation: may be released.

        Rounded to a power of two near 2**-20 of the standard deviation of its own noise.

        Returns
        -------
        dict
            ``sum`` and the ``std`` of its noise, in units of row_norm**2.
        """
        factor = self.scale / REWARD_WEIGHT
        own = std * factor
        total = self.total * self.scale + self.of_zeros + round(noise * factor * _UNITS)
        dropped = max(0, grid_bits(own) + _BITS)
        total = (total + (1 << dropped >> 1)) >> dropped << dropped
        return {"sum": total / _UNITS, "std": own}

    def restored(self, snapshot: Mapping[str, Any], source: Any = None) -> RewardSum:
        """See `State.restored`."""
        total, of_zeros, scoring = self.read(snapshot, source).values()
        return RewardSum(total, scoring, self.scale, of_zeros)


class GramWithRewards:
    """A Gram matrix and the sum of rewards, released together by one vector of noise.

    Parameters
    ----------
    gram, rewards : the exact sums.
    """

    __slots__ = ("gram", "rewards")

    def __init__(self, gram: GramSum, rewards: RewardSum) -> None:
        self.gram, self.rewards = gram, rewards

    @property
    def hidden(self) -> tuple[Any, ...]:
        """The exact values, for the outlet."""
        return self.gram.parts, str(self.rewards.total).encode()

    def noisy(self, noise: FloatArray, std: float) -> tuple[FloatArray, dict[str, float]]:
        """The noisy packed Gram matrix and sum of rewards: may be released."""
        return self.gram.noisy(noise[:-1], std), self.rewards.noisy(float(noise[-1]), std)
