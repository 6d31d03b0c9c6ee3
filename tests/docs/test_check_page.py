"""The output on the page "Check a file" is what the command prints."""

import re
from pathlib import Path

import pytest

from streampca.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "check.md"


def test_the_output_of_the_page_is_that_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = PAGE.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    exec(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0], {})
    (shown,) = re.findall(r"^\$ streampca check clinic.csv\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert main(["check", "clinic.csv"]) == 0
    assert capsys.readouterr().out == shown
