"""Parameters by their former names: accepted and read."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import pytest

import streampca as sp
from streampca.cli.arguments import make_algorithm
from streampca.errors import BadParameterError
from streampca.linalg.counts import by_present_names, renamed
from streampca.store import config

BUDGET = {"n_components": 1, "epsilon": 1.0, "delta": 1e-6}
GAUSSIAN = sp.GaussianCovariance(**BUDGET)
FORMER = [
    (sp.PrivateFPL, {**BUDGET, "horizon": 9, "noise": "tree"}, "exact", "discrete_noise", True),
    (sp.GaussianCovariance, BUDGET, "exact", "discrete_noise", True),
    (sp.Tumbling, {"mechanism": GAUSSIAN}, "every", "release_every", 5),
]


@pytest.mark.parametrize(("kind", "given", "former", "name", "value"), FORMER)
def test_a_former_name_is_accepted_and_read(kind, given, former, name, value):
    old, new = kind(**given, **{former: value}), kind(**given, **{name: value})
    assert old == new
    assert hash(old) == hash(new)
    assert getattr(old, former) == getattr(new, name) == value
    assert repr(old) == repr(new)
    assert f"{name}={value}" in repr(old)
    assert f" {former}=" not in repr(old)
    assert eval(repr(old), vars(sp)) == old
    assert former not in inspect.signature(kind).parameters
    assert kind(**given, **{former: value, name: value}) == old


@pytest.mark.parametrize(("kind", "given", "former", "name", "value"), FORMER)
def test_both_names_must_agree(kind, given, former, name, value):
    with pytest.raises(BadParameterError, match=f"{former} is the former name of {name}"):
        kind(**given, **{former: value, name: value + 1})


@pytest.mark.parametrize(("kind", "given", "former", "name", "value"), FORMER)
def test_a_store_of_either_time_is_read(kind, given, former, name, value):
    made = kind(**given, **{name: value})
    written = config.dump({"made": made})
    assert config.load(written)["made"] == config.load(written.replace(f'"{name}":', f'"{former}":'))["made"] == made


def test_the_command_line_takes_either_name():
    common = {**BUDGET, "horizon": 9}
    for setting in ("exact=yes", "exact=true", "discrete_noise=yes"):
        made = make_algorithm("fpl", common, extra=["noise=tree", setting])
        assert made.discrete_noise is True
    assert make_algorithm("fpl", common, extra=["noise=tree", "exact=no"]).discrete_noise is False
    with pytest.raises(BadParameterError, match="former name"):
        make_algorithm("fpl", common, extra=["exact=yes", "discrete_noise=no"])


def test_arrays_and_functions_are_left_alone():
    @renamed(before="after")
    @dataclass(frozen=True)
    class Some:
        after: int

    assert Some(before=3).before == 3
    assert by_present_names(Some, {"other": 1}) == {"other": 1}
    assert by_present_names(sp.Stream, {"seed": 1}) == {"seed": 1}
