"""Release the subspace that the rows lie in exactly, or nothing (Singhal and Steinke 2021, Section 2)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import SubspaceFinder
from streampca.mechanisms.rational_span import Span, exact_rows, lines_of, orthonormal_basis, span_of
from streampca.mechanisms.subspace_search import two_best
from streampca.privacy.budget import Adjacency
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import Counts, Outlet
from streampca.privacy.randomness import Draws
from streampca.release.release import Release, Terms

Method = Literal["auto", "all", "blocks"]
#: "auto" scores all spans while rows**k is below the first number, or below the second where blocks are too few.
EASY, HARD = 2e6, 3e7
CITATION = "Singhal and Steinke 2021, Algorithm 1, corrected; Bun, Dwork, Rothblum and Steinke 2018 (GAP-MAX)"


@dataclass(frozen=True, kw_only=True)
class ExactSubspace(SubspaceFinder):
    """The k-dimensional subspace that holds nearly all rows exactly, or nothing.

    The release is that subspace to the last digit, for any number of features, or *null* if no subspace stands out: a
    `Release` of the empty subspace (``n_components == 0``, ``details["null"]`` true). With enough rows (`rows_needed`)
    it is the subspace with probability 1, and a subspace that one row brought in has probability 0.

    Parameters
    ----------
    n_components : k, or None to find it.
    epsilon, delta, adjacency, n_features : see `Mechanism`; delta is below 0.5.
    max_components : largest k to look for when n_components is None.
    method : ``"all"`` scores all spans of k rows (time of order n**k; 100 rows take 0.6 s at k = 3); ``"blocks"`` lets
        disjoint blocks of consecutive rows vote for their spans (fast at any k, needs about k times as many rows);
        ``"auto"`` is the first where that is quick. A public choice.
    block_rows : rows in a voting block; None for max k. Larger blocks help when rows often coincide or lie in smaller
        subspaces.

    Notes
    -----
    *Rows* may be integers, fractions (`fractions.Fraction`) or floats, at their exact value: rounding would destroy the
    subspace, and privacy does not rest on norms. `Stream` scales rows by ``row_norm`` and truncates to multiples of
    2**-20: use integer rows and a power of two, at most 2**20, that no row exceeds; then nothing changes.

    *Method "all"*: (epsilon, delta)-DP per row. The score of a k-dimensional subspace s is the number of non-zero rows
    in it, less the largest number in a proper subspace. Zeroing a row changes every score by 0 or -1, replacing one by
    -1, 0 or 1, so the gap g between the two best scores changes by at most D = 1 (zero-out) or 2 (replace). The best s
    is released if g + N > T, N ~ TLap(D, epsilon, delta) bounded by A and T = D + A. If both neighbors have the same
    best s, this is a post-processing of g + N. If they differ, their gaps add up to at most D, so neither is ever
    released. (The printed algorithm is not private: ``docs/theory/ss21.md``.) If all rows but l lie in s, and no
    smaller subspace holds more than l, then g >= n - 3 l, and s is released for certain when g > D + 2 A.

    *Method "blocks"*: (epsilon, delta)-DP per row. A row is in one block, independently of its value, so one block's
    vote moves (under zero-out too) and two counts change by 1. Each gets its own TLap(1, epsilon/2, delta/2), bounded
    by A', and the most popular span above 1 + A' is released: a span of one vote never. A span with more than 1 + 2 A'
    votes passes for certain, and wins for certain if all others have 2 A' fewer.

    The basis is a function of the subspace only, through its reduced row echelon form. The running time is not covered:
    it depends on the rows.

    Citation: Singhal and Steinke, "Privately Learning Subspaces", NeurIPS 2021.
    """

    n_components: int | None = None
    epsilon: float
    delta: float
    adjacency: Adjacency = "zero-out"
    max_components: int = 3
    method: Method = "auto"
    block_rows: int | None = None
    n_features: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method not in ("auto", "all", "blocks"):
            raise BadParameterError(f"method={self.method!r}: expected 'auto', 'all' or 'blocks'.")
        _ = self.gap_noise, self.vote_noise

    @property
    def gap_noise(self) -> TruncatedLaplace:
        """Noise of the gap between the two best scores."""
        return TruncatedLaplace(1.0 if self.adjacency == "zero-out" else 2.0, self.epsilon, self.delta)

    @property
    def vote_noise(self) -> TruncatedLaplace:
        """Noise of each span's votes: one vote moves, so two counts share the budget."""
        return TruncatedLaplace(1.0, self.epsilon / 2.0, self.delta / 2.0)

    @property
    def gap_threshold(self) -> float:
        """Noisy gap above which the best subspace is released: a gap due to one row never passes."""
        return self.gap_noise.sensitivity + self.gap_noise.bound

    @property
    def vote_threshold(self) -> float:
        """Noisy number of votes above which a span is released: a single vote never passes."""
        return 1.0 + self.vote_noise.bound

    @property
    def guarantee(self) -> Guarantee:
        return self._promise(
            "truncated Laplace noise on the gap between the two best spans, or on the votes of blocks", CITATION
        )

    def rows_needed(self, outliers: int = 0) -> int:
        """Return the fewest rows that release the subspace with probability 1, for "all" if the method is "auto".

        For k = n_components (or max_components) and rows in general position except for ``outliers`` arbitrary ones.
        """
        if self.method != "blocks":
            spoiled = max(outliers, self._largest - 1)
            return 3 * spoiled + math.floor(self.gap_threshold + self.gap_noise.bound) + 1
        # At worst each outlier spoils a block, and all spoiled blocks agree on another span.
        passing = math.floor(self.vote_threshold + self.vote_noise.bound) + 1
        apart = outliers + math.floor(2.0 * self.vote_noise.bound) + 1
        return self._block_rows * (outliers + max(passing, apart if outliers > 1 else 0))

    def _read(self, rows: Any) -> FloatArray:
        return super()._read(exact_rows(rows))

    def constants(self, n_features: int) -> tuple[object, ...]:
        gap, vote = self.gap_noise, self.vote_noise
        return gap.sensitivity / gap.epsilon, gap.bound, vote.sensitivity / vote.epsilon, vote.bound

    def released(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        n, d = rows.shape
        by_blocks = self.method == "blocks"
        if self.method == "auto":  # a public rule: it depends on the number of rows only
            enough = n // self._block_rows > self.vote_threshold + self.vote_noise.bound
            by_blocks = float(n) ** self._largest > (EASY if enough else HARD)
        span = (self._most_voted if by_blocks else self._best)(rows, outlet)
        details = {
            "mechanism": type(self).__name__, "rows": n, "null": not span, "method": "blocks" if by_blocks else "all",
            "integer_basis": [list(line) for line in span],
        }  # fmt: skip
        basis = orthonormal_basis(span, d)
        return Release(t=t, n_components=len(span), terms=terms, basis=basis, details=details)

    def _best(self, rows: FloatArray, outlet: Outlet) -> Span:
        points = Counter(line for line in lines_of(rows) if any(line))
        best, second, span = two_best(list(points), list(points.values()), self._ranks(rows.shape[1]))
        gap = Counts(np.array([best - second]), rows)
        noisy = outlet.release("gap", gap, lambda draws: self.gap_noise.draw(draws, 1))
        return span if noisy[0] > self.gap_threshold else ()

    def _most_voted(self, rows: FloatArray, outlet: Outlet) -> Span:
        lines, ranks, size = lines_of(rows), self._ranks(rows.shape[1]), self._block_rows
        spans = (span_of(lines[i : i + size], ranks[-1]) for i in range(0, len(lines) - size + 1, size))
        votes = Counter(span for span in spans if len(span) in ranks)
        counts = Counts(np.array(list(votes.values()), dtype=np.int64), rows, names=list(votes))
        noisy = outlet.release("votes", counts, lambda draws: self.vote_noise.draw(draws, len(votes)))
        top = int(np.argmax(noisy)) if votes else 0
        return list(votes)[top] if votes and noisy[top] > self.vote_threshold else ()

    def _ranks(self, d: int) -> list[int]:
        return [self.n_components] if self.n_components is not None else list(range(1, min(self.max_components, d) + 1))

    @property
    def _block_rows(self) -> int:
        return self.block_rows or self._largest


@dataclass(frozen=True)
class TruncatedLaplace:
    """TLap(sensitivity, epsilon, delta): (epsilon, delta)-DP noise of bounded support, delta in (0, 0.5).

    The density is proportional to ``exp(-|x| epsilon / sensitivity)`` on ``|x| <= bound = (sensitivity / epsilon) ln(1
    + (e**epsilon - 1) / (2 delta))``.

    *Theorem.* Added to a number that a neighbor changes by at most ``sensitivity`` it is (epsilon, delta)-DP, and no
    smaller delta holds: the ratio of densities is at most e**epsilon where both are positive, and the mass beyond the
    shifted support is ``(e**epsilon - 1) / (2 (e**(epsilon bound / sensitivity) - 1)) = delta`` (Geng, Ding, Guo and
    Kumar 2020, Theorem 1; Singhal and Steinke 2021).
    """

    sensitivity: float
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        for name in ("sensitivity", "epsilon"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise BadParameterError(f"{name}={getattr(self, name)!r}: expected a positive finite number.")
        if not 0.0 < self.delta < 0.5:
            raise BadParameterError(f"delta={self.delta!r}: expected a number in (0, 0.5), e.g. 1e-6.")

    @property
    def bound(self) -> float:
        """Largest magnitude of the noise."""
        if self.epsilon > 30.0:  # the same number, without e**epsilon
            rest = math.log1p((2.0 * self.delta - 1.0) * math.exp(-self.epsilon)) - math.log(2.0 * self.delta)
            return self.sensitivity / self.epsilon * (self.epsilon + rest)
        return self.sensitivity / self.epsilon * math.log1p(math.expm1(self.epsilon) / (2.0 * self.delta))

    def above(self, x: float) -> float:
        """Return P(noise > x), exactly."""
        if abs(x) >= self.bound:
            return 0.0 if x > 0.0 else 1.0
        if x < 0.0:
            return 1.0 - self.above(-x)
        scale = self.sensitivity / self.epsilon
        # (e^{-x/b} - e^{-A/b}) / (2 (1 - e^{-A/b})), arranged so that small tails keep their digits.
        tail = math.exp(-x / scale) * -math.expm1((x - self.bound) / scale)
        return 0.5 * tail / -math.expm1(-self.bound / scale)

    def draw(self, draws: Draws, count: int) -> FloatArray:
        """Return ``count`` independent draws, by inversion."""
        uniform = draws.uniform(2 * count)
        inside = -math.expm1(-self.bound * self.epsilon / self.sensitivity)
        size = np.minimum(-self.sensitivity / self.epsilon * np.log1p(-uniform[:count] * inside), self.bound)
        return np.where(uniform[count:] < 0.5, -size, size)
