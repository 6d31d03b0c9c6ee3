import json
import shlex

import numpy as np
import pytest

import streampca as sp

ASKED = ["plan", "--n-rows", "20000", "-d", "10", "-k", "2", "--epsilon", "1", "--delta", "1e-7"]
GUESSED = ["--spectrum", "decaying"]  # one spectrum, where three of three norms say nothing more


@pytest.mark.parametrize(
    ("more", "there"),
    [
        ([], ["PrivateFPL blt", "PrivateFPL tree", "PrivateOja", "use ", "why ", "assumed ", "note "]),
        (["--all", "--spectrum", "0.3,0.2,0.1"], ["GaussianCovariance", "the given spectrum"]),
        (["--window", "100", *GUESSED], ["SlidingWindowPCA", "warning", "Tumbling"]),
        (["--window", "5000", *GUESSED], ["SlidingWindowPCA", "advice "]),
        (
            ["--rows-per-person", "13", *GUESSED],
            ["PrivateFPL blt", "of 13 rows a person", "--unit COLUMN", "unit=Person("],
        ),
    ],
)
def test_a_plan_is_printed(command, more, there):
    said = command(*ASKED, *more)
    assert said.status == 0
    assert all(part in said.out for part in there)
    assert more or "GaussianCovariance" not in said.out


@pytest.mark.parametrize(
    "asked", [[], ["--window", "100"], ["--release-every", "400"], ["--release-every", "400", "--row-norm", "3"]]
)
def test_the_printed_command_does_what_is_recommended(asked, tmp_path, command):
    rows, out = np.random.default_rng(0).normal(size=(400, 5)), tmp_path / "out.jsonl"
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="a,b,c,d,e", comments="")
    said = command("plan", "--n-rows", 400, "-d", 5, "-k", 2, "--epsilon", 1, "--delta", "1e-4", *GUESSED, *asked)
    assert said.status == 0
    lines = dict(line.split(maxsplit=1) for line in said.out.splitlines() if line)
    program, *words = shlex.split(lines["run"].replace("FILE", str(tmp_path / "rows.csv")))
    words[words.index("NAMES")] = "all"
    assert program == "streampca"
    assert command(*words, "--out", out).status == 0
    releases = list(sp.read_releases(out))
    assert releases[-1].t == 400
    assert releases[-1].row_norm == (3.0 if "--row-norm" in asked else 1.0)
    written = json.loads(out.read_text().splitlines()[0])["parameters"]
    made = eval(lines["use"], vars(sp))
    if "pca" in words:
        made = sp.Tumbling(made, release_every=400)
    assert written["center"] == made.center
    for name, value in made.parameters().items():
        assert written[name] == (value if isinstance(value, (int, float, str, bool, type(None))) else repr(value))
