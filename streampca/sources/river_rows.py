"""The numeric features of river's datasets and streams, as rows with fixed features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from numbers import Real
from typing import Any

import numpy as np

from streampca.errors import SourceError, listed, short
from streampca.linalg.types import FloatArray
from streampca.sources.base import BlockSource, BoundsLike, check_missing, choose, in_blocks, source_bounds
from streampca.sources.csv_cells import number

#: Rows in a block: few, so that a live stream is not held up for long.
_BLOCK = 256
_Given = Iterable[Any] | Callable[[], Iterable[Any]]


class RiverRows(BlockSource):
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
    missing : "raise" makes an absent, missing or infinite value an error;
        "nan" passes it on, so that ``Stream(on_bad_row=...)`` decides.

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
        missing: str = "raise",
    ) -> None:
        self._dataset = dataset
        self._nan = check_missing(missing)
        rows = self._mappings()
        first = next(rows, None)
        if first is None:
            raise SourceError("no rows: the dataset is empty")
        # What was begun is gone on with when the rows are first asked for.
        self._begun: Iterator[Mapping[str, Any]] | None = chain([first], rows)
        known = [str(name) for name in first]
        self.features = tuple(known[place] for place in choose(known, columns, "the first row"))
        text = [name for name in self.features if self._value(first[name]) is None]
        if text:
            numeric = [name for name in self.features if name not in text]
            raise SourceError(
                f"row 1: {listed(text)} is not a number ({short(first[text[0]])}); "
                f"leave it out with {f'columns={numeric}' if 0 < len(numeric) <= 12 else 'columns='}"
            )
        self.bounds = source_bounds(bounds, self.features, known)

    def blocks(self) -> Iterator[FloatArray]:
        """The rows from the start; once only if the dataset is an iterator."""
        if self._begun is not None:
            rows, self._begun = self._begun, None
        elif isinstance(self._dataset, Iterator):
            raise SourceError("this stream was read before; pass a function that makes it, not the stream itself")
        else:
            rows = self._mappings()
        yield from in_blocks((self._row(row, position) for position, row in enumerate(rows, 1)), _BLOCK)

    def _mappings(self) -> Iterator[Mapping[str, Any]]:
        for row in self._dataset() if callable(self._dataset) else self._dataset:
            # river yields pairs (features, target); the target is no feature.
            features = row[0] if isinstance(row, tuple) and row else row
            if not isinstance(features, Mapping):
                raise SourceError(f"a row is {short(features)}; mappings or (mapping, target) pairs are due")
            yield features

    def _row(self, row: Mapping[str, Any], position: int) -> list[float]:
        made = []
        for name in self.features:
            value = self._value(row.get(name))
            if value is None:
                raise SourceError(
                    f"row {position}: feature {short(name)} is not a number ({short(row[name])}); "
                    "leave it out with columns="
                )
            if not (self._nan or np.isfinite(value)):
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
        return float(value) if isinstance(value, (Real, np.bool_)) else None


from_river = RiverRows
