import json
import sys

import numpy as np
import pytest

import streampca as sp
from streampca import read_releases
from streampca.cli import main
from streampca.cli.algorithms import MECHANISMS
from streampca.store.ledger import Ledger

BUDGET = ["-k", "2", "--epsilon", "1", "--delta", "1e-5"]
PURE = ["-k", "2", "--epsilon", "1"]


@pytest.fixture
def table(tmp_path):
    data = np.random.default_rng(1).integers(-40, 40, size=(300, 2)) @ [[2, 1, 0, -1], [0, 1, 3, 1]]
    path = tmp_path / "rows.csv"
    np.savetxt(path, data, delimiter=",", header="a,b,c,d", comments="", fmt="%d")
    return path


def release(table, mechanism, *more):
    out = str(table.with_name("r.jsonl"))
    return main(["release", str(table), "--mechanism", mechanism, "--row-norm", "256", "--out", out, *more])


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "LaplaceCovariance"])
def test_every_mechanism_writes_what_run_writes(mechanism, table, capsys):
    budget = PURE if "laplace" in mechanism.lower() else [*BUDGET[:3], "5", *BUDGET[4:]]
    assert release(table, mechanism, *budget, "--seed", "3") == 0
    (made,) = read_releases(table.with_name("r.jsonl"))
    assert (made.t, made.row_norm, made.features) == (300, 256.0, ("a", "b", "c", "d"))
    assert json.loads(table.with_name("r.jsonl").read_text().splitlines()[0])["parameters"]["processor"] == "Tumbling"
    said = capsys.readouterr().err
    assert f"({made.guarantee.epsilon:g}, {made.guarantee.delta:g})-DP for one row" in said
    blocks = str(table.with_name("blocks.jsonl"))
    asked = ["run", str(table), "--algorithm", "tumbling", "--set", f"mechanism={mechanism}", *budget]
    assert main([*asked, "--release-every", "300", "--row-norm", "256", "--seed", "3", "--out", blocks]) == 0
    assert [one.to_json() for one in read_releases(blocks)] == [made.to_json()]
    rows = np.loadtxt(table, delimiter=",", skiprows=1)
    if mechanism == "exact-subspace":  # the rows lie in a plane
        assert made.subspace.captured(rows.T @ rows) == pytest.approx(np.sum(rows**2), rel=1e-9)
    else:
        kind = getattr(sp, MECHANISMS[mechanism]) if mechanism in MECHANISMS else sp.papers.LaplaceCovariance
        known = {"n_components": 2, "epsilon": made.guarantee.epsilon}
        known |= {} if budget is PURE else {"delta": 1e-5}
        stream = sp.Stream(
            sp.Tumbling(kind(**known), release_every=300), row_norm=256.0, features=tuple("abcd"), seed=3,
            center=mechanism == "gaussian",
        )  # fmt: skip
        expected = stream.push_many(rows).releases[0]
        np.testing.assert_array_equal(made.subspace.basis, expected.subspace.basis)


def test_a_bad_row_costs_nothing_and_may_be_zeroed(table, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    book = table.with_name("book.db")
    with Ledger(book) as ledger:
        ledger.set_budget("t", sp.Budget(2.0, 1e-3))
    paid = ["--ledger", str(book), "--data-set", "t"]
    table.write_text(table.read_text() + "1,,3,4\n")
    assert release(table, "gaussian", *BUDGET, *paid) == 2
    assert "line 302" in " ".join(capsys.readouterr().err.split())
    assert not table.with_name("r.jsonl").exists()
    assert release(table, "gaussian", *BUDGET, *paid, "--on-bad-row", "zero") == 0
    assert "count as zero rows (1 missing value)" in " ".join(capsys.readouterr().err.split())
    with Ledger.existing(book) as ledger:
        assert len(ledger.balance("t").entries) == 1
    assert release(table, "gaussian", *BUDGET, *paid, "--on-bad-row", "zero") == 2  # the file exists: nothing is paid
    with Ledger.existing(book) as ledger:
        assert len(ledger.balance("t").entries) == 1
    more = [*paid, "--on-bad-row", "zero", "--force"]
    assert release(table, "gaussian", "-k", "2", "--epsilon", "3", "--delta", "1e-5", *more) == 2
    assert "has spent epsilon=0.6432 of 2" in capsys.readouterr().err


def test_blocks_are_released_by_run(table):
    out = table.with_name("r.jsonl")
    asked = ["run", str(table), *BUDGET, "--algorithm", "tumbling", "--set", "mechanism=adaptive"]
    asked += ["--release-every", "100"]
    assert main([*asked, "--row-norm", "256", "--out", str(out)]) == 0
    assert [made.t for made in read_releases(out)] == [100, 200, 300]


@pytest.mark.parametrize("command", [["release"], ["run", "--algorithm", "tumbling", "--release-every", "300"]])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_a_mechanism_does_not_take_is_refused(mechanism, command, table, capsys):
    made = ["--set", f"mechanism={mechanism}"] if command[0] == "run" else ["--mechanism", mechanism]
    common = [command[0], str(table), *command[1:], *made, "--row-norm", "256"]
    out = ["--out", str(table.with_name("r.jsonl"))]
    pure = mechanism in ("laplace", "matrix-laplace", "adaptive-laplace")
    assert main([*common, *(BUDGET if pure else PURE), *out]) == 2
    assert ("takes no such parameter" if pure else "needs --delta") in capsys.readouterr().err
    budget = PURE if pure else BUDGET
    assert main([*common, *budget, "--center", *out]) == (0 if mechanism == "gaussian" else 2)
    assert mechanism == "gaussian" or "expected GaussianCovariance" in capsys.readouterr().err
    assert main([*common, *budget, "--set", "colour=3", *out, "--force"]) == 2
    assert "colour" in capsys.readouterr().err
    assert main([*common[:-1], "-1", *budget, *out, "--force"]) == 2
    assert "--row-norm -1" in capsys.readouterr().err


def test_auto_takes_what_has_less_noise_for_the_number_of_features(table, capsys):
    assert release(table, "auto", *BUDGET) == 0
    assert next(read_releases(table.with_name("r.jsonl"))).details["mechanism"] == "AdaptiveLaplaceCovariance"
    assert (
        release(table, "auto", "-k", "2", "--epsilon", "0.1", "--delta", "1e-5", "--adjacency", "replace", "--force")
        == 0
    )
    assert next(read_releases(table.with_name("r.jsonl"))).details["mechanism"] == "AdaptiveCovariance"
    assert release(table, "auto", *PURE, "--force") == 2
    assert "needs --delta" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["release", "--mechanism", "nope", *BUDGET], "--mechanism nope"),
        (
            ["release", "--mechanism", "matrix-laplace", *BUDGET],
            "--delta: MatrixLaplaceCovariance takes no such parameter",
        ),
        (["release", "--mechanism", "gaussian", *PURE], "GaussianCovariance needs --delta"),
        (["release", "--mechanism", "gaussian"], "GaussianCovariance needs -k, --epsilon, --delta"),
        (
            ["release", "--mechanism", "gaussian", *BUDGET, "--row-norm", "1", "--ledger", "x.db"],
            "--ledger and --data-set",
        ),
        (["release", "--mechanism", "gaussian", *BUDGET], "the scale of the columns is not known"),
        (["run", "--set", "mechanism=gaussian", *BUDGET], "--set mechanism: PrivateFPL takes no such parameter"),
        (
            ["run", "--algorithm", "tumbling", "--set", "mechanism=gaussian", *BUDGET],
            "Tumbling needs --release-every",
        ),
    ],
)
def test_bad_options_cost_one_line(asked, message, table, capsys):
    assert main([asked[0], str(table), *asked[1:], "--out", str(table.with_name("r.jsonl"))]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_table_without_rows(table, capsys):
    table.write_text("a,b,c\n")
    assert release(table, "gaussian", *BUDGET) == 2
    assert "no rows" in capsys.readouterr().err


def test_private_bounds_come_from_some_of_the_rows(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    rows = np.random.default_rng(0).normal(size=(4000, 2)) * [30, 8]
    table, out = tmp_path / "rows.csv", tmp_path / "release.jsonl"
    table.write_text("a,b\n" + "\n".join(f"{a},{b}" for a, b in rows))
    given = [str(table), "-k", "1", "--epsilon", "3", "--bounds", "private", "--out", str(out)]
    assert main(["release", *given, "--mechanism", "gaussian", "--delta", "1e-6"]) == 0
    (release,) = read_releases(out)
    assert "bounds of the columns from the first" in release.guarantee.scope
    assert "Values clamped" in " ".join(capsys.readouterr().err.split())
    assert main(["release", *given, "--force", "--mechanism", "matrix-laplace"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "--bounds private: expected a guarantee for single rows with delta > 0" in said


def test_what_is_public_is_told_before_anything_is_released(table, capsys):
    assert main(["release", str(table), "--mechanism", "gaussian", "-k", "2", "--epsilon", "20", "--delta", "0.1",
                 "--row-norm", "1", "--out", str(table.with_name("r.jsonl"))]) == 0  # fmt: skip
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in said[:2]] == ["--epsilon", "--delta"]
    assert not any(line.startswith("warning: --") for line in said[2:])
