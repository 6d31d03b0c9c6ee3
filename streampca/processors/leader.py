"""Base classes of leaders: the exact Gram matrix, the release schedule, the regret bound."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.counts import check_count
from streampca.linalg.eigen import top_pairs
from streampca.linalg.lattice import GramSum
from streampca.linalg.types import FloatArray, IntArray
from streampca.matrix_factorization.base import MatrixFactorization
from streampca.privacy.budget import Adjacency
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.processors.base import Algorithm, Processor
from streampca.release.release import Release
from streampca.release.terms import Terms
from streampca.theorems import batched_leader_regret, instability, perturbed_leader_regret

DTTZ14 = "Dwork, Talwar, Thakurta, Zhang, 'Analyze Gauss', STOC 2014"

#: Releases at which panels end. Each panel is longer than the one before by a 25th, so a bound over 2**63 releases has
#: about 1100 terms, and exceeds the one over every release by up to 1 %.
_ENDS = [1]
while _ENDS[-1] < 2**63:
    _ENDS.append(max(_ENDS[-1] + 1, int(1.04 * _ENDS[-1])))
PANEL_ENDS = frozenset(_ENDS)


class Leader(Algorithm):
    """An algorithm that releases its whole Gram matrix with noise after every ``release_every`` rows."""

    adjacency: Adjacency = "zero-out"
    horizon: Any
    #: True if the regret bound is proved: exact leaders of the matrix about 0, and noise smooth in time.
    is_bounded: bool = True
    mechanism: MatrixFactorization  # of all releases together
    absorbs_grams = True
    square_bytes = 130.0

    def leaves(self, rows: int) -> int:
        """Releases in a stream of ``rows`` rows, counting a shorter last block at the horizon."""
        return -(-rows // int(self.every))

    def std(self, n: int) -> float:
        """Standard deviation of a diagonal entry of the noise in release n."""
        return self.mechanism.std(n)

    def products(self, inputs: IntArray, n: int) -> FloatArray:
        return self.mechanism.products(inputs, n)

    def noise_std(self, t: int) -> float:
        """Standard deviation of a diagonal entry of the noise in the latest released Gram matrix after t rows.

        In units of row_norm**2. `BadParameterError` if nothing has been released after t rows.
        """
        check_count("t", t)
        if self.horizon is not None and t > self.horizon:
            raise BadParameterError("t", t, f"at most horizon={self.horizon}")
        n = t // self.every if t != self.horizon else self.leaves(t)
        if n < 1:
            raise BadParameterError("t", t, f"at least {self.every}, the row of the first release")
        return self.std(n)


class LeaderProcessor(Processor):
    """State of a leader: the exact Gram matrix of the rows since the start (of the epoch)."""

    __slots__ = ("gram", "spectra")
    kept: ClassVar[tuple[str, ...]] = ("gram", "spectra")

    algorithm: Leader

    def __init__(self, algorithm: Leader, n_features: int, source: NoiseSource, terms: Terms) -> None:
        super().__init__(algorithm, n_features, source, terms)
        self.gram = GramSum(n_features, further=self.further)
        # At the ends of panels: release, sum of the first k eigenvalues of the exact Gram matrix, eigenvalues k and
        # k + 1. Curator only; the regret bound is computed from it.
        self.spectra: FloatArray = np.empty((0, 4))

    def step(self, rows: FloatArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        return self._after(self.t + rows.shape[0], self.gram.add(rows), outlet)

    def step_gram(self, count: int, high: IntArray, low: IntArray, outlet: Outlet) -> tuple[Processor, Release | None]:
        return self._after(self.t + count, self.gram.add_high_low(high, low), outlet)

    def _after(self, t: int, gram: GramSum, outlet: Outlet) -> tuple[Processor, Release | None]:
        algorithm = self.algorithm
        if t % algorithm.every and t != algorithm.horizon:
            return self.after(t, self.chain, gram=gram), None
        return self.released(t, gram, outlet)

    @abstractmethod
    def released(self, t: int, gram: GramSum, outlet: Outlet) -> tuple[Processor, Release]:
        """Return the processor after a release, and the release."""

    def regret_bound(self, t: int, opt: float) -> float | None:
        # The lesser of a bound from public numbers and one from exact spectra. The release before row t scores it.
        algorithm, played = self.algorithm, (t - 1) // self.algorithm.every
        if not algorithm.is_bounded:
            return None
        bound = worst_case_bound(algorithm, self.n_features, t, opt)
        spectra = self.spectra[: np.searchsorted(self.spectra[:, 0], played, side="right")]
        if not len(spectra):
            return bound
        left_out = np.append(spectra[1:, 3], _spectrum(self.gram, algorithm.n_components)[2])
        batched = batched_leader_regret(
            ends=np.append(spectra[:, 0], played), opts=spectra[:, 1], last_kept=spectra[:, 2],
            first_left_out=left_out, stds=np.append(_stds_at_ends(algorithm, len(spectra)), algorithm.std(played)),
            n_features=self.n_features, n_components=algorithm.n_components, rows_per_release=algorithm.every,
        )  # fmt: skip
        return min(bound, batched)


def with_spectrum(spectra: FloatArray, algorithm: Leader, n: int, gram: GramSum) -> FloatArray:
    """Return `LeaderProcessor.spectra` after release n of the exact matrix: with another row at the end of a panel."""
    if n not in PANEL_ENDS or not algorithm.is_bounded:
        return spectra
    return np.vstack([spectra, [n, *_spectrum(gram, algorithm.n_components)]])


def _spectrum(gram: GramSum, k: int) -> tuple[float, float, float]:
    """Return the sum of the first k eigenvalues, eigenvalue k, and eigenvalue k + 1 (0 if k = d)."""
    d = gram.n_features
    values = top_pairs(gram.packed(), min(k + 1, d))[0]
    return float(values[:k].sum()), float(values[k - 1]), float(values[k]) if k < d else 0.0


def worst_case_bound(algorithm: Leader, n_features: int, t: int, opt: float) -> float:
    """Theorem 14 of DTTZ14 with its constants (`theorems.perturbed_leader_regret`), from OPT and public numbers."""
    played = (t - 1) // algorithm.every  # releases that scored some row
    if played < 1:
        return opt
    # The std of the noise rises to one peak and falls after it, so its least value on a panel is at one of the ends.
    past = bisect_left(_ENDS, played)
    end = _ENDS[past - 1] if past else 0
    before, last = _stds_at_ends(algorithm, past)[-1] if past else 0.0, algorithm.std(played)
    # All panels but the last are those of earlier rows, and their share of the sum is cached.
    instable, variation = _full_panels(algorithm, past)
    return perturbed_leader_regret(
        opt, stds=np.array([min(before, last) if past else last]), counts=np.array([float(played - end)]),
        variation=variation + abs(last - before), n_features=n_features, n_components=algorithm.n_components,
        rows_per_release=algorithm.every, settled=instable,
    )  # fmt: skip


@lru_cache(maxsize=64)
def _stds_at_ends(algorithm: Leader, panels: int) -> FloatArray:
    """Return `Leader.std` at the ends of the first panels."""
    return np.array([algorithm.std(n) for n in _ENDS[:panels]])


@lru_cache(maxsize=64)
def _full_panels(algorithm: Leader, panels: int) -> tuple[FloatArray | float, float]:
    """Return `instability` of the first panels, and the variation of the standard deviation over them."""
    if not panels:
        return 0.0, 0.0
    ends = _stds_at_ends(algorithm, panels)
    least = np.minimum(ends, np.concatenate((ends[:1], ends[:-1])))
    counts = np.diff(_ENDS[:panels], prepend=0).astype(np.float64)
    sums = instability(least, counts, algorithm.every)
    sums.flags.writeable = False
    return sums, float(np.abs(np.diff(ends, prepend=0.0)).sum())
