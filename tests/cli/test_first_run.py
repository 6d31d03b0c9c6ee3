"""A first run on a table as people have them: a subspace in at most two commands."""

import csv
import shlex
import sys

import numpy as np
import pytest

import streampca as sp
from streampca.cli import main

COMMAND = ("-k", "2", "--epsilon", "1", "--delta", "1e-6", "--seed", "1")


def write(path, *, clean=False):
    """Customers: an identifier, quoted names, dates, words, missing cells of three kinds, and incomes near 40 000."""
    rng = np.random.default_rng(5)
    wealth, age = rng.normal(size=(2, 3000))
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "name", "signed up", "age", "income", "number of visits", "city"])
        for i in range(3000):
            numbers = [round(45 + 12 * age[i]), round(40_000 * np.exp(0.4 * wealth[i]), 2), rng.poisson(4)]
            if not clean and i % 50 == 7:
                numbers[i % 3] = ("", "NA", "?")[i // 50 % 3]
            date = f"2024-{i % 12 + 1:02d}-{i % 28 + 1:02d}"
            table.writerow([i + 1, f"Smith, J. {i}", date, *numbers, ("Paris", "Rome", "")[i % 3]])
    return path


def add_what_is_missing(said):
    """The options that a refusal says to add: its last line."""
    *text, options = said.splitlines()
    assert " ".join(text).endswith("All of them, by what the first rows hold: add")
    return shlex.split(options)


@pytest.mark.parametrize("command", [("run",), ("release", "--mechanism", "gaussian")])
@pytest.mark.parametrize("scale", [(), ("--bounds", "0:100000")])
def test_a_realistic_table_needs_two_commands(tmp_path, capsys, monkeypatch, scale, command):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    table, out = write(tmp_path / "customers.csv"), tmp_path / "releases.jsonl"
    argv = [*command, str(table), *COMMAND, *scale, "--out", str(out)]
    assert main(argv) == 2
    assert list(tmp_path.iterdir()) == [table]
    added = add_what_is_missing(capsys.readouterr().err)
    wanted = ["--columns", "age,income,number of visits", "--on-bad-row", "zero"]
    assert added == [*wanted, *(() if scale else ("--bounds", "private"))]
    assert main([*argv, *added]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    for words in ("number of visits", "±", "Components above the noise", "missing value", "2.72 times"):
        assert words in shown, words
    last = list(sp.read_releases(out))[-1]
    assert last.features == ("age", "income", "number of visits")
    assert last.subspace.basis.shape == (3, 2)


def test_only_what_is_missing_is_asked_for(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    table = write(tmp_path / "customers.csv", clean=True)
    argv = ["run", str(table), *COMMAND, "--out", str(tmp_path / "r.jsonl"), "--columns", "age,income"]
    assert main(argv) == 2
    assert add_what_is_missing(capsys.readouterr().err) == ["--bounds", "private"]
    table.write_text("a,b\n1,2\n3,4\n")
    assert main(["run", str(table), *COMMAND, "--out", str(tmp_path / "r.jsonl")]) == 2
    assert add_what_is_missing(capsys.readouterr().err) == ["--bounds", "private"]


def test_no_cell_decides_what_a_log_proposes(tmp_path, capsys):
    said = []
    for cell in ("1", "x"):
        table = tmp_path / "rows.csv"
        table.write_text(f"a,b,note\n1,2,1\n3,4,x\n5,6,{cell}\n")
        assert main(["run", str(table), *COMMAND, "--on-bad-row", "zero", "--out", str(tmp_path / "r.jsonl")]) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]


def test_nothing_is_suggested_once_something_was_released(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    table = tmp_path / "late.csv"
    table.write_text("a,b\n" + "1,2\n" * 150 + "1,\n")
    assert main(["run", str(table), *COMMAND, "--row-norm", "3", "--out", str(tmp_path / "r.jsonl")]) == 2
    assert "All of them" not in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"a,b\n1,2\n" + b"9" * 3_000_000, b"", b"\x00\xff\n\xfe", b'"a', b"PAR1\x00\n\n"])
def test_files_that_are_no_tables_are_refused_without_a_suggestion_that_fails(tmp_path, capsys, monkeypatch, content):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "9999")  # no line is broken, but for the options
    table = tmp_path / "rows.csv"
    table.write_bytes(content)
    assert main(["run", str(table), *COMMAND, "--out", str(tmp_path / "r.jsonl")]) == 2
    assert len(capsys.readouterr().err.splitlines()) <= 2


def test_options_to_be_copied_are_not_broken_in_a_terminal(tmp_path, capsys, monkeypatch):
    table = tmp_path / "rows.csv"
    table.write_text("weight at the last visit (kg),height at the first visit (cm),date\n70.5,180,2024-01-31\n")
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["run", str(table), *COMMAND, "--out", str(tmp_path / "r.jsonl")]) == 2
    *text, options = capsys.readouterr().err.splitlines()
    assert max(map(len, text)) <= 60
    wanted = ["--columns", "weight at the last visit (kg),height at the first visit (cm)", "--bounds", "private"]
    assert shlex.split(options) == wanted
