"""Tables of every library, sparse rows and asynchronous rows through `Stream.run` and `Stream.arun`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

import streampca as sp
from streampca.errors import BadRowError, SourceError

NAMES = ("a", "b", "c")
X = np.random.default_rng(0).normal(size=(900, 3)).round(3) * 0.3
FRAME = pd.DataFrame(X, columns=list(NAMES))
ARROW = pa.Table.from_pandas(FRAME)


def make(**options: Any) -> sp.Stream:
    return sp.Stream(
        sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, release_every=100), seed=1, **{"row_norm": 1.0} | options
    )


def releases(stream: sp.Stream, rows: Any) -> list[bytes]:
    return [step.release.gram.tobytes() for step in stream.run(rows) if step.release is not None]


NAMED = releases(make(features=NAMES), X)
PLAIN = releases(make(), X)


class Relation:
    """As a DuckDB relation before it had an Arrow C stream."""

    columns = NAMES

    def fetch_arrow_reader(self) -> pa.RecordBatchReader:
        return ARROW.to_reader(max_chunksize=70)


class Stream:
    """Anything with an Arrow C stream."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return ARROW.to_reader(max_chunksize=70).__arrow_c_stream__(requested_schema)


TABLES: dict[str, Callable[[], Any]] = {
    "pandas": lambda: FRAME,
    "pandas, float labels": lambda: FRAME.set_axis(np.arange(900) / 2),
    "pandas in parts": lambda: (FRAME[at : at + 70] for at in range(0, 900, 70)),
    "pandas rows": lambda: (row for _, row in FRAME.iterrows()),
    "polars": lambda: pl.from_pandas(FRAME),
    "Arrow table": lambda: ARROW,
    "Arrow batch": lambda: ARROW.to_batches()[0],
    "Arrow batches": lambda: ARROW.to_batches(max_chunksize=70),
    "Arrow reader": lambda: ARROW.to_reader(),
    "C stream": Stream,
    "relation": Relation,
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_their_rows(name: str) -> None:
    stream = make()
    assert releases(stream, TABLES[name]()) == NAMED
    assert stream.features == NAMES
    assert stream.t == 900


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix, sparse.coo_array, sparse.csc_matrix])
def test_sparse_rows(kind: Any) -> None:
    matrix = kind(X)
    assert releases(make(), matrix) == PLAIN
    stream = make()
    rows = sparse.csr_matrix(matrix)
    for at in range(100):
        stream.push(rows[at])
    assert stream.release is not None
    assert stream.release.gram.tobytes() == PLAIN[0]


@pytest.mark.parametrize("library", [pd, pl])
def test_a_series_is_one_feature_and_a_series_with_names_is_a_row(library: Any) -> None:
    stream = make()
    assert releases(stream, library.Series("x", X[:, 0]) if library is pl else pd.Series(X[:, 0], name="x"))
    assert stream.features == ("x",)
    stream = make(features=NAMES)
    for row in X[:100]:
        stream.push(pd.Series(row[::-1], index=["c", "b", "a"]))  # by name, not by place
    assert stream.release is not None
    assert stream.release.gram.tobytes() == NAMED[0]


def test_columns_go_by_name() -> None:
    turned = ["c", "a", "b"]
    for table in (FRAME[turned], pl.from_pandas(FRAME).select(turned), ARROW.select(turned)):
        assert releases(make(features=NAMES), table) == NAMED
    with pytest.raises(SourceError, match=r"lacks columns \['c'\] and has others, \['d'\]"):
        releases(make(features=NAMES), ARROW.rename_columns(["a", "b", "d"]))


def test_missing_values_and_columns_that_are_no_numbers() -> None:
    whole = pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64"), "b": [1.0, 2.0, np.nan]})
    for table in (whole, pl.from_pandas(whole), pa.Table.from_pandas(whole)):
        stream = make(on_bad_row="zero")
        assert len(list(stream.run(table))) == 3
        assert stream.admission.bad_rows == 2
        with pytest.raises(BadRowError, match="row 2: feature 'a' is not finite"):
            list(make().run(table))
    for words in (FRAME.assign(c="x"), pl.from_pandas(FRAME.assign(c="x")), pa.table({"c": ["1", "2"]})):
        with pytest.raises(SourceError, match=r"column 'c' of the table .* does not hold numbers"):
            list(make().run(words))


CELLS = ["abc", None, pd.NA, [1], 1 + 2j, np.complex128(1j), np.ma.masked, pd.Timestamp(0), 10**400, float("inf")]


@pytest.mark.filterwarnings("error", "ignore::streampca.errors.StreamPCAWarning")
@pytest.mark.parametrize("cell", CELLS, ids=repr)
def test_a_bad_cell_of_a_frame_spoils_its_row_alone(cell: Any) -> None:
    """Whatever type it gives to its column: of a frame, of a frame of objects, and of pieces of it."""
    zero = FRAME.copy()
    zero.iloc[42] = 0.0
    columns: dict[str, list[Any]] = {name: FRAME[name].tolist() for name in FRAME.columns}
    columns["b"][42] = cell
    frame = pd.DataFrame(columns)
    objects = pd.DataFrame(columns | {"b": pd.Series(columns["b"], dtype=object)})
    for rows in (frame, objects, [objects[:40], objects[40:50], objects[50:]]):
        stream = make(on_bad_row="zero", features=NAMES)
        assert releases(stream, rows) == releases(make(features=NAMES), zero)
        assert stream.admission.bad_rows == 1
    stream = make(on_bad_row="zero", features=NAMES)
    stream.push_many(frame)
    assert stream.admission.bad_rows == 1


def test_what_is_missing_is_said() -> None:
    with pytest.raises(BadRowError, match=r"row 1: feature 0 is not finite \(nan\): its value is missing"):
        make().push([None] * 8)


async def collected(stream: sp.Stream, rows: Any) -> list[bytes]:
    return [step.release.gram.tobytes() async for step in stream.arun(rows) if step.release is not None]


async def slowly(rows: Any) -> AsyncIterator[Any]:
    for row in rows:
        await asyncio.sleep(0)
        yield row


def test_asynchronous_rows() -> None:
    assert asyncio.run(collected(make(), slowly(X))) == PLAIN
    assert asyncio.run(collected(make(), slowly(ARROW.to_batches(max_chunksize=70)))) == NAMED
    assert asyncio.run(collected(make(), slowly((dict(zip(NAMES, row, strict=True)), 0) for row in X))) == NAMED
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
