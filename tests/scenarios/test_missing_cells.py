"""The measurement of missing cells, on fewer rows."""

from missing_cells import made, measured


def test_corrected_rows_are_those_of_the_whole_table() -> None:
    rows, rates, bounds = made(n=30_000)
    captured, error = measured(rows, rates, bounds, {"on_missing": "cell"})
    assert captured >= 0.99
    assert error <= 0.01
    captured, error = measured(rows, rates, bounds, {"on_missing": "cell", "correct": False})
    assert captured < 0.99
    assert error > 0.05
