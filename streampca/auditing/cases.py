"""Audit cases by product: every public algorithm and mechanism, with every legal combination of its switches.

A case is generated for each combination of

* the switches of a constructor (its flags and literals, and what `auditing.needs.VALUES` adds: releases every row or
  every fourth, a horizon or none, users or rows),
* for streams: public or private bounds, and straight on or resumed from a snapshot in the middle.

A combination is legal if the constructor and the stream take it. The table of public names decides what there is, so
a new algorithm is audited because it is public.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import cache, partial
from inspect import isabstract
from itertools import combinations, product
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

import streampca as sp
from streampca.auditing import neighbors
from streampca.auditing.feeds import feed_stream
from streampca.auditing.instrument import Case
from streampca.auditing.needs import CORNERS, VALUES, VALUES_OF, WARMUP, needs
from streampca.errors import StreamPCAError, StreamPCAWarning
from streampca.matrix_factorization.noises import Noise
from streampca.mechanisms.base import Mechanism
from streampca.processors.base import Algorithm
from streampca.processors.solvers import Solver

#: Rows from which on a quick audit leaves out what is bounded.
_LONG = 500
#: Switches whose value is not a word by itself.
_WORDS = {"publish_regret": "rewards", "discrete_noise": "discrete", "center": "centered", "release_every": "every"}


class Subject(NamedTuple):
    """A legal combination.

    Attributes
    ----------
    words : the values of switches that are not those of the plain case, by switch.
    make : makes it anew; calibration happens there.
    made : what that makes.
    case : attributes of `Case` that it needs.
    """

    words: Mapping[str, str]
    make: Callable[[], Any]
    made: Any
    case: Mapping[str, Any]


def public() -> list[type[Algorithm | Mechanism]]:
    """Every algorithm and mechanism among the public names and in `papers`."""
    named = [getattr(room, name) for room in (sp, sp.papers) for name in room.__all__]
    return [kind for kind in named if isinstance(kind, type) and issubclass(kind, (Algorithm, Mechanism))
            and not isabstract(kind)]  # fmt: skip


def switches(kind: type) -> dict[str, tuple[Any, ...]]:
    """The values that are tried of each parameter, the plain one first."""
    values, hints = {**VALUES, **VALUES_OF.get(kind.__name__, {})}, get_type_hints(kind)
    found: dict[str, tuple[Any, ...]] = {}
    for one in fields(kind):
        if one.init and (tried := values.get(one.name) or _literals(one, hints[one.name])):
            found[one.name] = tried
    return found


def _literals(one: Field[Any], hint: Any) -> tuple[Any, ...]:
    """What a flag, or a parameter with literals, may be."""
    if hint is Mechanism:
        return tuple(subject for kind in public() if issubclass(kind, Mechanism) for subject in legal(kind))
    if hint is bool:
        return (one.default, not one.default)
    of = [hint, *get_args(hint)]
    named = [value for part in of if get_origin(part) is Literal for value in get_args(part)]
    return tuple(dict.fromkeys([*([] if one.default is MISSING else [one.default]), *named])) if named else ()


@cache
def legal(kind: type[Algorithm | Mechanism], warmup: int = 0) -> tuple[Subject, ...]:
    """Every legal combination of the switches of a class, for streams with a warm-up of so many rows."""
    tried, found = switches(kind), dict[Any, Subject]()
    for values in product(*tried.values()):
        given = dict(zip(tried, values, strict=True))
        words = {name: _word(name, value) for name, value in given.items() if value != tried[name][0]}
        inner = given.get("mechanism")
        if isinstance(inner, Subject):
            given["mechanism"] = inner.made
            words |= {"mechanism": type(inner.made).__name__, **inner.words}
        try:
            numbers, case = needs(kind, given, warmup)
            known = {one.name for one in fields(kind) if one.init}  # type: ignore[arg-type]
            given |= {name: value for name, value in numbers.items() if name in known}
            make = partial(_made, kind, given, inner.make if isinstance(inner, Subject) else None)
            made = make()
            made.check(case["d"])
        except StreamPCAError:
            continue
        if made.guarantee.is_private:
            found.setdefault(made, Subject(words, make, made, case))  # "auto" is one of the others
    return tuple(found.values())


def _made(kind: type, given: Mapping[str, Any], inner: Callable[[], Any] | None) -> Any:
    """Make a subject, and what it holds, anew."""
    return kind(**given) if inner is None else kind(**{**given, "mechanism": inner()})


def _word(name: str, value: Any) -> str:
    """A value of a switch, as a word of the name of a case."""
    if isinstance(value, str):
        return value
    if isinstance(value, (Noise, Solver)):
        return "discrete" if getattr(value, "discrete", False) else type(value).__name__.lower()
    if value is None:
        return {"horizon": "endless"}.get(name, f"no_{name}")
    name = _WORDS.get(name, name)
    return name if value is True else {"max_rows_per_user": "users", "horizon": "ending"}.get(name, f"{name}_{value}")


@cache
def generated() -> tuple[Case, ...]:
    """Every case; those of a quick audit have every pair of values of two switches that goes together."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StreamPCAWarning)  # budgets of an audit promise little
        return tuple(case for kind in public() for case in _chosen(list(_cases(kind))))


def _cases(kind: type[Algorithm | Mechanism]) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """Words and attributes of the cases of a class."""
    for bounds in (False, True) if issubclass(kind, Algorithm) else (False,):
        for subject in legal(kind, WARMUP if bounds else 0):
            words, case = dict(subject.words), dict(subject.case)
            warmup = case.pop("warmup", WARMUP)
            if bounds:
                words["bounds"] = "bounds"
                case |= _bounded(subject, warmup)
            ways: tuple[tuple[str, ...], ...] = (case.get("feeds", Case.feeds),)
            if issubclass(kind, Algorithm):
                options: dict[str, Any] = {"bounds": "private", "warmup": warmup} if bounds else {}
                cap = getattr(subject.made, "max_rows_per_user", None)
                try:
                    (sp.Stream if cap is None else sp.UserStream)(subject.made, **options)
                except StreamPCAError:
                    continue
                case["feed"] = partial(feed_stream, on_bad_row="zero", **options)
                if cap is None:
                    ways = (*ways, ("resumed",))
                else:
                    case |= {"span": cap + 1, "positions": (0,)}
            for feeds in ways:
                more = {"feeds": "resumed"} if feeds == ("resumed",) else {}
                yield words | more, {**case, "feeds": feeds, "make": subject.make}


def _bounded(subject: Subject, warmup: int) -> dict[str, Any]:
    """What differs for private bounds: rows of a warm-up before the others, and corners of boxes."""
    case = subject.case
    rows, d = case["rows"], case["d"]
    start, middle = np.tile([[0.9], [-0.9]], (warmup // 2, d)), warmup + (rows - warmup) // 2
    plain = {"feed": feed_stream, **{name: value for name, value in case.items() if name != "warmup"}}
    before = Case(name="", make=subject.make, **plain)

    def busy(made: Any) -> Any:
        return np.concatenate([start, math.sqrt(d) * before.both_rows(made)[1][warmup:]])  # a box divides by it

    def changes(made: Any, d: int) -> neighbors.Pairs:
        """Return corners of boxes, and special pairs with a bad row for the zero row: that may be anywhere in a box."""
        found = neighbors.boxed(made, d)
        if case["changes"] in (neighbors.changes, neighbors.centered):
            return found
        bad = np.full(d, np.nan) if made.guarantee.adjacency == "zero-out" else np.zeros(d)
        pairs = case["changes"](made, d).items()
        return found | {
            name: (one if callable(one) or np.any(one) else bad, two if callable(two) or np.any(two) else bad)
            for name, (one, two) in pairs
        }

    def positions(made: Any) -> tuple[int, ...]:
        return (0, *(before.positions(made) if callable(before.positions) else (warmup, middle, rows - 1)))

    slack = "; ".join(filter(None, (case.get("slack"), CORNERS)))
    return {
        "busy": busy, "changes": changes, "slack": slack, "positions": positions,
        "quick": case.get("quick", True) and rows < _LONG,
    }  # fmt: skip


def _chosen(cases: Sequence[tuple[dict[str, str], dict[str, Any]]]) -> Iterator[Case]:
    """Cases by name; those of a quick audit are chosen greedily until each pair of values that is legal is in one."""
    names = list(dict.fromkeys(name for words, _ in cases for name in words))
    pairs = list[set[Any]]()
    for words, case in cases:
        values = [(name, words.get(name, "")) for name in names] if case.get("quick", True) else []
        pairs.append({(), *((one,) for one in values), *combinations(values, 2)} if values else set())
    left, quick = set[Any]().union(*pairs), set[int]()
    while left:
        best = max(range(len(cases)), key=lambda i: len(pairs[i] & left))
        quick.add(best)
        left -= pairs[best]
    for i, (words, case) in enumerate(cases):
        name = "-".join([case["make"].args[0].__name__, *words.values()])
        yield Case(**{"name": name, "thin": True, **case, "quick": i in quick})
