"""The row gate: every row passes it before any algorithm sees it.

A row becomes a vector of the unit ball on the lattice of `linalg.lattice`, by
a map that depends on the row and on public settings only: public bounds, then
the norm. Nothing here looks at two rows together.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streampca.errors import BadParameter, BadRow
from streampca.linalg import fast
from streampca.linalg.lattice import PIECE, onto_ball
from streampca.linalg.types import FloatArray

OnBadRow = Literal["raise", "zero"]
Bounds = tuple[Any, Any] | Mapping[str, tuple[float, float]]

_LARGE = float(np.finfo(np.float64).max)
_REMEDY = "pass on_bad_row='zero' to absorb it as a zero row"


#: Changes whenever the same row would be admitted otherwise, by a bit.
VERSION = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Admission:
    """Admit rows into the unit ball. An immutable value.

    Parameters
    ----------
    row_norm : bound on the norm of rows; longer rows are scaled onto it.
    bounds : public ranges of the features: ``(lower, upper)``, scalars or
        arrays of length d, or a mapping from feature name to ``(lower,
        upper)``. Values are clamped to their range, and ranges are mapped
        linearly onto ``[-1, 1] * row_norm / sqrt(d)``, so no row is longer
        than row_norm.
    features : names of the features, in order; those of the first row (`settled_by`) if left out.
    on_bad_row : ``"raise"`` names row, feature, value and remedy;
        ``"zero"`` admits a zero row instead and counts it.
    n_features : number of features, if known.
    center : append a constant feature of value row_norm to every good row; the
        bound on their norm is then sqrt(2) * row_norm.

    Attributes
    ----------
    middle, factor : rows are seen as ``(row - middle) * factor``, short of clamping.

    Raises
    ------
    BadParameter
        If a parameter is outside its domain, features repeat a name, or bounds do not fit them.
    """

    row_norm: float = 1.0
    bounds: Bounds | None = None
    features: tuple[str, ...] | None = None
    on_bad_row: OnBadRow = "raise"
    n_features: int | None = None
    center: bool = False
    middle: FloatArray | float = field(init=False, default=0.0)
    factor: FloatArray | float = field(init=False, default=1.0)

    def __post_init__(self) -> None:
        row_norm, names, count = self.row_norm, self.features, self.n_features
        if isinstance(row_norm, bool) or not isinstance(row_norm, (int, float)) or not 0.0 < row_norm < math.inf:
            raise BadParameter(f"row_norm={row_norm!r} must be a positive finite number")
        if self.on_bad_row not in ("raise", "zero"):
            raise BadParameter(f"on_bad_row={self.on_bad_row!r} must be 'raise' or 'zero'")
        if names is not None:
            names = tuple(str(name) for name in names)
            if len(set(names)) < len(names):
                twice = sorted({name for name in names if names.count(name) > 1})
                raise BadParameter(f"features repeats {', '.join(map(repr, twice))}; names must differ")
            if count is not None and count != len(names):
                raise BadParameter(f"{len(names)} features given, but this stream has {count}")
            count = len(names)
        if count is not None and count < 1:
            raise BadParameter("rows have no features")
        put = object.__setattr__
        put(self, "row_norm", float(row_norm))
        put(self, "features", names)
        put(self, "n_features", count)
        put(self, "factor", 1.0 / float(row_norm))
        if isinstance(self.bounds, Mapping):
            put(self, "bounds", dict(self.bounds))
        if count is not None and self.bounds is not None:
            middle, factor = _scaling(self.bounds, names, count)
            put(self, "middle", middle)
            put(self, "factor", factor)

    def fixed(self, features: Sequence[str] | None, n_features: int | None = None) -> Admission:
        """The same admission with its features settled.

        Raises
        ------
        BadParameter
            If they repeat a name, or differ from what was settled before, or
            the bounds do not fit them.
        """
        count = len(features) if features is not None else n_features
        if count is None or (features is None and count == self.n_features):
            return self
        names = None if features is None else tuple(str(name) for name in features)
        if self.n_features is not None and count != self.n_features:
            raise BadParameter(f"{count} features given, but this stream has {self.n_features}")
        if names is not None and self.features is not None and names != self.features:
            raise BadParameter("features differ in name or order from those of this stream")
        return replace(self, features=self.features or names, n_features=count)

    def with_bounds(self, bounds: Bounds) -> Admission:
        """The same admission with the public bounds of a source, if it has none of its own."""
        return self if self.bounds is not None else replace(self, bounds=bounds)

    def settled_by(self, row: Any, number: int = 1) -> Admission:
        """The same admission with the features of a first row.

        Raises
        ------
        BadRow
            If the row does not tell how many features there are.
        """
        if self.n_features is not None and self.features is not None:
            return self
        names = getattr(row, "_fields", None) or (tuple(row) if isinstance(row, Mapping) else None)
        if names is not None:
            return self.fixed(names)
        return self if self.n_features is not None else self.fixed(None, self._numbers(row, number).shape[0])

    def settled_by_block(self, rows: Any, number: int = 1) -> Admission:
        """The same admission with the features of a table, of an array or of the first of a list of rows."""
        if hasattr(rows, "columns") and hasattr(rows, "to_numpy"):
            return self if self.features is not None else self.fixed([str(name) for name in rows.columns])
        if self.n_features is not None and self.features is not None:
            return self
        if isinstance(rows, np.ndarray) and rows.ndim == 2:
            return self.fixed(None, rows.shape[1])
        if isinstance(rows, np.ndarray):
            raise BadRow(f"a block of shape {rows.shape} given; (n, n_features) expected")
        return self.settled_by(rows[0], number) if len(rows) else self

    @property
    def settings(self) -> tuple[object, ...]:
        """All that decides how a good row is admitted, but for the names of features, as parts of a label. Public."""
        scaled = tuple(
            tuple(np.asarray(part, dtype=np.float64).reshape(-1).tolist()) for part in (self.middle, self.factor)
        )
        return VERSION, self.row_norm, self.n_features, self.center, self.bounds is not None, *scaled

    def row(self, row: Any, number: int) -> tuple[FloatArray, int]:
        """Admit one row; return it as (1, d) with the number of bad rows (0 or 1) in it.

        Parameters
        ----------
        row : 1-D array or sequence of numbers, mapping from feature name to
            number, or named tuple.
        number : position of the row in the stream, from 1, for messages.

        Raises
        ------
        BadRow
            If the row is bad and ``on_bad_row="raise"``, or it is the first
            row and does not tell how many features there are.
        """
        kernels = fast.kernels
        if (
            kernels is not None
            and self.bounds is None
            and not self.center
            and type(row) is np.ndarray
            and row.shape == (self.n_features,)
            and row.dtype == np.float64
            and row.flags.c_contiguous
        ):  # what most rows are, in one pass
            admitted = np.empty((1, row.size))
            if kernels.admit(row, self.factor, admitted):
                return admitted, 0
        return self.block(self.values(row, number)[None, :], number)

    def values(self, row: Any, number: int) -> FloatArray:
        """Check one row and return its numbers, (d,), not admitted yet; all nan if it is bad and may be zeroed.

        Raises
        ------
        BadRow
            If the row is bad and ``on_bad_row="raise"``, or it does not tell how many features there are.
        """
        try:
            values = self._vector(row, number)
            if not np.vdot(values, values) < math.inf:
                self._refuse_infinite(values[None, :], number)
        except BadRow:
            if self.on_bad_row == "raise":
                raise
            return np.full(self._count(), np.nan)
        return values

    def all_values(self, rows: Any, number: int) -> FloatArray:
        """Check rows of any kind, all or none, and return their numbers, (n, d), not admitted yet.

        Parameters
        ----------
        rows : (n, d) array, a table, or an iterable of rows; bad ones become nan if they may be zeroed.

        Raises
        ------
        BadRow
            If a row is bad and ``on_bad_row="raise"``, or a block has the wrong shape.
        """
        if hasattr(rows, "columns") and hasattr(rows, "to_numpy"):
            rows = self.table(rows)
        if isinstance(rows, np.ndarray) and rows.dtype.kind in "fiub":
            values = self._shaped(rows, number)
            if self.on_bad_row == "raise":
                step = max(1, PIECE // values.shape[1])
                for start in range(0, len(values), step):
                    piece = values[start : start + step]
                    if not np.vdot(piece, piece) < math.inf:
                        self._refuse_infinite(piece, number + start)
            return values
        listed = [self.values(row, number + i) for i, row in enumerate(rows)]
        return np.array(listed) if listed else np.empty((0, self.n_features or 0))

    def block(self, rows: FloatArray, number: int) -> tuple[FloatArray, int]:
        """Admit a block of rows, (n, d); return it with the number of bad rows in it.

        Raises
        ------
        BadRow
            If the block has the wrong shape, or a row is not finite and
            ``on_bad_row="raise"``. No row of the block is admitted then.
        """
        rows = self._shaped(rows, number)
        if np.vdot(rows, rows) < math.inf:
            return self._onto_ball(rows), 0
        if self.on_bad_row == "raise":
            self._refuse_infinite(rows, number)
        whole: npt.NDArray[np.bool_] = np.asarray(np.isfinite(rows).all(axis=1))
        admitted = self._onto_ball(np.where(whole[:, None], rows, 0.0))
        admitted[~whole] = 0.0
        return admitted, int(rows.shape[0] - whole.sum())

    def _shaped(self, rows: FloatArray, number: int) -> FloatArray:
        rows = _as_floats(rows)
        if rows.ndim != 2:
            raise BadRow(f"a block of shape {rows.shape} given; (n, n_features) expected")
        if rows.shape[1] != self._count():
            raise BadRow(f"row {number}: {rows.shape[1]} values given, {self.n_features} expected")
        return rows

    def _count(self) -> int:
        if self.n_features is None:
            raise BadParameter("the number of features is not known yet; use settled_by(row), or give n_features=")
        return self.n_features

    def _refuse_infinite(self, rows: FloatArray, number: int) -> None:
        """Raise if a number is not finite; squares alone may overflow."""
        finite = np.isfinite(rows)
        if not finite.all():
            i, j = map(int, np.argwhere(~finite)[0])
            raise BadRow(f"row {number + i}: {self._name(j)} is not finite ({rows[i, j]}); {_REMEDY}")

    def table(self, table: Any) -> FloatArray:
        """The columns of a pandas or polars table as an (n, d) array, by name in this stream's order.

        Raises
        ------
        BadRow
            If a feature is missing or unknown, or a column is not numeric.
        """
        names = [str(name) for name in table.columns]
        wanted = names if self.features is None else self.features
        if set(names) != set(wanted):
            missing, extra = sorted(set(wanted) - set(names)), sorted(set(names) - set(wanted))
            raise BadRow(
                f"the table lacks features {missing} and has unknown features {extra}; select the stream's columns"
            )
        columns = dict(zip(names, table.columns, strict=True))
        arrays = []
        for name in wanted:
            try:
                arrays.append(np.asarray(table[columns[name]], dtype=np.float64))
            except (TypeError, ValueError, OverflowError):
                raise BadRow(f"feature {name!r} of the table is not numeric; drop or encode it") from None
        return np.stack(arrays, axis=1)

    @property
    def admitted_norm(self) -> float:
        """Norm, in the rows' own units, that the unit ball of admitted rows stands for."""
        return self.row_norm * (math.sqrt(2.0) if self.center else 1.0)

    @property
    def admitted_features(self) -> int | None:
        """Length of admitted rows, if it is known."""
        return self.n_features if self.n_features is None or not self.center else self.n_features + 1

    def ranges(self) -> tuple[FloatArray | None, FloatArray | None]:
        """Rows count as ``(row - middle) * scale`` in units of row_norm, by bounds; None and None without bounds."""
        if self.bounds is None or self.n_features is None:
            return None, None
        scale: FloatArray = np.asarray(self.factor * (self.row_norm / math.sqrt(self.n_features)))
        return np.asarray(self.middle), scale

    def neutral(self, count: int) -> FloatArray:
        """The raw row of so many features that is admitted as the zero row: the middle of all ranges."""
        return np.broadcast_to(np.asarray(self.middle, dtype=np.float64), (count,)).copy()

    def _onto_ball(self, rows: FloatArray) -> FloatArray:
        admitted = onto_ball(self._scaled(rows))
        if not self.center:
            return admitted
        longer = np.concatenate([admitted, np.ones((admitted.shape[0], 1))], axis=1)
        return onto_ball(longer * math.sqrt(0.5))

    def _scaled(self, rows: FloatArray) -> FloatArray:
        if self.bounds is None and self.row_norm == 1.0:
            return rows
        with np.errstate(over="ignore"):
            if self.bounds is None:
                return np.clip(rows * self.factor, -_LARGE, _LARGE)
            scaled: FloatArray = np.clip((rows - self.middle) * self.factor, -1.0, 1.0)
        scaled *= 1.0 / math.sqrt(rows.shape[1])
        return scaled

    def _vector(self, row: Any, number: int) -> FloatArray:
        """A 1-D float array from any kind of row."""
        if isinstance(row, np.ndarray) and row.dtype == np.float64 and row.shape == (self.n_features,):
            return row
        names = getattr(row, "_fields", None)
        if names is not None:
            row = dict(zip(names, row, strict=True))
        if isinstance(row, Mapping):
            row = self._by_name(row, number)
        values = self._numbers(row, number)
        if values.shape[0] != self._count():
            raise BadRow(f"row {number}: {values.shape[0]} values given, {self.n_features} expected")
        return values

    def _numbers(self, row: Any, number: int) -> FloatArray:
        """A 1-D float array from a row of any length without names."""
        if isinstance(row, np.ndarray) and row.dtype.kind not in "fiubOUS":
            raise BadRow(f"row {number}: values of type {row.dtype} are not real numbers")
        try:
            values = np.asarray(row, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            values = self._one_by_one(row, number)
        if values.ndim != 1:
            raise BadRow(f"row {number}: shape {values.shape} given; one row is 1-D (use push_many for a block)")
        return values

    def _by_name(self, row: Mapping[str, Any], number: int) -> list[Any]:
        if self.features is None:
            raise BadRow(f"row {number}: a mapping given, but the features of this stream have no names; pass an array")
        if len(row) != len(self.features) or any(name not in row for name in self.features):
            missing = [name for name in self.features if name not in row]
            extra = [name for name in row if name not in self.features]
            what = f"lacks feature {missing[0]!r}" if missing else f"has unknown feature {extra[0]!r}"
            raise BadRow(f"row {number}: {what}; the features are those of the first row; {_REMEDY}")
        try:
            return [row[name] for name in self.features]
        except (LookupError, TypeError, ValueError) as problem:
            raise BadRow(f"row {number}: the mapping does not give its values ({problem!r})") from None

    def _one_by_one(self, row: Any, number: int) -> FloatArray:
        """Find the value that is not a number, for the message."""
        if isinstance(row, (str, bytes)) or not hasattr(row, "__iter__"):
            raise BadRow(
                f"row {number}: {reprlib.repr(row)} is not a row of numbers; pass an array, a sequence or a mapping"
            )
        values = list(row)
        for j, value in enumerate(values):
            try:
                float(value)
            except (TypeError, ValueError, OverflowError):
                raise BadRow(
                    f"row {number}: {self._name(j)} is not a number ({reprlib.repr(value)}); {_REMEDY}"
                ) from None
        return np.array([float(value) for value in values])

    def _name(self, j: int) -> str:
        if self.features is None or j >= len(self.features):  # a row that is too long, too
            return f"feature {j}"
        return f"feature {self.features[j]!r}"


def _as_floats(rows: Any) -> FloatArray:
    try:
        return np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise BadRow("a block must be a 2-D array of numbers; push rows one at a time to find the bad one") from None


def _scaling(bounds: Bounds, features: tuple[str, ...] | None, count: int) -> tuple[FloatArray, FloatArray]:
    """Middle and inverse half-width of each range."""
    lower, upper = _ranges(bounds, features, count)
    usable = np.isfinite(lower) & np.isfinite(upper) & (lower < upper)
    if not usable.all():
        j = int(np.argmin(usable))
        name = f"feature {features[j]!r}" if features else f"feature {j}"
        raise BadParameter(f"bounds of {name} are ({lower[j]}, {upper[j]}); finite lower < upper needed")
    return 0.5 * lower + 0.5 * upper, 1.0 / (0.5 * upper - 0.5 * lower)


def _ranges(bounds: Bounds, features: tuple[str, ...] | None, count: int) -> tuple[FloatArray, FloatArray]:
    if isinstance(bounds, Mapping):
        if features is None:
            raise BadParameter("bounds by name need named features; pass features=, or bounds=(lower, upper)")
        missing = [name for name in features if name not in bounds]
        if missing:
            raise BadParameter(
                f"bounds are missing for {', '.join(map(repr, missing))}; give public ranges for all features"
            )
        pairs = [bounds[name] for name in features]
        lower, upper = zip(*pairs, strict=True)
    else:
        try:
            lower, upper = bounds
        except (TypeError, ValueError, OverflowError):
            raise BadParameter(
                f"bounds={reprlib.repr(bounds)} must be (lower, upper) or a mapping by feature name"
            ) from None
    try:
        low = np.broadcast_to(np.asarray(lower, dtype=np.float64), (count,))
        high = np.broadcast_to(np.asarray(upper, dtype=np.float64), (count,))
    except (TypeError, ValueError, OverflowError):
        raise BadParameter(
            f"bounds={reprlib.repr(bounds)} do not fit {count} features; give scalars or {count} numbers each"
        ) from None
    return low, high
