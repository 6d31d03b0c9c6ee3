"""Tables of every library, sparse rows, rows of river and asynchronous rows through `Stream.run` and `Stream.arun`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

import streampca as sp
from streampca.errors import SourceError
from streampca.sources import from_csv

NAMES = ("a", "b", "c")
X = np.random.default_rng(0).normal(size=(900, 3)).round(3) * 0.3
FRAME = pd.DataFrame(X, columns=list(NAMES))
ARROW = pa.Table.from_pandas(FRAME)


def make(**options: Any) -> sp.Stream:
    algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, center=False, release_every=50)
    return sp.Stream(algorithm, seed=1, **options if "bounds" in options else {"row_norm": 1.0} | options)


def releases(stream: sp.Stream, rows: Any) -> list[bytes]:
    return [step.release.gram.tobytes() for step in stream.run(rows) if step.release is not None]


NAMED = releases(make(features=NAMES), X)
PLAIN = releases(make(), X)


@pytest.mark.parametrize(
    "table",
    [
        lambda: FRAME.set_axis(np.arange(900) / 2),
        lambda: (FRAME[at : at + 70] for at in range(0, 900, 70)),
        lambda: ARROW.to_batches(max_chunksize=70),
        lambda: ARROW.to_reader(max_chunksize=70),
    ],
    ids=["float labels", "frames", "Arrow batches", "Arrow reader"],
)
def test_tables_are_their_rows(table: Callable[[], Any]) -> None:
    """Further ways to hand over tables than those of `test_conversion`."""
    stream = make()
    assert releases(stream, table()) == NAMED
    assert (stream.features, stream.t) == (NAMES, 900)


def test_a_series_is_one_feature_and_sparse_rows_and_series_with_names_are_rows() -> None:
    for series in (pd.Series(X[:, 0], name="x"), pl.Series("x", X[:, 0])):
        stream = make()
        assert releases(stream, series)
        assert stream.features == ("x",)
    matrix = sparse.csr_matrix(X)
    assert releases(make(), sparse.coo_array(X)) == PLAIN
    for features, row_of, expected in (
        (None, lambda at: matrix[at], PLAIN),
        (NAMES, lambda at: pd.Series(X[at, ::-1], index=["c", "b", "a"]), NAMED),  # by name, not by place
    ):
        stream = make(features=features)
        for at in range(50):
            stream.push(row_of(at))
        assert stream.release is not None
        assert stream.release.gram.tobytes() == expected[0]


def test_columns_go_by_name() -> None:
    turned = ["c", "a", "b"]
    for table in (FRAME[turned], pl.from_pandas(FRAME).select(turned), ARROW.select(turned)):
        assert releases(make(features=NAMES), table) == NAMED
    with pytest.raises(SourceError, match=r"lacks columns \['c'\] and has others, \['d'\]"):
        releases(make(features=NAMES), ARROW.rename_columns(["a", "b", "d"]))


def test_missing_values_and_columns_that_are_no_numbers(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,1\n,2\n3,\n")
    whole = pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64"), "b": [1.0, 2.0, np.nan]})
    source = from_csv(tmp_path / "rows.csv", columns="all")
    for table in (whole, pl.from_pandas(whole), pa.Table.from_pandas(whole), source):
        stream = make()
        assert len(list(stream.run(table))) == 3
        assert stream.admission.bad_rows == 2
    stream = make()  # one cell may decide the type of a pandas column
    list(stream.run(FRAME.assign(c="x")))
    assert stream.admission.bad_rows == len(FRAME)
    for words in (pl.from_pandas(FRAME.assign(c="x")), pa.table({"c": ["1", "2"]})):
        with pytest.raises(SourceError, match=r"column 'c' of the table .* does not hold numbers"):
            list(make().run(words))
    stream.push([None] * len(stream.features))
    assert stream.admission.zero_rows_by_reason["missing value"] == 1


async def collected(stream: sp.Stream, rows: Any) -> list[bytes]:
    return [step.release.gram.tobytes() async for step in stream.arun(rows) if step.release is not None]


async def slowly(rows: Any) -> AsyncIterator[Any]:
    for row in rows:
        await asyncio.sleep(0)
        yield row


def test_asynchronous_rows() -> None:
    pairs = [(dict(zip(NAMES, row, strict=True)), 0) for row in X]
    assert asyncio.run(collected(make(), slowly(X))) == PLAIN
    assert asyncio.run(collected(make(), slowly(ARROW.to_batches(max_chunksize=70)))) == NAMED
    assert asyncio.run(collected(make(features=NAMES), slowly(pairs))) == NAMED
    assert asyncio.run(collected(make(), FRAME)) == NAMED

    async def beside() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        await collected(make(), X)
        task.cancel()
        return turns

    assert asyncio.run(beside()) > 100  # other tasks have their turns
