"""The auditor itself: it is right as often as it says, and it sees what it says it sees."""

from dataclasses import replace

import numpy as np
import pytest
from planted.lifecycles import CASES
from scipy import stats

import streampca as sp
from streampca.auditing import instrument
from streampca.auditing.leak import digits_differ, leak, low_digits
from streampca.auditing.runs import pairs
from streampca.auditing.statistics import Spectrum, p_values
from streampca.auditing.suite import named
from streampca.errors import BadParameterError
from streampca.mechanisms.gaussian import GaussianCovariance
from streampca.privacy.outlet import Counts, LatticeSum, NoiseSource
from streampca.privacy.randomness import Randomness, Tape


def test_p_values_are_uniform_or_larger():
    # 300 honest data sets and 9 tests: the least p-value is below 1e-3 in each test at most 5 times (rate 2e-6 a test).
    rng = np.random.default_rng(0)
    found = [
        p_values([rng.normal(size=(4, 6)) for _ in range(40)], [i % 2 == 0 for i in range(40)]) for _ in range(300)
    ]
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
    ],
)
def test_each_statistic_refutes_what_it_is_for(name, change):
    rng = np.random.default_rng(1)
    runs = [change(rng.normal(size=(4, 6)), i) for i in range(200)]
    assert p_values(runs, [i % 2 == 0 for i in range(200)])[name] < 1e-8


def test_noise_that_comes_again_is_found():
    rng = np.random.default_rng(1)
    runs = [rng.normal(size=(1, 5)) for _ in range(60)]
    honest = p_values(runs, [False] * 60)
    assert min(honest.values()) > 1e-4
    runs[50] = runs[3]
    assert p_values(runs, [False] * 60)["repeated in runs"] < 1e-8


def test_bounds_on_mu_are_wrong_as_often_as_they_say():
    # Error 0.1: more than 50 wrong ones of 300 have probability 1e-4.
    rng, wrong = np.random.default_rng(2), 0
    moved = np.zeros((3, 2))
    moved[1] = 1.0, 2.0
    for _ in range(300):
        runs = [rng.normal(size=(3, 300)) for _ in range(4)]
        wrong += Spectrum(runs).mu_squared(moved, 0.1) > 5.0
    assert wrong <= 50


def test_chance_to_miss_a_mutant():
    """Half the noise, in the fewest numbers that an audit collects: at most 1e-4, by the law of the statistic."""
    n, error = 400, 1e-3 / 100 / 4 / 9 / 6 / 20  # split over parts, groups, tests and cells
    limit = stats.chi2.ppf(error / 2.0, n)
    assert stats.chi2.sf(limit, n, scale=0.25) < 1e-4


def test_a_forced_tape_hands_out_the_values_of_another_run():
    rows = np.zeros((6, 3))
    other = rows.copy()
    other[2, 0] = 1.0
    algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, horizon=6)

    def run(given, tape):
        with tape.recording():
            return [r.to_json() for r in sp.Stream(algorithm, regret=None).push_many(given).releases]

    first = Tape()
    second = Tape(first)
    assert run(rows, first) == run(other, second)
    apart = [b.exact.packed()[0] - a.exact.packed()[0] for a, b in zip(first.notes, second.notes, strict=True)]
    assert apart == [0, 0, 1, 1, 1, 1]
    assert run(rows, Tape()) != run(rows, Tape())
    assert run(rows, Tape(seed=bytes(32))) == run(rows, Tape(seed=bytes(32)))
    assert Randomness().tape is None


def test_counts_are_forced_by_name():
    mine, other = Counts(np.array([3, 4]), names=["a", "c"]), Counts(np.array([1, 2]), names=["b", "a"])
    assert mine.given(other, np.array([10.0, 20.0])).tolist() == [20.0, -np.inf]


def test_one_vector_is_not_recorded_without_a_tape():
    source = NoiseSource(Randomness(), "test")
    assert source.tape is None
    source.outlet(source.first).gaussian("x", np.zeros(2), 1.0, 2.0**-30)


@pytest.mark.parametrize(
    "name", ["PrivateFPL", "PrivateFPL-rewards", "PrivateFPL-discrete", "PrivateOja", "SlidingWindowPCA-ring"]
)
def test_releases_do_not_tell_by_their_low_digits(name):
    case = CASES[name]
    pair = next(p for p in pairs(case, case.make(), 1, every=False) if "random" in p.text or "basis" in p.text)
    assert leak(pair) == ""
    for kind, notes in pair.first.notes().items():
        others = pair.second.notes()[kind]
        told = [digits_differ(a, b) for a, b in zip(notes, others, strict=True)]
        assert not any(told)
        assert any(digits_differ(a, b, low_digits) for a, b in zip(notes, others, strict=True))


def test_lattice_sums_of_another_lattice():
    note = LatticeSum(np.array([0.5]), 2.0**-50)
    assert note.noisy(np.zeros(1), 1.0)[0] == 0.5


def test_what_holds_and_how_much_is_seen():
    report = sp.audit(CASES["PrivateFPL-replace"], mode="quick", seed=1)
    assert report.holds
    assert [row.part for row in report.rows] == ["leak", "gram"]
    assert report.rows[1].seen > 0.9
    assert report.rows[1].accounted == pytest.approx(1.0, abs=1e-4)
    assert '"verdict": "holds"' in report.to_json()
    assert "holds, seen" in str(report)


def test_what_no_neighbor_moves_is_not_seen():
    mechanism = GaussianCovariance(n_components=1, epsilon=8.0, delta=1e-2, n_features=3)
    report = sp.audit(mechanism, mode="quick", seed=1, canaries=[np.zeros(3)])
    assert {row.verdict for row in report.rows} == {"cannot see"}
    assert report.rows[1].missed == ("outlet bypassed",)
    assert not report.holds
    assert not report.refuted


def test_subjects_of_the_caller():
    fpl = sp.PrivateFPL(n_components=2, epsilon=8.0, delta=1e-2, horizon=10_000)
    assert sp.audit(fpl, mode="quick", seed=0).holds  # audited at a horizon of 12 rows
    report = sp.audit(
        GaussianCovariance(n_components=1, epsilon=8.0, delta=1e-2), mode="quick", seed=0, rows=np.zeros((3, 6))
    )
    assert report.holds
    # Under another adjacency than it was calibrated for.
    assert sp.audit(fpl, mode="quick", seed=0, adjacency="replace").refuted
    assert sp.audit(fpl, mode="quick", seed=1, canaries=[(np.eye(4)[0], np.eye(4)[1])]).refuted


def test_same_seed_same_report_and_fresh_keys_without_one():
    def shown(seed):
        return sp.audit(CASES["GaussianCovariance-replace"], mode="quick", seed=seed).rows[1].seen

    assert shown(3) == shown(3) != shown(4)
    assert shown(None) != shown(None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "slow"}, "mode='slow'"),
        ({"false_alarm": 1.0}, "false_alarm=1.0"),
        ({"rows": np.zeros(3)}, r"rows of shape \(3,\)"),
    ],
)
def test_bad_parameters(options, message):
    with pytest.raises(BadParameterError, match=message):
        sp.audit(sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6), **options)


def test_only_what_can_be_audited():
    with pytest.raises(BadParameterError, match="expected an algorithm"):
        sp.audit(3)
    with pytest.raises(BadParameterError, match="no audit named 'PrivateFlp'"):
        sp.audit("PrivateFlp")


def test_names_choose_cases():
    assert "PrivateFPL" in [case.name for case in named(["PrivateFPL"])]
    assert len(named([])) > len(named(["PrivateFPL"]))


def test_noise_that_only_neighbors_drew_is_not_seen(monkeypatch):
    run, silent = instrument.run, replace(CASES["GaussianCovariance"], feed=lambda *given: [])

    def only_pairs(case, *given, look=True, **more):
        return run(case if look else silent, *given, look=look, **more)

    monkeypatch.setattr(instrument, "run", only_pairs)
    rows = instrument.audit_case(CASES["GaussianCovariance"], numbers=100, error=1e-3, every=False, seed=1)
    (gram,) = (row for row in rows if row.part == "gram")
    assert gram.verdict == "cannot see"
    assert "no run with fresh keys" in gram.witness
