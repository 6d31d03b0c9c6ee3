"""Admission: the map from raw rows to the rows that algorithms absorb.

A row becomes a vector of the unit ball on the lattice of `linalg.lattice`, by a map that depends on the row and on
public settings only: public bounds, then the norm. No step combines two rows.

A *bad row* has a value that is missing, infinite or no number. It is admitted as the zero vector, without the constant
of `linalg.centering`, and counted for the curator: it changes no sum, and no cell can stop a stream. With
``on_missing="cell"`` a missing value is filled instead (`linalg.completion`). A row of the wrong *shape* raises
`BadRowError` before anything changes. The shape of rows is public: it is the number of their cells, and the fields of a
named tuple.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from streampca import _native
from streampca.conversion import WARNED_OF, as_floats, frame_values, is_frame, table_columns
from streampca.errors import BadParameterError, BadRowError, UsageError, listed
from streampca.linalg.centering import CONSTANT, with_constant
from streampca.linalg.completion import LEAST_SHARE
from streampca.linalg.counts import check_switch
from streampca.linalg.lattice import STEP, UNIT, admitted_rows
from streampca.linalg.scale import Bounds as Bounds, check_row_norm, column_bounds, in_bounds, in_norm
from streampca.linalg.types import FloatArray, Mask
from streampca.rows.bounds import Bins, PrivateBounds
from streampca.rows.names import NAME_THEM, refuse_values, repeated
from streampca.state import label_of

#: Version of the map: it changes with any bit of an admitted row.
VERSION = 1
# The same of the map with the constant: bad rows had it in version 1.
_CENTERED = 2
#: Reasons for bad rows. A missing value is a nan.
REASONS = ("missing value", "infinite value", "not a number", "unreadable record", "no person")
# A row that was bad before admission is all nan, and the low bits of its first entry hold the reason.
_NAN = 0x7FF8_5354_0000_0000
# Values outside their range by less than one lattice step are not clamped.
_OUTSIDE = 1.0 + STEP
#: Exceptions of a conversion to a number.
_NO_NUMBER = (TypeError, ValueError, ArithmeticError, RuntimeError)
_SEQUENCES = (list, tuple)
#: Shares of cells present, as a caller gives them.
Shares = Mapping[str, float] | Sequence[float] | float | Literal["private"] | None


def bad_values(reason: str, n_features: int) -> FloatArray:
    """Return a row of nan that admission counts under one of `REASONS`."""
    row = np.full(n_features, np.nan)
    row[0] = np.array(_NAN + REASONS.index(reason), dtype=np.uint64).view(np.float64)
    return row


class Counts(NamedTuple):
    """Counts of what admission did to rows. Curator only: exact functions of raw rows."""

    zeroed: tuple[int, ...] = (0,) * len(REASONS)  # bad rows, which are absorbed as zero vectors, for each reason
    scaled: int = 0  # rows longer than row_norm
    clamped: npt.NDArray[np.int64] | None = None  # values outside their bounds, for each feature; None for none
    squares: int = 0  # sum of the squared norms of the admitted rows, in units of 2**-40 row_norm**2
    warmup: int = 0  # good rows that served for private bounds only
    votes: tuple[Bins, ...] = ()  # their bins (`PrivateBounds.votes`), until the bounds are known
    gaps: npt.NDArray[np.int64] | None = None  # missing cells of each feature, filled or in a bad row; None for none

    def plus(self, other: Counts) -> Counts:
        """Return the counts of these rows and others together."""
        zeroed, scaled, clamped, squares, warmup, votes, gaps = self
        more, longer, outside, further, served, voted, absent = other
        if more is not NO_COUNTS.zeroed:
            zeroed = tuple(map(int.__add__, zeroed, more))
        if outside is not None:
            clamped = outside if clamped is None else clamped + outside
        if absent is not None:
            gaps = absent if gaps is None else gaps + absent
        sums = scaled + longer, clamped, squares + further, warmup + served, votes + voted, gaps
        return tuple.__new__(Counts, (zeroed, *sums))

    @property
    def bad(self) -> int:
        """Number of bad rows."""
        return sum(self.zeroed)

    def plain(self) -> list[Any]:
        """Return plain values for a store, with integers of at most 64 bits."""
        votes = np.concatenate(self.votes) if self.votes else None
        squares = divmod(self.squares, int(UNIT))
        return [list(self.zeroed), self.scaled, self.clamped, *squares, self.warmup, votes, self.gaps]

    @classmethod
    def of_plain(cls, plain: Sequence[Any]) -> Counts:
        """Inverse of `plain`."""
        zeroed, scaled, clamped, high, low, warmup, votes, gaps = plain
        outside, absent = (None if cells is None else np.asarray(cells, dtype=np.int64) for cells in (clamped, gaps))
        squares = int(high) * int(UNIT) + int(low)
        # `plain` has joined the votes of all blocks: where a block began has no effect on the bounds.
        voted = () if votes is None else (np.asarray(votes, dtype=np.uint8),)
        return cls(tuple(map(int, zeroed)), int(scaled), outside, squares, int(warmup), voted, absent)


NO_COUNTS = Counts()


class Marks(NamedTuple):
    """Record of what admission did to each row of a block. Curator only."""

    squares: FloatArray  # squared norms of the admitted rows, (n,)
    reasons: npt.NDArray[np.int64] | None  # index in `REASONS` of each bad row, -1 of good rows; None if all are good
    scaled: Mask | None  # rows longer than row_norm, (n,); None for none
    clamped: Mask | None  # values outside their bounds, (n, d); None for none
    votes: Bins | None = None  # bins of the rows of a warm-up, (n, d); None for other rows
    gaps: Mask | None = None  # missing cells, (n, d); None for none

    def counts(self, start: int = 0, stop: int | None = None) -> Counts:
        """Return the counts of the rows ``start``, ..., ``stop`` - 1."""
        rows = slice(start, stop)
        zeroed = NO_COUNTS.zeroed
        if self.reasons is not None:
            found = self.reasons[rows]
            zeroed = tuple(np.bincount(found[found >= 0], minlength=len(REASONS))[: len(REASONS)].tolist())
        clamped, gaps = (
            None if cells is None or not cells[rows].any() else np.count_nonzero(cells[rows], axis=0)
            for cells in (self.clamped, self.gaps)
        )
        return Counts(
            zeroed,
            0 if self.scaled is None else int(np.count_nonzero(self.scaled[rows])),
            clamped,
            int((self.squares[rows] * UNIT).astype(np.int64).sum()),
            0 if self.votes is None else len(self.votes[rows]) - sum(zeroed),
            () if self.votes is None else (self.votes[rows],),
            gaps,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Admission:
    """Map from raw rows into the unit ball: an immutable value. Raises `UsageError` unless the parameters fit together.

    Parameters
    ----------
    row_norm : bound on the norm of rows; longer rows are scaled onto it.
    bounds : public ranges of the features: ``(lower, upper)``, scalars or arrays of length d, or a mapping from feature
        name to ``(lower, upper)``; or a `PrivateBounds`. Values are clamped to their range, and ranges are mapped
        linearly onto ``[-1, 1] * row_norm / sqrt(d)``, so that no row is longer than row_norm.
    features : names of the features, in order. If None, those of the first row (`fixed_by`).
    n_features : number of features, if known.
    center : append the constant of `linalg.centering` to every row that is present. Bad rows (`bad_values`) and rows
        of a warm-up are zero vectors with or without it.
    on_missing : ``"bad"``, a row with a missing cell is a bad row; or ``"cell"``, the cell becomes the middle of its
        bounds, 0 without bounds (`linalg.completion`).
    missing_rates : the shares of cells *present* for the correction: public ones, a number, one for each feature or a
        mapping by name; or ``"private"``, for which rows end with d entries, 1 for a cell that is present.
    correct : whether the sums of filled rows are corrected.
    found : the estimated private bounds, (lower, upper). Until then every row is admitted as an absent row, and votes.
    """

    row_norm: float = 1.0
    bounds: Bounds | PrivateBounds | None = None
    features: tuple[str, ...] | None = None
    n_features: int | None = None
    center: bool = False
    on_missing: Literal["bad", "cell"] = "bad"
    missing_rates: Shares = None
    correct: bool = True
    found: tuple[FloatArray, FloatArray] | None = None
    is_warming_up: bool = field(init=False, default=False)  #: private bounds are still unknown
    middle: FloatArray | float = field(init=False, default=0.0)  #: of the map (row - middle) * factor before clamping
    factor: FloatArray | float = field(init=False, default=1.0)
    admitted_features: int | None = field(init=False, default=None)  #: length of admitted rows, if known
    warmup: int = field(init=False, default=0)  #: first rows that serve for private bounds, if d is known
    present: tuple[float, ...] | Literal["private"] | None = field(init=False, default=None)  #: as `Terms.present`

    def __post_init__(self) -> None:
        row_norm, names, count = check_row_norm(self.row_norm), self.features, self.n_features
        if names is not None:
            names = tuple(str(name) for name in names)
            if twice := repeated(names):
                raise BadParameterError("features", ..., "distinct names", advice=f"Repeated: {listed(sorted(twice))}")
            if count is not None and count != len(names):
                raise UsageError(f"features: {len(names)} names, but this stream has {count} features")
            count = len(names)
        if count is not None and count < 1:
            raise BadParameterError("features", ..., "at least one")
        put = object.__setattr__
        put(self, "row_norm", row_norm)
        put(self, "features", names)
        put(self, "n_features", count)
        put(self, "admitted_features", None if count is None else count + int(self.center))
        put(self, "factor", 1.0 / row_norm)
        put(self, "present", shares_of(self.on_missing, self.missing_rates, self.correct, names, count))
        if isinstance(self.bounds, Mapping):
            put(self, "bounds", dict(self.bounds))
        bounds = self.found if isinstance(self.bounds, PrivateBounds) else self.bounds
        if isinstance(self.bounds, PrivateBounds) and count is not None:
            put(self, "warmup", self.bounds.rows(count))
        put(self, "is_warming_up", bounds is not self.bounds and self.found is None)
        if count is None and isinstance(bounds, tuple) and all(np.ndim(side) == 0 for side in bounds):
            column_bounds(bounds, 1, None)  # scalar bounds can be checked before the number of features is known
        if count is not None and bounds is not None:
            lower, upper = column_bounds(bounds, count, names)
            put(self, "middle", 0.5 * lower + 0.5 * upper)
            put(self, "factor", 1.0 / (0.5 * upper - 0.5 * lower))

    def fixed(self, features: Sequence[str] | None, n_features: int | None = None) -> Admission:
        """Return the same admission with its features fixed; `UsageError` if others were fixed before."""
        count = len(features) if features is not None else n_features
        if count is None or (features is None and count == self.n_features):
            return self
        names = None if features is None else tuple(str(name) for name in features)
        if self.n_features is not None and count != self.n_features:
            raise UsageError(f"features: {count} given, but this stream has {self.n_features}")
        if names is not None and self.features is not None and names != self.features:
            raise BadParameterError("features", ..., "the names of this stream in the same order")
        return replace(self, features=self.features or names, n_features=count)

    def fixed_by(self, row: Any, number: int = 1) -> Admission:
        """Return the same admission with the features of a first row.

        Its shape is public, and its values have no effect. Raises `BadRowError` if it is no row, and `UsageError` for a
        mapping: an absent name is a missing value, so that one row must not determine the names.
        """
        if self.n_features is not None and self.features is not None:
            return self
        row = _unwrapped(row, named=False)
        if isinstance(row, Mapping):
            raise UsageError("the first row would determine the names of the features. Pass features=")
        if (names := getattr(row, "_fields", None)) is not None:
            refuse_values(names, "the first row", NAME_THEM)
            return self.fixed(names)
        return self if self.n_features is not None else self.fixed(None, len(_cells(row, number)))

    def fixed_by_block(self, rows: Any, number: int = 1) -> Admission:
        """Return the same admission with the features of a table, of an array or of the first of a list of rows."""
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
            raise BadRowError(None, f"block of shape {rows.shape}: expected (n, n_features)")
        return self.fixed_by(rows[0], number) if len(rows) else self

    @property
    def settings(self) -> tuple[object, ...]:
        """Parts of a label that determine the map of good rows, without the names of features. Public."""
        scaled = tuple(
            tuple(np.asarray(part, dtype=np.float64).reshape(-1).tolist()) for part in (self.middle, self.factor)
        )
        constant = (_CENTERED, CONSTANT) if self.center else False
        parts: tuple[object, ...] = (VERSION, self.row_norm, self.n_features, constant, self.bounds is not None)
        if self.on_missing == "cell":
            parts = (*parts, "cell", self.present)
        # Estimated bounds are a function of releases, so that the noise of later releases may be drawn without them.
        return (*parts, label_of(self.bounds)) if isinstance(self.bounds, PrivateBounds) else (*parts, *scaled)

    def row(self, row: Any, number: int) -> tuple[FloatArray, Counts]:
        """Admit one row of any kind; return it as (1, d) with its counts.

        ``number`` is the number of the row in the stream, from 1, for messages. Raises `BadRowError` if the row has the
        wrong shape.
        """
        kernels = _native.compiled
        if (
            kernels is not None
            and self.present != "private"
            and type(row) is np.ndarray
            and row.shape == (self.n_features,)
            and row.dtype == np.float64
            and row.flags.c_contiguous
            and not self.is_warming_up
        ):  # most rows, with few calls
            admitted = np.empty((1, row.size + self.center))
            own = admitted
            if self.center:
                own, admitted[0, -1] = admitted[:, :-1], CONSTANT
            if self.bounds is None:
                square = kernels.admit(row, self.factor, own)
            else:
                square = kernels.admit_bounded(row, self.middle, self.factor, own)
            if square <= 1.0:
                return admitted, tuple.__new__(Counts, (NO_COUNTS.zeroed, 0, None, int(square * UNIT), 0, (), None))
        admitted, marks = self.block(self.values(row, number)[None, :], number)
        return admitted, marks.counts()

    def values(self, row: Any, number: int) -> FloatArray:
        """Return the numbers of one row, (d,), not admitted; `bad_values` if a cell is no number.

        Raises `BadRowError` if the row has the wrong shape.
        """
        if type(row) is np.ndarray and row.dtype == np.float64 and row.shape == (self.n_features,):
            return row
        fields = getattr(row, "_fields", None)
        if fields is not None:
            row = dict(zip(fields, row, strict=True))
        elif not isinstance(row, (dict, list, np.ndarray)):
            row = _unwrapped(row, named=self.features is not None)
        cells = self._by_name(row, number) if isinstance(row, Mapping) else _cells(row, number)
        if len(cells) != self.known_features():
            raise BadRowError(number, f"{len(cells)} values, expected {self.n_features}")
        values = _numbers(cells)
        if values is None:
            return bad_values("not a number", len(cells))
        if values.ndim != 1:
            raise BadRowError(
                number, f"one row is 1-D, but the shape is {values.shape}. Use push_many for several rows"
            )
        return values

    def all_values(self, rows: Any, number: int) -> FloatArray:
        """Return the numbers of rows of any kind, (n, d), not admitted; `bad_values` of rows with other cells.

        Raises `BadRowError` if a row or the block has the wrong shape.
        """
        if is_frame(rows):
            rows = self.table(rows)
        if isinstance(rows, np.ndarray) and rows.dtype.kind in "fiub":
            return self._shaped(rows, number)
        found = [self.values(row, number + i) for i, row in enumerate(rows)]
        return np.array(found) if found else np.empty((0, self.n_features or 0))

    def block(self, rows: FloatArray, number: int) -> tuple[FloatArray, Marks]:
        """Admit a block of rows, (n, d); return it with the marks of each row.

        Raises `BadRowError`, and admits no row, if the block has the wrong shape.
        """
        rows, reasons, gaps = self._shaped(rows, number), None, None
        # A finite sum of squares shows in one pass, without a mask, that every entry is finite.
        if not np.vdot(rows, rows) < math.inf:
            rows, reasons, gaps = self._usable(rows)
        n, d = rows.shape
        if self.is_warming_up and isinstance(self.bounds, PrivateBounds):
            zeros = np.zeros((n, d + int(self.center) + d * (self.present == "private")))
            # A bad row is a row of zeros here; a missing cell of another row does not vote.
            voting = rows if gaps is None or self.on_missing == "bad" else np.where(gaps, math.nan, rows)
            return zeros, Marks(np.zeros(n), reasons, None, None, self.bounds.votes(voting), gaps)
        scaled, clamped = (
            (in_norm(rows, self.row_norm), None) if self.bounds is None
            else in_bounds(rows, self.middle, self.factor, _OUTSIDE)
        )  # fmt: skip
        admitted, squares, shortened = admitted_rows(scaled)
        long = None
        if shortened.size and self.bounds is None:
            long = np.zeros(len(rows), dtype=np.bool_)
            long[shortened] = True
        absent = None if reasons is None else reasons >= 0
        if absent is not None:
            admitted[absent] = 0.0
        if self.center:
            # Privacy: a row that is not present must not show in the count of the rows either.
            admitted = with_constant(admitted, absent)
        if self.present == "private":
            cells = np.ones((n, d)) if gaps is None else 1.0 - gaps
            if absent is not None:
                cells[absent] = 0.0
            admitted = np.hstack([admitted, cells])
        return admitted, Marks(squares, reasons, long, clamped, None, gaps)

    def _usable(self, rows: FloatArray) -> tuple[FloatArray, npt.NDArray[np.int64] | None, Mask | None]:
        """Return rows without values that are not finite, the reasons of bad rows and the missing cells, as `Marks`."""
        # The number in the mark of a row that has one; those of the others are larger.
        marks = rows[:, 0].view(np.uint64) - np.uint64(_NAN)
        marked = marks < len(REASONS)
        gaps = np.isnan(rows) & ~marked[:, None]
        filled = gaps if self.on_missing == "cell" else np.zeros_like(gaps)
        bad = np.asarray(~(np.isfinite(rows) | filled).all(axis=1))
        reasons = np.where(marked, marks, np.where((gaps & ~filled).any(axis=1), 0, 1)).astype(np.int64)
        # The middle of the ranges is neither clamped nor scaled, so that a bad row enters no other count.
        rows = np.where(bad[:, None] | filled, self.middle, rows)
        return rows, np.where(bad, reasons, -1) if bad.any() else None, gaps if gaps.any() else None

    def _shaped(self, rows: FloatArray, number: int) -> FloatArray:
        try:
            rows = as_floats(rows)
        except (TypeError, ValueError, OverflowError):
            raise BadRowError(
                None, "block: expected a 2-D array of numbers. Push single rows to find a bad one"
            ) from None
        if rows.ndim != 2:
            raise BadRowError(None, f"block of shape {rows.shape}: expected (n, n_features)")
        if rows.shape[1] != self.known_features():
            raise BadRowError(number, f"{rows.shape[1]} values, expected {self.n_features}")
        return rows

    def known_features(self) -> int:
        """Return the number of features; `UsageError` before the first row determines it."""
        if self.n_features is None:
            raise UsageError("the number of features is not known yet. Push a row, or pass features=")
        return self.n_features

    def table(self, table: Any) -> FloatArray:
        """Return the columns of a pandas or polars table by name in this stream's order, (n, d).

        The array holds objects if a cell is no number.
        """
        columns = table_columns(table.columns, self.features, BadRowError)
        return frame_values(table, columns, BadRowError, self.features)

    def ranges(self) -> tuple[FloatArray | None, FloatArray | None]:
        """Return middle and scale of the map ``(row - middle) * scale`` in units of row_norm; None without bounds."""
        if self.bounds is None or self.n_features is None or self.is_warming_up:
            return None, None
        scale: FloatArray = np.asarray(self.factor * (self.row_norm / math.sqrt(self.n_features)))
        return np.asarray(self.middle), scale

    def _by_name(self, row: Mapping[Any, Any], number: int) -> list[Any]:
        """Return the cells of a mapping in order: nan for an absent name; those of unknown names are ignored."""
        if self.features is None:
            raise BadRowError(number, "a mapping, but the features of this stream have no names. Pass an array")
        if not all(isinstance(name, str) for name in row):  # features have names of text
            row = {str(name): value for name, value in row.items()}
        try:
            return [row.get(name, math.nan) for name in self.features]
        except (LookupError, TypeError, ValueError):  # a mapping that does not return its values
            return [math.nan] * len(self.features)


def shares_of(
    on_missing: Any, rates: Any, correct: Any, names: Sequence[str] | None, count: int | None,
    parameter: str = "missing_rates",
) -> tuple[float, ...] | Literal["private"] | None:  # fmt: skip
    """Return the checked public shares of cells present, as `Terms.present`; () until d is known."""
    if on_missing not in ("bad", "cell"):
        raise BadParameterError("on_missing", on_missing, "'bad' or 'cell'")
    correct = check_switch("correct", correct)
    if on_missing == "bad" and (rates is not None or not correct):
        raise UsageError("missing_rates=, correct=False: only with on_missing='cell'; with 'bad' no cell is filled")
    if rates is not None and not correct:
        raise UsageError("missing_rates, correct=False: only a correction uses shares. Leave one of them out")
    if on_missing == "bad" or not correct:
        return None
    if rates is None or (isinstance(rates, str) and rates == "private"):
        return "private"
    expected = f"'private', or public shares of cells present from {LEAST_SHARE} to 1, a number or one for each feature"
    named = rates if isinstance(rates, Mapping) else None
    try:
        shares = np.asarray(rates if named is None else list(named.values()), dtype=np.float64)
        if not ((shares >= LEAST_SHARE) & (shares <= 1.0)).all():
            advice = "Leave out a feature that is present more rarely"
            raise BadParameterError(parameter, rates, expected, advice=advice)
        if count is None:
            return ()
        if named is not None:
            if names is None or set(named) != set(names):
                raise BadParameterError(parameter, ..., expected, advice="A mapping names every feature")
            shares = np.array([named[name] for name in names], dtype=np.float64)
        return tuple(np.broadcast_to(shares, (count,)).tolist())
    except BadParameterError:  # is a ValueError
        raise
    except (TypeError, ValueError):
        raise BadParameterError(parameter, rates, expected) from None


def _cells(row: Any, number: int) -> Any:
    """Return a row without names, with a length; raise `BadRowError` for what is no row of one dimension."""
    dimensions = getattr(row, "ndim", None)
    if dimensions is None and (not hasattr(row, "__iter__") or isinstance(row, (str, bytes, set, frozenset))):
        raise BadRowError(number, f"{reprlib.repr(row)} is not a row of numbers. Pass a sequence or a mapping")
    if dimensions not in (None, 1):
        raise BadRowError(number, f"one row is 1-D, but the shape is {row.shape}. Use push_many for several rows")
    return row if hasattr(row, "__len__") else [*row]


def _numbers(cells: Any) -> FloatArray | None:
    """Return cells of any kind as floats; None if one is no number."""
    is_array = isinstance(cells, np.ndarray)
    if is_array and cells.dtype.kind not in "fiubOUS":
        return None
    mixed = cells.dtype.itemsize > 8 or cells.dtype.hasobject if is_array else type(cells) in _SEQUENCES
    # numpy would warn of some types, and the warning would depend on a raw row.
    if not (mixed and not WARNED_OF.isdisjoint(map(type, cells))):
        try:
            values = np.asarray(cells, dtype=np.float64) if type(cells) in _SEQUENCES else as_floats(cells)
            if values.ndim:
                return values
        except _NO_NUMBER:
            pass
    found = []
    for value in cells:
        try:
            cell = value
            if isinstance(cell, np.ndarray):  # the number of an array of no dimension; nan for a masked one
                cell = math.nan if np.ma.is_masked(cell) and not cell.ndim else cell[()]
            if isinstance(cell, (np.complexfloating, np.ndarray)):
                return None
            is_missing = cell is None or type(cell).__name__ == "NAType"  # pandas.NA, without an import of pandas
            found.append(math.nan if is_missing else float(cell))
        except _NO_NUMBER:
            return None
    return np.array(found)


def _unwrapped(row: Any, *, named: bool = True) -> Any:
    """Convert a pandas series with names to a mapping and a sparse row to an array; return other rows unchanged."""
    labels: Any = getattr(row, "index", None)
    if named and hasattr(labels, "dtype") and all(isinstance(label, str) for label in labels):
        return dict(zip(labels, row, strict=True))
    return row.toarray().reshape(-1) if hasattr(row, "toarray") else row
