import json
import time
from importlib.util import find_spec

import pytest
from bench import app as main
from benchmark.cases import run_suite
from benchmark.scale import exponent
from benchmark.timing import Bar, Comparison, Contender, Goal, Result, Timed, take_turns

from streampca import _native


@pytest.mark.ci
def test_small_suites_run_and_describe_the_machine(capsys, tmp_path):
    file, text = tmp_path / "out" / "bench.json", tmp_path / "out" / "bench.md"
    suites = ["row", "block", "window", "oja", "csv"]
    options = ["--rounds", "1", "--small", "--explain", "--json", str(file), "--markdown", str(text)]
    assert main([*suites, *options]) == 0
    out = capsys.readouterr().out
    for words in ("cores", "Python", "openblas", "PrivateOja", "1.00x", "river", "pandas", "asked for", *suites):
        assert words in out, words
    found = json.loads(file.read_text())
    assert found["machine"]["cores"]
    for words in ("cold: a new process", "warm: rows 1 to", "floor: ", "asked for: >= 10", "discrete noise"):
        assert words in text.read_text(), words
    assert {result["suite"] for result in found["results"]} == set(suites)
    bars = [bar for result in found["results"] for bar in result["bars"]]
    assert all(bar["value"] > 0 for bar in bars if bar["value"] is not None)
    if find_spec("sklearn") is None:
        assert "pip install scikit-learn" in out


def test_exponents_and_memory(capsys):
    assert main(["scale", "--rounds", "1", "--small"]) == 0
    out = capsys.readouterr().out
    for words in ("time ~ n^", "memory ~ d^", "time ~ W^", "time ~ k^", "MB over the imports"):
        assert words in out, words


@pytest.mark.parametrize("options", [["--rounds", "0"], ["--small", "--full"]])
def test_bad_options_are_one_line(capsys, options):
    assert main(["oja", *options]) != 0
    assert "--" in capsys.readouterr().err


def test_all_take_their_turn_in_every_round():
    seen = []
    timed = take_turns([Contender(name, 10, lambda name=name: seen.append(name)) for name in "ab"], 2)
    assert seen == ["a", "b"] * 3
    assert [(t.name, len(t.seconds)) for t in timed] == [("a", 2), ("b", 2)]


def test_ratios_are_of_times_a_row_within_a_round():
    base, fast = Timed("base", 10, (1.0, 4.0, 1.0)), Timed("fast", 20, (1.0, 2.0, 0.1))
    assert fast.faster_than(base) == 4.0  # 2, 4 and 20
    assert fast.per_row == 50_000.0
    assert Result("x", "", [base, fast])["fast"] is fast


def test_bars_can_be_missed_and_exponents_are_slopes():
    bars = ((">=", 2.0, True), (">=", 1.9, False), ("<=", 2.1, False), ("<=", None, None))
    assert all(Bar("x", 2.0, sense, value).met is met for sense, value, met in bars)
    assert exponent([1, 2, 4, 8], [3, 12, 48, 192]) == pytest.approx(2.0)


def test_clocks_are_kept_beside_cpu_seconds():
    timed = take_turns([Contender("sleeps", 1, lambda: time.sleep(0.02))], 2)[0]
    assert len(timed.elapsed) == 2
    assert min(timed.elapsed) >= 0.02 > max(timed.seconds)
    assert timed.by_the_clock.per_row >= 20_000.0 > timed.per_row


def test_the_csv_suite_counts_by_the_clock_and_runs_with_and_without_kernels():
    found = []

    def run_file(file):
        found.append(_native.compiled is not None)
        time.sleep(0.02)

    before, kernels = _native.use(True), _native.compiled is not None
    try:
        (result,) = run_suite("csv", 1, run_file=run_file, small=True)
    finally:
        _native.use(before)
    assert found == ([True, False] * 2 if kernels else [False] * 2)
    assert len(result.timed) == (4 if kernels else 3)
    assert result.bars[0].value == pytest.approx(result.timed[1].elapsed[0] / result.timed[0].elapsed[0])
    assert result.to_dict()["contenders"][1]["elapsed"][0] >= 0.02
    assert len(result.facts) == len(result.timed) - 1


def test_goals_are_ratios_and_missing_packages_are_named():
    quick, slow = (Contender(name, 10, lambda s=s: busy(s)) for name, s in (("quick", 0.005), ("slow", 0.02)))
    absent = Contender("absent", 10, lambda: 1 / 0, "proSVD")
    assert absent.missing, "proSVD is installed: name another package here"
    goals = [
        Goal("quick", "slow", ">=", 2.0, "why"),
        Goal("slow", "quick", "<=", 2.0),
        Goal("absent", "slow", ">=", 1.0),
        Goal("slow", "absent", ">=", 1.0),
    ]
    result = Comparison("t", [slow, absent, quick], goals).run("s", 1)
    assert [t.name for t in result.timed] == ["slow", "quick"]
    assert [bar.met for bar in result.bars] == [True, False, None, None]
    assert result.bars[0].value == pytest.approx(result.bars[1].value)
    assert [bar.note for bar in result.bars] == ["why", "", absent.missing, absent.missing]


def busy(seconds):
    started = time.process_time()
    while time.process_time() - started < seconds:
        pass
