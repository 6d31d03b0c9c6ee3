"""What leaders share: the exact Gram matrix, the release schedule, the regret bound."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from functools import lru_cache

import numpy as np

from streampca.bounds import instability, perturbed_leader_regret
from streampca.errors import BadParameter
from streampca.linalg.lattice import GramAccumulator
from streampca.linalg.types import FloatArray, IntArray
from streampca.processors.base import Processor, check_count
from streampca.release import Release

DTTZ14 = "Dwork, Talwar, Thakurta, Zhang, 'Analyze Gauss', STOC 2014"


def _panel_ends() -> tuple[int, ...]:
    ends = [1]
    while ends[-1] < 2**63:
        ends.append(max(ends[-1] + 1, int(1.1 * ends[-1])))
    return tuple(ends)


_ENDS = _panel_ends()


class Leader(Processor):
    """A processor that releases its whole Gram matrix, noised, after every ``release_every`` rows."""

    release_every: int
    horizon: int | None
    _gram: GramAccumulator

    @property
    def rows_left(self) -> int | None:
        """Rows until the horizon; None if endless."""
        return None if self.horizon is None else self.horizon - self.t

    @property
    def rows_until_release(self) -> int:
        """Rows until the next release; 0 at the horizon."""
        due = self.release_every - self.t % self.release_every
        return due if self.horizon is None else min(due, self.horizon - self.t)

    def noise_std(self, t: int) -> float:
        """Sd of a diagonal entry of the noise in the latest released Gram matrix after t rows.

        In units of row_norm**2; off-diagonal entries have this over sqrt(2).

        Raises
        ------
        BadParameter
            If nothing has been released after t rows, or t is past the horizon.
        """
        check_count("t", t)
        if self.horizon is not None and t > self.horizon:
            raise BadParameter(f"t={t} is past the horizon of {self.horizon} rows")
        leaf = t // self.release_every if t != self.horizon else self._leaves(t)
        if leaf < 1:
            raise BadParameter(f"t={t}: the first release comes after {self.release_every} rows")
        return self._std(leaf)

    def _leaves(self, rows: int) -> int:
        """Releases in so many rows, the short one at a horizon included."""
        return -(-rows // self.release_every)

    def _absorb(self, rows: FloatArray) -> Release | None:
        self._gram.add(rows)
        return self._leave()

    def _absorb_gram(self, high: IntArray, low: IntArray) -> Release | None:
        self._gram.add_gram(high, low)
        return self._leave()

    @abstractmethod
    def _leave(self) -> Release | None:
        """The release, if one is due."""

    @abstractmethod
    def _std(self, leaf: int) -> float:
        """Sd of the noise in release number ``leaf``."""

    def curator_gram(self) -> FloatArray:
        """The exact Gram matrix of all rows absorbed, packed. Curator only."""
        return self._gram.plus()


def leader_regret_bound(leader: Leader, t: int, opt: float, known: dict[int, float]) -> float:
    """Evaluate the bound on panels of releases whose ends grow by a tenth.

    The sd of the noise rises to one peak and falls after it, so its least
    value on a panel is at one of the ends. All panels but the last are the
    same as for the rows before, and their share of the sum is kept.
    """
    played = (t - 1) // leader.release_every  # releases that were in play for some row
    if played < 1:
        return opt
    past = bisect_left(_ENDS, played)
    for n in _ENDS[len(known) : past]:
        known[n] = leader._std(n)
    stds, last = tuple(map(known.__getitem__, _ENDS[:past])), leader._std(played)
    settled, variation = _settled(stds, leader.release_every)
    before = stds[-1] if past else 0.0
    assert leader.n_features is not None
    return perturbed_leader_regret(
        opt,
        stds=np.array([min(before, last) if past else last]),
        counts=np.array([float(played - (_ENDS[past - 1] if past else 0))]),
        variation=variation + abs(last - before),
        n_features=leader.n_features,
        n_components=leader.n_components,
        rows_per_release=leader.release_every,
        settled=settled,
    )


@lru_cache(maxsize=64)
def _settled(stds: tuple[float, ...], rows_per_release: int) -> tuple[FloatArray | float, float]:
    """`instability` of the first panels, and the variation of the sd over them."""
    if not stds:
        return 0.0, 0.0
    ends = np.array(stds)
    least = np.minimum(ends, np.concatenate((ends[:1], ends[:-1])))
    counts = np.diff(_ENDS[: len(stds)], prepend=0).astype(np.float64)
    sums = instability(least, counts, rows_per_release)
    sums.flags.writeable = False
    return sums, float(np.abs(np.diff(ends, prepend=0.0)).sum())
