"""Hostile files do not fill memory: a child process reads them within a limit."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")

#: Most resident memory of the child, its imports included.
MOST_MB = 300

CHILD = """
import re
import numpy as np
from streampca.errors import SourceError
from streampca.sources import open_rows
rows = 0
bad = 0
try:
    source = open_rows({path!r}, **{options!r})
    for block in source.blocks():
        rows += len(block)
        bad += int(np.isnan(block).any(axis=1).sum())
    said = ""
except SourceError as error:
    said = str(error)[:200]
peak = int(re.search("VmHWM:.*?([0-9]+) kB", open("/proc/self/status").read())[1])  # getrusage counts the parent's
print(rows, bad, peak // 1024, said)
"""


def child(code: str, feed: list[str] | None, *, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run Python code, which reads what another process writes if there is a ``feed``."""
    writer = None if feed is None else subprocess.Popen([sys.executable, "-c", *feed], stdout=subprocess.PIPE)
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=None if writer is None else writer.stdout, capture_output=True, text=True,
        check=False, timeout=timeout,
    )  # fmt: skip
    if writer is not None:
        assert writer.stdout is not None
        writer.stdout.close()
        writer.wait()
    return done


def read(path: object, options: dict[str, object], feed: list[str] | None = None) -> tuple[int, int, str]:
    """Rows, bad rows and the last words of a child that reads a file, or what another process writes."""
    code = CHILD.format(path=str(path), options=options)
    done = child(code, feed, timeout=600)
    assert done.returncode == 0, done.stderr
    rows, bad, megabytes, *said = done.stdout.strip().split(" ", 3)
    assert int(megabytes) <= MOST_MB, done.stdout
    return int(rows), int(bad), said[0] if said else ""


def line(megabytes: int, start: str = "", text: str = "1", end: str = "") -> list[str]:
    """A program that writes three rows, the second of them of so many megabytes."""
    return [
        f"import sys; w = sys.stdout.write; w('a,b\\n1,2\\n' + {start!r}); "
        f"[w({text!r} * 2**18) for _ in range({4 * megabytes // len(text)})]; w({end!r} + ',1\\n3,4\\n')"
    ]


@pytest.mark.parametrize("megabytes", [100, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("quotes", [("", "1", ""), ('"', '1""\n,', '"')])
def test_a_record_of_a_gigabyte_through_a_pipe_is_one_bad_row(megabytes: int, quotes: tuple[str, str, str]) -> None:
    assert read("-", {"on_bad_row": "zero"}, line(megabytes, *quotes)) == (3, 1, "")
    if megabytes == 100:
        rows, _, said = read("-", {}, line(megabytes, *quotes))
        assert rows == 1
        assert "line 3: a record of more than 1048576 bytes" in said


@pytest.mark.parametrize("on_bad_row", ["raise", "zero"])
def test_a_bomb_of_one_line(tmp_path: Path, on_bad_row: str) -> None:
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b"a,b\n1,2\n")
        for _ in range(200):
            file.write(b"0" * 2**20)
        file.write(b"\n3,4\n")
    rows, bad, said = read(path, {"on_bad_row": on_bad_row})
    assert (rows, bad) == ((3, 1) if on_bad_row == "zero" else (1, 0))
    assert ("a record of more than" in said) == (on_bad_row == "raise")


def test_a_bomb_of_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n" + b"\n" * 300_000, 1))
    assert read(path, {"on_bad_row": "zero"}) == (300_001, 300_000, "")
    rows, _, said = read(path, {})
    assert rows == 1
    assert "line 3: 1 cell where 2 are due" in said


@pytest.mark.parametrize("on_bad_row", ["raise", "zero"])
@pytest.mark.parametrize("columns", [["c7", "c999999"], None])
def test_a_million_columns(tmp_path: Path, on_bad_row: str, columns: list[str] | None) -> None:
    path = tmp_path / "wide.csv"
    row = ",".join(["0.25"] * 10**6)
    path.write_text(",".join(f"c{i}" for i in range(10**6)) + f"\n{row}\n{row}\n")
    assert read(path, {"on_bad_row": on_bad_row, "columns": columns}) == (2, 0, "")


def test_rows_that_are_all_bad(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("a,b\n" + "x,2\n" * 100_000)
    assert read(path, {"on_bad_row": "zero"}) == (100_000, 100_000, "")


COMMAND = """
import re
from streampca.cli import main
options = "-k 1 --epsilon 1 --delta 1e-6 --row-norm 1 --out -".split()
code = main(["run", {path!r}, *options, *{more!r}])
peak = int(re.search("VmHWM:.*?([0-9]+) kB", open("/proc/self/status").read())[1])
assert peak <= {most} * 1024, peak
raise SystemExit(code)
"""


@pytest.mark.long
@pytest.mark.parametrize("on_bad_row", ["raise", "zero"])
@pytest.mark.parametrize("kind", ["bomb", "blank lines", "line", "columns"])
def test_the_command_line_on_hostile_files(tmp_path: Path, kind: str, on_bad_row: str) -> None:
    """A gigabyte behind gzip, as one line or as blank lines; a line of a gigabyte from a pipe; a million columns."""
    path, feed, says = tmp_path / "rows.csv.gz", None, {"raise": "line 3: a record of more than", "zero": "3 rows"}
    if kind == "line":
        feed, path = line(1000), Path("-")
    elif kind == "columns":
        path = tmp_path / "wide.csv"
        row = ",".join(["0.25"] * 10**6)
        path.write_text(",".join(f"c{i}" for i in range(10**6)) + f"\n{row}\n{row}\n")
        says = dict.fromkeys(says, "Gram matrix takes at least")
    else:
        with gzip.open(path, "wb", 1) as file:
            file.write(b"a,b\n1,2\n")
            for _ in range(1000 if kind == "bomb" else 10):  # a gigabyte of blank lines takes an hour
                file.write((b"0" if kind == "bomb" else b"\n") * 2**20)
            file.write(b"\n3,4\n" if kind == "bomb" else b"3,4\n")
        if kind == "blank lines":
            says = {"raise": "line 3: 1 cell where", "zero": "10485762 rows"}
    code = COMMAND.format(path=str(path), more=["--on-bad-row", on_bad_row], most=MOST_MB)
    done = child(code, feed, timeout=1800)
    assert says[on_bad_row] in done.stderr, done.stderr[-2000:]
    assert done.returncode == (0 if says[on_bad_row].endswith(" rows") else 2)
