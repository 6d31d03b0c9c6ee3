"""Events, and the privacy that they spend together.

Every access to rows is recorded as an `Event`: which mechanism ran, not what it cost. So the epsilon of a list can be
computed at any delta, and recomputed when better theorems are known (`epsilon_of`):

- Gaussian events compose exactly: ``mu**2`` adds up, and the exact profile gives epsilon (`privacy.gaussian`). A whole
  stream is one event, because a tree or a matrix mechanism has one mu, whatever its depth.
- Other kinds are composed as privacy loss distributions by Google's ``dp-accounting``, an upper bound. A pure or
  (epsilon, delta) event is the worst mechanism of that claim (Kairouz, Oh and Viswanath 2015). Without the extra
  ``accounting``, epsilons and deltas are added, which is a larger bound.

Composition is adaptive: the next mechanism and its parameters may depend on everything released before (Dong, Roth and
Su 2022; Zhu, Dong and Wang 2022, Theorem 10).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from streampca.errors import UsageError, short
from streampca.privacy import gaussian
from streampca.privacy.guarantee import Guarantee, check_number


class Promising(Protocol):
    """An object with a guarantee: an algorithm, a mechanism, a stream, a release."""

    @property
    def guarantee(self) -> Guarantee: ...


@dataclass(frozen=True)
class Event:
    """One access to rows by a private mechanism."""

    what: str  # description
    adjacency: str  # neighboring relation of its guarantee, with the unit
    unit: str = "one row"
    mu: float | None = None  # Gaussian-DP parameter, finite and >= 0; None if the event is not Gaussian
    slack: float = 0.0  # probability of the event in which mu does not hold, in [0, 1)
    epsilon: float = 0.0  # claim of an event that is not Gaussian: finite and >= 0, and in [0, 1)
    delta: float = 0.0

    def __post_init__(self) -> None:
        if self.mu is not None:
            check_number("mu", self.mu)
        check_number("slack", self.slack, below=1.0)
        check_number("epsilon", self.epsilon)
        check_number("delta", self.delta, below=1.0)

    @classmethod
    def of(cls, ran: Guarantee | Promising) -> Event:
        """Return the event of one run of an object with a guarantee; `UsageError` if it is infinite."""
        claim = ran if isinstance(ran, Guarantee) else ran.guarantee
        if not claim.is_private:
            raise UsageError(f"an event with no guarantee cannot be accounted for: {claim.theorem}")
        what = f"{claim.theorem}; {claim.scope}"
        if claim.mu is not None:
            return cls(what, claim.adjacency, claim.unit, mu=claim.mu, slack=claim.slack)
        return cls(what, claim.adjacency, claim.unit, epsilon=claim.epsilon, delta=claim.delta)


def epsilon_of(events: Iterable[Event], delta: float) -> float:
    """Return the epsilon at ``delta`` of all events together; infinite if no finite one holds.

    Exact if all are Gaussian; otherwise an upper bound. Events for different neighbors raise `UsageError`.
    """
    events = tuple(events)
    # Also raises for events of different neighbors.
    plain = basic_epsilon(events, delta)
    others = sum(event.mu is None for event in events)
    # A lone event of another kind composes with nothing, so its own claim is the best bound.
    if others == 0 or (others == 1 and not any(event.mu for event in events)):
        return plain
    try:
        return min(plain, library_epsilon(events, delta))
    except ModuleNotFoundError:
        return plain


def basic_epsilon(events: Iterable[Event], delta: float) -> float:
    """Return an upper bound of `epsilon_of` at little cost: Gaussian events compose exactly, all others are added."""
    events = tuple(events)
    check_number("delta", delta, below=1.0)
    kinds = {(event.adjacency, event.unit) for event in events}
    if len(kinds) > 1:
        named = " and ".join(sorted(f"{unit} under {short(adjacency)}" for adjacency, unit in kinds))
        raise UsageError(f"guarantees for {named} do not add up. Calibrate all alike")
    # Exact: a composition of Gaussian mechanisms is a Gaussian mechanism (Dong, Roth and Su 2022, Corollary 2).
    mu = math.hypot(*(event.mu for event in events if event.mu is not None))
    others = [event for event in events if event.mu is None]
    # The part of delta that the others do not use is spent on the Gaussian events.
    rest = delta - sum(event.slack for event in events) - sum(event.delta for event in others)
    return sum(event.epsilon for event in others) + gaussian.epsilon_at(mu, rest)


def library_epsilon(events: Iterable[Event], delta: float, interval: float = 1e-3) -> float:
    """Return `epsilon_of` by ``dp-accounting`` only: an upper bound, tighter on a finer grid ``interval``."""
    # Imported late: it takes seconds, and few callers need it.
    from dp_accounting.pld import common, privacy_loss_distribution as pld

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
