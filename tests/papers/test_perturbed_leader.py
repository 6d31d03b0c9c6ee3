import math

import numpy as np
import pytest
from scipy import stats

import streampca as sp
from streampca.privacy.gaussian import epsilon_at, mu_of

MU = mu_of(1.0, 1e-6)


def fits(draws: np.ndarray, sd: float) -> bool:
    total = float(np.sum((draws / sd) ** 2))
    return 2 * min(stats.chi2.cdf(total, draws.size), stats.chi2.sf(total, draws.size)) > 1e-5


def test_the_perturbed_leader_promises_nothing_across_steps() -> None:
    leader = sp.papers.PerturbedLeader(n_components=1, epsilon=1.0, delta=1e-6)
    assert not leader.guarantee.is_private
    assert epsilon_at(10 * MU, 1e-6) == pytest.approx(13.5, abs=0.05)
    assert "100 of them together are at epsilon = 13.5" in str(leader.guarantee)
    assert leader.noise_std(1) == leader.noise_std(10_000) == pytest.approx(1 / MU)
    stream = sp.Stream(leader, seed=2)
    draws = np.array([r.gram[0, 0] for r in stream.push_many(np.zeros((4000, 2))).releases])
    assert fits(draws, 1 / MU)
    assert not fits(draws, 1.2 / MU)
    # The reason: the noise averages out, so a single row can be read off many releases.
    assert abs(draws.mean()) < 5 / MU / math.sqrt(4000)
