"""The exact subspace estimator as printed (Singhal and Steinke 2021, Algorithm 1). Not private as claimed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np

from streampca.linalg.counts import check_components
from streampca.linalg.eigen import orthonormal
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import Mechanism
from streampca.privacy.budget import Budget
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import Outlet
from streampca.release import Release, Terms

Vector = tuple[Fraction, ...]
#: A subspace, as the rows of its reduced row echelon form.
Span = tuple[Vector, ...]
#: Distinct rows, and how many there are of each.
Points = Counter[Vector]


@dataclass(frozen=True, kw_only=True)
class PrintedExactSubspace(Mechanism):
    """GAP-MAX over the spans of rows, in exact arithmetic: claims (epsilon, delta), has no guarantee.

    Scores less the second largest and 1 are all 0 when the two largest tie,
    and then the noise alone picks the winner, from all spans of the data,
    every one with equal probability. A span that one row brought in is
    released with probability 1 over the number of candidates, and never
    without that row: delta is at least 0.25 with two tied lines, one odd row
    and NULL. Use `ExactSubspace`.

    Parameters
    ----------
    n_components : k.
    epsilon, delta : what the paper claims.
    outliers : the paper's l.

    Notes
    -----
    Takes rows as they are. The time grows as the number of rows to the power k + 1.
    The release of NULL has a basis of no columns and ``details["null"]`` true.
    """

    n_components: int
    epsilon: float
    delta: float
    outliers: int = 0
    n_features: int | None = None

    def __post_init__(self) -> None:
        check_components(self.n_components, self.n_features)
        _ = Budget(self.epsilon, self.delta).mu

    @property
    def guarantee(self) -> Guarantee:
        """None."""
        return Guarantee.none(
            "a tie of the two largest scores makes every span of the data equally likely: true delta at least 0.25",
            "Singhal, Steinke, NeurIPS 2021, Algorithm 1 and Lemma 2.3",
        )

    def _admit(self, rows: FloatArray) -> FloatArray:
        return rows

    def _candidates(self, points: Points) -> list[Span]:
        return sorted(span for span in spans(points, self.n_components) if len(span) == self.n_components)

    def constants(self, n_features: int) -> tuple[object, ...]:
        """The scale of the noise."""
        return (2.0 / self.epsilon,)

    def _release(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        points: Points = Counter(tuple(Fraction(float(x)) for x in row) for row in rows)
        null = self.outliers + 4.0 * math.log(1.0 / self.delta) / self.epsilon + 1.0
        candidates: list[Span | None] = [None, *self._candidates(points)]
        scores = np.array([null, *(float(score(points, span)) for span in candidates if span is not None)])
        second = np.sort(scores)[-2] if scores.size > 1 else -math.inf
        noise = truncated_laplace(outlet.hide("scores", rows).uniform(scores.size), 2.0, self.epsilon, self.delta)
        winner = candidates[int(np.argmax(np.maximum(0.0, scores - second - 1.0) + noise))]
        basis = np.zeros((rows.shape[1], 0))
        if winner is not None:
            basis = orthonormal(np.array([[float(x) for x in row] for row in winner]).T)
        return Release(t=t, n_components=basis.shape[1], terms=terms, basis=basis, details={"null": winner is None})


def spans(points: Iterable[Vector], size: int) -> set[Span]:
    """All subspaces spanned by ``size`` of the points."""
    return {echelon(subset) for subset in combinations(points, size)}


def count(points: Points, span: Span) -> int:
    """How many rows lie in a subspace."""
    return sum(times for point, times in points.items() if len(echelon((*span, point))) == len(span))


def score(points: Points, span: Span) -> int:
    """Rows in the subspace, less the most of them in a proper subspace of it."""
    inside = [p for p in points if len(echelon((*span, p))) == len(span)]
    proper = {s for size in range(len(span)) for s in spans(inside, size)}
    return count(points, span) - max(count(points, s) for s in proper)


def echelon(rows: Iterable[Vector]) -> Span:
    """Reduced row echelon form, zero rows left out: equal for equal spans."""
    left = [list(row) for row in rows]
    done: list[list[Fraction]] = []
    width = len(left[0]) if left else 0
    for column in range(width):
        pivot = next((row for row in left if row[column] != 0), None)
        if pivot is None:
            continue
        left.remove(pivot)
        pivot = [x / pivot[column] for x in pivot]
        left = [[x - row[column] * p for x, p in zip(row, pivot, strict=True)] for row in left]
        done = [[x - row[column] * p for x, p in zip(row, pivot, strict=True)] for row in done]
        done.append(pivot)
    return tuple(tuple(row) for row in done)


def truncated_laplace(uniform: FloatArray, sensitivity: float, epsilon: float, delta: float) -> FloatArray:
    """TLap(sensitivity, epsilon, delta) of SS21 from uniforms, by inversion.

    Density proportional to ``exp(-|x| epsilon / sensitivity)`` on ``|x| <=
    sensitivity / epsilon * ln(1 + (e**epsilon - 1) / (2 delta))``.
    """
    scale = sensitivity / epsilon
    reach = scale * math.log1p(math.expm1(epsilon) / (2.0 * delta))
    side = 2.0 * uniform - 1.0
    drawn: FloatArray = -np.sign(side) * scale * np.log1p(np.abs(side) * math.expm1(-reach / scale))
    return drawn
