import importlib.util

import pytest
from run import app as main
from scenario import load, names, run_scenario


def test_the_scenarios_that_must_be_there_are():
    assert {"adversarial", "drift", "endless", "flights", "segments", "spiked"} <= set(names())


@pytest.mark.ci
@pytest.mark.parametrize("name", names())
def test_scenario_holds_at_its_size_for_ci(name):
    scenario = load(name)
    if any(importlib.util.find_spec(module) is None for module in scenario.needs):
        pytest.skip(f"needs {scenario.needs}")
    result = run_scenario(scenario, scenario.ci_rows)
    failed = [f"{c.what}: {c.measured}, wanted {c.wanted}" for c in result.checks if not c.holds]
    assert not failed
    assert result.checks


def test_the_list_names_them_all(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in names())
