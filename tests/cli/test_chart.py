import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streampca.cli.live import Curve, chart, short


def rows_of(text):
    return text.plain.split("\n")


@given(
    st.lists(st.tuples(st.floats(1, 1e7), st.floats(-1, 1e9)), max_size=40),
    st.integers(1, 200),
    st.integers(1, 60),
)
@example([(1.0, 5e-324)], 17, 4)
@settings(deadline=None, max_examples=60)
def test_a_chart_fits_its_box(points, width, height):
    lines = rows_of(chart([Curve(sorted(points), "red")], width, height))
    assert len(lines) == max(height, 1)
    assert all(len(line) <= width for line in lines)


def test_a_falling_curve_falls_from_the_left_top_to_the_right_bottom():
    lines = rows_of(chart([Curve([(x, 100.0 / x) for x in range(1, 101)], "red")], 60, 16))
    body = [line[9:] for line in lines[:-2]]
    first = [min(i for i, c in enumerate(row) if c != " ") for row in body if row.strip()]
    last = [max(i for i, c in enumerate(row) if c != " ") for row in body if row.strip()]
    assert first[0] == 0
    assert last[-1] == max(last) > 40
    assert first == sorted(first)


def test_each_whole_decade_is_labelled_once():
    lines = rows_of(chart([Curve([(1, 1000.0), (2, 1.0)], "red")], 40, 20))
    labels = [line.split("┤")[0].strip() for line in lines if "┤" in line]
    assert labels == ["1000", "100", "10", "1"]


def test_nothing_to_draw_is_an_empty_box():
    assert chart([Curve([], "red")], 40, 10).plain.strip() == ""
    assert chart([Curve([(1.0, 0.0)], "red")], 40, 10).plain.strip() == ""


def test_what_is_not_finite_is_left_out():
    plain = chart([Curve([(1, 5.0), (9, 2.0)], "red")], 40, 10).plain
    assert chart([Curve([(1, 5.0), (2, math.nan), (3, math.inf), (9, 2.0)], "red")], 40, 10).plain == plain


def test_a_later_curve_is_drawn_over_an_earlier_one():
    text = chart([Curve([(1, 1.0), (100, 1.0)], "red"), Curve([(50, 1.0), (100, 1.0)], "blue")], 60, 10)
    drawn = {span.style: text.plain[span.start : span.end].strip() for span in text.spans if span.style != "dim"}
    assert len(drawn["red"]) == pytest.approx(len(drawn["blue"]), abs=2)


@pytest.mark.parametrize(("value", "text"), [(12, "12"), (336_776, "337k"), (1e6, "1M"), (2.5e9, "2.5G")])
def test_short_numbers(value, text):
    assert short(value) == text
