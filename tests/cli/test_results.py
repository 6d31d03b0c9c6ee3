"""``streampca show`` and ``streampca transform``."""

import json
import re

import numpy as np
import pytest

import streampca as sp
from streampca.release.release import rows_summed

FEATURES = ("age", "income", "pulse")


@pytest.fixture
def run(tmp_path, command):
    """A file of releases, the file of the rows, and the rows."""
    rows = np.random.default_rng(0).normal(size=(400, 3)) * [0.5, 0.2, 0.05]
    table, out = tmp_path / "rows.csv", tmp_path / "releases.jsonl"
    np.savetxt(table, rows, delimiter=",", header=",".join(FEATURES), comments="", fmt="%.17g")
    options = ["-k", 2, "--epsilon", 8, "--delta", "1e-5", "--release-every", 100, "--row-norm", 2, "--no-live"]
    assert command("run", table, *options, "--columns", "all", "--out", out).status == 0
    return out, table, rows


def test_show_has_components_bars_and_the_guarantee(run, command):
    said = command("show", run[0], "--guarantee")
    for words in (*FEATURES, "stand out", "share of variance", "What is protected", "2.98e+03 times", "400"):
        assert words in said.out, words
    assert (said.status, "curator" in said.out) == (0, False)


def test_units_of_columns_stand_after_the_changes(run, command):
    plain, more = (command("show", run[0], *extra).out for extra in ((), ("--set", f"units.{FEATURES[0]}=mi")))
    first, *others = (line for line in more.splitlines() if line.startswith(tuple(FEATURES)))
    assert re.search(r"[+-][\d.]+ mi  +-?[\d.]+$", first)  # one component or both
    assert "mi" not in "".join(others)
    assert more.replace(" mi", "").split() == plain.split()
    wide = run[0].with_name("wide.jsonl")  # the card lists 40 of its features
    sp.pca(np.eye(45), 1, 1.0, row_norm=1.0, seed=1).save(wide)
    assert [command("show", wide, "--set", f"units.x{i}=mi").status for i in (0, 44, 45)] == [0, 0, 2]
    for key in ("units.nothing", "regret.every"):
        said = command("show", run[0], "--set", f"{key}=mi")
        assert (said.status, key in said.err) == (2, True)


def test_show_gives_the_current_release_as_json(run, command):
    releases = list(sp.read_releases(run[0]))
    for at, release in (((), releases[-1]), (("--at", 299), releases[1]), (("--at", 300), releases[2])):
        shown = json.loads(command("show", run[0], "--json", *at).out)
        assert (shown["t"], shown["releases"]) == (release.t, release.t // 100)
        r = shown["n_clear"]
        assert r == release.stands_out(0.001) > 0
        np.testing.assert_array_equal([row["values"] for row in shown["loadings"]], release.subspace.basis[:, :r])
        np.testing.assert_allclose(shown["explained_variance"], release.estimates.variances[:r] / rows_summed(release))
    said = command("show", run[0], "--at", 99)
    assert (said.status, "the first release is at row 100" in said.err) == (2, True)


def test_scores_are_those_of_the_release_and_marked_as_the_curators(run, command, tmp_path):
    out, table, rows = run
    scores = tmp_path / "scores.csv"
    said = command("transform", out, table, "--out", scores)
    assert (said.status, "NOT PRIVATE" in said.err) == (0, True)
    first, head, *lines = scores.read_text().splitlines()
    assert first.startswith("# NOT PRIVATE, curator only")
    assert head == "row,score_1,score_2"
    values = np.array([line.split(",")[1:] for line in lines], dtype=float)
    np.testing.assert_array_equal(values, list(sp.read_releases(out))[-1].transform(rows))
    assert scores.stat().st_mode & 0o777 == 0o600
    assert command("transform", out, table, "--out", scores).status == 2
    scores.chmod(0o644)
    assert command("transform", out, table, "--out", scores, "--force").status == 0
    assert scores.stat().st_mode & 0o777 == 0o600


def test_a_row_that_cannot_be_read_has_no_scores(run, command):
    out, table, _ = run
    table.write_text("age,income,pulse\n1,2,3\n1,,3\n1,x,3\n4,5,6\n")
    said = command("transform", out, table, "--out", "-")
    assert said.status == 0
    assert said.out.splitlines()[3:5] == ["2,,", "3,,"]
    assert len(said.out.splitlines()) == 6
