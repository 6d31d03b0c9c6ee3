"""`audit`: one subject, or everything by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from streampca.auditing import lifecycles as lifecycles  # registers its cases
from streampca.auditing.black_box import audit_outside, smaller
from streampca.auditing.cases import CASES, Pairs, changes, feed_mechanism, feed_stream
from streampca.auditing.instrument import Audit, Case, Report, audit_case
from streampca.errors import BadParameterError
from streampca.linalg.counts import check_count
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import Mechanism
from streampca.privacy.randomness import Tape
from streampca.processors.base import Algorithm

if TYPE_CHECKING:
    from streampca.auditing.bugs import Bug

Mode = Literal["standard", "quick"]
#: Numbers of each group of noise that are collected: for 95 % of a Gaussian claim, and for the verdict.
NUMBERS = {"standard": 7000, "quick": 400}
_DEFAULT_ROWS = 12
#: Runs of each neighbor in a black-box audit.
_RUNS = {"standard": 6000, "quick": 1200}


def audit(
    subject: Algorithm | Mechanism | str | Case,
    *,
    mode: Mode = "standard",
    false_alarm: float = 1e-3,
    rows: FloatArray | int | None = None,
    adjacency: str | None = None,
    canaries: Sequence[tuple[FloatArray, FloatArray] | FloatArray] | None = None,
    seed: int | None = None,
) -> Report:
    """Try to refute a privacy claim, and show that it could have been refuted.

    Neighboring data sets run through the ordinary code, with a tape that records what
    is hidden and released. See `auditing.instrument` for the three checks. A processor from
    elsewhere that draws its own noise is audited from outside (`auditing.black_box`).

    Parameters
    ----------
    subject : an algorithm, a mechanism, or the name of what ``streampca audit --list`` lists.
    mode : ``"standard"`` shows 95 % of a Gaussian claim; ``"quick"`` takes a tenth of the time.
    false_alarm : probability that a true claim is refuted, over all rows of the report.
    rows : number of rows of each data set, or the rows themselves, (n, d). An algorithm with another horizon is
        audited at this horizon instead.
    adjacency : neighbors to try, if not those of the guarantee.
    canaries : rows that differ, in place of the built-in ones: a row (against the zero row), or two rows.
    seed : for fixed keys; left out, all noise is fresh from the system.

    Returns
    -------
    Report : a row for each kind of private value: refuted (with a witness), holds (with how much of the claim was
        seen and accounted for) or cannot see (with the mutants that were missed).

    Raises
    ------
    BadParameterError
        If the subject is none, or rows do not suit it.
    """
    if mode not in NUMBERS:
        raise BadParameterError(f"mode={mode!r} is not known; use 'standard' or 'quick'")
    if not 0.0 < false_alarm <= 0.5:
        raise BadParameterError(f"false_alarm={false_alarm!r} must be in (0, 0.5], e.g. 1e-3")
    if isinstance(subject, str):
        return audit_named([subject], mode=mode, false_alarm=false_alarm, seed=seed)
    if isinstance(subject, Case):
        return _report([subject], mode, false_alarm, seed)
    if not isinstance(subject, (Algorithm, Mechanism)):
        raise BadParameterError(f"subject={subject!r} is not an algorithm, a mechanism or the name of an audit")
    case = _case(subject, rows, adjacency, canaries)
    if subject.guarantee.is_private and _goes_through_outlets(case):
        return _report([case], mode, false_alarm, seed)
    row, other = next(iter(case.changes(case.make(), case.d).values()))
    one, two = (case.both_rows(subject)[0].copy() for _ in range(2))
    one[0], two[0] = row, other
    made = audit_outside(case.make(), (one, two), runs=_RUNS[mode], error=false_alarm, seed=seed)
    return Report((made,), false_alarm)


def audit_named(
    names: Sequence[str] = (), *, mode: Mode = "standard", false_alarm: float = 1e-3, seed: int | None = None
) -> Report:
    """Audit what has these names, or names that begin with one of them and a dash; everything if none is given."""
    return _report(named(names, mode), mode, false_alarm, seed)


def named(names: Sequence[str], mode: Mode = "standard") -> list[Case]:
    """The cases of some names, or `BadParameterError` if one fits no case."""
    if not names:
        return [case for case in CASES.values() if mode == "standard" or case.quick]
    found: dict[str, Case] = {}
    for name in names:
        fits = {key: one for key, one in CASES.items() if key == name or key.startswith(f"{name}-")}
        if not fits:
            raise BadParameterError(f"there is no audit named {name!r}; known are {', '.join(CASES)}")
        found.update(fits)
    return list(found.values())


def audit_bugs(
    names: Sequence[str] = (), *, false_alarm: float = 1e-3, seed: int | None = None
) -> Iterator[tuple[Bug, list[Audit]]]:
    """Plant each bug of the named cases and audit the case until something is refuted; yield the bug and the rows."""
    from streampca.auditing.bugs import BUGS

    chosen = {case.name for case in named(names)}
    bugs = [bug for bug in BUGS if bug.case in chosen]
    for bug in bugs:
        yield bug, audit_planted(bug, false_alarm / len(bugs), seed)


def audit_planted(bug: Bug, error: float, seed: int | None) -> list[Audit]:
    """Plant one bug and audit its case until something is refuted."""
    with bug.planted():
        return audit_case(CASES[bug.case], numbers=bug.numbers, error=error, every=False, seed=seed, stop=True)


def _report(cases: Sequence[Case], mode: Mode, false_alarm: float, seed: int | None) -> Report:
    error, numbers, every = false_alarm / len(cases), NUMBERS[mode], mode == "standard"
    made = (audit_case(case, numbers=numbers, error=error, every=every, seed=seed) for case in cases)
    return Report(tuple(row for rows in made for row in rows), false_alarm)


def _case(
    subject: Algorithm | Mechanism, rows: FloatArray | int | None, adjacency: str | None, canaries: Sequence[Any] | None
) -> Case:
    """A case of a subject that the caller made."""
    given = None if rows is None or isinstance(rows, int) else np.asarray(rows, dtype=np.float64)
    if given is not None and given.ndim != 2:
        raise BadParameterError(f"rows of shape {given.shape} given; (n, d), or a number of rows, expected")
    d = subject.n_features or (given.shape[1] if given is not None else max(2 * (subject.n_components or 1), 4))
    count = rows if isinstance(rows, int) else _DEFAULT_ROWS if given is None else given.shape[0]
    check_count("rows", count)
    if isinstance(subject, Algorithm):
        horizon = subject.parameters().get("horizon")
        if rows is None and horizon is not None:
            count = horizon if any(field.name == "method" for field in fields(subject)) else min(count, horizon)  # type: ignore[arg-type]
        subject = smaller(subject, count)

    def chosen(made: Any, d: int) -> Pairs:
        if canaries is None:
            return changes(made, d, adjacency)
        found = [one if isinstance(one, tuple) else (np.zeros(d), np.asarray(one, np.float64)) for one in canaries]
        return {f"canary {i + 1}": pair for i, pair in enumerate(found)}

    feed, feeds = (feed_stream, Case.feeds) if isinstance(subject, Algorithm) else (feed_mechanism, ("once",))
    name = type(subject).__name__
    return Case(name=name, make=lambda: subject, feed=feed, d=d, rows=count, changes=chosen, plain=given, feeds=feeds)


def _goes_through_outlets(case: Case) -> bool:
    """True for what belongs to streampca, and for what releases through an outlet."""
    subject = case.make()
    if type(subject).__module__.startswith("streampca."):
        return True
    with Tape().recording() as tape:
        case.feed(subject, list(np.zeros((case.rows, case.d))), case.feeds[0])
    return any(note.exact is not None for note in tape.notes)
