import math

import numpy as np
import pytest
from run import app as main
from scenario import Against, Expect, check, load, run_scenario

import streampca as sp
from streampca.errors import BadParameterError

SPIKED = """
title = "t"
shows = "s"
rows = 600
ci_rows = 300
[source]
name = "synthetic.spiked"
params = { n_rows = "$rows", n_features = 6, n_components = 2 }
[runs.a]
processor = "PrivateFPL"
params = { n_components = 2, epsilon = 5.0, delta = 1e-3, horizon = "$rows" }
[[expect]]
run = "a"
measure = "captured_variance"
at_least = LIMIT
why = "because"
"""

ENTRY = """
title = "t"
shows = "s"
rows = 10
ci_rows = 10
entry = "own.py:measure"
params = { x = 3 }
[[expect]]
run = "one"
measure = "value"
at_least = 30.0
at_most = { run = "two", factor = 2.0, margin = 1.0 }
"""

OWN = """
from __future__ import annotations
from dataclasses import dataclass
from typing import ClassVar

@dataclass
class Row:
    x: float
    kind: ClassVar[str] = "made up"

def measure(context):
    return {"one": {"value": context.rows * Row(context.params["x"]).x}, "two": {"value": 15.0}}
"""


@pytest.fixture
def written(tmp_path):
    """The path of a scenario with this text, with some of it replaced."""

    def written(text, old="", new="", limit="0.1"):
        path = tmp_path / "own.toml"
        path.write_text(text.replace(old, new, 1 if old else 0).replace("LIMIT", limit))
        return str(path)

    return written


def test_a_failed_expectation_exits_with_1(written, capsys):
    assert main([written(SPIKED)]) == 0
    assert "all 1 hold" in capsys.readouterr().out
    assert main([written(SPIKED, limit="1.5")]) == 1
    out = capsys.readouterr().out
    assert all(words in out for words in ("FAILS", "because", "1 of 1 do not hold"))


def test_a_stream_in_a_scenario_is_measured_to_the_same_bits(written):
    scenario = load(written(SPIKED))
    values, again = (run_scenario(scenario).final["a"] for _ in range(2))
    assert values | {"seconds": 0.0} == again | {"seconds": 0.0}
    assert values["releases"] == 600
    processor = sp.PrivateFPL(n_components=2, epsilon=5.0, delta=1e-3, horizon=600)
    stream = sp.Stream(processor, seed=scenario.seed)
    source = sp.sources.synthetic.spiked(600, 6, 2)
    for _ in stream.run(source):
        pass
    record, gram = stream.regret.now(), stream.regret.exact_gram()
    assert values["regret_per_row"] == record.average
    assert values["captured_variance"] == record.captured
    error = np.linalg.norm(stream.release.gram - gram, 2)
    assert values["spectral_error"] == pytest.approx(error, rel=1e-9)
    assert values["noise_std"] == processor.noise_std(600)


def test_an_entry_brings_its_own_table(tmp_path, written):
    (tmp_path / "own.py").write_text(OWN)
    scenario = load(written(ENTRY))
    (checked,) = run_scenario(scenario).checks
    assert (checked.holds, checked.measured) == (True, "30")
    assert not run_scenario(scenario, 11).checks[0].holds


@pytest.mark.parametrize("entry", ["none.py:measure", "own.py", "own:measure", "own.py:", "own.py:a.b", ":measure"])
def test_an_entry_must_be_a_function_in_a_file_beside_the_scenario(tmp_path, written, entry):
    (tmp_path / "own.py").write_text("raise AssertionError('load runs no code')")
    with pytest.raises(BadParameterError, match="runs the code of that file"):
        load(written(ENTRY, "own.py:measure", entry))
    assert load(written(ENTRY)).entry.endswith("own.py:measure")


def test_an_entry_without_its_function_is_refused_when_run(tmp_path, written):
    (tmp_path / "own.py").write_text("")
    with pytest.raises(BadParameterError, match="defines no 'measure'"):
        run_scenario(load(written(ENTRY)))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("rows = 600", "rows = 'x'", r"\$.rows"),
        ("ci_rows = 300", "ci_rows = 900", "ci_rows=900"),
        ("ci_rows = 300", f"ci_rows = {'8' * 200}", r"ci_rows=8{1,77}\.\.\. must"),
        ("ci_rows = 300", f"ci_rows = {'8' * 5000}", "digits"),
        ("ci_rows = 300", f"ci_rows = 0x{'f' * 5000}", "ci_rows=<int> must"),
        ("at_least = LIMIT", "at_leest = 1.0", "at_leest"),
        ("at_least = LIMIT", "", "sets no limit"),
        ("at_least = LIMIT", "at_least = 0.5\nat = 2.0", "at=2.0"),
        ("at_least = LIMIT", "falling = [0.5]", "two fractions"),
        ("at_least = LIMIT", 'at_most = { run = "b" }', "no run 'b'"),
        ('run = "a"', 'run = "b"', "no run 'b'"),
        ("[runs.a]", 'entry = "x:y"\n[runs.a]', "entry"),
        ("title", "titel", "titel"),
    ],
)
def test_a_broken_file_is_refused_by_the_field(written, old, new, words):
    with pytest.raises(BadParameterError, match=words):
        load(written(SPIKED, old, new))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("synthetic.spiked", "synthetic._fraction", "source.name"),
        ("synthetic.spiked", "nothing", "source.name"),
        ("PrivateFPL", "Nothing", "'Nothing'"),
        ("captured_variance", "nothing", "no measure 'nothing'"),
        ('n_rows = "$rows"', "n_rows = 100", "ended after 100 rows"),
        ("rows = 600", 'rows = 600\nneeds = ["no_such_package"]', "no_such_package"),
    ],
)
def test_what_is_not_there_is_named(written, old, new, words):
    with pytest.raises(BadParameterError, match=words):
        run_scenario(load(written(SPIKED, old, new)))


def test_unknown_names(capsys):
    assert main(["nope"]) == 2
    assert "there is no scenario 'nope'" in capsys.readouterr().err


def at(value, **more):
    return {"a": {1.0: {"m": value}, 0.5: {"m": 2.0}}, "b": {1.0: {"m": 10.0}}} | more


def test_limits_hold_and_fail_where_they_should():
    expect = Expect(run="a", measure="m", at_least=1.0, at_most=2.0)
    for value, holds in ((0.9, False), (1.0, True), (2.0, True), (2.1, False), (math.nan, False)):
        assert check(expect, at(value)).holds is holds


def test_limits_against_other_values():
    other = Expect(run="a", measure="m", at_most=Against(run="b", factor=0.5, margin=-1.0))
    assert check(other, at(4.0)).holds
    assert not check(other, at(4.1)).holds
    earlier = Expect(run="a", measure="m", at_most=Against(at=0.5))
    assert check(earlier, at(2.0)).holds
    assert not check(earlier, at(2.1)).holds
    assert not check(earlier, at(math.nan)).holds


def test_falling_is_strict():
    expect = Expect(run="a", measure="m", falling=(0.5, 1.0))
    assert check(expect, at(1.9)).holds
    assert not check(expect, at(2.0)).holds
    assert not check(expect, at(math.nan)).holds
