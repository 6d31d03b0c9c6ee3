"""Rows at a rate, and from files that grow; the options of the command line."""

import gzip
import io
import os
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from streampca.cli.inputs import open_source
from streampca.cli.messages import in_flags
from streampca.cli.options import ReadOptions
from streampca.errors import BadParameterError, SourceError, UsageError
from streampca.sources import files, open_rows, text_files

CSV = b"a,b\n1,2\n3,4\n5,6\n7,8\n"


class Clock:
    """A clock that only sleeping moves."""

    now = 1.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(files, "time", made)
    return made


def times(clock: Clock, source: Any) -> list[tuple[float, list[float]]]:
    return [(round(clock.now - 1, 6), row.tolist()) for block in source.blocks() for row in block]


def test_a_rate(clock: Clock) -> None:
    rows = times(clock, open_rows(io.BytesIO(CSV), columns=["a"], rate=4))
    assert rows == [(0, [1]), (0.25, [3]), (0.5, [5]), (0.75, [7])]
    for rate in (0, -1, float("nan")):
        with pytest.raises(BadParameterError, match="expected a positive number of rows per second"):
            open_rows(io.BytesIO(CSV), rate=rate, columns="all")


@pytest.mark.parametrize(
    ("name", "first", "parts", "rows"),
    [
        ("rows.csv", b"a,b\n1,2\n3,4", [b"\n5,", b"6\n7", b",8\n"], [[1, 2], [3, 4], [5, 6], [7, 8]]),
        ("rows.jsonl", b'{"a": 1}\n{"a": 2}\n', [b'{"a": 3}\n'], [[1], [2], [3]]),
        ("rows.jsonl", b'{"a": 1}\n{"a"', [b": 2}\n"], [[1], [2]]),
    ],
)
def test_a_file_that_grows_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, first: bytes, parts: list[bytes], rows: list[Any]
) -> None:
    path, left = tmp_path / name, [*parts]
    path.write_bytes(first)

    def sleep(_: float) -> None:  # more is written while the reader sleeps
        with path.open("ab") as file:
            file.write(left.pop(0))  # an IndexError: the reader waits although there are rows

    monkeypatch.setattr(text_files.time, "sleep", sleep)
    blocks = open_rows(path, follow=True, columns=["a", "b"][: len(rows[0])]).blocks()
    found: list[Any] = []
    while len(found) < len(rows):
        found += next(blocks).tolist()
    assert found == rows
    assert not left
    (tmp_path / "rows.csv.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(SourceError, match="compressed file cannot be followed"):
        open_rows(tmp_path / "rows.csv.gz", follow=True, columns="all")


def test_a_silent_pipe_that_is_followed_lets_others_work(tmp_path: Path) -> None:
    path, idle = tmp_path / "rows.csv", threading.Event()
    os.mkfifo(path)

    def write() -> None:
        with path.open("wb", buffering=0) as pipe:
            pipe.write(b"a\n1\n")
            found.append(idle.wait(30))
            pipe.write(b"2\n")

    found: list[bool] = []
    writer = threading.Thread(target=write)
    writer.start()
    source = open_rows(path, follow=True, columns=["a"])
    source.while_idle(idle.set)
    rows = iter(source)
    assert [next(rows).tolist() for _ in range(2)] == [[1.0], [2.0]]
    writer.join()
    assert found == [True]


def opened(
    tmp_path: Path, text: bytes, *read: str, columns: str | None = None
) -> tuple[tuple[str, ...], list[list[float]]]:
    (tmp_path / "rows.txt").write_bytes(text)
    source = open_source(tmp_path / "rows.txt", ReadOptions(read=read).reading(), columns)
    return source.features, [row.tolist() for row in source]


@pytest.mark.parametrize(
    ("text", "read", "columns", "found"),
    [
        (b"1\t2\t3\n", ("header=no", "names=a,b,c", "delimiter=tab"), "c,1", (("c", "a"), [[3, 1]])),
        (b"1;2\n", ("names=a, b", "delimiter=;"), "b", (("b",), [[2]])),
        ("ä\n1\n".encode("latin-1"), ("encoding=latin-1",), "all", (("ä",), [[1]])),
        (b'{"a": 1}\n', ("format=ndjson",), "a", (("a",), [[1]])),
        (b"a,1,b\n5,6,7\n", ("header=yes",), "3,1", (("b", "1"), [[7, 6]])),  # a name comes first
        (b"a,1\n5,6\n", ("header=yes", "names=x,y"), "y", (("y",), [[6]])),
        (b'1,"2\n3,4"\n', ("names=a,b", "quoting=none"), "a", (("a",), [[1], [3]])),
        (b"a,1,b\n5,6,7\n", (), "3,1", "column 2: the name looks like a value"),
        (b"a,d,b\n5,6,7\n", (), "4", "no column '4'"),
        (b'{"a": 1}\n', ("format=ndjson",), None, "has no types: name its numeric columns"),
        (b"1\t2\t3\n", ("header=no", "delimiter=tab"), "3,1", "name all columns"),
        (b"1,2\n", ("header=no",), "0", "positions of columns count from 1"),
        (b"1,2\n3,4\n", (), "a", "if the first line is a row"),
    ],
)
def test_the_options_of_the_command_line(
    tmp_path: Path, text: bytes, read: tuple[str, ...], columns: str | None, found: Any
) -> None:
    if isinstance(found, str):
        with pytest.raises((SourceError, UsageError), match=found):
            opened(tmp_path, text, *read, columns=columns)
    else:
        assert opened(tmp_path, text, *read, columns=columns) == found


@pytest.mark.parametrize(
    ("library", "command_line"),
    [
        ("leave it out with columns=['age', 'income']", "leave it out with --columns age,income"),
        ("columns=['age', 'weight (kg)', 'temp [C]'], or", "--columns 'age,weight (kg),temp [C]', or"),
        ("check delimiter= and quoting=, or", "check --read delimiter= and --read quoting=, or"),
        ("pass names=[...] if the", "pass --read names=... if the"),
        ("is a row, header=True if", "is a row, --read header=yes if"),
        ("n_components=9 exceeds", "-k 9 exceeds"),
        ("solver='exact' is kept", "solver='exact' is kept"),
    ],
)
def test_errors_speak_in_flags(library: str, command_line: str) -> None:
    assert in_flags(library) == command_line


def test_the_number_of_rows_is_expected_from_the_size_of_the_file(tmp_path: Path) -> None:
    lines = "".join(f"{i},{i + 0.5}\n" for i in range(200_000))
    (tmp_path / "a.csv").write_text(f"a,b\n{lines}")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(f"a,b\n{lines}".encode(), 1))
    with zipfile.ZipFile(tmp_path / "c.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rows.csv", f"a,b\n{lines}")  # the archive is read far ahead of its member
    for name in ("a.csv", "b.csv.gz", "c.zip"):
        source = open_rows(tmp_path / name, format="csv", columns="all")
        next(iter(source.blocks()))
        assert source.expected_rows == pytest.approx(200_000, rel=0.1)
    both = open_rows(tmp_path / "*.csv*", rate=1e9, columns="all")
    assert sum(map(len, both.blocks())) == 400_000
    assert both.expected_rows == pytest.approx(400_000, rel=0.02)
    assert open_rows(io.BytesIO(b"a,b\n1,2\n"), columns="all").expected_rows is None
