"""The approximate spectral histogram: a few of the possible starts of a window.

A window of an endless stream is ``K(i) = P - P_i``, the current sum less the sum before checkpoint i. Keeping every
start requires W matrices. If (1 - eta/2) K(i) is below K(j), every K in between is nearly K(i), and its checkpoint is
deleted, so few remain (Upadhyay and Upadhyay 2021, after Braverman et al. 2020). The P_i are *private* sums, which
could be published, so the histogram is post-processing. The slack serves accuracy only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from streampca.linalg.eigen import negative_direction
from streampca.linalg.lattice import difference
from streampca.linalg.svec import svec_size, unpack_entries
from streampca.linalg.types import FloatArray
from streampca.state import State

#: A remembered direction counts as a violation if its value is below minus this share of the largest diagonal entry.
_CLEAR = 1e-9


@dataclass(frozen=True, eq=False)
class Rules:
    """Public rules for keeping checkpoints."""

    n_features: int
    window: int  # rows; the oldest checkpoint is at or before the start of the window
    keep: float  # factor in the deletion test, 1 - eta/2
    slack: Callable[[int], float]  # of the deletion test, by the rows between two checkpoints
    mark_every: int  # rows between checkpoints
    pin_every: int  # checkpoints at starts 1, 1 + pin_every, ... are never deleted, which bounds the overhang


@dataclass(frozen=True, slots=True, eq=False)
class SpectralHistogram(State):
    """Checkpoints of a stream of private running sums: an immutable value. Publishable."""

    kept = ("starts", "sums", "now")

    rules: Rules
    starts: tuple[int, ...]  # first rows of the sums that are kept, ascending
    sums: tuple[FloatArray, ...]  # for each start, the private sum of the rows before it, in two parts
    now: FloatArray  # the private sum of all rows, in two parts
    # For a start, the next-but-one start it was compared with, and a direction that forbade deletion.
    # Witnesses save time and do not affect the result, so snapshots omit them.
    witnesses: Mapping[int, tuple[int, FloatArray]] = field(default_factory=dict)

    @classmethod
    def first(cls, rules: Rules, further: int = 0) -> Self:
        """Return the histogram before any row; ``further`` sums follow those of the matrix, and decide nothing."""
        nothing = np.zeros((2, svec_size(rules.n_features) + further))
        return cls(rules, (1,), (nothing,), nothing)

    def advanced(self, t: int, now: FloatArray) -> Self:
        """Return the histogram with the private sum of the first t rows, without checkpoints no later window needs."""
        # Invariant: the first start is at or before the first row of the window, the second one after it.
        gone, past = 0, t - self.rules.window + 1
        while gone + 1 < len(self.starts) and self.starts[gone + 1] <= past:
            gone += 1
        return replace(self, starts=self.starts[gone:], sums=self.sums[gone:], now=now)

    def marked(self, t: int) -> Self:
        """Return the histogram with a checkpoint at row t + 1, without those that the deletion test removes."""
        starts, sums, witnesses = [*self.starts, t + 1], [*self.sums, self.now], dict(self.witnesses)
        # From the newest backwards, so that afterwards no three neighbors allow a deletion.
        for i in range(len(starts) - 3, -1, -1):
            first = difference(self.now, sums[i])
            while i + 2 < len(starts) and (starts[i + 1] - 1) % self.rules.pin_every:
                known, other = witnesses.get(starts[i]), starts[i + 2]
                # The direction that forbade this deletion before costs O(d**2) to try, an eigenvalue O(d**3).
                remembered = known[1] if known is not None and known[0] == other else None
                x = self.forbids(other - starts[i], first, difference(self.now, sums[i + 2]), remembered)
                if x is not None:
                    witnesses[starts[i]] = other, x
                    break
                del starts[i + 1], sums[i + 1]
        kept = {start: witnesses[start] for start in starts if start in witnesses}
        return replace(self, starts=tuple(starts), sums=tuple(sums), witnesses=kept)

    def forbids(
        self, rows: int, first: FloatArray, second: FloatArray, remembered: FloatArray | None
    ) -> FloatArray | None:
        """Return a direction in which (1 - eta/2) K(i) - slack I is not below K(j), or None if there is none.

        ``first`` and ``second`` are packed K(i) and K(j), whose checkpoints are ``rows`` rows apart.
        """
        # UU21: K(i) may replace every sum in between if (1 - eta/2) K(i) <= K(j) + slack I.
        gap = unpack_entries(second - self.rules.keep * first, self.rules.n_features)
        gap[np.diag_indices_from(gap)] += self.rules.slack(rows)
        if remembered is not None:
            clear = _CLEAR * float(np.abs(np.diagonal(gap)).max())
            if float(remembered @ gap @ remembered) < -clear:
                return remembered
        return negative_direction(gap)
