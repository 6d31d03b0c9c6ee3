import importlib.util
import math

import numpy as np
import pytest
from run import app as main
from scenario import Against, Expect, check, load, names, run_scenario

import streampca as sp
from streampca.errors import UsageError

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
params = { n_components = 2, epsilon = 5.0, delta = 1e-3, horizon = "$rows", release_every = 1, center = false }
[[expect]]
run = "a"
measure = "captured_variance"
at_least = 0.1
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
    """The path of a scenario with this text, with some of it replaced, beside a Python file."""

    def written(text, old="", new="", code="raise AssertionError('load runs no code')"):
        path = tmp_path / "own.toml"
        path.write_text(text.replace(old, new, 1 if old else 0))
        path.with_suffix(".py").write_text(code)
        return str(path)

    return written


@pytest.mark.ci
@pytest.mark.parametrize("name", names())
def test_scenario_holds_at_its_size_for_ci(name):
    scenario = load(name)
    if any(importlib.util.find_spec(module) is None for module in scenario.needs):
        pytest.skip(f"needs {scenario.needs}")
    result = run_scenario(scenario, scenario.ci_rows)
    assert [f"{c.what}: {c.measured}, wanted {c.wanted}" for c in result.checks if not c.holds] == []
    assert result.checks


def test_the_list_names_them_all(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in {*names(), "adversarial", "endless", "flights", "window_drift"})


def test_a_failed_expectation_exits_with_1(written, capsys):
    assert main([written(SPIKED)]) == 0
    assert "all 1 hold" in capsys.readouterr().out
    assert main([written(SPIKED, "at_least = 0.1", "at_least = 1.5")]) == 1
    out = capsys.readouterr().out
    assert all(words in out for words in ("FAILS", "because", "1 of 1 do not hold"))
    assert main(["nope"]) == 2
    assert "there is no scenario 'nope'" in capsys.readouterr().err


def test_a_stream_in_a_scenario_is_measured_to_the_same_bits(written):
    scenario = load(written(SPIKED))
    values, again = (run_scenario(scenario).final["a"] for _ in range(2))
    assert values | {"memory": 0.0} == again | {"memory": 0.0}
    assert values["releases"] == 600
    processor = sp.PrivateFPL(n_components=2, epsilon=5.0, delta=1e-3, horizon=600, release_every=1, center=False)
    stream = sp.Stream(processor, row_norm=1.0, seed=scenario.seed)
    for _ in stream.run(sp.sources.synthetic.spiked(600, 6, 2)):
        pass
    record, gram = stream.regret.now(), stream.regret.exact_gram()
    assert values["regret_per_row"] == record.average
    assert values["captured_variance"] == record.captured
    error = np.linalg.norm(stream.release.gram - gram, 2)
    assert values["spectral_error"] == pytest.approx(error, rel=1e-9)
    assert values["noise_std"] == processor.noise_std(600)


def test_an_entry_brings_its_own_table(written):
    scenario = load(written(ENTRY, code=OWN))
    (checked,) = run_scenario(scenario).checks
    assert (checked.holds, checked.measured) == (True, "30")
    assert not run_scenario(scenario, 11).checks[0].holds


@pytest.mark.parametrize(
    ("text", "old", "new", "words"),
    [
        (SPIKED, "rows = 600", "rows = 'x'", r"\$.rows"),
        (SPIKED, "ci_rows = 300", f"ci_rows = {'8' * 5000}", "digits"),
        (SPIKED, "at_least = 0.1", "at_leest = 1.0", "at_leest"),
        (SPIKED, "at_least = 0.1", "", "sets no limit"),
        (SPIKED, "at_least = 0.1", "at_least = 0.5\nat = 2.0", "at"),
        (SPIKED, "at_least = 0.1", "falling = [0.5]", "falling"),
        (SPIKED, "at_least = 0.1", 'at_most = { run = "b" }', "no run 'b'"),
        (SPIKED, 'run = "a"', 'run = "b"', "no run 'b'"),
        (SPIKED, "[source]", 'entry = "own.py:measure"\n[source]', "or entry ="),
    ],
)
def test_a_broken_file_is_refused_by_the_field(written, text, old, new, words):
    with pytest.raises(UsageError, match=words):
        load(written(text, old, new))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("captured_variance", "nothing", "no measure 'nothing'"),
        ('n_rows = "$rows"', "n_rows = 100", "ended after 100 rows"),
        ("rows = 600", 'rows = 600\nneeds = ["no_such_package"]', "no_such_package"),
    ],
)
def test_what_is_not_there_is_named(written, old, new, words):
    with pytest.raises(UsageError, match=words):
        run_scenario(load(written(SPIKED, old, new)))


@pytest.mark.parametrize(
    ("limits", "holding", "failing"),
    [
        ({"at_least": 1.0, "at_most": 2.0}, [1.0, 2.0], [0.9, 2.1]),
        ({"at_most": Against(run="b", factor=0.5, margin=-1.0)}, [4.0], [4.1]),
        ({"at_most": Against(at=0.5)}, [2.0], [2.1]),
        ({"falling": (0.5, 1.0)}, [1.9], [2.0]),
    ],
)
def test_limits_hold_and_fail_where_they_should(limits, holding, failing):
    for value in (*holding, *failing, math.nan):
        table = {"a": {1.0: {"m": value}, 0.5: {"m": 2.0}}, "b": {1.0: {"m": 10.0}}}
        assert check(Expect(run="a", measure="m", **limits), table).holds is (value in holding)
