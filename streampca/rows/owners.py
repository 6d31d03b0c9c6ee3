"""Rows and the names of their people: named columns are taken out of rows of any kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from streampca.conversion import is_frame
from streampca.errors import UsageError
from streampca.linalg.types import FloatArray
from streampca.privacy.unit import Person, name_of, names_of
from streampca.rows.admission import bad_values

#: Names of the people of rows; None for rows of nobody.
Names = Sequence[bytes | None]
_STREAM = "push(row, person=...) or push_many(rows, person=[...])"


def owned(unit: Person | None, rows: Any, person: Any = ..., otherwise: str = _STREAM) -> tuple[Any, Names | None]:
    """Return a block of rows without the columns of the unit, and the names of their people; None without a unit.

    ``person`` has a value for each row, in place of the columns. Whether it is given, and for how many rows, is public;
    a value that names nobody makes its row a bad one. ``otherwise`` is how else the caller takes names.
    """
    if unit is None:
        if person is not ...:
            raise UsageError("person: rows are protected, and not people. Give unit=Person() to the algorithm")
        return rows, None
    columns = unit.columns
    if person is not ...:
        return rows, [name_of(value) for value in one_each(person, len(rows))]
    if not columns:
        raise UsageError(f"unit: it is not known whose rows these are. Use Person(column=...), or {otherwise}")
    if is_frame(rows):
        if missing := [name for name in columns if name not in rows.columns]:
            raise UsageError(f"unit: the table lacks the columns {missing}. Add them, or use {otherwise}")
        kept = [name for name in rows.columns if name not in columns]
        return rows[kept], names_of([list(rows[name]) for name in columns])
    if isinstance(rows, np.ndarray):
        raise UsageError(f"unit: an array has no column {columns[0]!r}. Use {otherwise}")
    found, names = [], []
    for row in rows:
        fields = mapping_of(row)
        if fields is None:
            raise UsageError(f"unit: a row without names has no column {columns[0]!r}. Use {otherwise}")
        # A name that is absent is a missing value, as in a row of features.
        values = [fields.get(name) for name in columns]
        names.append(name_of(values[0] if len(values) == 1 else tuple(values)))
        found.append({name: value for name, value in fields.items() if name not in columns})
    return found, names


def check_features(features: Sequence[Any] | None, beside: Sequence[str]) -> None:
    """Raise `UsageError` if a column of people or times is a feature."""
    if both := [name for name in beside if name in (features or ())]:
        raise UsageError(f"columns: {', '.join(both)} holds people or times, and is no feature. Use columns=")


def one_each(person: Any, count: int) -> list[Any]:
    """Return the values of ``person=`` in a list; raise `UsageError` unless it has one for each row, in their order."""
    # The elements of sets and the keys of mappings are in no order, and those of a table are its columns.
    unordered = isinstance(person, (str, bytes, Set, Mapping)) or is_frame(person)
    if unordered or not isinstance(person, Iterable) or getattr(person, "ndim", 1) != 1:
        raise UsageError("person: expected a name for each row, in a list, an array or a column")
    names = list(person)
    if len(names) != count:
        raise UsageError(f"person: {len(names)} names for {count} rows. Name one for each row")
    return names


def named_values(values: FloatArray, names: Names | None) -> FloatArray:
    """Return raw rows, of which those of nobody are bad rows."""
    nobody = [] if names is None else [i for i, name in enumerate(names) if name is None]
    if nobody:
        values = values.copy()
        values[nobody] = bad_values("no person", values.shape[1])
    return values


def mapping_of(row: Any) -> Mapping[Any, Any] | None:
    """Return a row with names as a mapping; None for others."""
    if isinstance(row, Mapping):
        return row
    if (fields := getattr(row, "_fields", None)) is not None:
        return dict(zip(fields, row, strict=True))
    labels: Any = getattr(row, "index", None)
    if hasattr(labels, "dtype") and all(isinstance(label, str) for label in labels):
        return dict(zip(labels, row, strict=True))
    return None
