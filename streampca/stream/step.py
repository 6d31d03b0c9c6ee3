"""Values of a stream: its state between two rows, and the results of pushing rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, overload

import numpy as np

from streampca.errors import UsageError
from streampca.linalg.lattice import GramSum
from streampca.linalg.types import FloatArray
from streampca.processors.base import Processor
from streampca.regret.private_regret import PrivateRegretRecords
from streampca.regret.regret import RegretSums
from streampca.release.release import Release
from streampca.release.scoring import Scoring, rewarded
from streampca.rows.admission import NO_COUNTS, Admission, Counts
from streampca.rows.people import NOBODY, People
from streampca.stream.blocks import CommitLog


class Period(NamedTuple):
    """The open period: an immutable value."""

    gram: GramSum  #: exact sum of its rows
    rows: int = 0  #: number of rows of the stream. Curator only
    timed: bool | None = None  #: whether times of rows close periods; None before the first use

    def snapshot(self) -> dict[str, Any]:
        return {"gram": self.gram.snapshot(), "rows": self.rows, "timed": self.timed}


class State(NamedTuple):
    """State of a stream: an immutable value."""

    admission: Admission
    unit: float  #: row_norm**2
    t: int = 0  #: number of rows absorbed
    processor: Processor | None = None
    release: Release | None = None
    regret: RegretSums | None = None
    private: PrivateRegretRecords | None = None
    scoring: Scoring | None = None
    counts: Counts = NO_COUNTS
    due: int = 0  #: number of rows that may be absorbed together, up to the next release or record
    entries: int = 0  #: number of entries of the commit log up to this state
    period: Period | None = None  #: the open period of a calendar, whose closed ones are counted by `t`
    people: People = NOBODY  #: with the budgets of the stream, if its unit of privacy is a person


def running(now: State) -> Processor:
    """Return the processor of a stream that has started."""
    if now.processor is None:
        raise UsageError("the stream has not started. Push a row first")
    return now.processor


def vectors_of(admitted: FloatArray, size: int) -> FloatArray:
    """Return the first entries of admitted rows, without those that state which cells are present."""
    return np.ascontiguousarray(admitted[:, :size])


class Waiting(NamedTuple):
    """Single rows, checked but not absorbed, up to the next release or record."""

    after: int  #: number of rows of the stream before them
    admission: Admission
    scoring: Scoring | None  #: of the current subspace; None if the stream keeps no regret
    unit: float  #: row_norm**2
    rows: FloatArray  #: buffer of raw rows, (size, d)


@dataclass(slots=True, eq=False, repr=False)
class Step:
    """Result of pushing one row, or a block.

    Attributes
    ----------
    t : number of rows absorbed or waiting.
    count : number of rows of the step: 1, or those of the block.
    release : the release that the last of them completed, or None. Publishable. In a durable stream, reading it waits
        until its rows are durable.
    reward : ``||V^T a||**2`` of the row a for the subspace V before the row, in units of row_norm**2; `Scoring` defines
        it for centered streams. The sum of them for a block, nan if the stream keeps no regret. Curator only.
    """

    t: int
    _release: Release | None
    reward: float
    _log: CommitLog | None = None
    count: int = 1

    @property
    def release(self) -> Release | None:
        """The release that was completed, or None. Publishable."""
        # Privacy: a release that a crash would forget may be drawn again, with other noise, for the same rows.
        if self._log is not None and self._release is not None:
            self._log.hold(self.t)
        return self._release

    def steps(self) -> Steps:
        """Return the rows of a block as steps without rewards of their own."""
        releases = [] if self._release is None else [self._release]
        return Steps(self.t - self.count + 1, np.broadcast_to(np.nan, self.count), releases, self._log)

    def __repr__(self) -> str:
        return f"Step(t={self.t})"


class WaitingStep(Step):
    """Step of a row that waits to be absorbed."""

    __slots__ = ("_place", "_waiting")

    def __init__(self, t: int, waiting: Waiting, place: int) -> None:
        self.t, self._release, self._log, self.count = t, None, None, 1
        self._waiting, self._place = waiting, place

    @property
    def reward(self) -> float:  # type: ignore[override]
        """Reward of the row for the subspace before it, computed on reading. Curator only."""
        after, admission, scoring, unit, rows = self._waiting
        if scoring is None:
            return float("nan")
        # The raw row is admitted a second time. Keeping admitted rows would make every waiting row pay for admission.
        admitted = admission.block(rows[self._place : self._place + 1], after + self._place + 1)[0]
        return rewarded(vectors_of(admitted, len(scoring.basis)), scoring)[1] * unit


@dataclass(eq=False, repr=False)
class Steps(Sequence[Step]):
    """Steps of a block of rows.

    Attributes
    ----------
    first : number of the first row.
    rewards : (n,) array with one reward a row. Curator only.
    """

    first: int
    rewards: FloatArray
    _releases: list[Release]
    _log: CommitLog | None
    _by_row: dict[int, Release] | None = field(default=None, init=False)

    @property
    def releases(self) -> list[Release]:
        """Releases of the rows, in order. Publishable."""
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
        # Built when first needed: most callers read `releases`, never single steps.
        if self._by_row is None:
            self._by_row = {release.t: release for release in self._releases}
        t = self.first + place
        return Step(t, self._by_row.get(t), float(self.rewards[place]), self._log)
