import json
import shlex
from pathlib import Path

import numpy as np
import pytest

import streampca as sp
from streampca.cli import main

ASKED = ["plan", "--n-rows", "20000", "-d", "10", "-k", "2", "--epsilon", "1", "--delta", "1e-7"]


def test_a_plan_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(ASKED) == 0
    out = capsys.readouterr().out
    for part in ("PrivateFPL blt", "PrivateFPL tree", "PrivateOja", "use ", "why ", "assumed ", "advice "):
        assert part in out
    assert "GaussianCovariance" not in out
    assert main([*ASKED, "--all", "--spectrum", "0.3,0.2,0.1"]) == 0
    out = capsys.readouterr().out
    assert "GaussianCovariance" in out
    assert "the given spectrum" in out


@pytest.mark.parametrize(
    "asked",
    [[], ["--window", "100"], ["--release-every", "400"], ["--release-every", "400", "--row-norm", "3"]],
)
def test_the_printed_command_does_what_is_recommended(
    asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = np.random.default_rng(0).normal(size=(400, 5))
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",", header="a,b,c,d,e", comments="")
    budget = ["-k", "2", "--epsilon", "1", "--delta", "1e-4"]
    assert main(["plan", "--n-rows", "400", "-d", "5", *budget, *asked]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line)
    program, *command = shlex.split(lines["run"].replace("FILE", str(tmp_path / "rows.csv")))
    assert program == "streampca"
    assert main([*command, "--out", str(tmp_path / "out.jsonl")]) == 0
    releases = list(sp.read_releases(tmp_path / "out.jsonl"))
    assert releases[-1].t == 400
    assert releases[-1].row_norm == (3.0 if "--row-norm" in asked else 1.0)
    written = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])["parameters"]
    made = eval(f"sp.{lines['use']}")
    if command[0] == "release":
        made = sp.Tumbling(made, release_every=400)
    assert written["center"] == made.can_center  # the plan is for rows that are not centered, and says so
    for name, value in made.parameters().items() - {("center", False)}:
        assert written[name] == (value if isinstance(value, (int, float, str, bool, type(None))) else repr(value))


def test_a_window_and_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASKED, "--window", "100"]) == 0
    out = capsys.readouterr().out
    assert "SlidingWindowPCA" in out
    assert "warning" in out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--spectrum", "0.1,x"], "--spectrum 0.1,x"),
        (["--spectrum", "pink"], "spectrum='pink'"),
        (["-k", "11"], "exceeds"),
    ],
)
def test_bad_questions_cost_one_line(more: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ASKED if "-k" not in more else [part for part in ASKED if part not in ("-k", "2")]
    assert main([*asked, *more]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
