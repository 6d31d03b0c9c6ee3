"""What every source does. A source joins with one line of `SOURCES`.

That is a function that keeps rows of a, b, c (None is missing) and returns a source of them; its options are those of
`Reading`, ``columns`` and ``bounds``.
"""

import csv
import gc
import gzip
import json
import math
import os
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streampca.errors import BadParameterError, SourceError
from streampca.rows.protocol import PositionedSource, RowSource
from streampca.sources import NumberedRows, csv_rows, from_csv, from_query, open_rows

NAMES = ["a", "b", "c"]
ROWS = (np.random.default_rng(5).normal(size=(60, 3)) / 8.0).tolist()
Rows = list[list[Any]]


def text(path: Path, rows: Rows, quoting: int = csv.QUOTE_MINIMAL, end: str = "\n", delimiter: str = ",") -> bytes:
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=quoting, lineterminator=end, delimiter=delimiter).writerows([NAMES, *rows])
    return path.read_bytes()


def from_text(path: Path, rows: Rows, end: str = "csv", *, how: dict[str, Any] | None = None, **options: Any) -> Any:
    path, data = path.with_suffix(f".{end}"), text(path, rows, **(how or {}))
    if end == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("rows.csv", data)
    else:
        path.write_bytes(gzip.compress(data) if end == "csv.gz" else data)
    return open_rows(path, **{"columns": "all", **options})


def from_pattern(path: Path, rows: Rows, **options: Any) -> Any:
    for at in range(3):
        text(path.with_name(f"day-{at}.csv"), rows[20 * at : 20 * at + 20 if at < 2 else None])
    return open_rows(path.with_name("day-*.csv"), **{"columns": "all", **options})


def from_json(path: Path, rows: Rows, **options: Any) -> Any:
    path = path.with_suffix(".ndjson")
    path.write_text("".join(json.dumps(dict(zip(NAMES, row, strict=True))) + "\n" for row in rows))
    return open_rows(path, **{"columns": NAMES, **options})


def from_columns(path: Path, rows: Rows, **options: Any) -> Any:
    path, columns = path.with_suffix(".parquet"), list(zip(*rows, strict=True)) or [()] * 3
    table = pa.table({name: pa.array(column, pa.float64()) for name, column in zip(NAMES, columns, strict=True)})
    pq.write_table(table, path, row_group_size=7)
    return open_rows(path, **options)


def from_sqlite(path: Path, rows: Rows, columns: list[str] | None = None, **options: Any) -> Any:
    with closing(sqlite3.connect(path.with_suffix(".db"))) as made, made:
        made.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, a, b, c)")
        made.executemany("INSERT INTO rows (a, b, c) VALUES (?, ?, ?)", rows)
    return from_query(f"sqlite:///{path.with_suffix('.db')}", "SELECT * FROM rows", "id", columns=columns, **options)


SOURCES: dict[str, Callable[..., Any]] = {
    "CSV": from_text,
    "CSV of CRLF, all quoted": partial(from_text, how={"quoting": csv.QUOTE_ALL, "end": "\r\n"}),
    "TSV": partial(from_text, end="tsv", how={"delimiter": "\t"}),
    "gzip": partial(from_text, end="csv.gz"),
    "zip": partial(from_text, end="zip"),
    "pattern": from_pattern,
    "NDJSON": from_json,
    "Parquet": from_columns,
    "SQLite": from_sqlite,
}
every_source = pytest.mark.parametrize("name", SOURCES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rows"


def read(source: Any) -> np.ndarray:
    return np.concatenate(list(source.blocks()))


@every_source
def test_rows_are_the_same_each_time_and_in_blocks_of_any_size(
    name: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = SOURCES[name]
    source = make(path, ROWS, bounds=(-1, 1))
    assert isinstance(source, RowSource)
    assert source.features == ("a", "b", "c")
    np.testing.assert_array_equal(source.bounds, [[-1] * 3, [1] * 3])
    assert "3 features: a, b, c; with bounds" in repr(source)
    for _ in range(2):
        blocks = list(source.blocks())
        assert all(len(block) and block.flags.c_contiguous and block.dtype == np.float64 for block in blocks)
        assert np.concatenate(blocks).tolist() == ROWS
        assert [row.tolist() for row in source] == ROWS
    for size in (1, 7, 31, 1000):
        monkeypatch.setattr(csv_rows, "_BLOCK", 3 * size)
        path.with_suffix(".db").unlink(missing_ok=True)
        blocks = list(make(path, ROWS, chunk_rows=size).blocks())
        assert max(map(len, blocks)) <= size
        assert np.concatenate(blocks).tolist() == ROWS


@every_source
def test_columns_by_name_in_the_order_asked_for(name: str, path: Path) -> None:
    source = SOURCES[name](path, ROWS, columns=["c"], bounds={"c": (0, 2)})
    assert source.features == ("c",)
    np.testing.assert_array_equal(source.bounds, [[0], [2]])
    assert read(source).tolist() == [[row[2]] for row in ROWS]
    path.with_suffix(".db").unlink(missing_ok=True)
    assert read(SOURCES[name](path, ROWS, columns=["c", "a"])).tolist() == [[row[2], row[0]] for row in ROWS]


@every_source
@pytest.mark.parametrize("value", [None, math.inf])
def test_a_bad_row_is_not_finite_and_in_its_place(name: str, value: Any, path: Path) -> None:
    make, rows = SOURCES[name], [*ROWS[:30], [0.5, value, 0.5], *ROWS[31:]]
    found = read(make(path, rows, columns=NAMES))
    assert np.isfinite(found).all(axis=1).tolist() == [True] * 30 + [False] + [True] * 29
    assert np.delete(found, 30, axis=0).tolist() == np.delete(ROWS, 30, axis=0).tolist()


@every_source
def test_a_source_without_rows_says_so(name: str, path: Path) -> None:
    if name == "SQLite":  # a query may have no rows yet
        assert list(SOURCES[name](path, []).blocks()) == []
        return
    with pytest.raises(SourceError, match="no rows"):
        SOURCES[name](path, [])


@every_source
def test_a_source_that_is_left_early_holds_no_file(name: str, path: Path) -> None:
    def held() -> list[str]:
        gc.collect()
        found = [f"/proc/self/fd/{handle}" for handle in os.listdir("/proc/self/fd")]
        return [where for one in found if os.path.lexists(one) and str(path.parent) in (where := os.readlink(one))]

    source = SOURCES[name](path, ROWS)
    blocks = source.blocks()
    next(blocks)
    blocks.close()
    assert held() == []
    assert read(source).tolist() == ROWS
    assert held() == []


@every_source
def test_any_position_resumes_behind_it(name: str, path: Path) -> None:
    source = SOURCES[name](path, ROWS)
    source = source if isinstance(source, PositionedSource) else NumberedRows(source, "rows")
    (first, *_) = source.blocks_from()
    positions = [first.after(m) for m in range(1, len(first.rows) + 1)]
    for done, at in enumerate(json.loads(json.dumps(positions)), 1):
        rest = [row for block in source.blocks_from(at) for row in block.rows.tolist()]
        assert rest == ROWS[done:]


@pytest.mark.parametrize("option", [{"chunk_rows": 0}, {"max_bytes": -1},
                                    {"delimiter": ",,"}, {"delimiter": "1"}, {"encoding": "klingon"}, {"na": [1]},
                                    {"quoting": "all"}, {"header": "a"}, {"names": "ab"}])  # fmt: skip
def test_options_outside_their_domains(option: dict[str, Any], path: Path) -> None:
    path.write_text("a,b\n1,2\n")
    ((name, value),) = option.items()
    with pytest.raises(BadParameterError) as refused:
        from_csv(path, **option)
    assert f"{name}={value!r}: expected" in str(refused.value) or "must be an integer" in str(refused.value)
