"""Contenders take turns, and medians and ratios are read off the same rounds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal


@dataclass(frozen=True)
class Contender:
    """Something to be timed: ``work()`` handles ``rows`` rows."""

    name: str
    rows: int
    work: Callable[[], object]


@dataclass(frozen=True)
class Timed:
    """CPU seconds of one contender, of all its threads, one number a round; and seconds on the clock."""

    name: str
    rows: int
    seconds: tuple[float, ...]
    elapsed: tuple[float, ...] = ()

    @property
    def by_the_clock(self) -> Timed:
        """The same with elapsed seconds in the place of CPU seconds: what a busy machine spoils."""
        return replace(self, seconds=self.elapsed)

    @property
    def per_row(self) -> float:
        """Median microseconds a row."""
        return 1e6 * statistics.median(self.seconds) / self.rows

    @property
    def spread(self) -> float:
        """Range of the seconds over their median."""
        return (max(self.seconds) - min(self.seconds)) / statistics.median(self.seconds)

    def faster_than(self, other: Timed) -> float:
        """Median over rounds of the other's time a row over this one's."""
        pairs = zip(self.seconds, other.seconds, strict=True)
        return statistics.median(b / other.rows / (a / self.rows) for a, b in pairs)


def take_turns(contenders: Sequence[Contender], rounds: int) -> list[Timed]:
    """Time all in every round, after one round that counts for nothing: caches and fits are warm then."""
    found: list[list[tuple[float, float]]] = [[] for _ in contenders]
    for turn in range(rounds + 1):
        for contender, times in zip(contenders, found, strict=True):
            started, clock = time.process_time(), time.perf_counter()
            contender.work()
            if turn:
                spent = time.process_time() - started, time.perf_counter() - clock
                times.append((max(spent[0], 1e-9), max(spent[1], 1e-9)))
    return [
        Timed(c.name, c.rows, tuple(cpu for cpu, _ in t), tuple(clock for _, clock in t))
        for c, t in zip(contenders, found, strict=True)
    ]


@dataclass(frozen=True)
class Bar:
    """What was asked for, and what was measured.

    Attributes
    ----------
    what : the two sides that are compared.
    bound : the number to reach.
    sense : ``">="`` if more is better.
    value : what was measured; None if it could not be, and ``note`` says why.
    note : where the time goes, or why nothing was measured.
    """

    what: str
    bound: float
    sense: Literal[">=", "<="]
    value: float | None
    note: str = ""
    unit: str = "x"

    @property
    def met(self) -> bool | None:
        """True if the bound is reached; None if nothing was measured."""
        if self.value is None:
            return None
        return self.value >= self.bound if self.sense == ">=" else self.value <= self.bound

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {**self.__dict__, "met": self.met}


@dataclass
class Result:
    """One table of a suite: who took part, and what was asked for. Ratios are against the first."""

    suite: str
    title: str
    timed: list[Timed]
    bars: list[Bar] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)

    def __getitem__(self, name: str) -> Timed:
        return next(timed for timed in self.timed if timed.name == name)

    def require(self, what: str, sense: Literal[">=", "<="], bound: float, value: float | None, note: str = "") -> None:
        """Set a bar beside what was measured."""
        self.bars.append(Bar(what, bound, sense, value, note))

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        base = self.timed[0] if self.timed else None
        lines = [
            {
                "name": t.name,
                "rows": t.rows,
                "seconds": t.seconds,
                "elapsed": t.elapsed,
                "us_per_row": t.per_row,
                "ratio": t.faster_than(base),
            }
            for t in self.timed
            if base is not None
        ]
        bars = [bar.to_dict() for bar in self.bars]
        return {"suite": self.suite, "title": self.title, "contenders": lines, "bars": bars, "facts": self.facts}
