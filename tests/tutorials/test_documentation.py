"""The documentation of the public names is built as a user would build it, and no link in it is dead."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

MODULES = [
    "streampca",
    "streampca.integrations.river",
    "streampca.integrations.sklearn",
    "streampca.planning",
    "streampca.theorems",
]


class Page(HTMLParser):
    """Links and anchors of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.anchors: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if value and name in ("id", "name"):
                self.anchors.add(value)
            if value and (tag, name) in (("a", "href"), ("link", "href"), ("script", "src"), ("img", "src")):
                self.links.add(value)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    out = tmp_path_factory.mktemp("docs").resolve()
    built = subprocess.run(
        [sys.executable, "-m", "pdoc", *MODULES, "--docformat", "numpy", "--output-directory", str(out)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return {path: Page(path) for path in out.rglob("*.html")}


def test_no_link_is_dead(pages: dict[Path, Page]) -> None:
    assert len(pages) > 10
    dead, followed = [], 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if target.suffix != ".html":
                ok = target.exists()
            else:
                # pdoc gives inherited members no place of their own: links to them land on the class.
                place = unquote(parts.fragment)
                known = pages[target].anchors if target in pages else set()
                ok = place in known or ("." in place and place.rpartition(".")[0] in known)
            followed += 1
            if not ok:
                dead.append(f"{path.name}: {link}")
    assert dead == []
    assert followed > 1000


def test_every_public_name_has_its_place(pages: dict[Path, Page]) -> None:
    import streampca

    front = next(page for path, page in pages.items() if path.name == "streampca.html")
    assert {name for name in streampca.__all__ if name not in front.anchors and not _is_module(name)} == set()
    river = next(page for path, page in pages.items() if path.match("integrations/river.html"))
    assert {"PrivatePCA", "PrivateWindowPCA", "PrivateOjaPCA"} <= river.anchors


def _is_module(name: str) -> bool:
    return name in ("errors", "queries", "sources")
