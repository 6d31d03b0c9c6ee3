"""Report of `sp.check` as text of 80 columns, as HTML and as a frame. Curator only."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from html import escape
from itertools import zip_longest

import pandas as pd

from streampca.errors import printable

_MARK = "CURATOR ONLY - nothing spent"
_REASONS = {"identifier": "looks like an identifier", "empty": "no values"}
#: Columns of the text, columns of the table and names for one reason that it shows at most, and its longest name.
_WIDTH, _SHOWN, _NAMED, _LONGEST = 80, 60, 12, 24


@dataclass(frozen=True, eq=False)
class Check:
    """Report on a table before a release, created by `sp.check`. Curator only: exact functions of raw rows."""

    rows: int  #: rows read
    complete_rows: int  #: those with a finite number in each `used` column
    unreadable_rows: int  #: those with too few or too many cells
    #: A line for each column: ``kind`` ("number", "text", "identifier" or "empty", of most cells in the first block),
    #: the shares of cells that are ``missing`` and that are ``not_a_number``, the most frequent ``style`` of these, of
    #: a fixed list, and with ranges the share of numbers ``outside``.
    columns: pd.DataFrame
    used: tuple[str, ...]  #: columns of the proposal: those given, or else those of numbers
    share_long: float | None  #: share of the complete rows that are longer than ``row_norm``
    noise_std: float | None  #: with ``epsilon``, of a diagonal entry of the noise, in units of row_norm**2
    #: With ``epsilon``, least and largest share of the best subspace's variance that the planner expects, over spectra
    #: and lengths of rows; from the public numbers n and d alone, and with a unit from the mean rows of a person.
    captured: tuple[float, float] | None
    notes: tuple[str, ...]
    proposal: str  #: a command, or in Python the bounds, with placeholders for ranges; empty if these were given
    people: int | None = None  #: with a unit, people with a complete row
    mean_weight: float | None = None  #: with a unit, expected weight of their rows

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        used, left_out = self.columns.loc[[*self.used]], self.columns.drop([*self.used])
        complete = f"{self.complete_rows:,} rows complete in the {len(used):,} columns used"
        complete = complete if self.used else "none holds numbers"
        lines = [f"{self.rows:,} rows, {len(self.columns):,} columns; {complete}"]
        lines += _table(used[:_SHOWN]) if self.used else []
        if len(used) > _SHOWN:
            lines.append(f"and {len(used) - _SHOWN:,} more columns; `columns` in Python has all")
        texts = []
        for kind, of_kind in left_out.groupby("kind", sort=False):
            more = f" and {len(of_kind) - _NAMED:,} more" if len(of_kind) > _NAMED else ""
            texts.append(f"{', '.join(of_kind.index[:_NAMED])}{more} ({_REASONS.get(str(kind), kind)})")
        for text in [*([f"left out: {', '.join(texts)}"] if texts else []), *self.notes]:
            lines += textwrap.wrap(text, _WIDTH, break_on_hyphens=False)
        return "\n".join([_MARK.rjust(_WIDTH), *map(printable, [*lines, *self.proposal.split("\n")])]).rstrip()


def _share(share: float) -> str:
    return "–" if not share else "<0.1%" if share < 0.0005 else f"{share:.1%}"


def _table(columns: pd.DataFrame) -> list[str]:
    """Return the figures of columns as lines, two columns abreast where they fit."""
    shares = columns.drop(columns=["kind", "style"]).map(_share)
    shares["not_a_number"] += (" " + columns["style"]).str.rstrip()
    shares.insert(0, "type", columns["kind"])
    shares.index = [printable(name)[:_LONGEST] for name in columns.index]
    shares = shares.rename(columns={"not_a_number": "not a number"}).rename_axis(columns="column")
    head, *lines = shares.to_string().split("\n")
    if len(lines) > 3 and 2 * len(head) + 4 <= _WIDTH:
        half = (len(lines) + 1) // 2
        right = [head, *lines[half:]]
        return [f"{a}    {b}".rstrip() for a, b in zip_longest([head, *lines[:half]], right, fillvalue="")]
    return [head, *lines]
