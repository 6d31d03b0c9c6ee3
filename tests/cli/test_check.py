"""``streampca check``: 80 columns, status 0 whatever the rows hold, and a command that runs once it is filled in."""

import json
import os
import shlex
from pathlib import Path

import numpy as np
import pytest

import streampca as sp

MARK = "CURATOR ONLY - nothing spent"


def lines_of(*, seed=0, rows=300):
    rng = np.random.default_rng(seed)
    lines = ["patient_id,visit_date,sex,age,weight kg,systolic,glucose"]
    for i in range(rows):
        age, weight, systolic, glucose = rng.normal([50, 75, 130, 5], [12, 9, 15, 1]).round(1)
        cells = [f"P{i}", f"2024-03-{i % 28 + 1:02d}", "fm"[i % 2], age, weight, systolic, glucose]
        if i % 50 == 7:
            cells[3 + i // 50 % 4] = ("", "-", "NA", "inf")[i // 50 % 4]
        lines.append(",".join(map(str, cells)))
    return lines


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "clinic.csv"
    path.write_text("\n".join(lines_of()) + "\n")
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def proposed(said):
    """The words of the last command that is proposed."""
    command = said.out.replace("\\\n", " ").rstrip().splitlines()[-1]
    program, *words = shlex.split(command)
    assert program == "streampca"
    return words


def test_the_report_of_a_table(folder, table, command):
    said = command("check", "clinic.csv", "--epsilon", 1)
    assert (said.status, said.err) == (0, "")
    shown, _, command_lines = said.out.partition("streampca pca")
    assert (
        shown
        == f"""\
{MARK:>80}
300 rows, 7 columns; 294 rows complete in the 4 columns used
column       type missing   not a number
age        number    0.7%              –
weight kg  number       –       0.7% '-'
systolic   number    0.3%              –
glucose    number       –  0.3% infinite
left out: patient_id (looks like an identifier), visit_date, sex (text)
6 rows (2.0%) are incomplete and would count for nothing. Cells that are missing
can be filled: --on-missing cell.
One release at (1, 1e-06): noise of standard deviation 4.753; the planner
expects 78.2% to 100.0% of what 2 components can capture, by the spectrum.
The guarantee is for one row: where patient_id repeats, a person with m rows has
m times its mu. Keep one row of each, or divide the budget.
No range is taken from these rows: that would not be private. Fill in from the
data dictionary:
"""
    )
    assert command_lines.endswith("'age=LOW:HIGH,weight kg=LOW:HIGH,systolic=LOW:HIGH,glucose=LOW:HIGH'\n")
    assert [*folder.iterdir()] == [table]


@pytest.mark.parametrize("more", [(), ("--row-norm", 200), ("--bounds", "0:100"), ("--bounds", "private")])
def test_the_proposed_command_runs_once_it_is_filled_in(folder, table, command, more):
    said = command("check", "clinic.csv", "-k", 1, "--epsilon", 2, *more)
    words = [word.replace("LOW:HIGH", "0:200") for word in proposed(said)]
    done = command(*words, "--seed", 1)
    assert done.status == 0, done.err
    (release,) = sp.read_releases("release.jsonl")
    assert release.features == ("age", "weight kg", "systolic", "glucose")
    assert (release.t, release.n_components, release.guarantee.epsilon) == (300, 1, 2.0)


def test_settings_of_reading_are_repeated_in_the_command(folder, command):
    rows = "\n".join(["1;2;x", *["3;4;?"] * 30])
    Path("rows.txt").write_text(rows)
    read = ("--read", "delimiter=;", "--read", "names=a b,c,d", "--read", "header=no", "--read", "na=?")
    said = command("check", "rows.txt", *read, "--columns", "2,a b")
    words = [word.replace("LOW:HIGH", "0:9") for word in proposed(said)]
    assert command(*words).status == 0
    (release,) = sp.read_releases("release.jsonl")
    assert (release.features, release.t) == (("c", "a b"), 31)


def test_names_that_the_command_line_cannot_spell_are_positions(folder, command):
    Path("rows.csv").write_text('"a,b",note,"c=d"\n' + "1,x,2\n" * 30)
    said = command("check", "rows.csv")
    first = said.out.splitlines()[-4:]
    assert "streampca check rows.csv --write-bounds ranges.json" in first
    assert command("check", "rows.csv", "--write-bounds", "ranges.json").status == 0
    empty = json.loads(Path("ranges.json").read_text())
    assert empty == {"a,b": [None, None], "c=d": [None, None]}
    words = proposed(said)
    unfilled = command(*words)
    assert (unfilled.status, "fill in the ranges of 'a,b', 'c=d'" in unfilled.err) == (2, True)
    Path("ranges.json").write_text(json.dumps({name: [0, 5] for name in empty}))
    assert command(*words).status == 0
    assert next(iter(sp.read_releases("release.jsonl"))).features == ("a,b", "c=d")


def test_one_column_is_enough(folder, command):
    Path("rows.csv").write_text("a,note\n" + "1,x\n2,y\n" * 30)
    said = command("check", "rows.csv")
    assert "fewer columns of numbers, 1, than components, 2" in said.out
    assert command(*[word.replace("LOW:HIGH", "0:9") for word in proposed(said)]).status == 0


def test_many_columns_fill_a_file(folder, command):
    names = [f"m{j:02d}" for j in range(30)]
    Path("rows.csv").write_text("\n".join([",".join(names), *[",".join(["1.5"] * 30)] * 9]))
    said = command("check", "rows.csv")
    assert "--bounds ranges.json" in said.out
    assert "No range is taken from these rows" in said.out
    assert max(map(len, said.out.partition("No range")[0].splitlines())) <= 80


def test_write_bounds_overwrites_nothing(folder, table, command):
    Path("ranges.json").write_text("mine")
    said = command("check", "clinic.csv", "--write-bounds", "ranges.json")
    assert (said.status, said.out) == (2, "")
    assert Path("ranges.json").read_text() == "mine"
    assert command("check", "clinic.csv", "--write-bounds", "clinic.csv", "--force").status == 2
    assert command("check", "clinic.csv", "--write-bounds", "ranges.json", "--force").status == 0
    assert "--bounds ranges.json" in command("check", "clinic.csv", "--write-bounds", "ranges.json", "--force").out
    Path("text.csv").write_text("a,b\nx,y\n")
    assert command("check", "text.csv", "--write-bounds", "none.json").status == 0
    assert not Path("none.json").exists()


BAD = ["", "x", "1e999", '"a\nb"', '"a""b"', '"a"b', "\x00", "\udcff", "1,2", "9" * 2_000_000, '"open']


@pytest.mark.parametrize("cell", BAD, ids=range(len(BAD)))
def test_the_exit_status_is_zero_whatever_the_rows_hold(folder, command, cell):
    neighbors = []
    for one in ("1", cell):
        lines = ["a,b,c", *["1,2,3"] * 40, f"4,{one},6", *["7,8,9"] * 40]
        Path("rows.csv").write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
        neighbors.append(command("check", "rows.csv", "--epsilon", 1, "--row-norm", 9))
        assert (neighbors[-1].status, neighbors[-1].err) == (0, "")
        assert sorted(path.name for path in folder.iterdir()) == ["rows.csv"]
    one, other = (said.out.partition("streampca pca")[2] for said in neighbors)
    assert one == other
    assert neighbors[0].out != neighbors[1].out


@pytest.mark.parametrize("rows", ["a,b\n,\nx,\n", "a,b\n1\n1,2,3\n"])
def test_tables_that_hold_nothing(folder, command, rows):
    Path("rows.csv").write_text(rows)
    said = command("check", "rows.csv", "--epsilon", 1)
    assert (said.status, said.err) == (0, "")
    assert "none holds numbers" in said.out
    assert "streampca pca" not in said.out


def test_a_named_pipe_is_refused_without_waiting(folder, command):
    os.mkfifo("rows.csv")
    said = command("check", "rows.csv")
    assert (said.status, "a pipe, a topic or a generator can be read only once" in said.err) == (2, True)


def test_other_mechanisms_have_no_prediction(folder, table, command):
    said = command("check", "clinic.csv", "--epsilon", 1, "--mechanism", "matrix-laplace")
    assert said.status == 0
    assert "noise of standard deviation" not in said.out
    assert "--delta" not in said.out


def test_people_are_counted_and_the_command_protects_them(folder, command):
    rows = np.random.default_rng(0).normal(size=(60, 2)).round(3).tolist()
    path = folder / "visits.csv"
    path.write_text("a,b,who,ward\n" + "".join(f"{a},{b},{i % 5},w{i % 2}\n" for i, (a, b) in enumerate(rows)))
    said = command("check", path, "--unit", "who,ward", "--columns", "a,b", "--bounds", "-4:4")
    assert said.status == 0
    assert "10 people have complete rows, 6 in the median and 6 at most" in " ".join(said.out.split())
    assert command(*proposed(said), "--delta", "1e-6").status == 0
    (release,) = sp.read_releases("release.jsonl")
    assert release.terms.guarantee.unit == "one person"
