"""The report: one HTML file that needs nothing else and fetches nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib.resources import files
from typing import Any

from streampca import dashboard
from streampca.dashboard.public import loadings, spaced
from streampca.dashboard.words import in_words
from streampca.reports.pictures import Picture, subspace_pictures
from streampca.reports.run import Run
from streampca.reports.style import DARK, LIGHT, written

_PUBLIC = "Publishable. Everything in this report is computed from private releases alone, under their guarantee."
_NOTHING = "Not private. What ran promises nothing: treat this report like the rows themselves."
_CURATOR = (
    "Curator only. Figures marked so are exact functions of raw rows and have no privacy at all: do not publish this "
    "report. Without --regret, a report holds none of them."
)


def report(run: Run) -> str:
    """The report of a run as HTML. With exact regret in the run it is the curator's, and says so."""
    board = run.curator or run.board
    state = board.state()
    note = _CURATOR if run.curator is not None else _PUBLIC if run.is_publishable else _NOTHING
    scripts = [_static("uplot.js"), _static("charts.js"), _own("report.js")]
    data = json.dumps({"panels": state["panels"], "tables": _rounded(state["tables"])}, separators=(",", ":"))
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(run.board.title)}: report</title>",
        f"<style>{_static('uplot.css')}\n{_static('page.css')}\n{_own('report.css')}</style>",
        "</head>\n<body>",
        f"<header><h1>{escape(run.board.title)}: report</h1></header>",
        f'<p class="face {"public" if run.is_publishable else "curator"}">{note}</p>',
        "<main>",
        _what_ran(run),
        _facts(state["facts"]),
        _promise(run),
        '<h2 class="part">Curves</h2><noscript><p>The charts need JavaScript; the pictures do not.</p></noscript>',
        '<div id="panels" class="panels"></div>',
        '<h2 class="part">The released subspace</h2>',
        f'<div class="two">{"".join(_picture(picture) for picture in subspace_pictures(run))}</div>',
        _table(run),
        "</main>",
        "<footer><p>streampca · charts by uPlot 1.6.32, MIT licence, in this file.</p>"
        f"<details><summary>Its licence</summary><pre>{escape(_static('uplot-LICENSE.txt'))}</pre></details></footer>",
        f'<script id="data" type="application/json">{_inert(data)}</script>',
        *(f"<script>{script}</script>" for script in scripts),
        "</body>\n</html>\n",
    ]
    return "\n".join(parts)


def _what_ran(run: Run) -> str:
    first, last = run.releases[0], run.last
    shown = run.board.more()["parameters"]
    name = next((p["value"] for p in shown if p["label"] == "processor"), "A private algorithm")
    several = f"from row {spaced(first.t)} to row {spaced(last.t)}" if last.t > first.t else f"at row {spaced(last.t)}"
    lead = (
        f"{name} read rows of {spaced(last.n_features)} numbers, scaled onto the ball of radius {last.row_norm:g}, and "
        f"released a {last.n_components}-dimensional subspace {several}."
    )
    rest = "".join(f"<dt>{escape(p['label'])}</dt><dd>{escape(p['value'])}</dd>" for p in shown)
    details = f'<details><summary>Public parameters</summary><dl class="words">{rest}</dl></details>' if rest else ""
    return f'<section class="card"><h2>What ran</h2><p class="lead">{escape(lead)}</p>{details}</section>'


def _facts(facts: list[dict[str, object]]) -> str:
    cells = (
        f"<div{' class=curator' if fact['curator'] else ''}><dt>{escape(str(fact['label']))}"
        f"{' (curator only)' if fact['curator'] else ''}</dt><dd>{escape(str(fact['value']))}</dd></div>"
        for fact in facts
    )
    return f'<dl class="facts">{"".join(cells)}</dl>'


def _promise(run: Run) -> str:
    words = "".join(f"<dt>{escape(h)}</dt><dd>{escape(t)}</dd>" for h, t in in_words(run.last.guarantee))
    formal = escape(str(run.last.guarantee))
    return (
        f'<section class="card"><h2>What is promised</h2><dl class="words">{words}</dl>'
        f"<details><summary>The same in one line, formally</summary><p>{formal}</p></details></section>"
    )


def _picture(picture: Picture) -> str:
    light, dark = (_data(written(picture.draw(style), "svg")) for style in (LIGHT, DARK))
    alt = escape(f"{picture.title}. {picture.text}", quote=True)
    return (
        f'<figure class="card"><h3 class="hidden">{escape(picture.title)}</h3><picture>'
        f'<source media="(prefers-color-scheme: dark)" srcset="{dark}"><img src="{light}" alt="{alt}"></picture>'
        f'<figcaption class="note">{escape(picture.text)}</figcaption></figure>'
    )


def _table(run: Run) -> str:
    given = loadings(run.last, run.last.subspace.basis)
    if not given["components"]:
        return ""
    head = "".join(f'<th scope="col">component {i + 1}</th>' for i in range(given["components"]))
    body = "".join(
        f'<tr><th scope="row">{escape(row["feature"])}</th>'
        + "".join(f"<td>{value:.4f}</td>".replace("-", "\u2212") for value in row["values"])
        + "</tr>"
        for row in given["rows"]
    )
    left_out = given["left_out"]
    more = f" The {len(given['rows'])} heaviest features; {left_out} more are left out." if left_out else ""
    return (
        f'<section class="card"><h2>Loadings at row {spaced(run.last.t)}</h2><p class="note">A component and its '
        f"negative are the same subspace.{more}</p>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Loadings">'
        f'<table><thead><tr><th scope="col">feature</th>{head}</tr></thead><tbody>{body}</tbody></table>'
        "</div></section>"
    )


def _static(name: str) -> str:
    return files(dashboard).joinpath("static", name).read_text(encoding="utf-8")


def _own(name: str) -> str:
    return files("streampca.reports").joinpath(name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _data(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def _rounded(tables: dict[str, Any]) -> dict[str, Any]:
    """Six digits are more than a chart shows, and half the size."""
    return {
        name: {
            "columns": table["columns"],
            "rows": [[float(f"{c:.6g}") if isinstance(c, float) else c for c in row] for row in table["rows"]],
        }
        for name, table in tables.items()
    }


def _inert(data: str) -> str:
    """JSON that cannot end the script element around it."""
    return data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
