"""Error bars of regressions cover the truth at their nominal rate, over 200 private releases.

Bars of other queries: `tests/queries` checks their standard deviations, `scenarios/error_bars.py` their coverage.
"""

import numpy as np
from scipy.stats import binom

from streampca import queries
from streampca.linalg.lattice import onto_ball
from streampca.mechanisms.covariance import GaussianCovariance

RUNS, LEVEL, D = 200, 0.9, 6
#: Two-sided acceptance for 200 runs at 90 %: each check false-alarms with probability below 2e-3.
LOW, HIGH = binom.ppf(1e-3, RUNS, LEVEL), binom.ppf(1 - 1e-3, RUNS, LEVEL)


def test_regression_intervals_cover_at_their_rate():
    rng = np.random.default_rng(21)
    a = rng.normal(size=(6000, D)) * 0.35 * np.array([1.0, 0.9, 0.8, 0.7, 0.6, 0.5])
    a[:, -1] += 0.5 * a[:, 0] - 0.25 * a[:, 1]
    a[:, 0] += 0.2
    rows = onto_ball(np.hstack([a * 0.9, np.full((6000, 1), 0.5)]))
    mechanism = GaussianCovariance(n_components=2, epsilon=1.0, delta=1e-6)
    made = [mechanism.release(rows, seed=1000 + i) for i in range(RUNS)]
    # The exact Gram matrix in the place of the private one, for the truth.
    exact = type(made[0]).of_gram(
        rows.T @ rows, t=6000, n_components=2, guarantee=made[0].guarantee, noise_std=0.0, details=made[0].details
    )
    truth, *found = (queries.regression(each, [5], predictors=[0, 1, 2, 3, 4]) for each in (exact, *made))
    assert min(each.signal_to_noise for each in found) > 2.0
    z = np.array([(each.coefficients - truth.coefficients) / each.std for each in found])[:, :, 0]
    for scale, passes in ((1.0, True), (2 / 3, False), (1.5, False)):
        hits = (np.abs(z) <= 1.6448536 * scale).sum(axis=0)
        assert (((hits >= LOW) & (hits <= HIGH)).all()) == passes, (scale, hits)
