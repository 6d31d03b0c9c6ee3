"""Reports: a page as one HTML file that needs nothing else and fetches nothing."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files as resources
from pathlib import Path
from typing import TYPE_CHECKING

from streampca.errors import NoReleaseError
from streampca.release.release import Release, rows_summed
from streampca.views.page import Page, Thinned
from streampca.views.plots import darkened, eigenvalue_title, encoded, plot, spectrum
from streampca.views.run_files import RunFiles

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def read_run(path: Path, regret: Path | None = None) -> tuple[Page, list[Release]]:
    """Read a run for a report: its page, and some of its releases, evenly spread, the last among them.

    Parameters are those of `RunFiles`. With a file of the exact regret, the page is the curator's. Raises
    `UsageError` if a file is something else, and `NoReleaseError` if there is no release yet.
    """
    files, page, kept = RunFiles(path, regret), Page(curator=regret is not None), Thinned[Release]()
    # Releases may be millions, and are thinned as they come.
    while releases := files.new_releases():
        page.add(releases)
        for release in releases:
            kept.offer(lambda release=release: release)  # type: ignore[misc]
    kept.finish()
    if not kept.items:
        raise NoReleaseError("there is no release to report on. Continue the run until one is due")
    page.describe(files.parameters)
    while records := files.new_records():
        page.add(records)
    page.end("Report")
    return page, kept.items


def html(page: Page, releases: Sequence[Release]) -> str:
    """Return a page as one HTML file with its data, scripts, and pictures of the releases."""
    state = page.state()
    state["title"] += ": report"
    static = {one.name: one.read_text("utf-8") for one in resources("streampca.views").joinpath("static").iterdir()}
    scripts = {name: static[name] for name in re.findall(r'<script src="/(.+?)">', static["index.html"])}
    digests = [b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts.values()]
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    # Scripts are allowed by their hash: a script that a name of a feature smuggled in would not run.
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
    pictures = "".join(_figure(*picture) for picture in subspace_pictures(releases, page.looks.marks.clear))
    title = escape(state["title"])
    # JSON that cannot end the script element around it.
    data = json.dumps(state, allow_nan=False, separators=(",", ":"))
    inert = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    license_text = f"<details><summary>Its license</summary><pre>{escape(static['uplot-LICENSE.txt'])}</pre></details>"
    changes = {
        '<h1 id="title">streampca': f'<h1 id="title">{title}',
        "Connecting …": escape(state["ended"]),
        "<title>streampca": f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<title>{title}',
        '<link rel="icon" href="/icon.svg" type="image/svg+xml">\n': "",
        '<div id="pictures" class="panels"></div>': f'<div id="pictures" class="panels">{pictures}</div>',
        '<a href="/uplot-LICENSE.txt">uPlot 1.6.32 (MIT)</a>': "uPlot 1.6.32 (MIT)",
        "</footer>": f'{license_text}</footer>\n<script id="data" type="application/json">{inert}</script>',
        **{f'<link rel="stylesheet" href="/{name}">': f"<style>{static[name]}</style>"
           for name in ("uplot.css", "page.css")},
        **{f'<script src="/{name}"></script>': f"<script>{script}</script>" for name, script in scripts.items()},
    }  # fmt: skip
    # One pass, so that inserted text is not replaced in turn.
    return re.sub("|".join(map(re.escape, changes)), lambda found: changes[found[0]], static["index.html"])


def _figure(title: str, text: str, figure: Figure) -> str:
    svg = encoded(figure)
    light, dark = (b64encode(one).decode() for one in (svg, darkened(svg.decode()).encode()))
    title, text = escape(title), escape(text)
    return (
        f'<figure class="card"><h2 class="hidden">{title}</h2><picture>'
        f'<source media="(prefers-color-scheme: dark)" srcset="data:image/svg+xml;base64,{dark}">'
        f'<img src="data:image/svg+xml;base64,{light}" alt="{title}. {text}"></picture>'
        f'<figcaption class="note">{text}</figcaption></figure>'
    )


def subspace_pictures(releases: Sequence[Release], clear: int | None) -> Iterator[tuple[str, str, Figure]]:
    """Yield title, description and drawing of pictures, where ``clear`` components stand out (None if unknown)."""
    last, values = releases[-1], spectrum(releases[-1])
    past = [one for one in releases[:-1] if one.subspace.basis.shape == last.subspace.basis.shape]
    if values is not None and len(values):
        count = last.n_components if clear is None else clear
        shown = ", ".join(f"{v / rows_summed(last):.4g}" for v in values[: min(6, count)])
        text = eigenvalue_title(last) + (f", leading ones: {shown}." if shown else ".")
        yield "Scree", text, plot(last, "scree", clear=clear).figure
    if not last.subspace.basis.size or clear == 0:
        return
    pictures = [
        ("loadings", "Loadings", "Blue is positive, red negative. A component and its negative are the same subspace."),
        ("biplot", "Biplot", "Each feature as an arrow in the plane of the first two components. Rows are not drawn: "
         "they are private."),
    ]  # fmt: skip
    if past:
        pictures += [
            ("over-time", "Loadings over time", "Signs and order are aligned from release to release, so that a "
             "component does not flip."),
            ("motion", "The subspace in motion", "Each feature's axis in the released plane, from its first place "
             "(dot) to its last (arrow); the angles of earlier subspaces to the last; and the squared length of each "
             "axis in the subspace."),
        ]  # fmt: skip
    for kind, title, text in pictures:
        yield title, text, plot(last, kind, past=past, clear=clear).figure
