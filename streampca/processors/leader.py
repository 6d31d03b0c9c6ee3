"""What leaders share: the exact Gram matrix, the release schedule, the regret bound."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from functools import lru_cache
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from streampca.bounds import instability, perturbed_leader_regret
from streampca.errors import BadParameter
from streampca.linalg.counts import check_count
from streampca.linalg.lattice import GramSum
from streampca.linalg.types import FloatArray, IntArray
from streampca.privacy.outlet import Chain, NoiseSource, Outlet
from streampca.processors.base import Algorithm, Processor, chain_snapshot
from streampca.release import Release, Terms

DTTZ14 = "Dwork, Talwar, Thakurta, Zhang, 'Analyze Gauss', STOC 2014"


def _panel_ends() -> tuple[int, ...]:
    ends = [1]
    while ends[-1] < 2**63:
        ends.append(max(ends[-1] + 1, int(1.1 * ends[-1])))
    return tuple(ends)


_ENDS = _panel_ends()


#: Most rows of a block.
_MOST = 2**53


class HasStd(Protocol):
    """Noise whose standard deviation is known for every release."""

    def __hash__(self) -> int:
        """Mechanisms and configurations are values."""

    def std(self, n: int) -> float:
        """Standard deviation of a diagonal entry of the noise in release n."""


class Leader(Algorithm):
    """An algorithm that releases its whole Gram matrix, noised, after every ``release_every`` rows."""

    release_every: int
    horizon: int | None
    #: True if a release is made after every block of rows, whatever its length.
    batches: ClassVar[bool] = False

    @property
    def absorbs_grams(self) -> bool:
        """True: only the Gram matrix of the rows is used."""
        return True

    def leaves(self, rows: int) -> int:
        """Releases in so many rows, the short one at a horizon included."""
        return -(-rows // self.release_every)

    def due(self, t: int) -> int:
        """How many rows may follow row t up to the next release; 0 at the horizon. Public."""
        due = _MOST if self.batches else self.release_every - t % self.release_every
        return due if self.horizon is None else min(due, self.horizon - t)

    @abstractmethod
    def _std(self, leaf: int) -> float:
        """Standard deviation of the noise in release number ``leaf``."""

    def noise_std(self, t: int) -> float:
        """Standard deviation of a diagonal entry of the noise in the latest released Gram matrix after t rows.

        In units of row_norm**2; off-diagonal entries have this over sqrt(2).

        Raises
        ------
        BadParameter
            If nothing has been released after t rows, or t is past the horizon.
        """
        check_count("t", t)
        if self.horizon is not None and t > self.horizon:
            raise BadParameter(f"t={t} is past the horizon of {self.horizon} rows")
        leaf = t // self.release_every if t != self.horizon else self.leaves(t)
        if leaf < 1:
            raise BadParameter(f"t={t}: the first release comes after {self.release_every} rows")
        return self._std(leaf)


class LeaderProcessor(Processor):
    """Where a leader stands.

    Attributes
    ----------
    gram : the exact Gram matrix of the rows since the start (of the epoch).
    rows_until_release : rows until the next release; 0 at the horizon.
    """

    __slots__ = ("gram", "rows_until_release")

    algorithm: Leader
    rows_until_release: int

    def __init__(
        self, algorithm: Leader, n_features: int, source: NoiseSource, terms: Terms, chain: Chain, t: int, gram: GramSum
    ) -> None:
        super().__init__(algorithm, n_features, source, terms, chain, t)
        self.gram = gram
        self.rows_until_release = algorithm.due(t)

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        """Add the rows to the Gram matrix; release it if that is due."""
        return self._after(self.t + rows.shape[0], self.gram.add(rows), outlet)

    def step_gram(self, count: int, high: IntArray, low: IntArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        """Add the Gram matrix of a block; release the sum if that is due."""
        return self._after(self.t + count, self.gram.add_words(high, low), outlet)

    def _after(self, t: int, gram: GramSum, outlet: Outlet) -> tuple[Processor, Release | None]:
        algorithm = self.algorithm
        if t % algorithm.release_every and t != algorithm.horizon:
            return self._at(t, gram), None
        return self.released(t, gram, outlet)

    @abstractmethod
    def _at(self, t: int, gram: GramSum) -> Self:
        """The processor after more rows, between two releases."""

    @abstractmethod
    def released(self, t: int, gram: GramSum, outlet: Outlet) -> tuple[Processor, Release]:
        """The processor after a release, and the release."""

    def noise_std(self, t: int) -> float:
        """`Leader.noise_std`."""
        return self.algorithm.noise_std(t)

    def curator_gram(self) -> GramSum:
        """The exact Gram matrix of all rows absorbed. Curator only."""
        return self.gram

    def snapshot(self) -> dict[str, Any]:
        """Plain values and arrays from which the processor is made again. As secret as the rows."""
        return {"t": self.t, "chain": chain_snapshot(self.chain), "gram": self.gram.snapshot()}


def leader_regret_bound(algorithm: Leader, noise: HasStd, n_features: int, t: int, opt: float) -> float:
    """Evaluate the bound on panels of releases whose ends grow by a tenth.

    The standard deviation of the noise rises to one peak and falls after it, so
    its least value on a panel is at one of the ends. All panels but the last are
    the same as for the rows before, and their share of the sum is kept.
    """
    played = (t - 1) // algorithm.release_every  # releases that were in play for some row
    if played < 1:
        return opt
    past = bisect_left(_ENDS, played)
    before, last = _std_at(noise, _ENDS[past - 1]) if past else 0.0, noise.std(played)
    instable, variation = _full_panels(noise, past, algorithm.release_every)
    return perturbed_leader_regret(
        opt,
        stds=np.array([min(before, last) if past else last]),
        counts=np.array([float(played - (_ENDS[past - 1] if past else 0))]),
        variation=variation + abs(last - before),
        n_features=n_features,
        n_components=algorithm.n_components,
        rows_per_release=algorithm.release_every,
        settled=instable,
    )


@lru_cache(maxsize=4096)
def _std_at(noise: HasStd, n: int) -> float:
    """`std` at the end of a panel, computed once."""
    return noise.std(n)


@lru_cache(maxsize=64)
def _full_panels(noise: Any, panels: int, rows_per_release: int) -> tuple[FloatArray | float, float]:
    """`instability` of the first panels, and the variation of the standard deviation over them."""
    if not panels:
        return 0.0, 0.0
    ends = np.array([_std_at(noise, n) for n in _ENDS[:panels]])
    least = np.minimum(ends, np.concatenate((ends[:1], ends[:-1])))
    counts = np.diff(_ENDS[:panels], prepend=0).astype(np.float64)
    sums = instability(least, counts, rows_per_release)
    sums.flags.writeable = False
    return sums, float(np.abs(np.diff(ends, prepend=0.0)).sum())
