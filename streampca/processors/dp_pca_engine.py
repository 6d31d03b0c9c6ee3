"""What `DPPCA` asks of the ascent that it drives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from streampca.linalg.types import FloatArray
from streampca.processors.dp_pca_plan import Segment


class Engine(ABC):
    """An ascent over public segments of rows, one mechanism each.

    Attributes
    ----------
    segments : the schedule.
    fallbacks : how often private mechanisms had no answer. Publishable.
    """

    segments: tuple[Segment, ...]
    fallbacks: dict[str, int]

    @abstractmethod
    def open(self, segment: Segment) -> int:
        """Get ready for a segment; return the number of rows to hand over at a time."""

    @abstractmethod
    def take(self, segment: Segment, rows: FloatArray) -> None:
        """Absorb rows. Curator only until `close`."""

    @abstractmethod
    def close(self, segment: Segment, at: int) -> None:
        """Release the segment's mechanism once, with the draw named ``at``, and act on the answer."""

    @abstractmethod
    def subspace(self) -> tuple[FloatArray, FloatArray]:
        """Orthonormal (d, k) basis and (k,) mean rewards, largest first. Publishable."""

    @abstractmethod
    def state(self, segment: Segment | None) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. Curator only."""

    @abstractmethod
    def restore(self, segment: Segment | None, state: dict[str, Any]) -> int:
        """Continue from `state`, in the segment, which is opened first; return what `open` does."""
