"""Privacy budgets: a target epsilon and delta."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from streampca.errors import BadParameterError, short
from streampca.linalg.centering import joint_factor
from streampca.privacy import gaussian

Adjacency = Literal["zero-out", "replace"]

#: Sensitivity of a row's outer product in Frobenius norm, rows in the unit ball.
GRAM_SENSITIVITY: dict[str, float] = {"zero-out": 1.0, "replace": math.sqrt(2.0)}


def check_adjacency(adjacency: str) -> None:
    """Raise `BadParameterError` unless the adjacency is ``"zero-out"`` or ``"replace"``."""
    if adjacency not in GRAM_SENSITIVITY:
        raise BadParameterError(
            f"adjacency={short(adjacency)} is not known; use 'zero-out' (one row against the zero row) "
            "or 'replace' (one row against another)"
        )


@dataclass(frozen=True)
class Budget:
    """A target (epsilon, delta) under one adjacency.

    Parameters
    ----------
    epsilon : positive float.
    delta : float in [0, 1). Gaussian noise needs delta > 0.
    adjacency : ``"zero-out"`` (one row against the zero row; the number and
        the positions of rows are public) or ``"replace"`` (one row against
        another).
    """

    epsilon: float
    delta: float = 0.0
    adjacency: Adjacency = "zero-out"

    def __post_init__(self) -> None:
        if not (isinstance(self.epsilon, (int, float)) and 0.0 < self.epsilon < math.inf):
            raise BadParameterError(f"epsilon={short(self.epsilon)} must be a positive finite number, e.g. 1.0")
        if not (isinstance(self.delta, (int, float)) and 0.0 <= self.delta < 1.0):
            raise BadParameterError(
                f"delta={short(self.delta)} must be in (0, 1), well below one over the number of rows, e.g. 1e-6"
            )
        check_adjacency(self.adjacency)

    @property
    def mu(self) -> float:
        """The exact mu of Gaussian differential privacy that spends this budget."""
        if self.delta <= 0.0:
            raise BadParameterError(
                f"delta={short(self.delta)} must be in (0, 1): Gaussian noise has no pure epsilon guarantee; "
                "pass e.g. delta=1e-6"
            )
        return gaussian.mu_of(self.epsilon, self.delta)

    @property
    def gram_sensitivity(self) -> float:
        """Sensitivity of the Gram matrix to one row, in Frobenius norm (rows in the unit ball)."""
        return GRAM_SENSITIVITY[self.adjacency]

    def sensitivity(self, *, center: bool) -> float:
        """`gram_sensitivity`; with ``center``, of the Gram matrix and the weighted sum of rows (`linalg.centering`)."""
        alone = self.gram_sensitivity
        return alone * joint_factor(replace=self.adjacency == "replace") if center else alone
