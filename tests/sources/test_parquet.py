import decimal
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streampca.errors import SourceError
from streampca.sources import from_parquet


@pytest.fixture
def path(tmp_path: Path) -> Path:
    table = pa.table({
        "i": pa.array([1, 2, 2**53 + 1], pa.int64()),
        "f": pa.array([0.5, -1.5, 2.5], pa.float32()),
        "h": pa.array(np.array([0.5, 1.5, 2.5], dtype=np.float16)),
        "b": pa.array([True, False, True]),
        "m": pa.array([decimal.Decimal("1.25"), decimal.Decimal("2.00"), decimal.Decimal("-3.50")]),
        "s": pa.array(["x", "y", "z"]),
        "n": pa.array([1.0, None, np.inf]),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def test_numbers_of_every_kind(path: Path) -> None:
    source = from_parquet(path, columns=["m", "i", "f", "h", "b"], bounds=(-4, 4), chunk_rows=2)
    assert source.n_rows == 3
    assert [row.tolist() for row in source] == [
        [1.25, 1, 0.5, 0.5, 1], [2, 2, -1.5, 1.5, 0], [-3.5, 2.0**53, 2.5, 2.5, 1],
    ]  # fmt: skip
    assert [block.shape for block in source.blocks()] == [(2, 5), (1, 5)]
    assert repr(source) == "<ParquetRows 5 features: m, i, f, h, ...; with bounds>"
    np.testing.assert_array_equal(list(from_parquet(path, columns=["n"])), [[1], [np.nan], [np.inf]])


def test_files_and_columns_that_cannot_be_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.with_name("text.parquet").write_text("a,b\n1,2\n")
    pq.write_table(pa.table([[1.0], [2.0]], names=["x", "x"]), path.with_name("twice.parquet"))
    leave = "leave it out with columns=['i', 'f', 'h', 'b', 'm', 'n']"
    cases: list[tuple[str, Any, str]] = [
        ("rows.parquet", None, f"column 's' (string) does not hold numbers; {leave}"),
        ("rows.parquet", ["ff"], "no column 'ff'; did you mean 'f'?"),
        ("text.parquet", None, "cannot be read as Parquet"),
        ("none.parquet", None, "cannot be read as Parquet"),
        ("twice.parquet", None, "columns 1, 2 share a name"),
        ("twice.parquet", [0], "shares its name"),
    ]
    for name, columns, message in cases:
        with pytest.raises(SourceError, match=re.escape(message)):
            from_parquet(path.with_name(name), columns=columns)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(SourceError, match=r"pip install 'streampca\[parquet\]'"):
        from_parquet(path)


def test_a_damaged_file_gives_its_rows_then_the_error(tmp_path: Path) -> None:
    path, rows = tmp_path / "cut.parquet", np.random.default_rng(0).random(5000)
    pq.write_table(pa.table({"x": rows}), path, row_group_size=1000, compression="zstd", use_dictionary=False)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 2000] = bytes(2000)
    path.write_bytes(data)
    read: list[float] = []
    with pytest.raises(SourceError, match="damaged after row"):
        read.extend(row[0] for row in from_parquet(path, chunk_rows=500))
    assert 1000 <= len(read) < 4000
    np.testing.assert_array_equal(read, rows[: len(read)])
