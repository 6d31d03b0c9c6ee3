"""Names of features are public: those that look like cells of a row are refused unless the caller gives them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampca as sp
from streampca import sources
from streampca.errors import SourceError
from streampca.river import PrivatePCA as RiverPCA
from streampca.rows.names import looks_like_value
from streampca.sklearn import PrivatePCA as SklearnPCA

NAMES = ("41017", "170.5")
ROW = dict(zip(NAMES, (0.1, 0.2), strict=True))
FRAME = pd.DataFrame([ROW] * 4)


def stream(**options: Any) -> sp.Stream:
    return sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, release_every=1, center=False), row_norm=1.0, **options)


def written(folder: Path, name: str) -> str:
    path = str(folder / name)
    if name.endswith("db"):
        with sqlite3.connect(path) as made:
            made.execute('CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, "41017" REAL, "170.5" REAL)')
            made.execute("INSERT OR REPLACE INTO t VALUES (1, .1, .2)")
        made.close()
    else:
        pq.write_table(pa.Table.from_pandas(FRAME), path)
    return path


#: Doors to which the caller may give the names or not.
DOORS: dict[str, Callable[[Path, Any], Any]] = {
    "pushed frame": lambda _, names: stream(features=names).push_many(FRAME),
    "frame": lambda _, names: list(stream(features=names).run(FRAME)),
    "polars": lambda _, names: list(stream(features=names).run(pl.from_pandas(FRAME))),
    "arrow": lambda _, names: list(stream(features=names).run(pa.Table.from_pandas(FRAME))),
    "parquet": lambda folder, names: sources.from_parquet(written(folder, "x.parquet"), columns=names),
    "positions": lambda folder, names: sources.from_parquet(written(folder, "x.parquet"), columns=names or [1]),
    "no such column": lambda folder, names: sources.from_parquet(written(folder, "x.parquet"), columns=names or ["a"]),
    "query": lambda folder, names: sources.from_query(
        f"sqlite:///{written(folder, 'x.db')}", "SELECT * FROM t", "id", columns=names
    ),
    "river": lambda _, names: RiverPCA(n_components=1, row_norm=1.0, features=names, release_every=1).learn_one(ROW),
    "scikit-learn": lambda _, names: SklearnPCA(n_components=1, row_norm=1.0).fit(FRAME.to_numpy() if names else FRAME),
}


@pytest.mark.parametrize("door", DOORS)
def test_names_like_values_are_refused_unless_the_caller_gives_them(door: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="the name looks like a value") as caught:
        DOORS[door](tmp_path, None)
    message = str(caught.value).replace(str(tmp_path), "")
    assert not any(name in message for name in NAMES)
    DOORS[door](tmp_path, list(NAMES))


def test_a_refused_row_changes_nothing_and_numbers_of_columns_are_left_alone() -> None:
    fed = stream()
    fed.push_many(pd.DataFrame(np.full((3, 2), 0.1)))
    assert fed.features == ("0", "1")
    fed = stream()
    with pytest.raises(SourceError):
        fed.push_many(FRAME)
    assert fed.t == 0
    fed.push_many(FRAME.set_axis(["a", "b"], axis=1))
    assert fed.features == ("a", "b")


VALUES = [
    "", " ", "NA", "nan", "-inf", "1", "-3e5", "1.e5", ".5", "1,5", "1 000", "5 %", "$3", "２", "2024-01-31",
    "20240131", "2024-01-31T10:00:00Z", "2024-01-31 10:00:00.5+02:00", "31.12.2024", "31/12/24", "1/2/2024 10:30 PM",
    "10:30", "1 Jan 2024", "01-Jan-24", "Jan 1, 2024", "Mon, 1 January 2024", "1st May 2024", "2024-W01-1",
]  # fmt: skip
LIKE_NO_VALUE = [
    "a", "x1", "_1", "PM10", "PM2.5", "may5", "t1", "Na", "temp (°C)", "1st floor", "e5", "Unnamed: 0", "3G", "2m_temp",
    "?", "#", "12kg", "x 1", "z", "utc", "jan", "1m", "Mar 20 sales",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"), [*((name, True) for name in VALUES), *((name, False) for name in LIKE_NO_VALUE)]
)
def test_which_names_look_like_values(name: str, expected: bool) -> None:
    assert looks_like_value(name) is expected
