"""Cases by product: nothing that is public goes without an audit and a prediction."""

import dataclasses
from functools import cache
from itertools import product

import pytest
from decisions import audit_watched

import streampca as sp
from streampca.auditing.cases import generated, legal, public, switches
from streampca.auditing.needs import VALUES_OF, needs
from streampca.auditing.suite import NUMBERS, audit_named, named
from streampca.mechanisms.base import Mechanism

#: Parameters without a switch, and why their value does not decide what is private.
NOT_VARIED = {
    "learning_rate": "post-processing",
    "eta": "decides on released sums only",
    "overhang": "decides on released sums only",
    "failure_rate": "of an error bound",
    "checkpoint_every": "follows release_every",
    "block_rows": "set where blocks vote",
    "max_components": "set where blocks vote",
}


def private():
    return [kind for kind in public() if legal(kind)]


def test_whatever_is_public_and_private_is_audited():
    audited = {case.name.partition("-")[0] for case in generated()}
    assert audited == {kind.__name__ for kind in private()}
    assert {kind.__name__ for kind in public()} - audited == {"Oja", "PerturbedLeader"}  # which claim nothing
    inside = {type(subject.made.mechanism) for subject in legal(sp.Tumbling)}
    assert inside == {kind for kind in private() if issubclass(kind, Mechanism)}


@pytest.mark.parametrize("kind", private(), ids=lambda kind: kind.__name__)
def test_each_parameter_is_varied_or_set_or_excused(kind):
    # A new parameter fails here until somebody says what an audit does with it.
    names = {one.name for one in dataclasses.fields(kind) if one.init}
    given = {name: values[0] for name, values in switches(kind).items()}
    if "mechanism" in given:
        given["mechanism"] = given["mechanism"].made
    numbers, _ = needs(kind, given)
    assert names <= given.keys() | numbers.keys() | NOT_VARIED.keys()


@pytest.mark.parametrize("kind", private(), ids=lambda kind: kind.__name__)
def test_a_quick_audit_shows_each_legal_value_of_each_switch(kind):
    quick = [case.make() for case in generated() if case.quick and case.name.partition("-")[0] == kind.__name__]
    for name in switches(kind):
        values = {getattr(subject.made, name) for subject in legal(kind)} if name != "mechanism" else set()
        assert name != "n_components" or values == set(switches(kind)[name])
        shown = {getattr(subject, name) for subject in quick}
        if name in ("horizon", "release_every"):  # numbers of rows
            shown -= {"1d"}  # of a calendar, which is no switch
            values, shown = ({value is None or value > 1 for value in of} for of in (values, shown))
        assert values <= shown, name


def test_combinations_of_the_page_are_those_that_are_audited():
    # The first table of docs/explanation/combinations.md lists 144, each with releases every row and every fourth.
    assert len(legal(sp.PrivateFPL)) == 2 * 144


def test_streams_are_resumed_and_have_private_bounds_and_people():
    names = [case.name.split("-") for case in generated()]
    for kind in private():
        if issubclass(kind, sp.Algorithm):
            mine = [frozenset(name) for name in names if name[0] == kind.__name__]
            assert {"bounds", "resumed"} <= frozenset().union(*mine)
            assert len(set(mine)) == len(mine)
    assert any({"person", "replace", "rewards"} <= set(name) for name in names)


@pytest.mark.ci
def test_a_new_algorithm_is_audited_because_it_is_public(monkeypatch, independent_noise):
    kind, name = independent_noise, independent_noise.__name__
    monkeypatch.setattr(sp, "__all__", [*sp.__all__, name])
    monkeypatch.setattr(sp, name, kind, raising=False)
    monkeypatch.setitem(VALUES_OF, name, {"horizon": (12,)})
    generated.cache_clear()
    try:
        words = [("", "-every_4"), ("", "-bounds"), ("", "-resumed")]
        assert {case.name for case in named([name])} == {name + "".join(some) for some in product(*words)}
        assert audit_named([f"{name}-every_4-resumed"], mode="quick", seed=1).holds
        sigma = kind.sigma.fget
        monkeypatch.setattr(kind, "sigma", property(lambda self: 0.5 * sigma(self)))
        assert audit_named([f"{name}-every_4-resumed"], mode="quick", seed=1).refuted
    finally:
        generated.cache_clear()
        monkeypatch.undo()
        generated()


@cache
def predicted():
    question = {"n_rows": 20_000, "n_features": 6, "n_components": 2, "epsilon": 8.0, "delta": 1e-6}
    further = ({}, {"window": 2000}, {"spectrum": [0.6, 0.4]}, {"n_features": 20, "epsilon": 1.0, "n_rows": 300})
    further += ({"n_features": 3400, "n_components": 1, "release_every": 20_000},)
    found = {prediction.name for more in further for prediction in sp.plan(**question | more).predictions}
    return {part for name in found for part in name.rstrip("]").split("[")}


@pytest.mark.parametrize("kind", private(), ids=lambda kind: kind.__name__)
@pytest.mark.ci
def test_whatever_is_private_has_a_prediction(kind):
    assert (kind.__name__ in predicted()) != (kind.__name__ in sp.papers.__all__)


@pytest.mark.long
@pytest.mark.parametrize("case", generated(), ids=lambda case: case.name)
def test_every_combination_holds(case):
    rows = audit_watched(case, numbers=NUMBERS["quick"], error=1e-3 / len(generated()), every=False, seed=1)
    assert all(row.holds for row in rows), "\n".join(map(str, rows))
