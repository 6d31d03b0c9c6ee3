"""What the user is ready to spend."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from streampca.errors import BadParameter
from streampca.privacy import gaussian

Adjacency = Literal["zero-out", "replace"]

#: Sensitivity of a row's outer product in Frobenius norm, rows in the unit ball.
GRAM_SENSITIVITY: dict[str, float] = {"zero-out": 1.0, "replace": math.sqrt(2.0)}


def check_adjacency(adjacency: str) -> None:
    """Raise `BadParameter` unless the adjacency is one that streampca knows."""
    if adjacency not in GRAM_SENSITIVITY:
        raise BadParameter(
            f"adjacency={adjacency!r} is not known; use 'zero-out' (one row against the zero row) "
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

    Raises
    ------
    BadParameter
        If a value is outside its domain.
    """

    epsilon: float
    delta: float = 0.0
    adjacency: Adjacency = "zero-out"

    def __post_init__(self) -> None:
        if not (isinstance(self.epsilon, (int, float)) and 0.0 < self.epsilon < math.inf):
            raise BadParameter(f"epsilon={self.epsilon!r} must be a positive finite number, e.g. 1.0")
        if not (isinstance(self.delta, (int, float)) and 0.0 <= self.delta < 1.0):
            raise BadParameter(
                f"delta={self.delta!r} must be in (0, 1), well below one over the number of rows, e.g. 1e-6"
            )
        check_adjacency(self.adjacency)

    @property
    def mu(self) -> float:
        """The exact mu of Gaussian differential privacy that spends this budget."""
        if self.delta <= 0.0:
            raise BadParameter(
                f"delta={self.delta!r} must be in (0, 1): Gaussian noise has no pure epsilon guarantee; "
                "pass e.g. delta=1e-6"
            )
        return gaussian.mu_of(self.epsilon, self.delta)

    @property
    def gram_sensitivity(self) -> float:
        """How far one row moves the Gram matrix, in Frobenius norm (rows in the unit ball)."""
        return GRAM_SENSITIVITY[self.adjacency]
