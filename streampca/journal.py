"""What a stream tells whoever keeps it durable, and whoever pays for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.release import Release

P = ParamSpec("P")
R = TypeVar("R")


class Journal(Protocol):
    """Keeps the rows of one stream, and holds its releases back until their rows are durable."""

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """Held while rows are absorbed, so that a release read in another thread commits no half of them."""

    def check(self) -> bool:
        """Raise if the journal has failed; tell if a commit is overdue. Called before a row is taken."""

    @property
    def room(self) -> int | None:
        """How many single rows may wait before the next commit; None if it does not count rows."""

    def took(self, rows: FloatArray, bad: int, releases: dict[int, Release]) -> None:
        """Note admitted rows that were absorbed, how many of them were bad, and the releases they brought about."""

    def took_block(self, block: Any, release: Release | None) -> None:
        """Note a `BlockGram` that was absorbed, and the release it brought about."""

    def wait_for(self, t: int) -> None:
        """Return once the first t rows and the releases made of them are durable."""


def journaled(absorb: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Absorb nothing if the journal has failed, and let nothing be committed in the middle."""

    @wraps(absorb)
    def absorbed(stream: Any, /, *args: P.args, **options: P.kwargs) -> R:
        if stream._journal is None:
            return absorb(stream, *args, **options)
        with stream._journal.turn:
            stream._journal.check()
            return absorb(stream, *args, **options)

    return absorbed


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
