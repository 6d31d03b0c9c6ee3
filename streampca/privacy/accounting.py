"""Events, and the privacy that they spend together.

Every access to rows is recorded as an `Event`: what was run, not what it
cost. So the epsilon of a list of events can be computed at any delta, and again
when better theorems are known. `epsilon_of` computes it:

- Gaussian events compose exactly, ``mu**2`` adds up, and the total is read off
  the exact profile (`privacy.gaussian`). A whole stream is one event: a tree or a
  matrix mechanism has one mu, whatever its depth.
- If other kinds are among them, all are composed as privacy loss
  distributions by Google's ``dp-accounting``, an upper bound: a pure or
  (epsilon, delta) event as the worst mechanism of that claim (Kairouz, Oh and Viswanath 2015).
  Without the extra ``accounting``, their epsilons and deltas are added, a larger bound.

Composition is adaptive: what is run next, and on what parameters, may depend on
all that was released before (Dong, Roth and Su 2022; Zhu, Dong and Wang 2022, Theorem 10).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

from streampca.errors import BadParameterError, short
from streampca.privacy import gaussian
from streampca.privacy.guarantee import Guarantee, check_number

_INTERVAL = 1e-3


class Promising(Protocol):
    """An object with a guarantee: an algorithm, a mechanism, a stream, a release."""

    @property
    def guarantee(self) -> Guarantee:
        """Its guarantee."""


@dataclass(frozen=True)
class Event:
    """Something that was run on rows.

    Attributes
    ----------
    what : description.
    adjacency, unit : its neighbouring relation.
    mu : Gaussian-DP parameter, finite and >= 0, or None if it is not Gaussian.
    slack : probability of the event in which mu does not hold, in [0, 1).
    epsilon, delta : its claim, if it is not Gaussian: finite and >= 0, and in [0, 1).
    """

    what: str
    adjacency: str
    unit: str = "one row"
    mu: float | None = None
    slack: float = 0.0
    epsilon: float = 0.0
    delta: float = 0.0

    def __post_init__(self) -> None:
        if self.mu is not None:
            check_number("mu", self.mu)
        check_number("slack", self.slack, below=1.0)
        check_number("epsilon", self.epsilon)
        check_number("delta", self.delta, below=1.0)

    @classmethod
    def of(cls, ran: Guarantee | Promising) -> Event:
        """The event of running an object with a guarantee.

        Raises
        ------
        BadParameterError
            If the guarantee is infinite: no budget covers it.
        """
        promised = ran if isinstance(ran, Guarantee) else ran.guarantee
        if not promised.is_private:
            raise BadParameterError(f"an event with no guarantee cannot be accounted for: {promised.theorem}")
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
    """The epsilon at ``delta`` of all events together; infinite if no finite one holds.

    Exact if all are Gaussian; otherwise an upper bound. Events for different neighbours raise `BadParameterError`.
    """
    events = tuple(events)
    plain = basic_epsilon(events, delta)
    others = sum(event.mu is None for event in events)
    if others == 0 or (others == 1 and not any(event.mu for event in events)):
        return plain
    try:
        return min(plain, library_epsilon(events, delta))
    except ModuleNotFoundError:
        return plain


def basic_epsilon(events: Iterable[Event], delta: float) -> float:
    """An upper bound of `epsilon_of`, quickly computed: Gaussian events compose exactly, all others are added.

    The part of delta that the others do not use goes to the Gaussian events.
    """
    events = tuple(events)
    if not 0.0 <= delta < 1.0:
        raise BadParameterError(f"delta={short(delta)} must be in [0, 1)")
    kinds = {(event.adjacency, event.unit) for event in events}
    if len(kinds) > 1:
        named = " and ".join(sorted(f"{unit} under {short(adjacency)}" for adjacency, unit in kinds))
        raise BadParameterError(f"guarantees for {named} do not add up; calibrate all alike")
    mu = gaussian.compose(*(event.mu for event in events if event.mu is not None))
    slack = sum(event.slack for event in events)
    others = [event for event in events if event.mu is None]
    left = delta - slack - sum(event.delta for event in others)
    return sum(event.epsilon for event in others) + gaussian.epsilon_at(mu, left)


def library_epsilon(events: Iterable[Event], delta: float, interval: float = _INTERVAL) -> float:
    """`epsilon_of` by ``dp-accounting`` alone, event by event: an upper bound.

    Parameters
    ----------
    events : what ran.
    delta : at which epsilon is computed.
    interval : grid of the privacy loss distributions; finer is slower.
    """
    # Imported here: it takes seconds, and few callers need it.
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    total = pld.identity(value_discretization_interval=interval)
    slack = 0.0
    for event in events:
        slack += event.slack
        if event.mu == 0.0:
            continue
        if event.mu is not None:
            one = pld.from_gaussian_mechanism(1.0 / event.mu, value_discretization_interval=interval)
        else:
            claim = common.DifferentialPrivacyParameters(event.epsilon, event.delta)
            one = pld.from_privacy_parameters(claim, value_discretization_interval=interval)
        total = total.compose(one)
    return float(total.get_epsilon_for_delta(delta - slack)) if delta > slack or slack == 0.0 else math.inf
