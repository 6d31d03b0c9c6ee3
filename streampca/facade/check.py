"""`sp.check`: a report on a table before anything is spent. Curator only.

It is the only function that reads rows to give advice. Its report holds counts and no cell, and ranges to fill in: one
that is taken from the rows would not be private.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from streampca.errors import BadParameterError, SourceError
from streampca.linalg.counts import check_components, check_count
from streampca.linalg.scale import Bounds, check_row_norm, check_scale, column_bounds
from streampca.mechanisms.covariance import GaussianCovariance
from streampca.planning.curve import Curve
from streampca.planning.predictions import covariances
from streampca.planning.question import Question
from streampca.privacy.budget import DELTA, Adjacency
from streampca.rows.advice import settings_warnings, size_warnings
from streampca.rows.bounds import PrivateBounds
from streampca.sources.columns import ColumnTable, open_columns
from streampca.sources.profile import ColumnProfile, Profile, cells_of, is_named
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
    """Report what a release of a table would meet. Spends nothing; curator only.

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
        Figures, advice and ranges to fill in. Prints itself in 80 columns.

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
    if bounds is not None or row_norm is not None:
        check_scale(bounds, row_norm)
    if isinstance(bounds, str) and bounds != "private":
        raise BadParameterError("bounds", bounds, "(lower, upper), a mapping by column or 'private'")
    if row_norm is not None:
        check_row_norm(row_norm)
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

    profile = Profile(table.names, known, row_norm, None if columns is None else range(len(table.names)))
    notes = _read(table, profile, limit)
    if columns is None and profile.used is not None and (numeric := profile.numeric()) != profile.used:
        # Rare: the first rows did not show which columns hold numbers.
        profile = Profile(table.names, known, row_norm, numeric)
        notes = _read(table, profile, limit)
    figures, places = profile.columns(), profile.used or ()
    chosen = [figures[place] for place in places]
    used, n, d = tuple(column.name for column in chosen), profile.rows, len(chosen)
    notes += _warnings(profile, chosen, row_norm)
    noise = captured = None
    if d < n_components:
        notes.append(f"There are fewer columns of numbers, {d}, than components, {n_components}.")
    elif epsilon is not None and n:
        noise = mechanism.sigma * (row_norm or 1.0) ** 2
        if d <= _PREDICTED:
            question = Question(**settings, n_rows=n, n_features=d, release_every=n)
            captured = next(covariances(question, Curve(question.spectrum, n_components))).captured
        notes += _predictions(mechanism, n, d, noise, captured, is_private=isinstance(bounds, str))
    if identifiers := sorted((c.name for c in figures if c.kind == "identifier"), key=lambda name: not is_named(name)):
        notes.append(
            f"Rows of one person: if {identifiers[0]} repeats, a person with several rows is not protected as one yet, "
            "for which --unit will be the option."
        )
    left_out = {c.name: _REASONS.get(c.kind, c.kind) for at, c in enumerate(figures) if at not in places}
    has_scale, ranges = bounds is not None or row_norm is not None, ""
    if n and d and not has_scale:
        parts = [f"{name!r}: (LOW, HIGH)," for name in used]
        ranges = f"bounds = {{{filled(parts, chr(10) + ' ' * 10)}}}"
    long = profile.long / profile.complete if row_norm is not None and profile.complete else None
    return Check(
        n, profile.complete, profile.unreadable, figures, used, left_out, long, noise, captured,
        tuple(notes), has_scale, ranges,
    )  # fmt: skip


def _read(table: ColumnTable, profile: Profile, limit: int | None) -> list[str]:
    """Add the first rows of a table to a profile; return a sentence where it is cut or damaged."""
    try:
        for columns, unreadable in table.blocks():
            left = sys.maxsize if limit is None else limit - profile.rows
            cells = [cells_of(column[:left], table.missing) for column in columns]
            profile.add(cells, min(unreadable, left - len(cells[0][0])))
            if profile.rows == limit:
                return [f"Only the first {limit:,} rows were read."]
    except SourceError as damage:
        return [f"Reading ended after {profile.rows:,} rows: {damage}"]
    return []


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


def _predictions(
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
