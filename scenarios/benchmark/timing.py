"""Alternating measurement: contenders run in turn, and medians and ratios are taken over the same rounds."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Literal

from streampca import _native

#: Optional packages, and how to install them.
_INSTALL = {
    "sklearn": "scikit-learn is not installed: pip install scikit-learn",
    "native": "the kernels are not compiled: see streampca version",
    "proSVD": "proSVD is not installed: pip install proSVD",
}


@dataclass(frozen=True)
class Contender:
    """Work to be timed.

    Attributes
    ----------
    name : as printed.
    rows : number of rows that one call of ``work`` handles.
    work : called with no arguments.
    needs : module it cannot run without, one of `_INSTALL`; left out of the table where that is missing.
    """

    name: str
    rows: int
    work: Callable[[], object]
    needs: str = ""

    @property
    def missing(self) -> str:
        """How to install what it needs; empty if it can run."""
        there = _native.available() if self.needs == "native" else not self.needs or find_spec(self.needs)
        return "" if there else _INSTALL[self.needs]


@dataclass(frozen=True)
class Timed:
    """Seconds of one contender, one number a round: CPU time of all its threads, and elapsed time."""

    name: str
    rows: int
    seconds: tuple[float, ...]
    elapsed: tuple[float, ...] = ()

    @property
    def by_the_clock(self) -> Timed:
        """The same with elapsed seconds in place of CPU seconds. Other work on the machine adds to them."""
        return replace(self, seconds=self.elapsed)

    @property
    def per_row(self) -> float:
        """Median microseconds a row."""
        return 1e6 * statistics.median(self.seconds) / self.rows

    @property
    def relative_range(self) -> float:
        """Range of the seconds over their median."""
        return (max(self.seconds) - min(self.seconds)) / statistics.median(self.seconds)

    def faster_than(self, other: Timed) -> float:
        """Median over rounds of the other's time a row over this one's."""
        pairs = zip(self.seconds, other.seconds, strict=True)
        return statistics.median(b / other.rows / (a / self.rows) for a, b in pairs)


def _cpu() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return time.process_time() + sum(os.times()[2:4])


def take_turns(contenders: Sequence[Contender], rounds: int, *, cold: bool = False) -> list[Timed]:
    """Time all in every round, after one round that is not counted, which fills caches and fits noise; not if cold."""
    found: list[list[tuple[float, float]]] = [[] for _ in contenders]
    for turn in range(int(cold), rounds + 1):
        for contender, times in zip(contenders, found, strict=True):
            started, clock = _cpu(), time.perf_counter()
            contender.work()
            if turn:
                spent = _cpu() - started, time.perf_counter() - clock
                times.append((max(spent[0], 1e-9), max(spent[1], 1e-9)))
    return [
        Timed(c.name, c.rows, tuple(cpu for cpu, _ in t), tuple(clock for _, clock in t))
        for c, t in zip(contenders, found, strict=True)
    ]


@dataclass(frozen=True)
class Bar:
    """Required figure beside the measured one.

    Attributes
    ----------
    what : what is compared with what.
    bound : the number to reach.
    sense : ``">="`` if more is better.
    value : as measured; None if it was not, and ``note`` says why.
    note : what the time goes into, or why nothing was measured.
    """

    what: str
    bound: float
    sense: Literal[">=", "<="]
    value: float | None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the bound is reached; None if nothing was measured."""
        if self.value is None:
            return None
        return self.value >= self.bound if self.sense == ">=" else self.value <= self.bound


@dataclass
class Result:
    """One table of a suite: times, other figures, and bars. Ratios are against the first contender."""

    suite: str
    title: str
    timed: list[Timed]
    bars: list[Bar] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)

    def __getitem__(self, name: str) -> Timed:
        return next(timed for timed in self.timed if timed.name == name)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        lines = [{**vars(t), "us_per_row": t.per_row, "ratio": t.faster_than(self.timed[0])} for t in self.timed]
        bars = [{**vars(bar), "met": bar.met} for bar in self.bars]
        return {"suite": self.suite, "title": self.title, "contenders": lines, "bars": bars, "facts": self.facts}


@dataclass(frozen=True)
class Goal:
    """Bound on how much faster (``>=``) one contender is than another, or on its time over the other's (``<=``)."""

    name: str
    against: str
    sense: Literal[">=", "<="]
    bound: float
    note: str = ""


@dataclass(frozen=True)
class Comparison:
    """Contenders for one table, the first of them the base of ratios, and goals.

    With ``cold``, no round goes before those that are counted.
    With ``by_the_clock``, goals are about elapsed seconds, and elapsed ratios are listed beside the CPU seconds.
    """

    title: str
    contenders: Sequence[Contender]
    goals: Sequence[Goal] = ()
    by_the_clock: bool = False
    cold: bool = False

    def run(self, suite: str, rounds: int) -> Result:
        """Time the contenders that can run, and compare."""
        missing = {c.name: c.missing for c in self.contenders}
        timed = take_turns([c for c in self.contenders if not missing[c.name]], rounds, cold=self.cold)
        result = Result(suite, self.title, timed)
        compared = {t.name: t.by_the_clock if self.by_the_clock else t for t in timed}
        base = timed[0].name
        if self.by_the_clock:
            result.facts = [
                f"  {1.0 / clock.faster_than(compared[base]):.2f} times the elapsed time of {base}: {name}"
                for name, clock in compared.items()
                if name != base
            ]
        for goal in self.goals:
            what, note = f"{goal.name}, against {goal.against}", missing[goal.name] or missing[goal.against]
            value = None
            if not note:
                faster = compared[goal.name].faster_than(compared[goal.against])
                value, note = faster if goal.sense == ">=" else 1.0 / faster, goal.note
            result.bars.append(Bar(what, goal.bound, goal.sense, value, note))
        return result
