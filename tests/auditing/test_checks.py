"""The auditor itself: its error rates are those that it states, and it sees the mutants that it claims to see."""

from dataclasses import replace

import numpy as np
import pytest
from planted.bugs import CASES, Bug, linked
from scipy import stats

import streampca as sp
from streampca import _native
from streampca.auditing import instrument
from streampca.auditing.leak import digits_differ, leak, low_digits
from streampca.auditing.runs import pairs
from streampca.auditing.statistics import Spectrum, chance_to_miss, p_values
from streampca.errors import UsageError
from streampca.privacy.randomness import Randomness, Tape
from streampca.stream import tenants

FPL = sp.PrivateFPL(n_components=2, epsilon=8.0, delta=1e-2, horizon=10_000, release_every=1, center=False)


def test_p_values_are_uniform_or_larger():
    # 300 honest data sets and 9 tests: the least p-value is below 1e-3 in each test at most 5 times (rate 2e-6 a test).
    rng, busy = np.random.default_rng(0), [i % 2 == 0 for i in range(40)]
    found = [p_values([rng.normal(size=(4, 6)) for _ in range(40)], busy) for _ in range(300)]
    for name in found[0]:
        assert sum(one[name] < 1e-3 for one in found) <= 5, name


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("variance", lambda z, i: 0.8 * z),
        ("mean", lambda z, i: z + 0.2),
        ("shape", lambda z, i: np.sign(z) * 1.0),
        ("no noise", lambda z, i: np.where(np.arange(z.size).reshape(z.shape) % 20 == i % 20, 0.0, z)),
        ("outliers", lambda z, i: np.where(z == z.max(), 9.0, z)),
        ("equal in time", lambda z, i: z[[0, 0, 2, 3]]),
        ("equal over coordinates", lambda z, i: z[:, [0, 0, 2, 3, 4, 5]]),
        ("variance", lambda z, i: z * (1.3 if i % 2 else 0.65)),
        ("repeated in runs", lambda z, i: np.random.default_rng(i % 150).normal(size=(4, 6))),
    ],
)
def test_each_statistic_refutes_what_it_is_for(name, change):
    rng = np.random.default_rng(1)
    runs = [change(rng.normal(size=(4, 6)), i) for i in range(200)]
    assert p_values(runs, [i % 2 == 0 for i in range(200)])[name] < 1e-8


def test_bounds_on_mu_are_wrong_as_often_as_they_say():
    # Error 0.1: more than 50 wrong ones of 300 have probability 1e-4.
    rng, moved = np.random.default_rng(2), np.array([[0.0, 0.0], [1.0, 2.0], [0.0, 0.0]])
    bounds = [Spectrum([rng.normal(size=(3, 300)) for _ in range(4)]).mu_squared(moved, 0.1) for _ in range(300)]
    assert sum(bound > 5.0 for bound in bounds) <= 50


def test_chance_to_miss_a_mutant():
    # The auditor derives it for each part in each run. Here with the fewest numbers that it collects.
    level = 1e-3 / 150 / 4
    normals = [np.zeros((1, 20))] * 24
    assert max(chance_to_miss(normals, level).values()) < instrument.MISS
    assert chance_to_miss([np.zeros((1, 1))] * 24, level)["half the noise"] > instrument.MISS
    assert chance_to_miss([np.zeros((2, 1))] * 24, level)["noise repeated"] > instrument.MISS
    limit = stats.chi2.ppf(level / 9 / 12, 480)
    assert chance_to_miss(normals, level)["half the noise"] == pytest.approx(stats.chi2.sf(4 * limit, 480))


def test_half_the_noise_is_missed_as_often_as_derived():
    # 30 numbers are few enough that it happens: 13 % of 2000 times, sd 0.8 %.
    z = 0.5 * np.random.default_rng(0).normal(size=(2000, 30))
    derived = chance_to_miss([np.zeros((1, 30))], 1e-6)["half the noise"]
    assert np.mean((z**2).sum(axis=1) > stats.chi2.ppf(0.5e-6 / 9 / 6, 30)) == pytest.approx(derived, abs=0.03)
    assert 0.01 < derived < 0.99


def test_a_forced_tape_hands_out_the_values_of_another_run():
    rows = np.zeros((6, 3))
    other = rows.copy()
    other[2, 0] = 1.0
    algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, release_every=1, horizon=6, center=False)

    def run(rows, tape):
        with tape.recording():
            return [r.to_json() for r in sp.Stream(algorithm, row_norm=1.0, regret=None).push_many(rows).releases]

    first = Tape()
    second = Tape(first)
    assert run(rows, first) == run(other, second)
    apart = [b.exact.packed()[0] - a.exact.packed()[0] for a, b in zip(first.notes, second.notes, strict=True)]
    assert apart == [0, 0, 1, 1, 1, 1]
    assert run(rows, Tape()) != run(rows, Tape())
    assert run(rows, Tape(seed=bytes(32))) == run(rows, Tape(seed=bytes(32)))
    assert Randomness().tape is None


@pytest.mark.parametrize(
    "name", ["PrivateFPL", "PrivateFPL-rewards", "PrivateFPL-discrete", "PrivateOja", "SlidingWindowPCA-ring"]
)
def test_low_digits_do_not_depend_on_exact_values_but_those_of_the_mutant_do(name):
    case = CASES[name]
    pair = next(p for p in pairs(case, case.make(), 1, every=False) if "random" in p.text or "basis" in p.text)
    assert leak(pair) == ""
    for kind, notes in pair.first.notes().items():
        twins = list(zip(notes, pair.second.notes()[kind], strict=True))
        assert not any(digits_differ(a, b) for a, b in twins)
        assert any(digits_differ(a, b, low_digits) for a, b in twins)


@pytest.mark.ci
def test_what_holds_and_how_much_is_seen():
    report = sp.audit(CASES["PrivateFPL-replace"], mode="quick", seed=1)
    assert report.holds
    assert [row.part for row in report.rows] == ["leak", "gram"]
    assert report.rows[1].seen > 0.9
    assert report.rows[1].accounted == pytest.approx(1.0, abs=1e-4)
    assert '"verdict": "holds"' in report.to_json()
    assert "holds, seen" in str(report)


def test_what_no_neighbor_moves_is_not_seen():
    mechanism = sp.GaussianCovariance(n_components=1, epsilon=8.0, delta=1e-2, center=False)
    report = sp.audit(mechanism, mode="quick", seed=1, canaries=[np.zeros(3)])
    assert {row.verdict for row in report.rows} == {"cannot see"}
    assert report.rows[1].missed == ("outlet bypassed",)
    assert not report.holds
    assert not report.refuted


@pytest.mark.ci
def test_subjects_of_the_caller():
    assert sp.audit(FPL, mode="quick", seed=0).holds  # audited at a horizon of 12 rows
    mechanism = sp.GaussianCovariance(n_components=1, epsilon=8.0, delta=1e-2, center=False)
    assert sp.audit(mechanism, mode="quick", seed=0, rows=np.zeros((3, 6))).holds
    # Neighbors of another adjacency than it was calibrated for.
    assert sp.audit(FPL, mode="quick", seed=1, canaries=[(np.eye(4)[0], np.eye(4)[1])]).refuted


def test_same_seed_same_report_and_fresh_keys_without_one():
    def shown(seed):
        return sp.audit(CASES["GaussianCovariance-replace"], mode="quick", seed=seed).rows[1].seen

    assert shown(3) == shown(3) != shown(4)
    assert shown(None) != shown(None)


@pytest.mark.parametrize(
    ("subject", "options", "message"),
    [
        (FPL, {"mode": "slow"}, "mode='slow': expected"),
        (FPL, {"false_alarm": 1.0}, "false_alarm=1.0: expected"),
        (FPL, {"rows": np.zeros(3)}, r"rows=<ndarray of shape \(3,\)>: expected"),
        (3, {}, "subject=3: expected an algorithm"),
        ("PrivateFlp", {}, "no audit named 'PrivateFlp'"),
        ("WishartCovariance-tree", {}, "no audit named 'WishartCovariance-tree'"),
    ],
)
def test_bad_parameters(subject, options, message):
    with pytest.raises(UsageError, match=message):
        sp.audit(subject, **options)


def test_noise_that_only_neighbors_drew_is_not_seen(monkeypatch):
    run, silent = instrument.run, replace(CASES["GaussianCovariance"], feed=lambda *given: [])
    monkeypatch.setattr(instrument, "run", lambda case, *given, **more: run(silent, *given, **more))
    rows = instrument.audit_case(CASES["GaussianCovariance"], numbers=100, error=1e-3, every=False, seed=1)
    (gram,) = (row for row in rows if row.part == "gram")
    assert gram.verdict == "cannot see"
    assert "no run with fresh keys" in gram.witness


def test_tenants_differ_by_their_first_link():
    # Their vectors have other names even if neither fresh bytes nor rows were hashed.
    with Bug("", "life-fleet", (linked,)).planted():
        rows = instrument.audit_case(CASES["life-fleet"], numbers=200, error=1e-3, every=False, seed=1)
    assert all(row.holds for row in rows), "\n".join(map(str, rows))


@pytest.mark.ci
@pytest.mark.skipif(_native.compiled is None, reason="the kernels are not compiled")
@pytest.mark.parametrize("solver", ["exact", "tracking"])
def test_the_audit_of_a_fleet_sees_the_compiled_kernels(monkeypatch, solver):
    class Quieter:
        """A plan whose noise has half of its scale."""

        def __init__(self, plan, scale):
            self.plan, self.scale = plan, scale

        def __getattr__(self, name):
            return getattr(self.plan, name)

        def publish(self, name, first, more, scale, *others):
            calls.append(scale)
            self.plan.publish(name, first, more, self.scale * scale, *others)

    honest = CASES["life-fleet"]
    case, plan_of = replace(honest, make=lambda: replace(honest.make(), solver=solver)), tenants.plan_of
    for scale, holds in ((1.0, True), (0.5, False)):
        calls = []
        monkeypatch.setattr(tenants, "plan_of", lambda *given, scale=scale: Quieter(plan_of(*given), scale))
        rows = instrument.audit_case(case, numbers=200, error=1e-3, every=False, seed=1)
        assert calls
        assert all(row.holds for row in rows) is holds, "\n".join(map(str, rows))
