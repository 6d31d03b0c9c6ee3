"""Audit cases, and their runs on tapes: single runs, and pairs of neighbors that share keys and released values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, Literal, NamedTuple
from zlib import crc32

import numpy as np

import streampca as sp
from streampca.auditing.laws import Law
from streampca.auditing.observed import listening, surfaces
from streampca.errors import StreamPCAError
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import Mechanism
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Note, Tape
from streampca.release.release import Release
from streampca.rows.protocol import Table
from streampca.store import records
from streampca.stream.replay import restore, restore_people, saved

#: A row, or a function that chooses it from the stream just before it is pushed.
Row = Any
#: ``feed(subject, rows, how)`` runs the subject and returns everything that can be seen: releases and text.
Feed = Callable[[Any, list[Row], str], list[Any]]
#: A quick audit reads all views of a release (cards, pages) in one of this number of cases.
_DEEP = 8
#: Number of changes beyond which a thin case has fewer pairs.
_MANY = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """Subject of an audit, with the rows on which its neighbors are far apart."""

    name: str
    make: Callable[[], Any]  # creates the subject, calibration included
    feed: Feed
    changes: Callable[[Any, int], Mapping[str, tuple[Row, Row]]]  # neighboring rows by name, for the subject and d
    d: int = 20
    rows: int = 12
    # Numbers of the rows that differ, from 0, or from the end; by default the first, one in the middle and the last.
    positions: tuple[int, ...] | Callable[[Any], tuple[int, ...]] = ()
    span: int = 1  # number of successive rows that differ: more than one for a person with several rows
    feeds: tuple[str, ...] = ("many", "push", "chunks")  # values of ``how`` for `feed`
    # Rows of half of all runs, (rows, d); by default random rows of norm 0.8.
    busy: FloatArray | Callable[[Any], FloatArray] | None = None
    plain: FloatArray | None = None  # rows of the other half; by default zero rows
    # Law of a kind of private value, and the claim; by default those of the subject.
    law: Callable[[Any, str], Law] | None = None
    guarantee: Callable[[Any], Guarantee] | None = None
    unseen: tuple[int, ...] = ()  # numbers of the vectors that no release shows
    checks: Literal["all", "leak"] = "all"
    # Reason why the neighbors spend less than 95 % of the claim; without one, the audit then cannot see.
    slack: str = ""
    cost: float = 1.0  # of a run relative to others; divides the number of runs
    quick: bool = True  # whether the case is part of a quick audit of everything
    thin: bool = False  # whether changes are tried on plain or on busy rows in turn, to save time

    def positions_of(self, subject: Any) -> tuple[int, ...]:
        """Return the numbers of the rows that differ."""
        given = self.positions(subject) if callable(self.positions) else self.positions
        return tuple(dict.fromkeys(i % self.rows for i in given or (0, self.rows // 2, -1)))

    def both_rows(self, subject: Any) -> tuple[FloatArray, FloatArray]:
        """Return the plain and the busy rows; the same in every audit."""
        plain = np.zeros((self.rows, self.d)) if self.plain is None else self.plain
        if self.busy is not None:
            return plain, self.busy(subject) if callable(self.busy) else self.busy
        # The scales of the features differ, so that no two eigenvalues are close.
        rows = np.random.default_rng(self.rows).normal(size=(self.rows, self.d)) * np.linspace(1.0, 0.2, self.d)
        return plain, 0.8 * rows / np.linalg.norm(rows, axis=1, keepdims=True)


class Run(NamedTuple):
    """Texts of the outputs of a run and of its messages, by path; its tape; and the outputs themselves."""

    outputs: list[dict[str, str]]
    tape: Tape
    values: Sequence[Any] = ()

    def notes(self, unseen: Sequence[int] = (), beside: Run | None = None) -> dict[str, list[Note]]:
        """Return the released vectors by kind; an empty one only if it is not empty in the run ``beside``."""
        by_kind: dict[str, list[Note]] = {}
        for i, note in enumerate(self.tape.notes):
            twin = note if beside is None else beside.tape.notes[i]
            if note.exact is not None and (note.noise.size or twin.noise.size) and i not in unseen:
                by_kind.setdefault(note.kind, []).append(note)
        return by_kind


class Pair(NamedTuple):
    """Two neighbors: a run, and the other with the tape of the first forced; `observed.views` of this depth, or 0."""

    text: str
    first: Run
    second: Run
    depth: int = 0


def fresh_tape(seed: int | None, *label: object) -> Tape:
    """Return a tape with fresh keys, or with keys derived from a seed and a label."""
    return Tape(seed=None if seed is None else blake2b(repr((seed, *label)).encode(), digest_size=32).digest())


def run(case: Case, subject: Any, rows: Iterable[Row], how: str, tape: Tape, *, look: bool = True) -> Run:
    """Run a case on a tape; record what can be seen if ``look``."""
    values, problem = list[Any](), ""
    with tape.recording(), listening() as messages:
        try:
            values = list(case.feed(subject, list(rows), how))
        except Exception as error:
            # An error of the second of two neighbors can be seen, too.
            if tape.forced is None:
                raise
            problem = f"{type(error).__name__}: {error}"
    seen = [{"an error": problem}] if problem else []
    seen += [{"said": text} for text in messages]
    return Run(surfaces(values) + seen if look else [], tape, values)


def pairs(case: Case, subject: Any, seed: int | None, *, every: bool) -> Iterator[Pair]:
    """Yield neighbors: each change at some positions, fed in all ways if ``every``, else in one way in turn."""
    firsts, turn = dict[tuple[Any, ...], Run](), 0
    changes = case.changes(subject, case.d)
    thin = case.thin and not every and len(changes) > _MANY
    for name, (row, other) in changes.items():
        for position in case.positions_of(subject):
            for base, rows in zip(("plain", "busy"), case.both_rows(subject), strict=True):
                turn += 1
                if thin and turn % 4 > 1:
                    continue
                before, after = rows[:position], rows[position + case.span :]
                for how in case.feeds if every else (case.feeds[turn % len(case.feeds)],):
                    # Changes of a row that is in the base already have their first run in common.
                    same = isinstance(row, np.ndarray) and np.array_equal(row, rows[position])
                    key = (base, how) if same else (base, how, position, name)
                    if key not in firsts:
                        tape = fresh_tape(seed, case.name, "first", key)
                        firsts[key] = run(case, subject, [*before, *[row] * case.span, *after], how, tape)
                    first = firsts[key]
                    # The forced tape gives equal keys and equal released values, so later rows that are functions of
                    # the stream are equal too, unless something leaks.
                    second = run(case, subject, [*before, *[other] * case.span, *after], how, Tape(first.tape))
                    depth = 0 if turn != 2 else 2 if every or crc32(case.name.encode()) % _DEEP == 0 else 1
                    yield Pair(f"row {position + 1} of {base} rows, {name}, fed by {how}", first, second, depth)


# -- ways to feed rows to a stream or a mechanism -------------------------------------------------------

#: Names of the first rows, which are those of one person.
_HER_NAMES = 7, "7", " 07 ", 7.0, np.int64(7), b"7"
HERS = len(_HER_NAMES)


def _people(count: int) -> list[Any]:
    """Return the names of the persons of rows, the first `HERS` of which are those of one."""
    return [*_HER_NAMES, *(f"person {i}" for i in range(HERS, count))][:count]


def _whose(subject: Any, people: Any) -> dict[str, Any]:
    """Return the names of persons as the argument of a push, if the unit of the subject is a person."""
    return {} if subject.unit is None else {"person": people}


def names_of(rows: Sequence[Row]) -> list[str]:
    """Return names of features, one for each entry of a row."""
    return [f"x{i}" for i in range(len(next(row for row in rows[::-1] if not callable(row))))]


def feed_stream(subject: Any, rows: list[Row], how: str, **options: Any) -> list[Any]:
    """Feed a stream; if its unit is a person, the first `HERS` rows are those of one.

    ``how`` is "push", "chunks" of 5, "many" (one block), "past" (one block, then a row beyond the horizon), or
    "resumed" (from a snapshot in the middle, or after the rows named: "resumed 4 9"). A function is pushed singly.
    """
    options |= {"features": names_of(rows), "regret": None}
    if "bounds" not in options:
        options.setdefault("row_norm", 1.0)
    stream, out, at = sp.Stream(subject, **options), list[Any](), 0
    people = _people(len(rows))
    how, *named = how.split()
    resumes = ([int(n) for n in named] or [len(rows) // 2]) if how == "resumed" else []
    size = {"push": 1, "chunks": 5}.get(how, len(rows))
    while at < len(rows):
        # A block ends before the next row that is a function of the stream.
        late = (i for i in range(at, len(rows)) if callable(rows[i]))
        stop = min(at + size, max(next(late, len(rows)), at + 1))
        stop = min(stop, *(n for n in resumes if n > at), len(rows))
        try:
            if how == "push" or callable(rows[at]):
                row = rows[at](stream) if callable(rows[at]) else rows[at]
                out += released(stream.push(row, **_whose(subject, people[at])))
            else:
                out += stream.push_many(np.array(rows[at:stop]), **_whose(subject, people[at:stop])).releases
        except StreamPCAError as problem:
            out.append(f"row {at + 1}: {type(problem).__name__}: {problem}")
        at = stop
        if at in resumes:
            stream = _resumed(stream, options)
    last = stream.finish()
    if how == "past":
        try:
            stream.push(rows[-1], **_whose(subject, people[-1]))
        except StreamPCAError as problem:
            out.append(f"{type(problem).__name__}: {problem}")
    return [*out, stream, *([] if last is None else [last])]


#: A start that no clock has reached: rows count on arrival in the period that `Stream.tick` has opened.
START = datetime(3000, 1, 1, tzinfo=UTC)


def feed_calendar(subject: Any, rows: list[Row], how: str, **more: Any) -> list[Any]:
    """Feed a stream with periods of a day, two rows each; an absent row is None. ``more`` are options of the stream.

    ``how`` is "push", "many", "resumed" (as for `feed_stream`) or "timed", where rows have times. A row that is a
    function is pushed singly. If the unit is a person, the first `HERS` rows are those of one.
    """
    people = [f"person {max(0, i - HERS + 1)}" for i in range(len(rows))]
    names = tuple(names_of([row for row in rows if row is not None]))
    options: dict[str, Any] = {"features": names, "regret": None, "row_norm": 1.0, "start": START} | more
    stream, out = sp.Stream(subject, **options), list[Any]()
    end = START + timedelta(days=(len(rows) + 1) // 2)
    if how == "timed" and not any(map(callable, rows)):
        present = [i for i, row in enumerate(rows) if row is not None]
        values, times = np.array([rows[i] for i in present]), [START + timedelta(days=i / 2) for i in present]
        columns = [times, *_whose(subject, [people[i] for i in present]).values()]
        table = Table(names, None, lambda: iter([values]), lambda _: iter([(values, columns)]))
        return [*released(*stream.run(table, time="at", end=end)), stream]
    for day in range((len(rows) + 1) // 2):
        out += stream.tick(START + timedelta(days=day)).releases
        some = [i for i in range(2 * day, min(2 * day + 2, len(rows))) if rows[i] is not None]
        if how == "many" and some and not any(callable(rows[i]) for i in some):
            stream.push_many(np.array([rows[i] for i in some]), **_whose(subject, [people[i] for i in some]))
        else:
            for i in some:
                stream.push(rows[i](stream) if callable(rows[i]) else rows[i], **_whose(subject, people[i]))
        if how == "resumed" and day == len(rows) // 4:
            stream = _resumed(stream, options)
    return [*out, *stream.tick(end).releases, stream]


def _resumed(stream: sp.Stream, options: dict[str, Any]) -> sp.Stream:
    """Continue a stream from its state and its latest release, as a store writes and reads them."""
    kept, release = saved(stream.engine), stream.release
    if release is not None:
        ((_, data),) = records.release_records([release])
        (release,) = records.releases_of(data)
    entry = sp.Stream(stream.algorithm, key=stream.engine.randomness.key, **options)
    restore(entry.engine, records.decode(records.encode(kept["state"])), release, copied=False)
    if stream.algorithm.unit is not None:
        restore_people(entry.engine, *kept["people"])
    return entry


def released(*steps: Any) -> list[Release]:
    """Return the releases of steps that have one."""
    return [step.release for step in steps if step.release is not None]


def feed_mechanism(subject: Mechanism, rows: list[Row], how: str) -> list[Any]:
    """Release a data set once; if its unit is a person, the first `HERS` rows are those of one."""
    return [subject.release(np.array(rows), row_norm=1.0, **_whose(subject, _people(len(rows))))]
