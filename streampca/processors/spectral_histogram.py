"""The approximate spectral histogram: a few of the possible starts of a window.

A window of an endless stream is ``K(i) = P - P_i``, the current sum less the sum before checkpoint i. Keeping every
start requires W matrices. If (1 - eta/2) K(i) is below K(j), every K in between is nearly K(i), and its checkpoint is
deleted, so few remain (Upadhyay and Upadhyay 2021, after Braverman et al. 2020). The P_i are *private* sums, which
could be published, so the histogram is post-processing. The slack serves accuracy only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.eigen import negative_direction
from streampca.linalg.lattice import GramInParts, GramSum, difference
from streampca.linalg.lazy import cached_property
from streampca.linalg.svec import svec_size, unpack_entries
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.window import StationaryBLT
from streampca.privacy.outlet import Outlet
from streampca.processors.window_methods import View, WindowMethod, WindowProcessor
from streampca.state import State

UU21 = "Upadhyay, Upadhyay, ICML 2021 (spectral histogram; its printed mechanism is not used)"
#: A remembered direction counts as a violation if its value is below minus this share of the largest diagonal entry.
_CLEAR = 1e-9


@dataclass(frozen=True, eq=False)
class Rules:
    """Public rules for keeping checkpoints."""

    n_features: int
    window: int  # rows; the oldest checkpoint is at or before the start of the window
    keep: float  # factor in the deletion test, 1 - eta/2
    slack: Callable[[int], float]  # of the deletion test, by the rows between two checkpoints
    pin_every: int  # checkpoints at starts 1, 1 + pin_every, ... are never deleted, which bounds the overhang


@dataclass(frozen=True, slots=True, eq=False)
class SpectralHistogram(State):
    """Checkpoints of a stream of private running sums: an immutable value. Publishable."""

    rules: Rules
    starts: tuple[int, ...]  # first rows of the sums that are kept, ascending
    sums: tuple[FloatArray, ...]  # for each start, the private sum of the rows before it, in two parts
    now: FloatArray  # the private sum of all rows, in two parts
    # For a start, the next-but-one start it was compared with, and a direction that forbade deletion.
    # Witnesses save time and do not affect the result, so snapshots omit them.
    witnesses: Mapping[int, tuple[int, FloatArray]] = field(default_factory=dict)

    @classmethod
    def first(cls, rules: Rules) -> Self:
        """Return the histogram before any row."""
        nothing = np.zeros((2, svec_size(rules.n_features)))
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

    def snapshot(self) -> dict[str, Any]:
        return {"starts": list(self.starts), "sums": list(self.sums), "now": self.now}

    def restored(self, snapshot: Mapping[str, Any], source: Any = None) -> Self:
        return replace(self, starts=tuple(snapshot["starts"]), sums=tuple(snapshot["sums"]), now=snapshot["now"])


class HistogramProcessor(WindowProcessor):
    """The exact sum of all rows, and the spectral histogram of its private prefix sums as post-processing."""

    __slots__ = ("gram", "histogram")
    kept = __slots__

    method: HistogramMethod

    def begin(self) -> None:
        self.gram = GramSum(self.n_features)
        self.histogram = SpectralHistogram.first(self.method.rules(self.n_features))

    def take(self, rows: FloatArray) -> None:
        self.gram = self.gram.add(rows)

    def close(self, outlet: Outlet) -> View:
        method, every, t = self.method, self.algorithm.release_every, self.t
        # All sums are rounded on one grid, that of the least noise in a difference, so that K(i) has no rounding error.
        self.noise, now = outlet.running("prefix", GramInParts(self.gram), self.noise, method.grid)
        histogram = self.histogram.advanced(t, now)
        # The release is of the checkpoints before row t + 1 gets one.
        self.histogram = histogram.marked(t) if t % method.mark_every == 0 else histogram
        first = histogram.starts[0]
        std = method.noise.difference_std(t // every, (t - first + 1) // every)
        return View(difference(now, histogram.sums[0]), std, first, {"checkpoints": len(histogram.starts)})

    def curator_gram(self) -> GramSum:
        return self.gram


class HistogramMethod(WindowMethod):
    """Private running sums of all rows, and a spectral histogram of them."""

    processor = HistogramProcessor
    theorem = (
        "Gaussian matrix mechanism on running Gram matrices, adaptive rows; histogram and subspaces are post-processing"
    )
    citation = f"{WindowMethod.citation}; {UU21}"

    def check(self) -> None:
        marks, every = self.algorithm.checkpoint_every, self.algorithm.release_every
        if self.algorithm.window < every:
            # Rows would leave the window before they are released.
            raise BadParameterError(f"window={self.algorithm.window}: expected at least release_every={every}.")
        if marks is not None and marks % every:
            raise BadParameterError(f"checkpoint_every={marks}: expected a multiple of release_every={every}.")

    @cached_property
    def noise(self) -> StationaryBLT:
        return StationaryBLT(self.algorithm.leaves, self.algorithm.budget.mu, self.algorithm.sensitivity)

    @cached_property
    def grid(self) -> float:
        """Least standard deviation of the noise in a difference of sums, that over a single leaf."""
        return self.noise.difference_std(1, 1)

    def std(self, n: int) -> float:
        # As if the oldest checkpoint were at the start of the window.
        return self.noise.difference_std(n, min(n, self.algorithm.leaves))

    def constants(self, n_features: int) -> tuple[object, ...]:
        choice = self.slack(n_features, self.pin_every), self.mark_every, self.pin_every
        return *choice, self.grid, *self.noise.constants()

    @cached_property
    def mark_every(self) -> int:
        """Rows between checkpoints, in whole leaves."""
        algorithm = self.algorithm
        if algorithm.checkpoint_every is not None:
            return algorithm.checkpoint_every
        # A row of norm 1 moves the Gram matrix by at most 1, so this number moves it by at most one noise std.
        rows = min(self.noise.lag_std(algorithm.leaves), algorithm.window / 8.0)
        return max(1, int(rows / algorithm.release_every)) * algorithm.release_every

    @cached_property
    def pin_every(self) -> int:
        """Rows between checkpoints that are never deleted."""
        algorithm = self.algorithm
        return max(1, int(algorithm.window * algorithm.overhang / self.mark_every)) * self.mark_every

    def noise_bound(self, n_features: int, rows: int | None = None) -> float:
        """Bound on the spectral norm of the noise in sums of ``rows`` rows. None means the longest sums kept."""
        algorithm = self.algorithm
        longest = algorithm.window + self.pin_every + self.mark_every
        # Union bound: at any time within the longest sum, any two checkpoints within it, and the sum since each.
        marks = longest / self.mark_every
        comparisons = marks * (longest / algorithm.release_every + marks)
        std = self.noise.lag_std(-(-(longest if rows is None else rows) // algorithm.release_every))
        return self.norm(std, n_features, comparisons)

    def slack(self, n_features: int, rows: int) -> float:
        """Additive slack of the deletion test for checkpoints ``rows`` rows apart, f + eta z."""
        return self.noise_bound(n_features, rows) + self.algorithm.eta * self.noise_bound(n_features)

    def rules(self, n_features: int) -> Rules:
        """Rules for keeping checkpoints of sums with ``n_features`` features."""
        algorithm, slack = self.algorithm, partial(self.slack, n_features)
        keep = 1.0 - algorithm.eta / 2.0  # of K(i), which exceeds K(j) by a factor of at most 1 / keep
        return Rules(n_features, algorithm.window, keep, slack, self.pin_every)

    @property
    def multiplicative_error(self) -> float:  # type: ignore[override]
        return 1.0 / (1.0 - self.algorithm.eta / 2.0) - 1.0

    def additive_error(self, n_features: int) -> float:
        bound = self.noise_bound(n_features)
        between = 2.0 * self.noise_bound(n_features, self.pin_every) + 1.5 * self.algorithm.eta * bound
        factor = 1.0 + self.multiplicative_error
        # The rows before the window are bounded by the deletion test, and by their number.
        before = min(factor * max(between, self.mark_every - 1.0), self.pin_every + self.mark_every - 1.0)
        return before + bound
