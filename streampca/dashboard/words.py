"""A guarantee in words that a lawyer and an engineer both accept."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from scipy.special import ndtr, ndtri

from streampca.privacy.guarantee import Guarantee

#: How neighbouring inputs differ, and what that leaves unprotected.
_ADJACENCY = {
    "zero-out": (
        "two inputs are compared that differ in one row: it holds its values in one and only zeros in the other",
        "The number of rows and their positions are treated as public.",
        "zeros in its place",
    ),
    "replace": (
        "two inputs are compared that differ in one row: it holds one set of values in one and any other in the other",
        "The number of rows is treated as public.",
        "any other values in its place",
    ),
    "add-remove": (
        "two inputs are compared that differ in one row: it is present in one and absent in the other",
        "The number of rows is protected, too.",
        "that row left out",
    ),
}


def summary(guarantee: Guarantee) -> str:
    """The guarantee in one line."""
    if not guarantee.is_private:
        return "none"
    seeded = ", but the noise is seeded" if "seeded" in guarantee.caveat else ""
    return f"({guarantee.epsilon:g}, {guarantee.delta:g})-DP for {guarantee.unit}, {guarantee.adjacency}{seeded}"


def in_words(guarantee: Guarantee) -> list[tuple[str, str]]:
    """The guarantee as (heading, text).

    Every figure follows from epsilon, delta and mu of the guarantee; nothing
    here promises more than it does.
    """
    if not guarantee.is_private:
        return [("What is promised", f"Nothing: {guarantee.theorem}. Treat everything here like the rows themselves.")]
    e = guarantee.epsilon
    unknown = f"neighbours under {guarantee.adjacency!r} are compared", "", "a neighbour in its place"
    how, public, other = _ADJACENCY.get(guarantee.adjacency, unknown)
    words = [
        (
            "What is protected",
            f"The contents of {guarantee.unit}, whichever it is: {how}. {public}".strip(),
        ),
        (
            "What is promised",
            f"Whatever somebody knows beforehand and however they analyse what is released, any conclusion is at most "
            f"{math.exp(e):.3g} times as likely (e to the power epsilon, epsilon = {e:g}) with the real values as with "
            f"{other}, and the other way round, apart from an additional probability of delta = "
            f"{guarantee.delta:g}{_one_in(guarantee.delta)}.",
        ),
        ("What that means for an attacker", _power(guarantee)),
        ("What it covers", f"Taken together: {guarantee.scope}."),
        ("What it does not cover", _limits(guarantee)),
        ("Why it holds", f"{guarantee.theorem} [{guarantee.citation}]."),
    ]
    if guarantee.caveat:
        words.append(("Caveat", f"{guarantee.caveat[0].upper()}{guarantee.caveat[1:]}."))
    return words


def most_found(guarantee: Guarantee, false_alarms: float) -> float:
    """The largest share of true cases that any test finds at a rate of false alarms.

    Exact for Gaussian guarantees (Dong, Roth, Su 2022: the trade-off function
    of mu-GDP), plus slack; else the trade-off bound of (epsilon, delta)-DP (Wasserman and Zhou 2010).
    """
    if not guarantee.is_private:
        return 1.0
    e, delta = guarantee.epsilon, guarantee.delta
    by_pair = min(math.exp(e) * false_alarms + delta, 1.0 - math.exp(-e) * (1.0 - delta - false_alarms))
    found = by_pair
    if guarantee.mu is not None:
        found = min(found, float(ndtr(ndtri(false_alarms) + guarantee.mu)) + guarantee.slack)
    return min(1.0, max(false_alarms, found))


def _power(guarantee: Guarantee, false_alarms: float = 0.05) -> str:
    found = math.ceil(1000.0 * most_found(guarantee, false_alarms)) / 10.0
    return (
        f"Somebody who knows all other rows, tests whether a given row was used, and accepts {100 * false_alarms:g} % "
        f"false alarms, detects it in at most {found:g} % of the cases where it was; "
        f"guessing alone gives {100 * false_alarms:g} %."
    )


def _limits(guarantee: Guarantee) -> str:
    if guarantee.mu is not None:
        several = f"the same person in m rows is protected with m times mu = {guarantee.mu:.4g}{_twice(guarantee)}"
    else:
        several = "the same person in m rows is protected with m times epsilon, and a larger delta"
    return (
        f"Several rows of one person: {several}. Another run on the same rows, which adds to the total. What is true "
        "of the population whether or not a row was used. Whoever holds the rows, the key of the noise or its seed."
    )


def _twice(guarantee: Guarantee) -> str:
    if guarantee.mu is None or guarantee.slack:
        return ""
    double = replace(guarantee, mu=2.0 * guarantee.mu).epsilon_at(guarantee.delta)
    return f" (in two rows: epsilon = {double:.3g} at the same delta)"


def _one_in(delta: float) -> str:
    return f" (1 in {1.0 / delta:,.0f})".replace(",", " ") if 0.0 < delta < 1.0 else ""


def as_dicts(words: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """JSON values."""
    return [{"heading": heading, "text": text} for heading, text in words]
