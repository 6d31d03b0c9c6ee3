"""The row gate: every row passes it before any algorithm sees it.

A row becomes a vector of the unit ball on the lattice of `linalg.lattice`, by
a map that depends on the row and on public settings only: public bounds, then
the norm. Nothing here looks at two rows together.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from streampca.errors import BadParameter, BadRow
from streampca.linalg.lattice import PIECE, onto_ball
from streampca.linalg.types import FloatArray

OnBadRow = Literal["raise", "zero"]
Bounds = tuple[Any, Any] | Mapping[str, tuple[float, float]]

_LARGE = float(np.finfo(np.float64).max)
_REMEDY = "pass on_bad_row='zero' to absorb it as a zero row"


class Admission:
    """Admit rows into the unit ball.

    Parameters
    ----------
    row_norm : bound on the norm of rows; longer rows are scaled onto it.
    bounds : public ranges of the features: ``(lower, upper)``, scalars or
        arrays of length d, or a mapping from feature name to ``(lower,
        upper)``. Values are clamped to their range, and ranges are mapped
        linearly onto ``[-1, 1] * row_norm / sqrt(d)``, so no row is longer
        than row_norm.
    features : names of the features, in order; read off the first row if left out.
    on_bad_row : ``"raise"`` names row, feature, value and remedy;
        ``"zero"`` admits a zero row instead and counts it.
    n_features : number of features, if known.
    center : append a constant feature of value row_norm to every good row; the
        bound on their norm is then sqrt(2) * row_norm.

    Attributes
    ----------
    bad_rows : rows replaced by zero rows. Curator only: it depends on raw rows.
    """

    def __init__(
        self,
        *,
        row_norm: float = 1.0,
        bounds: Bounds | None = None,
        features: Sequence[str] | None = None,
        on_bad_row: OnBadRow = "raise",
        n_features: int | None = None,
        center: bool = False,
    ) -> None:
        if isinstance(row_norm, bool) or not isinstance(row_norm, (int, float)) or not 0.0 < row_norm < math.inf:
            raise BadParameter(f"row_norm={row_norm!r} must be a positive finite number")
        if on_bad_row not in ("raise", "zero"):
            raise BadParameter(f"on_bad_row={on_bad_row!r} must be 'raise' or 'zero'")
        self.row_norm = float(row_norm)
        self.bounds = bounds
        self.on_bad_row = on_bad_row
        self.center = center
        self.bad_rows = 0
        self.features: tuple[str, ...] | None = None
        self.n_features: int | None = None
        self._middle: FloatArray | float = 0.0
        self._factor: FloatArray | float = 1.0 / self.row_norm
        if features is not None:
            self.fix(features)
        if n_features is not None:
            self.fix(None, n_features)

    def fix(self, features: Sequence[str] | None, n_features: int | None = None) -> None:
        """Settle the features, once.

        Raises
        ------
        BadParameter
            If they repeat a name, or differ from what was settled before, or
            the bounds do not fit them.
        """
        count = len(features) if features is not None else n_features
        if count is None:
            return
        names = None if features is None else tuple(str(name) for name in features)
        if names is not None and len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise BadParameter(f"features repeats {', '.join(map(repr, twice))}; names must differ")
        if self.n_features is not None and count != self.n_features:
            raise BadParameter(f"{count} features given, but this stream has {self.n_features}")
        if names is not None and self.features is not None and names != self.features:
            raise BadParameter("features differ in name or order from those of this stream")
        if count < 1:
            raise BadParameter("rows have no features")
        middle, factor = self._scaling(self.features or names, count)
        self._middle, self._factor = middle, factor
        self.n_features = count
        self.features = self.features or names

    def give_bounds(self, bounds: Bounds) -> None:
        """Take public bounds from a source, for a gate that was given none and has seen no row."""
        if self.bounds is None:
            self.bounds = bounds
            if self.n_features is not None:
                self._middle, self._factor = self._scaling(self.features, self.n_features)

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
            if self.on_bad_row == "raise" or self.n_features is None:
                raise
            return np.full(self.n_features, np.nan)
        return values

    def all_values(self, rows: Any, number: int) -> FloatArray:
        """Check rows of any kind, all or none, and return their numbers, (n, d), not admitted yet.

        Parameters
        ----------
        rows : (n, d) array, or an iterable of rows; bad ones become nan if they may be zeroed.

        Raises
        ------
        BadRow
            If a row is bad and ``on_bad_row="raise"``, or a block has the wrong shape.
        """
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
        if self.n_features is None:
            self.fix(None, rows.shape[1])
        if rows.shape[1] != self.n_features:
            raise BadRow(f"row {number}: {rows.shape[1]} values given, {self.n_features} expected")
        return rows

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
        if self.features is None:
            self.fix(names)
        wanted = self.features or ()
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

    def neutral(self, count: int) -> FloatArray:
        """The raw row of so many features that is admitted as the zero row: the middle of all ranges."""
        return np.broadcast_to(np.asarray(self._middle, dtype=np.float64), (count,)).copy()

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
                return np.clip(rows * self._factor, -_LARGE, _LARGE)
            scaled: FloatArray = np.clip((rows - self._middle) * self._factor, -1.0, 1.0)
        scaled *= 1.0 / math.sqrt(rows.shape[1])
        return scaled

    def _scaling(self, features: tuple[str, ...] | None, count: int) -> tuple[FloatArray | float, FloatArray | float]:
        """Middle and inverse half-width of each range."""
        if self.bounds is None:
            return 0.0, 1.0 / self.row_norm
        lower, upper = self._ranges(self.bounds, features, count)
        usable = np.isfinite(lower) & np.isfinite(upper) & (lower < upper)
        if not usable.all():
            j = int(np.argmin(usable))
            name = f"feature {features[j]!r}" if features else f"feature {j}"
            raise BadParameter(f"bounds of {name} are ({lower[j]}, {upper[j]}); finite lower < upper needed")
        return 0.5 * lower + 0.5 * upper, 1.0 / (0.5 * upper - 0.5 * lower)

    @staticmethod
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

    def _vector(self, row: Any, number: int) -> FloatArray:
        """A 1-D float array from any kind of row."""
        if isinstance(row, np.ndarray) and row.dtype == np.float64 and row.shape == (self.n_features,):
            return row
        names = getattr(row, "_fields", None)
        if names is not None:
            row = dict(zip(names, row, strict=True))
        if isinstance(row, Mapping):
            row = self._by_name(row, number)
        if isinstance(row, np.ndarray) and row.dtype.kind not in "fiubOUS":
            raise BadRow(f"row {number}: values of type {row.dtype} are not real numbers")
        try:
            values = np.asarray(row, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            values = self._one_by_one(row, number)
        if values.ndim != 1:
            raise BadRow(f"row {number}: shape {values.shape} given; one row is 1-D (use push_many for a block)")
        if self.n_features is None:
            self.fix(None, values.shape[0])
        elif values.shape[0] != self.n_features:
            raise BadRow(f"row {number}: {values.shape[0]} values given, {self.n_features} expected")
        return values

    def _by_name(self, row: Mapping[str, Any], number: int) -> list[Any]:
        if self.features is None:
            self.fix(tuple(row))
        assert self.features is not None
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
