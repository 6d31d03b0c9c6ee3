"""Alternating measurement: contenders run in turn, and medians and ratios are taken over the same rounds."""

import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Literal, NamedTuple

import pandas as pd
from threadpoolctl import threadpool_info

from streampca import _native


@dataclass(frozen=True)
class Contender:
    """Work to be timed."""

    name: str
    rows: int  #: that one call of ``work`` handles
    work: Callable[[], object]
    needs: str = ""  #: a module, or ``native`` for compiled kernels; without it the work is omitted

    @property
    def can_run(self) -> bool:
        """Whether what it needs is installed."""
        return _native.available() if self.needs == "native" else not self.needs or find_spec(self.needs) is not None


class Goal(NamedTuple):
    """Bound on how much faster (``>=``) one contender is than another, or on its time over the other's (``<=``)."""

    name: str
    against: str
    sense: Literal[">=", "<="]
    bound: float

    def verdict(self, value: float | None) -> str:
        """Whether a measured figure reaches the bound, in words. It is None if a contender could not run."""
        if value is None:
            return "not measured"
        return "met" if (value >= self.bound if self.sense == ">=" else value <= self.bound) else "missed"


@dataclass
class Result:
    """One table of a suite: microseconds a row by round and contender, other figures, and goals with their figures.

    Ratios are against the first contender.
    """

    title: str
    times: pd.DataFrame
    goals: list[tuple[Goal, float | None]] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """The result as lines of Markdown."""
        yield from (f"## {self.title}", "")
        if len(self.times.columns):
            yield from ("| | us/row | rows/s | ratio |", "|---|---:|---:|---:|")
        for name, times in self.times.items():
            median, base = times.median(), self.times.iloc[:, 0]
            yield f"| {name} | {median:.3g} | {1e6 / median:.0f} | {(base / times).median():.2f} |"
        yield ""
        yield from (f"- {fact}" for fact in self.facts)
        for goal, value in self.goals:
            shown = "" if value is None else f"{value:.2f} "
            asked = f"(asked for: {goal.sense} {goal.bound:g}) {goal.name}, against {goal.against}"
            yield f"- {goal.verdict(value)}: {shown}{asked}"


@dataclass(frozen=True)
class Comparison:
    """Contenders for one table, the first of them the base of ratios, and goals.

    With ``by_the_clock``, goals are about elapsed seconds, and elapsed ratios are listed beside the CPU seconds.
    """

    title: str
    contenders: Sequence[Contender]
    goals: Sequence[Goal] = ()
    by_the_clock: bool = False

    def run(self, rounds: int) -> Result:
        """Time the contenders that can run, and compare."""
        running = [contender for contender in self.contenders if contender.can_run]
        cpu, elapsed = take_turns(running, rounds)
        result, compared = Result(self.title, cpu), elapsed if self.by_the_clock else cpu
        if self.by_the_clock:
            base = elapsed.columns[0]
            result.facts = [
                f"{(elapsed[name] / elapsed[base]).median():.2f} times the elapsed time of {base}: {name}"
                for name in elapsed.columns[1:]
            ]
        for goal in self.goals:
            value = None
            if {goal.name, goal.against} <= set(compared):
                faster = float((compared[goal.against] / compared[goal.name]).median())
                value = faster if goal.sense == ">=" else 1.0 / faster
            result.goals.append((goal, value))
        return result


def take_turns(contenders: Sequence[Contender], rounds: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """CPU and elapsed microseconds a row of all contenders, one line a round. A busy machine slows all of them alike.

    A round before those that are counted fills caches and fits noise.
    """
    found = pd.DataFrame(dtype=float), pd.DataFrame(dtype=float)
    for turn in range(rounds + 1):
        for contender in contenders:
            cpu, clock = _cpu(), time.perf_counter()
            contender.work()
            spent = _cpu() - cpu, time.perf_counter() - clock
            # A clock that has not ticked must not divide by zero.
            for times, seconds in zip(found, spent, strict=True):
                times.loc[turn, contender.name] = 1e6 * max(seconds, 1e-9) / contender.rows
    return found[0].iloc[1:], found[1].iloc[1:]


def _cpu() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return time.process_time() + sum(os.times()[2:4])


def machine() -> Iterator[str]:
    """System, processor, cores, load and versions, as lines of Markdown."""
    processor = platform.processor()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
            processor = next(names, processor)
    versions = []
    for name in ("streampca", "numpy", "scipy", "scikit-learn", "river", "pandas", "cryptography"):
        try:
            versions.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    blas = {f"{one['internal_api']} {one['version']}" for one in threadpool_info() if one["user_api"] == "blas"}
    yield f"- {platform.system()} {platform.machine()}, {processor or 'unknown processor'}"
    yield f"- {os.cpu_count()} cores, one thread is used; load {os.getloadavg()[0]:.1f}"
    yield f"- Python {platform.python_version()}, {', '.join(versions)}, {', '.join(sorted(blas))}"
