import numpy as np
from scipy import stats

import streampca as sp
from streampca.bounds import perturbed_leader_regret


def bound(opt: float, sd: float, n: int, d: int = 10, k: int = 2, b: int = 1) -> float:
    return perturbed_leader_regret(
        opt, stds=np.array([sd]), counts=np.array([float(n)]), variation=sd, n_features=d, n_components=k,
        rows_per_release=b,
    )  # fmt: skip


def test_without_growth_it_is_leader_plus_total_variation() -> None:
    n, sd = 10_000, 1000.0
    by_hand = sd * 2 * np.sqrt(20) + 1 + n * (2 * stats.norm.cdf(0.5 / sd) - 1)
    assert 0.99 * by_hand < bound(float(n), sd, n) <= by_hand * (1 + 1e-12)
    assert by_hand < n


def test_it_is_never_above_opt_and_falls_with_opt() -> None:
    assert bound(10.0, 50.0, 1000) == 10.0
    assert bound(500.0, 20.0, 100_000) < bound(100_000.0, 20.0, 100_000) < 100_000
    assert perturbed_leader_regret(
        7.0, stds=np.empty(0), counts=np.empty(0), variation=0.0, n_features=2, n_components=1, rows_per_release=1
    ) == 7.0  # fmt: skip


def test_the_expected_regret_keeps_within_the_bound_on_a_hard_stream() -> None:
    """Rows alternate so as to fool an unperturbed leader; mean over 20 noises, 4 standard errors of slack."""
    rows = np.zeros((3000, 2))
    rows[np.arange(3000), (np.arange(3000) + 1) % 2] = 1.0
    rows[0] = [0.0, 0.7]
    regrets, bounds = [], []
    for seed in range(20):
        leader = sp.PerturbedLeader(n_components=1, epsilon=0.2, delta=1e-4)
        stream = sp.Stream(leader, seed=seed, regret=sp.RegretLog(every=3000))
        stream.push_many(rows)
        regrets.append(stream.regret.now().regret)
        bounds.append(stream.regret.now().bound)
    assert np.mean(regrets) - 4 * np.std(regrets) / np.sqrt(20) < bounds[0] < 1500
    # Without noise the leader loses on almost every row: the bound must not hold for it.
    exact = np.cumsum(rows**2, axis=0)
    leaders = np.argmax(np.vstack([[0, 0], exact[:-1]]), axis=1)
    assert 1500 - (rows[np.arange(3000), leaders] ** 2).sum() > 1400
