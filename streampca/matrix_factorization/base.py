"""Base classes of matrix factorizations: the public configuration, and the running noise.

A lower-triangular matrix mechanism releases ``A x + B z`` where ``A`` is the
workload (for prefix sums the all-ones lower triangle), ``A = B C``, ``z`` is standard
Gaussian and each column of ``C`` times the sensitivity has norm at most mu. Changing row j of
the input by ``D`` (norm at most the sensitivity) is absorbed by shifting z by
``C e_j D``, which does not change earlier outputs; so the whole sequence
is mu-GDP, also when later inputs depend on earlier outputs (Denisov, McMahan,
Rush, Smith and Thakurta 2022, Theorem 2.1).

*Causal form.* Sum n takes exactly one fresh vector, z_n, drawn when input n is
complete; B and C are lower triangular in n. Two continuations of one prefix share
the z up to the fork and have independent ones after it. Input j is then absorbed
by shifting the shared z by its part of ``C e_j D`` and the z of each continuation
by the rest of their own column: at most sqrt(2) mu for both together, and
sqrt(W) mu for W continuations.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Self, TypeVar

import numpy as np

from streampca.errors import BadParameterError, HorizonReachedError
from streampca.linalg.lazy import cached_property
from streampca.linalg.types import FloatArray
from streampca.privacy.outlet import Exact, NoiseSource
from streampca.privacy.randomness import Draws
from streampca.state import State

#: Values that are computed together.
_CHUNK = 64

Value = TypeVar("Value")


class MatrixFactorization(ABC):
    """The public configuration of a matrix factorization.

    Attributes
    ----------
    mu : Gaussian-DP parameter of the whole output sequence.
    sensitivity : bound on the norm by which one input may change.
    horizon : number of inputs that the noise is calibrated for; None if endless.
    """

    mu: float
    sensitivity: float
    horizon: int | None

    @abstractmethod
    def std(self, n: int) -> float:
        """Exact standard deviation of each coordinate of the noise in the sum of the first n inputs (n >= 1)."""

    @cached_property
    def std_chunks(self) -> InChunks:
        """`std`, for sums that are read in order."""
        return InChunks(self.stds, self.horizon)

    def stds(self, first: int, last: int) -> FloatArray:
        """`std` of the sums first..last."""
        return np.array([self.std(n) for n in range(first, last + 1)])

    @abstractmethod
    def constants(self) -> tuple[object, ...]:
        """Every number that the noise depends on."""

    @abstractmethod
    def start(self, size: int, source: NoiseSource | None = None) -> RunningNoise:
        """The noise before the first sum.

        Parameters
        ----------
        size : coordinates of an input.
        source : the keys; needed only by mechanisms that draw a vector a second time.
        """

    def workload(self, n: int) -> FloatArray:
        """Dense A (n, n), the workload: prefix sums, unless overridden. For tests."""
        return np.tril(np.ones((n, n)))

    @abstractmethod
    def reconstruction(self, n: int) -> FloatArray:
        """Dense B (n, m): the noise of sums 1..n is B z with z standard normal. For tests."""

    @abstractmethod
    def strategy(self, n: int) -> FloatArray:
        """Dense C (m, n) with B C = A; columns times sensitivity have norm <= mu. For tests."""

    def _validate(self) -> None:
        for name, value in (("mu", self.mu), ("sensitivity", self.sensitivity)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 < value < math.inf:
                raise BadParameterError(f"{name}={value!r} must be a positive finite number")
        if self.horizon is not None:
            check_length("horizon", self.horizon)

    def _check(self, n: int) -> None:
        if n < 1:
            raise BadParameterError(f"n={n} must be at least 1: the sum of no inputs is not released")
        if self.horizon is not None and n > self.horizon:
            raise BadParameterError(f"n={n} is past the horizon of {self.horizon} inputs")


class RunningNoise(State, ABC):
    """The noise after n sums: an immutable value. Curator only, since it reveals the sums.

    Attributes
    ----------
    n : sums noised so far.
    noise : noise of the latest sum, (size,), not to be written to; zeros before the first.
    """

    __slots__ = ()

    n: int
    noise: FloatArray

    @abstractmethod
    def advance(self, draws: Draws) -> Self:
        """The noise after one sum more, with the fresh vector of that sum.

        Raises
        ------
        HorizonReachedError
            If the noise is calibrated for no more sums.
        """

    def released(self, draws: Draws, exact: Exact[Value], std: float) -> tuple[Self, Value]:
        """`advance`, and an exact sum with the noise after it (`Exact.noisy`)."""
        after = self.advance(draws)
        return after, exact.noisy(after.noise, std)


class InChunks:
    """A function of 1..last (or of every n), computed 64 values at a time from aligned starts, which fixes their bits.

    Parameters
    ----------
    make : gives the values at first..last.
    last : None if endless.

    Attributes
    ----------
    latest : the first n of the latest chunk, and its values; one tuple, so that threads read a consistent pair.
    """

    def __init__(self, make: Callable[[int, int], FloatArray], last: int | None) -> None:
        self._make, self._last = make, last
        self.latest: tuple[int, list[float]] = (1, [])

    def at(self, n: int) -> float:
        """The value at n."""
        first, values = self.latest
        if not 0 <= n - first < len(values):
            first = (n - 1) // _CHUNK * _CHUNK + 1
            last = first + _CHUNK - 1
            values = self._make(first, last if self._last is None else min(last, self._last)).tolist()
            self.latest = first, values
        return values[n - first]


def next_sum(n: int, horizon: int | None) -> int:
    """The number of the sum after sum n; raises `HorizonReachedError` if there is none."""
    if horizon is not None and n >= horizon:
        raise past_horizon(horizon)
    return n + 1


def past_horizon(horizon: int) -> HorizonReachedError:
    """The error for a sum beyond the horizon."""
    return HorizonReachedError(f"the horizon of {horizon} sums is reached: the noise is calibrated for no more")


def check_length(name: str, value: object) -> None:
    """Raise `BadParameterError` unless the value is an integer from 1 to 2**56."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 1 <= value <= 2**56:
        raise BadParameterError(f"{name}={value!r} must be an integer from 1 to 2**56")
