import io
from itertools import pairwise

import numpy as np
import pytest
from rich.console import Console

from streampca import PrivateFPL, RegretRecord, Release
from streampca.cli.live import LiveView, PlainView, Progress, trend, view
from streampca.rows.report import AdmissionReport

GUARANTEE = PrivateFPL(n_components=3, epsilon=1.0, delta=1e-6).guarantee


def made(kind=LiveView, width=80, height=24, total=None, *, terminal=False, k=3):
    """A view of its kind, and the file that its console prints to."""
    file = io.StringIO()
    file.isatty = lambda: terminal
    console = Console(file=file, width=width, height=height, force_terminal=terminal, no_color=True)
    return kind(console, "a title", GUARANTEE, k, total), file


def rendered(progress, **size):
    shown, file = made(**size)
    shown.console.print(shown.render(progress))
    return file.getvalue()


def shown(width, height, total=100_000, bound=10.0):
    live, file = made(width=width, height=height, total=total)
    for t in range(1000, 50_001, 1000):
        live.add(RegretRecord(t, 0.3 * t - t**0.5, 0.3 * t, t**0.5, bound and bound * t**0.5, 0.987))
    record = RegretRecord(50_000, 14_776.4, 15_000.0, 223.6, bound and 2236.0, 0.987)
    live.console.print(live.render(Progress(50_000, 10.0, 500, 7, record)))
    return file.getvalue()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 12), (20, 5)])
def test_the_view_fits_the_terminal(width, height):
    lines = shown(width, height).rstrip("\n").split("\n")
    assert len(lines) < max(height, 8)
    assert all(len(line.rstrip()) <= width for line in lines)


def test_the_view_has_all_facts():
    text = shown(100, 30)
    for words in (
        "50 000 of 100 000", "(50 %)", "10 s left", "(1, 1e-06)-DP", "zero-out", "98.700 %", "0.004472 per row",
        "bound 0.04472", "7 absorbed as zero rows", "curator only", "regret per row", "covers all 500 releases",
    ):  # fmt: skip
        assert words in text, words
    assert "50 000   " in shown(100, 30, total=None)  # without a bar
    assert "no bound proved" in shown(100, 30, bound=None)


def test_a_long_curve_keeps_its_shape_in_flat_memory():
    live, _ = made(total=100_000)
    for t in range(1, 100_001):
        live.add(RegretRecord(t, 0.0, 1.0, 1.0, 1.0, 1.0))
    assert 256 <= live._curve.count <= 512
    times = [record.t for record in live._curve.records]
    assert len({b - a for a, b in pairwise(times)}) == 1
    assert times[-1] > 96_000


def test_components_are_shown_by_the_names_of_their_features_with_steady_signs():
    live, file = made(k=2)
    names = ("delay\x1b[2J", "distance", "hour")
    for sign in (1.0, -1.0):
        basis = np.array([[0.8, 0.0], [0.6, 0.05], [0.0, 1.0]]) * sign
        release = Release(t=9, n_components=2, guarantee=GUARANTEE, basis=basis, features=names)
        live.console.print(live.render(Progress(1000, 1.0, 10, 0, None, None, release)))
    text = file.getvalue()
    assert "\x1b[2J" not in text
    assert text.count("component 1 +0.80 delay") == 2
    assert text.count("component 2 +1.00 hour") == 2


def test_what_was_done_to_rows_is_shown():
    report = AdmissionReport(100, {"missing value": 4, "not a number": 3}, 0.0, {"age": 1.0, "income": 0.004}, 0.08)
    text = rendered(Progress(100, 1.0, 1, 7, None, admitted=report))
    for line in (
        "clipped 0 % of the rows scaled; 100 % of age clamped",
        "ball 8 % used on average; noise is for rows that use all of it",
        "bad rows 7 absorbed as zero rows (4 missing value, 3 not a number)",
    ):
        assert line in text


@pytest.mark.parametrize("terminal", [True, False])
def test_elsewhere_lines_are_plain(terminal):
    plain, out = made(PlainView, width=200, terminal=terminal)
    plain.start()
    plain.show(Progress(1000, 1.0, 10, 0, RegretRecord(1000, 290.0, 300.0, 10.0, 100.0, 0.99)))
    plain.show(Progress(1400, 1.0, 10, 0, RegretRecord(1400, 290.0, 300.0, 10.0, None, 0.99)))
    plain.end(Progress(1500, 1.0, 15, 2, None))
    exact = " | curator only: captured 0.99000, regret per row"
    assert out.getvalue().splitlines() == [
        "a title",
        f"1000 rows, {'10 releases, ' * terminal}1.0 s{f'{exact} 0.01, bound 0.1' * terminal}",
        *[f"1400 rows, 10 releases, 1.0 s{exact} 0.007143, no bound proved"] * terminal,
        f"1500 rows, 15 releases, 1.0 s{', 2 bad rows' * terminal}",
    ]


def test_a_log_counts_thousands_of_rows_until_the_end():
    """Where batches end depends on the bytes of cells and on bad rows."""
    logs = []
    for batches in ([37, 75, 1100, 1999, 2003, 2040], [800, 1024, 2000, 2040]):
        plain, out = made(PlainView, width=200, total=2040)
        for t in batches:
            plain.show(Progress(t, 1.0, t // 50, 1, None))
        plain.end(Progress(2040, 1.0, 40, 1, None))
        logs.append(out.getvalue().splitlines())
    assert logs[0] == logs[1] == [
        "1000 of 2040 (49 %) rows, 1.0 s, 1 s left", "2000 of 2040 (98 %) rows, 1.0 s, 0 s left",
        "2040 of 2040 (100 %) rows, 40 releases, 1.0 s",
    ]  # fmt: skip
    plain, out = made(PlainView, width=200, total=4000)
    plain.show(Progress(1000, 200.0, 10, 0, None))
    assert out.getvalue() == "1000 of 4000 (25 %) rows, 200.0 s, 10 min left\n"


def test_without_a_terminal_the_view_is_plain(capsys):
    assert all(isinstance(view(live, "t", GUARANTEE, 3, None), PlainView) for live in (None, True, False))


def test_a_curve_falls_from_the_highest_bar_to_the_lowest():
    drawn = trend([100.0 / t for t in range(1, 101)], 20)
    assert (len(drawn), drawn[0], drawn[-1]) == (20, "█", "▁")
    assert list(drawn) == sorted(drawn, reverse=True)
    assert trend([2.0, 2.0], 20) == "▁▁"
    assert trend([1e-300, 1e300], 1) == "▁"
