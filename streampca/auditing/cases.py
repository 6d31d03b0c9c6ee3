"""Audit cases by product: every public algorithm and mechanism, with every legal combination of its switches.

A case is generated for each combination of

* the switches of a constructor: its flags and literals, and the values of `auditing.needs.VALUES`,
* for streams: public or private bounds, and an uninterrupted run or one resumed from a snapshot in the middle.

A combination is legal if the constructor and the stream accept it. The subjects are those of the table of public
names, so a new algorithm is audited because it is public.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from functools import cache, partial
from inspect import isabstract
from itertools import combinations, product
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

import streampca as sp
from streampca.auditing import needs
from streampca.auditing.runs import HERS, START, Case, feed_calendar, feed_stream
from streampca.errors import StreamPCAError, StreamPCAWarning
from streampca.matrix_factorization.noises import Noise
from streampca.mechanisms.base import Mechanism
from streampca.privacy.configuration import for_missing
from streampca.privacy.unit import Person
from streampca.processors.base import Algorithm
from streampca.processors.solvers import Solver

#: Number of rows from which a quick audit omits cases with private bounds.
_LONG = 500
#: Words of a case, by switch, and its attributes.
Named = tuple[dict[str, str], dict[str, Any]]
#: Words of switches whose value is not a word.
_WORDS = {"publish_regret": "rewards", "discrete_noise": "discrete", "center": "centered", "release_every": "every"}


class Subject(NamedTuple):
    """A legal combination of switches."""

    words: Mapping[str, str]  # values of the switches that differ from the plain case, by switch
    make: Callable[[], Any]  # creates the subject anew, calibration included
    made: Any  # one such subject
    case: Mapping[str, Any]  # attributes of `Case` that it needs


def public() -> list[type[Algorithm | Mechanism]]:
    """Return every algorithm and mechanism among the public names and in `papers`."""
    names = [getattr(room, name) for room in (sp, sp.papers) for name in room.__all__]
    kinds = [kind for kind in names if isinstance(kind, type) and issubclass(kind, (Algorithm, Mechanism))]
    return [kind for kind in kinds if not isabstract(kind)]


def switches(kind: type) -> dict[str, tuple[Any, ...]]:
    """Return the values that are tried of each parameter, the plain one first."""
    values, hints, found = (
        needs.VALUES | needs.VALUES_OF.get(kind.__name__, {}),
        get_type_hints(kind),
        dict[str, tuple[Any, ...]](),
    )
    for one in fields(kind):
        hint, default = hints[one.name], [] if one.default is MISSING else [one.default]
        parts = [hint, *get_args(hint)]
        literals = [value for part in parts if get_origin(part) is Literal for value in get_args(part)]
        if not one.init:
            continue
        if tried := values.get(one.name):
            found[one.name] = tried
        elif hint is Mechanism:
            found[one.name] = tuple(s for inner in public() if issubclass(inner, Mechanism) for s in legal(inner))
        elif hint is bool:
            found[one.name] = (one.default, not one.default)
        elif literals:
            found[one.name] = tuple(dict.fromkeys([*default, *literals]))
    return found


@cache
def legal(kind: type[Algorithm | Mechanism], warmup: int = 0) -> tuple[Subject, ...]:
    """Return every legal combination of the switches of a class, for streams with ``warmup`` rows of a warm-up."""
    tried, subjects = switches(kind), dict[Any, Subject]()
    for values in product(*tried.values()):
        options = dict(zip(tried, values, strict=True))
        words = {name: _word(name, value) for name, value in options.items() if value != tried[name][0]}
        inner = options.get("mechanism")
        if isinstance(inner, Subject):
            options["mechanism"] = inner.made
            words |= {"mechanism": type(inner.made).__name__, **inner.words}
        try:
            numbers, case = needs.needs(kind, options, warmup)
            known = {one.name for one in fields(kind) if one.init}  # type: ignore[arg-type]
            options |= {name: value for name, value in numbers.items() if name in known}
            make: Callable[[], Any] = partial(kind, **options)
            if isinstance(inner, Subject):  # the mechanism, too, is created anew
                make = partial(lambda outer, make: outer(mechanism=make()), make, inner.make)
            subject = make()
            subject.check(case["d"])
        except StreamPCAError:
            continue
        if subject.guarantee.is_private:
            subjects.setdefault(subject, Subject(words, make, subject, case))  # "auto" is one of the others
    return tuple(subjects.values())


def _word(name: str, value: Any) -> str:
    """Return the value of a switch as a word of the name of a case."""
    if isinstance(value, str):
        return value
    if isinstance(value, Subject):
        return type(value.made).__name__
    if isinstance(value, Person):
        return "person"
    if isinstance(value, (Noise, Solver)):
        return "discrete" if getattr(value, "discrete", False) else type(value).__name__.lower()
    if value is None:
        return {"horizon": "endless"}.get(name, f"no_{name}")
    name = _WORDS.get(name, name)
    return name if value is True else {"horizon": "ending"}.get(name, f"{name}_{value}")


@cache
def generated() -> tuple[Case, ...]:
    """Return every case; those of a quick audit have every pair of values of two switches that is legal."""
    cases = list[Case]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamPCAWarning)  # budgets of an audit guarantee little
        for kind in public():
            named = list(_cases(kind))
            quick = _quick(named)
            for i, (words, case) in enumerate(named):
                name = "-".join([kind.__name__, *words.values()])
                cases.append(Case(**{"name": name, "thin": True, **case, "quick": i in quick}))
    return tuple(cases)


def _cases(kind: type[Algorithm | Mechanism]) -> Iterator[Named]:
    """Yield words and attributes of the cases of a class."""
    streaming = issubclass(kind, Algorithm)
    for bounds in (False, True)[: 1 + streaming]:
        for subject in legal(kind, needs.WARMUP if bounds else 0):
            words, case = dict(subject.words), dict(subject.case)
            # Of the rows of a person, some are in the warm-up and some after it.
            warmup = needs.WARMUP if subject.made.unit is None else HERS - 2
            if bounds:
                words["bounds"] = "bounds"
                case |= _bounded(subject, warmup)
            case["make"] = subject.make
            if streaming:
                options: dict[str, Any] = {"row_norm": 1.0}
                if bounds:
                    options = {"bounds": "private", "warmup": warmup}
                try:
                    sp.Stream(subject.made, **options)
                except StreamPCAError:
                    continue
                case["feed"] = partial(feed_stream, **options)
            if subject.made.unit is not None:
                # Rows that spend her budget, and are all absent from one of two streams, or replaced.
                case |= {"span": HERS, "positions": (0,)}
                case["changes"] = partial(needs.her_rows, case["changes"], warmup=warmup if bounds else 0)
            yield words, case
            if streaming and not bounds:
                yield from _with_gaps(subject.made, words, case)
            if streaming:
                yield words | {"feeds": "resumed"}, case | {"feeds": ("resumed",)}
                if not bounds:
                    yield from _dated(subject.made, words, case)


def _dated(made: Any, words: dict[str, str], case: dict[str, Any]) -> Iterator[Named]:
    """Yield the cases of a subject with the periods of a calendar, two rows each, if there are any."""
    periods = {"release_every": "1d"}
    if not getattr(made, "absorbs_periods", False) or "release_every" in words:
        return
    if getattr(made, "horizon", None) is not None:
        periods["horizon"] = f"{-(-case['rows'] // 2)}d"
    try:
        dated = replace(made, **periods)
    except StreamPCAError:
        return
    # The rows of a person in three periods spend her budget: their products across periods count, too.
    changes = needs.absent if made.unit is None else needs.her_absence
    case = {**case, "feed": feed_calendar, "changes": changes, "feeds": ("push", "many", "timed", "resumed")}
    words, case = words | {"release_every": "calendar"}, case | {"make": partial(replace, made, **periods)}
    yield words, case
    yield from _with_gaps(dated, words, case, start=START)


def _with_gaps(made: Any, words: dict[str, str], case: dict[str, Any], **more: Any) -> Iterator[Named]:
    """Yield cases whose missing cells are filled and corrected, by private and by public shares."""
    for word, rates in {"cells": "private", "shares": 0.8}.items():
        options: dict[str, Any] = {"on_missing": "cell", "row_norm": 1.0, "missing_rates": rates}
        try:
            present = sp.Stream(made, features=case["d"], **options, **more).engine.now.admission.present
        except StreamPCAError:
            continue
        yield (
            words | {"missing": word},
            {
                **case,
                # The law of the noise is that of the algorithm that corrects.
                "make": lambda present=present: for_missing(case["make"](), present),
                "feed": partial(case["feed"], **options),
                "changes": partial(needs.with_gaps, case["changes"]),
            },
        )


def _bounded(subject: Subject, warmup: int) -> dict[str, Any]:
    """Return the attributes for private bounds: rows of a warm-up before the others, and corners of boxes."""
    case = subject.case
    rows, d = case["rows"], case["d"]
    start, middle = np.tile([[0.9], [-0.9]], (warmup // 2, d)), warmup + (rows - warmup) // 2
    before = Case(name="", make=subject.make, **case)

    def also_boxed(made: Any, d: int) -> needs.Pairs:
        found = needs.boxed(made, d)
        if case["changes"] in (needs.changes, needs.centered):
            return found
        # A zero row may be anywhere in a box, so that a bad row takes its place.
        bad = np.full(d, np.nan) if made.guarantee.adjacency == "zero-out" else np.zeros(d)
        for name, pair in case["changes"](made, d).items():
            one, two = (row if callable(row) or np.any(row) else bad for row in pair)
            found[name] = one, two
        return found

    return {
        # A box divides rows by sqrt(d).
        "busy": lambda made: np.concatenate([start, math.sqrt(d) * before.both_rows(made)[1][warmup:]]),
        "changes": also_boxed,
        "slack": "; ".join(filter(None, (case.get("slack"), needs.CORNERS))),
        "positions": lambda made: (
            0,
            *(before.positions(made) if callable(before.positions) else (warmup, middle, rows - 1)),
        ),
        "quick": case.get("quick", True) and rows < _LONG,
    }


def _quick(cases: Sequence[Named]) -> set[int]:
    """Choose cases of a quick audit greedily, until each legal pair of values is in one; return their numbers."""
    names = list(dict.fromkeys(name for words, _ in cases for name in words))
    pairs = list[set[Any]]()
    for words, case in cases:
        values = [(name, words.get(name, "")) for name in names] if case.get("quick", True) else []
        pairs.append({(), *((one,) for one in values), *combinations(values, 2)} if values else set())
    # Greedy set cover: the number of cases is within a factor ln(pairs) of the fewest (Chvatal 1979).
    left, quick = set[Any]().union(*pairs), set[int]()
    while left:
        best = max(range(len(cases)), key=lambda i: len(pairs[i] & left))
        quick.add(best)
        left -= pairs[best]
    return quick
