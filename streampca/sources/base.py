"""Common parts of all sources: rows from blocks, positions to go on from, the choice of columns, public bounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from streampca.errors import BadParameterError, SourceError, short
from streampca.linalg.types import FloatArray
from streampca.rows.admission import bad_values
from streampca.rows.bounds import Bounds as GivenBounds
from streampca.rows.bounds import close_names, column_bounds
from streampca.rows.names import MISSING, refuse_values
from streampca.rows.protocol import Bounds, PositionedBlock

#: For sources whose columns always have names.
NAME_THEM = "if they are names, choose the columns by name with columns="
#: Rows in a block unless said otherwise: one exact fold of the Gram accumulator.
BLOCK_ROWS = 8192
REMEDY = "pass on_bad_row='zero', here and to Stream, to absorb such rows as zero rows"

OnBadRow = Literal["raise", "zero"]
BoundsLike = GivenBounds | None


class BlockSource(ABC):
    """A `streampca.rows.protocol.RowSource` that makes its rows from its blocks.

    Attributes
    ----------
    features : names of the features.
    bounds : public bounds of the features, or None.
    """

    features: tuple[str, ...]
    bounds: Bounds | None

    @abstractmethod
    def blocks(self) -> Iterator[FloatArray]:
        """The rows from the start, as non-empty C-contiguous (n, n_features) blocks."""

    @property
    def expected_rows(self) -> int | None:
        """Number of rows from the start to the end: as the file says, or by what was read of its bytes; else None."""
        return getattr(self, "n_rows", None)

    def __iter__(self) -> Iterator[FloatArray]:
        """The rows from the start, one at a time."""
        for block in self.blocks():
            yield from block

    def _describe(self) -> str:
        names = ", ".join(self.features[:4]) + (", ..." if len(self.features) > 4 else "")
        return f"{len(self.features)} features: {names}{'' if self.bounds is None else '; with bounds'}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._describe()}>"


class PositionedRows(BlockSource):
    """A `streampca.rows.protocol.PositionedSource`.

    A durable stream keeps the position in the transaction of its rows; ``Stream.resume(store).run(source)`` and
    ``streampca resume`` go on there, each row once.

    Attributes
    ----------
    name : tells the source from others, the same in every process. A run goes on with a source of this name only.
    """

    name: str

    @abstractmethod
    def blocks_from(self, at: Any = None) -> Iterator[PositionedBlock]:
        """The rows after a position, or from the start."""

    def blocks(self) -> Iterator[FloatArray]:
        """The rows from the start."""
        for block in self.blocks_from():
            yield block.rows

    def durable(self, at: Any) -> None:
        """Told now and then that the rows up to a position are durable."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self._describe()}>"


class NumberedRows(PositionedRows):
    """The rows of a source that can be read again; a position is the number of rows before it.

    Parameters
    ----------
    rows : the source, such as ``from_csv(...)`` or ``open_rows("day-*.csv")``. Rows may be appended to it.
    name : see `PositionedRows`.
    """

    def __init__(self, rows: BlockSource, name: str) -> None:
        self._rows, self.name = rows, name
        self.features, self.bounds = rows.features, rows.bounds

    def blocks_from(self, at: Any = None) -> Iterator[PositionedBlock]:
        """The rows after the first ``at``; those are read and passed over. `SourceError` if there are fewer."""
        before = int(at or 0)
        done = 0
        for block in self._rows.blocks():
            start, done = done, done + len(block)
            skip = max(0, before - start)
            if skip < len(block):
                yield PositionedBlock(block[skip:], lambda m, first=start + skip: first + m)  # type: ignore[misc]
        if done < before:
            raise SourceError(
                f"{self.name}: {done} rows, but the run stands after {before} of them; give all rows from the first on"
            )


def bad_row(reason: str, n_features: int) -> list[float]:
    """The numbers of a bad row, all nan, that `Stream` absorbs as a zero row and counts under this reason."""
    return [*bad_values(reason, 1).tolist(), *[float("nan")] * (n_features - 1)]


def in_blocks(rows: Iterable[list[float]], size: int) -> Iterator[FloatArray]:
    """Rows in blocks of at most ``size``; where reading ends with a `SourceError`, the rows before it come first."""
    block: list[list[float]] = []
    problem: SourceError | None = None
    try:
        for row in rows:
            block.append(row)
            if len(block) == size:
                yield np.array(block)
                block = []
    except SourceError as error:
        problem = error
    if block:
        yield np.array(block)
    if problem is not None:
        raise problem


class NameOrPosition(str):
    """A whole number as text: the name of a column or, if none has it, a position from 1."""

    __slots__ = ()


def choose(header: Sequence[str], columns: Sequence[str | int] | None, where: str) -> Sequence[int]:
    """Positions in a header of the wanted columns, by name or position, in that order; of all columns for None."""
    if columns is None:
        if twice := repeated(name for name in header if name):
            shared = ", ".join([str(at) for at, name in enumerate(header, 1) if name in twice][:9])
            raise SourceError(
                f"{where}: columns {shared} share a name with another; choose columns by position, columns=[0, 1, ...]"
            )
        return range(len(header))
    if isinstance(columns, (str, bytes)) or not isinstance(columns, Iterable):
        raise BadParameterError(
            f"columns={short(columns)} must be a list of names or positions, such as columns=[{short(columns)}]"
        )
    found: dict[str, list[int]] = {column: [] for column in columns if isinstance(column, str)}
    for at, name in enumerate(header):
        if name in found:
            found[name].append(at)
    places = tuple(_place(found, header, column, where) for column in columns)
    if not places:
        raise BadParameterError("columns=[] leaves no feature; name at least one column, or None for all")
    place, count = Counter(places).most_common(1)[0]
    if count > 1:
        raise BadParameterError(f"columns= asks for {short(header[place])} twice; name each column once")
    return places


def choose_named(
    header: Sequence[str], columns: Sequence[str | int] | None, where: str, remedy: str,
    missing: frozenset[str] = MISSING, *, given: Iterable[object] | None = (),
) -> Sequence[int]:  # fmt: skip
    """As `choose`; chosen names that look like values are refused, but for those that the caller gave."""
    try:
        places = choose(header, columns, where)
    except SourceError:  # whose message may hold names
        refuse_values(header, where, remedy, missing)
        raise
    trusted, chosen = {*(given or ())}, {*places}
    doubtful = [name if at in chosen and name not in trusted else None for at, name in enumerate(header)]
    refuse_values(doubtful, where, remedy, missing)
    return places


def _place(found: Mapping[str, list[int]], header: Sequence[str], column: object, where: str) -> int:
    if isinstance(column, str):
        at = found[column]
        if len(at) > 1:
            raise SourceError(
                f"{where}: {short(column)} names {len(at)} columns; choose by position, columns=[0, 1, ...]"
            )
        if not at and isinstance(column, NameOrPosition) and 1 <= int(column) <= len(header):
            return int(column) - 1
        if not at:
            raise SourceError(f"{where}: no column {short(column)}; {close_names(column, header)}")
        return at[0]
    if isinstance(column, bool) or not isinstance(column, (int, np.integer)):
        raise BadParameterError(f"columns= holds {short(column)}; each must be a name or a position from 0")
    if not 0 <= column < len(header):
        raise SourceError(f"{where}: no column at position {column}; there are {len(header)}, counted from 0")
    return int(column)


def repeated(names: Iterable[str]) -> set[str]:
    """The names that are there more than once. Takes little memory, even for a million."""
    return {name for name, following in pairwise(sorted(names)) if name == following}


def feature_names(header: Sequence[str], places: Sequence[int]) -> tuple[str, ...]:
    """Distinct names of the chosen columns; nameless or ambiguous ones are called by position."""
    twice = repeated(header[place] for place in places)
    return tuple(header[at] if header[at] and header[at] not in twice else f"x{at}" for at in places)


def source_bounds(
    bounds: BoundsLike, features: Sequence[str], known: Iterable[str] = ()
) -> tuple[FloatArray, FloatArray] | None:
    """The public bounds of a source, read-only; ``known`` are names of columns that are not read."""
    if bounds is None:
        return None
    lower, upper = column_bounds(bounds, len(features), features, tuple(known))
    lower.flags.writeable = upper.flags.writeable = False
    return lower, upper


def numbers(value: Any, features: Sequence[Any]) -> list[float]:
    """The numbers of a record, by name or in order; nan for a name that is absent or null.

    Raises
    ------
    ValueError, TypeError
        If it holds something else than numbers, or not as many as there are names.
    """
    found = [value.get(name) for name in features] if isinstance(value, Mapping) else list(value)
    if len(found) != len(features) or any(isinstance(one, (str, bytes)) for one in found):
        raise ValueError(f"{len(features)} numbers are due, and no text")
    return [float("nan") if one is None else float(one) for one in found]
