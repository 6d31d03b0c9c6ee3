"""The public parameters of a mechanism or an algorithm, and the guarantee of its releases."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from copy import copy
from functools import cache
from typing import Any, ClassVar, Literal, Self, TypeVar

from streampca.errors import UsageError, refuse_guess
from streampca.linalg.centering import JOINT_FACTOR
from streampca.linalg.counts import check_components, use_plain_numbers
from streampca.linalg.lattice import check_memory
from streampca.linalg.svec import PRESENCE
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.unit import Person

Kind = TypeVar("Kind", bound="Configuration")


def for_missing(algorithm: Kind, present: tuple[float, ...] | Literal["private"] | None) -> Kind:
    """Return an algorithm or mechanism that corrects by these shares (`Terms.present`); `UsageError` if it cannot."""
    if present is None:
        return algorithm
    if not algorithm.completes:
        raise UsageError(
            f"on_missing='cell', {algorithm!r}: it releases no Gram matrix that a correction could divide. Pass "
            "correct=False, or use PrivateFPL without publish_regret"
        )
    if present == "private" and not algorithm.can_count_cells:
        raise UsageError(
            f"missing_rates='private', {algorithm!r}: the numbers of cells present cannot be part of its noise. Pass "
            "public shares as missing_rates=, or correct=False"
        )
    if present == "private" and not algorithm.center and (algorithm.unit is not None or algorithm.has_calendar):
        # A share is a number of cells over that of the rows, which is then private, and only released about a mean.
        other = "unit" if algorithm.unit is not None else f"release_every={algorithm.release_every!r}"  # type: ignore[attr-defined]
        raise UsageError(
            f"center=False, missing_rates='private', {other}: the number of rows is private. Use center=True, or pass "
            "public shares as missing_rates="
        )
    return algorithm.corrected(counting=present == "private")


@cache
def _parameters(kind: type) -> frozenset[str]:
    """Return the names of the parameters of a class."""
    return frozenset(inspect.signature(kind).parameters)


class Configuration(ABC):
    """Base of mechanisms and algorithms: a frozen dataclass of public parameters, without a row.

    Those that are not pure have a positive ``delta``. `Oja` and `Tumbling` have no budget of their own.
    """

    n_components: int | None  #: dimension of the released subspaces; None where a mechanism chooses it
    epsilon: float
    adjacency: Adjacency
    budget: Budget  #: of all releases together
    mu: float  #: exact Gaussian-DP parameter of the budget, if ``is_gaussian``
    #: Whether n_components may be None: the mechanism then estimates it.
    finds_components: ClassVar[bool] = False
    #: Whether all releases together are mu-GDP at `mu`.
    is_gaussian: ClassVar[bool] = False
    scope: str  # of the guarantee, as the next six
    theorem: str
    citation: str
    #: Unit of privacy, a parameter of classes that can weight rows; None for one row. A text is short for its column.
    unit: Person | None = None
    #: Whether all rows are at hand for one release, so that those of a person have one weight.
    is_one_release: ClassVar[bool] = False
    slack: float = 0.0
    floating_delta: float | None = 0.0
    #: Whether Gram matrices are about the mean; rows then have the constant of `linalg.centering`. A parameter of
    #: classes that can center, whose default None means True, but for `publish_regret`.
    center: bool = False
    #: Whether matrix and mean can be completed where cells are missing (`linalg.completion`), and whether the numbers
    #: of cells present can be released with them.
    completes: bool = False
    can_count_cells: bool = False
    is_corrected: bool = False  #: whether matrix and mean are completed (`corrected`)
    counts_cells: bool = False  #: whether the numbers of cells present are released with them
    #: Bytes of (d, d) matrices at the peak, over d**2 (measured); 0 if there are none.
    square_bytes: float = 0.0

    def __new__(cls, *args: Any, **given: Any) -> Self:
        """Create an instance; an unknown keyword raises an error that names the right one."""
        for name in given.keys() - _parameters(cls):
            refuse_guess([""], name, TypeError, "parameter")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Resolve defaults that depend on other parameters; check what most have: numbers, dimensions and a budget."""
        if vars(self).get("center", False) is None:  # of a class that can center
            # Sums of rewards are released about 0 by default: intervals of a centered regret are wider.
            object.__setattr__(self, "center", not getattr(self, "publish_regret", False))
        if "unit" in vars(self):  # of a class that can weight rows
            object.__setattr__(self, "unit", Person.of(self.unit))
        use_plain_numbers(self)
        check_components(self.n_components, optional=self.finds_components)
        if hasattr(self, "epsilon"):
            object.__setattr__(self, "budget", Budget(self.epsilon, getattr(self, "delta", 0.0), self.adjacency))
        if self.is_gaussian:
            object.__setattr__(self, "mu", self.budget.mu)

    @property
    def has_calendar(self) -> bool:
        """Whether inputs are the periods of a calendar, not rows."""
        return isinstance(getattr(self, "release_every", None), str)

    @property
    def unit_sensitivity(self) -> float:
        """Sensitivity to the unit of privacy of all that is released with one vector of noise.

        That of a row (`linalg.completion`), or of a person with a budget (`streampca.rows.people`).
        """
        matrix = self.budget.sensitivity(center=self.center)
        if self.unit is None:
            return math.sqrt(matrix**2 + PRESENCE) if self.counts_cells else matrix
        # The cells of two persons have no negative product, so they add twice under replacement, as matrices do.
        cells = PRESENCE * (2.0 if self.budget.adjacency == "replace" else 1.0)
        return self.unit.budget * (math.sqrt(matrix**2 + cells) if self.counts_cells else matrix)

    @property
    def full_row(self) -> float:
        """Norm of what a full row adds to all that is released with one vector of noise, rewards apart."""
        return math.hypot(JOINT_FACTOR if self.center else 1.0, math.sqrt(PRESENCE) * self.counts_cells)

    def corrected(self, *, counting: bool) -> Self:
        """Return the configuration whose releases are completed, ``counting`` the cells that are present."""
        after = copy(self)
        vars(after).update(is_corrected=True, counts_cells=counting)
        after.__post_init__()
        return after

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of all releases together. Known before any row."""
        budget, unit, theorem = self.budget, self.unit, self.theorem
        return Guarantee(
            budget.epsilon, budget.delta, budget.adjacency,
            self.scope + ", with the noisy numbers of cells present" * self.counts_cells,
            theorem if unit is None else f"{theorem}; rows weighted by the budget of their {unit.name}", self.citation,
            "one row" if unit is None else unit.text,
            self.mu if self.is_gaussian else None, self.slack, floating_delta=self.floating_delta,
            contribution="one row" if unit is None else unit.contribution(at_once=self.is_one_release),
            period=None if unit is None else unit.period,
        )  # fmt: skip

    def guarantee_for(self, n_features: int) -> Guarantee:
        """Return the guarantee of all releases of rows with this number of features."""
        return self.guarantee

    @abstractmethod
    def constants(self, n_features: int) -> tuple[object, ...]:
        """Return every number that the noise depends on; it is part of the label of the noise."""

    def check(self, n_features: int) -> None:
        """Raise `UsageError` unless rows with this number of features fit the parameters and the memory."""
        check_memory(n_features, self.square_bytes)
        check_components(self.n_components, n_features, optional=True)
