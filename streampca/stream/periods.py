"""The open period of a stream with a calendar, and its closing: functions over `State`.

Rows are added to the exact sum of the open period. When it closes, the processor absorbs that sum as one input
(`streampca.calendar` has the proof). `State.t` counts closed periods, and `Period.rows` the rows, for the curator.

A period is closed by the clock of the system, or by the times of the rows of a file. A stream keeps to one of them, and
an entry of its log says which. A resumed stream repeats the closings of the log.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import numpy as np

from streampca.calendar import MOST, Calendar, clock
from streampca.errors import BadParameterError, StoreLockedError, UsageError
from streampca.exclusive import exclusive
from streampca.linalg.lattice import GramSum
from streampca.linalg.types import FloatArray, IntArray
from streampca.regret.regret import RegretSums
from streampca.release.release import Release
from streampca.rows.admission import NO_COUNTS, Counts
from streampca.rows.owners import Names, named_values
from streampca.rows.protocol import Position
from streampca.stream.blocks import Entry, block_reward
from streampca.stream.engine import Engine
from streampca.stream.step import Period, State, Step, Steps, running

#: Kinds of entries of a log: rows of the open period, and its closing. `_TIMED` follows if the times of rows close it.
OPEN, CLOSE, _TIMED = "open", "close", " by time"


def of(now: State) -> Period:
    """Return the open period of a stream that has started, also if no row has arrived."""
    processor = running(now)
    return now.period or Period(GramSum(processor.n_features, further=processor.further))


def restored(now: State, saved: Any) -> State:
    """Return a state with the open period of a snapshot."""
    if saved is None:
        return now
    return now._replace(period=Period(of(now).gram.restored(saved["gram"]), int(saved["rows"]), saved["timed"]))


def begun(engine: Engine, *, timed: bool) -> State:
    """Return the present state of a started stream. Pay and start if it is new. Raise if it has the other clock."""
    engine.ready()
    now = engine.now
    if now.processor is None:
        if now.admission.n_features is None:
            raise UsageError("features=None: one row would determine their number. Pass features= to the stream")
        now = engine.begun(now.admission, None, 0)
    period = of(now)
    if period.timed is None:
        return engine.commit(now, now._replace(period=period._replace(timed=timed)))
    if period.timed is not timed:
        first, then = ("their time", "their arrival") if period.timed else ("their arrival", "their time")
        raise UsageError(f"the rows so far counted by {first}, these by {then}. Use one of run(time=...) and push")
    return now


def add(
    engine: Engine, now: State, admitted: FloatArray, counts: Counts, position: Position | None = None,
    names: Names | None = None,
) -> State:  # fmt: skip
    """Add admitted rows to the open period; log and commit."""
    period, processor, people = of(now), running(now), now.people
    if names is not None:
        admitted, counts, people = engine.weighted(now, admitted, counts, names)
    after = now._replace(
        period=period._replace(gram=period.gram.add(admitted), rows=period.rows + len(admitted)),
        counts=now.counts.plus(counts), entries=now.entries + 1, people=people,
    )  # fmt: skip
    kind = OPEN + _TIMED * bool(period.timed)
    # The rows count when their period closes. Until then their entry holds them without a number.
    entry = Entry(now.t + 1, 0, admitted, None, counts, position=position, kind=kind, people=people)
    return engine.commit(now, after, entry, processor.outlet())


def close(engine: Engine, now: State, recorded: Any = None) -> tuple[State, float]:
    """Absorb the sum of the open period as one input; release, log and commit. Return the state and its reward."""
    period, processor = of(now), running(now)
    processor.check_horizon(1)
    outlet = processor.outlet(recorded)
    high_low = period.gram.high_low()
    # Not `absorb_gram`, whose check of plausibility ties the trace to the number of rows.
    after, release = processor.step_gram(1, *high_low, outlet)
    reward, sums = float("nan"), cast(RegretSums | None, None)
    if now.regret is not None and now.scoring is not None:
        gram = period.gram.matrix()
        reward = block_reward(*gram.high_low(), processor.n_features, now.scoring)
        sums = now.regret.observe_block(1, gram, reward)
    entry = Entry(now.t + 1, 1, None, None, kind=CLOSE + _TIMED * bool(period.timed))
    following = engine.following(now, 1, NO_COUNTS, after, release, sums)
    empty = GramSum(processor.n_features, further=processor.further)
    following = following._replace(period=period._replace(gram=empty))
    # Privacy: the number of the period decides, never a time of a row. Budgets end with it, in the same commit.
    if (every := processor.algorithm.unit_periods) and following.t % every == 0:
        following = following._replace(people=now.people.closed())
        entry = entry._replace(people=following.people)
    now = engine.commit(now, following, entry, outlet)
    if engine.budgets is not None:  # now, so that memory is that of one period
        engine.budgets.enter(now.people)
    return now, reward * now.unit


def replayed(engine: Engine, now: State, entry: Entry) -> None:
    """Repeat an entry of a log: rows of the open period, or its closing."""
    now = now._replace(period=of(now)._replace(timed=entry.kind.endswith(_TIMED)))
    engine.now = now
    if entry.kind.startswith(CLOSE):
        close(engine, now, entry.fresh)
    elif entry.rows is not None:
        add(engine, now, entry.rows, entry.counts)


def close_due(
    engine: Engine, number: int, name: str = "now", rewards: list[float] | None = None,
    releases: list[Release] | None = None,
) -> Steps:  # fmt: skip
    """Close the open period while its number is below ``number``; at the horizon, the last one that there is.

    The lists of rewards and releases are those of periods that were closed just before, and are continued.
    """
    now = engine.now
    rewards, releases = [] if rewards is None else rewards, [] if releases is None else releases
    left, first = running(now).rows_left, now.t + 1 - len(rewards)
    due = number - now.t if left is None else min(number - now.t, left)
    if due > MOST:
        expected = f"at most {MOST} periods that are due, not {due}"
        raise BadParameterError(name, ..., expected, advice="Check the clock, or tick(now) in steps")
    for _ in range(due):
        now, reward = close(engine, now)
        rewards.append(reward)
        releases += [] if now.release is None else [now.release]
    return Steps(first, np.array(rewards, dtype=np.float64), releases, engine.log)


def grid(engine: Engine) -> Calendar:
    """Return the calendar of a stream."""
    if engine.calendar is None:
        raise UsageError("release_every counts rows: there are no periods to close. Use '1d', for example")
    return engine.calendar


def tick_quietly(engine: Engine) -> None:
    """Tick a stream whose periods the clock closes, before it is saved; nothing if too many are due."""
    period = engine.now.period
    if period is not None and period.timed is False and not engine.is_lost:
        with suppress(BadParameterError, StoreLockedError):  # too many are due; the store was closed before
            push_many(engine)


@exclusive
def close_by_hand(engine: Engine) -> Step:
    """Close the open period of a calendar without a grid."""
    if grid(engine).length is not None:
        every = grid(engine).every
        raise UsageError(f"close_period: release_every={every!r} closes by the clock. Use release_every='manual'")
    now = begun(engine, timed=False)
    running(now).check_horizon(1)
    now, reward = close(engine, now)
    return Step(now.t, now.release, reward, engine.log)


def push(engine: Engine, row: Any, names: Names | None = None) -> Step:
    """Count a row in the period of its arrival; the step has the latest of the releases before it."""
    steps = push_many(engine, [row], names=names)
    step = steps[-1] if len(steps) else Step(steps.first - 1, None, 0.0, engine.log)
    step.reward, step.count = float(steps.rewards.sum()), len(steps)
    return step


@exclusive
def push_many(
    engine: Engine, rows: Any = (), position: Callable[[int], Position | None] | None = None,
    names: Names | None = None, at: int | None = None,
) -> Steps:  # fmt: skip
    """Close all periods that are due at a time, by default that of the system; then count rows in the open one.

    A clock that goes back closes none.
    """
    calendar = grid(engine)
    now = begun(engine, timed=False)
    # A row of the wrong shape raises before a period is closed.
    values = named_values(now.admission.all_values(rows, of(now).rows + 1), names) if len(rows) else None
    steps = close_due(engine, now.t if calendar.length is None else calendar.number(clock() if at is None else at))
    if values is not None:
        now = engine.now
        running(now).check_horizon(1)
        admitted, marks = now.admission.block(values, of(now).rows + 1)
        add(engine, now, admitted, marks.counts(), None if position is None else position(len(values)), names)
    return steps


@exclusive
def push_timed(
    engine: Engine, values: FloatArray, numbers: IntArray, position: Callable[[int], Position | None],
    names: Names | None = None, until: int = 0,
) -> Steps:  # fmt: skip
    """Count raw rows in the periods ``numbers``, from 0 and ascending, after the periods before them are closed.

    Rows of a negative number are absent. ``position`` is that of their source after the first m rows. At last, close
    the periods below ``until``.
    """
    begun(engine, timed=True)
    values = named_values(values, names)
    rewards, releases = list[float](), list[Release]()
    for number in np.unique(numbers[numbers >= 0]):
        places = np.flatnonzero(numbers == number)
        close_due(engine, int(number), "end", rewards, releases)
        now = engine.now
        running(now).check_horizon(1)
        admitted, marks = now.admission.block(values[places], of(now).rows + 1)
        whose = None if names is None else [names[place] for place in places.tolist()]
        add(engine, now, admitted, marks.counts(), position(int(places[-1]) + 1), whose)
    return close_due(engine, until, "end", rewards, releases)
