"""All named audits, honest and with planted bugs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import streampca.auditing.more_cases  # noqa: F401  # registers its cases
from streampca.auditing.audit import Audit, audit
from streampca.auditing.bugs import BUGS, SLACK_UNDER_HALF_NOISE, Bug, half_noise
from streampca.auditing.cases import CASES, Case
from streampca.errors import BadParameter

#: Share of the runs of an honest audit that a planted bug gets: bugs are far from subtle.
BUG_SHARE = 0.2


def chosen(names: Sequence[str]) -> list[Case]:
    """The cases of these names, or whose names begin with one of them and a dash; all if none is given.

    Raises
    ------
    BadParameter
        If a name fits no case.
    """
    if not names:
        return list(CASES.values())
    found: dict[str, Case] = {}
    for name in names:
        fits = {key: one for key, one in CASES.items() if key == name or key.startswith(f"{name}-")}
        if not fits:
            raise BadParameter(f"there is no audit named {name!r}; known are {', '.join(CASES)}")
        found.update(fits)
    return list(found.values())


def run_case(case: Case, runs: int, confidence: float, seed: int | None, bug: Bug | None = None) -> Audit:
    """Audit one case, with a bug planted in it or none."""
    with nullcontext() if bug is None else bug.plant():
        return audit(case.build(), runs=max(40, round(runs * case.runs)), confidence=confidence, seed=seed)


def bugs_of(cases: Sequence[Case]) -> Iterator[tuple[Bug, Case]]:
    """The planted bugs of these cases, half the noise among them."""
    for case in cases:
        if case.name not in SLACK_UNDER_HALF_NOISE:
            yield Bug("half the noise", case.name, half_noise), case
        for bug in BUGS:
            if bug.case == case.name:
                yield bug, case
