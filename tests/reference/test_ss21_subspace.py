"""The exact subspace estimator as printed: a tie releases a span that one row brought in."""

from collections import Counter

import numpy as np
import pytest
from printed_mechanisms import exact_line

# Two lines tie above NULL (score 56.3); the last row is on a line of its own.
WITH = np.array([[1, 0]] * 60 + [[0, 1]] * 60 + [[1, 1]])
WITHOUT = WITH * (np.arange(121) < 120)[:, None]


def released(rows, draws):
    rng = np.random.default_rng(3)
    return Counter(exact_line(rows, 1.0, 1e-6, rng) for _ in range(draws))


def test_a_tie_releases_the_odd_row_a_quarter_of_the_time():
    draws = 600
    found = released(WITH, draws)
    assert len(found) == 4
    # 4.5 standard errors, false alarm 7e-6: every candidate comes out with probability 1/4.
    for count in found.values():
        assert count / draws == pytest.approx(0.25, abs=4.5 * np.sqrt(0.1875 / draws))
    # Never without the row: true delta is at least 0.25, at any epsilon, where 1e-6 is claimed.
    assert (1, 1) in found
    assert (1, 1) not in released(WITHOUT, 50)  # no candidate
