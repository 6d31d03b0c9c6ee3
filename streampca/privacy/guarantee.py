"""Privacy guarantees, with their meaning and their source."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Protocol

from streampca.calendar import length_of
from streampca.errors import BadParameterError, UsageError, short
from streampca.linalg.counts import check_share
from streampca.privacy import gaussian
from streampca.tables import html_table

SEEDED = "seeded: not private against whoever knows the seed"
#: Bound on the delta that one number with Laplace noise of 53 bits adds (`laplace_delta`).
_LAPLACE_DELTA = 2.0**-32
#: Numbers of periods for which the cost of a unit that has rows in all of them is shown.
_PERIODS = (1, 7, 30)


def laplace_delta(numbers: int, epsilon: float) -> float:
    """Return a bound on the delta that floating-point Laplace noise adds to pure epsilon.

    ``numbers`` with such noise change by one row, and ``epsilon`` is spent on all of them together.

    A sampled Laplace variable is the logarithm of one of 2**53 uniform numbers (`randomness.Draws.laplace`), released
    on a grid of at least 2**-20 of its scale. The probability of each cell is off by less than 2**-54; that of the
    neighbor counts exp(e) times, if the row spends e on this number. Summed over all cells (counted, in a test), that
    is below 2**-32 (1 + exp(e)), convex in e: numbers that share epsilon cost no more than if one had all of it.
    """
    return min(1.0, _LAPLACE_DELTA * (2.0 * numbers - 1.0 + math.exp(min(epsilon, 30.0)))) if numbers else 0.0


class Account(Protocol):
    """An account that pays for guarantees: one data set of a `streampca.store.Ledger`, for example."""

    def debit(self, guarantee: Guarantee, start: bytes) -> None:
        """Book one start of a stream or a release, or raise `BudgetExhaustedError`. Idempotent for equal starts."""


def check_account(account: Any) -> None:
    """Raise `BadParameterError` unless it is an account or None."""
    if account is not None and (not hasattr(account, "debit") or hasattr(account, "account")):
        raise BadParameterError("account", account, "an account", advice="Pass Ledger(file).account(data_set)")


@dataclass(frozen=True)
class Guarantee:
    """A differential privacy guarantee with its meaning and its source."""

    epsilon: float  #: with delta the headline pair; infinite if there is no guarantee
    delta: float  #: 1 if there is no guarantee
    adjacency: str  #: ``"zero-out"``, ``"replace"``, ``"add-remove"`` or ``"none"``
    scope: str  #: outputs that the claim covers together
    theorem: str  #: the proof
    citation: str  #: its source
    unit: str = "one row"  #: difference of neighboring inputs
    #: Exact Gaussian-DP parameter of a Gaussian mechanism, else None. It determines `epsilon_at` every other delta.
    mu: float | None = None
    slack: float = 0.0  #: added to delta at every epsilon, for Gaussian mechanisms with a failure event
    caveat: str = ""  #: conditions that weaken the claim; empty if there are none
    #: Bound on the delta that floating-point Laplace noise adds (`laplace_delta`); None if it depends on the number of
    #: features and that is not known yet. `epsilon`, `delta` and everything computed from them hold for noise in real
    #: numbers.
    floating_delta: float | None = 0.0
    contribution: str = "one row"  #: what is counted of the unit
    period: str | None = None  #: duration within which the rows of the unit are counted; None for the whole run

    def __post_init__(self) -> None:
        if self.floating_delta is not None:
            check_number("floating_delta", self.floating_delta, below=math.nextafter(1.0, 2.0))
        if self.mu is not None:
            check_number("mu", self.mu)
        check_number("slack", self.slack, below=1.0)
        if (self.epsilon, self.delta, self.mu, self.slack) != (math.inf, 1.0, None, 0.0):  # else there is no guarantee
            check_number("epsilon", self.epsilon)
            check_number("delta", self.delta, below=1.0)

    @classmethod
    def none(cls, reason: str, citation: str = "", scope: str = "nothing") -> Guarantee:
        """Return the statement that there is no guarantee, with its reason."""
        return cls(math.inf, 1.0, "none", scope, reason, citation, unit="none")

    @property
    def is_private(self) -> bool:
        """Whether the guarantee is finite. Ignores caveats."""
        return math.isfinite(self.epsilon)

    @property
    def brief(self) -> str:
        """Epsilon, delta and unit in a few words."""
        return f"({self.epsilon:g}, {self.delta:g})-DP for {self.unit}" if self.is_private else "not private"

    @property
    def rho(self) -> float | None:
        """Parameter of zero-concentrated DP, mu**2 / 2; None without mu, or with a slack."""
        return None if self.mu is None or self.slack else 0.5 * self.mu**2

    def attack_success(self, fpr: float = 0.01) -> float:
        """Return the largest probability with which a test finds the unit in the data, at ``fpr`` false alarms.

        The test sees all releases and knows everything else; a false alarm is to find a unit that is not in the data.
        For mu-GDP it is ``Phi(Phi^-1(fpr) + mu)``, the power of the likelihood ratio test (Dong, Roth and Su 2022),
        plus the slack. Otherwise ``min(e**epsilon fpr + delta, 1 - e**-epsilon (1 - delta - fpr))``, which is all that
        (epsilon, delta)-DP says, and which some mechanism attains (Kairouz, Oh and Viswanath 2015).
        """
        check_share("fpr", fpr)
        if not self.is_private:
            return 1.0
        odds = math.exp(min(self.epsilon, 700.0))  # beyond, the second bound is 1
        # Both directions: the unit is found where it is, and is not found where it is not.
        found = min(odds * fpr + self.delta, 1.0 - (1.0 - self.delta - fpr) / odds)
        if self.mu is not None:
            from scipy.special import ndtr, ndtri  # loads slowly

            # A slack raises delta at every epsilon, and with it the power at every rate by at most as much.
            found = min(found, float(ndtr(ndtri(fpr) + self.mu)) + self.slack)
        return min(1.0, max(fpr, found))

    @property
    def over_periods(self) -> dict[int, tuple[float, float]]:
        """Parameters mu and rho for all rows of somebody who is present in 1, 7 and 30 periods; empty without periods.

        p mu and p**2 rho (`streampca.privacy.unit.Person`).
        """
        if self.period is None or self.mu is None:
            return {}
        return {p: (p * self.mu, 0.5 * (p * self.mu) ** 2) for p in _PERIODS}

    @property
    def advantage(self) -> float:
        """Largest difference of `attack_success` from its false alarms, over all tests: from 0 to 1.

        ``2 Phi(mu / 2) - 1`` plus the slack for mu-GDP; otherwise ``(e**epsilon - 1 + 2 delta) / (e**epsilon + 1)``.
        """
        if not self.is_private:
            return 1.0
        most = 1.0 - 2.0 * (1.0 - self.delta) / (1.0 + math.exp(min(self.epsilon, 700.0)))
        return most if self.mu is None else min(most, math.erf(self.mu / math.sqrt(8.0)) + self.slack)

    @property
    def sentence(self) -> str:
        """One sentence for readers outside the field."""
        if not self.is_private:
            return f"There is no guarantee: {self.theorem}."
        unknown = f"which of two versions of {self.unit}" if self.adjacency == "replace" else f"whether {self.unit}"
        return (
            f"Somebody who knows everything but {unknown} is in the data, and accepts to be wrong about 1 in 100 "
            f"others, recognizes it with a probability of at most {percent_up(self.attack_success())} instead of 1 %."
        )

    @property
    def unprotected(self) -> tuple[str, ...]:
        """What the guarantee does not cover."""
        if not self.is_private:
            return ("everything",)
        # Group privacy: m times mu for mu-GDP (Dong, Roth and Su 2022), but a slack does not scale so.
        times = "epsilon, and a larger delta" if self.delta else "epsilon"
        if self.mu is not None and not self.slack:
            times = f"mu = {self.mu:.4g}"
        # Neighbors of a calendar differ in the number of rows, so that it is protected.
        facts = {"add-remove": [], "zero-out": ["the number of rows and their positions"]}
        group = (
            "several rows of one person: m rows are" if self.unit == "one row" else
            f"groups: m times {self.unit} is" if self.period is None else
            "somebody in several periods, and groups: m times the unit is"
        )  # fmt: skip
        return (
            "the choice of columns, bounds and other settings", "the times of publication",
            *facts.get(self.adjacency, ["the number of rows"]),
            "other runs on the same rows, which add to the total", f"{group} protected with m times {times}",
        )  # fmt: skip

    def in_figures(self) -> dict[str, Any]:
        """Return the guarantee for officers as JSON values; the figures follow from epsilon, delta, mu and slack."""
        over = self.over_periods
        return {
            "sentence": self.sentence, "rho": self.rho, "attack_success": {"fpr": 0.01, "found": self.attack_success()},
            "advantage": self.advantage, "not_protected": list(self.unprotected),
            **({"over_periods": {str(p): {"mu": mu, "rho": rho} for p, (mu, rho) in over.items()}} if over else {}),
        }  # fmt: skip

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest epsilon known at another delta: exact with `mu`; else `epsilon`, or infinite below."""
        check_number("delta", delta, below=1.0)
        if not self.is_private:
            return math.inf
        if self.mu is not None:
            return gaussian.epsilon_at(self.mu, delta - self.slack)
        return self.epsilon if delta >= self.delta else math.inf

    def compose(self, other: Guarantee) -> Guarantee:
        """Return the guarantee of publishing both outputs, for processors of the same rows.

        Gaussian guarantees compose exactly (mu**2 adds up), at the larger delta; others add epsilon and delta.
        """
        if not (self.is_private and other.is_private):
            return Guarantee.none("composed with something that has no guarantee")
        if (self.adjacency, self.unit) != (other.adjacency, other.unit):
            raise UsageError(
                f"cannot compose a guarantee for {self.unit} under {short(self.adjacency)} with one for {other.unit} "
                f"under {short(other.adjacency)}. Calibrate both alike"
            )
        mu: float | None = None
        if self.mu is not None and other.mu is not None:
            theorem = "adaptive composition of Gaussian mechanisms"
            mu, slack = math.hypot(self.mu, other.mu), self.slack + other.slack
            # delta - slack, from which epsilon is computed, keeps the larger of both deltas up to the larger slack.
            delta = max(self.delta, other.delta) + min(self.slack, other.slack)
            epsilon = gaussian.epsilon_at(mu, delta - slack)
        else:
            # Slack is a part of each delta already, so the sum of both deltas holds for the sum of the epsilons.
            theorem, slack = "basic adaptive composition", 0.0
            epsilon, delta = self.epsilon + other.epsilon, self.delta + other.delta
        if delta >= 1.0 or math.isinf(epsilon):
            return Guarantee.none("composed to a delta of 1 or more, or an infinite epsilon")
        floating = None
        if self.floating_delta is not None and other.floating_delta is not None:
            floating = min(1.0, self.floating_delta + other.floating_delta)
        citation, caveat = (
            "; ".join(dict.fromkeys(filter(None, texts)))
            for texts in ((self.citation, other.citation), (self.caveat, other.caveat))
        )
        return Guarantee(
            epsilon, delta, self.adjacency, f"{self.scope}; {other.scope}", theorem, citation, self.unit, mu, slack,
            caveat, floating, self.contribution, self.period,
        )  # fmt: skip

    @property
    def caveats(self) -> str:
        """All conditions that weaken the claim: `caveat`, and the delta that floating point adds."""
        if self.floating_delta == 0.0:
            return self.caveat
        per_number = f"at least {2.0 * _LAPLACE_DELTA:.2g} for each number that is released"
        added = per_number if self.floating_delta is None else f"up to {self.floating_delta:.2g}"
        floating = f"Laplace noise is drawn in floating point, which adds {added} to delta"
        return "; ".join(filter(None, (self.caveat, floating)))

    def seeded(self) -> Guarantee:
        """Return the same claim with the caveat `SEEDED`."""
        if not self.is_private or SEEDED in self.caveat:
            return self
        return replace(self, caveat="; ".join(filter(None, (self.caveat, SEEDED))))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain values; infinities become None."""
        return {k: None if v == math.inf else v for k, v in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Guarantee:
        """Invert `to_dict`. Other keys are ignored."""
        data = {f.name: values[f.name] for f in fields(cls) if f.name in values}
        for name in {"adjacency", "scope", "theorem", "citation", "unit", "caveat", "contribution"} & data.keys():
            if not isinstance(data[name], str):
                raise BadParameterError(name, data[name], "text")
        if data.get("period") is not None:
            length_of("period", data["period"])
        if data.get("epsilon") is None:
            data["epsilon"] = math.inf
        return cls(**data)

    def _repr_html_(self) -> str:
        """Return the fields as a table for notebooks. Publishable."""
        shown: dict[str, Any] = {"no guarantee": self.theorem}
        if self.is_private:
            figures = {"rho": self.rho, "advantage": f"{self.advantage:.3g}"}
            shown = {"in one sentence": self.sentence, **asdict(self), **figures}
        return html_table((), ((name, value) for name, value in shown.items() if value not in (None, "")))

    def __str__(self) -> str:
        if not self.is_private:
            return f"no privacy guarantee: {self.theorem}"
        gdp = "" if self.mu is None else f" [{self.mu:.6g}-GDP]"
        text = (
            f"({self.epsilon:g}, {self.delta:g})-DP{gdp} for {self.unit}, {self.adjacency} adjacency; "
            f"scope: {self.scope}; {self.theorem} [{self.citation}]"
        )
        return f"{text}; caveat: {self.caveats}" if self.caveats else text


def percent_up(share: float) -> str:
    """Write a share that is a bound in per cent, rounded up to three digits."""
    # The tolerance keeps a share such as .07, whose product with 100 exceeds 7 by rounding.
    digits = 2 if share < 0.1 else 1 if share < 1.0 else 0
    return f"{math.ceil(100.0 * share * 10.0**digits - 1e-9) / 10.0**digits:g} %"


def check_number(name: str, value: object, *, below: float = sys.float_info.max) -> None:
    """Raise `BadParameterError` unless a value is a number in [0, below)."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value < below:
        domain = "a finite number of at least 0" if below > 1.0 else f"a number in [0, {below:g})"
        raise BadParameterError(name, value, domain)
