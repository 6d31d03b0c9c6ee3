"""Every Python block of the pages is run; those of README.md and streams.md have tests of their own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in [*ROOT.glob("docs/**/*.md"), *ROOT.glob("streampca/*.md"), *ROOT.glob("*.md")]
    if path.name not in ("README.md", "streams.md") and "```python" in path.read_text(encoding="utf-8")
)
#: Pages that take more than a few seconds. `make docs`, which CI runs too, executes them as well.
LONG = {"gallery.md"}


def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("_hooks", ROOT / "docs" / "_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=page.stem, marks=[pytest.mark.long] * (page.name in LONG)) for page in PAGES],
)
def test_the_code_of_a_page_runs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    made = list(hooks().run_blocks(text, page.name))
    assert len(made) == text.count("```python")
    if page.stem == "gallery":
        assert sum(picture is not None for picture in made) >= 12
    if page.stem == "start":
        assert all(picture is not None for picture in made)
        assert len(made) == 4


def test_the_pages_are_found() -> None:
    assert {"gallery", "guarantees", "index", "sharp-edges", "start"} <= {page.stem for page in PAGES}


def test_a_block_that_fails_is_told() -> None:
    with pytest.raises(ZeroDivisionError):
        list(hooks().run_blocks("```python\n1 / 0\n```\n", "page.md"))


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")]
    assert [page for page in pages if page not in nav] == []
