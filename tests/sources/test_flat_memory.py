"""Hostile files do not fill memory: a child process reads them within a limit."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")

#: Most resident memory of the child, its imports included. getrusage would count the parent's.
MOST_MB = 300
CHILD = """
import re
import numpy as np
from streampca.errors import SourceError
from streampca.sources import open_rows
rows, bad, said = 0, 0, ""
try:
    for block in open_rows({path!r}, **{options!r}).blocks():
        rows += len(block)
        bad += int(np.isnan(block).any(axis=1).sum())
except SourceError as error:
    said = str(error)[:200]
peak = int(re.search("VmHWM:.*?([0-9]+) kB", open("/proc/self/status").read())[1]) // 1024
print(rows, bad, peak, said)
"""


def read(path: object, options: dict[str, object], feed: list[str] | None = None) -> tuple[int, int, str]:
    """Read in a child, from the standard output of a second one with this program; return rows, bad ones, the error."""
    code = CHILD.format(path=str(path), options=options)
    writer = None if feed is None else subprocess.Popen([sys.executable, "-c", *feed], stdout=subprocess.PIPE)
    done = subprocess.run(
        [sys.executable, "-c", code], stdin=None if writer is None else writer.stdout, capture_output=True, text=True,
        check=False, timeout=600,
    )  # fmt: skip
    if writer is not None:
        assert writer.stdout is not None
        writer.stdout.close()
        writer.wait()
    assert done.returncode == 0, done.stderr
    rows, bad, megabytes, *said = done.stdout.strip().split(" ", 3)
    assert int(megabytes) <= MOST_MB, done.stdout
    return int(rows), int(bad), said[0] if said else ""


def line(megabytes: int, start: str = "", text: str = "1", end: str = "") -> list[str]:
    # A program that writes three rows, the second of this size.
    return [
        f"import sys; w = sys.stdout.write; w('a,b\\n1,2\\n' + {start!r}); "
        f"[w({text!r} * 2**18) for _ in range({4 * megabytes // len(text)})]; w({end!r} + ',1\\n3,4\\n')"
    ]


@pytest.mark.parametrize("megabytes", [40, pytest.param(1000, marks=pytest.mark.long)])
@pytest.mark.parametrize("quotes", [pytest.param(("", "1", ""), marks=pytest.mark.ci), ('"', '1""\n,', '"')])
def test_a_long_record_through_a_pipe_is_one_bad_row(megabytes: int, quotes: tuple[str, str, str]) -> None:
    assert read("-", {"columns": "all"}, line(megabytes, *quotes)) == (3, 1, "")


@pytest.mark.parametrize(("letter", "times", "rows"), [(b"0", 800, 3), (b"\n", 1, 2**18 + 2)])
def test_a_bomb(tmp_path: Path, letter: bytes, times: int, rows: int) -> None:
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(b"a,b\n1,2\n")
        for _ in range(times):
            file.write(letter * 2**18)
        file.write(b"\n3,4\n" if letter != b"\n" else b"3,4\n")
    assert read(path, {"columns": "all"}) == (rows, rows - 2, "")


@pytest.mark.parametrize("columns", [pytest.param("all", marks=pytest.mark.ci), ["c7", "c499999"]])
def test_half_a_million_columns(tmp_path: Path, columns: object) -> None:
    path, row, width = tmp_path / "wide.csv", ",".join(["0.25"] * 500_000), 500_000
    path.write_text(",".join(f"c{i}" for i in range(width)) + f"\n{row}\n{row}\n")
    assert read(path, {"columns": columns}) == (2, 0, "")
