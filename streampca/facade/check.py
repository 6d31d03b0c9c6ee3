"""`sp.check`: a report on a table before anything is spent. Curator only.

It is the only function that reads rows to give advice. Its report holds counts and no cell, and its proposal holds
names, given options and placeholders: a range taken from the rows would not be private.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal

from streampca.conversion import is_arrow, is_frame
from streampca.errors import BadParameterError, SourceError, UsageError
from streampca.linalg.counts import check_components, check_count
from streampca.linalg.scale import Bounds, check_row_norm, column_bounds
from streampca.mechanisms.covariance import GaussianCovariance
from streampca.planning.curve import Curve
from streampca.planning.predictions import covariances
from streampca.planning.question import Question
from streampca.privacy.budget import DELTA, Adjacency
from streampca.rows.advice import settings_warnings, size_warnings
from streampca.rows.bounds import PrivateBounds
from streampca.sources.columns import ColumnTable, open_columns
from streampca.sources.profile import CellBlock, ColumnProfile, Profile, is_named
from streampca.sources.reading import Reading
from streampca.views.check import Check, filled

#: Most features for which the captured share is predicted: the prediction simulates d x d matrices.
_PREDICTED = 200
_REASONS = {"identifier": "looks like an identifier", "empty": "no values"}
Scale = Bounds | Literal["private"] | None


def check(
    data: Any, *, bounds: Scale = None, row_norm: float | None = None, columns: Sequence[str | int] | None = None,
    n_components: int = 2, epsilon: float | None = None, delta: float = DELTA, adjacency: Adjacency = "zero-out",
    center: bool = True, limit: int | None = None, read: Reading | None = None,
) -> Check:  # fmt: skip
    """Report what a release of a table would meet, and propose its call. Spends nothing; curator only.

    Reads the rows once, or twice if the first ones do not show which columns hold numbers, in memory that does not grow
    with their number. Rows never make it fail: what depends on their cells is in the report only.

    Parameters
    ----------
    data : path, frame, Arrow table, sparse matrix, array or list of rows
        The whole table. A path is that of a regular file, CSV, TSV, NDJSON or Parquet, or a pattern of files.
    bounds, row_norm : as in `Stream`, default=None
        With public ranges, the report has the share of values outside; with ``row_norm``, that of longer rows.
    columns : sequence of str or int, default=None
        Names or positions of the columns to use. By default those that ``bounds`` names, or else those of numbers.
    n_components : int, default=2
    epsilon : float, default=None
        With it, the report has the noise, and the prediction of the planner from the public numbers n and d alone.
    delta, adjacency, center : as in `GaussianCovariance`
    limit : int, default=None
        Number of first rows to read; all by default.
    read : Reading, default=None
        How a file is read.

    Returns
    -------
    Check
        Figures, advice and a proposal. Prints itself in 80 columns.

    Raises
    ------
    UsageError
        If an argument is outside its domain, or the data are no table that can be read again.
    SourceError
        If a file cannot be opened or lacks a column.

    Examples
    --------
    >>> rows = [{"age": 41, "weight": 70.5}, {"age": "-", "weight": 81.0}]
    >>> report = sp.check(rows, bounds={"age": (0, 120), "weight": (0, 80)})
    >>> report.rows, report.complete_rows, report.columns[1].outside
    (2, 1, 0.5)
    """
    # All that depends on the arguments or on a header is refused before a row is read.
    _check_scale(bounds, row_norm)
    check_count("limit", limit, optional=True)
    check_components(n_components)
    settings: dict[str, Any] = {
        "n_components": n_components, "epsilon": 1.0 if epsilon is None else epsilon, "delta": delta,
        "adjacency": adjacency, "center": center,
    }  # fmt: skip
    mechanism = GaussianCovariance(**settings)
    if columns is None and isinstance(bounds, Mapping):
        columns = [str(name) for name in bounds]
    table = data if isinstance(data, ColumnTable) else open_columns(data, columns, read)
    check_components(n_components, None if columns is None else len(table.names))
    known = None if bounds is None or isinstance(bounds, str) else column_bounds(bounds, len(table.names), table.names)

    given, most = None if columns is None else range(len(table.names)), sys.maxsize if limit is None else limit
    profile, notes = _read(table.blocks(most), Profile(table.names, known, row_norm, given))
    if not profile.is_settled:  # rare: the first rows did not show which columns hold numbers
        profile, notes = _read(table.blocks(most), Profile(table.names, known, row_norm, profile.used()))
    figures = profile.columns()
    chosen = [figures[place] for place in profile.used()]
    used, n, d = tuple(column.name for column in chosen), profile.rows, len(chosen)
    if profile.rows == limit:
        notes.append(f"Only the first {limit:,} rows were read.")
    notes += _warnings(profile, chosen, row_norm)
    noise = captured = None
    if d < n_components:
        notes.append(f"There are fewer columns of numbers, {d}, than components, {n_components}.")
    elif epsilon is not None and n:
        noise = mechanism.sigma * (row_norm or 1.0) ** 2
        if d <= _PREDICTED:
            question = Question(**settings, n_rows=n, n_features=d, release_every=n)
            captured = next(covariances(question, Curve(question.spectrum, n_components))).captured
        notes += _promises(mechanism, n, d, noise, captured, is_private=isinstance(bounds, str))
    if identifiers := sorted((c.name for c in figures if c.kind == "identifier"), key=lambda name: not is_named(name)):
        notes.append(
            f"Rows of one person: if {identifiers[0]} repeats, a person with several rows is not protected as one yet, "
            "for which --unit will be the option."
        )
    left_out = {c.name: _REASONS.get(c.kind, c.kind) for c in figures}
    for name in used:
        del left_out[name]
    settings |= {
        "n_components": min(n_components, d),
        **dict.fromkeys(("horizon", "release_every"), "ROWS" if limit else n),
    }
    scale = {"row_norm": row_norm} if bounds is None else {"bounds": bounds}
    call = _call(data, used, not left_out, scale, settings, read) if n and d else ""
    long = profile.long / profile.complete if row_norm is not None and profile.complete else None
    return Check(
        n, profile.complete, profile.unreadable, figures, used, left_out, long, noise, captured,
        tuple(notes), scale != {"row_norm": None}, call,
    )  # fmt: skip


def _read(blocks: Iterator[CellBlock], profile: Profile) -> tuple[Profile, list[str]]:
    """Add blocks to a profile; return it, with a sentence if the table is damaged behind them."""
    try:
        for block in blocks:
            profile.add(block)
    except SourceError as damage:
        return profile, [f"Reading ended after {profile.rows:,} rows: {damage}"]
    return profile, []


def _check_scale(bounds: Scale, row_norm: float | None) -> None:
    """Refuse two scales, or one that no table could have."""
    if bounds is not None and row_norm is not None:
        raise UsageError("bounds= and row_norm= are both given: choose one scale")
    if isinstance(bounds, str) and bounds != "private":
        raise BadParameterError("bounds", bounds, "(lower, upper), a mapping by column or 'private'")
    if row_norm is not None:
        check_row_norm(row_norm)


def _warnings(profile: Profile, used: Sequence[ColumnProfile], row_norm: float | None) -> list[str]:
    """Return what would happen to the rows: bad, clamped and scaled ones."""
    texts, rows = [], profile.rows
    if not rows:
        return ["There are no rows, and nothing to release."]
    if profile.unreadable:
        texts.append(f"{profile.unreadable:,} rows are unreadable: cells are missing or too many, or it is no record.")
    if used and (bad := rows - profile.complete):
        texts.append(f"{bad:,} rows ({bad / rows:.1%}) are not complete and would count for nothing.")
    clamped = sorted((c for c in used if c.outside and c.outside > 0.01), key=lambda c: -(c.outside or 0.0))
    if clamped:
        named = ", ".join(f"{c.name} {c.outside:.1%}" for c in clamped[:5])
        others = f" and {len(clamped) - 5} more" if len(clamped) > 5 else ""
        texts.append(f"Values outside the given ranges would be clamped ({named}{others}).")
    if row_norm is not None and profile.complete:
        share = profile.long / profile.complete
        texts.append(f"{share:.1%} of the complete rows are longer than row_norm={row_norm:g} and would be shortened.")
    return texts


def _promises(
    mechanism: GaussianCovariance, n: int, d: int, noise: float, captured: float | None, *, is_private: bool
) -> list[str]:  # fmt: skip
    """Return sentences on noise, guarantee and warm-up. They follow from the public numbers n and d."""
    guarantee, k = mechanism.guarantee, mechanism.n_components
    text = f"One release at ({guarantee.epsilon:g}, {guarantee.delta:g}): noise of standard deviation {noise:.4g}"
    if captured is not None:
        text += f"; the planner expects {captured:.1%} of what {k} components can capture, from n and d alone"
    texts = [f"{text}.", *settings_warnings(guarantee, n), *size_warnings(k, d, mechanism.square_bytes)]
    if is_private:
        wanted = PrivateBounds.of(guarantee, None, n)
        texts.append(f"Private bounds would use {wanted.rows(d):,} of the {n:,} rows to find the ranges.")
        texts += wanted.warnings(d, n)
    return texts


def _call(
    data: Any, used: Sequence[str], is_whole: bool, scale: dict[str, Any], settings: dict[str, Any],
    read: Reading | None,
) -> str:  # fmt: skip
    """Return the Python call of a release, with LOW and HIGH for ranges that are not given."""
    if isinstance(data, (str, os.PathLike)):
        options = {f.name: getattr(read, f.name) for f in fields(read) if f.init} if read is not None else {}
        given = [f", {name}={value!r}" for name, value in options.items() if value != getattr(Reading(), name)]
        feed = (
            f"rows = sp.sources.open_rows({os.fspath(data)!r}, columns=columns{''.join(given)})\n"
            "for step in stream.run(rows):\n    pass"
        )
    else:
        chosen = "data[columns]" if is_frame(data) else "data.select(columns)" if is_arrow(data) else "rows"
        feed = f"stream.push_many({'data' if is_whole else chosen})"
    parameters = [f"{name}={value if value == 'ROWS' else repr(value)}" for name, value in settings.items()]
    stated = "".join(f"{name}={value!r}" for name, value in scale.items())
    if scale == {"row_norm": None}:
        stated = _lines("bounds={", [f"{name!r}: (LOW, HIGH)" for name in used], "}")
    elif isinstance(scale.get("bounds"), Mapping):
        stated = _lines("bounds={", [f"{name!r}: {pair!r}" for name, pair in scale["bounds"].items()], "}")
    return "\n".join([
        _lines("columns = [", map(repr, used), "]"), _lines("algorithm = sp.PrivateFPL(", parameters, ")"),
        f"stream = sp.Stream(algorithm, features=columns, {stated})", feed,
        "release = stream.release",
    ])  # fmt: skip


def _lines(start: str, parts: Iterable[str], end: str) -> str:
    """Return a call or display of these parts, on one line if it is short."""
    parts = [f"{part}," for part in parts]
    short = f"{start}{' '.join(parts).removesuffix(',')}{end}"
    return short if len(short) < 60 else f"{start}\n    {filled(parts, chr(10) + '    ')}\n{end}"
