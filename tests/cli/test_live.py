import io

import numpy as np
import pytest
from rich.console import Console

from streampca import PrivateFPL, RegretRecord, Release
from streampca.cli.live import LiveView, PlainView, Progress, trend, view
from streampca.rows.report import AdmissionReport

GUARANTEE = PrivateFPL(n_components=3, epsilon=1.0, release_every=1, center=False).guarantee
RECORD = RegretRecord(50_000, 14_776.4, 15_000.0, 223.6, 2236.0, 0.987)


def made(kind, *args, width=80, height=24):
    """A view of its kind, and the file that its console prints to."""
    file = io.StringIO()
    return kind(Console(file=file, width=width, height=height, no_color=True), "a title", *args), file


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 12), (20, 5)])
def test_the_live_view_has_all_facts_that_fit_the_terminal(width, height):
    live, file = made(LiveView, GUARANTEE, 100_000, width=width, height=height)
    for t in range(1000, 50_001, 1000):
        live.add(RegretRecord(t, 0.3 * t - t**0.5, 0.3 * t, t**0.5, None, 0.987))
    report = AdmissionReport(100, {"missing value": 4}, 0.0, {"age\x1b[2J": 1.0}, 0.08)
    release = Release(t=9, n_components=1, guarantee=GUARANTEE, basis=np.eye(2, 1))
    live.console.print(live.render(Progress(50_000, 10.0, 500, RECORD, None, release, report)))
    text = file.getvalue()
    lines = text.rstrip("\n").split("\n")
    assert len(lines) < height
    assert all(len(line.rstrip()) <= width for line in lines)
    assert "\x1b[2J" not in text
    if width >= 80:
        for words in (
            "curator only", "50000/100000", "50%", "(1, 1e-06)-DP for one row, zero-out", "98.700 %", "0.004472",
            "█", "Releases", "0.04472", "Clipped", "Unusable",
        ):  # fmt: skip
            assert words in text, words


def test_a_log_counts_thousands_of_rows_until_the_end():
    """Where batches end depends on the bytes of cells and on bad rows."""
    report = AdmissionReport(2040, {"missing value": 2}, 0.0, {}, 1.0)
    for batches in ([37, 75, 1100, 1999, 2003, 2040], [800, 1024, 2000, 2040]):
        plain, out = made(PlainView, 2040)
        for t in batches:
            plain.show(Progress(t, 1.0, t // 50, RECORD, expected=9999, admitted=report))
        plain.end(Progress(2040, 1.0, 40, RECORD, expected=9999, admitted=report))
        assert out.getvalue().splitlines() == [
            "a title", "1000 of 2040 rows, 1.0 s", "2000 of 2040 rows, 1.0 s",
        ]  # fmt: skip


def test_without_a_terminal_the_view_is_plain(capsys):
    assert all(isinstance(view(live, "t", GUARANTEE, None), PlainView) for live in (None, True, False))


def test_a_curve_falls_from_the_highest_bar_to_the_lowest():
    drawn = trend([100.0 / t for t in range(1, 101)], 20)
    assert (len(drawn), drawn[0], drawn[-1]) == (20, "█", "▁")
    assert list(drawn) == sorted(drawn, reverse=True)
    assert trend([2.0, 2.0], 20) == "▁▁"
    assert trend([1e-300, 1e300], 1) == "▁"
