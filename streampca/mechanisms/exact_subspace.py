"""Release the subspace that the rows lie in exactly, or nothing: disjoint blocks of rows vote for their spans.

After Singhal and Steinke 2021, Section 2. Spans are computed in integers, without a tolerance: finite floats are dyadic
rationals, so a row times a power of two is a vector of integers on the same line.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg.eigen import fix_signs
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import SubspaceFinder
from streampca.privacy.outlet import Counts, Outlet
from streampca.privacy.randomness import Draws
from streampca.release.release import Release
from streampca.release.terms import Terms

#: A vector of integers without a common factor, its first non-zero entry positive; zero stays zero.
Line = tuple[int, ...]
#: A subspace: its reduced row echelon form over the rationals, rows cleared of denominators, by ascending pivot.
Span = tuple[Line, ...]


@dataclass(frozen=True, kw_only=True)
class ExactSubspace(SubspaceFinder):
    """The k-dimensional subspace that nearly all rows lie in exactly, or nothing.

    The release is that subspace to the last digit, for any number of features, or *null* if no subspace stands out: a
    `Release` of the empty subspace (``n_components == 0``, ``details["null"]`` true). With enough rows (`rows_needed`)
    it is the subspace with probability 1, and a subspace that one row brought in has probability 0.

    Parameters
    ----------
    n_components : k, or None to find it.
    epsilon, delta, adjacency : see `Mechanism`.
    max_components : largest k to look for when n_components is None.
    block_rows : rows in a voting block; None for max k. More help where rows often coincide or span fewer dimensions.

    Notes
    -----
    *Rows* have the exact value of their floats: rounding would destroy the subspace, and privacy does not rest on
    norms. Integers up to 2**53 are exact; multiply fractions by their denominator. `Stream` scales rows by ``row_norm``
    and truncates to multiples of 2**-20: use integer rows and a power of two, at most 2**20, that no row exceeds; then
    nothing changes.

    *Guarantee.* (epsilon, delta)-DP per row. Blocks of consecutive rows vote for the span of their rows. A row is in
    one block, so one vote moves (under zero-out too) and two counts change by 1. Each gets TLap(1, epsilon/2, delta/2),
    bounded by A, and the most popular span above 1 + A is released: a span of one vote never. The basis is a function
    of the subspace only; the running time depends on the rows. Proof, and why the printed algorithm is not private:
    ``docs/theory/ss21.md``.
    """

    noise: TruncatedLaplace = field(init=False, repr=False, compare=False)  # of each span's votes
    #: Noisy number of votes above which a span is released: a single vote never passes.
    threshold: float = field(init=False, repr=False, compare=False)

    theorem = "truncated Laplace noise on the votes of blocks for their spans"
    citation = "after Singhal and Steinke 2021, Section 2; Bun, Nissim and Stemmer 2019 (stability histograms)"

    def __post_init__(self) -> None:
        super().__post_init__()
        # One vote moves, so two counts share the budget.
        object.__setattr__(self, "noise", TruncatedLaplace(self.epsilon / 2.0, self.delta / 2.0))
        object.__setattr__(self, "threshold", 1.0 + self.noise.bound)

    def rows_needed(self, outliers: int = 0) -> int:
        """Return the fewest rows that release the subspace for certain: all but ``outliers`` in general position."""
        # At worst each outlier spoils a block, and all spoiled blocks agree on another span.
        passing = math.floor(self.threshold + self.noise.bound) + 1
        apart = outliers + math.floor(2.0 * self.noise.bound) + 1
        return (self.block_rows or self._largest) * (outliers + max(passing, apart if outliers > 1 else 0))

    def constants(self, n_features: int) -> tuple[object, ...]:
        return 1.0 / self.noise.epsilon, self.noise.bound

    def released(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        n, d = rows.shape
        size, most = self.block_rows or self._largest, min(self.max_components, d)
        ranks = range(1, most + 1) if self.n_components is None else [self.n_components]
        lines = lines_of(rows)
        spans = (span_of(lines[i : i + size], stop_above=ranks[-1]) for i in range(0, n - size + 1, size))
        # One entry for each span with a vote. Names depend on rows; a name of one vote never passes the threshold.
        votes = Counter(span for span in spans if len(span) in ranks)
        counts = Counts(np.array(list(votes.values()), dtype=np.int64), rows, names=list(votes))
        noisy = outlet.release("votes", counts, lambda draws: self.noise.draw(draws, len(votes)))
        top = int(np.argmax(noisy)) if votes else 0
        span = list(votes)[top] if votes and noisy[top] > self.threshold else ()
        details = {
            "mechanism": type(self).__name__, "rows": n, "null": not span,
            "integer_basis": [list(line) for line in span],
        }  # fmt: skip
        basis = orthonormal_basis(span, d)
        return Release(t=t, n_components=len(span), terms=terms, basis=basis, details=details)


@dataclass(frozen=True)
class TruncatedLaplace:
    """TLap(1, epsilon, delta): (epsilon, delta)-DP noise of bounded support for a count, delta in (0, 0.5).

    The density is proportional to ``exp(-|x| epsilon)`` up to ``|x| = ln(1 + (e**epsilon - 1) / (2 delta)) / epsilon``.

    *Theorem.* Added to a number that a neighbor changes by at most 1 it is (epsilon, delta)-DP, and no smaller delta
    holds: the ratio of densities is at most e**epsilon where both are positive, and the mass beyond the shifted support
    is ``(e**epsilon - 1) / (2 (e**(epsilon bound) - 1)) = delta`` (Geng, Ding, Guo and Kumar 2020, Theorem 1).
    """

    epsilon: float
    delta: float
    bound: float = field(init=False, repr=False, compare=False)  # largest magnitude of the noise

    def __post_init__(self) -> None:
        if not 0.0 < self.delta < 0.5:
            raise BadParameterError("delta", self.delta, "a number in (0, 0.5), e.g. 1e-6")
        if self.epsilon > 30.0:  # the same number, without e**epsilon
            rest = math.log1p((2.0 * self.delta - 1.0) * math.exp(-self.epsilon)) - math.log(2.0 * self.delta)
            log = self.epsilon + rest
        else:
            log = math.log1p(math.expm1(self.epsilon) / (2.0 * self.delta))
        object.__setattr__(self, "bound", 1.0 / self.epsilon * log)

    def above(self, x: float) -> float:
        """Return P(noise > x), exactly."""
        if abs(x) >= self.bound:
            return 0.0 if x > 0.0 else 1.0
        if x < 0.0:
            return 1.0 - self.above(-x)
        # (e^{-x/b} - e^{-A/b}) / (2 (1 - e^{-A/b})) with b = 1/epsilon, arranged so that small tails keep their digits.
        tail = math.exp(-x * self.epsilon) * -math.expm1((x - self.bound) * self.epsilon)
        return 0.5 * tail / -math.expm1(-self.bound * self.epsilon)

    def draw(self, draws: Draws, count: int) -> FloatArray:
        """Return ``count`` independent draws, by inversion."""
        uniform = draws.uniform(2 * count)
        inside = -math.expm1(-self.bound * self.epsilon)
        # Rounding must not take a draw beyond the bound, on which the guarantee rests.
        size = np.minimum(-1.0 / self.epsilon * np.log1p(-uniform[:count] * inside), self.bound)
        return np.where(uniform[count:] < 0.5, -size, size)


def lines_of(rows: FloatArray) -> list[Line]:
    """Return the line through each row, exactly; zero rows give zero tuples."""
    mantissas, exponents = np.frexp(rows)
    # A mantissa times 2**53 is a whole number; shifts by the least exponent of the row make the entries integers.
    whole = (mantissas * 2.0**53).astype(np.int64)
    exponents = np.where(whole == 0, exponents.max(initial=0), exponents)
    shifts = exponents - exponents.min(axis=1, keepdims=True, initial=2**31 - 1)
    return [
        primitive([m << s if m else 0 for m, s in zip(ms, ss, strict=True)])
        for ms, ss in zip(whole.tolist(), shifts.tolist(), strict=True)
    ]


def primitive(vector: Iterable[int]) -> Line:
    """Divide by the common factor and make the first non-zero entry positive."""
    entries = list(vector)
    factor = math.gcd(*entries)
    if factor == 0:
        return tuple(entries)
    if next(e for e in entries if e) < 0:
        factor = -factor
    return tuple(e // factor for e in entries)


def span_of(lines: Iterable[Line], stop_above: int | None = None) -> Span:
    """Return the span of some lines, or of the first of them that exceed the rank ``stop_above``."""
    # Invariant: rows of the echelon by pivot, each zero at all other pivots.
    echelon: dict[int, Line] = {}
    for line in lines:
        left = list(line)
        for pivot in sorted(echelon):
            if left[pivot]:
                left = _eliminate(left, echelon[pivot], pivot)
        if not any(left):
            continue
        new = primitive(left)
        lead = next(i for i, e in enumerate(new) if e)
        for pivot, row in echelon.items():
            if row[lead]:
                echelon[pivot] = primitive(_eliminate(list(row), new, lead))
        echelon[lead] = new
        if stop_above is not None and len(echelon) > stop_above:
            break
    return tuple(echelon[pivot] for pivot in sorted(echelon))


def orthonormal_basis(span: Span, n_features: int) -> FloatArray:
    """Return an orthonormal basis (d, k) of a span: Gram-Schmidt in exact integers, rounded once at the end."""
    done: list[Line] = []
    for row in span:
        left = list(row)
        for other in done:
            dot = sum(a * b for a, b in zip(left, other, strict=True))
            square = sum(b * b for b in other)
            left = list(primitive(square * a - dot * b for a, b in zip(left, other, strict=True)))
        done.append(tuple(left))
    basis = np.zeros((n_features, len(done)))
    for i, line in enumerate(done):
        peak = max(map(abs, line))
        column = np.array([float(Fraction(e, peak)) for e in line])
        basis[:, i] = column / np.linalg.norm(column)
    return fix_signs(basis) if done else basis


def _eliminate(row: list[int], by: Line, pivot: int) -> list[int]:
    """Subtract a multiple of another line so that the entry at the pivot vanishes, without fractions."""
    a, b = by[pivot], row[pivot]
    factor = math.gcd(a, b)
    a, b = a // factor, b // factor
    return [a * x - b * y for x, y in zip(row, by, strict=True)]
