"""What a way to follow a window provides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from streampca.linalg.types import FloatArray


@dataclass(frozen=True)
class WindowView:
    """One private look at the window.

    Attributes
    ----------
    packed : packed entries of the private Gram matrix.
    std : sd of a diagonal entry of its noise, or None if that is not the noise's law.
    first : first row it covers.
    details : publishable facts for the release.
    """

    packed: FloatArray
    std: float | None
    first: int
    details: dict[str, Any] = field(default_factory=dict)


class WindowEngine(ABC):
    """Rows of a window in, private Gram matrices out.

    Rows come in leaves of a fixed length; `look` is called at the end of
    every leaf, and at no other time.
    """

    @abstractmethod
    def add(self, rows: FloatArray) -> None:
        """Take admitted rows, all of one leaf."""

    @abstractmethod
    def look(self, t: int) -> WindowView:
        """Close the leaf that ends at row t; the window's private Gram matrix."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the rows."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes held for rows, sums and checkpoints; noise apart."""
