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
    "notation.md": "streampca/NOTATION.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
}
#: Cells of a tutorial: a comment that begins with "# %%", then code.
CELL = re.compile(r"^# %% ((?:.|\n# )*)\n((?:(?!# %%).*\n)*)", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PICTURE = re.compile(r"!\[([^]]*)\]\(([^)#]+)\.svg\)")
#: What a drawing says of its own colors on a dark page.
OWN_DARK = re.compile(r"@media \(prefers-color-scheme: ?dark\) ?\{((?:[^{}]*\{[^{}]*\})*)\}")


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
                    getattr(figure, "figure", figure).savefig(out, format="svg", facecolor="white")
                yield out.getvalue() or None
        finally:
            os.chdir(before)


def dark(svg: str) -> str:
    """The picture for a dark page: by its own style if it has one, else with the colors of `darkened`."""
    from streampca.views.plots import darkened

    return OWN_DARK.sub(r"\1", svg) if OWN_DARK.search(svg) else darkened(svg)


def light(svg: str) -> str:
    """The picture for a light page."""
    return OWN_DARK.sub("", svg)


def on_config(config: Any) -> Any:
    """Leave out of the navigation what is not there."""

    def there(entry: Any) -> bool:
        page = next(iter(entry.values())) if isinstance(entry, dict) else entry
        file = ROOT / "docs" / page
        return page in ELSEWHERE or file.exists() or file.with_suffix(".py").exists()

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
    for path in sorted(ROOT.glob("docs/tutorials/*.py")):
        text = tutorial(path.read_text(encoding="utf-8"))
        files.append(File.generated(config, f"tutorials/{path.stem}.md", content=text))
    return files


def tutorial(code: str) -> str:
    """The page of a tutorial: its docstring, then text and code of each cell."""
    title, _, rest = code.removeprefix('"""').partition('"""')[0].partition("\n")
    cells = [
        f"{text.replace(chr(10) + '# ', ' ')}\n\n```python\n{body.strip(chr(10))}\n```\n"
        for text, body in CELL.findall(code)
    ]
    return "\n".join([f"# {title.rstrip('.')}\n", rest.strip(), "", *cells])


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Run the code of pages that ask for it, put each picture under its block, and show pictures light or dark."""
    from mkdocs.structure.files import File

    made: dict[str, str] = {}
    if page.meta.get("run"):
        markdown = with_pictures(markdown, page.file.src_path, made)

    def both(picture: re.Match[str]) -> str:
        alt, stem = picture.groups()
        place = (Path(page.file.src_path).parent / stem).as_posix()
        svg = made.get(stem) or (ROOT / "docs" / f"{place}.svg").read_text(encoding="utf-8")
        for kind, change in (("light", light), ("dark", dark)):
            files.append(File.generated(config, f"{place}-{kind}.svg", content=change(svg)))
        return "\n".join(f"![{alt}]({stem}-{kind}.svg#only-{kind})" for kind in ("light", "dark"))

    return PICTURE.sub(both, markdown)


def with_pictures(markdown: str, path: str, made: dict[str, str]) -> str:
    """Run the blocks of a page and put the picture of each under it; the drawings go to ``made``, by name."""
    pictures = iter(list(run_blocks(markdown, path)))

    def shown(block: re.Match[str]) -> str:
        picture = next(pictures)
        if picture is None:
            return block[0]
        stem = f"pictures/{Path(path).stem}-{len(made) + 1}"
        made[stem] = picture.decode()
        above = markdown[: block.start()].rpartition("\n## ")[2].partition("\n")[0]
        return f"{block[0]}\n\n![{above}]({stem}.svg)"

    return BLOCK.sub(shown, markdown)
