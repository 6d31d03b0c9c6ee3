"""Audits of the subspace mechanisms on their worst neighbours, and planted bugs that they catch.

They release two neighbours many times and bound delta from below, at the claimed epsilon, over all outcomes, with
Clopper-Pearson intervals of confidence 1 - 1e-5 a side. With at most 4 outcomes and two directions a sound mechanism
raises a false alarm with probability at most 2e-4 over seeds; seeds are fixed.
"""

import math
from collections import Counter

import numpy as np
import pytest
from printed_mechanisms import PrintedExactSubspace
from scipy.stats import beta

from streampca.mechanisms.exact_subspace import ExactSubspace, TruncatedLaplace
from streampca.mechanisms.histogram import StabilityHistogram
from streampca.papers.approximate_subspace import ApproximateSubspace
from streampca.privacy.randomness import Randomness

pytestmark = pytest.mark.ci

ALARM, EPSILON = 1e-5, 1.0
E1, E2, ODD, ZERO = [1.0, 0.0], [0.0, 1.0], [1.0, 3.0], [0.0, 0.0]


def outcomes(mechanism, rows, draws):
    """How often each subspace came out; null is the empty tuple."""
    rows, randomness = np.array(rows), Randomness.from_seed(7)
    made = (mechanism.release(rows, randomness, t=len(rows) + i) for i in range(draws))
    return Counter(tuple(np.abs(r.subspace.basis).round(1).ravel().tolist()) for r in made)


def least_delta(mechanism, first, second, draws=600):
    """Largest lower bound on P(S | one) - e**epsilon P(S | other), S an outcome or its complement, either way round."""
    counts = [outcomes(mechanism, rows, draws) for rows in (first, second)]
    found = []
    for one, other in (counts, counts[::-1]):
        for outcome in set(one) | set(other):
            for hits, others in ((one[outcome], other[outcome]), (draws - one[outcome], draws - other[outcome])):
                low = beta.ppf(ALARM, hits, draws - hits + 1) if hits else 0.0
                high = beta.ppf(1.0 - ALARM, others + 1, draws - others) if others < draws else 1.0
                found.append(low - math.exp(EPSILON) * high)
    return max(found)


class WrongThreshold(ExactSubspace):
    """Forgets the reach of the noise: a single vote passes every other time."""

    @property
    def threshold(self):
        return 1.0


class VotesThatAppear(ExactSubspace):
    """Noise for a vote that appears, though votes move."""

    @property
    def noise(self):
        return TruncatedLaplace(self.epsilon, self.delta)


class CellsThatAppear(ApproximateSubspace):
    """Lap(1/epsilon), though votes move."""

    @property
    def histogram(self):
        return StabilityHistogram(2.0 * self.epsilon, self.delta)


def exact(kind=ExactSubspace, delta=1e-3, **more):
    return kind(n_components=1, epsilon=EPSILON, delta=delta, **more)


def approximate(kind=ApproximateSubspace, delta=1e-3):
    return kind(n_components=1, epsilon=EPSILON, delta=delta, widths=(0.05,), block_rows=1)


ALONE = ([ODD], [ZERO])
#: A tie above the score that the printed algorithm gives to null.
PRINTED = ([E1] * 40 + [E2] * 40 + [ODD], [E1] * 40 + [E2] * 40 + [ZERO])
#: Two spans level, and one vote that moves between them.
MOVED = ([E1] * 16 + [E2] * 16, [E1] * 15 + [E2] * 17)


@pytest.mark.parametrize(
    ("mechanism", "pair"),
    [
        (exact(), MOVED),
        (exact(), ALONE),
        (approximate(), MOVED),
        (approximate(), ([E1] * 16, [E1] * 15 + [ZERO])),
    ],
    ids=["votes-moved", "votes-alone", "cells", "cells-zero"],
)
def test_sound_mechanisms_pass(mechanism, pair):
    assert least_delta(mechanism, *pair) <= mechanism.delta


@pytest.mark.parametrize(
    ("mechanism", "pair"),
    [
        (exact(WrongThreshold), ALONE),
        pytest.param(exact(VotesThatAppear), MOVED, marks=pytest.mark.long),  # 20 s of CPU
        pytest.param(approximate(CellsThatAppear), MOVED, marks=pytest.mark.long),
        (PrintedExactSubspace(n_components=1, epsilon=EPSILON, delta=1e-3), PRINTED),
    ],
    ids=["wrong threshold", "votes that appear", "Lap(1/epsilon) for moves", "as printed"],
)
def test_planted_bugs_are_caught(mechanism, pair):
    draws = {CellsThatAppear: 5000, VotesThatAppear: 8000}.get(type(mechanism), 400)
    assert least_delta(mechanism, *pair, draws=draws) > 0.01


def test_one_row_moves_one_vote():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(40, 5))
    mechanism = ApproximateSubspace(max_components=2, epsilon=1.0, delta=1e-3, widths=(0.5,), block_rows=8)
    points = rng.normal(size=(5, 8))
    first = mechanism._votes(rows.reshape(5, 8, 5), points)
    for other in (np.zeros(5), rng.normal(size=5) * 1e6):
        rows[17] = other
        second = mechanism._votes(rows.reshape(5, 8, 5), points)
        kept = np.array([0, 1, 3, 4])
        np.testing.assert_array_equal(first[0][kept], second[0][kept])
        np.testing.assert_array_equal(first[1][kept], second[1][kept])


def test_a_solver_that_fails_shows_nothing(monkeypatch):
    mechanism = approximate()
    rows, plain = np.array(MOVED[0]), np.linalg.svd

    def failing(a, **keywords):
        if a.ndim == 3 and a.shape[1:] == (1, 2):
            raise np.linalg.LinAlgError
        if a.shape == (1, 2) and a[0, 1] > 0.0:
            raise np.linalg.LinAlgError
        return plain(a, **keywords)

    monkeypatch.setattr(np.linalg, "svd", failing)
    release = mechanism.release(rows, Randomness.from_seed(1))  # failed blocks vote for the first axis
    assert abs(release.subspace.basis[0, 0]) > 0.9
