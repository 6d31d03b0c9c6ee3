"""Rows from iterables: arrays that are already blocks, and the mappings of river's datasets and streams."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from numbers import Real
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from streampca.errors import BadParameterError, SourceError, listed, reason, short
from streampca.linalg.types import FloatArray
from streampca.sources.base import (
    NAME_THEM,
    BlockSource,
    BoundsLike,
    bad_row,
    choose_named,
    in_blocks,
    source_bounds,
)
from streampca.sources.csv_cells import number
from streampca.sources.reading import Reading

#: Rows of a dataset in a block: few, so that a live stream is not held up for long.
_BLOCK = 256
_Given = Iterable[Any] | Callable[[], Iterable[Any]]
Item = TypeVar("Item")


class _Iterated(BlockSource, Generic[Item]):
    """Rows of an iterable, or of a function that makes one; its first item is fetched at once."""

    _given: _Given
    _begun: Iterator[Item] | None

    @abstractmethod
    def _checked(self, given: Iterable[Any]) -> Iterator[Item]:
        """The items, or a `SourceError` at the first that is none."""

    def _items(self) -> Iterator[Item]:
        return self._checked(self._given() if callable(self._given) else self._given)

    def _first(self, given: _Given, nothing: str) -> Item:
        self._given = given
        items = self._items()
        for first in items:
            self._begun = chain([first], items)
            return first
        raise SourceError(f"no rows: {nothing}")

    def _restarted(self, before: str) -> Iterator[Item]:
        """The items from the start; once only if they come from an iterator."""
        items, self._begun = self._begun, None
        if items is None and isinstance(self._given, Iterator):
            raise SourceError(f"{before}; pass a function that makes the iterator, not the iterator itself")
        return items or self._items()


class Blocks(_Iterated[FloatArray]):
    """Rows from two-dimensional arrays, one after the other; also called `from_blocks`.

    Parameters
    ----------
    blocks : arrays of shape (n, n_features). A list, or a function without
        arguments that returns an iterator, can be read again and again; an
        iterator only once. The first block is fetched at once.
    features : names of the columns; x0, x1, ... by default.
    bounds : public bounds of the columns, as in `from_csv`.

    Raises
    ------
    SourceError
        If there is no block, or a block is not an (n, n_features) array of
        numbers; all blocks before it were yielded.

    Notes
    -----
    Blocks are copied, so a generator may reuse its array. Values that are not finite are passed on:
    ``Stream(on_bad_row=...)`` decides.
    """

    def __init__(
        self,
        blocks: Iterable[npt.ArrayLike] | Callable[[], Iterable[npt.ArrayLike]],
        features: Sequence[str] | None = None,
        *,
        bounds: BoundsLike = None,
    ) -> None:
        width = self._first(blocks, "there are no blocks").shape[1]
        if features is not None and (isinstance(features, str) or len(features) != width):
            raise BadParameterError(f"features={short(features)} must name each of the {width} columns of the blocks")
        self.features = tuple(features) if features is not None else tuple(f"x{at}" for at in range(width))
        if len(set(self.features)) < width:
            raise BadParameterError(f"features={short(features)} names a column twice; names must differ")
        self.bounds = source_bounds(bounds, self.features)

    def blocks(self) -> Iterator[FloatArray]:
        """The blocks from the start; once only if they come from an iterator."""
        for at, block in enumerate(self._restarted("these blocks were read before")):
            if block.shape[1] != len(self.features):
                raise SourceError(f"block {at}: {block.shape[1]} columns where {len(self.features)} are due")
            if block.shape[0]:
                yield block

    def _checked(self, given: Iterable[Any]) -> Iterator[FloatArray]:
        for at, block in enumerate(given):
            try:
                rows = np.array(block, dtype=np.float64, order="C")
            except (TypeError, ValueError) as error:
                raise SourceError(f"block {at}: not an array of numbers ({reason(error)})") from error
            if rows.ndim != 2 or rows.shape[1] == 0:
                raise SourceError(f"block {at}: shape {rows.shape} where (n, n_features) is due")
            yield rows


from_blocks = Blocks


class RiverRows(_Iterated[Mapping[str, Any]]):
    """Rows of numbers from a dataset or stream of river, or from any mappings; also called `from_river`.

    ``Stream.run`` takes such rows as they are. This adds a choice of numeric
    features, public bounds, numbers from strings (``river.stream.iter_csv``
    without converters yields strings), and blocks.

    Parameters
    ----------
    dataset : an iterable of mappings or of (mapping, target) pairs, such as
        ``river.datasets.ImageSegments()``; or a function that makes one, such
        as ``lambda: river.stream.iter_csv(path)``. A bare iterator can be
        read once only.
    columns : names of the features to read, in that order; all of the first row's by default.
    bounds : public bounds of the features, as in `from_csv`.
    reading : ``missing`` and ``on_bad_row`` of `Reading`. If bad rows are absorbed, ``columns`` must be given.

    Raises
    ------
    SourceError
        Here, if there is no row, or a feature of the first row is not a
        number; while reading, at the first row with a value that is not,
        after every row before it was yielded.
    """

    def __init__(
        self,
        dataset: _Given,
        *,
        columns: Sequence[str] | None = None,
        bounds: BoundsLike = None,
        **reading: Any,
    ) -> None:
        options = Reading(**reading).only("mappings", "missing", "on_bad_row")
        self._zero, self._lenient = options.is_absorbing, options.is_lenient
        if self._zero and (columns is None or isinstance(columns, str)):
            raise BadParameterError(
                "on_bad_row='zero' without columns=: the first row would say which features there are; name them"
            )
        first = self._first(dataset, "the dataset is empty")
        known = list(columns) if self._zero and columns is not None else [str(name) for name in first]
        places = choose_named(known, columns, "the first row", NAME_THEM, given=columns)
        self.features = tuple(known[place] for place in places)
        text = [] if self._zero else [name for name in self.features if self._value(first[name]) is None]
        if text:
            numeric = [name for name in self.features if name not in text]
            raise SourceError(
                f"row 1: {listed(text)} is not a number ({short(first[text[0]])}); "
                f"leave it out with {f'columns={numeric}' if 0 < len(numeric) <= 12 else 'columns='}"
            )
        self.bounds = source_bounds(bounds, self.features, known)

    def blocks(self) -> Iterator[FloatArray]:
        """The rows from the start; once only if the dataset is an iterator."""
        rows = self._restarted("this stream was read before")
        yield from in_blocks((self._row(row, position) for position, row in enumerate(rows, 1)), _BLOCK)

    def _checked(self, given: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
        for row in given:
            # river yields pairs (features, target); the target is no feature.
            features = row[0] if isinstance(row, tuple) and row else row
            if self._zero and not isinstance(features, Mapping):
                features = {}  # every value is missing
            if not isinstance(features, Mapping):
                raise SourceError(f"a row is {short(features)}; mappings or (mapping, target) pairs are due")
            yield features

    def _row(self, row: Mapping[str, Any], position: int) -> list[float]:
        made = []
        for name in self.features:
            value = self._value(row.get(name))
            if value is None and self._zero:
                return bad_row("not a number", len(self.features))
            if value is None:
                raise SourceError(
                    f"row {position}: feature {short(name)} is not a number ({short(row[name])}); "
                    "leave it out with columns="
                )
            if not (self._lenient or np.isfinite(value)):
                what = "missing" if np.isnan(value) else "infinite"
                raise SourceError(
                    f"row {position}: feature {short(name)} is {what}; pass missing='nan', and "
                    "Stream(on_bad_row='zero') to absorb such rows as zero rows"
                )
            made.append(value)
        return made

    @staticmethod
    def _value(value: object) -> float | None:
        """The number in a value: NaN for None, None for what is no number."""
        if value is None:
            return float("nan")
        if isinstance(value, str):
            return number(value)
        try:
            return float(value) if isinstance(value, (Real, np.bool_)) else None
        except OverflowError:
            return float("inf")
        except (TypeError, ValueError):  # numpy's spans of time are registered as real numbers
            return None


from_river = RiverRows
