"""What ran, and what it costs together.

Everything that touches rows is recorded as an `Event`: what it was, not what it
cost, so that the price of a list of events can be worked out at any delta, and again
when better theorems come. One function prices them:

- Gaussian events compose exactly, ``mu**2`` adds up, and the total is read off
  the exact profile (`privacy.gaussian`). This holds for whole streams too: a tree or a
  matrix mechanism is one event of its mu, whatever its depth.
- As soon as another kind is among them, all are composed as privacy loss
  distributions by Google's ``dp-accounting``, from above: a pure or
  (epsilon, delta) event as the worst mechanism of that claim (Kairouz, Oh and Viswanath 2015).

Composition is adaptive: what is run next, and on what parameters, may depend on
all that was released before (Dong, Roth and Su 2022; Zhu, Dong and Wang 2022, Theorem 10).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

from streampca.errors import BadParameter
from streampca.privacy import gaussian
from streampca.privacy.guarantee import Guarantee

_INTERVAL = 1e-3


class Promising(Protocol):
    """Anything that states a guarantee: an algorithm, a mechanism, a stream, a release."""

    @property
    def guarantee(self) -> Guarantee:
        """What it promises."""


@dataclass(frozen=True)
class Event:
    """Something that was run on rows.

    Attributes
    ----------
    what : what it was, in words.
    adjacency, unit : what its neighbours are.
    mu : Gaussian-DP parameter, or None if it is not Gaussian.
    slack : probability of the event in which mu does not hold.
    epsilon, delta : its claim, if it is not Gaussian.
    """

    what: str
    adjacency: str
    unit: str = "one row"
    mu: float | None = None
    slack: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0

    @classmethod
    def of(cls, ran: Guarantee | Promising) -> Event:
        """The event of running something that states its guarantee.

        Raises
        ------
        BadParameter
            If it has none: no budget covers it.
        """
        promised = ran if isinstance(ran, Guarantee) else ran.guarantee
        if not promised.is_private:
            raise BadParameter(f"what has no guarantee cannot be accounted for: {promised.theorem}")
        what = f"{promised.theorem}; {promised.scope}"
        if promised.mu is not None:
            return cls(what, promised.adjacency, promised.unit, mu=promised.mu, slack=promised.slack)
        return cls(what, promised.adjacency, promised.unit, epsilon=promised.epsilon, delta=promised.delta)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Event:
        """Inverse of `to_dict`."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


def epsilon_of(events: Iterable[Event], delta: float) -> float:
    """The epsilon at ``delta`` of all events together; infinite if there is none.

    Exact if all are Gaussian; otherwise an upper bound.

    Raises
    ------
    BadParameter
        If the events are for different neighbours.
    """
    events = tuple(events)
    if not 0.0 <= delta < 1.0:
        raise BadParameter(f"delta={delta!r} must be in [0, 1)")
    check_alike(events)
    mu = gaussian.compose(*(event.mu for event in events if event.mu is not None))
    slack = sum(event.slack for event in events)
    others = [event for event in events if event.mu is None]
    if slack > 0.0 and delta <= slack:
        return math.inf
    if not others:
        return gaussian.epsilon_at(mu, delta - slack)
    plain = _basic(mu, others, delta - slack)
    if len(others) == 1 and mu == 0.0:
        return plain
    return min(plain, library_epsilon(events, delta))


def library_epsilon(events: Iterable[Event], delta: float, interval: float = _INTERVAL) -> float:
    """The same through ``dp-accounting`` alone, every event by itself: an upper bound, and a check of ours.

    Parameters
    ----------
    events : what ran.
    delta : where epsilon is asked for.
    interval : grid of the privacy loss distributions; finer is slower.
    """
    # Imported here: it takes seconds, and few need it.
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    total = pld.identity(value_discretization_interval=interval)
    slack = 0.0
    for event in events:
        slack += event.slack
        if event.mu is not None:
            one = pld.from_gaussian_mechanism(1.0 / event.mu, value_discretization_interval=interval)
        else:
            claim = common.DifferentialPrivacyParameters(event.epsilon, event.delta)
            one = pld.from_privacy_parameters(claim, value_discretization_interval=interval)
        total = total.compose(one)
    return float(total.get_epsilon_for_delta(delta - slack)) if delta > slack or slack == 0.0 else math.inf


def check_alike(events: Sequence[Event]) -> None:
    """Raise `BadParameter` unless all events are for the same neighbours."""
    kinds = {(event.adjacency, event.unit) for event in events}
    if len(kinds) > 1:
        named = " and ".join(sorted(f"{unit} under {adjacency!r}" for adjacency, unit in kinds))
        raise BadParameter(f"guarantees for {named} do not add up; calibrate all alike")


def _basic(mu: float, others: Sequence[Event], delta: float) -> float:
    """Epsilons of the others add up; what they leave of delta goes to the Gaussian part."""
    left = delta - sum(event.delta for event in others)
    if left < 0.0:
        return math.inf
    return sum(event.epsilon for event in others) + (gaussian.epsilon_at(mu, left) if mu > 0.0 else 0.0)
