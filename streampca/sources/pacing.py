"""Rows of another source at a given rate, or at the times that one of its columns says."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from streampca.errors import BadParameterError, SourceError, short
from streampca.linalg.types import FloatArray
from streampca.sources.base import BlockSource, BoundsLike, choose, source_bounds

#: Longest sleep, in seconds: a time column may ask for any.
_LONGEST = 3600.0


class PacedRows(BlockSource):
    """The rows of a source, each not before its time; made by `streampca.sources.open_rows`.

    Parameters
    ----------
    source : the rows. Without bounds, if ``times`` is given.
    rate : rows a second.
    times : name of a column of ``source``, in seconds: rows come at the same distances as there. A row
        without a time comes with the row before it.
    keep : the column of times is a feature, too.
    bounds : public bounds of the features, if ``times`` is given.
    """

    def __init__(
        self, source: BlockSource, rate: float | None, times: str | None, *, keep: bool = False,
        bounds: BoundsLike = None,
    ) -> None:  # fmt: skip
        if rate is not None and not (isinstance(rate, (int, float)) and 0 < rate < float("inf")):
            raise BadParameterError(f"rate={short(rate)} must be a positive number of rows a second")
        self._source, self._rate = source, rate
        self.features, self.bounds = source.features, source.bounds
        self._place: int | None = None
        if times is not None:
            self._place = choose(source.features, [times], "the source")[0]
            if not keep:
                self.features = tuple(name for at, name in enumerate(source.features) if at != self._place)
            if not self.features:
                raise SourceError(f"there is no column but that of the times, {short(times)}")
            self.bounds = source_bounds(bounds, self.features, source.features)

    @property
    def expected_rows(self) -> int | None:
        """Number of rows that the source expects."""
        return self._source.expected_rows

    def blocks(self) -> Iterator[FloatArray]:
        """The rows from the start, as many at a time as are due."""
        began, sent, first = 0.0, 0, float("nan")
        for block in self._source.blocks():
            began = began or time.monotonic()
            if self._place is None:
                due = (sent + np.arange(len(block))) / (self._rate or 1.0)
            else:
                seconds = block[:, self._place]
                finite = np.isfinite(seconds)
                if np.isnan(first) and finite.any():
                    first = float(seconds[finite.argmax()])
                due = np.where(finite, seconds - first, 0.0)
                if len(self.features) < block.shape[1]:
                    block = np.delete(block, self._place, axis=1)
            sent += len(block)
            yield from _when_due(block, due, began)

    def __repr__(self) -> str:
        return f"<PacedRows of {self._source!r}>"


def _when_due(block: FloatArray, due: FloatArray, began: float) -> Iterator[FloatArray]:
    """The rows of a block, each once so many seconds have passed."""
    at = 0
    while at < len(block):
        passed = time.monotonic() - began
        late = due[at:] > passed
        count = int(late.argmax()) if late.any() else len(late)
        if count:
            yield block[at : at + count]
            at += count
        else:
            time.sleep(min(due[at] - passed, _LONGEST))
