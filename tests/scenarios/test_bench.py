import time

import pandas as pd
import pytest
from bench import app as main
from benchmark.cases import exponent
from benchmark.timing import Contender, Goal, Result, take_turns


@pytest.mark.ci
def test_small_suites_run_and_describe_the_machine(capsys, tmp_path):
    file = tmp_path / "out" / "bench.md"
    assert main(["row", "block", "window", "csv", "--rounds", "1", "--small", "--markdown", str(file)]) == 0
    out = capsys.readouterr().out
    for words in ("cores", "Python", "openblas", "| PrivateOja |", "river", "pandas", "discrete noise", "floor: "):
        assert words in out, words
    assert file.read_text().startswith("# Benchmarks")
    assert file.read_text().splitlines()[3:] == out.splitlines()[: len(file.read_text().splitlines()) - 3]


@pytest.mark.ci
def test_exponents(capsys):
    assert exponent([1, 2, 4, 8], [3, 12, 48, 192]) == pytest.approx(2.0)
    assert main(["scale", "--rounds", "1", "--small"]) == 0
    out = capsys.readouterr().out
    for words in ("time ~ n^", "memory ~ d^", "time ~ W^", "time ~ k^"):
        assert words in out, words


def test_all_take_their_turn_in_every_round():
    seen = []
    contenders = [Contender(name, 10, lambda name=name: seen.append(name)) for name in "ab"]
    cpu, elapsed = take_turns([*contenders, Contender("c", 1, lambda: time.sleep(0.02))], 2)
    assert seen == ["a", "b"] * 3
    assert cpu.shape == elapsed.shape == (2, 3)
    assert elapsed["c"].min() >= 20_000.0 > cpu["c"].max()


def test_ratios_are_of_times_a_row_within_a_round_and_bars_can_be_missed():
    times = pd.DataFrame({"base": [10.0, 40.0, 10.0], "fast": [5.0, 10.0, 0.5]})
    more, less = Goal("fast", "base", ">=", 2.0), Goal("fast", "base", "<=", 2.0)
    lines = list(Result("t", times, [(more, 2.0), (less, 2.1), (less, None)], ["f"]).lines())
    assert lines[4:6] == ["| base | 10 | 100000 | 1.00 |", "| fast | 5 | 200000 | 4.00 |"]  # of 2, 4 and 20
    assert lines[7:] == [
        "- f", "- met: 2.00 (asked for: >= 2) fast, against base",
        "- missed: 2.10 (asked for: <= 2) fast, against base", "- not measured: (asked for: <= 2) fast, against base",
    ]  # fmt: skip
