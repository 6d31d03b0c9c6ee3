"""The exact subspace estimator as printed: a tie releases a span that one row brought in."""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from printed_mechanisms import PrintedExactSubspace, echelon, score, spans, truncated_laplace
from scipy.stats import kstest

from streampca.privacy.randomness import Randomness

MECHANISM = PrintedExactSubspace(n_components=1, epsilon=1.0, delta=1e-6)
# Two lines tie above NULL (score 56.3); the last row is on a line of its own.
WITH = np.array([[1, 0]] * 60 + [[0, 1]] * 60 + [[1, 1]])
WITHOUT = WITH * (np.arange(121) < 120)[:, None]


def released(rows, draws):
    randomness, found = Randomness.from_seed(3), Counter()
    for i in range(draws):
        release = MECHANISM.release(rows, randomness, t=121 + i)
        found["null" if release.details["null"] else tuple(np.round(np.abs(release.subspace.basis[:, 0]), 3))] += 1
    return found


def test_a_tie_releases_the_odd_row_a_quarter_of_the_time():
    draws = 800
    odd = (0.707, 0.707)
    found = released(WITH, draws)
    assert len(found) == 4
    # 4.5 standard errors, false alarm 7e-6: every candidate comes out with probability 1/4.
    for count in found.values():
        assert count / draws == pytest.approx(0.25, abs=4.5 * np.sqrt(0.1875 / draws))
    # Never without the row: true delta is at least 0.25, at any epsilon, where 1e-6 is claimed.
    assert odd in found
    assert odd not in released(WITHOUT, 200)
    assert not MECHANISM.guarantee.is_private


def test_it_finds_the_subspace_when_there_is_no_tie():
    rng = np.random.default_rng(0)
    rows = np.zeros((90, 3), dtype=int)
    rows[:, :2] = rng.integers(-9, 10, size=(90, 2))
    rows[0] = [1, 2, 3]
    mechanism = PrintedExactSubspace(n_components=2, epsilon=5.0, delta=1e-3, outliers=10)
    release = mechanism.release(rows[:60], Randomness.from_seed(0))
    np.testing.assert_allclose(release.subspace.projector, np.diag([1.0, 1.0, 0.0]), atol=1e-12)
    assert mechanism.release(rows[:5], Randomness.from_seed(0)).details["null"]


def test_spans_and_scores():
    one, two, half = Fraction(1), Fraction(2), Fraction(1, 2)
    assert echelon([(two, one), (two, one)]) == ((one, half),)
    points = Counter({(one, one * 0): 3, (one * 0, one): 2, (two, one * 0): 1, (one, one): 1, (one * 0, one * 0): 4})
    lines = {span for span in spans(points, 1) if span}
    assert len(lines) == 3
    assert score(points, echelon([(one, one * 0)])) == 4  # zero rows are in every subspace: 8 - 4
    plane = echelon([(one, one * 0), (one * 0, one)])
    assert score(points, plane) == 11 - 8


def test_truncated_laplace():
    epsilon, delta = 0.5, 0.01
    reach = 2.0 / epsilon * np.log1p(np.expm1(epsilon) / (2 * delta))
    drawn = truncated_laplace(Randomness.from_seed(0).stream("u").uniform(0, 4000), 2.0, epsilon, delta)
    assert np.abs(drawn).max() <= reach
    mass = -np.expm1(-reach * epsilon / 2.0)

    def cdf(x):
        return 0.5 + np.sign(x) * 0.5 * -np.expm1(-np.abs(x) * epsilon / 2.0) / mass

    assert kstest(drawn, cdf).pvalue > 1e-3
    assert kstest(drawn * 1.5, cdf).pvalue < 1e-3
