"""The charts of a board as pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from streampca.dashboard.board import Panel
from streampca.dashboard.table import Table
from streampca.reports.style import CURATOR, Style, figure, label, legend


def curve(panel: Panel, tables: Mapping[str, Table], style: Style) -> Figure:
    """One chart. Exact figures carry the curator's mark within the picture."""
    table = tables[panel.table]
    data = {
        name: np.array([np.nan if row[i] is None else float(row[i]) for row in table.rows])  # type: ignore[arg-type]
        for i, name in enumerate(table.columns)
    }
    made, axes = figure(style)
    t = data["t"]
    marker = "o" if len(t) < 3 else ""
    for i, (column, name) in enumerate(panel.series):
        y = np.where(data[column] > 0.0, data[column], np.nan) if panel.log else data[column]
        line: dict[str, Any] = {"color": style.lines[i % 6], "linestyle": style.dashes[i % 6], "marker": marker}
        axes.plot(t, y, linewidth=1.7, label=name, **line)
    if panel.band is not None:
        low, high, name = panel.band
        axes.fill_between(t, data[low], data[high], color=style.lines[0], alpha=0.25, linewidth=0, label=name)
        axes.plot(t, data[low], t, data[high], color=style.lines[0], linewidth=1.2, marker=marker)
        late = t >= t[-1] / 2.0  # intervals are wide at first
        ends = np.concatenate([data[low][late], data[high][late], [0.0]])
        room = 0.1 * float(np.nanmax(ends) - np.nanmin(ends)) or 1.0
        axes.set_ylim(float(np.nanmin(ends)) - room, float(np.nanmax(ends)) + room)
    if panel.log and any(np.any(data[column] > 0.0) for column, _ in panel.series):
        axes.set_yscale("log")
    label(axes, style, title=panel.title, x="rows seen", y=panel.unit)
    legend(axes, style, loc="best")
    if panel.curator:
        made.supxlabel(CURATOR, fontsize=9, color=style.lines[1], x=0.99, ha="right")
    return made
