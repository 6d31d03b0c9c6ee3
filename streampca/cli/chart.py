"""Line charts in braille dots: two dots across and four down in every character."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.text import Text

Points = Sequence[tuple[float, float]]

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_LABEL = 8


@dataclass(frozen=True)
class Line:
    """One curve: its points in ascending x, and its colour."""

    points: Points
    style: str


class Curve:
    """Points of a growing curve, thinned: memory stays flat however long it grows."""

    def __init__(self, most: int = 512) -> None:
        self.points: list[tuple[float, float]] = []
        self._most = most
        self._step = 1
        self._seen = 0

    def add(self, x: float, y: float) -> None:
        """Append a point; every other one goes when there are too many."""
        if self._seen % self._step == 0 and math.isfinite(y):
            self.points.append((x, y))
            if len(self.points) > self._most:
                self.points = self.points[::2]
                self._step *= 2
        self._seen += 1


def chart(lines: Sequence[Line], width: int, height: int, *, x_max: float | None = None) -> Text:
    """Draw curves on a logarithmic y axis and a linear x axis from 0.

    Parameters
    ----------
    lines : curves; later ones are drawn over earlier ones. Points with y <= 0 are left out.
    width, height : size in characters, axes and labels included.
    x_max : right end of the x axis; the last point if left out.
    """
    columns, rows = width - _LABEL - 1, height - 2
    points = [(x, y) for line in lines for x, y in line.points if y > 0.0]
    if columns < 8 or rows < 2 or not points:
        return Text("\n" * max(0, height - 1))
    right = x_max or max(x for x, _ in points)
    right = max(right, max(x for x, _ in points), 1.0)
    low, high = _decades([y for _, y in points])
    dots = [[0] * columns for _ in range(rows)]
    styles = [[""] * columns for _ in range(rows)]
    for line in lines:
        for x, y in _pixels(line.points, right, low, high, 2 * columns, 4 * rows):
            dots[y // 4][x // 2] |= _DOTS[y % 4][x % 2]
            styles[y // 4][x // 2] = line.style
    text = Text(no_wrap=True, end="")
    labels = _labels(low, high, rows)
    for i in range(rows):
        text.append(f"{labels.get(i, ''):>{_LABEL}}", "dim")
        text.append("┤" if i in labels else "│", "dim")
        cells = "".join(chr(0x2800 + cell) if cell else " " for cell in dots[i])
        start = 0
        for style, run in groupby(styles[i]):  # few spans are much faster to print than one a character
            stop = start + len(list(run))
            text.append(cells[start:stop], style)
            start = stop
        text.append("\n")
    text.append(" " * _LABEL + "└" + "─" * columns + "\n", "dim")
    text.append(_axis(right, columns), "dim")
    return text


def short(value: float) -> str:
    """A number in three digits: 337k, 1.2M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """Ends of the y axis as powers of ten, at least one decade apart."""
    low, high = math.log10(min(values)), math.log10(max(values))
    low, high = math.floor(low * 2) / 2, math.ceil(high * 2) / 2
    return low, max(high, low + 1.0)


def _pixels(points: Points, right: float, low: float, high: float, width: int, height: int) -> list[tuple[int, int]]:
    """Dots of a curve, with the gaps between its points filled in."""
    placed: list[tuple[int, int]] = []
    for x, y in points:
        if y <= 0.0:
            continue
        px = min(width - 1, int(x / right * (width - 1)))
        share = (math.log10(y) - low) / (high - low)
        py = min(height - 1, max(0, int((1.0 - share) * (height - 1))))
        if placed:
            x0, y0 = placed[-1]
            steps = max(abs(px - x0), abs(py - y0))
            placed += [(x0 + (px - x0) * i // steps, y0 + (py - y0) * i // steps) for i in range(1, steps)]
        placed.append((px, py))
    return placed


def _labels(low: float, high: float, rows: int) -> dict[int, str]:
    """Labels of the whole decades within the y axis, by character row."""
    labels = {}
    for power in range(math.ceil(low), math.floor(high) + 1):
        row = min(rows - 1, int((high - power) / (high - low) * (rows - 1) + 0.5))
        # Near the smallest floats a power of ten has digits of its own; its exponent is what fits.
        labels[row] = f"{10.0**power:g}" if power > -300 else f"1e{power}"
    return labels


def _axis(right: float, columns: int) -> str:
    middle, end = short(right / 2), f"{short(right)} rows"
    line = f"{'0':<{columns // 2}}{middle}"
    line += f"{end:>{max(0, columns - len(line))}}"
    return " " * (_LABEL + 1) + (line if len(line) <= columns else f"{end:>{columns}}"[:columns])
