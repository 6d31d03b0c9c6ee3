"""Sources that can go on where they stand: the common part of Kafka topics, queries and numbered rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from streampca.errors import SourceError
from streampca.linalg.types import FloatArray
from streampca.rows import PositionedBlock
from streampca.sources.base import BlockSource


class PositionedRows(BlockSource):
    """A `streampca.rows.PositionedSource`.

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
