"""DoublingFPL and PerturbedLeader."""

import math
from functools import partial

import numpy as np
import pytest
from scipy import stats

import streampca as sp
from streampca.privacy.gaussian import epsilon_at, mu_of

MU = mu_of(1.0, 1e-6)
doubling = partial(sp.papers.DoublingFPL, n_components=1, release_every=1)


def test_doubling_restarts_on_new_rows_and_stays_within_budget() -> None:
    processor = doubling(epsilon=50.0, delta=0.5, horizon=4000)
    stream = sp.Stream(processor, row_norm=1.0, seed=0)
    rows = np.zeros((4000, 3))
    rows[:, 0] = 1.0
    releases = stream.push_many(rows).releases
    epochs = [r.details["epoch"] for r in releases]
    starts = sorted({r.details["epoch_start"] for r in releases})
    assert epochs == sorted(epochs)
    assert 3 <= epochs[-1] <= 12  # doublings of OPT, not restarts on every row
    assert len(starts) == epochs[-1] + 1
    # Each epoch ends near its guess, which doubles; what is released counts the rows of all epochs.
    for release in releases[:: len(releases) // 50]:
        assert release.gram[0, 0] == pytest.approx(release.t, abs=6 * release.noise_std)
    lengths = np.diff(starts)
    assert (lengths[1:] > 1.4 * lengths[:-1]).all()
    least = sp.PrivateFPL(n_components=1, epsilon=50.0, delta=0.5, horizon=1, release_every=1, center=False)
    assert (np.array([r.noise_std for r in releases]) >= least.noise_std(1)).all()
    assert stream.regret.now().opt == pytest.approx(4000)


def test_doubling_keeps_what_it_learnt_at_a_restart() -> None:
    """The first row after a restart is played well: alone, its epoch would know nothing, and turn at random."""
    rows = np.repeat(np.eye(8)[:1], 1200, axis=0)
    captured, after = [], []
    for seed in range(2):
        processor = doubling(epsilon=50.0, delta=0.5, horizon=1200)
        stream = sp.Stream(processor, row_norm=1.0, seed=seed, regret=None)
        releases = stream.push_many(rows).releases
        captured.append(releases[-1].subspace.captured(np.eye(8)[:1].T @ np.eye(8)[:1]))
        starts = {r.details["epoch_start"] for r in releases} - {0}
        assert len(starts) >= 3
        after += [r.subspace.basis[0, 0] ** 2 for r in releases if r.t - 1 in starts]
        # Its noise is that of all epochs: sds add in squares, and each is said in noise_std.
        error = [r.gram[1, 1] / r.noise_std for r in releases if r.t - 1 in starts]
        assert np.abs(error).max() < 4.5
    assert min(captured) > 0.999
    assert min(after[1:]) > 0.9


def fits(draws: np.ndarray, sd: float) -> bool:
    total = float(np.sum((draws / sd) ** 2))
    return 2 * min(stats.chi2.cdf(total, draws.size), stats.chi2.sf(total, draws.size)) > 1e-5


def test_the_perturbed_leader_promises_nothing_across_steps() -> None:
    leader = sp.papers.PerturbedLeader(n_components=1, epsilon=1.0, release_every=1, center=False)
    assert not leader.guarantee.is_private
    assert epsilon_at(10 * MU, 1e-6) == pytest.approx(13.5, abs=0.05)
    assert "100 of them together are at epsilon = 13.5" in str(leader.guarantee)
    assert leader.noise_std(1) == leader.noise_std(10_000) == pytest.approx(1 / MU)
    stream = sp.Stream(leader, row_norm=1.0, seed=2)
    draws = np.array([r.gram[0, 0] for r in stream.push_many(np.zeros((4000, 2))).releases])
    assert fits(draws, 1 / MU)
    assert not fits(draws, 1.2 / MU)
    # The reason: the noise averages out, so a single row can be read off many releases.
    assert abs(draws.mean()) < 5 / MU / math.sqrt(4000)
