import numpy as np
import pytest
from scipy import stats

import streampca as sp
from streampca.theorems import batched_leader_regret, perturbed_leader_regret


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


@pytest.mark.ci
def test_the_expected_regret_keeps_within_the_bound_on_a_hard_stream() -> None:
    """Rows alternate so as to fool an unperturbed leader; mean over 20 noises, 4 standard errors of slack."""
    rows = np.zeros((3000, 2))
    rows[np.arange(3000), (np.arange(3000) + 1) % 2] = 1.0
    rows[0] = [0.0, 0.7]
    regrets, bounds = [], []
    for seed in range(20):
        leader = sp.papers.PerturbedLeader(n_components=1, epsilon=0.2, delta=1e-4, release_every=1, center=False)
        stream = sp.Stream(leader, row_norm=1.0, seed=seed, regret=sp.RegretLog(every=3000))
        stream.push_many(rows)
        regrets.append(stream.regret.now().regret)
        bounds.append(stream.regret.now().bound)
    assert np.mean(regrets) - 4 * np.std(regrets) / np.sqrt(20) < bounds[0] < 1500
    # Without noise the leader loses on almost every row: the bound must not hold for it.
    exact = np.cumsum(rows**2, axis=0)
    leaders = np.argmax(np.vstack([[0, 0], exact[:-1]]), axis=1)
    assert 1500 - (rows[np.arange(3000), leaders] ** 2).sum() > 1400


# -- batches -----------------------------------------------------------------------------------------------


def batched(b: float, gap: float, std: float, n: float = 2.0, d: int = 8, k: int = 1, opt: float = 0.0) -> float:
    made = batched_leader_regret(
        ends=np.array([1.0, n - 1.0]), opts=np.array([opt]), last_kept=np.array([gap]), first_left_out=np.zeros(1),
        stds=np.full(2, std), n_features=d, n_components=k, rows_per_release=b,
    )  # fmt: skip
    return made - opt - k * std * np.sqrt(2.0 * d)


def test_a_batch_costs_what_is_stated_by_hand_and_no_less_can_be_stated() -> None:
    # Next to no noise: b^2 / (4 g), attained at cos(2 angle) = -b / (2 g). The rest is b exp(-18).
    b, gap = 10.0, 40.0
    angle = 0.5 * np.arccos(-b / (2.0 * gap))
    v = np.array([np.cos(angle), np.sin(angle)])
    lost = np.linalg.eigvalsh(np.diag([gap, 0.0]) + b * np.outer(v, v))[1] - gap - b * v[0] ** 2
    assert lost == np.float64(0.625) or abs(lost - 0.625) < 1e-12
    assert abs(batched(b, gap, 1e-9) - lost) < 1e-6
    assert abs(batched(b, 8.0, 1e-9) - 100.0 / 32.0) < 1e-6
    assert abs(batched(b, 3.0, 1e-9) - 7.0) < 1e-6
    assert abs(batched(b, 0.0, 1e-9) - b) < 1e-6
    # Without a gap: b times the integral of 2 Phi(t b / (2 s)) - 1 over t in [0, 1].
    t = (np.arange(10_000) + 0.5) / 10_000
    by_hand = 10.0 * (2.0 * stats.norm.cdf(t * 10.0 * 1.001 / (2.0 * 7.0)) - 1.0).mean()
    assert abs(batched(10.0, 0.0, 7.0) - by_hand) < 1e-6
    # With both: gamma - s (2 sqrt(2 d) + sqrt(2) x), at the best of x = 1, ..., 6.
    s = 3.0 * 1.001
    least = min(
        100.0 / (4.0 * (90.0 - s * (8.0 + np.sqrt(2.0) * x))) + 10.0 * np.exp(-0.5 * x * x) for x in range(1, 7)
    )
    assert abs(batched(10.0, 90.0, 3.0) - least) < 1e-9
    assert abs(batched(10.0, 90.0, 3.0, n=101.0, opt=5.0) - 100.0 * least) < 1e-9


def test_the_cost_of_a_batch_holds_for_every_matrix() -> None:
    rng, tightest = np.random.default_rng(0), 0.0
    for _ in range(400):
        d, b = int(rng.integers(2, 7)), 10.0
        k = int(rng.integers(1, d))
        first = np.diag(rng.uniform(0.0, 30.0, d) * (np.arange(d) < k) + 12.0 * (np.arange(d) < k))
        rows = rng.normal(size=(int(rng.integers(1, 4)), d))
        batch = b * rows.T @ rows / np.vdot(rows, rows)
        values = np.sort(np.diag(first))[::-1]
        both = np.linalg.eigvalsh(first + batch)[::-1][:k].sum()
        lost = both - values[:k].sum() - np.trace(batch[:k, :k])
        claimed = batched(b, values[k - 1] - values[k], 1e-9, d=d, k=k)
        assert lost <= claimed + 1e-6
        tightest = max(tightest, lost / claimed)
    assert tightest > 0.7


def test_noise_rises_and_past_batches_count() -> None:
    given = {"n_features": 8, "n_components": 2, "rows_per_release": 1}
    ends, tops = np.array([1.0, 10.0, 30.0, 31.0]), np.array([1.0, 9.0, 25.0])
    # A gap so large that batches cost nothing: OPT of the first batch, c times the sd there and all rises of it.
    found = batched_leader_regret(
        ends=ends, opts=tops, last_kept=np.full(3, 1e12), first_left_out=np.zeros(3),
        stds=np.array([5.0, 7.0, 6.0, 8.0]), **given,
    )  # fmt: skip
    assert abs(found - (1.0 + 8.0 * (5.0 + 2.0 + 2.0))) < 1e-3 + 30.0 * np.exp(-18.0)
    # No gap before release 10: it is best to give those rows up.
    found = batched_leader_regret(
        ends=ends, opts=tops, last_kept=np.array([0.0, 1e12, 1e12]), first_left_out=np.zeros(3),
        stds=np.full(4, 1e-3), **given,
    )  # fmt: skip
    assert abs(found - (9.0 + 8.0e-3)) < 1e-3


def regrets(rows: np.ndarray, b: int, seeds: int, **options: float) -> tuple[np.ndarray, np.ndarray]:
    made = []
    for seed in range(seeds):
        leader = sp.PrivateFPL(n_components=1, epsilon=1.0, center=False, horizon=len(rows), release_every=b)
        stream = sp.Stream(leader, row_norm=1.0, seed=seed, regret=sp.RegretLog(every=len(rows)))
        stream.push_many(rows)
        now = stream.regret.now()
        made.append((now.regret, now.bound, now.opt))
    regret, bounds, opts = np.array(made).T
    assert (bounds <= opts).all()
    return regret, bounds


def test_the_regret_of_batches_keeps_within_a_bound_that_says_something() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(10_000, 5)) * np.sqrt([0.6, 0.1, 0.1, 0.1, 0.1])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for b in (10, 100):
        regret, bounds = regrets(rows, b, 4)
        assert np.ptp(bounds) == 0.0  # it does not depend on the noise drawn
        assert regret.mean() + 4.0 * regret.std() / np.sqrt(4) < bounds[0] < 0.3 * 5_000  # OPT is about 5 500
    # An adversary: batches of 500 rows alternate between two axes, and the leader is always late. OPT is 10 000.
    axes = np.eye(5)[(np.arange(20_000) // 500) % 2]
    axes[:250] = 0.0
    regret, bounds = regrets(axes, 500, 3)
    assert 0.9 * bounds[0] < regret.mean() < bounds[0] <= 10_000.0
