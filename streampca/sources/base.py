"""What all sources share: rows in blocks, positions to resume from, the choice of columns, public bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from streampca.conversion import column_runs
from streampca.errors import BadParameterError, SourceError, short
from streampca.linalg.scale import Bounds as GivenBounds, close_names, column_bounds
from streampca.linalg.types import FloatArray
from streampca.rows.names import MISSING, refuse_values, repeated

#: Advice for sources whose columns always have names.
NAME_THEM = "if they are names, choose the columns by name with columns="

BoundsLike = GivenBounds | None


class NameOrPosition(str):
    """A whole number as text: the name of a column or, if none has it, a position from 1."""

    __slots__ = ()


def choose(header: Sequence[str], columns: Sequence[str | int] | None, where: str) -> Sequence[int]:
    """Return the positions in a header of columns given by name or position, in that order; of all for None."""
    if columns is None:
        if twice := repeated(name for name in header if name):
            shared = ", ".join([str(at) for at, name in enumerate(header, 1) if name in twice][:9])
            problem = f"columns {shared} share a name with another; choose by position, columns=[0, ...]"
            raise SourceError(where, problem)
        return range(len(header))
    if isinstance(columns, (str, bytes)) or not isinstance(columns, Iterable):
        value = short(columns)
        raise BadParameterError("columns", columns, f"a list of names or positions, such as columns=[{value}]")
    # One pass over the header: a search for each of a million columns would be quadratic.
    known: dict[str, list[int]] = {column: [] for column in columns if isinstance(column, str)}
    for at, name in enumerate(header):
        if name in known:
            known[name].append(at)
    places: list[int] = []
    for column in columns:
        if isinstance(column, str):
            found = known[column]
            if not found and isinstance(column, NameOrPosition) and 1 <= int(column) <= len(header):
                found = [int(column) - 1]
            if not found:
                raise SourceError(where, f"no column {short(column)}; {close_names(column, header)}")
            if len(found) > 1:
                raise SourceError(where, f"{short(column)} names {len(found)} columns; choose by position")
            places += found
        elif isinstance(column, bool) or not isinstance(column, (int, np.integer)):
            raise BadParameterError("columns", ..., f"names or positions from 0, not {short(column)}")
        elif 0 <= column < len(header):
            places.append(int(column))
        else:
            raise SourceError(where, f"no column at position {column}; there are {len(header)}, counted from 0")
    if not places:
        raise BadParameterError("columns", [], "at least one column, or None for all")
    if len({*places}) < len(places):
        name = header[Counter(places).most_common(1)[0][0]]
        raise BadParameterError("columns", ..., f"each column once, not {short(name)} twice")
    return tuple(places)


def choose_named(
    header: Sequence[str], columns: Sequence[str | int] | None, where: str, remedy: str,
    missing: frozenset[str] = MISSING, *, given: Iterable[object] | None = (),
) -> Sequence[int]:  # fmt: skip
    """Return what `choose` returns, but refuse chosen names that look like values unless the caller gave them."""
    try:
        places = choose(header, columns, where)
    except SourceError:
        # The message may hold names of the header, which are published only if none of them looks like a cell.
        refuse_values(header, where, remedy, missing)
        raise
    # Only chosen names are published, and those that the caller passed are no cells of a row.
    trusted, chosen = {*(() if given is None else given)}, {*places}
    doubtful = [name if at in chosen and name not in trusted else None for at, name in enumerate(header)]
    refuse_values(doubtful, where, remedy, missing)
    return places


def columns_of_entries(
    columns: Sequence[str | int] | None, header: Sequence[str]
) -> tuple[Sequence[str | int] | None, dict[str, int]]:
    """Replace the entries of columns of lists by these columns; return them, and the lengths of the lists."""
    if isinstance(columns, Sequence) and not isinstance(columns, str) and all(isinstance(one, str) for one in columns):
        with suppress(KeyError):  # `choose` says what is wrong
            runs = column_runs(tuple(map(str, columns)), tuple(header))
            return [*runs], {name: width for name, width in runs.items() if width}
    return columns, {}


def feature_names(header: Sequence[str], places: Sequence[int]) -> tuple[str, ...]:
    """Return distinct names of the chosen columns; nameless or ambiguous ones are named by position."""
    twice = repeated(header[place] for place in places)
    return tuple(header[at] if header[at] and header[at] not in twice else f"x{at}" for at in places)


def source_bounds(
    bounds: BoundsLike, features: Sequence[str], known: Iterable[str] = ()
) -> tuple[FloatArray, FloatArray] | None:
    """Return the public bounds of a source, read-only. ``known`` are names of columns that are not read."""
    if bounds is None:
        return None
    lower, upper = column_bounds(bounds, len(features), features, tuple(known))
    lower.flags.writeable = upper.flags.writeable = False
    return lower, upper


def numbers(value: Any, features: Sequence[Any]) -> list[float]:
    """Return the numbers of a record, by name or in order; NaN for an absent one. Raises ValueError or TypeError."""
    values = [value.get(name) for name in features] if isinstance(value, Mapping) else list(value)
    if len(values) != len(features) or any(isinstance(one, (str, bytes)) for one in values):
        raise ValueError(f"expected {len(features)} numbers and no text")
    return [float("nan") if one is None else float(one) for one in values]
