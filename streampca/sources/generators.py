"""Rows from arrays that are already blocks: lists, generators, or functions that make them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from streampca.errors import BadParameterError, SourceError, reason, short
from streampca.linalg.types import FloatArray
from streampca.sources.base import BlockSource, BoundsLike, source_bounds


class Blocks(BlockSource):
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
        self._given = blocks
        rows = self._checked()
        first = next(rows, None)
        if first is None:
            raise SourceError("no rows: there are no blocks")
        # What was begun is gone on with when the rows are first asked for.
        self._begun: Iterator[FloatArray] | None = chain([first], rows)
        width = first.shape[1]
        if features is not None and (isinstance(features, str) or len(features) != width):
            raise BadParameterError(f"features={short(features)} must name each of the {width} columns of the blocks")
        self.features = tuple(features) if features is not None else tuple(f"x{at}" for at in range(width))
        if len(set(self.features)) < width:
            raise BadParameterError(f"features={short(features)} names a column twice; names must differ")
        self.bounds = source_bounds(bounds, self.features)

    def blocks(self) -> Iterator[FloatArray]:
        """The blocks from the start; once only if they come from an iterator."""
        if self._begun is not None:
            blocks, self._begun = self._begun, None
        elif isinstance(self._given, Iterator):
            raise SourceError("these blocks were read before; pass a function that makes the iterator, not an iterator")
        else:
            blocks = self._checked()
        for at, block in enumerate(blocks):
            if block.shape[1] != len(self.features):
                raise SourceError(f"block {at}: {block.shape[1]} columns where {len(self.features)} are due")
            if block.shape[0]:
                yield block

    def _checked(self) -> Iterator[FloatArray]:
        for at, block in enumerate(self._given() if callable(self._given) else self._given):
            try:
                rows = np.array(block, dtype=np.float64, order="C")
            except (TypeError, ValueError) as error:
                raise SourceError(f"block {at}: not an array of numbers ({reason(error)})") from error
            if rows.ndim != 2 or rows.shape[1] == 0:
                raise SourceError(f"block {at}: shape {rows.shape} where (n, n_features) is due")
            yield rows


from_blocks = Blocks
