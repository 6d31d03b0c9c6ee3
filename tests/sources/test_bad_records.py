"""One record never decides how many releases there are, or what they are: a bad one is a zero row, in every format."""

import gzip
import io
import json
import math
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streampca as sp
from streampca.cli import main
from streampca.errors import BadParameterError, SourceError, UsageError
from streampca.sources import csv_rows, from_csv, from_ndjson, open_rows
from streampca.sources.csv_cells import CellParser

NAMES = ["a", "b", "c"]
ROWS = np.random.default_rng(3).normal(size=(300, 3)).round(6).tolist()
AT = 150

#: Bad records of a CSV file; single cells are those of `test_csv_text`. A quote that opens is closed, as by writers.
RECORDS: dict[str, bytes] = {
    "text": b"x,2,3", "short": b"1,2", "long": b"1,2,3,4", "one cell": b"1", "quoted line break": b'"1\n2",2,3',
    "NUL alone": b"\0", "stray quote": b'1,2"2,3', "stray quote at the end": b'1,2,3"',
    "lines in quotes": b'"1\n' + 500 * b"1,0,0\n" + b'",2,3', "quotes in quotes": b'"1""\n""2",2,3',
    "next line": "1,2\u20283,4".encode(), "quote after quote": b'1,"2"3,4', "blank line": b"", "spaces": b"   ",
    "infinite": b"1,inf,3", "empty cell": b"1,,3", "carriage return": b"1,2\r1,3", "rows in one line": b"1,2,3\r4,5,6",
    "not UTF-8": b"\xff\xfe,2,3", "too long": b"1" * (2**20 + 1), "header again": b"a,b,c",
    "too long, quoted": b'"' + b"1" * (2**20 + 1) + b'",2,3', "delimiters": b"," * 5000,
    "a number of a megabyte": b"0" * (2**20 - 8) + b"x,2,3",
}  # fmt: skip

#: Bad values of a JSON object, and bad lines.
VALUES: dict[str, str] = {
    "text": '"x"', "question mark": '"?"', "digits as text": '"1"', "empty": '""', "null": "null", "NaN": "NaN",
    "Infinity": "-Infinity", "overflow": "1e999", "large integer": "1" + "0" * 400, "too many digits": "1" * 5000,
    "list": "[1]", "object": "{}", "underscore": "1_000", "hexadecimal": "0x10", "Arabic digits": "١٢",
    "leading zero": "012", "plus": "+1", "nothing": "", "lone surrogate": '"\\ud800"', "deep": "[" * 20_000,
}  # fmt: skip
LINES: dict[str, bytes] = {
    "key left out": b'{"a": 1, "b": 2}', "list": b"[1, 2, 3]", "number": b"7", "text": b'"x"', "null": b"null",
    "blank": b"", "spaces": b"  ", "cut": b'{"a": 1, "b": 2, "c"', "two": b'{"a":1,"b":2,"c":3} {"a":1,"b":2,"c":3}',
    "not UTF-8": b'{"a": 1, "b": 2, "c": 3, "\xff": 1}', "NUL": b"\0", "UTF-16": '{"a":1}'.encode("utf-16"),
    "too long": b'{"a": 1, "b": 2, "c": 3, "d": "' + b"x" * 2**20 + b'"}', "across lines": b'{"a": 1,\n"b": 2, "c": 3}',
}  # fmt: skip


def csv(record: bytes | None) -> bytes:
    lines = [",".join(map(repr, row)).encode() for row in ROWS]
    lines[AT] = lines[AT] if record is None else record
    return b"\n".join([",".join(NAMES).encode(), *lines]) + b"\n"


def ndjson(record: bytes | None) -> bytes:
    lines = [json.dumps(dict(zip(NAMES, row, strict=True))).encode() for row in ROWS]
    lines[AT] = lines[AT] if record is None else record
    return b"\n".join(lines) + b"\n"


def releases(source: Any, bad: int | None = None) -> list[str]:
    stream = sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, center=False, release_every=20), row_norm=1.0, seed=5)
    made = [step.release.to_json() for step in stream.run(source) if step.release is not None]
    if bad is not None:
        assert stream.admission.bad_rows == bad
    return made


PLAIN = releases(from_csv(io.BytesIO(csv(None)), columns="all"))
NEIGHBOUR = releases(from_csv(io.BytesIO(csv(b"0,0,0")), columns="all"))


@pytest.mark.parametrize("name", RECORDS)
def test_a_bad_csv_record_is_a_zero_row(name: str) -> None:
    record = RECORDS[name]
    assert releases(from_csv(io.BytesIO(csv(record)), columns="all"), bad=1) == NEIGHBOUR


@pytest.mark.parametrize("record", [b'1,"2,3', b'"', b'"1,2,3', b'1,2,"3""', *RECORDS.values()])
def test_without_quoting_any_line_is_a_row(record: bytes) -> None:
    record = record.replace(b"\n", b" ")
    source = from_csv(io.BytesIO(csv(record)), quoting="none", columns="all")
    assert releases(source, bad=1) == NEIGHBOUR


OBJECTS = {f"value: {name}": f'{{"a": 1, "b": {value}, "c": 3}}'.encode() for name, value in VALUES.items()} | LINES


@pytest.mark.parametrize("name", OBJECTS)
def test_a_bad_json_record_is_a_zero_row(name: str) -> None:
    record = OBJECTS[name]
    lines = record.count(b"\n") + 1
    source = from_ndjson(io.BytesIO(ndjson(record)), columns=NAMES)
    zeros = ndjson(b"\n".join([b'{"a": 0, "b": 0, "c": 0}'] * lines))
    assert releases(source, bad=lines) == releases(from_ndjson(io.BytesIO(zeros), columns=NAMES))


def test_standard_input_is_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_bytes(csv(None))
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(csv(None))))
    found = []
    for source in (tmp_path / "rows.csv", "-", through_a_pipe(tmp_path, csv(None))):
        options = ["-k", "1", "--epsilon", "1", "--delta", "1e-6", "--row-norm", "1", "--seed", "5", "--out", "-"]
        options += ["--columns", "all"]
        options += ["--horizon", str(csv(None).count(b"\n") - 1)]  # that of the file is counted
        assert main(["run", str(source), *options]) == 0
        found.append(capsys.readouterr().out)
    assert len(found[0].splitlines()) == 4
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("library", ["pyarrow", "exact"])
def test_a_long_cell_is_its_number_by_every_reader(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if library == "exact":
        monkeypatch.setattr(CellParser, "parse", lambda *_: None)
    for record, value in ((b"0" * 900_000 + b"1", 1.0), (b"0." + b"3" * 900_000, 1 / 3), (b"1" * 900_000, math.inf)):
        for beside in (b"5,6", b'5,"6"', b"5,x"):
            for cell in (record, b'"' + record + b'"'):
                source = from_csv(io.BytesIO(b"a,b\n" + cell + b",2\n" + beside + b"\n"), columns="all")
                np.testing.assert_array_equal(next(iter(source)), [value, 2])


def test_a_damaged_file_stops_at_its_end_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_rows, "_BLOCK", 1000)
    whole = gzip.compress(csv(b"x"))
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) - 9])
    stream = sp.Stream(sp.Oja(n_components=1, release_every=100), row_norm=1.0)
    with pytest.raises(SourceError, match=r"cut.csv.gz: cannot be read"):
        list(stream.run(from_csv(tmp_path / "cut.csv.gz", columns="all")))
    assert stream.t > 100
    assert stream.admission.bad_rows == 1


def test_encodings_of_bad_rows() -> None:
    """Text that is not of the encoding is bad rows, not an end; no line may change another, nor the first all."""
    text = csv(b"\x81,2,3")
    assert releases(from_csv(io.BytesIO(text), encoding="cp1252", columns="all"), bad=1) == NEIGHBOUR
    for encoding in ("iso2022_jp", "hz", "utf-7", "unicode_escape", "base64"):
        with pytest.raises(UsageError, match=r"one damaged line could change|expected an encoding"):
            from_csv(io.BytesIO(csv(None)), encoding=encoding, columns="all")
    with pytest.raises(SourceError, match="this is UTF-16 text; pass encoding='utf-16'"):
        from_csv(io.BytesIO("a,b\n1,2\n".encode("utf-16")), columns="all")
    with pytest.raises(UsageError, match="the first record would decide the byte order; pass 'utf-16-le'"):
        from_csv(io.BytesIO(csv(None)), names=NAMES, encoding="UTF_16", columns="all")


def test_whether_a_long_record_is_read_does_not_depend_on_those_before_it() -> None:
    """A character of another encoding may take more bytes in UTF-8, where a line is a MiB at most."""
    long = "5" + 10 * (",1" + "é" * 60_000)
    found = []
    for before in (10, 700_000, 1_000_000):
        lines = [",".join("abcdefghijk"), "1" + 10 * ("," + "x" * (before // 10)), long, "7" + "," * 10]
        text = io.BytesIO("\n".join(lines).encode("latin-1"))
        rows = from_csv(text, columns=["a"], encoding="latin-1")
        found.append(np.concatenate(list(rows.blocks())).ravel().tolist())
    np.testing.assert_array_equal(found, [[1, math.nan, 7]] * 3)


def test_formats_by_name_and_by_keyword(tmp_path: Path) -> None:
    for name, text in {"semicolons.csv": csv(None).replace(b",", b";"), "rows": csv(None)}.items():
        (tmp_path / name).write_bytes(text)
        for columns in ("all", NAMES):
            assert releases(open_rows(tmp_path / name, columns=columns)) == PLAIN, name  # type: ignore[arg-type]
    pq.write_table(pa.table({"a": [1.0]}), tmp_path / "rows.parquet")
    (tmp_path / "odd.dat").write_bytes(ndjson(None))
    assert releases(open_rows(tmp_path / "odd.dat", format="ndjson", columns=NAMES)) == PLAIN
    headless = csv(None).split(b"\n", 1)[1]
    assert releases(open_rows(io.BytesIO(headless), names=NAMES, columns="all")) == PLAIN
    assert open_rows(io.BytesIO(headless), names=NAMES, columns=[2, 0]).features == ("c", "a")
    with pytest.raises(UsageError, match=r"name all columns, names="):
        open_rows(io.BytesIO(headless), header=False, columns="all")
    with pytest.raises(UsageError, match="delimiter=';' does not apply to Parquet"):
        open_rows(tmp_path / "rows.parquet", delimiter=";")
    with pytest.raises(BadParameterError, match="format='xml': expected one of csv"):
        open_rows(tmp_path / "rows.csv", format="xml", columns="all")  # type: ignore[arg-type]


def test_files_of_a_pattern_have_one_header(tmp_path: Path) -> None:
    (tmp_path / "day-0.csv").write_bytes(csv(None))
    (tmp_path / "day-3.csv").write_text("a,c,b\n1,2,3\n")
    with pytest.raises(SourceError, match=r"day-3.csv: its columns are not those"):
        open_rows(tmp_path / "day-*.csv", columns="all")
    with pytest.raises(SourceError, match="no file matches"):
        open_rows(tmp_path / "night-*.csv", columns="all")


def through_a_pipe(folder: Path, text: bytes) -> Path:
    path = folder / "pipe"
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(text,), daemon=True).start()
    return path


def test_pipes_are_read_once(tmp_path: Path) -> None:
    source = open_rows(through_a_pipe(tmp_path, csv(None)), columns="all")
    assert releases(source) == PLAIN
    with pytest.raises(SourceError, match="can be read once only"):
        releases(source)


def test_streams_stay_open_and_live_ones_give_their_rows_as_they_come(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(csv(None))
    with (tmp_path / "rows.csv").open("rb") as file:
        assert releases(open_rows(file, columns="all")) == PLAIN
        assert not file.closed
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", buffering=0) as feed:
        feed.write(b"a,b\n1,2\n")
        blocks = from_csv(stream, columns="all").blocks()
        for row in (b"3,4\n", b"5,6\n"):
            feed.write(row)
            assert next(blocks).shape[1] == 2
    with pytest.raises(UsageError, match="cannot be read from a pipe"):
        open_rows("-", format="parquet")


def test_texts_for_missing_values() -> None:
    text = b"a,b\n1,?\n-,2\n"
    rows = np.concatenate(list(from_csv(io.BytesIO(text), na="?,-", columns="all").blocks()))
    np.testing.assert_array_equal(rows, [[1, np.nan], [np.nan, 2]])
    numbers = from_csv(io.BytesIO(b"a,b\n1,999\n 999 ,999.0\n-9,9999\n"), na="999,-9", columns="all")
    np.testing.assert_array_equal(list(numbers), [[1, np.nan], [np.nan, 999], [np.nan, 9999]])


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("rows.csv", ["abc,1", "1,NA", "1,2,3", '1,"2"3']),
        ("rows.ndjson", ['{"a": "x", "b": 1}', '{"a": 1}', "[1]", "{"]),
    ],
)
def test_bad_rows_are_counted_by_reason(tmp_path: Path, name: str, bad: list[str]) -> None:
    good = "1,2" if name.endswith("csv") else '{"a": 1, "b": 2}'
    head = ["a,b"] if name.endswith("csv") else []
    (tmp_path / name).write_text("\n".join([*head, good, *bad, good]) + "\n")
    rows = open_rows(tmp_path / name, columns=["a", "b"])
    stream = sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, release_every=1, center=False), row_norm=3.0)
    list(stream.run(rows))
    reasons = {"not a number": 1, "missing value": 1, "unreadable record": 2}
    assert stream.admission.zero_rows_by_reason == reasons


@pytest.mark.parametrize(("levels", "bad"), [(199, 0), (200, 1)])
def test_an_object_of_many_levels_is_bad_for_every_caller(levels: int, bad: int) -> None:
    """Python's own limit depends on how deep the caller is."""
    other = "[" * levels + "]" * levels
    text = f'{{"a": 1, "b": "{"[" * 300}", "c": {other}}}\n'.encode()
    (rows,) = from_ndjson(io.BytesIO(text), columns=["a"]).blocks()
    assert np.isnan(rows).any() == bool(bad)
