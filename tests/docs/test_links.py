"""No link is dead in the site and in the pages that are read on a package index or in the repository."""

import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import streampca

ROOT = Path(__file__).parents[2]
#: What `make docs` builds.
SITE = ROOT / "out" / "site"
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]


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


@pytest.mark.long
def test_no_link_of_the_site_is_dead() -> None:
    """Those that Sphinx itself does not follow too: of the reference, of raw HTML, and to pictures."""
    site = {path: Page(path) for path in SITE.resolve().rglob("*.html") if "_static" not in path.parts}
    assert len(site) > 100, "run make docs first"
    dead, followed = [], 0
    for path, page in site.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            followed += 1
            target = path if not parts.path else (path.parent / unquote(parts.path)).resolve()
            target = target / "index.html" if target.is_dir() else target
            is_page = target.suffix == ".html"
            if not (target in site and unquote(parts.fragment) in site[target].anchors if is_page else target.exists()):
                dead.append(f"{path.name}: {link}")
    assert dead == []
    assert followed > 1000
    gallery = site[SITE.resolve() / "gallery" / "index.html"]
    assert sum("_thumb" in link for link in gallery.links) == 12


@pytest.mark.long
def test_nothing_is_loaded_from_elsewhere() -> None:
    """Fonts, styles, scripts and pictures are files of the site."""
    loads = re.compile(
        r"""<(?:script|img|iframe)\b[^>]*\bsrc="(?:https?:)?//|<link\b[^>]*stylesheet[^>]*href="https?://"""
    )
    files = [*SITE.rglob("*.html")]
    assert [path.name for path in files if loads.search(path.read_text(encoding="utf-8"))] == []
    styles = "".join(path.read_text(encoding="utf-8") for path in SITE.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*['\"]?(?:https?:)?//[^)]*", styles) == []


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
        name = address.removeprefix(site) or "index.html"
        return name != "gallery/index.html" and not (ROOT / "docs" / name).with_suffix(".md").exists()
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
    "link", ["#no-such-place", "docs/none.md", "docs/start.md#none", URLS["Documentation"] + "none.html",
             URLS["Source"] + "/blob/main/docs/none.md", URLS["Source"] + "/blob/main/docs/start.md#none"]
)  # fmt: skip
def test_a_dead_link_is_told(link: str) -> None:
    assert lost(ROOT / "README.md", link)


def test_every_public_name_is_in_the_reference() -> None:
    """Sphinx makes a page of each, by autosummary."""
    page = (ROOT / "docs" / "api" / "index.md").read_text(encoding="utf-8")
    named = {
        name
        for line in re.findall(r"^   ([\w.]+)$|:: ([\w.]+)$", page, re.MULTILINE)
        for name in ".".join(line).split(".")
    }
    modules = ("errors", "papers", "queries", "sources", "river", "river_monitors", "sklearn")
    public = {*streampca.__all__, *modules, *streampca.papers.__all__, *streampca.queries.__all__}
    assert public - named == set()
