"""`sp.check`: a report on a table before anything is spent. Curator only.

It is the only function that reads rows to give advice. Its report holds counts and no cell, and ranges to fill in: one
that is taken from the rows would not be private.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from streampca.errors import BadParameterError, UsageError
from streampca.linalg.counts import check_components, check_count
from streampca.linalg.scale import Bounds, check_row_norm, check_scale, column_bounds
from streampca.mechanisms.covariance import GaussianCovariance
from streampca.planning.curve import Curve
from streampca.planning.plan import over_guesses
from streampca.planning.predictions import covariances
from streampca.planning.question import Question, rows_in_full
from streampca.privacy.budget import DELTA, Adjacency
from streampca.privacy.unit import Person, columns_of
from streampca.rows.advice import settings_warnings, size_warnings
from streampca.rows.bounds import PrivateBounds
from streampca.sources.profile import Profile
from streampca.sources.reading import Reading
from streampca.sources.tables import CellTable, open_cells
from streampca.views.check import Check

#: Most features for which the captured share is predicted: the prediction simulates d x d matrices.
_PREDICTED = 200


def check(
    data: Any, *, bounds: Bounds | Literal["private"] | None = None, row_norm: float | None = None,
    columns: Sequence[str | int] | None = None, n_components: int = 2, epsilon: float | None = None,
    delta: float = DELTA, adjacency: Adjacency = "zero-out", center: bool = True, limit: int | None = None,
    read: Reading | None = None, unit: Person | str | tuple[str, ...] | None = None,
) -> Check:  # fmt: skip
    """Report what a release of a table would meet. Spends nothing; curator only.

    Reads the rows once, in memory that does not grow with their number. Cells never make it fail. Parameters and errors
    are those of `pca`, except that no scale is required, and that columns need no types.

    Parameters
    ----------
    columns : sequence of str or int, default=None
        By default those that ``bounds`` names, or else those of numbers in the first rows.
    bounds, row_norm : default=None
        Public ranges add the share of values outside; a norm adds that of longer rows.
    epsilon : float, default=None
        Adds the noise, and the prediction of the planner from the public numbers n and d alone.
    limit : int, default=None
        Number of first rows to read; all by default.
    unit : Person, str or tuple of str, default=None
        Column of the person of each row, or several: adds the number of people, their rows, and the weight with which
        a release would count them, in memory that grows with the people.

    Examples
    --------
    >>> rows = [{"age": 41, "weight": 70.5}, {"age": "-", "weight": 81.0}]
    >>> report = sp.check(rows, bounds={"age": (0, 120), "weight": (0, 80)})
    >>> report.rows, report.complete_rows, float(report.columns.outside["weight"])
    (2, 1, 0.5)
    """
    # All that depends on the arguments or on a header is refused before a row is read.
    if bounds is not None or row_norm is not None:
        check_scale(bounds, row_norm)
    norm = 1.0 if row_norm is None else check_row_norm(row_norm)
    check_count("limit", limit, optional=True)
    settings: dict[str, Any] = {
        "n_components": n_components, "epsilon": 1.0 if epsilon is None else epsilon, "delta": delta,
        "adjacency": adjacency, "center": center,
    }  # fmt: skip
    mechanism = GaussianCovariance(**settings)
    person = Person.of(unit)
    if person is not None and not person.columns:
        raise BadParameterError("unit.column", None, "the name of a column")
    owners = columns_of(person)
    if columns is None and isinstance(bounds, Mapping):
        columns = [str(name) for name in bounds]
    table = data
    if not isinstance(data, CellTable):
        table = open_cells(data, [*columns, *owners] if columns and owners else columns, read)
    names, is_private = table.names, isinstance(bounds, str) and bounds == "private"
    if absent := [name for name in owners if name not in names]:
        raise UsageError(f"unit: the table lacks the columns {absent}")
    places = [at for at, name in enumerate(names) if name not in owners]
    check_components(n_components, None if columns is None else len(places))
    ranges = None
    if bounds is not None and not is_private:
        ranges = np.full(len(names), -np.inf), np.full(len(names), np.inf)
        ranges[0][places], ranges[1][places] = column_bounds(bounds, len(places), [names[at] for at in places])  # type: ignore[arg-type]
    profile = Profile(table, ranges, row_norm, None if columns is None else places, [*map(names.index, owners)])
    notes, figures = profile.read(limit), profile.columns()
    used = tuple(names[at] for at in profile.used or ())
    n, d, noise, captured = profile.rows, len(used), None, None
    own = figures.loc[[*used]]
    outside = 0.0 if ranges is None or not used else own["outside"].max()
    notes += _warnings(profile, outside, has_gaps=bool(own["missing"].any()))
    counts = np.array([*profile.people.values()])
    each, weight = float(counts.mean()) if counts.size else None, None
    if person is not None and each is not None:
        guess = Question(**settings, n_rows=n, n_features=d)
        full = rows_in_full(guess.spectrum, guess.mean_square, center=center, at_once=True, budget=person.budget)
        weight = float(np.minimum(counts, full).sum() / counts.sum())
        notes.append(
            f"{len(counts):,} people have complete rows, {np.median(counts):g} in the median and {counts.max():,} at "
            f"most. By these numbers, about {weight:.0%} of the weight of their rows would count, and "
            f"{np.count_nonzero(counts > full):,} people would spend their budget."
        )
    if profile.nobody:
        notes.append(f"{profile.nobody:,} rows name nobody in {', '.join(owners)} and would count for nothing.")
    if d < n_components:
        notes.append(f"There are fewer columns of numbers, {d}, than components, {n_components}.")
    elif epsilon is not None and n:
        noise = mechanism.sigma * norm**2
        text = f"One release at ({epsilon:g}, {delta:g}): noise of standard deviation {noise:.4g}"
        if d <= _PREDICTED:
            question = Question(**settings, n_rows=n, n_features=d, release_every=n, rows_per_person=each)
            curve = Curve(question.spectrum, n_components)
            (predicted,) = over_guesses(question, curve, [next(covariances(question, curve))])
            captured = predicted.captured_interval or (predicted.captured, predicted.captured)
            text += f"; the planner expects {captured[0]:.1%} to {captured[1]:.1%} of what {n_components} components "
            text += "can capture, by the spectrum"
        notes += [f"{text}.", *settings_warnings(mechanism.guarantee, n)]
        notes += size_warnings(n_components, d, mechanism.square_bytes)
        if is_private:
            wanted = PrivateBounds.of(mechanism.guarantee, None, n)
            notes.append(f"Private bounds would use {wanted.rows(d):,} of the {n:,} rows to find the ranges.")
            notes += wanted.warnings(d, n)
    for name in figures.index[figures["kind"] == "identifier"][: person is None]:
        notes.append(
            f"The guarantee is for one row: where {name} repeats, a person with m rows has m times its mu. Keep one "
            "row of each, or divide the budget."
        )
    proposal = ""
    if n and d and bounds is None and row_norm is None:
        notes.append("No range is taken from these rows: that would not be private. Fill in from the data dictionary:")
        proposal = "".join(["bounds = {\n", *(f"    {name!r}: (LOW, HIGH),\n" for name in used), "}"])
    long = None if row_norm is None or not profile.complete else profile.long / profile.complete
    return Check(
        n, profile.complete, profile.unreadable, figures, used, long, noise, captured, tuple(notes), proposal,
        None if person is None else len(counts), weight,
    )  # fmt: skip


def _warnings(profile: Profile, outside: float, *, has_gaps: bool) -> list[str]:
    """Return what would happen to the rows: bad, clamped and shortened ones."""
    texts, bad, complete = [], profile.rows - profile.complete, profile.complete
    if profile.unreadable:
        texts.append(f"{profile.unreadable:,} rows are unreadable: cells are missing or too many, or it is no record.")
    if profile.used and bad:
        remedy = " Cells that are missing can be filled: on_missing='cell'." if has_gaps else ""
        texts.append(f"{bad:,} rows ({bad / profile.rows:.1%}) are incomplete and would count for nothing.{remedy}")
    if outside > 0.01:
        texts.append(f"Up to {outside:.1%} of a column is outside its range and would be clamped.")
    if profile.row_norm is not None and complete:
        share = profile.long / complete
        texts.append(f"{share:.1%} of the complete rows are longer than {profile.row_norm:g} and would be shortened.")
        if 2 * profile.short > complete:
            texts.append(
                f"{profile.short / complete:.1%} of them are at most a third as long. If their typical norm is known "
                "from other sources, row_norm=1.5 times it has less noise; longer rows are then shortened for good, "
                "which loses their variance. A norm that is taken from these rows is not private."
            )
    return texts
