"""A first run on a table as people have them: a subspace in at most two commands."""

import csv
import shlex

import numpy as np
import pytest

import streampca as sp

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


def proposed(said):
    """The options that a refusal proposes: its last line."""
    *text, options = said.err.splitlines()
    assert said.status == 2
    assert " ".join(text).endswith("All of them, by what the first rows hold: add")
    return shlex.split(options)


@pytest.fixture
def run(command, tmp_path):
    return lambda table, *more: command("run", table, *COMMAND, "--out", tmp_path / "r.jsonl", *more)


@pytest.mark.parametrize(
    ("words", "scale"), [(("run",), ()), (("release", "--mechanism", "gaussian"), ("--bounds", "0:100000"))]
)
def test_a_realistic_table_needs_two_commands(tmp_path, command, terminal, scale, words):
    table, out = write(tmp_path / "customers.csv"), tmp_path / "releases.jsonl"
    argv = [*words, table, *COMMAND, *scale, "--out", out]
    added = proposed(command(*argv))
    assert list(tmp_path.iterdir()) == [table]
    wanted = ["--columns", "age,income,number of visits", "--on-bad-row", "zero"]
    assert added == [*wanted, *(() if scale else ("--bounds", "private"))]
    said = command(*argv, *added)
    assert said.status == 0
    for part in ("number of visits", "±", "Components that stand out", "missing value", "2.72 times"):
        assert part in said.words, part
    last = list(sp.read_releases(out))[-1]
    assert last.features == ("age", "income", "number of visits")
    assert last.subspace.basis.shape == (3, 2)


def test_only_what_is_missing_is_asked_for(tmp_path, run, terminal):
    table = write(tmp_path / "customers.csv", clean=True)
    assert proposed(run(table, "--columns", "age,income")) == ["--bounds", "private"]
    table.write_text("a,b\n1,2\n3,4\n")
    assert proposed(run(table)) == ["--bounds", "private"]


def test_no_cell_decides_what_a_log_proposes(tmp_path, run):
    table, logs = tmp_path / "rows.csv", []
    for cell in ("1", "x"):
        table.write_text(f"a,b,note\n1,2,1\n3,4,x\n5,6,{cell}\n")
        logs.append(run(table, "--on-bad-row", "zero"))
    assert logs[0] == logs[1]
    assert logs[0].status == 2


def test_nothing_is_suggested_once_something_was_released(tmp_path, run, terminal):
    table = tmp_path / "late.csv"
    table.write_text("a,b\n" + "1,2\n" * 150 + "1,\n")
    said = run(table, "--row-norm", "3")
    assert (said.status, "All of them" in said.err) == (2, False)


@pytest.mark.parametrize("content", [b"a,b\n1,2\n" + b"9" * 3_000_000, b"", b"\x00\xff\n\xfe", b'"a', b"PAR1\x00\n\n"])
def test_files_that_are_no_tables_are_refused_without_a_suggestion_that_fails(
    tmp_path, run, terminal, monkeypatch, content
):
    monkeypatch.setenv("COLUMNS", "9999")  # no line is broken, but for the options
    table = tmp_path / "rows.csv"
    table.write_bytes(content)
    said = run(table)
    assert (said.status, len(said.err.splitlines()) <= 2) == (2, True)


def test_options_to_be_copied_are_not_broken_in_a_terminal(tmp_path, run, terminal, monkeypatch):
    table = tmp_path / "rows.csv"
    table.write_text("weight at the last visit (kg),height at the first visit (cm),date\n70.5,180,2024-01-31\n")
    monkeypatch.setenv("COLUMNS", "60")
    said = run(table)
    assert max(map(len, said.err.splitlines()[:-1])) <= 60
    wanted = ["--columns", "weight at the last visit (kg),height at the first visit (cm)", "--bounds", "private"]
    assert proposed(said) == wanted
