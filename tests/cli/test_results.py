"""``streampca show`` and ``streampca transform``."""

import json

import numpy as np
import pytest

import streampca as sp
from streampca.cli import main

FEATURES = ("age", "income", "pulse")


@pytest.fixture
def run(tmp_path):
    """A file of releases, the rows, and the releases."""
    rows = np.random.default_rng(0).normal(size=(400, 3)) * [0.5, 0.2, 0.05]
    table = tmp_path / "rows.csv"
    np.savetxt(table, rows, delimiter=",", header=",".join(FEATURES), comments="", fmt="%.17g")
    out = tmp_path / "releases.jsonl"
    argv = ["run", table, "-k", "2", "--epsilon", "8", "--delta", "1e-5", "--release-every", "100", "--out", out]
    assert main([str(word) for word in (*argv, "--row-norm", "2", "--no-live")]) == 0
    return out, table, rows


def test_show_tells_components_bars_and_the_guarantee(run, capsys):
    out, _, _ = run
    capsys.readouterr()
    assert main(["show", str(out)]) == 0
    text = capsys.readouterr().out
    for words in (*FEATURES, "±", "above the noise", "share of variance", "What is protected", "2.98e+03 times", "400"):
        assert words in text, words
    assert "curator" not in text


def test_show_gives_the_release_in_play_as_json(run, capsys):
    out, _, _ = run
    releases = list(sp.read_releases(out))
    capsys.readouterr()
    for at, release in ((None, releases[-1]), (299, releases[1]), (300, releases[2])):
        assert main(["show", str(out), "--json", *([] if at is None else ["--at", str(at)])]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["t"], told["releases"]) == (release.t, release.t // 100)
        np.testing.assert_array_equal([row["values"] for row in told["loadings"]], release.subspace.basis)
        variances = [one["variance"] for one in told["components"]]
        np.testing.assert_allclose(variances, release.estimates.variances / release.t)
    assert main(["show", str(out), "--at", "99"]) == 2
    assert "the first release is at row 100" in capsys.readouterr().err


def test_scores_are_those_of_the_release_and_marked_as_the_curators(run, capsys, tmp_path):
    out, table, rows = run
    scores = tmp_path / "scores.csv"
    assert main(["transform", str(out), str(table), "--out", str(scores)]) == 0
    assert "NOT PRIVATE" in capsys.readouterr().err
    first, head, *lines = scores.read_text().splitlines()
    assert first.startswith("# NOT PRIVATE, curator only")
    assert head == "row,score_1,score_2"
    values = np.array([line.split(",")[1:] for line in lines], dtype=float)
    np.testing.assert_array_equal(values, list(sp.read_releases(out))[-1].transform(rows))
    assert scores.stat().st_mode & 0o777 == 0o600
    assert main(["transform", str(out), str(table), "--out", str(scores)]) == 2
    scores.chmod(0o644)
    assert main(["transform", str(out), str(table), "--out", str(scores), "--force"]) == 0
    assert scores.stat().st_mode & 0o777 == 0o600


def test_a_row_that_cannot_be_read_has_no_scores(run, capsys):
    out, table, _ = run
    table.write_text("age,income,pulse\n1,2,3\n1,,3\n1,x,3\n4,5,6\n")
    capsys.readouterr()
    assert main(["transform", str(out), str(table), "--out", "-"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3:5] == ["2,,", "3,,"]
    assert len(lines) == 6
