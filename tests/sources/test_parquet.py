from __future__ import annotations

import decimal
import gc
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streampca.errors import SourceError
from streampca.rows.protocol import RowSource
from streampca.sources import from_parquet
from streampca.sources.parquet import from_arrow


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "rows.parquet"
    table = pa.table(
        {
            "i": pa.array([1, 2, 2**53 + 1], pa.int64()),
            "f": pa.array([0.5, -1.5, 2.5], pa.float32()),
            "h": pa.array(np.array([0.5, 1.5, 2.5], dtype=np.float16)),
            "b": pa.array([True, False, True]),
            "m": pa.array([decimal.Decimal("1.25"), decimal.Decimal("2.00"), decimal.Decimal("-3.50")]),
            "s": pa.array(["x", "y", "z"]),
            "n": pa.array([1.0, None, np.inf]),
        }
    )
    pq.write_table(table, made)
    return made


def test_numbers_of_every_kind(path: Path) -> None:
    source = from_parquet(path, columns=["m", "i", "f", "h", "b"], bounds=(-4, 4), chunk_rows=2)
    assert isinstance(source, RowSource)
    assert source.features == ("m", "i", "f", "h", "b")
    assert len(source) == source.n_rows == 3
    expected = [[1.25, 1, 0.5, 0.5, 1], [2, 2, -1.5, 1.5, 0], [-3.5, 2.0**53, 2.5, 2.5, 1]]
    for _ in range(2):
        assert [row.tolist() for row in source] == expected
        assert [block.shape for block in source.blocks()] == [(2, 5), (1, 5)]
    assert repr(source) == "<ParquetRows 5 features: m, i, f, h, ...; with bounds>"


def test_text_is_named_at_once(path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        from_parquet(path)
    assert "column 's' (string) does not hold numbers; leave it out with columns=['i', 'f', 'h', 'b', 'm', 'n']" in str(
        caught.value
    )
    with pytest.raises(SourceError, match=r"no column 'ff'; did you mean 'f'\?"):
        from_parquet(path, columns=["ff"])


def test_missing_values(path: Path) -> None:
    np.testing.assert_array_equal(list(from_parquet(path, columns=["n"], missing="nan")), [[1], [np.nan], [np.inf]])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("a,b\n1,2\n")
    for name in ("text.parquet", "none.parquet"):
        with pytest.raises(SourceError, match="cannot be read as Parquet"):
            from_parquet(tmp_path / name)
    pq.write_table(pa.table([[1.0], [2.0]], names=["x", "x"]), tmp_path / "twice.parquet")
    with pytest.raises(SourceError, match="columns 1, 2 share a name"):
        from_parquet(tmp_path / "twice.parquet")
    with pytest.raises(SourceError, match="shares its name"):
        from_parquet(tmp_path / "twice.parquet", columns=[0])


def test_a_damaged_file_gives_its_rows_then_the_error(tmp_path: Path) -> None:
    path = tmp_path / "cut.parquet"
    rows = np.random.default_rng(0).random(5000)
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


def test_without_pyarrow_the_extra_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(SourceError, match=r"pip install 'streampca\[parquet\]'"):
        from_parquet(path)


def test_an_arrow_stream_without_columns_or_with_a_name_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.arrows"
    with pa.ipc.new_stream(path, pa.schema([])):
        pass
    with pytest.raises(SourceError, match="no columns"):
        from_arrow(path)
    table = pa.table({"name": [1.0]})
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)
    path.write_bytes(path.read_bytes().replace(b"name", b"na\xffe"))
    with pytest.raises(SourceError, match="cannot be read"):
        from_arrow(path)


def test_an_arrow_file_that_is_refused_is_closed(tmp_path: Path) -> None:
    """Not closed here, it warns when it is collected, which is an error in these tests."""
    for content in (b"ARROW1 and nothing", b"x" * 100):
        (tmp_path / "rows.arrow").write_bytes(content)
        with pytest.raises(SourceError, match="Arrow IPC"):
            from_arrow(tmp_path / "rows.arrow")
    table = pa.table({"x": ["text"]})
    with pa.ipc.new_file(tmp_path / "rows.arrow", table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(SourceError, match="does not hold numbers"):
        from_arrow(tmp_path / "rows.arrow")
    gc.collect()
