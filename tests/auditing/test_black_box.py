"""The black-box audit: its bounds are right as often as they say, and it finds what there is to find."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from dense_forms import gram_release

import streampca as sp
from streampca.auditing import black_box
from streampca.auditing.black_box import lower_bound, matched_filter, rates
from streampca.mechanisms.base import Mechanism
from streampca.privacy.gaussian import delta_at


def normal_pair(mu, claim, **options):
    promised = sp.Guarantee(1.0, 1e-3, "zero-out", "one number", "", "", mu=claim)

    def run(changed, seed):
        return {"x": float(np.random.default_rng(seed).normal(mu * changed))}

    return black_box.attack("normal", promised, run, **options)


@pytest.mark.ci
def test_a_true_claim_is_refuted_no_more_often_than_stated():
    # Claim met exactly, error 0.1: more than 30 of 150 refutations have probability 1e-4.
    refuted = sum(not normal_pair(2.0, 2.0, runs=400, error=0.1, seed=i).holds for i in range(150))
    assert refuted <= 30


def test_a_false_claim_is_refuted():
    found = [normal_pair(2.5, 2.0, runs=3000, error=0.01, seed=i).verdict for i in range(10)]
    assert found == ["refuted"] * 10


def test_rates_are_clopper_pearson():
    # 0 hits in n: the bound solves (1 - p)**n = error.
    assert rates(0, 50, 0.01) == (0.0, pytest.approx(1 - 0.01 ** (1 / 50)))
    assert rates(50, 50, 0.01) == (pytest.approx(0.01 ** (1 / 50)), 1.0)


def test_bounds_approach_the_truth_and_allow_for_slack():
    n = 10**9
    hits = (round(0.1586553 * n), round(0.8413447 * n))
    assert lower_bound(hits, n, 1e-3, "mu") == pytest.approx(2.0, abs=1e-3)
    assert lower_bound(hits, n, 1e-3, "mu", slack=0.1) < 1.7
    assert lower_bound(hits, n, 1e-3, "epsilon", delta_at(2.0, 1.0)) <= 1.0 + 1e-3
    assert lower_bound((10, 10), 20, 1e-3, "mu") == lower_bound((10, 10), 20, 1e-3, "epsilon") == 0.0


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
    promised = sp.Guarantee.none("test")
    release = gram_release(
        np.diag([3.0, 1.0]), t=1, n_components=1, guarantee=promised,
        details={"gap": 2.0, "how": "gram", "nested": {"list": [1, True]}, "nothing": None},
    )  # fmt: skip
    seen = black_box.transcript([release])
    assert seen == {
        "0/00": 3.0, "0/01": 0.0, "0/11": 1.0, "0/gap": 2.0, "0/how=gram": 1.0,
        "0/nested/list/0": 1.0, "0/nested/list/1": 1.0,
    }  # fmt: skip


@dataclass(frozen=True)
class Foreign(Mechanism):
    noise: float
    n_components: ClassVar[int] = 1

    def __post_init__(self):
        pass

    def constants(self, n_features):
        return ()

    @property
    def guarantee(self):
        return sp.Guarantee(1.0, 1e-3, "zero-out", "one release", "", "", mu=2.0)

    def released(self, rows, outlet, terms, t):
        noise = np.random.default_rng().normal(size=(rows.shape[1],) * 2) * self.noise
        return gram_release(rows.T @ rows + noise + noise.T, t=t, n_components=1, terms=terms)


@pytest.mark.ci
def test_a_mechanism_from_elsewhere_is_audited_from_outside():
    honest = sp.audit(Foreign(0.25), mode="quick", seed=0, rows=np.zeros((2, 2)))
    assert honest.holds
    assert honest.rows[0].part == "releases"
    assert sp.audit(Foreign(0.05), mode="quick", seed=0, rows=np.zeros((2, 2))).refuted


@pytest.mark.ci
def test_what_claims_nothing_holds_and_shows_how_bad_it_is():
    leader = sp.papers.PerturbedLeader(n_components=1, epsilon=1.0, delta=1e-2, release_every=1, center=False)
    found = sp.audit(leader, mode="quick", seed=0, rows=8, canaries=[np.ones(1)]).rows[0]
    assert found.holds
    assert found.claim == np.inf
    # Fresh noise at each of 8 releases: mu is sqrt(8) times that of one.
    assert float(found.witness.split()[2]) > 2 * sp.Budget(1.0, 1e-2).mu
