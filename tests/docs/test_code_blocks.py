"""Every Python block of the pages is run.

Those of README.md and streams.md have tests of their own, and gallery.md is run by `make docs`, which fails if it does.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in [*ROOT.glob("docs/**/*.md"), *ROOT.glob("streampca/*.md"), *ROOT.glob("*.md")]
    if path.name not in ("README.md", "gallery.md", "streams.md") and "```python" in path.read_text(encoding="utf-8")
)


def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("_hooks", ROOT / "docs" / "_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    made = list(hooks().run_blocks(text, page.name))
    assert len(made) == text.count("```python")
    if page.stem == "start":
        assert all(picture is not None for picture in made)
        assert len(made) == 4


def test_the_pages_are_found() -> None:
    assert {"guarantees", "index", "sharp-edges", "start"} <= {page.stem for page in PAGES}


def test_a_block_that_fails_is_told() -> None:
    with pytest.raises(ZeroDivisionError):
        list(hooks().run_blocks("```python\n1 / 0\n```\n", "page.md"))


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")]
    assert [page for page in pages if page not in nav] == []


def test_pictures_have_a_dark_form() -> None:
    """No color of the light page is left, whether the drawing names its colors or leaves them to matplotlib."""
    pytest.importorskip("matplotlib", reason="needs the extra report")
    page = """
```python
import numpy as np
from matplotlib.figure import Figure
from streampca.views import plots
figure = plots.curves({"t": np.arange(5.0), "y": np.ones(5)}, [("y", "one")], title="a title", mark="curator only")
```
```python
figure = Figure()
figure.subplots().set_xlabel("x")
```
"""
    for picture in hooks().run_blocks(page, "page.md"):
        light, dark = picture.decode(), hooks().dark(picture.decode())
        assert "#ffffff" in light
        assert [color for color in ("#ffffff", "#1a2230", "#566073", "#e1e5ec", "#000000") if color in dark] == []
        assert '<svg fill="#e7ebf2"' in dark
        assert hooks().light(light) == light
    drawn = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    assert "@media" in drawn
    assert "@media" not in hooks().dark(drawn) + hooks().light(drawn)
    assert "text{fill:#e6edf3}" in hooks().dark(drawn)
    assert "text{fill:#e6edf3}" not in hooks().light(drawn)
