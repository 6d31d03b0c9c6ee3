"""Rewards, and their private sum released jointly with the Gram matrix."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from streampca.linalg.lattice import GramSum, grid_bits
from streampca.linalg.types import FloatArray
from streampca.release import Release, Subspace, score, scoring_basis

#: Weight c of a reward beside its row's Gram matrix. It costs sqrt(1 + c**2) = 11.8 % more noise there (zero-out).
REWARD_WEIGHT = 0.5

#: Rewards are summed in units of 2**-30.
_BITS = 30
_UNITS = 2.0**_BITS


def joint_sensitivity(gram_sensitivity: float) -> float:
    """How far one row moves the pair (svec of the Gram matrix, c times the sum of rewards).

    A reward is between 0 and 1, so it adds at most ``c**2`` to the square.
    Both bounds are met: sqrt(1 + c**2) under zero-out by a unit row in the
    subspace in play, sqrt(2 + c**2) under replace by such a row against one orthogonal to it.
    """
    return math.hypot(gram_sensitivity, REWARD_WEIGHT)


class RewardSum:
    """The exact sum of rewards on the released subspaces: an immutable value. Curator only.

    Parameters
    ----------
    total : the sum, in units of 2**-30.
    playing : the subspace in play: a release, or a scoring basis (`scoring_basis`).

    Notes
    -----
    *Privacy.* A reward is a function of its row and of earlier releases. Let
    the prefix-sum mechanism of sensitivity `joint_sensitivity` run on (svec(a
    a^T), c r): its inputs then depend on earlier outputs, which its theorem
    allows (`matrix_factorization.base`). So Gram matrices and rewards together are
    mu-GDP, and the sum of rewards carries noise of sd ``std / c``, independent
    of that of the Gram matrix. Published without noise, rewards would have no
    guarantee at all.

    Rewards are rounded to multiples of 2**-30 and summed in integers.
    """

    __slots__ = ("playing", "total")

    def __init__(self, total: int, playing: Release | FloatArray) -> None:
        self.total, self.playing = total, playing

    @classmethod
    def first(cls, n_features: int, n_components: int) -> RewardSum:
        """No reward yet; the first axes are in play."""
        return cls(0, scoring_basis(Subspace.first_axes(n_features, n_components).basis))

    def add(self, rows: FloatArray) -> RewardSum:
        """The sum with the rewards of rows on the subspace in play added."""
        basis = self.scoring
        scores = np.minimum(score(rows, basis), 1.0)
        return RewardSum(self.total + int(np.rint(scores * _UNITS).astype(np.int64).sum()), basis)

    @property
    def scoring(self) -> FloatArray:
        """The scoring basis of the subspace in play."""
        playing = self.playing
        return scoring_basis(playing.subspace.basis) if isinstance(playing, Release) else playing

    def noisy(self, noise: float, std: float) -> dict[str, float]:
        """The sum of rewards as it may be released, from joint noise and its sd.

        Rounded to a power of two near 2**-20 of the sd of its own noise.

        Returns
        -------
        dict
            ``sum`` and the ``std`` of its noise, in units of row_norm**2.
        """
        own = std / REWARD_WEIGHT
        total = self.total + round(noise / REWARD_WEIGHT * _UNITS)
        dropped = max(0, grid_bits(own) + _BITS)
        total = (total + (1 << dropped >> 1)) >> dropped << dropped
        return {"sum": total / _UNITS, "std": own}

    def snapshot(self) -> dict[str, Any]:
        """Arrays and scalars from which `restored` makes the same sum. As secret as the rows."""
        # In two words: plain 64-bit integers are what a store keeps.
        high, low = divmod(self.total, 2**40)
        return {"high": high, "low": low, "scoring": self.scoring}

    @classmethod
    def restored(cls, snapshot: Mapping[str, Any]) -> RewardSum:
        """The sum of a snapshot."""
        return cls(int(snapshot["high"]) * 2**40 + int(snapshot["low"]), np.array(snapshot["scoring"]))


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
        """What an outlet hides."""
        return self.gram.parts, str(self.rewards.total).encode()

    def noisy(self, noise: FloatArray, std: float) -> tuple[FloatArray, dict[str, float]]:
        """The packed Gram matrix and the sum of rewards, as they may be released."""
        return self.gram.noisy(noise[:-1], std), self.rewards.noisy(float(noise[-1]), std)
