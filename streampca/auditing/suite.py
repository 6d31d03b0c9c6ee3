"""`audit`: one subject, or everything by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Literal

import numpy as np

from streampca.auditing import neighbors
from streampca.auditing.black_box import audit_outside, smaller
from streampca.auditing.cases import generated
from streampca.auditing.feeds import feed_stream
from streampca.auditing.instrument import Audit, Case, Report, audit_case
from streampca.auditing.needs import needs_of
from streampca.auditing.neighbors import Pairs
from streampca.errors import BadParameterError
from streampca.linalg.counts import check_count
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import Mechanism
from streampca.privacy.randomness import Tape
from streampca.processors.base import Algorithm

Mode = Literal["standard", "quick"]
#: Numbers of each group of noise that are collected: for 95 % of a Gaussian claim, and for the verdict.
NUMBERS = {"standard": 7000, "quick": 400}
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
    """Audit the cases of some names (see `named`), or all cases.

    In standard mode, cases that are not quick collect as much noise as in a quick audit, unless named in full.
    """
    return _report(named(names, mode), mode, false_alarm, seed, names)


def named(names: Sequence[str], mode: Mode = "standard") -> list[Case]:
    """Return the cases of some names: a class and words of the name of a case, such as ``PrivateFPL-tree-replace``.

    Raises `BadParameterError` if one fits no case. For a quick audit, those of the quick ones if there are any.
    """
    found: dict[str, Case] = {}
    for name in names or [""]:
        kind, *words = name.split("-")
        fits = [case for case in generated() if _fits(case, kind, set(words))]
        if not fits:
            known = ", ".join(dict.fromkeys(case.name.partition("-")[0] for case in generated()))
            raise BadParameterError(f"there is no audit named {name!r}; known are {known}, with words of --list NAME")
        quick = [case for case in fits if case.quick] if mode == "quick" else []
        found |= {case.name: case for case in quick or fits}
    return list(found.values())


def _fits(case: Case, kind: str, words: set[str]) -> bool:
    """True if a case is of a class, or of any if there is none, and has these words."""
    first, *others = case.name.split("-")
    return kind in ("", first) and words <= set(others)


def _report(
    cases: Sequence[Case], mode: Mode, false_alarm: float, seed: int | None, names: Sequence[str] | None = None
) -> Report:
    error, rows = false_alarm / len(cases), list[Audit]()
    for case in cases:
        whole = mode == "standard" and (names is None or case.quick or case.name in names)
        numbers = NUMBERS["standard" if whole else "quick"]
        rows += audit_case(case, numbers=numbers, error=error, every=whole, seed=seed)
    return Report(tuple(rows), false_alarm)


def _case(
    subject: Algorithm | Mechanism, rows: FloatArray | int | None, adjacency: str | None, canaries: Sequence[Any] | None
) -> Case:
    """A case of a subject that the caller made, with what the generated cases of its class have."""
    given = None if rows is None or isinstance(rows, int) else np.asarray(rows, dtype=np.float64)
    if given is not None and given.ndim != 2:
        raise BadParameterError(f"rows of shape {given.shape} given; (n, d), or a number of rows, expected")
    case = {"feed": feed_stream, **needs_of(subject)}
    d = subject.n_features or (given.shape[1] if given is not None else max(subject.n_components or 1, case["d"]))
    if canaries:
        d = np.asarray(canaries[0][0] if isinstance(canaries[0], tuple) else canaries[0]).size
    count = rows if isinstance(rows, int) else case["rows"] if given is None else given.shape[0]
    check_count("rows", count)
    if isinstance(subject, Algorithm):
        horizon = subject.parameters().get("horizon")
        if rows is None and horizon is not None:
            count = horizon if any(field.name == "method" for field in fields(subject)) else min(count, horizon)  # type: ignore[arg-type]
        subject = smaller(subject, count)
    if given is not None or (d, count) != (case["d"], case["rows"]):  # arrays of other rows
        case = {name: case[name] for name in ("feed", "feeds", "changes", "slack", "cost") if name in case}
    found, plain = case["changes"], {} if given is None else {"plain": given}
    case = {name: value for name, value in case.items() if name != "warmup"}

    def chosen(made: Any, d: int) -> Pairs:
        if canaries is None:
            return found(made, d) if adjacency is None else neighbors.changes(made, d, adjacency)
        pairs = [one if isinstance(one, tuple) else (np.zeros(d), np.asarray(one, np.float64)) for one in canaries]
        return {f"canary {i + 1}": pair for i, pair in enumerate(pairs)}

    more = {"name": type(subject).__name__, "make": lambda: subject, "d": d, "rows": count, "changes": chosen}
    return Case(**{**case, **more, **plain})


def _goes_through_outlets(case: Case) -> bool:
    """True for what belongs to streampca, and for what releases through an outlet."""
    subject = case.make()
    if type(subject).__module__.startswith("streampca."):
        return True
    with Tape().recording() as tape:
        case.feed(subject, list(np.zeros((case.rows, case.d))), case.feeds[0])
    return any(note.exact is not None for note in tape.notes)
