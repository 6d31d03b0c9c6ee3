import io
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

from streampca import PrivateFPL, RegretRecord, Release
from streampca.cli.live import LiveView, PlainView, Progress, trend, view
from streampca.rows.report import AdmissionReport

GUARANTEE = PrivateFPL(n_components=3, epsilon=1.0, delta=1e-6).guarantee


class Screen(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self):
        return True


def shown(width, height, total=100_000):
    console = Console(file=io.StringIO(), width=width, height=height)
    made = LiveView(console, "a title", GUARANTEE, 3, total)
    for t in range(1000, 50_001, 1000):
        made.add(RegretRecord(t, 0.3 * t - t**0.5, 0.3 * t, t**0.5, 10 * t**0.5, 0.987))
    record = RegretRecord(50_000, 14_776.4, 15_000.0, 223.6, 2236.0, 0.987)
    console.print(made.render(Progress(50_000, 10.0, 500, 7, record)))
    return console.file.getvalue()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 12), (20, 5)])
def test_the_view_fits_the_terminal(width, height):
    lines = shown(width, height).rstrip("\n").split("\n")
    assert len(lines) < max(height, 8)
    assert all(len(line.rstrip()) <= width for line in lines)


def test_the_view_tells_all():
    text = shown(100, 30)
    for words in (
        "50 000 of 100 000", "(1, 1e-06)-DP", "zero-out", "98.700 %", "0.004472 per row", "bound 0.04472",
        "7 absorbed as zero rows", "curator only", "regret per row", "covers all 500 releases",
    ):  # fmt: skip
        assert words in text, words


def test_a_long_curve_keeps_its_shape_in_flat_memory():
    console = Console(file=io.StringIO(), width=80, height=24)
    made = LiveView(console, "a title", GUARANTEE, 3, 100_000)
    for t in range(1, 100_001):
        made.add(RegretRecord(t, 0.0, 1.0, 1.0, 1.0, 1.0))
    assert 256 <= made._curve.count <= 512
    times = [record.t for record in made._curve.records]
    assert len({b - a for a, b in pairwise(times)}) == 1
    assert times[-1] > 96_000


def test_a_known_length_gives_per_cent_and_time_left():
    text = shown(100, 30)
    assert "(50 %)" in text
    assert "10 s left" in text
    out = io.StringIO()
    PlainView(Console(file=out, width=200), "a title", GUARANTEE, 3, 4000).show(Progress(1000, 200.0, 10, 0, None))
    assert out.getvalue() == "1000 of 4000 (25 %) rows, 200.0 s, 10 min left\n"


def test_components_are_shown_by_the_names_of_their_features_with_steady_signs():
    console = Console(file=io.StringIO(), width=80, height=24)
    made = LiveView(console, "a title", GUARANTEE, 2, None)
    names = ("delay\x1b[2J", "distance", "hour")
    for sign in (1.0, -1.0):
        basis = np.array([[0.8, 0.0], [0.6, 0.05], [0.0, 1.0]]) * sign
        release = Release(t=9, n_components=2, guarantee=GUARANTEE, basis=basis, features=names)
        console.print(made.render(Progress(1000, 1.0, 10, 0, None, None, release)))
    text = console.file.getvalue()
    assert "\x1b[2J" not in text
    assert text.count("component 1 +0.80 delay") == 2
    assert text.count("component 2 +1.00 hour") == 2


def test_what_was_done_to_rows_is_shown():
    console = Console(file=io.StringIO(), width=80, height=24)
    report = AdmissionReport(100, {"missing value": 4, "not a number": 3}, 0.0, {"age": 1.0, "income": 0.004}, 0.08)
    made = LiveView(console, "a title", GUARANTEE, 3, None)
    console.print(made.render(Progress(100, 1.0, 1, 7, None, admitted=report)))
    for line in (
        "clipped 0 % of the rows scaled; 100 % of age clamped",
        "ball 8 % used on average; noise is for rows that use all of it",
        "bad rows 7 absorbed as zero rows (4 missing value, 3 not a number)",
    ):
        assert line in console.file.getvalue()


def test_an_unknown_total_has_no_bar():
    assert "50 000   " in shown(100, 30, total=None)


@pytest.mark.parametrize("terminal", [True, False])
def test_elsewhere_lines_are_plain(terminal):
    out = Screen() if terminal else io.StringIO()
    console = Console(file=out, width=200, force_terminal=True, no_color=True)
    made = PlainView(console, "a title", GUARANTEE, 3, None)
    made.start()
    made.show(Progress(1000, 1.0, 10, 0, RegretRecord(1000, 290.0, 300.0, 10.0, 100.0, 0.99)))
    made.end(Progress(1500, 1.0, 15, 2, None))
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().splitlines() == [
        "a title",
        "1000 rows, "
        + "10 releases, " * terminal
        + "1.0 s"
        + " | curator only: captured 0.99000, regret per row 0.01, bound 0.1" * terminal,
        "1500 rows, 15 releases, 1.0 s" + ", 2 bad rows" * terminal,
    ]


def test_a_log_counts_thousands_of_rows_until_the_end():
    """Where batches end depends on the bytes of cells and on bad rows."""
    logs = []
    for batches in ([37, 75, 1100, 1999, 2003, 2040], [800, 1024, 2000, 2040]):
        out = io.StringIO()
        made = PlainView(Console(file=out, width=200, no_color=True), "a title", GUARANTEE, 3, 2040)
        for t in batches:
            made.show(Progress(t, 1.0, t // 50, 1, None))
        made.end(Progress(2040, 1.0, 40, 1, None))
        logs.append(out.getvalue().splitlines())
    assert logs[0] == logs[1] == [
        "1000 of 2040 (49 %) rows, 1.0 s, 1 s left", "2000 of 2040 (98 %) rows, 1.0 s, 0 s left",
        "2040 of 2040 (100 %) rows, 40 releases, 1.0 s",
    ]  # fmt: skip


def test_without_a_terminal_the_view_is_plain(capsys):
    assert isinstance(view(None, "t", GUARANTEE, 3, None), PlainView)
    assert isinstance(view(True, "t", GUARANTEE, 3, None), PlainView)


def test_views_say_so_where_no_bound_is_proved():
    record = RegretRecord(1000, 290.0, 300.0, 10.0, None, 0.99)
    out = Screen()
    console = Console(file=out, width=200)
    PlainView(console, "a title", GUARANTEE, 3, None).show(Progress(1000, 1.0, 10, 0, record))
    assert "regret per row 0.01, no bound proved" in out.getvalue()
    console = Console(file=io.StringIO(), width=100, height=30)
    made = LiveView(console, "a title", GUARANTEE, 3, None)
    for t in range(10, 1001, 10):
        made.add(RegretRecord(t, 0.29 * t, 0.3 * t, 0.01 * t, None, 0.99))
    console.print(made.render(Progress(1000, 1.0, 10, 0, record)))
    assert "no bound proved" in console.file.getvalue()


def test_a_curve_falls_from_the_highest_bar_to_the_lowest():
    drawn = trend([100.0 / t for t in range(1, 101)], 20)
    assert len(drawn) == 20
    assert (drawn[0], drawn[-1]) == ("█", "▁")
    assert list(drawn) == sorted(drawn, reverse=True)
    assert trend([2.0, 2.0], 20) == "▁▁"
    assert trend([1e-300, 1e300], 1) == "▁"
