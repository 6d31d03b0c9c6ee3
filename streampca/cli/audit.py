"""``streampca audit``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from streampca import __version__
from streampca.auditing import Audit, audit_named
from streampca.auditing.suite import named
from streampca.errors import UsageError


def audit(
    *names: str,
    all_: Annotated[bool, Parameter(name="--all", negative="")] = False,
    quick: Annotated[bool, Parameter(negative="")] = False,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
    false_alarm: float = 1e-3,
    seed: int | None = None,
    list_: Annotated[bool, Parameter(name="--list", negative="")] = False,
) -> int:
    """Try to refute the privacy claims, and show that they could have been refuted.

    Each row is refuted (with a witness), holds (with the shares of the claim
    that the noise was seen to spend, and that its law accounts for) or cannot
    be seen: then a bug of the same kind would have been missed. Exits with 1
    if a row does not hold.

    Parameters
    ----------
    names
        Classes, or classes with words of the names of their cases: PrivateFPL-tree-replace; see --list.
    all_
        Audit every legal combination of every public class: half an hour.
    quick
        A minute: every pair of values that two switches may have together, in few cases and with less noise.
    json_
        Print rows as JSON.
    false_alarm
        Probability that a true claim is refuted, over all rows.
    seed
        Fixed keys, for a reproducible table.
    list_
        List the classes, or the cases of the names, and stop.
    """
    if list_:
        cases = named(names)
        kinds = Counter(case.name.partition("-")[0] for case in cases)
        lines = [case.name for case in cases] if names else [f"{kind:<28}{n:>5} cases" for kind, n in kinds.items()]
        print("\n".join(lines))
        return 0
    if not (names or all_ or quick):
        raise UsageError("name what to audit, e.g. 'streampca audit PrivateFPL', or pass --all, --quick or --list")
    started = time.process_time()
    mode: Literal["quick", "standard"] = "quick" if quick else "standard"
    report = audit_named(names, mode=mode, false_alarm=false_alarm, seed=seed)
    if json_:
        print(report.to_json())
        return 0 if report.holds else 1
    spent = f"{time.process_time() - started:.0f} s of CPU time, false alarm {false_alarm:g}."
    print(f"{datetime.now(UTC):%Y-%m-%d}, streampca {__version__}: {mode} audit of {len(report.rows)} rows, {spent}\n")
    print("| audit | part | claim | seen | accounted | verdict |", "|---|---|---|---|---|---|", sep="\n")
    for row in _grouped(report.rows):
        claim = f"{row.measure} = {row.claim:.4g}" if row.measure else ""
        shares = ["" if share is None else f"{share:.1%}" for share in (row.seen, row.accounted)]
        verdict = f"{row.verdict}: {row.witness}" if row.witness else row.verdict
        print(f"| {' | '.join([row.subject, row.part, claim, *shares, verdict])} |")
    failed = sum(not row.holds for row in report.rows)
    print("", f"{failed} rows do not hold" if failed else "everything holds", sep="\n")
    return 0 if report.holds else 1


def _grouped(rows: Sequence[Audit]) -> list[Audit]:
    """Replace many rows that hold by one of a class, part and reason, with the least shares of each."""
    # A screen of rows is readable as it is. Rows that do not hold are never merged.
    if len(rows) <= 40:
        return list(rows)
    groups: dict[tuple[str, str, str], list[Audit]] = {}
    for row in rows:
        kind = row.subject.partition("-")[0] if row.holds else row.subject
        groups.setdefault((kind, row.part, row.witness), []).append(row)
    merged = []
    for (kind, _, _), group in groups.items():
        least: dict[str, Any] = {
            name: min((share for row in group if (share := getattr(row, name)) is not None), default=None)
            for name in ("seen", "accounted")
        }
        subject = f"{kind} ({len(group)} cases)" if len(group) > 1 else group[0].subject
        measure = group[0].measure if len({(row.measure, row.claim) for row in group}) == 1 else ""
        merged.append(replace(group[0], subject=subject, measure=measure, **least))
    return merged
