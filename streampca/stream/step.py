"""Results of pushing rows: a `Step` for a row, `Steps` for many, a `BlockStep` for a block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np

from streampca.linalg.types import FloatArray
from streampca.release.release import Release, Scoring, rewarded
from streampca.rows.admission import Admission
from streampca.stream.blocks import CommitLog


class Waiting:
    """Single rows that were checked and are not absorbed yet, up to the next release or record.

    Parameters
    ----------
    after : rows of the stream before them.
    admission : how they are admitted.
    scoring : of the subspace in play; None where no regret is kept.
    unit : row_norm**2.
    size : how many there may be.
    """

    __slots__ = ("admission", "after", "rows", "scoring", "unit")

    def __init__(self, after: int, admission: Admission, scoring: Scoring | None, unit: float, size: int) -> None:
        self.after, self.admission, self.scoring, self.unit = after, admission, scoring, unit
        self.rows = np.empty((size, admission.n_features or 0))

    def reward(self, place: int) -> float:
        """The reward of one of them."""
        if self.scoring is None:
            return float("nan")
        row = self.admission.block(self.rows[place : place + 1], self.after + place + 1)[0]
        return rewarded(row, self.scoring)[1] * self.unit


class Step:
    """The result of pushing one row.

    Attributes
    ----------
    t : rows seen.
    release : publishable, or None if none was due.
    reward : ||V^T a||**2 on the subspace played before this row was seen, in
        units of row_norm**2 (`release.Scoring`, of centered streams too); nan if the stream
        keeps no regret. Curator only: it is a function of the raw row.

    Notes
    -----
    Reading a release of a durable stream waits until its rows are durable.
    """

    __slots__ = ("release", "reward", "t")

    release: Release | None
    reward: float

    def __init__(self, t: int, release: Release | None, reward: float) -> None:
        self.t, self.release, self.reward = t, release, reward

    def __repr__(self) -> str:
        return f"Step(t={self.t})"


class HeldStep(Step):
    """A step of a durable stream: reading its release waits until its rows are durable."""

    __slots__ = ("_log", "_release")

    def __init__(self, t: int, release: Release, reward: float, log: CommitLog) -> None:
        self.t, self.reward, self._release, self._log = t, reward, release, log

    @property
    def release(self) -> Release | None:  # type: ignore[override]
        """The release that this row completed. Publishable."""
        self._log.hold(self.t)
        return self._release


class WaitingStep(Step):
    """A row that waits to be absorbed; its reward is computed when asked for. Curator only."""

    __slots__ = ("_place", "_waiting")

    def __init__(self, t: int, waiting: Waiting, place: int) -> None:
        self.t, self.release = t, None
        self._waiting, self._place = waiting, place

    @property
    def reward(self) -> float:  # type: ignore[override]
        """The reward on the subspace played before this row was seen. Curator only."""
        return self._waiting.reward(self._place)


class Steps(Sequence[Step]):
    """The steps of a block of rows.

    Attributes
    ----------
    first : number of the first row.
    rewards : (n,) array, one reward a row. Curator only.
    """

    def __init__(self, first: int, rewards: FloatArray, releases: list[Release], log: CommitLog | None) -> None:
        self.first = first
        self.rewards = rewards
        self._releases, self._log = releases, log
        self._by_row: dict[int, Release] | None = None

    @property
    def releases(self) -> list[Release]:
        """The releases made within the block, in order. Publishable."""
        if self._log is not None and self._releases:
            self._log.hold(self._releases[-1].t)
        return list(self._releases)

    def __len__(self) -> int:
        return int(self.rewards.size)

    @overload
    def __getitem__(self, i: int) -> Step: ...
    @overload
    def __getitem__(self, i: slice) -> list[Step]: ...
    def __getitem__(self, i: int | slice) -> Step | list[Step]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        place = range(len(self))[i]
        if self._by_row is None:
            self._by_row = {release.t: release for release in self._releases}
        t = self.first + place
        return step_of(t, self._by_row.get(t), float(self.rewards[place]), self._log)


class BlockStep:
    """The result of pushing a block.

    Attributes
    ----------
    t : rows seen.
    count : rows of the block.
    reward : sum of the rewards of its rows, in units of row_norm**2; nan if the
        stream keeps no regret. Curator only: it is a function of raw rows.
    """

    __slots__ = ("_log", "_release", "count", "reward", "t")

    def __init__(self, t: int, count: int, reward: float, release: Release | None, log: CommitLog | None) -> None:
        self.t, self.count, self.reward = t, count, reward
        self._release, self._log = release, log

    @property
    def release(self) -> Release | None:
        """The release that the block completed, or None. Publishable. In a durable stream, waits for its rows."""
        if self._log is not None and self._release is not None:
            self._log.hold(self.t)
        return self._release

    def __repr__(self) -> str:
        return f"BlockStep(t={self.t}, count={self.count})"


def step_of(t: int, release: Release | None, reward: float, log: CommitLog | None) -> Step:
    """The step of an absorbed row."""
    return Step(t, release, reward) if log is None or release is None else HeldStep(t, release, reward, log)


def no_rewards(count: int) -> FloatArray:
    """One nan a row: the rewards of a stream that keeps no regret."""
    return np.full(count, np.nan)
