"""All pictures of a run, by name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure

from streampca.dashboard.public import eigenvalues_of, rows_in
from streampca.reports import loadings
from streampca.reports.curves import curve
from streampca.reports.run import Run
from streampca.reports.scree import scree, spectrum
from streampca.reports.style import DARK, LIGHT, Draw, written


@dataclass(frozen=True)
class Picture:
    """One picture.

    Attributes
    ----------
    name : of the file, without its ending. That of a curator's picture begins with ``curator-``.
    title, text : what it is, and what it says, for those who do not see it.
    draw : makes it in a style.
    """

    name: str
    title: str
    text: str
    draw: Draw


def subspace_pictures(run: Run) -> Iterator[Picture]:
    """Pictures of what was released last, and of the loadings over time. Publishable."""
    last = run.last
    values = spectrum(last)
    if values is not None and len(values):
        shown = ", ".join(f"{v / rows_in(last):.4g}" for v in values[:6])
        yield Picture("scree", "Scree", f"{eigenvalues_of(last)}, leading ones: {shown}.",
                      lambda style: _made(scree(last, style)))  # fmt: skip
    if not last.subspace.n_components:
        return
    yield Picture("loadings", "Loadings", "The numbers stand in the table below the pictures.",
                  partial(loadings.heat_map, last))  # fmt: skip
    yield Picture("biplot", "Biplot", "Each feature as an arrow in the plane of the first two components. "
                  "Rows are not drawn: they are private.", partial(loadings.biplot, last))  # fmt: skip
    if len(run.releases) > 1:
        yield Picture("loadings-over-time", "Loadings over time", "Signs and order are aligned from release to "
                      "release, so that a component does not flip.",
                      partial(loadings.over_time, run.releases))  # fmt: skip


def curve_pictures(run: Run) -> Iterator[Picture]:
    """The charts; those of the curator only if the run holds exact regret."""
    board = run.curator or run.board
    tables = board.tables()
    for panel in board.panels():
        name = f"curator-{panel.name}" if panel.curator else panel.name
        yield Picture(name, panel.title, panel.note, partial(curve, panel, tables))


def write_pictures(run: Run, folder: Path, kind: Literal["svg", "png"], *, dark: bool = False) -> list[Path]:
    """Write every picture to a folder; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for picture in (*subspace_pictures(run), *curve_pictures(run)):
        files.append(folder / f"{picture.name}.{kind}")
        files[-1].write_bytes(written(picture.draw(DARK if dark else LIGHT), kind))
    return files


def _made(picture: Figure | None) -> Figure:
    assert picture is not None
    return picture
