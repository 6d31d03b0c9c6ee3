"""Base classes of matrix factorizations: the public configuration, and the running noise.

A lower-triangular matrix mechanism releases ``A x + B z``, where ``A`` is the workload (for prefix sums the all-ones
lower triangle), ``A = B C``, ``z`` is standard Gaussian and each column of ``C`` times the sensitivity has norm at most
mu. A change of row j of the input by ``D`` (norm at most the sensitivity) is absorbed by shifting z by ``C e_j D``,
which does not change earlier outputs. So the whole sequence is mu-GDP, also when later inputs depend on earlier outputs
(Denisov, McMahan, Rush, Smith and Thakurta 2022, Theorem 2.1).

*Causal form.* Sum n uses exactly one fresh vector, z_n, drawn when input n is complete; B and C are lower triangular in
n. Two continuations of one prefix share the z up to the fork and have independent ones after it. Input j is then
absorbed by shifting the shared z by its part of ``C e_j D`` and the z of each continuation by the rest of their own
column: at most sqrt(2) mu for both together, and sqrt(W) mu for W continuations.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from streampca.errors import BadParameterError, HorizonReachedError, UsageError
from streampca.linalg.lazy import cached_property
from streampca.linalg.types import FloatArray, IntArray
from streampca.privacy.outlet import NoiseSource
from streampca.privacy.randomness import Draws
from streampca.state import State

#: The theorem of the guarantee, cited.
DMRST22 = "Denisov, McMahan, Rush, Smith, Thakurta, NeurIPS 2022, Theorem 2.1"
#: Number of values that are computed together.
_CHUNK = 512
#: Number of chunks kept.
_MOST_CHUNKS = 64
#: Largest horizon, window and memory.
LONGEST = 2**56


class MatrixFactorization(ABC):
    """The public configuration of a matrix factorization."""

    mu: float  # Gaussian-DP parameter of the whole output sequence
    sensitivity: float  # bound on the norm by which one input may change
    horizon: int | None  # number of inputs that the noise is calibrated for; None if endless

    @abstractmethod
    def std(self, n: int) -> float:
        """Exact standard deviation of each coordinate of the noise in sum n (n >= 1)."""

    @cached_property
    def std_chunks(self) -> InChunks:
        return InChunks(self.stds, self.horizon)

    def stds(self, sums: IntArray) -> FloatArray:
        return np.array([self.std(n) for n in sums.tolist()])

    @abstractmethod
    def constants(self) -> tuple[object, ...]:
        """Return every number that the noise depends on."""

    @abstractmethod
    def start(self, size: int, source: NoiseSource | None = None) -> RunningNoise:
        """Return the noise before the first sum of ``size`` coordinates; ``source`` draws vectors a second time."""

    def workload(self, n: int) -> FloatArray:
        """Return A (n, n), the dense workload. The default is that of prefix sums. For tests."""
        return np.tril(np.ones((n, n)))

    @abstractmethod
    def reconstruction(self, n: int) -> FloatArray:
        """Return B (n, m), dense: the noise of sums 1..n is B z with z standard normal. For tests and audits."""

    def difference(self, a: int, b: int) -> FloatArray:
        """Return R_b - R_a, rows of B, for 0 <= a < b: the noise of sum b less that of sum a is this vector times z."""
        self._check(b)
        decoder = self.reconstruction(b)
        out: FloatArray = decoder[b - 1] - (decoder[a - 1] if a else 0.0)
        return out

    def difference_std(self, a: int, b: int) -> float:
        """Exact standard deviation of each coordinate of the noise of sum b less that of sum a, 0 <= a < b."""
        return math.sqrt(math.fsum(np.square(self.difference(a, b)).tolist()))

    def products(self, inputs: IntArray, n: int) -> FloatArray:
        """Return the products of the columns ``inputs``, each at most n, of the strategy C with column n, (len,)."""
        # In units of the largest squared norm of a column; at least the exact values, which are not negative. They are
        # the price of several rows of one person (`streampca.rows.people`).
        raise UsageError(f"unit: no products of columns are known for {type(self).__name__}. Use noise=BLT()")

    def _check(self, n: int) -> None:
        if n < 1 or (self.horizon is not None and n > self.horizon):
            raise BadParameterError("n", n, f"a sum from 1 to the horizon, {self.horizon}")


class RunningNoise(State, ABC):
    """The noise after n sums: an immutable value. Curator only, because it reveals the sums."""

    __slots__ = ()

    n: int
    noise: FloatArray  # of the latest sum, (size,), read-only by convention; zeros before the first

    @abstractmethod
    def advance(self, draws: Draws) -> Self:
        """Return the noise after one more sum, with its fresh vector; `HorizonReachedError` after the last sum."""


@dataclass(eq=False)
class InChunks:
    """A function of 1..last (None if endless), 512 values at a time from aligned starts, which fixes their bits."""

    make: Callable[[IntArray], FloatArray]  # returns the values at an array of numbers
    last: int | None
    # The first n of the latest chunk, and its values. One tuple, so that threads read a consistent pair.
    latest: tuple[int, Sequence[float]] = (1, ())
    # Chunks by their first n: streams of a fleet are at different places.
    chunks: dict[int, Sequence[float]] = field(default_factory=dict)

    def at(self, n: int) -> float:
        first, values = self.latest
        if not 0 <= n - first < len(values):
            first = (n - 1) // _CHUNK * _CHUNK + 1
            values = self.chunks.get(first, ())
            if not values:
                end = first + _CHUNK if self.last is None else min(first + _CHUNK, self.last + 1)
                values = self.make(np.arange(first, end)).tolist()
                if len(self.chunks) >= _MOST_CHUNKS:
                    self.chunks.clear()
                self.chunks[first] = values
            self.latest = first, values
        return values[n - first]


def next_sum(n: int, horizon: int | None) -> int:
    """Return the number of the sum after sum n, or raise `HorizonReachedError`."""
    if horizon is not None and n >= horizon:
        # The noise is calibrated for the horizon, so no further sum has a guarantee.
        raise HorizonReachedError(f"the horizon of {horizon} sums is reached")
    return n + 1
