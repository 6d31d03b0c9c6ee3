"""Decisions that depend on rows are found by themselves, and one side of them is not enough."""

from dataclasses import replace
from types import FunctionType

import decisions
import numpy as np
import pytest
from decisions import DECISIONS, ONE_SIDED, Decisions, audit_watched
from planted.edge_bugs import CASES  # those at the edges of decisions too

import streampca as sp
from streampca import _native
from streampca.auditing.suite import NUMBERS
from streampca.rows import bounds
from streampca.rows.admission import Admission

ROWS = np.random.default_rng(0).normal(size=(12, 3))


def decisions_of(case):
    seen = Decisions()
    rows = audit_watched(case, numbers=NUMBERS["quick"], error=1e-3, every=False, seed=1, decisions=seen)
    return seen, rows


def releases(algorithm):
    stream = sp.Stream(algorithm, seed=1, features=list("abc"), regret=None, bounds="private", warmup=4)
    stream.push_many(ROWS[:6])
    return [step.release.to_json() for row in ROWS[6:] if (step := stream.push(row)).release] + [repr(stream.admission)]


@pytest.mark.parametrize("name", ["PrivateFPL", "SlidingWindowPCA-ring", "PrivateOja"])
def test_watched_code_does_the_same(name):
    algorithm = CASES[name].make()
    plain = releases(algorithm)
    with Decisions().watching() as seen, seen.watched("once"):
        assert releases(algorithm) == plain
    assert releases(algorithm) == plain
    assert {DECISIONS[i].split()[0] for i in seen.sides} >= {"rows/admission.py", "privacy/outlet.py", "rows/bounds.py"}


def test_functions_have_their_own_code_again_after_any_exception():
    before = Admission.block.__code__
    with Decisions().watching() as seen:
        with seen.watched("a run"):
            assert Admission.block.__code__ is not before
        with seen.watched("a run", most=1):
            assert Admission.block.__code__ is before
    with pytest.raises(ZeroDivisionError), Decisions().watching() as seen, seen.watched("another"):
        raise ZeroDivisionError
    assert Admission.block.__code__ is before
    assert decisions._WATCHING == [None]


def test_nearly_all_functions_are_watched():
    names = {function.__qualname__ for function, _, _ in decisions._recorded()}
    generated = {"__init__", "__eq__", "__hash__", "__replace__", "__setattr__", "__delattr__", "__repr__"}
    for kind in (Admission, sp.PrivateFPL, sp.PrivateOja, sp.AdaptiveCovariance):
        own = [one for name, one in vars(kind).items() if isinstance(one, FunctionType) and name not in generated]
        assert {one.__qualname__ for one in own if one.__module__ == kind.__module__} <= names


def test_private_bounds_are_found_and_not_found():
    seen, rows = decisions_of(CASES["PrivateFPL-private-bounds"])
    assert "rows/bounds.py _occupied: noisy > -float(ndtri(_FALSE / (BINS * columns))) * std" in seen.both
    assert all(row.holds for row in rows)


@pytest.mark.ci
def test_bounds_that_are_never_found_are_not_seen(monkeypatch):
    monkeypatch.setattr(bounds, "_FALSE", 1e-9)  # at 0.01, noise finds a bin in some of a hundred runs
    case = replace(CASES["PrivateFPL-private-bounds"], d=2, busy=np.zeros((32, 2)))
    seen, rows = decisions_of(case)
    assert [row.verdict for row in rows if row.part == "decisions"] == ["cannot see"]
    assert "rows/bounds.py _occupied: noisy > -float(ndtri" in rows[-1].witness
    assert not any(name.startswith("rows/bounds.py _occupied:") for name in seen.both)


def test_every_reason_is_needed(monkeypatch):
    monkeypatch.setattr(decisions, "ONE_SIDED", {})
    _, rows = decisions_of(CASES["PrivateFPL-centered-replace"])
    assert [row.verdict for row in rows] == ["holds", "holds", "cannot see"]
    assert "rows/admission.py Admission._usable: bad.any()" in rows[-1].witness


def test_what_has_a_reason_is_a_decision():
    decisions._recorded()
    assert [name for name in ONE_SIDED if name not in DECISIONS] == []
    assert all(ONE_SIDED.values())


def test_a_decision_depends_on_rows_if_its_operands_do(monkeypatch):
    monkeypatch.setattr(decisions, "_put_code", lambda **given: None)
    with Decisions().watching() as seen:
        for run, row in enumerate((1.0, 2.0)):
            with seen.watched("equal"):
                for number, value in enumerate((row, run < 5, np.array([row]))):
                    assert decisions._operand(number, value) is value
                decisions._decided(0, outcome=True)
                decisions._decided(2, np.array([True, run == 1]))
        assert seen.varied == {0, 2}
        assert (seen.sides[0], seen.sides[2]) == (2, 3)
        with seen.watched("others"):
            decisions._operand(1, value=False)
        assert 1 not in seen.varied
        # Not every run reaches a decision: the first one did not reach the last.
        for row in (3.0, 4.0):
            with seen.watched("equal"):
                decisions._operand(3, row)
        assert 3 in seen.varied


@pytest.mark.long
def test_both_sides_that_a_case_lacks_occur_in_others(monkeypatch):
    both = set()
    for case in CASES.values():
        both |= decisions_of(case)[0].both
    monkeypatch.setattr(_native, "compiled", None)  # some decisions are those of the numpy kernels
    both |= decisions_of(CASES["PrivateFPL"])[0].both
    assert [name for name, reason in ONE_SIDED.items() if reason == decisions._ELSEWHERE and name not in both] == []
