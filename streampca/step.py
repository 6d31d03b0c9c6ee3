"""What rows brought about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

import numpy as np

from streampca.journal import Journal
from streampca.linalg.types import FloatArray
from streampca.release import Release


class Step:
    """What one row brought about.

    Attributes
    ----------
    t : rows seen.
    release : publishable, or None if none was due.
    reward : ||V^T a||**2 on the subspace played before this row was seen, in
        units of row_norm**2; nan if the stream keeps no regret. Curator only:
        it is a function of the raw row.
    """

    __slots__ = ("_at", "_steps")

    def __init__(self, steps: Steps, at: int) -> None:
        self._steps = steps
        self._at = at

    @property
    def t(self) -> int:
        """Rows seen."""
        return self._steps.first + self._at

    @property
    def release(self) -> Release | None:
        """The release that this row completed, or None. Publishable."""
        return self._steps.release_at(self.t)

    @property
    def reward(self) -> float:
        """||V^T a||**2 on the subspace played before this row was seen. Curator only."""
        return float(self._steps.rewards[self._at])

    def __repr__(self) -> str:
        return f"Step(t={self.t}, release={self.release!r})"


class Steps(Sequence[Step]):
    """The steps of a block of rows.

    Attributes
    ----------
    releases : the releases made within the block, in order. Publishable.
    rewards : (n,) array, one reward a row. Curator only.

    Notes
    -----
    Rewards and releases of rows that still wait in the stream are computed when asked for.
    Reading a release of a durable stream waits until its rows are durable.
    ``due`` is the first row that may have a release.
    """

    def __init__(
        self, first: int, settle: Callable[[], None] | None = None, journal: Journal | None = None, *, due: int = 0
    ) -> None:
        self.first = first
        self._due = due
        self._settle = settle
        self._journal = journal
        self._rewards: FloatArray = np.empty(0)
        self._releases: dict[int, Release] = {}

    def fill(self, rewards: FloatArray, releases: dict[int, Release]) -> None:
        """Settle the block. Called by the stream, once."""
        self._rewards, self._releases, self._settle = rewards, releases, None

    @property
    def rewards(self) -> FloatArray:
        """One reward a row, (n,). Curator only."""
        if self._settle is not None:
            self._settle()
        return self._rewards

    @property
    def releases(self) -> list[Release]:
        """The releases made within the block, in order. Publishable."""
        if self._settle is not None:
            self._settle()
        if self._journal is not None and self._releases:
            self._journal.wait_for(max(self._releases))
        return list(self._releases.values())

    def release_at(self, t: int) -> Release | None:
        """The release made after row t of the stream, or None."""
        if self._settle is not None and t >= self._due:
            self._settle()
        release = self._releases.get(t)
        if self._journal is not None and release is not None:
            self._journal.wait_for(t)
        return release

    def __len__(self) -> int:
        return len(self.rewards)

    @overload
    def __getitem__(self, i: int) -> Step: ...
    @overload
    def __getitem__(self, i: slice) -> list[Step]: ...
    def __getitem__(self, i: int | slice) -> Step | list[Step]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        return Step(self, range(len(self))[i])
