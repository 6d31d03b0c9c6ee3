"""What a source of rows is.

Anything iterable can be streamed; a `RowSource` can be streamed fast. It
names its features, may carry public bounds for them, and yields its rows in
blocks as well as one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from streampca.linalg.types import FloatArray

#: Lower and upper public bounds of each feature, two arrays of shape (n_features,).
Bounds = tuple[FloatArray, FloatArray]


@runtime_checkable
class RowSource(Protocol):
    """Rows of named features that can be read again from the start.

    Every call of `blocks` or `iter` starts over and yields the same rows.
    How rows are cut into blocks carries no meaning.

    Notes
    -----
    A source that meets a bad row yields every row before it, in order, and
    then raises `streampca.errors.SourceError`: what was streamed is always an
    exact prefix of the rows.
    """

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, in the order of a row's entries."""
        ...

    @property
    def bounds(self) -> Bounds | None:
        """Public lower and upper bounds of each feature; None if there are none."""
        ...

    def blocks(self) -> Iterator[FloatArray]:
        """The rows as non-empty C-contiguous (n, n_features) blocks that the caller may keep."""
        ...

    def __iter__(self) -> Iterator[FloatArray]:
        """The rows one at a time, each of shape (n_features,)."""
        ...
