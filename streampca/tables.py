"""Tables of figures, as HTML for notebooks and as data frames."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

CURATOR_ONLY = "Curator only: do not publish this output."


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]], *, warning: str = "", note: str = "") -> str:
    """A table as HTML, between two lines of text; everything is escaped.

    The first cell of a row is its name. Floats are shown with 6 digits, None as a dash; without a ``head`` there is no
    header.
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
    """Records of one dataclass as a pandas frame: a row a record, a column a field.

    ``polars.from_dataframe`` reads it, by the dataframe interchange protocol.
    """
    import pandas as pd

    names = [field.name for field in fields(kind)]
    return pd.DataFrame([asdict(record) for record in records], columns=names)


def _text(value: object) -> str:
    if value is None or value == "":
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
