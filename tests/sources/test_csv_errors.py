"""What is wrong with a file is said once, exactly, after every row before it was delivered."""

import gzip
import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streampca.errors import BadParameterError, SourceError, UsageError
from streampca.sources import csv_rows, from_csv, text_files
from streampca.sources.csv_cells import CellParser

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "rows.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def upto_error(path: Path, **options: object) -> tuple[list[list[float]], str]:
    rows: list[list[float]] = []
    with pytest.raises(SourceError) as caught:
        rows.extend(row.tolist() for row in from_csv(path, **options, columns="all"))  # type: ignore[arg-type]
    return rows, str(caught.value).replace(str(path), "FILE")


@pytest.mark.parametrize(
    ("text", "rows_before", "line"),
    [
        ('a,b\n1,2\n3,"4', 1, 3),
        ('a,b\n1,2\n"' + "4\n" * 2**20, 1, 3),
        ('name,x\n"two\nlines",1\n"three\r\nmore\nlines",2\n"four\rlines",3\nx,"', 3, 8),
        ('a,b\n"1', 0, 2),
    ],
)
def test_the_rows_before_open_quotes_are_read(write: Write, text: str, rows_before: int, line: int) -> None:
    """Damage is not a bad row: the end of the file is unknown."""
    rows, message = upto_error(write(text), chunk_rows=13)
    assert len(rows) == rows_before
    assert message == (
        f"FILE: ends inside the quotes of the record that begins in line {line}; mend its quotes, or pass "
        "quoting='none' if quotes are characters."
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rows, the file is empty; check the path"),
        ("\n \n\n", "column 1: the name looks like a value"),
        ("a,b\r1,2\r3,4\r", "lines end in CR; end them in LF or CR LF, as with tr"),
        ("a,b\n", "no rows after the header; if that is a row, pass names=[...]"),
        ("a,b", "no rows after the header"),
        ("male,old,male\n1,2,3\n", "columns 1, 3 share a name with another; choose by position, columns=[0"),
        (",a\n0,1\n", "leave out a column without a name with columns="),
        ("a,b\n1,2\n".encode("utf-16"), "this is UTF-16 text; pass encoding='utf-16'"),
        ("höhe,b\n1,2\n".encode("latin-1"), "the header is not utf-8 text; pass another encoding="),
        (b"\0,b\n1,2\n", "the header is not utf-8 text; pass another encoding="),
        (b"\xef\xbb\xbf", "no rows, the file is empty"),
        ("a,b\n1,2\n".encode("utf-16-le"), "the header is not utf-8 text; pass another encoding="),
    ],
)
def test_a_file_that_cannot_be_rows_is_refused(write: Write, text: str | bytes, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        from_csv(write(text), columns="all")
    assert message in str(caught.value)
    assert "male" not in str(caught.value)


def test_columns(write: Write) -> None:
    path = write(" a ,b,c,b,\n1,2,3,4,5\n")
    assert from_csv(path, columns=["c", "a"]).features == ("c", "a")
    assert next(iter(from_csv(path, columns=["c", "a"]))).tolist() == [3, 1]
    assert from_csv(path, columns=[1, 3, 4], header=True).features == ("x1", "x3", "x4")
    assert next(iter(from_csv(path, columns=[4, 3], header=True))).tolist() == [5, 4]
    with pytest.raises(SourceError, match="column 5: the name looks like a value"):
        from_csv(path, columns=[1, 4])
    path = write(" a ,b,c,b,d\n1,2,3,4,5\n")
    for columns, message in [
        (["A"], "no column 'A'; there are 'a', 'b', 'c', 'd'"),
        (["bb"], "no column 'bb'; did you mean 'b'?"),
        (["b"], "'b' names 2 columns; choose by position"),
        ([5], "no column at position 5; there are 5, counted from 0"),
        ("a", "expected a list"),
        ([], "expected at least one column"),
        ([0, "a"], "'a' twice"),
        ([True], "True"),
    ]:
        with pytest.raises((SourceError, UsageError)) as caught:
            from_csv(path, columns=columns)  # type: ignore[arg-type]
        assert message in str(caught.value)


def test_bounds(write: Write) -> None:
    path = write("a,b,c\n1,2,3\n")
    source = from_csv(path, columns=["c", "a"], bounds={"a": (0, 1), "b": (5, 6), "c": (-2, 2)})
    np.testing.assert_array_equal(source.bounds, [[-2, 0], [2, 1]])
    np.testing.assert_array_equal(from_csv(path, bounds=([0, 1, 2], 9), columns="all").bounds, [[0, 1, 2], [9, 9, 9]])
    for bounds, message in [
        ({"a": (0, 1)}, "bounds are missing for 'b'"),
        ({"a": (0, 1), "b": (0, 1), "c": (0, 1), "cc": (0, 1)}, "'cc', not a feature; did you mean 'c'?"),
        ({"a": 1, "b": (0, 1), "c": (0, 1)}, "bounds: expected (lower, upper) for 'a', not 1"),
        ((1, 0), "bounds: expected finite lower < upper for feature 'a', not (1, 0)"),
        ((0, np.inf), "bounds: expected finite lower < upper for feature 'a', not (0, inf)"),
        (([0, 0], [1, 1]), "each a number or 3 numbers"),
        (7, "expected (lower, upper)"),
        (("x", "y"), "each a number or 3 numbers"),
    ]:
        with pytest.raises(UsageError) as caught:
            from_csv(path, bounds=bounds, columns="all")  # type: ignore[arg-type]
        assert message in str(caught.value)


def test_byte_order_mark_and_encodings(write: Write) -> None:
    expected = [[1.5, 2.0], [3.0, 4.0]]
    text = "höhe,b\r\n1.5,2\r\n3,4\r\n"
    for encoding, said in [("utf-8-sig", "utf-8"), ("utf-16", "utf-16"), ("latin-1", "latin-1"), ("utf-8", "UTF8")]:
        source = from_csv(write(text.encode(encoding)), encoding=said, columns="all")
        assert source.features == ("höhe", "b")
        assert [row.tolist() for row in source] == expected
    path = write(b"a,b\n1,2\n3,4\n\x81,5\n")
    np.testing.assert_array_equal(list(from_csv(path, columns="all")), [[1, 2], [3, 4], [np.nan] * 2])


def test_compressed(tmp_path: Path) -> None:
    text = ("a,b\n" + "1,2\n" * 1000).encode()
    gz, archive = tmp_path / "rows.csv.gz", tmp_path / "rows.zip"
    gz.write_bytes(gzip.compress(text))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("folder/", "")
        made.writestr("folder/rows.csv", text)
        made.writestr("__MACOSX/._rows.csv", "x")
    for path in (gz, archive):
        assert sum(block.shape[0] for block in from_csv(path, columns="all").blocks()) == 1000
        with pytest.raises(SourceError, match="expands to more than 3000 bytes; pass a larger max_bytes="):
            from_csv(path, max_bytes=3000, columns="all")
        assert sum(1 for _ in from_csv(path, max_bytes=None, columns="all")) == 1000
        assert sum(1 for _ in from_csv(path, max_bytes=len(text), columns="all")) == 1000
    with zipfile.ZipFile(archive, "a") as made:
        made.writestr("second.csv", text)
    with pytest.raises(SourceError, match=r"holds 2 files, expected one: 'folder/rows.csv', 'second.csv'"):
        from_csv(archive, columns="all")


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(BadParameterError, match="expected the path of a file or a binary stream"):
        from_csv(io.StringIO("a\n1\n"), columns="all")  # type: ignore[arg-type]
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(SourceError, match=r"cannot be read: .*; check the path"):
            from_csv(path, columns="all")


def test_a_line_without_end_does_not_fill_memory(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "LONGEST_HEADER", 2000)
    monkeypatch.setattr(csv_rows, "LONGEST_HEADER", 2000)
    monkeypatch.setattr(csv_rows, "_BLOCK", 500)
    for quote in ("", '"'):
        with pytest.raises(SourceError, match="the first line is longer than 2000 bytes"):
            from_csv(write(quote + "a," * 10_000), columns="all")


def test_text_in_columns_that_are_left_out_costs_no_speed(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write('"who","x","y"\n' + "".join(f'"N{i}, ""the\n{i}th""",{i},"{i}.5"\n' for i in range(100)))
    monkeypatch.setattr(csv_rows.CsvRows, "_row", None)
    assert CellParser(3, [1], ",").parse(b'"a",1,2\n') is not None
    rows = np.concatenate(list(from_csv(path, columns=["y", "x"]).blocks()))
    np.testing.assert_array_equal(rows, [[i + 0.5, i] for i in range(100)])


def test_pyarrow_only_makes_it_faster(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("a,b\n" + "".join(f"{i / 7!r},{i}\n" for i in range(1000)))
    expected = np.concatenate(list(from_csv(path, columns="all").blocks()))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert CellParser(2, [0, 1], ",").parse(b"1,2\n") is None
    rows = np.concatenate(list(from_csv(path, columns="all").blocks()))
    assert rows.tobytes() == expected.tobytes()


@pytest.mark.parametrize("columns", ["all", [1, 2], ["37", "170.5"], ["a", "b"]])
@pytest.mark.parametrize("first", ["41017,37,170.5", "Smithson,37,170.5", '2024-12-31,"37",170.5', ",NA,170.5"])
def test_a_first_row_is_not_published_as_names(write: Write, first: str, columns: Any) -> None:
    path = write(f"{first}\n39000,28,1.5\n")
    with pytest.raises(SourceError, match=r"the name looks like a value .* pass names=") as caught:
        from_csv(path, columns=columns)
    message = str(caught.value).replace(str(path), "FILE")
    assert not any(cell.strip('"') in message for cell in first.split(",") if cell)
