import numpy as np

from streampca.cli import main
from streampca.cli.bench import contenders, measure


def test_bench_runs_and_describes_the_machine(capsys):
    assert main(["bench", "--rounds", "1", "--rows", "1000", "--features", "6"]) == 0
    out = capsys.readouterr().out
    for words in ("cores", "Python", "openblas", "row:", "block:", "PrivateFPL", "1.00x"):
        assert words in out, words


def test_all_take_their_turn_in_every_round():
    seen = []
    found = {name: lambda rows, name=name: seen.append((name, len(rows))) for name in "ab"}
    times = measure(found, np.zeros((5000, 2)), 2)
    assert seen == [("a", 5000), ("b", 5000)] * 3
    assert {name: len(t) for name, t in times.items()} == {"a": 2, "b": 2}


def test_both_suites_measure_the_private_stream():
    for suite in ("row", "block"):
        assert any("PrivateFPL" in name for name in contenders(suite))
