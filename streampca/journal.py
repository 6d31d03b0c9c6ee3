"""What a stream tells whoever keeps it durable, and whoever pays for it."""

from __future__ import annotations

from typing import Any, Protocol

from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.release import Release


class Journal(Protocol):
    """Keeps the rows of one stream, and holds its releases back until their rows are durable."""

    def check(self) -> bool:
        """Raise if the journal has failed; tell if a commit is overdue. Called before a row is taken."""

    @property
    def room(self) -> int:
        """How many single rows may wait before the next commit."""

    def took(self, rows: FloatArray, bad: int, releases: dict[int, Release]) -> None:
        """Note admitted rows that were absorbed, how many of them were bad, and the releases they brought about."""

    def took_block(self, block: Any, release: Release | None) -> None:
        """Note a `BlockGram` that was absorbed, and the release it brought about."""

    def wait_for(self, t: int) -> None:
        """Return once the first t rows and the releases made of them are durable."""


class RunStore(Protocol):
    """Where streams can be begun and resumed: `streampca.Store`."""

    def begin(self, stream: Any) -> Journal:
        """Begin a durable run."""

    def resume(self, kind: Any, *, moved: bool = False) -> Any:
        """Rebuild the stream of a run."""


class Account(Protocol):
    """Who pays for a stream: e.g. one data set of a `streampca.store.Ledger`."""

    def debit(self, guarantee: Guarantee) -> None:
        """Book the stream, or raise `BudgetExhausted`."""
