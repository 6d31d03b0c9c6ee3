"""Hooks of MkDocs: pages that live elsewhere, and pages whose code is run when the site is built."""

from __future__ import annotations

import io
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
#: Pages made of files that live beside their code.
ELSEWHERE = {
    "which.md": "streampca/WHICH.md",
    "notation.md": "streampca/NOTATION.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
}
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run_blocks(markdown: str, name: str) -> Iterator[bytes | None]:
    """Run the Python blocks of a page, in order and in one namespace; yield the picture of each as SVG, or None.

    A block shows the matplotlib figure that it calls ``figure``.
    """
    space: dict[str, Any] = {"__name__": "__main__"}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)
        try:
            for code in BLOCK.findall(markdown):
                exec(compile(code, name, "exec"), space)  # noqa: S102  the project's own pages
                figure, out = space.pop("figure", None), io.BytesIO()
                if figure is not None:
                    figure.savefig(out, format="svg", facecolor="white")
                yield out.getvalue() or None
        finally:
            os.chdir(before)


def on_config(config: Any) -> Any:
    """Leave out of the navigation what is not there."""

    def there(entry: Any) -> bool:
        page = next(iter(entry.values())) if isinstance(entry, dict) else entry
        return page in ELSEWHERE or (ROOT / "docs" / page).exists()

    for entry in config["nav"]:
        for section, pages in entry.items() if isinstance(entry, dict) else ():
            if isinstance(pages, list):
                entry[section] = list(filter(there, pages))
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that live elsewhere."""
    from mkdocs.structure.files import File

    for name, source in ELSEWHERE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        text = re.sub(r"\]\(docs/", "](", text)
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Run the code of pages that ask for it, and put each picture under its block."""
    from mkdocs.structure.files import File

    if not page.meta.get("run"):
        return markdown
    pictures = iter(list(run_blocks(markdown, page.file.src_path)))
    stem, count = Path(page.file.src_path).stem, 0

    def shown(block: re.Match[str]) -> str:
        nonlocal count
        picture = next(pictures)
        if picture is None:
            return block[0]
        count += 1
        name = f"pictures/{stem}-{count}.svg"
        files.append(File.generated(config, name, content=picture))
        above = markdown[: block.start()].rpartition("\n## ")[2].partition("\n")[0]
        return f"{block[0]}\n\n![{above}]({name})"

    return BLOCK.sub(shown, markdown)
