"""Report of `sp.check` as text of 80 columns, as HTML and as a frame. Curator only."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from streampca.errors import printable
from streampca.sources.profile import ColumnProfile
from streampca.tables import html_table, record_frame

if TYPE_CHECKING:
    import pandas as pd

MARK = "CURATOR ONLY - nothing spent"
#: Columns of the text; columns of the table and names for one reason that it shows. `to_frame` has all.
_WIDTH, _SHOWN, _NAMED = 80, 60, 12
#: Longest name in the table of the text.
_LONGEST = 24


@dataclass(frozen=True)
class Check:
    """Report on a table before a release, created by `sp.check`. Curator only: exact functions of raw rows.

    Attributes
    ----------
    rows : int
        Number of rows read.
    complete_rows : int
        Rows with a finite number in each of the `used` columns. The others would count for nothing.
    unreadable_rows : int
        Rows that have the wrong number of cells, or are no record of their format.
    columns : tuple of ColumnProfile
        Figures of every column read.
    used : tuple of str
        Columns of the proposal: those given, or else those of numbers.
    left_out : dict of str to str
        The other columns, each with the reason.
    share_long : float or None
        Share of the complete rows that are longer than ``row_norm``; None without one, or without such rows.
    noise_std : float or None
        Standard deviation of a diagonal entry of the noise, in units of row_norm**2; None without ``epsilon``.
    captured : float or None
        Share of the best subspace's variance that the planner expects, from the public numbers n and d alone.
    notes : tuple of str
        Sentences of advice.
    has_scale : bool
        Whether ranges or a norm were given.
    proposal : str
        A command, or in Python the bounds, with placeholders in place of ranges; empty if these were given.
    """

    rows: int
    complete_rows: int
    unreadable_rows: int
    columns: tuple[ColumnProfile, ...]
    used: tuple[str, ...]
    left_out: dict[str, str]
    share_long: float | None
    noise_std: float | None
    captured: float | None
    notes: tuple[str, ...]
    has_scale: bool
    proposal: str

    def to_frame(self) -> pd.DataFrame:
        """Return the figures of the columns as a pandas frame, a row for each column."""
        return record_frame(ColumnProfile, self.columns)

    def _repr_html_(self) -> str:
        head = ["column", "type", "missing", "not a number", "outside", "left out"]
        rows = [(c.name, c.kind, *_figures(c), self.left_out.get(c.name, "")) for c in self.columns]
        note = " ".join([self._counts(), *self.notes, self._introduction()])
        return html_table(head, rows, warning=MARK, note=printable(note)) + f"<pre>{escape(self.proposal)}</pre>"

    def __str__(self) -> str:
        used = self._used()
        table = _table(used[:_SHOWN])
        if len(used) > _SHOWN:
            table.append(f"and {len(used) - _SHOWN} more columns; to_frame() in Python has all")
        # A command is indented; a call must not be.
        indent = "  " if self.proposal.startswith("streampca") else ""
        return "\n".join([
            MARK.rjust(_WIDTH), *_wrapped(self._counts()), *table, *_wrapped(self._left_out()),
            *(line for note in self.notes for line in _wrapped(note)),
            *_wrapped(self._introduction()),
            *(indent + printable(line) for line in self.proposal.splitlines()),
        ])  # fmt: skip

    def _used(self) -> list[ColumnProfile]:
        return [column for column in self.columns if column.name not in self.left_out]

    def _counts(self) -> str:
        is_numeric = all(column.kind == "number" for column in self._used())
        text = f"{_plural(self.rows, 'row')}, {_plural(len(self.columns), 'column')}"
        if not self.used:
            return f"{text}; none holds numbers"
        kind = "numeric column" if is_numeric else "chosen column"
        return f"{text}; {_plural(self.complete_rows, 'row')} complete in the {_plural(len(self.used), kind)}"

    def _left_out(self) -> str:
        by_reason: dict[str, list[str]] = {}
        for name, reason in self.left_out.items():
            by_reason.setdefault(reason, []).append(name)
        texts = []
        for reason, names in by_reason.items():
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            texts.append(f"{', '.join(names[:_NAMED])}{more} ({reason})")
        return f"left out: {', '.join(texts)}" if texts else ""

    def _introduction(self) -> str:
        if not self.proposal:
            return ""
        if self.has_scale:
            return "The release of this table:"
        return "No range is taken from these rows: that would not be private. Fill in from the data dictionary:"


def filled(parts: Iterable[str], end: str, width: int = _WIDTH - 7) -> str:
    """Return parts of a command or call in lines of about ``width`` characters, with ``end`` between lines."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) < width:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return end.join(lines)


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'s' * (count != 1)}"


def _share(share: float | None) -> str:
    if not share:
        return "–"
    return "<0.1%" if share < 0.0005 else f"{share:.1%}"


def _figures(column: ColumnProfile) -> tuple[str, str, str]:
    """Return the shares of a column as text: missing, not a number with its style, outside."""
    style = f" {column.style}" if column.style and column.not_a_number else ""
    return _share(column.missing), _share(column.not_a_number) + style, _share(column.outside)


def _table(columns: Sequence[ColumnProfile]) -> list[str]:
    """Return the figures of columns as lines, two columns abreast where they fit."""
    entries = []
    for column in columns:
        name = printable(column.name)
        name = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
        entries.append((name, column.kind, *_figures(column)))
    if not entries:
        return []
    head = ("column", "type", "missing", "not a number", "outside")
    shown = [True, any(c.kind != "number" for c in columns), True, True, any(c.outside is not None for c in columns)]
    rows = [[cell for cell, is_shown in zip(row, shown, strict=True) if is_shown] for row in (head, *entries)]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    words = shown[:2].count(True)  # on the left
    lines = [
        "  ".join(
            cell.ljust(width) if at < words else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    if len(lines) > 4 and 2 * len(lines[0]) + 4 <= _WIDTH:
        half = len(lines) // 2
        left, right = lines[1 : half + 1], lines[half + 1 :]
        right += [""] * (len(left) - len(right))
        lines = [f"{one}    {other}".rstrip() for one, other in zip([lines[0], *left], [lines[0], *right], strict=True)]
    return [line.rstrip() for line in lines]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(printable(text), _WIDTH, break_on_hyphens=False)
