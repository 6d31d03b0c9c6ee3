"""What every prefix-sum mechanism is: public calibration, and a running noise.

A lower-triangular matrix mechanism releases ``A x + B z`` where ``A`` is the
all-ones lower triangle, ``A = B C``, ``z`` is standard Gaussian and each
column of ``C`` times the sensitivity has norm at most mu. Changing row j of
the input by ``D`` (norm at most the sensitivity) is absorbed by shifting z by
``C e_j D``, which leaves every earlier output unchanged; so the whole sequence
is mu-GDP, also when later inputs depend on earlier outputs (Denisov, McMahan,
Rush, Smith and Thakurta 2022, Theorem 2.1).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from streampca.errors import BadParameter, HorizonReached
from streampca.linalg.types import FloatArray
from streampca.privacy.randomness import NoiseStream


class PrefixSum(ABC):
    """The public configuration of a prefix-sum mechanism.

    Attributes
    ----------
    mu : Gaussian-DP parameter of the whole output sequence.
    sensitivity : bound on the norm by which one input may change.
    horizon : number of inputs it is calibrated for; None if endless.
    """

    mu: float
    sensitivity: float
    horizon: int | None

    @abstractmethod
    def std(self, n: int) -> float:
        """Exact sd of each coordinate of the noise in the sum of the first n inputs (n >= 1)."""

    def stds(self, n: int) -> FloatArray:
        """`std` of the sums 1..n, (n,)."""
        self._check(n)
        return np.array([self.std(i) for i in range(1, n + 1)])

    def workload(self, n: int) -> FloatArray:
        """Dense A (n, n): what sums are released. Prefix sums, unless the mechanism says otherwise. For tests."""
        return np.tril(np.ones((n, n)))

    @abstractmethod
    def decoder(self, n: int) -> FloatArray:
        """Dense B (n, m): the noise of sums 1..n is B z with z standard normal. For tests."""

    @abstractmethod
    def encoder(self, n: int) -> FloatArray:
        """Dense C (m, n) with B C = A; columns times sensitivity have norm <= mu. For tests."""

    @abstractmethod
    def start(self, size: int, noise: NoiseStream) -> RunningNoise:
        """A fresh noise sequence for sums of vectors of ``size`` coordinates."""

    def _validate(self) -> None:
        for name, value in (("mu", self.mu), ("sensitivity", self.sensitivity)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value < math.inf:
                raise BadParameter(f"{name}={value!r} must be a positive finite number")
        if self.horizon is not None:
            check_length("horizon", self.horizon)

    def _check(self, n: int) -> None:
        if n < 1:
            raise BadParameter(f"n={n} must be at least 1: there is no sum of no inputs")
        if self.horizon is not None and n > self.horizon:
            raise BadParameter(f"n={n} is past the horizon of {self.horizon} inputs")


class RunningNoise(ABC):
    """The noise of successive prefix sums. Curator only: it reveals the sums."""

    #: Sums noised so far.
    n: int

    @abstractmethod
    def advance(self) -> FloatArray:
        """The noise of the next prefix sum, (size,). Read it before the next call; do not write to it."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues the sequence, bit for bit."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""

    def _next(self, horizon: int | None) -> int:
        """The number of the sum to be noised next; raises before anything changes."""
        if horizon is not None and self.n >= horizon:
            raise HorizonReached(f"the horizon of {horizon} sums is reached: the noise is calibrated for no more")
        return self.n + 1


def check_length(name: str, value: object) -> None:
    """Raise `BadParameter` unless the value is a number of inputs that can be counted: 1 to 2**56."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 1 <= value <= 2**56:
        raise BadParameter(f"{name}={value!r} must be an integer from 1 to 2**56")


class RunningSum:
    """Private running sums of vectors: the plain use of a prefix-sum mechanism.

    Parameters
    ----------
    mechanism : calibrated configuration.
    size : length of each input.
    noise : where the randomness comes from.

    Notes
    -----
    The caller vouches for the sensitivity of what it adds.
    """

    def __init__(self, mechanism: PrefixSum, size: int, noise: NoiseStream) -> None:
        self._running = mechanism.start(size, noise)
        self._sum = np.zeros(size)

    def add(self, values: FloatArray) -> FloatArray:
        """Add one input, (size,), and return the noisy sum of all so far."""
        self._sum += values
        return self._sum + self._running.advance()
