"""What all sources share: rows from blocks, the choice of columns, public bounds."""

from __future__ import annotations

import difflib
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from streampca.errors import BadParameter, SourceError
from streampca.linalg.types import FloatArray
from streampca.rows import Bounds

#: Rows in a block unless said otherwise: one exact fold of the Gram accumulator.
BLOCK_ROWS = 8192

BoundsLike = Mapping[str, tuple[float, float]] | tuple[npt.ArrayLike, npt.ArrayLike] | None


class BlockSource(ABC):
    """A `streampca.rows.RowSource` that makes its rows from its blocks.

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

    def __iter__(self) -> Iterator[FloatArray]:
        """The rows from the start, one at a time."""
        for block in self.blocks():
            yield from block

    def _describe(self) -> str:
        names = ", ".join(self.features[:4]) + (", ..." if len(self.features) > 4 else "")
        return f"{len(self.features)} features: {names}{'' if self.bounds is None else '; with bounds'}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._describe()}>"


def near(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: the closest known names, or the first few."""
    known = list(dict.fromkeys(known))
    close = difflib.get_close_matches(name, known, n=3)
    if close:
        return "did you mean " + " or ".join(map(repr, close)) + "?"
    return "there are " + ", ".join(map(repr, known[:8])) + (" and others" if len(known) > 8 else "")


def choose(header: Sequence[str], columns: Sequence[str | int] | None, where: str) -> tuple[int, ...]:
    """Positions of the wanted columns in a header.

    Parameters
    ----------
    header : names of all columns.
    columns : names or positions, in the order wanted; None for all.
    where : the file, for messages.
    """
    if columns is None:
        for at, name in enumerate(header):
            if not name:
                raise SourceError(
                    f"{where}: column {at + 1} has no name (a saved index?); say which columns to read with columns="
                )
        twice = sorted(name for name, count in Counter(header).items() if count > 1)
        if twice:
            raise SourceError(
                f"{where}: {', '.join(map(repr, twice))} names more than one column; "
                "choose columns by position, columns=[0, 1, ...]"
            )
        return tuple(range(len(header)))
    if isinstance(columns, (str, bytes)) or not isinstance(columns, Iterable):
        raise BadParameter(f"columns={columns!r} must be a list of names or positions, such as columns=[{columns!r}]")
    known: dict[str, list[int]] = {}
    for at, name in enumerate(header):
        known.setdefault(name, []).append(at)
    places = tuple(_place(known, len(header), column, where) for column in columns)
    if not places:
        raise BadParameter("columns=[] leaves no feature; name at least one column, or None for all")
    place, count = Counter(places).most_common(1)[0]
    if count > 1:
        raise BadParameter(f"columns= asks for {header[place]!r} twice; name each column once")
    return places


def _place(known: Mapping[str, list[int]], width: int, column: object, where: str) -> int:
    if isinstance(column, str):
        at = known.get(column, [])
        if len(at) > 1:
            raise SourceError(f"{where}: {column!r} names {len(at)} columns; choose by position, columns=[0, 1, ...]")
        if not at:
            raise SourceError(f"{where}: no column {column!r}; {near(column, known)}")
        return at[0]
    if isinstance(column, bool) or not isinstance(column, (int, np.integer)):
        raise BadParameter(f"columns= holds {column!r}; each must be a name or a position from 0")
    if not 0 <= column < width:
        raise SourceError(f"{where}: no column at position {column}; there are {width}, counted from 0")
    return int(column)


def feature_names(header: Sequence[str], places: Sequence[int]) -> tuple[str, ...]:
    """Distinct names of the chosen columns; nameless or ambiguous ones are called by position."""
    uses = Counter(header[place] for place in places)
    return tuple(header[at] if header[at] and uses[header[at]] == 1 else f"x{at}" for at in places)


def as_bounds(bounds: BoundsLike, features: Sequence[str], known: Iterable[str] = ()) -> Bounds | None:
    """Public bounds as two arrays, one entry per feature.

    Parameters
    ----------
    bounds : None; a pair (lower, upper) of numbers or of arrays with one
        entry per feature; or a mapping from feature name to (lower, upper).
    features : names of the features.
    known : further names that a mapping may hold, and that are left aside.
    """
    if bounds is None:
        return None
    pairs: Any = _pairs_by_name(bounds, features, known) if isinstance(bounds, Mapping) else bounds
    try:
        lower, upper = (np.asarray(side, dtype=np.float64) for side in pairs)
        lower, upper = (np.broadcast_to(side, (len(features),)).copy() for side in (lower, upper))
    except (TypeError, ValueError, OverflowError) as error:
        raise BadParameter(
            f"bounds={bounds!r} must be (lower, upper), numbers or one entry for each of {len(features)} features, "
            "or a mapping from feature to (lower, upper)"
        ) from error
    for name, low, high in zip(features, lower, upper, strict=True):
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise BadParameter(
                f"bounds of {name!r} are ({low:g}, {high:g}); they must be finite, the lower below the upper"
            )
    lower.flags.writeable = upper.flags.writeable = False
    return lower, upper


def _pairs_by_name(
    bounds: Mapping[str, tuple[float, float]], features: Sequence[str], known: Iterable[str]
) -> tuple[list[float], list[float]]:
    allowed = {*features, *known}
    for name, pair in bounds.items():
        if name not in allowed:
            raise BadParameter(f"bounds= names {name!r}, which is not a feature; {near(str(name), features)}")
        if np.shape(pair) != (2,):
            raise BadParameter(f"bounds= gives {pair!r} for {name!r}; give (lower, upper)")
    for name in features:
        if name not in bounds:
            raise BadParameter(f"bounds= has no entry for {name!r}; give (lower, upper) for every feature")
    return [bounds[name][0] for name in features], [bounds[name][1] for name in features]


def as_path(path: object) -> Path:
    """The path of a file; anything else could not be read twice."""
    if not isinstance(path, (str, os.PathLike)):
        raise BadParameter(f"path={path!r} must be the path of a file; rows from elsewhere can go in as they are")
    return Path(path)


def check_missing(missing: str) -> bool:
    """True if missing values are to be passed on as NaN, False if they are errors."""
    if missing not in ("raise", "nan"):
        raise BadParameter(
            f"missing={missing!r} must be 'raise' or 'nan' (then Stream(on_bad_row='zero') absorbs the row as a "
            "zero row; rows are never skipped, since that would move every later row's public position)"
        )
    return missing == "nan"
