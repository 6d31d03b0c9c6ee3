import json

import numpy as np
import pytest

import streampca as sp
from streampca.cli.algorithms import MECHANISMS

SCALED = ["--row-norm", "256", "--columns", "all"]
PURE = ["-k", "2", "--epsilon", "1"]
BUDGET = [*PURE, "--delta", "1e-5"]


@pytest.fixture
def table(tmp_path):
    data = np.random.default_rng(1).integers(-40, 40, size=(300, 2)) @ [[2, 1, 0, -1], [0, 1, 3, 1]]
    path = tmp_path / "rows.csv"
    np.savetxt(path, data, delimiter=",", header="a,b,c,d", comments="", fmt="%d")
    return path


@pytest.fixture
def release(command, table):
    """Release the table once; returns what the command says."""

    def release(mechanism, *more):
        out = table.with_name("r.jsonl")
        return command("pca", table, "--mechanism", mechanism, *SCALED, "--out", out, *more)

    return release


def released(table):
    return list(sp.read_releases(table.with_name("r.jsonl")))


@pytest.mark.parametrize("mechanism", ["gaussian", "adaptive-laplace", "exact-subspace", "LaplaceCovariance"])
def test_every_mechanism_writes_what_run_writes(mechanism, table, release, command):
    budget = PURE if "laplace" in mechanism.lower() else [*BUDGET[:3], "5", *BUDGET[4:]]
    said = release(mechanism, *budget, "--seed", "3")
    assert said.status == 0
    (made,) = released(table)
    assert (made.t, made.row_norm, made.features) == (300, 256.0, ("a", "b", "c", "d"))
    assert json.loads(table.with_name("r.jsonl").read_text().splitlines()[0])["parameters"]["processor"] == "Tumbling"
    assert f"({made.guarantee.epsilon:g}, {made.guarantee.delta:g})-DP for one row" in said.err
    blocks = table.with_name("blocks.jsonl")
    asked = ["run", table, "--algorithm", "tumbling", "--set", f"mechanism={mechanism}", *budget, "--seed", "3"]
    assert command(*asked, "--release-every", "300", *SCALED, "--out", blocks).status == 0
    assert [one.to_json() for one in sp.read_releases(blocks)] == [made.to_json()]
    rows = np.loadtxt(table, delimiter=",", skiprows=1)
    if mechanism == "exact-subspace":  # the rows lie in a plane
        assert made.subspace.captured(rows.T @ rows) == pytest.approx(np.sum(rows**2), rel=1e-9)
        return
    kind = getattr(sp, MECHANISMS[mechanism]) if mechanism in MECHANISMS else sp.papers.LaplaceCovariance
    known = {"n_components": 2, "epsilon": made.guarantee.epsilon} | ({} if budget is PURE else {"delta": 1e-5})
    known |= {"center": True} if mechanism == "gaussian" else {}
    algorithm = sp.Tumbling(kind(**known), release_every=300)
    stream = sp.Stream(algorithm, row_norm=256.0, features=tuple("abcd"), seed=3)
    expected = stream.push_many(rows).releases[0]
    np.testing.assert_array_equal(made.subspace.basis, expected.subspace.basis)


def test_a_bad_row_counts_for_nothing(table, release, terminal):
    book = table.with_name("book.db")
    with sp.Ledger(book) as ledger:
        ledger.set_budget("t", sp.Budget(2.0, 1e-3))

    def debits():
        with sp.Ledger(book, create=False) as ledger:
            return len(ledger.balance("t").entries)

    paid = ["--ledger", book, "--data-set", "t"]
    table.write_text(table.read_text() + "1,,3,4\n")
    said = release("gaussian", *BUDGET, *paid)
    assert (said.status, "unusable 1 rows (missing value)" in said.words, debits()) == (0, True, 1)
    assert release("gaussian", *BUDGET, *paid).status == 2  # the file exists: nothing is paid
    assert debits() == 1
    said = release("gaussian", "-k", "2", "--epsilon", "3", "--delta", "1e-5", *paid, "--force")
    assert (said.status, "has spent epsilon=0.6432 of 2" in said.words) == (2, True)


def test_the_curators_line_is_last_or_first_and_bold_or_left_out(table, command, terminal):
    def said(norm, *more):
        options = ["-k", "1", "--epsilon", "8", "--columns", "all", "--row-norm", norm, "--force"]
        told = command("pca", table, *options, "--out", table.with_name("r.jsonl"), "--set", "units.a=mi", *more)
        assert (told.status, told.out) == (0, "")
        return told.err

    assert " mi" in said("160")
    assert said("160").index("Second figures") < said("160").index("curator only: ")
    assert said("20").startswith("\x1b[1mcurator only: shortened 9")
    assert "curator only" not in said("160", "--quiet") + said("20", "--quiet")


def test_a_quiet_log_has_no_hint_either(table, command):
    options = [*BUDGET, *SCALED, "--release-every", "100", "--force", "--out", table.with_name("r.jsonl")]
    loud, quiet = (command("run", table, *options, *more).err for more in ((), ("--quiet",)))
    assert "in a terminal" in loud
    assert "in a terminal" not in quiet
    assert "publishable" in quiet
    refused = command("run", table, *options, "--set", "units.e=mi")
    assert (refused.status, "--set units.e: there is no such column" in refused.err) == (2, True)


def test_auto_takes_what_has_less_noise_for_the_number_of_features(table, release):
    replaced = ["-k", "2", "--epsilon", "0.1", "--delta", "1e-5", "--adjacency", "replace"]
    about_zero = [*BUDGET, "--no-center"]
    for options, name in ((about_zero, "AdaptiveLaplaceCovariance"), (replaced, "AdaptiveCovariance")):
        assert release("auto", *options, "--force").status == 0
        assert released(table)[0].details["mechanism"] == name
    said = release("auto", *PURE, "--no-center", "--force")  # delta is 1e-6
    assert (said.status, released(table)[0].details["mechanism"]) == (0, "AdaptiveLaplaceCovariance")


def test_private_bounds_come_from_some_of_the_rows(tmp_path, command, terminal):
    rows = np.random.default_rng(0).normal(size=(4000, 2)) * [30, 8]
    table, out = tmp_path / "rows.csv", tmp_path / "release.jsonl"
    table.write_text("a,b\n" + "\n".join(f"{a},{b}" for a, b in rows))
    given = ["pca", table, "-k", "1", "--epsilon", "3", "--bounds", "private", "--columns", "a,b", "--out", out]
    said = command(*given, "--mechanism", "gaussian", "--delta", "1e-6")
    assert (said.status, "clipped" in said.words) == (0, True)
    (made,) = sp.read_releases(out)
    assert "bounds of the columns from the first" in made.guarantee.scope
    said = command(*given, "--mechanism", "matrix-laplace", "--force")
    assert said.status == 2
    assert "--bounds private: expected a guarantee with delta > 0" in said.words


def test_what_is_public_is_warned_of_before_anything_is_released(release):
    lines = release("gaussian", "-k", "2", "--epsilon", "20", "--delta", "0.1").err.splitlines()
    assert [line.split()[1] for line in lines[:2]] == ["--epsilon", "--delta"]
    assert not any(line.startswith("warning: --") for line in lines[2:])


@pytest.mark.parametrize("mechanism", ["adaptive", "auto"])
def test_adaptive_mechanisms_center_unless_told_otherwise(mechanism, table, release):
    for options, center in (((), True), (("--center",), True), (("--no-center",), False)):
        assert release(mechanism, *BUDGET, *options, "--force").status == 0
        (made,) = released(table)
        assert (made.is_centered, "recentered" in made.details) == (center, center)
