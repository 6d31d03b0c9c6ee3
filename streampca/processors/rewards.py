"""Rewards: how they are scored, and how their noisy sum rides along with a Gram matrix."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.types import FloatArray
from streampca.privacy.randomness import NoiseStream
from streampca.release import Release, Subspace

#: Weight c of a reward beside its row's Gram matrix. It costs sqrt(1 + c**2) = 11.8 % more noise there (zero-out).
REWARD_WEIGHT = 0.5

_SCORE_GRID = 2.0**30
_SUM_GRID = 2.0**30


def scoring_basis(basis: FloatArray) -> FloatArray:
    """Round a basis to multiples of 2**-30: products with lattice rows are then exact, whatever the block size."""
    return np.rint(np.ascontiguousarray(basis) * _SCORE_GRID) * (1.0 / _SCORE_GRID)


def score(rows: FloatArray, scoring: FloatArray) -> FloatArray:
    """Rewards ||V^T a||**2 of admitted rows, (n,), on a basis from `scoring_basis`. Curator only."""
    products = rows @ scoring
    scores: FloatArray = np.vecdot(products, products)
    return scores


def score_in_turn(rows: FloatArray, before: FloatArray, made: list[Release], last: int) -> FloatArray:
    """Rewards of rows, each on the subspace in play when it came. Curator only.

    Parameters
    ----------
    rows : admitted rows up to number ``last`` of the stream, (n, d).
    before : scoring basis in play before them.
    made : the releases made from them, in order.
    """
    playing = [release for release in made if release.t < last]
    if not playing:
        return score(rows, before)
    if len(playing) == len(rows) - 1:  # a release every row: all products at once
        each = scoring_basis(np.concatenate([before.T, *[release.span.T for release in playing]]))
        products: FloatArray = np.matmul(each.reshape(len(rows), *before.T.shape), rows[:, :, None])[:, :, 0]
        scores: FloatArray = np.vecdot(products, products)
        return scores
    ends = [0, *(release.t - last + len(rows) for release in playing), len(rows)]
    bases = [before, *(scoring_basis(release.span) for release in playing)]
    return np.concatenate([score(rows[a:b], basis) for (a, b), basis in zip(pairwise(ends), bases, strict=True)])


def joint_sensitivity(gram_sensitivity: float) -> float:
    """How far one row moves the pair (svec of the Gram matrix, c times the sum of rewards).

    A reward is between 0 and 1, so it adds at most ``c**2`` to the square.
    Both bounds are met: sqrt(1 + c**2) under zero-out by a unit row in the
    subspace in play, sqrt(2 + c**2) under replace by such a row against one orthogonal to it.
    """
    return math.hypot(gram_sensitivity, REWARD_WEIGHT)


class RewardSum:
    """The exact sum of rewards on the released subspaces. Curator only; `noisy` gives what may leave.

    Parameters
    ----------
    n_features, n_components : d and k.
    split : draws the number by which readers split the noise of a release in two.

    Notes
    -----
    *Privacy.* A reward is a function of its row and of earlier releases. Let
    the prefix-sum mechanism of sensitivity `joint_sensitivity` run on (svec(a
    a^T), c r): its inputs then depend on earlier outputs, which its theorem
    allows (`prefix_sums.base`). So Gram matrices and rewards together are
    mu-GDP, and the sum of rewards carries noise of sd ``std / c``, independent
    of that of the Gram matrix. Published without noise, rewards would have no
    guarantee at all.

    Rewards are rounded to multiples of 2**-30 and summed in integers; the
    noise is rounded to the same grid, so a release is a function of exact
    integers plus rounded noise.
    """

    def __init__(self, n_features: int, n_components: int, split: NoiseStream) -> None:
        self._sum = 0
        self._split = split
        self._scoring: FloatArray | None = scoring_basis(Subspace.first_axes(n_features, n_components).basis)
        self._playing: Release | None = None

    def add(self, rows: FloatArray) -> None:
        """Score rows on the subspace in play."""
        scores = np.minimum(score(rows, self._basis()), 1.0)
        self._sum += int(np.rint(scores * _SUM_GRID).astype(np.int64).sum())

    def play(self, release: Release) -> None:
        """Put a release's subspace into play."""
        self._playing, self._scoring = release, None

    def noisy(self, noise: float, std: float, n: int) -> dict[str, Any]:
        """The publishable sum of rewards as release n carries it, from joint noise and its sd.

        Returns
        -------
        dict
            ``sum`` and its noise ``std``, in units of row_norm**2, and
            ``split``, a public random number that is independent of all else.
        """
        total = self._sum + round(noise / REWARD_WEIGHT * _SUM_GRID)
        split = int(self._split.words(n, 1)[0] >> np.uint64(11))
        return {"sum": total / _SUM_GRID, "std": std / REWARD_WEIGHT, "split": split}

    def _basis(self) -> FloatArray:
        if self._scoring is None:
            assert self._playing is not None
            self._scoring = scoring_basis(self._playing.subspace.basis)
            self._playing = None
        return self._scoring

    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the rows."""
        # In two words: plain 64-bit integers are what a store keeps.
        high, low = divmod(self._sum, 2**40)
        return {"high": high, "low": low, "scoring": self._basis().copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`.

        Raises
        ------
        BadParameter
            If the state is of other parameters.
        """
        scoring = np.array(state["scoring"], dtype=np.float64)
        if scoring.shape != self._basis().shape:
            raise BadParameter(
                f"the state holds a basis of shape {scoring.shape}, this processor has {self._basis().shape}; "
                "restore with the parameters it was saved with"
            )
        self._sum = int(state["high"]) * 2**40 + int(state["low"])
        self._scoring, self._playing = scoring, None
