"""Tables of figures, as HTML and as data frames; pictures; and the table of the renderers of releases and streams.

Releases and streams are below the views in the order of imports: they find a renderer by its name, and import none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from html import escape
from io import BytesIO
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

CURATOR_ONLY = "Curator only: do not publish this output."
#: Renderers by name. Importing `streampca` adds ``"views"``, which imports the module that adds all others.
RENDERERS: dict[str, Callable[..., Any]] = {}


def render(name: str, *parts: Any, **options: Any) -> Any:
    """Call a renderer. The first call imports `streampca.views`."""
    if name not in RENDERERS:
        RENDERERS["views"]()
    return RENDERERS[name](*parts, **options)


@dataclass(frozen=True)
class Picture:
    """A drawn release: notebooks show it, and ``figure`` is the matplotlib one. Publishable, like the release."""

    figure: Figure

    def save(self, path: str | PathLike[str], **options: Any) -> None:
        """Write the picture, in the format of the name's end; ``options`` are those of ``Figure.savefig``."""
        self.figure.savefig(path, **options)

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.figure.savefig(buffer, format="png", dpi=144)
        return buffer.getvalue()


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]], *, warning: str = "", note: str = "") -> str:
    """Return a table as escaped HTML, between two lines of text; an empty ``head`` omits the header.

    The first cell of a row is its name. Floats have 6 digits, None is a dash.
    """
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = [f"<tr>{cells}</tr>"] if cells else []
    for name, *values in rows:
        shown = "".join(f"<td style='text-align:left'>{escape(_text(value))}</td>" for value in values)
        lines.append(f"<tr><th style='text-align:left'>{escape(_text(name))}</th>{shown}</tr>")
    above = f"<p><b>{escape(warning)}</b></p>" if warning else ""
    below = f"<p>{escape(note)}</p>" if note else ""
    return f"<div>{above}<table>{''.join(lines)}</table>{below}</div>"


def record_frame(kind: type[Any], records: Sequence[Any]) -> pd.DataFrame:
    """Return records of one dataclass as a pandas frame: a row for each record, a column for each field."""
    import pandas as pd

    names = [field.name for field in fields(kind)]
    return pd.DataFrame([asdict(record) for record in records], columns=names)


def _text(value: object) -> str:
    if value is None or value == "":
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
