"""Tutorials run as written, quietly, and say what they claim to."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streampca

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "which.md"
WHICH = runpy.run_path(str(DOCS / "_which_algorithm.py"))


def run(tutorial: str) -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "tutorials" / f"{tutorial}.py"), run_name="__main__")


def test_river_user(capsys: pytest.CaptureFixture[str]) -> None:
    made = run("river_user")
    assert made["pca"].t == made["blocks"].t == 2310
    assert made["release"].t == 2300
    assert made["from_file"].t == 2310
    assert made["window"].release.details["window"][1] == 2300
    assert "2310 rows from a file" in capsys.readouterr().out


def test_sklearn_user(capsys: pytest.CaptureFixture[str]) -> None:
    made = run("sklearn_user")
    # Noise of sd 4.2e-4 against a gap of some 4e-3 to the third eigenvalue: never beyond half a right angle.
    assert np.degrees(made["angles"][-1]) < 45.0
    assert made["fits"] == 9
    assert made["stream"].n_samples_seen_ == 20_000
    assert "refused: data set 'people' has spent" in capsys.readouterr().out


def test_privacy_officer(capsys: pytest.CaptureFixture[str]) -> None:
    made = run("privacy_officer")
    assert made["found"].holds
    assert made["found"].rows[1].seen > 0.9
    out = capsys.readouterr().out
    assert "refused: data set 'patients' has spent epsilon=1 of 1.2" in out
    assert "(1, 1e-06)-DP" in out


@pytest.mark.parametrize(("title", "question"), WHICH["SITUATIONS"], ids=lambda x: x if isinstance(x, str) else "")
def test_the_page_says_what_the_planner_says(title: str, question: dict[str, int]) -> None:
    """The same recommendation, and shares that are no further off than the planner's own accuracy."""
    text = PAGE.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    plan = WHICH["planned"](question)
    found = re.search(r"\| \*\*(.+?)\*\* \| ([0-9.]+)% \|", text)
    assert found is not None, "write the page anew: python docs/_which_algorithm.py > docs/which.md"
    assert found[1] == plan.best.label
    assert abs(float(found[2]) / 100.0 - plan.best.captured) < 0.05


def test_the_page_names_what_exists() -> None:
    from streampca import river, sklearn

    text = WHICH["_HEAD"]
    for line in [line for line in text.splitlines() if line.startswith("| ") and "`" in line]:
        _, _, own, in_river, in_sklearn, _ = line.split("|")
        for name in re.findall(r"`(\w+)", own):
            assert name in streampca.__all__, name
        for name in re.findall(r"`(Private\w+)", in_river):
            assert hasattr(river, name)
        for name in re.findall(r"`(Private\w+)", in_sklearn):
            assert hasattr(sklearn, name)
