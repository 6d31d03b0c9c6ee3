from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from streampca.errors import BadParameterError, SourceError
from streampca.rows import RowSource
from streampca.sources import from_blocks


def three() -> Iterator[np.ndarray]:
    shared = np.zeros((2, 3), order="F")
    for i in range(3):
        shared[:] = i
        yield shared


def test_a_function_can_be_read_again() -> None:
    source = from_blocks(three, features=["a", "b", "c"], bounds={"a": (0, 1), "b": (0, 2), "c": (0, 3)})
    assert isinstance(source, RowSource)
    assert source.features == ("a", "b", "c")
    assert source.bounds is not None
    for _ in range(2):
        assert [row[0] for row in source] == [0, 0, 1, 1, 2, 2]
        blocks = list(source.blocks())  # the generator reuses its array; the blocks are ours
        assert [block[0, 0] for block in blocks] == [0, 1, 2]
        assert all(block.flags.c_contiguous for block in blocks)


def test_an_iterator_can_be_read_once() -> None:
    source = from_blocks(three())
    assert source.features == ("x0", "x1", "x2")
    assert [row[0] for row in source] == [0, 0, 1, 1, 2, 2]
    with pytest.raises(SourceError, match="were read before; pass a function"):
        list(source)


def test_lists_and_empty_blocks() -> None:
    source = from_blocks([[[1, 2]], np.empty((0, 2)), [[3, 4], [5, np.nan]]])
    for _ in range(2):
        assert [block.shape for block in source.blocks()] == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([[1, 2, 3]], "block 2: 3 columns where 2 are due"),
        ([1, 2], r"block 2: shape \(2,\) where \(n, n_features\) is due"),
        ([["x", 1]], "block 2: not an array of numbers"),
        ([[1], [2, 3]], "block 2: not an array of numbers"),
    ],
)
def test_bad_blocks(bad: Any, message: str) -> None:
    rows: list[list[float]] = []
    with pytest.raises(SourceError, match=message):
        rows.extend(row.tolist() for row in from_blocks([[[1, 2]], [[3, 4]], bad, [[5, 6]]]))
    assert rows == [[1, 2], [3, 4]]


def test_parameters() -> None:
    with pytest.raises(SourceError, match="no rows"):
        from_blocks([])
    for features, message in [
        ("ab", "must name each"),
        (["a"], "must name each"),
        (["a", "a"], "names a column twice"),
    ]:
        with pytest.raises(BadParameterError, match=message):
            from_blocks([[[1, 2]]], features=features)
