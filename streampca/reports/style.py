"""How pictures look, in light and dark."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

CURATOR = "curator only: exact functions of raw rows"


@dataclass(frozen=True)
class Style:
    """Colours of a picture."""

    background: str
    text: str
    soft: str
    grid: str
    lines: tuple[str, ...]
    dashes: tuple[str, ...] = ("-", "--", ":", "-.", (0, (4, 2, 1, 2, 1, 2)), (0, (8, 3)))  # type: ignore[assignment]


LIGHT = Style("#ffffff", "#1a2230", "#566073", "#e1e5ec",
              ("#1f5fa8", "#b8610b", "#18794e", "#8a3ea8", "#b3243b", "#0b7285"))  # fmt: skip
DARK = Style("#1a202b", "#e7ebf2", "#a3adbd", "#323b4a",
             ("#6cb2ff", "#ffb056", "#5fd39a", "#d9a0f2", "#ff8a98", "#5ccfe0"))  # fmt: skip

Draw = Callable[[Style], Figure]


def figure(style: Style, width: float = 6.4, height: float = 4.0) -> tuple[Figure, Axes]:
    """An empty picture."""
    made = Figure(figsize=(width, height), layout="constrained", facecolor=style.background)
    axes = made.add_subplot()
    dress(axes, style)
    return made, axes


def dress(axes: Axes, style: Style) -> None:
    """Colours of the axes."""
    axes.set_facecolor(style.background)
    axes.tick_params(colors=style.soft, which="both", labelsize=9)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(style.grid)
    axes.grid(color=style.grid, linewidth=0.7)
    axes.set_axisbelow(True)


def label(axes: Axes, style: Style, *, title: str, x: str = "", y: str = "") -> None:
    """Words around the axes."""
    axes.set_title(title, loc="left", fontsize=11, color=style.text)
    axes.set_xlabel(x, color=style.soft, fontsize=9)
    axes.set_ylabel(y, color=style.soft, fontsize=9)


def legend(axes: Axes, style: Style, **where: Any) -> None:
    """A legend without a frame."""
    axes.legend(frameon=False, fontsize=8.5, labelcolor=style.text, **where)


def written(made: Figure, kind: Literal["svg", "png"]) -> bytes:
    """A picture as a file: the same bytes for the same picture."""
    out = io.BytesIO()
    with rc_context({"svg.hashsalt": "streampca", "svg.fonttype": "none"}):
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        made.savefig(out, format=kind, dpi=150, metadata=metadata, facecolor=made.get_facecolor())
    return out.getvalue()
