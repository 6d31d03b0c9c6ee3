"""Privacy budgets: a target epsilon and delta under one adjacency."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from streampca.errors import BadParameterError
from streampca.linalg.centering import JOINT_FACTOR
from streampca.privacy import gaussian

Adjacency = Literal["zero-out", "replace"]

#: Default delta of every algorithm, mechanism and interface: a tenth of one over 100 000 rows.
DELTA = 1e-6

#: Sensitivity of a row's outer product in Frobenius norm, for rows in the unit ball: |a a^T| = |a|**2 <= 1, and
#: |a a^T - b b^T|**2 = |a|**4 + |b|**4 - 2 <a, b>**2 <= 2.
GRAM_SENSITIVITY: dict[str, float] = {"zero-out": 1.0, "replace": math.sqrt(2.0)}


@dataclass(frozen=True)
class Budget:
    """A target (epsilon, delta) under one adjacency.

    Parameters
    ----------
    epsilon : positive and finite.
    delta : in [0, 1). Gaussian noise needs delta > 0.
    adjacency : neighboring streams differ in one row, which is replaced by the zero row or is absent (``"zero-out"``),
        or is replaced by any other row (``"replace"``). The number and the positions of the rows are public.
    """

    epsilon: float
    delta: float = 0.0
    adjacency: Adjacency = "zero-out"

    def __post_init__(self) -> None:
        if not (isinstance(self.epsilon, (int, float)) and 0.0 < self.epsilon < math.inf):
            raise BadParameterError("epsilon", self.epsilon, "a positive finite number, e.g. 1.0")
        if not (isinstance(self.delta, (int, float)) and 0.0 <= self.delta < 1.0):
            raise BadParameterError("delta", self.delta, "a number in (0, 1), well below one over the number of rows")
        if self.adjacency not in [*GRAM_SENSITIVITY]:  # also of a type without a hash
            raise BadParameterError("adjacency", self.adjacency, "'zero-out' or 'replace'")

    @property
    def mu(self) -> float:
        """Largest mu of Gaussian differential privacy within this budget."""
        if self.delta <= 0.0:
            raise BadParameterError(
                "delta", self.delta, "a number in (0, 1), e.g. 1e-6",
                advice="Gaussian noise has no pure epsilon guarantee"
            )  # fmt: skip
        return gaussian.mu_of(self.epsilon, self.delta)

    def sensitivity(self, *, center: bool = False) -> float:
        """Return the sensitivity of the Gram matrix to one row, in Frobenius norm.

        With ``center``, that of the Gram matrix of longer rows, 1.125 times as large (proof in `linalg.centering`).
        """
        gram = GRAM_SENSITIVITY[self.adjacency]
        return gram * JOINT_FACTOR if center else gram
