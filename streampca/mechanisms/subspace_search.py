"""Scores of all subspaces spanned by weighted points, exactly (Singhal and Steinke 2021, Section 2).

The score of a subspace is the weight of the points in it, less that in its heaviest proper subspace. Only spans of
points have a positive score. A subspace is represented by the indices of the points in it.

The search works modulo a prime on a projection to few dimensions. Dependent points stay dependent there, so groups of
points can only be too large; every group that affects the result is verified over the integers, and after a false one
the search restarts with the next prime. So the result depends neither on the prime nor on chance. The search ends,
because a false group needs a prime that divides one of finitely many integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from streampca.linalg.types import IntArray
from streampca.mechanisms.rational_span import Line, Span, span_of

Mask = npt.NDArray[np.bool_]
#: From the weight of a subspace L and those of the groups outside it, a mask of the L + group to be searched.
Worth = Callable[[int, IntArray], Mask]


def two_best(points: Sequence[Line], weights: Sequence[int], ranks: Sequence[int]) -> tuple[int, int, Span]:
    """Return the two largest scores over all subspaces of the given dimensions, at least 0, and the best subspace.

    ``points`` are distinct non-zero lines; ``weights`` count the rows on each. The time is of order ``len(points) **
    max(ranks)``. The subspace is empty if no score is positive, and one of the best if there are several.
    """
    attempt = 0
    while points:
        try:
            return _Search(points, weights, max(ranks), attempt).two_best(ranks)
        except _FalseGroupError:
            attempt += 1
    return 0, 0, ()


class _FalseGroupError(Exception):
    """Some points are dependent modulo the prime, but not over the integers."""


class _Search:
    def __init__(self, points: Sequence[Line], weights: Sequence[int], rank: int, attempt: int) -> None:
        self.points = points
        self.weights = np.array(weights, dtype=np.int64)
        self.prime = _prime(attempt)
        self._mix = np.random.Generator(np.random.Philox(attempt))  # hashing, not noise: the result ignores it
        residues = np.array([[entry % self.prime for entry in line] for line in points], dtype=np.int64)
        self.coords = residues if residues.shape[1] <= rank + 1 else self._mixed(residues, rank + 1)
        if not self.coords.any(axis=1).all():  # the projection takes a point to zero
            raise _FalseGroupError

    def two_best(self, ranks: Sequence[int]) -> tuple[int, int, Span]:
        scores = [0, 0]
        found = np.zeros(0, dtype=np.int64)
        everything = np.arange(len(self.points), dtype=np.int64)
        for rank in ranks:
            # A score is at most the weight outside any L: a rejected group cannot exceed the second score.
            for members in self._subspaces(everything, rank, lambda _, groups: groups > scores[1]):
                score = int(self.weights[members].sum()) - self._heaviest(members, rank - 1)
                if score > scores[0]:
                    scores[:], found = [score, scores[0]], members
                else:
                    scores[1] = max(scores[1], score)
        return scores[0], scores[1], span_of(self.points[i] for i in found.tolist())

    def _heaviest(self, among: IntArray, rank: int) -> int:
        """Return the weight of the heaviest subspace of a rank spanned by some points."""
        weights = [0]
        for members in self._subspaces(among, rank, lambda base, groups: base + groups > max(weights)):
            weights.append(int(self.weights[members].sum()))
        return max(weights)

    def _subspaces(self, among: IntArray, rank: int, worth: Worth) -> Iterator[IntArray]:
        """Yield verified subspaces of a rank >= 1, each once, unless ``worth`` rejects it from every L inside it."""
        if rank >= 1:
            for mask, _, _ in self._grown(among, rank, worth):
                yield among[mask]

    def _grown(self, among: IntArray, rank: int, worth: Worth) -> Iterator[tuple[Mask, IntArray, int]]:
        """Yield subspaces as masks, with coordinates modulo an L of the rank below and a point outside that L."""
        seen: set[bytes] = set()
        weights = self.weights[among]
        for inside, coords in self._modulo(among, rank - 1):
            outside = np.flatnonzero(~inside)
            _, groups = np.unique(self._directions(coords[outside]), return_inverse=True)
            sums = np.bincount(groups, weights=weights[outside]).astype(np.int64)
            for group in np.flatnonzero(worth(int(weights[inside].sum()), sums)):
                mask = inside.copy()
                mask[outside[groups == group]] = True
                key = np.packbits(mask).tobytes()
                if key not in seen:
                    seen.add(key)
                    self._verify(among[mask], rank)
                    yield mask, coords, int(outside[np.argmax(groups == group)])

    def _modulo(self, among: IntArray, rank: int) -> Iterator[tuple[Mask, IntArray]]:
        """Yield all subspaces of a rank spanned by some points, each once, with the points' coordinates modulo it."""
        if rank == 0:
            yield np.zeros(len(among), dtype=np.bool_), self.coords[among]
            return
        for mask, coords, point in self._grown(among, rank, lambda _, groups: groups > 0):
            by = coords[point]
            pivot = int(np.argmax(by != 0))
            factor = coords[:, pivot] * pow(int(by[pivot]), -1, self.prime) % self.prime
            rest = np.delete((coords - factor[:, None] * by) % self.prime, pivot, axis=1)
            if (mask != ~rest.any(axis=1)).any():
                raise _FalseGroupError
            yield mask, rest

    def _directions(self, coords: IntArray) -> IntArray:
        """Return a number for each vector, equal for proportional ones."""
        if coords.shape[1] == 1:
            return np.zeros(len(coords), dtype=np.int64)
        x, y = (coords if coords.shape[1] == 2 else self._mixed(coords, 2)).T
        return np.where(y == 0, self.prime, x * self._inverses(y) % self.prime)

    def _verify(self, members: IntArray, rank: int) -> None:
        if len(members) > rank and len(span_of((self.points[i] for i in members.tolist()), stop_above=rank)) > rank:
            raise _FalseGroupError

    def _mixed(self, coords: IntArray, size: int) -> IntArray:
        """Return random linear combinations of the columns, reduced after each product: products fit 64 bits."""
        mixed = np.zeros((len(coords), size), dtype=np.int64)
        for column in coords.T:
            mixed += column[:, None] * self._mix.integers(0, self.prime, size) % self.prime
        return mixed % self.prime

    def _inverses(self, values: IntArray) -> IntArray:
        """Return inverses modulo the prime, by Fermat's theorem; 0 for 0."""
        result, square, power = np.ones_like(values), values, self.prime - 2
        while power:
            if power & 1:
                result = result * square % self.prime
            square = square * square % self.prime
            power >>= 1
        return result


@cache
def _prime(index: int) -> int:
    """Return the largest primes below 2**31, descending: products of residues fit 64 bits."""
    candidate = 2**31 - 1 if index == 0 else _prime(index - 1) - 2
    divisors = np.arange(3, 46341, 2)
    while (candidate % divisors == 0).any():
        candidate -= 2
    return candidate
