from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from river import stream

from streampca.errors import BadParameterError, SourceError
from streampca.sources import from_river


def test_features_are_read_by_name() -> None:
    rows = [{"a": 1, "b": 2.5}, {"b": 3, "a": True, "c": "x"}]
    assert [row.tolist() for row in from_river(rows)] == [[1, 2.5], [1, 3]]


def test_iter_csv_yields_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,name,b\n1,x,2\n3,y,4e1\n")
    source = from_river(lambda: stream.iter_csv(path), columns=["b", "a"])
    for _ in range(2):
        assert [row.tolist() for row in source] == [[2, 1], [40, 3]]
    once = from_river(stream.iter_csv(path), columns=["a"])
    assert [row.tolist() for row in once] == [[1], [3]]
    with pytest.raises(SourceError, match="read before; pass a function"):
        list(once)


def test_text_is_named_at_once() -> None:
    with pytest.raises(SourceError) as caught:
        from_river([{"a": "1", "name": "x", "b": 2}])
    assert "row 1: 'name' is not a number ('x'); leave it out with columns=['a', 'b']" in str(caught.value)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"a": 1}, "row 3: feature 'b' is missing; pass missing='nan'"),
        ({"a": [1], "b": 1}, r"row 3: feature 'a' is not a number \(\[1\]\); leave it out with columns="),
        ([1, 2], r"a row is \[1, 2\]; mappings"),
    ],
)
def test_rows_before_a_bad_one_are_delivered(bad: Any, message: str) -> None:
    rows: list[list[float]] = []
    with pytest.raises(SourceError, match=message):
        rows.extend(row.tolist() for row in from_river([{"a": 1, "b": 2}, {"a": 3, "b": 4}, bad, {"a": 5, "b": 6}]))
    assert rows == [[1, 2], [3, 4]]


def test_a_bad_row_is_a_zero_row_where_that_is_asked_for() -> None:
    span = np.timedelta64(1, "D")  # which numpy registers as a real number
    rows = [None, {"a": 1, "b": 2}, {"a": "x"}, "abc", {"a": 10**400, "b": 1}, {"a": span}, ({"b": "4", "a": 3}, 7)]
    source = from_river(rows, columns=["a", "b"], on_bad_row="zero")
    (block,) = source.blocks()
    assert np.isfinite(block).all(axis=1).tolist() == [False, True, *[False] * 4, True]
    np.testing.assert_array_equal(block[[1, 6]], [[1, 2], [3, 4]])
    with pytest.raises(BadParameterError, match="the first row would say which features there are"):
        from_river(rows, on_bad_row="zero")


def test_missing_as_nan() -> None:
    source = from_river([{"a": 1, "b": 2}, {"b": 3}], missing="nan")
    np.testing.assert_array_equal(list(source), [[1, 2], [np.nan, 3]])
