"""The auditor itself: its bounds are right as often as they say, and it finds what there is to find."""

import numpy as np
import pytest

import streampca as sp
from streampca.auditing import audit, of_samples
from streampca.auditing.confidence import epsilon_bound, highest_rate, lowest_rate, mu_bound
from streampca.auditing.experiment import transcript
from streampca.auditing.statistic import matched_filter
from streampca.errors import BadParameter
from streampca.mechanisms.gaussian import GaussianCovariance
from streampca.privacy import outlet
from streampca.privacy.gaussian import delta_at
from streampca.privacy.guarantee import Guarantee
from streampca.release import Release


def normal_pair(mu, claim):
    def draw(changed, count, seed):
        return np.random.default_rng(seed).normal(mu * changed, 1.0, (count, 1))

    promised = Guarantee(1.0, 1e-3, "zero-out", "one number", "", "", mu=claim)
    return of_samples("normal", promised, draw)


def test_a_true_claim_is_refuted_no_more_often_than_stated():
    # Claim met exactly, confidence 0.9: more than 30 of 150 refutations have probability 1e-4.
    refuted = sum(not audit(normal_pair(2.0, 2.0), runs=400, confidence=0.9, seed=i).holds for i in range(150))
    assert refuted <= 30


def test_a_false_claim_is_refuted():
    refuted = sum(not audit(normal_pair(2.5, 2.0), runs=3000, confidence=0.99, seed=i).holds for i in range(10))
    assert refuted == 10


def test_rates_are_clopper_pearson():
    # 0 hits in n: the bound solves (1 - p)**n = error.
    assert highest_rate(0, 50, 0.01) == pytest.approx(1 - 0.01 ** (1 / 50))
    assert lowest_rate(50, 50, 0.01) == pytest.approx(0.01 ** (1 / 50))
    assert (lowest_rate(0, 50, 0.01), highest_rate(50, 50, 0.01)) == (0.0, 1.0)


def test_bounds_approach_the_truth_and_allow_for_slack():
    n = 10**9
    hits = (round(0.1586553 * n), round(0.8413447 * n))
    assert mu_bound(hits, n, 1e-3) == pytest.approx(2.0, abs=1e-3)
    assert mu_bound(hits, n, 1e-3, slack=0.1) < 1.7
    delta = delta_at(2.0, 1.0)
    assert epsilon_bound(hits, n, 1e-3, delta) <= 1.0 + 1e-3
    assert mu_bound((10, 10), 20, 1e-3) == epsilon_bound((10, 10), 20, 1e-3) == 0.0


def test_the_matched_filter_is_the_best_linear_score():
    rng = np.random.default_rng(0)
    mix, shift = rng.normal(size=(5, 5)), rng.normal(size=5)
    without = rng.normal(size=(20_000, 5)) @ mix.T
    having = rng.normal(size=(20_000, 5)) @ mix.T + shift
    score = matched_filter(without, having)
    a, b = score(without), score(having)
    best = np.sqrt(shift @ np.linalg.solve(mix @ mix.T, shift))
    assert (b.mean() - a.mean()) / np.sqrt(0.5 * (a.var() + b.var())) == pytest.approx(best, rel=0.03)


def test_a_number_without_noise_is_found():
    rng = np.random.default_rng(0)
    without, having = rng.normal(size=(50, 3)), rng.normal(size=(50, 3))
    without[:, 1], having[:, 1] = 0.25, 0.250001
    score = matched_filter(without, having)
    assert score(having).min() > score(without).max()


def test_transcripts_hold_everything_that_leaves():
    promised = Guarantee.none("test")
    release = Release.of_gram(
        np.diag([3.0, 1.0]), t=1, n_components=1, guarantee=promised,
        details={"gap": 2.0, "how": "gram", "nested": {"list": [1, True]}, "nothing": None},
    )  # fmt: skip
    seen = transcript([release], np.eye(2))
    assert seen == {
        "0/00": 3.0, "0/01": 0.0, "0/11": 1.0, "0/gap": 2.0, "0/how=gram": 1.0,
        "0/nested/list/0": 1.0, "0/nested/list/1": 1.0,
    }  # fmt: skip


def test_algorithms_and_mechanisms_are_taken_as_they_are():
    found = audit(sp.PrivateFPL(n_components=2, epsilon=8.0, delta=1e-2, horizon=10_000), runs=120, seed=0)
    assert found.holds
    assert found.bound > 0.5  # it is audited at a horizon of 8 rows, where 120 runs see something
    assert "not refuted" in str(found)
    found = audit(GaussianCovariance(n_components=1, epsilon=8.0, delta=1e-2), runs=400, seed=0, rows=3, position=-1)
    assert 0.6 < found.tightness <= 1.0


def test_what_claims_nothing_holds_and_shows_how_bad_it_is():
    leader = sp.PerturbedLeader(n_components=1, n_features=1, epsilon=1.0, delta=1e-2)
    found = audit(leader, runs=800, seed=0, rows=32)
    assert found.claim == np.inf
    # Fresh noise at each of 32 releases: mu is sqrt(32) times that of one.
    assert found.bound > 4 * sp.Budget(1.0, 1e-2).mu


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"runs": 10}, "runs=10 shows nothing"),
        ({"confidence": 1.0}, "confidence=1.0"),
        ({"rows": 4, "position": 4}, "position=4 is not one of the 4 rows"),
        ({"rows": np.zeros(3)}, r"rows of shape \(3,\)"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(BadParameter, match=message):
        audit(sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6), **options)


def test_only_what_can_be_audited():
    with pytest.raises(BadParameter, match="not an algorithm"):
        audit("PrivateFPL")


def test_same_seed_same_audit():
    mechanism = GaussianCovariance(n_components=1, epsilon=8.0, delta=1e-2)
    assert audit(mechanism, runs=80, seed=3) == audit(mechanism, runs=80, seed=3)
    tree = sp.PrivateFPL(n_components=1, n_features=1, epsilon=8.0, delta=1e-2, horizon=3, noise="tree")
    first, second, other = (audit(tree, runs=80, seed=seed) for seed in (3, 3, 4))
    assert first == second != other


def test_without_a_seed_noise_is_fresh_from_the_system(monkeypatch):
    fresh, hide = set(), outlet.Outlet.hide

    def seen(self, *given):
        draws = hide(self, *given)
        fresh.add(self.fresh[-1])
        return draws

    monkeypatch.setattr(outlet.Outlet, "hide", seen)
    fpl = sp.PrivateFPL(n_components=1, n_features=1, epsilon=8.0, delta=1e-2, horizon=2)
    taken = []
    for seed in (1, 1, None, None):
        fresh.clear()
        assert audit(fpl, runs=40, seed=seed).holds
        assert len(fresh) == 2 * 40 * 2  # for both kinds of runs, each of two releases
        taken.append(frozenset(fresh))
    assert taken[0] == taken[1]
    assert len(taken[1] | taken[2] | taken[3]) == 3 * 160
