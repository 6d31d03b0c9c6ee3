"""Runs that protect people on the command line."""

import json
import sqlite3
from contextlib import closing

import numpy as np
import pytest

import streampca as sp
from streampca.sources import from_csv, from_query, open_rows

RUN = ["-k", "1", "--epsilon", "1", "--row-norm", "1", "--columns", "a,b", "--no-live", "--release-every", "50"]
ROWS = np.random.default_rng(3).normal(size=(400, 2)) / 3.0
NAMES = [f"p{i % 23}" for i in range(400)]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.csv"
    lines = [f"{name},{a:.3f},{b:.3f}" for name, (a, b) in zip(NAMES, ROWS, strict=True)]
    path.write_text("\n".join(["who,a,b", *lines, ""]))
    return path


def releases(path):
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def test_a_run_weights_the_rows_of_each_person(table, command):
    out = table.with_name("out.jsonl")
    words = ["--unit", "who", "--set", "unit.budget=2", "--set", "unit.max_rows=9", "--set", "unit.name=device"]
    said = command("run", table, *RUN, *words, "--out", out, "--seed", 1)
    assert said.status == 0, said.err
    unit = sp.Person(column="who", budget=2.0, max_rows=9, name="device")
    stream = sp.Stream(
        sp.PrivateFPL(n_components=1, epsilon=1.0, horizon=400, release_every=50, unit=unit), row_norm=1.0, seed=1
    )
    rows = from_csv(table, columns=["a", "b"])
    assert [json.loads(s.release.to_json(terms=False)) for s in stream.run(rows) if s.release] == releases(out)
    assert stream.admission.people == 23
    assert "device" in said.err


def test_the_column_of_people_is_no_feature(table, command):
    out = table.with_name("out.jsonl")
    words = [*RUN, "--unit", "who", "--out", out, "--seed", 1]
    words[words.index("a,b")] = "all"
    said = command("run", table, *words)
    assert said.status == 0, said.err
    assert json.loads(out.read_text().splitlines()[0])["features"] == ["a", "b"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--unit", "nobody"], "no column 'nobody'"),
        (["--unit", "a"], "--columns a: it holds people or times, and is no feature"),
        (["--unit", "who,who"], "unit.column"),
        (["--set", "unit.budget=2"], "--set unit.budget: it goes with --unit"),
        (["--unit", "who", "--set", "unit.budgets=2"], "there is no such key; use"),
        (["--unit", "who", "--algorithm", "private-oja", "--set", "clip=x"], "clip"),
        (["--unit", "who", "--algorithm", "private-oja", "--set", "clip=.5"], "clip=0.5"),
        (["--unit", "who", "--set", "unit.budget=0"], "--set unit.budget=0.0: expected a number of full rows"),
        (
            ["--unit", "who", "--algorithm", "sketch"],
            "--unit: PrivateSketch cannot protect people; those that can are GaussianCovariance, PrivateFPL",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(words, message, table, command):
    out = table.with_name("out.jsonl")
    said = command("run", table, *RUN, *words, "--out", out)
    assert said.status in (2, 3), said.err
    assert message in said.words, said.err
    assert not out.exists()


@pytest.mark.parametrize("stop", [60, 217])
def test_a_run_with_private_bounds_resumes_where_it_was(table, command, stop):
    store, whole = table.with_name("run.db"), table.with_name("whole.jsonl")
    words = [word for word in RUN if word not in ("--row-norm", "1")] + ["--horizon", 400, "--seed", 1, "--unit", "who"]
    words = ["-k", 1, "--epsilon", 1, *words[2:], "--bounds", "private", "--set", "bounds.warmup=101"]
    lines = table.read_text().splitlines()
    lines[1:] = [f"{i % 150},{line.partition(',')[2]}" for i, line in enumerate(lines[1:])]
    table.write_text("\n".join([*lines, ""]))
    said = command("run", table, *words, "--out", whole)
    assert said.status == 0, said.err
    table.write_text("\n".join([*lines[:stop], ""]))
    assert command("run", table, *words, "--store", store, "--out", table.with_name("o")).status == 0
    other = [lines[0], lines[1].replace("0,", "1,", 1), *lines[2:]]
    if stop > 200:  # the second vote was p0's, who now counts later
        table.write_text("\n".join([*other, ""]))
        assert "are not the rows that the run has taken" in command("resume", store, "--no-live").words
    table.write_text("\n".join([*lines, ""]))
    said = command("resume", store, "--no-live")
    assert said.status == 0, said.err
    assert command("export", store, "--out", table.with_name("all.jsonl")).status == 0
    assert releases(table.with_name("all.jsonl")) == releases(whole)


@pytest.mark.parametrize("pattern", [False, True])
def test_a_resumed_run_continues_at_its_row_and_compares_the_ones_before(table, command, pattern):
    store, whole, source = table.with_name("run.db"), table.with_name("whole.jsonl"), table
    assert command("run", table, *RUN, "--unit", "who", "--horizon", 400, "--seed", 1, "--out", whole).status == 0
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[:217], ""]))
    if pattern:
        source = table.with_name("row?.csv")
    begin = [*RUN, "--unit", "who", "--horizon", 400, "--seed", 1, "--store", store, "--out", table.with_name("o")]
    assert command("run", source, *begin).status == 0
    # Other rows, or rows of other people: neither are those of the run.
    other = [lines[0], lines[1].replace("p0,", "p1,"), *lines[2:]]
    table.write_text("\n".join([*other, ""]))
    said = command("resume", store, "--no-live")
    assert "the first 216 rows of the file are not the rows that the run has taken" in said.words
    moved = table.with_name("rowz.csv") if pattern else table.with_name("moved.csv")
    table.unlink()
    moved.write_text("\n".join([*lines, ""]))
    said = command("resume", store, *([] if pattern else [moved]), "--no-live")
    assert said.status == 0, said.err
    assert "184 rows more, 400 in all" in said.err
    assert command("export", store, "--out", table.with_name("all.jsonl")).status == 0
    assert releases(table.with_name("all.jsonl")) == releases(whole)


def test_a_file_that_continues_has_new_rows_of_the_same_people(table, command):
    store, second = table.with_name("run.db"), table.with_name("second.csv")
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[:201], ""]))
    second.write_text("\n".join([lines[0], *lines[201:], ""]))
    begin = [*RUN, "--unit", "who", "--horizon", 400, "--seed", 1]
    assert command("run", table, *begin, "--store", store, "--out", table.with_name("o")).status == 0
    assert command("resume", store, second, "--continues", "--no-live").status == 0
    assert command("export", store, "--out", table.with_name("all.jsonl")).status == 0
    table.write_text("\n".join([*lines, ""]))
    assert command("run", table, *begin, "--out", table.with_name("whole.jsonl")).status == 0
    assert releases(table.with_name("all.jsonl")) == releases(table.with_name("whole.jsonl"))


def test_people_of_a_query_resume_at_its_cursor(table, command):
    path = table.with_name("rows.db")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, who TEXT, a REAL, b REAL)")
        named = zip(range(400), NAMES, ROWS.tolist(), strict=True)
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", [(i, name, *row) for i, name, row in named])
    address, store = f"sqlite:///{path}", table.with_name("run.db")
    words = [*RUN, "--unit", "who", "--horizon", 400, "--seed", 1, "--read", "cursor=id", "--read"]
    del words[words.index("--columns") : words.index("--columns") + 2]
    some = [*words, "query=SELECT * FROM t"]
    assert command("run", address, *some, "--store", store, "--out", table.with_name("o")).status == 0
    unit = sp.Person(column="who")
    algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, horizon=400, release_every=50, unit=unit)
    stream = sp.Stream(algorithm, row_norm=1.0, seed=1, features=["a", "b"])
    expected = [json.loads(s.release.to_json(terms=False)) for s in stream.push_many(ROWS, NAMES) if s.release]
    assert command("export", store, "--out", table.with_name("all.jsonl")).status == 0
    assert releases(table.with_name("all.jsonl")) == expected
    # From Python, with another page and a resume in the middle of one.
    again = table.with_name("again.db")
    source = from_query(address, "SELECT * FROM t", "id", columns=["a", "b"], chunk_rows=70)
    with sp.Store(again) as database:
        run = sp.Stream(algorithm, row_norm=1.0, seed=1, store=database)
        rows = run.run(source)
        [next(rows) for _ in range(130)]
        rows.close()
        run.close()
    with sp.Store(again) as database:
        run = sp.Stream.resume(database)
        assert 0 < run.t < 400
        list(run.run(source))
        assert run.release.to_json(terms=False) == stream.release.to_json(terms=False)
        assert run.admission == stream.admission


def test_a_feature_is_no_person(table):
    stream = sp.Stream(sp.PrivateFPL(n_components=1, epsilon=1.0, unit=sp.Person(column="who")), row_norm=1.0)
    with pytest.raises(sp.errors.UsageError, match=r"who holds people or times.*columns="):
        list(stream.run(open_rows(table, columns=["who", "a"])))
    list(stream.run(open_rows(table, columns="all", beside=["who"])))
    assert stream.features == ("a", "b")


def test_an_endless_run_says_that_budgets_are_spent_for_good(table, command):
    words = [*RUN, "--unit", "who", "--set", "unit.name=device", "--out", table.with_name("o")]
    said = command("run", table, *words, "--store", table.with_name("run.db"))
    assert "the budget of a device is spent for good" in said.words
    said = command("run", table, *words, "--force")
    assert "spent for good" not in said.words


@pytest.mark.parametrize(
    ("words", "how"),
    [
        (["--row-norm", "1"], {"row_norm": 1.0}),
        (["--bounds", "a=-1:1,b=-2:2", "--mechanism", "gaussian"], {"bounds": {"a": (-1.0, 1.0), "b": (-2.0, 2.0)}}),
        (["--bounds", "private", "--set", "bounds.warmup=101"], None),
    ],
)
def test_one_release_of_people_is_that_of_python(words, how, table, command):
    out, book = table.with_name("r.jsonl"), table.with_name("book.db")
    assert command("ledger", "budget", book, "t", "--epsilon", 1, "--unit", "one device").status == 0
    words = ["-k", "1", "--epsilon", "1", "--columns", "a,b", "--unit", "who", "--seed", "1", "--out", out, *words]
    words += ["--set", "unit.budget=2", "--set", "unit.name=device", "--ledger", book, "--data-set", "t"]
    said = command("pca", table, *words)
    assert said.status == 0, said.err
    assert "(1, 1e-06)-DP for one device" in said.err
    (made,) = sp.read_releases(out)
    unit = sp.Person(column="who", budget=2.0, name="device")
    if how is None:
        algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, horizon=400, release_every=400, unit=unit)
        stream = sp.Stream(algorithm, bounds="private", warmup=101, features=["a", "b"], seed=1)
        stream.push_many(ROWS.round(3), NAMES)
        assert stream.release.to_json() == made.to_json()
    else:
        assert made.to_json() == sp.pca(table, 1, 1.0, columns=["a", "b"], seed=1, unit=unit, **how).to_json()
    assert "has spent epsilon=1 of 1" in command("pca", table, *words, "--force").words


def test_the_curator_is_told_of_the_rows_of_one_release(table, command, terminal):
    table.write_text(table.read_text() + ",1,1\np1,,1\n")
    words = ["-k", ".5", "--epsilon", "9", "--row-norm", ".1", "--columns", "a,b", "--unit", "who", "--out", "-"]
    said = command("pca", table, *words, "--set", "units.a=mi")
    assert said.status == 0, said.err
    assert said.out.count("\n") == 2
    assert " mi" in said.err
    assert "curator only: unusable 2 rows (1 missing value, 1 no person)" in said.words
    assert "curator only" not in command("pca", table, *words, "--quiet").err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--unit", "who", "--mechanism", "adaptive"], "--unit: AdaptiveCovariance cannot protect people; those that"),
        (["--unit", "who", "--set", "unit.period=1d"], "--set unit.period: one release has no periods"),
        (["--set", "unit.budget=2"], "--set unit.budget: it goes with --unit"),
        (["--unit", "a"], "--columns a: it holds people or times, and is no feature"),
    ],
)
def test_what_one_release_of_people_refuses(words, message, table, command):
    out = table.with_name("out.jsonl")
    said = command("pca", table, "-k", 1, "--epsilon", 1, "--row-norm", 1, "--columns", "a,b", *words, "--out", out)
    assert (said.status, out.exists()) == (2, False)
    assert message in said.words
