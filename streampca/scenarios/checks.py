"""Expectations held against measured values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from streampca.errors import BadParameter
from streampca.scenarios.spec import Against, Expect

#: Measured values: run -> fraction of the stream -> measure -> value.
Table = Mapping[str, Mapping[float, Mapping[str, float]]]


@dataclass(frozen=True)
class Check:
    """One expectation and what was measured."""

    expect: Expect
    what: str
    measured: str
    wanted: str
    holds: bool


def check(expect: Expect, table: Table) -> Check:
    """Hold one expectation against a table.

    Raises
    ------
    BadParameter
        If the run or the measure is not in the table. A value that is not a
        number never holds.
    """
    what = f"{expect.run}: {expect.measure}" + ("" if expect.at == 1.0 else f" at {expect.at:g} of the rows")
    if expect.falling is not None:
        values = [_value(table, expect.run, at, expect.measure) for at in expect.falling]
        falls = all(a > b for a, b in pairwise(values))
        at = ", ".join(f"{at:g}" for at in expect.falling)
        return Check(expect, what, " > ".join(map(number, values)), f"falling at {at}", falls)
    value = _value(table, expect.run, expect.at, expect.measure)
    wanted, holds = [], not math.isnan(value)
    for sign, given in ((">=", expect.at_least), ("<=", expect.at_most)):
        if given is None:
            continue
        limit, origin = (_limit(given, expect, table)) if isinstance(given, Against) else (given, "")
        wanted.append(f"{sign} {number(limit)}{origin}")
        holds = holds and (value >= limit if sign == ">=" else value <= limit)
    return Check(expect, what, number(value), ", ".join(wanted), holds)


def number(value: float) -> str:
    """Five significant digits."""
    return f"{value:.5g}"


def _limit(other: Against, expect: Expect, table: Table) -> tuple[float, str]:
    run, measure = other.run or expect.run, other.measure or expect.measure
    at = expect.at if other.at is None else other.at
    value = other.factor * _value(table, run, at, measure) + other.margin
    parts = [
        "" if other.factor == 1.0 else f"{other.factor:g} x ",
        f"{run} {measure}" if run != expect.run else measure,
        "" if at == expect.at else f" at {at:g}",
        "" if other.margin == 0.0 else f" {'-' if other.margin < 0 else '+'} {abs(other.margin):g}",
    ]
    return value, f" ({''.join(parts)})"


def _value(table: Table, run: str, at: float, measure: str) -> float:
    if run not in table:
        raise BadParameter(f"nothing was measured for run {run!r}; there are: {', '.join(table)}")
    if at not in table[run]:
        raise BadParameter(
            f"run {run!r} was not measured at {at:g} of its rows; there are: {', '.join(map(str, table[run]))}"
        )
    values = table[run][at]
    if measure not in values:
        raise BadParameter(f"run {run!r} has no measure {measure!r}; there are: {', '.join(values)}")
    return float(values[measure])
