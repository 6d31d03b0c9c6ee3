"""Admission: the map from raw rows to the rows that algorithms absorb.

A row becomes a vector of the unit ball on the lattice of `linalg.lattice`, by
a map that depends on the row and on public settings only: public bounds, then
the norm. Nothing here looks at two rows together.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streampca.conversion import WARNED_OF, as_floats, frame_column, is_frame
from streampca.errors import BadParameterError, BadRowError, listed, short
from streampca.linalg import fast
from streampca.linalg.centering import CONSTANT, with_constant
from streampca.linalg.lattice import CHUNK, STEP, UNIT, admitted_rows, truncated
from streampca.linalg.types import FloatArray
from streampca.rows.bounds import Bins, PrivateBounds, column_bounds
from streampca.rows.bounds import Bounds as Bounds
from streampca.rows.names import NAME_THEM, refuse_values
from streampca.state import label_of

OnBadRow = Literal["raise", "zero"]

_LARGE = float(np.finfo(np.float64).max)
#: Scaled squares up to which a row may be put on the lattice without an overflow.
_SAFE = 1e200
_REMEDY = "pass on_bad_row='zero' to absorb it as a zero row"


#: Changes whenever an admitted row would differ in a bit.
VERSION = 1
#: Why rows are bad. A missing value is a nan.
REASONS = ("missing value", "infinite value", "not a number", "wrong features", "unreadable record")
# A bad row that was found before it is admitted is all nan, and the low bits of the first say why.
_NAN = 0x7FF8_5354_0000_0000
# Values that are outside their range by no more than the lattice can tell are not clamped.
_OUTSIDE = 1.0 + STEP

#: What is raised where something cannot be made a number.
_NO_NUMBER = (TypeError, ValueError, ArithmeticError, RuntimeError)
_SEQUENCES = (list, tuple)

Mask = npt.NDArray[np.bool_]


def share_text(share: float) -> str:
    """A share in per cent, in up to three digits."""
    return f"{100.0 * share:.3g} %"


def bad_values(reason: str, n_features: int) -> FloatArray:
    """The numbers of a bad row, all nan, that are counted under one of `REASONS` when they are admitted."""
    row = np.full(n_features, np.nan)
    row[0] = np.array(_NAN + REASONS.index(reason), dtype=np.uint64).view(np.float64)
    return row


class Counts(NamedTuple):
    """What admission did to some rows. Curator only: exact counts of raw rows.

    Attributes
    ----------
    zeroed : rows absorbed as zero rows, for each of `REASONS`.
    scaled : rows that were longer than row_norm.
    clamped : values outside their bounds, for each feature; None if there are none.
    squares : sum of the squared norms of the admitted rows, in units of 2**-40 row_norm**2.
    warmup : good rows that served for private bounds alone.
    votes : their bins, `PrivateBounds.votes`, until the bounds are found.
    """

    zeroed: tuple[int, ...] = (0,) * len(REASONS)
    scaled: int = 0
    clamped: npt.NDArray[np.int64] | None = None
    squares: int = 0
    warmup: int = 0
    votes: tuple[Bins, ...] = ()

    def plus(self, other: Counts) -> Counts:
        """The counts of these rows and others together."""
        zeroed, scaled, clamped, squares, warmup, votes = self
        more, longer, outside, further, served, voted = other
        if more is not NO_COUNTS.zeroed:
            zeroed = tuple(map(int.__add__, zeroed, more))
        if outside is not None:
            clamped = outside if clamped is None else clamped + outside
        sums = scaled + longer, clamped, squares + further, warmup + served, votes + voted
        return tuple.__new__(Counts, (zeroed, *sums))

    @property
    def bad(self) -> int:
        """Rows absorbed as zero rows."""
        return sum(self.zeroed)

    def plain(self) -> list[Any]:
        """The counts as what a store keeps; integers of at most 64 bits."""
        votes = np.concatenate(self.votes) if self.votes else None
        return [list(self.zeroed), self.scaled, self.clamped, *divmod(self.squares, int(UNIT)), self.warmup, votes]

    @classmethod
    def of_plain(cls, plain: Sequence[Any]) -> Counts:
        """Inverse of `plain`."""
        zeroed, scaled, clamped, high, low, warmup, votes = plain
        outside = None if clamped is None else np.asarray(clamped, dtype=np.int64)
        squares = int(high) * int(UNIT) + int(low)
        voted = () if votes is None else (np.asarray(votes, dtype=np.uint8),)
        return cls(tuple(map(int, zeroed)), int(scaled), outside, squares, int(warmup), voted)


NO_COUNTS = Counts()


class Marks(NamedTuple):
    """What admission did to each row of a block. Curator only.

    Attributes
    ----------
    squares : squared norms of the admitted rows, (n,).
    reasons : place in `REASONS` of each bad row, -1 of the others, (n,); None if there is no bad row.
    scaled : rows that were longer than row_norm, (n,); None if there are none.
    clamped : values outside their bounds, (n, d); None if there are none.
    votes : bins of the rows of a warm-up, (n, d); None for other rows.
    """

    squares: FloatArray
    reasons: npt.NDArray[np.int64] | None
    scaled: Mask | None
    clamped: Mask | None
    votes: Bins | None = None

    def counts(self, start: int = 0, stop: int | None = None) -> Counts:
        """The counts of the rows from ``start`` to before ``stop``."""
        rows = slice(start, stop)
        zeroed = NO_COUNTS.zeroed
        if self.reasons is not None:
            found = self.reasons[rows]
            zeroed = tuple(np.bincount(found[found >= 0], minlength=len(REASONS)).tolist())
        clamped = None if self.clamped is None else np.count_nonzero(self.clamped[rows], axis=0)
        return Counts(
            zeroed,
            0 if self.scaled is None else int(np.count_nonzero(self.scaled[rows])),
            clamped if clamped is not None and clamped.any() else None,
            int((self.squares[rows] * UNIT).astype(np.int64).sum()),
            0 if self.votes is None else len(self.votes[rows]) - sum(zeroed),
            () if self.votes is None else (self.votes[rows],),
        )


@dataclass(frozen=True)
class AdmissionReport:
    """What admission did to the rows of a stream. Curator only: exact functions of raw rows, without any privacy.

    Attributes
    ----------
    rows : rows seen.
    zero_rows_by_reason : rows that could not be used and count as zero rows, by reason; reasons that did not occur are
        left out.
    share_scaled : share of the rows that were longer than row_norm and were scaled onto it.
    share_clamped : share of the values of each feature that were outside its bounds, by name.
    ball_used : mean of the squared norm of the admitted rows, in units of row_norm**2. Noise is for rows that use all.

    Notes
    -----
    Shares and means are over the rows that could be used, without those of a warm-up; nan before the first.
    """

    rows: int
    zero_rows_by_reason: dict[str, int]
    share_scaled: float
    share_clamped: dict[str, float]
    ball_used: float

    @classmethod
    def of(cls, admission: Admission, counts: Counts, rows: int) -> AdmissionReport:
        """The report on so many rows."""
        names = admission.features or tuple(f"feature {j}" for j in range(admission.n_features or 0))
        used = rows - counts.bad - counts.warmup or math.nan
        clamped = np.zeros(len(names)) if counts.clamped is None else counts.clamped
        shares = {} if admission.bounds is None else dict(zip(names, (clamped / used).tolist(), strict=True))
        zeroed = {reason: count for reason, count in zip(REASONS, counts.zeroed, strict=True) if count}
        return cls(rows, zeroed, counts.scaled / used, shares, counts.squares / UNIT / used)

    @property
    def bad_rows(self) -> int:
        """Number of rows that could not be used and count as zero rows."""
        return sum(self.zero_rows_by_reason.values())

    @property
    def reasons(self) -> str:
        """The counts of rows that could not be used, by reason, as text."""
        return ", ".join(f"{count} {reason}" for reason, count in self.zero_rows_by_reason.items())

    def warnings(self) -> list[str]:
        """Plain sentences on what should be changed. Curator only: they depend on raw rows.

        There is one for each: rows that could not be used, a feature with more than 1 % of its values
        clamped, more than 5 % of the rows scaled, less than 10 % of the ball used.
        """
        found = []
        if self.zero_rows_by_reason:
            found.append(
                f"{self.bad_rows} of {self.rows} rows could not be used and count as zero rows ({self.reasons})."
            )
        worst = sorted((item for item in self.share_clamped.items() if item[1] > 0.01), key=lambda item: -item[1])
        if worst:
            named = ", ".join(f"{name} {share:.1%}" for name, share in worst[:5])
            others = f" and {len(worst) - 5} more" if len(worst) > 5 else ""
            found.append(
                f"Values outside their bounds were clamped ({named}{others}): the components show the bounds more than "
                "the rows. Give these features wider public bounds."
            )
        if self.share_scaled > 0.05:
            found.append(
                f"{self.share_scaled:.1%} of the rows were longer than row_norm and were scaled onto it, which keeps "
                "their direction only. Give public bounds of the features, or a larger row_norm."
            )
        if self.ball_used < 0.1:
            remedy = "tighter public bounds" if self.share_clamped else "a smaller row_norm"
            found.append(
                f"The rows use {self.ball_used:.2%} of the ball that the noise is calibrated for. Give {remedy}."
            )
        return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Admission:
    """Admit rows into the unit ball. An immutable value.

    Parameters
    ----------
    row_norm : bound on the norm of rows; longer rows are scaled onto it.
    bounds : public ranges of the features: ``(lower, upper)``, scalars or
        arrays of length d, or a mapping from feature name to ``(lower,
        upper)``; or a `PrivateBounds`. Values are clamped to their range, and ranges are mapped
        linearly onto ``[-1, 1] * row_norm / sqrt(d)``, so no row is longer
        than row_norm.
    features : names of the features, in order; those of the first row (`fixed_by`) if left out.
    on_bad_row : ``"raise"`` names row, feature, value and remedy;
        ``"zero"`` admits a zero row instead and counts it.
    n_features : number of features, if known.
    center : append the constant of `linalg.centering` to every row, to zero rows in place of bad ones too.
    found : what private bounds were found to be, (lower, upper). Until then every row is admitted as the
        zero row, and votes.

    Attributes
    ----------
    is_warming_up : whether private bounds are still to be found.
    middle, factor : rows are seen as ``(row - middle) * factor``, short of clamping.

    Raises
    ------
    BadParameterError
        If a parameter is outside its domain, features repeat a name, or bounds do not fit them.
    """

    row_norm: float = 1.0
    bounds: Bounds | PrivateBounds | None = None
    features: tuple[str, ...] | None = None
    on_bad_row: OnBadRow = "raise"
    n_features: int | None = None
    center: bool = False
    found: tuple[FloatArray, FloatArray] | None = None
    is_warming_up: bool = field(init=False, default=False)
    middle: FloatArray | float = field(init=False, default=0.0)
    factor: FloatArray | float = field(init=False, default=1.0)

    def __post_init__(self) -> None:
        row_norm, names, count = self.row_norm, self.features, self.n_features
        number = isinstance(row_norm, (int, float, np.floating, np.integer)) and not isinstance(row_norm, bool)
        if not number or not 1e-150 < row_norm < 1e150:  # its square is finite, as `Terms.from_dict` asks
            raise BadParameterError(
                f"row_norm={short(row_norm)} must be a positive finite number, between 1e-150 and 1e150"
            )
        if self.on_bad_row not in ("raise", "zero"):
            raise BadParameterError(f"on_bad_row={short(self.on_bad_row)} must be 'raise' or 'zero'")
        if names is not None:
            names = tuple(str(name) for name in names)
            twice = sorted({name for name, following in pairwise(sorted(names)) if name == following})
            if twice:
                raise BadParameterError(f"features repeats {listed(twice)}; names must differ")
            if count is not None and count != len(names):
                raise BadParameterError(f"{len(names)} features given, but this stream has {count}")
            count = len(names)
        if count is not None and count < 1:
            raise BadParameterError("rows have no features")
        put = object.__setattr__
        put(self, "row_norm", float(row_norm))
        put(self, "features", names)
        put(self, "n_features", count)
        put(self, "factor", 1.0 / float(row_norm))
        if isinstance(self.bounds, Mapping):
            put(self, "bounds", dict(self.bounds))
        bounds = self.found if isinstance(self.bounds, PrivateBounds) else self.bounds
        put(self, "is_warming_up", bounds is not self.bounds and self.found is None)
        if count is None and isinstance(bounds, tuple) and all(np.ndim(side) == 0 for side in bounds):
            column_bounds(bounds, 1, None)  # the same for all features: checked before their number is known
        if count is not None and bounds is not None:
            lower, upper = column_bounds(bounds, count, names)
            put(self, "middle", 0.5 * lower + 0.5 * upper)
            put(self, "factor", 1.0 / (0.5 * upper - 0.5 * lower))

    def fixed(self, features: Sequence[str] | None, n_features: int | None = None) -> Admission:
        """The same admission with its features fixed.

        Raises
        ------
        BadParameterError
            If they repeat a name, or differ from those fixed before, or
            the bounds do not fit them.
        """
        count = len(features) if features is not None else n_features
        if count is None or (features is None and count == self.n_features):
            return self
        names = None if features is None else tuple(str(name) for name in features)
        if self.n_features is not None and count != self.n_features:
            raise BadParameterError(f"{count} features given, but this stream has {self.n_features}")
        if names is not None and self.features is not None and names != self.features:
            raise BadParameterError("features differ in name or order from those of this stream")
        return replace(self, features=self.features or names, n_features=count)

    def with_bounds(self, bounds: Bounds) -> Admission:
        """The same admission with the public bounds of a source, if it has none of its own."""
        return self if self.bounds is not None else replace(self, bounds=bounds)

    def fixed_by(self, row: Any, number: int = 1) -> Admission:
        """The same admission with the features of a first row.

        Raises
        ------
        BadRowError
            If the row does not tell how many features there are.
        BadParameterError
            If bad rows are absorbed: one record must not decide what becomes of the others.
        """
        if self.n_features is not None and self.features is not None:
            return self
        row = _unwrapped(row)
        names = getattr(row, "_fields", None) or (tuple(row) if isinstance(row, Mapping) else None)
        if self.on_bad_row == "zero" and (names is not None or self.n_features is None):
            raise BadParameterError(
                "on_bad_row='zero' without features=: the first row would say which features there are; name them, or "
                "give the algorithm n_features= for rows without names"
            )
        if names is not None:
            refuse_values(names, "the first row", NAME_THEM)
            return self.fixed(names)
        return self if self.n_features is not None else self.fixed(None, self._numbers(row, number).shape[0])

    def fixed_by_block(self, rows: Any, number: int = 1) -> Admission:
        """The same admission with the features of a table, of an array or of the first of a list of rows."""
        if is_frame(rows):
            if self.features is not None:
                return self
            refuse_values(rows.columns, "the table", NAME_THEM)
            return self.fixed([str(name) for name in rows.columns])
        if self.n_features is not None and self.features is not None:
            return self
        if isinstance(rows, np.ndarray) and rows.ndim == 2:
            return self.fixed(None, rows.shape[1])
        if isinstance(rows, np.ndarray):
            raise BadRowError(f"a block of shape {rows.shape} given; (n, n_features) expected")
        return self.fixed_by(rows[0], number) if len(rows) else self

    @property
    def settings(self) -> tuple[object, ...]:
        """All that decides how a good row is admitted, but for the names of features, as parts of a label. Public."""
        scaled = tuple(
            tuple(np.asarray(part, dtype=np.float64).reshape(-1).tolist()) for part in (self.middle, self.factor)
        )
        constant = CONSTANT if self.center else False
        parts = VERSION, self.row_norm, self.n_features, constant, self.bounds is not None
        # Found bounds are a function of what was released: they change nothing about which noise may be drawn.
        return (*parts, label_of(self.bounds)) if isinstance(self.bounds, PrivateBounds) else (*parts, *scaled)

    @property
    def warmup(self) -> int:
        """Rows from the first on that serve for private bounds; 0 for other bounds."""
        if isinstance(self.bounds, PrivateBounds):
            return self.bounds.rows(self._count())
        return 0

    def row(self, row: Any, number: int) -> tuple[FloatArray, Counts]:
        """Admit one row; return it as (1, d) with the counts of it.

        Parameters
        ----------
        row : 1-D array or sequence of numbers, mapping from feature name to
            number, or named tuple.
        number : position of the row in the stream, from 1, for messages.

        Raises
        ------
        BadRowError
            If the row is bad and ``on_bad_row="raise"``, or it is the first
            row and does not tell how many features there are.
        """
        kernels = fast.kernels
        if (
            not self.center
            and type(row) is np.ndarray
            and row.shape == (self.n_features,)
            and row.dtype == np.float64
            and row.flags.c_contiguous
            and not self.is_warming_up
        ):  # what most rows are, with few calls
            admitted = np.empty((1, row.size))
            if kernels is not None and self.bounds is not None:
                square = kernels.admit_bounded(row, self.middle, self.factor, admitted)
            elif kernels is not None:
                square = kernels.admit(row, self.factor, admitted)
            elif self.bounds is None and float(np.vdot(row, row)) * self.factor < _SAFE:
                square = truncated(row, self.factor, admitted)
            else:
                square = math.inf
            if square <= 1.0:
                return admitted, tuple.__new__(Counts, (NO_COUNTS.zeroed, 0, None, int(square * UNIT), 0, ()))
        admitted, marks = self.block(self.values(row, number)[None, :], number)
        return admitted, marks.counts()

    def values(self, row: Any, number: int) -> FloatArray:
        """Check one row and return its numbers, (d,), not admitted yet; not all finite if it is bad and may be zeroed.

        Raises
        ------
        BadRowError
            If the row is bad and ``on_bad_row="raise"``, or it does not tell how many features there are.
        """
        try:
            values = self._vector(row, number)
        except BadRowError as problem:
            if self.on_bad_row == "raise":
                raise
            return bad_values(problem.reason, self._count())
        if self.on_bad_row == "raise" and not np.vdot(values, values) < math.inf:
            self._refuse_infinite(values[None, :], number)
        return values

    def all_values(self, rows: Any, number: int) -> FloatArray:
        """Check rows of any kind, all or none, and return their numbers, (n, d), not admitted yet.

        Parameters
        ----------
        rows : (n, d) array, a table, or an iterable of rows; bad ones become nan if they may be zeroed.

        Raises
        ------
        BadRowError
            If a row is bad and ``on_bad_row="raise"``, or a block has the wrong shape.
        """
        if is_frame(rows):
            rows = self.table(rows)
        if isinstance(rows, np.ndarray) and rows.dtype.kind in "fiub":
            values = self._shaped(rows, number)
            if self.on_bad_row == "raise":
                step = max(1, CHUNK // values.shape[1])
                for start in range(0, len(values), step):
                    chunk = values[start : start + step]
                    if not np.vdot(chunk, chunk) < math.inf:
                        self._refuse_infinite(chunk, number + start)
            return values
        listed = [self.values(row, number + i) for i, row in enumerate(rows)]
        return np.array(listed) if listed else np.empty((0, self.n_features or 0))

    def block(self, rows: FloatArray, number: int) -> tuple[FloatArray, Marks]:
        """Admit a block of rows, (n, d); return it with what was done to each.

        Raises
        ------
        BadRowError
            If the block has the wrong shape, or a row is not finite and
            ``on_bad_row="raise"``. No row of the block is admitted then.
        """
        rows, reasons = self._shaped(rows, number), None
        if not np.vdot(rows, rows) < math.inf:
            if self.on_bad_row == "raise":
                self._refuse_infinite(rows, number)
            bad: Mask = np.asarray(~np.isfinite(rows).all(axis=1))
            if bad.any():
                reasons = np.full(len(rows), -1)
                reasons[bad] = _reasons(rows[bad])
                rows = np.where(bad[:, None], self.middle, rows)
        if self.is_warming_up and isinstance(self.bounds, PrivateBounds):
            zeros = np.zeros((len(rows), self.admitted_features or 0))
            return zeros, Marks(np.zeros(len(rows)), reasons, None, None, self.bounds.votes(rows))
        scaled, clamped = self._scaled(rows)
        admitted, squares, shortened = admitted_rows(scaled)
        long = None
        if shortened.size and self.bounds is None:
            long = np.zeros(len(rows), dtype=np.bool_)
            long[shortened] = True
        marks = Marks(squares, reasons, long, clamped)
        if reasons is not None:
            admitted[reasons >= 0] = 0.0
        return (with_constant(admitted) if self.center else admitted), marks

    def _shaped(self, rows: FloatArray, number: int) -> FloatArray:
        try:
            rows = as_floats(rows)
        except (TypeError, ValueError, OverflowError):
            raise BadRowError(
                "a block must be a 2-D array of numbers; push rows one at a time to find the bad one"
            ) from None
        if rows.ndim != 2:
            raise BadRowError(f"a block of shape {rows.shape} given; (n, n_features) expected")
        if rows.shape[1] != self._count():
            raise BadRowError(f"row {number}: {rows.shape[1]} values given, {self.n_features} expected")
        return rows

    def _count(self) -> int:
        if self.n_features is None:
            raise BadParameterError("the number of features is not known yet; use fixed_by(row), or give n_features=")
        return self.n_features

    def _refuse_infinite(self, rows: FloatArray, number: int) -> None:
        """Raise if a number is not finite; squares alone may overflow."""
        finite = np.isfinite(rows)
        if not finite.all():
            i, j = map(int, np.argwhere(~finite)[0])
            missing = ": its value is missing" if np.isnan(rows[i, j]) else ""
            raise BadRowError(f"row {number + i}: {self._name(j)} is not finite ({rows[i, j]}){missing}; {_REMEDY}")

    def table(self, table: Any) -> FloatArray:
        """The columns of a pandas or polars table as an (n, d) array, by name in this stream's order.

        Of objects, if bad rows may be zeroed and a cell is no number.

        Raises
        ------
        BadRowError
            If a feature is missing or unknown, or a column is not numeric.
        """
        names = [str(name) for name in table.columns]
        wanted = names if self.features is None else self.features
        if set(names) != set(wanted):
            missing, extra = sorted(set(wanted) - set(names)), sorted(set(names) - set(wanted))
            raise BadRowError(
                f"the table lacks features [{listed(missing)}] and has unknown features [{listed(extra)}]; "
                "select the stream's columns"
            )
        columns = dict(zip(names, table.columns, strict=True))
        if len(columns) != len(names):
            raise BadRowError("two columns of the table have one name; names must differ")
        arrays = []
        for name in wanted:
            array = frame_column(table[columns[name]], mixed=self.on_bad_row == "zero")
            if array is None:
                raise BadRowError(f"feature {short(name)} of the table is not numeric; drop or encode it")
            arrays.append(array)
        return np.stack(arrays, axis=1)

    @property
    def admitted_features(self) -> int | None:
        """Length of admitted rows, if it is known."""
        return self.n_features if self.n_features is None or not self.center else self.n_features + 1

    def ranges(self) -> tuple[FloatArray | None, FloatArray | None]:
        """Rows count as ``(row - middle) * scale`` in units of row_norm, by bounds; None and None without bounds."""
        if self.bounds is None or self.n_features is None or self.is_warming_up:
            return None, None
        scale: FloatArray = np.asarray(self.factor * (self.row_norm / math.sqrt(self.n_features)))
        return np.asarray(self.middle), scale

    def neutral(self, count: int) -> FloatArray:
        """The raw row of so many features that is admitted as the zero row: the middle of all ranges."""
        return np.broadcast_to(np.asarray(self.middle, dtype=np.float64), (count,)).copy()

    def _scaled(self, rows: FloatArray) -> tuple[FloatArray, Mask | None]:
        """Rows in units of row_norm, clamped to the bounds, and which values are outside these."""
        if self.bounds is None and self.row_norm == 1.0:
            return rows, None
        with np.errstate(over="ignore"):
            if self.bounds is None:
                return np.clip(rows * self.factor, -_LARGE, _LARGE), None
            scaled: FloatArray = (rows - self.middle) * self.factor
        outside = None
        if max(scaled.max(initial=0.0), -scaled.min(initial=0.0)) > _OUTSIDE:
            outside = np.abs(scaled) > _OUTSIDE
        np.clip(scaled, -1.0, 1.0, out=scaled)
        scaled *= 1.0 / math.sqrt(rows.shape[1])
        return scaled, outside

    def _vector(self, row: Any, number: int) -> FloatArray:
        """A 1-D float array from any kind of row."""
        if type(row) is np.ndarray and row.dtype == np.float64 and row.shape == (self.n_features,):
            return row
        names = getattr(row, "_fields", None)
        if names is not None:
            row = dict(zip(names, row, strict=True))
        elif not isinstance(row, (dict, list, np.ndarray)):
            row = _unwrapped(row, named=self.features is not None)
        if isinstance(row, Mapping):
            row = self._by_name(row, number)
        values = self._numbers(row, number)
        if values.shape[0] != self._count():
            raise BadRowError(f"row {number}: {values.shape[0]} values given, {self.n_features} expected")
        return values

    def _numbers(self, row: Any, number: int) -> FloatArray:
        """A 1-D float array from a row of any length without names."""
        if isinstance(row, np.ndarray) and row.dtype.kind not in "fiubOUS":
            raise _not_a_number(f"row {number}: values of type {row.dtype} are not real numbers")
        mixed = (
            row.dtype.itemsize > 8 or row.dtype.hasobject if isinstance(row, np.ndarray) else type(row) in _SEQUENCES
        )
        try:
            if mixed and not WARNED_OF.isdisjoint(map(type, row)):
                values = self._one_by_one(row, number)
            else:
                values = np.asarray(row, dtype=np.float64) if type(row) in _SEQUENCES else as_floats(row)
        except _NO_NUMBER:
            values = self._one_by_one(row, number)
        if values.ndim == 0:
            raise _no_row(row, number)
        if values.ndim != 1:
            raise BadRowError(f"row {number}: shape {values.shape} given; one row is 1-D (use push_many for a block)")
        return values

    def _by_name(self, row: Mapping[str, Any], number: int) -> list[Any]:
        if self.features is None:
            raise BadRowError(
                f"row {number}: a mapping given, but the features of this stream have no names; pass an array"
            )
        if len(row) != len(self.features) or any(name not in row for name in self.features):
            if not all(isinstance(name, str) for name in row):  # features have names of text
                return self._by_name({str(name): value for name, value in row.items()}, number)
            missing = [name for name in self.features if name not in row]
            extra = [name for name in row if name not in self.features]
            what = f"lacks feature {short(missing[0])}" if missing else f"has unknown feature {short(extra[0])}"
            raise BadRowError(f"row {number}: {what}; the features are those of the first row; {_REMEDY}")
        try:
            return [row[name] for name in self.features]
        except (LookupError, TypeError, ValueError) as problem:
            raise BadRowError(f"row {number}: the mapping does not give its values ({short(problem)})") from None

    def _one_by_one(self, row: Any, number: int) -> FloatArray:
        """The numbers of a row of cells of any kind; the one that is none is named."""
        if isinstance(row, (str, bytes, set, frozenset)) or not hasattr(row, "__iter__"):
            raise _no_row(row, number)
        found = []
        for j, value in enumerate(row):
            try:
                found.append(_real(value))
            except _NO_NUMBER:
                raise _not_a_number(
                    f"row {number}: {self._name(j)} is not a number ({reprlib.repr(value)}); {_REMEDY}"
                ) from None
        return np.array(found)

    def _name(self, j: int) -> str:
        if self.features is None or j >= len(self.features):  # a row that is too long, too
            return f"feature {j}"
        return f"feature {short(self.features[j])}"


def _no_row(row: Any, number: int) -> BadRowError:
    return BadRowError(
        f"row {number}: {reprlib.repr(row)} is not a row of numbers; pass an array, a sequence or a mapping"
    )


def _real(value: Any) -> float:
    """The number in one cell; a masked one is missing."""
    if isinstance(value, np.ndarray):
        if np.ma.is_masked(value) and not value.ndim:
            return math.nan
        value = value[()]  # of no dimension: its number
    if isinstance(value, (np.complexfloating, np.ndarray)):
        raise TypeError
    return float(value)


def _not_a_number(message: str) -> BadRowError:
    problem = BadRowError(message)
    problem.reason = "not a number"
    return problem


def _reasons(rows: FloatArray) -> npt.NDArray[np.int64]:
    """Places in `REASONS` of bad rows, (n,)."""
    marks = np.ascontiguousarray(rows[:, 0]).view(np.uint64) - np.uint64(_NAN)
    missing = np.isnan(rows).any(axis=1)
    return np.where(marks < len(REASONS), marks, np.where(missing, 0, 1)).astype(np.int64)


def _unwrapped(row: Any, *, named: bool = True) -> Any:
    """A pandas series with names as a mapping, a sparse row as an array, any other row as it is."""
    labels: Any = getattr(row, "index", None)
    if named and hasattr(labels, "dtype") and all(isinstance(label, str) for label in labels):
        return dict(zip(labels, row, strict=True))
    return row.toarray().reshape(-1) if hasattr(row, "toarray") else row
