"""Reports: a page as one HTML file that needs nothing else and fetches nothing, and its pictures as files."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from importlib.resources import files as resources
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from streampca.errors import NoReleaseError
from streampca.regret.regret import RegretRecord
from streampca.release.release import Release, rows_summed
from streampca.views import plots
from streampca.views.facts import Cell
from streampca.views.page import COLUMNS, Page, Panel, Thinned
from streampca.views.run_files import RunFiles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARK = "curator only: exact functions of raw rows"
Kind = Literal["loadings", "biplot", "scree", "over-time", "motion"]


@dataclass(frozen=True)
class Run:
    """A run to report on."""

    page: Page  #: the curator's if there is exact regret
    releases: Sequence[Release]  #: some of the releases, evenly spread, the last among them

    @classmethod
    def of(
        cls,
        releases: Iterable[Release],
        records: Sequence[RegretRecord] = (),
        *,
        title: str = "",
        parameters: Mapping[str, Any] | None = None,
    ) -> Run:
        """Create a run from all of its releases, in order. Raises `NoReleaseError` if there is none.

        Exact ``records`` of the regret are curator only. By default the title follows from the public ``parameters``.
        """
        page, kept = Page(title, curator=bool(records)), Thinned[Release]()
        for release in releases:
            page.add([release])
            kept.offer(lambda release=release: release)  # type: ignore[misc]
        kept.finish()
        if not kept.items:
            raise NoReleaseError("there is no release to report on. Continue the run until one is due.")
        page.describe(parameters or {})
        page.add(records)
        page.end("Report")
        return cls(page, kept.items)


def read_run(path: Path, regret: Path | None = None) -> Run:
    """Read the files of a run: ``releases.jsonl``, a store, or a folder that holds either.

    ``regret`` is the file of the exact regret, curator only; None opens nothing of the curator's. Raises
    `BadParameterError` if a file is something else, and `NoReleaseError` if there is no release yet.
    """
    files = RunFiles(path, regret)
    first = files.new_releases()  # with them the parameters are read
    releases = chain(first, chain.from_iterable(iter(files.new_releases, [])))
    # Records are few: a run keeps one in `regret.every` rows. Releases may be millions, and are thinned as they come.
    records = list(chain.from_iterable(iter(files.new_records, [])))
    return Run.of(releases, records, parameters=files.parameters)


# -- the HTML file ------------------------------------------------------------------


def html(run: Run) -> str:
    """Return the page of a run as one HTML file with its data, scripts and pictures."""
    state = run.page.state()
    state["title"] += ": report"
    page = _static("index.html")
    scripts = {name: _static(name) for name in re.findall(r'<script src="/(.+?)">', page)}
    hashes = " ".join(f"'sha256-{_base64(hashlib.sha256(script.encode()).digest())}'" for script in scripts.values())
    # Scripts are allowed by their hash: a script that a name of a feature smuggled in would not run.
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
    pictures = "".join(_figure(picture) for picture in subspace_pictures(run))
    title = escape(state["title"])
    # JSON that cannot end the script element around it.
    data = json.dumps(state, allow_nan=False, separators=(",", ":"))
    inert = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    license_text = f"<details><summary>Its license</summary><pre>{escape(_static('uplot-LICENSE.txt'))}</pre></details>"
    changes = {
        '<h1 id="title">streampca': f'<h1 id="title">{title}',
        "Connecting …": escape(state["ended"]),
        "<title>streampca": f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<title>{title}',
        '<link rel="icon" href="/icon.svg" type="image/svg+xml">\n': "",
        '<div id="pictures" class="panels"></div>': f'<div id="pictures" class="panels">{pictures}</div>',
        '<a href="/uplot-LICENSE.txt">uPlot 1.6.32 (MIT)</a>': "uPlot 1.6.32 (MIT)",
        "</footer>": f'{license_text}</footer>\n<script id="data" type="application/json">{inert}</script>',
        **{f'<link rel="stylesheet" href="/{name}">': f"<style>{_static(name)}</style>"
           for name in ("uplot.css", "page.css")},
        **{f'<script src="/{name}"></script>': f"<script>{script}</script>" for name, script in scripts.items()},
    }  # fmt: skip
    # One pass, so that inserted text is not replaced in turn.
    return re.sub("|".join(map(re.escape, changes)), lambda found: changes[found[0]], page)


def _figure(picture: Picture) -> str:
    svg = plots.encoded(picture.draw(), "svg")
    light, dark = _base64(svg), _base64(plots.darkened(svg.decode()).encode())
    title, text = escape(picture.title), escape(picture.text)
    return (
        f'<figure class="card"><h2 class="hidden">{title}</h2><picture>'
        f'<source media="(prefers-color-scheme: dark)" srcset="data:image/svg+xml;base64,{dark}">'
        f'<img src="data:image/svg+xml;base64,{light}" alt="{title}. {text}"></picture>'
        f'<figcaption class="note">{text}</figcaption></figure>'
    )


def _static(name: str) -> str:
    return resources("streampca.views").joinpath("static", name).read_text(encoding="utf-8")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# -- pictures -----------------------------------------------------------------------


@dataclass(frozen=True)
class Picture:
    """One picture."""

    name: str  #: of the file, without its ending. That of a curator's picture begins with ``curator-``.
    title: str
    text: str  #: description for readers who do not see it
    draw: Callable[[], Figure]


def subspace_pictures(run: Run) -> Iterator[Picture]:
    """Yield pictures of the last release and of the loadings over time. Publishable."""
    last, values = run.releases[-1], plots.spectrum(run.releases[-1])
    past = [one for one in run.releases[:-1] if one.subspace.basis.shape == last.subspace.basis.shape]

    def picture(kind: Kind, title: str, text: str, name: str | None = None) -> Picture:
        used = past if kind in ("over-time", "motion") else ()
        return Picture(name or kind, title, text, lambda: last.plot(kind, past=used))

    if values is not None and len(values):
        shown = ", ".join(f"{v / rows_summed(last):.4g}" for v in values[:6])
        yield picture("scree", "Scree", f"{plots.eigenvalue_title(last)}, leading ones: {shown}.")
    if not last.subspace.n_components:
        return
    text = "Blue is positive, red negative. A component and its negative are the same subspace."
    yield picture("loadings", "Loadings", text)
    text = "Each feature as an arrow in the plane of the first two components. Rows are not drawn: they are private."
    yield picture("biplot", "Biplot", text)
    if past:
        text = "Signs and order are aligned from release to release, so that a component does not flip."
        yield picture("over-time", "Loadings over time", text, "loadings-over-time")
        text = (
            "Each feature's axis in the released plane, from its first place (dot) to its last (arrow); the angles of "
            "earlier subspaces to the last; and the squared length of each axis in the subspace."
        )
        yield picture("motion", "The subspace in motion", text)


def curve_pictures(run: Run) -> Iterator[Picture]:
    """Yield the charts of the page; those of the curator carry their mark within the picture."""
    for panel in run.page.panels():
        name = f"curator-{panel.name}" if panel.curator else panel.name
        yield Picture(name, panel.title, panel.note, partial(_chart, panel, run.page.tables[panel.table].items))


def write_pictures(run: Run, folder: Path, kind: Literal["svg", "png"]) -> list[Path]:
    """Write every picture to a folder; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {folder / f"{one.name}.{kind}": one for one in (*subspace_pictures(run), *curve_pictures(run))}
    for path, picture in pictures.items():
        path.write_bytes(plots.encoded(picture.draw(), kind))
    return list(pictures)


def _chart(panel: Panel, rows: Sequence[Sequence[Cell]]) -> Figure:
    values = np.array(rows, dtype=np.float64)  # None becomes nan
    return plots.curves(
        dict(zip(COLUMNS[panel.table], values.T, strict=True)), panel.series, band=panel.band, log=panel.log,
        title=panel.title, unit=panel.unit, mark=_MARK if panel.curator else "",
    )  # fmt: skip
