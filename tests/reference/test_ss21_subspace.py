"""The exact subspace estimator as printed: a tie releases a span that one row brought in."""

from collections import Counter

import numpy as np
import pytest
from printed_mechanisms import PrintedExactLine

from streampca.privacy.randomness import Randomness

MECHANISM = PrintedExactLine(epsilon=1.0, delta=1e-6)
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
    draws = 600
    odd = (0.707, 0.707)
    found = released(WITH, draws)
    assert len(found) == 4
    # 4.5 standard errors, false alarm 7e-6: every candidate comes out with probability 1/4.
    for count in found.values():
        assert count / draws == pytest.approx(0.25, abs=4.5 * np.sqrt(0.1875 / draws))
    # Never without the row: true delta is at least 0.25, at any epsilon, where 1e-6 is claimed.
    assert odd in found
    assert odd not in released(WITHOUT, 50)  # no candidate
    assert not MECHANISM.guarantee.is_private
