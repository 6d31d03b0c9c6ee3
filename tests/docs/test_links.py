"""No link is dead: in the documentation of the public names as a user would build it, in the site, and in the pages
that are read on a package index or in the repository.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
#: What `make docs` builds.
SITE = ROOT / "out" / "site"
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
MODULES = [
    "streampca",
    "streampca.river",
    "streampca.sklearn",
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


def dead_links(pages: dict[Path, Page]) -> tuple[list[str], int]:
    """Links that lead to no file or to no place in one, and how many were followed. Other addresses are left alone."""
    dead, followed = [], 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            if target.is_dir():
                target /= "index.html"
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
    return dead, followed


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    out = tmp_path_factory.mktemp("docs").resolve()
    built = subprocess.run(
        [sys.executable, "-m", "pdoc", *MODULES, "--docformat", "numpy", "--output-directory", str(out)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return {path: Page(path) for path in out.rglob("*.html")}


@pytest.mark.ci
def test_no_link_is_dead(pages: dict[Path, Page]) -> None:
    assert len(pages) > 10
    dead, followed = dead_links(pages)
    assert dead == []
    assert followed > 1000


@pytest.mark.long
def test_no_link_of_the_site_is_dead() -> None:
    """Those that mkdocs itself does not follow too: of the reference, of raw HTML, and to pictures."""
    site = {path: Page(path) for path in SITE.resolve().rglob("*.html") if path.name != "404.html"}
    assert len(site) > 20, "run make docs first"
    dead, followed = dead_links(site)
    assert dead == []
    assert followed > 1000
    gallery = site[SITE.resolve() / "gallery" / "index.html"]
    for kind in ("light", "dark"):
        assert sum(f"-{kind}.svg" in link for link in gallery.links) >= 12


def places(page: Path) -> set[str]:
    """The anchors of the headings of a Markdown page."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {"", *(re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles)}


def lost(page: Path, link: str) -> bool:
    """Whether a link of a Markdown page leads nowhere, as far as that is decided here."""
    address, _, place = link.partition("#")
    source, site = URLS["Source"] + "/blob/main/", URLS["Documentation"]
    picture = source.replace("github.com", "raw.githubusercontent.com").replace("/blob", "")
    if address.startswith(site):
        name = address.removeprefix(site).strip("/")
        known = (SITE.parents[1] / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
        return f"{name or 'index'}.md" not in known
    for base in (source, picture):
        if address.startswith(base):
            target = ROOT / address.removeprefix(base)
            break
    else:
        if "://" in address or address.startswith("mailto:"):
            return False
        target = page.parent / address if address else page
    return not target.exists() or (target.suffix == ".md" and place not in places(target))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_no_link_beside_the_code_is_dead(name: str) -> None:
    page = ROOT / name
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if lost(page, link)] == []


@pytest.mark.parametrize(
    "link", ["#no-such-place", "docs/none.md", "docs/start.md#none", URLS["Documentation"] + "none/",
             URLS["Source"] + "/blob/main/docs/none.md", URLS["Source"] + "/blob/main/docs/utility.md#none"]
)  # fmt: skip
def test_a_dead_link_is_told(link: str) -> None:
    assert lost(ROOT / "README.md", link)


@pytest.mark.ci
def test_every_public_name_has_its_place(pages: dict[Path, Page]) -> None:
    import streampca

    front = next(page for path, page in pages.items() if path.name == "streampca.html")
    assert {name for name in streampca.__all__ if name not in front.anchors and not _is_module(name)} == set()
    river = next(page for path, page in pages.items() if path.match("streampca/river.html"))
    assert {"PrivatePCA", "PrivateWindowPCA", "PrivateOjaPCA"} <= river.anchors


def _is_module(name: str) -> bool:
    return name in ("errors", "papers", "queries", "sources")
