"""`audit`: one subject, or cases by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from streampca.auditing.black_box import audit_outside
from streampca.auditing.cases import generated
from streampca.auditing.instrument import Audit, Report, audit_case
from streampca.auditing.needs import needs_of
from streampca.auditing.runs import Case
from streampca.errors import BadParameterError, UsageError
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
    subject: Algorithm | Mechanism | str | Case, *, mode: Mode = "standard", false_alarm: float = 1e-3,
    rows: FloatArray | int | None = None, canaries: Sequence[tuple[FloatArray, FloatArray] | FloatArray] | None = None,
    seed: int | None = None,
) -> Report:  # fmt: skip
    """Try to refute a privacy claim, and show that it could have been refuted.

    Neighboring data sets run through the ordinary code, with a tape that records the hidden and the released values;
    `auditing.instrument` describes the three checks. A processor from another package that draws its own noise is
    audited from outside (`auditing.black_box`).

    Parameters
    ----------
    subject : Algorithm, Mechanism or str
        Subject, or a name that ``streampca audit --list`` lists.
    mode : {"standard", "quick"}, default="standard"
        "standard" shows 95 % of a Gaussian claim; "quick" requires a tenth of the time.
    false_alarm : float, default=1e-3
        Probability that a true claim is refuted, over all rows of the report.
    rows : int or (n, d) array, optional
        Number of rows of each data set, or the rows. An algorithm with another horizon is audited at this horizon.
    canaries : sequence, optional
        Rows that differ, in place of the built-in ones: a row (against the zero row), or two rows.
    seed : int, optional
        Seed of fixed keys; by default all noise is fresh from the system.

    Returns
    -------
    Report
        A row for each kind of private value: "refuted" (with a witness), "holds" (with the shares of the claim that
        were seen and accounted for) or "cannot see" (with the mutants that were missed).
    """
    if mode not in NUMBERS:
        raise BadParameterError("mode", mode, "'standard' or 'quick'")
    if not 0.0 < false_alarm <= 0.5:
        raise BadParameterError("false_alarm", false_alarm, "a number in (0, 0.5]")
    if isinstance(subject, str):
        return audit_named([subject], mode=mode, false_alarm=false_alarm, seed=seed)
    if isinstance(subject, Case):
        return _report([subject], mode, false_alarm, seed)
    if not isinstance(subject, (Algorithm, Mechanism)):
        raise BadParameterError("subject", subject, "an algorithm, a mechanism or the name of an audit")
    case = _case(subject, rows, canaries)
    made = case.make()
    # A law is known only of noise that an outlet draws: the tape shows whether a foreign subject has any.
    through_outlets = made.guarantee.is_private and type(made).__module__.startswith("streampca.")
    if made.guarantee.is_private and not through_outlets:
        with Tape().recording() as tape:
            case.feed(made, list(np.zeros((case.rows, case.d))), case.feeds[0])
        through_outlets = any(note.exact is not None for note in tape.notes)
    if through_outlets:
        return _report([case], mode, false_alarm, seed)
    one, two = (case.both_rows(made)[0].copy() for _ in range(2))
    one[0], two[0] = next(iter(case.changes(made, case.d).values()))
    outside = audit_outside(made, (one, two), runs=_RUNS[mode], error=false_alarm, seed=seed)
    return Report((outside,), false_alarm)


def audit_named(
    names: Sequence[str] = (), *, mode: Mode = "standard", false_alarm: float = 1e-3, seed: int | None = None
) -> Report:
    """Audit the cases of some names (see `named`), or all cases."""
    # In standard mode, a case that is not quick collects as much noise as in a quick audit, unless named in full.
    return _report(named(names, mode), mode, false_alarm, seed, names)


def named(names: Sequence[str], mode: Mode = "standard") -> list[Case]:
    """Return the cases of some names: a class and words of the name of a case, such as ``PrivateFPL-tree-replace``.

    For a quick audit, the quick ones of a name if it has any. Raises `UsageError` if a name fits no case.
    """
    found: dict[str, Case] = {}
    for name in names or [""]:
        kind, *words = name.split("-")
        fits = [
            case for case in generated()
            if kind in ("", case.name.partition("-")[0]) and set(words) <= set(case.name.split("-")[1:])
        ]  # fmt: skip
        if not fits:
            known = ", ".join(dict.fromkeys(case.name.partition("-")[0] for case in generated()))
            raise UsageError(f"there is no audit named {name!r}: expected one of {known}, with words of --list NAME")
        quick = [case for case in fits if case.quick] if mode == "quick" else []
        found |= {case.name: case for case in quick or fits}
    return list(found.values())


def _report(
    cases: Sequence[Case], mode: Mode, false_alarm: float, seed: int | None, names: Sequence[str] | None = None
) -> Report:
    # A union bound over the cases gives the false alarm of the report.
    error, rows = false_alarm / len(cases), list[Audit]()
    for case in cases:
        whole = mode == "standard" and (names is None or case.quick or case.name in names)
        numbers = NUMBERS["standard" if whole else "quick"]
        rows += audit_case(case, numbers=numbers, error=error, every=whole, seed=seed)
    return Report(tuple(rows), false_alarm)


def _case(subject: Algorithm | Mechanism, rows: FloatArray | int | None, canaries: Sequence[Any] | None) -> Case:
    """Return the case of a subject of the caller, with the attributes of the generated cases of its class."""
    plain = None if rows is None or isinstance(rows, int) else np.asarray(rows, dtype=np.float64)
    if plain is not None and plain.ndim != 2:
        raise BadParameterError("rows", plain, "an (n, d) array or a number of rows")
    case = needs_of(subject)
    count, d = rows if isinstance(rows, int) else case["rows"], max(subject.n_components or 1, case["d"])
    own: dict[str, Any] = {"name": type(subject).__name__}
    if plain is not None:
        (count, d), own["plain"] = plain.shape, plain
    if canaries:
        pairs = [one if isinstance(one, tuple) else (np.zeros(np.size(one)), np.asarray(one, np.float64))
                 for one in canaries]  # fmt: skip
        d, canary = np.size(pairs[0][0]), {f"canary {i}": pair for i, pair in enumerate(pairs, 1)}
        own["changes"] = lambda made, d: canary
    check_count("rows", count)
    if isinstance(subject, Algorithm) and (horizon := subject.parameters().get("horizon")) is not None:
        count = min(count, horizon) if rows is None else count
        subject = replace(subject, horizon=count)  # type: ignore[type-var]
    kept = set(case)
    if plain is not None or (d, count) != (case["d"], case["rows"]):  # arrays of the case have other rows
        kept &= {"feed", "feeds", "changes", "slack", "cost"}
    return Case(**{name: case[name] for name in kept} | own | {"make": lambda: subject, "d": d, "rows": count})
