"""The binary tree mechanism, calibrated exactly; with continuous or with discrete noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streampca.errors import BadParameterError
from streampca.linalg.lattice import UNIT_BITS
from streampca.linalg.memory import Array
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import MatrixFactorization, RunningNoise, next_sum
from streampca.privacy.discrete_gaussian import DiscreteGaussian, gram_noise, lattice_sigma
from streampca.privacy.outlet import NoiseSource
from streampca.privacy.randomness import NAME_BYTES, Draws


@dataclass(frozen=True)
class BinaryTree(MatrixFactorization):
    """Binary tree mechanism: a prefix sum is the sum of popcount(n) noised dyadic blocks.

    Parameters
    ----------
    horizon : number of inputs, T.
    mu : Gaussian-DP parameter of the whole sequence.
    sensitivity : bound on the norm by which one input may change.
    topped_up : add fresh noise so that every prefix carries bit_length(T) nodes'
        worth, as DTTZ14 Algorithm 4, line 6, does. Post-processing: it makes the noise
        level even and adds no privacy.

    Notes
    -----
    Privacy: the first input is in L = bit_length(T) published blocks and no other input
    is in more, so nodes of standard deviation sqrt(L) sensitivity / mu make the sequence mu-GDP per
    input (Dwork, Naor, Pitassi and Rothblum 2010; Chan, Shi and Song 2011; exact
    Gaussian calibration instead of DTTZ14's 50 log**3(m/delta)/epsilon**2). Adaptive inputs are covered.

    Of the nodes that are used, exactly one ends at input n: the block of the last 2**l inputs, with 2**l the largest
    power of two that divides n. Its noise is drawn then, so the mechanism is causal.

    Noise at mu = 1, max over t: sqrt(L * L) less one: 8.49 for 2**8 inputs, 14.49 for 2**14.
    """

    horizon: int
    mu: float
    sensitivity: float = 1.0
    topped_up: bool = False

    def __post_init__(self) -> None:
        self._validate()

    @property
    def levels(self) -> int:
        """L: how many nodes an input is in at most."""
        return int(self.horizon).bit_length()

    @property
    def node_std(self) -> float:
        """Standard deviation of the noise of one node."""
        return math.sqrt(self.levels) * self.sensitivity / self.mu

    def constants(self) -> tuple[object, ...]:
        """Standard deviation of a node, the most nodes in a prefix, and whether every prefix has noise of as many."""
        return self.node_std, self.levels, self.topped_up

    def top_up_std(self, n: int) -> float:
        """Standard deviation of the fresh noise that tops up prefix n."""
        return self.node_std * math.sqrt(self.levels - n.bit_count())

    def std(self, n: int) -> float:
        """Exact standard deviation of the noise in the sum of the first n inputs."""
        self._check(n)
        return self.node_std * math.sqrt(self.levels if self.topped_up else int(n).bit_count())

    def reconstruction(self, n: int) -> FloatArray:
        """Dense B (n, m): a column for the node that ends at each input; topped up, a second one each. For tests."""
        self._check(n)
        matrix = np.zeros((n, n))
        for t in range(1, n + 1):
            matrix[t - 1, [end - 1 for end in _ends(t)]] = self.node_std
        if self.topped_up:
            matrix = np.hstack([matrix, np.diag([self.top_up_std(t) for t in range(1, n + 1)])])
        return matrix

    def strategy(self, n: int) -> FloatArray:
        """Dense C (m, n). For tests."""
        self._check(n)
        matrix = np.zeros((2 * n if self.topped_up else n, n))
        for t in range(1, n + 1):
            matrix[t - 1, t & (t - 1) : t] = 1.0 / self.node_std
        return matrix

    def start(self, size: int, source: NoiseSource | None = None) -> TreeNoise:
        """The noise before the first sum."""
        return TreeNoise(self, 0, (), np.zeros(size))


class Node(NamedTuple):
    """A node in use: the number and the name of its vector, and the sum of it and all larger nodes in use."""

    n: int
    name: bytes
    sum: npt.NDArray[Any]


class TreeNoise(RunningNoise):
    """Noise of a `BinaryTree`: an immutable value. Curator only.

    Parameters
    ----------
    mechanism : the configuration.
    n : sums so far.
    nodes : whose noise is in the latest sum, the largest first.
    noise : of the latest sum, (size,).
    """

    __slots__ = ("mechanism", "n", "nodes", "noise")
    kept = ("n", "draws", "names")

    def __init__(self, mechanism: BinaryTree, n: int, nodes: tuple[Node, ...], noise: Array) -> None:
        self.mechanism, self.n, self.nodes, self.noise = mechanism, n, nodes, noise

    def advance(self, draws: Draws) -> TreeNoise:
        """The noise after one sum more."""
        return self.with_node(next_sum(self.n, self.mechanism.horizon), draws)

    def with_node(self, n: int, draws: Draws) -> Self:
        """The noise of sum n: that of the node that ends at n, and of the larger nodes of the sum, which are in use."""
        mechanism, size = self.mechanism, self.noise.size
        kept = self.nodes[: n.bit_count() - 1]
        drawn = draws.normal(2 * size if mechanism.topped_up else size)
        noise = drawn[:size] * mechanism.node_std
        if kept:
            noise += kept[-1].sum
        nodes = (*kept, Node(draws.n, draws.name, noise))
        if mechanism.topped_up:
            noise = noise + drawn[size:] * mechanism.top_up_std(n)
        return type(self)(mechanism, n, nodes, noise)

    @property
    def draws(self) -> npt.NDArray[np.int64]:
        """The numbers of the vectors of the nodes in use."""
        return np.array([node.n for node in self.nodes], dtype=np.int64)

    @property
    def names(self) -> npt.NDArray[np.uint8]:
        """The names of the vectors of the nodes in use."""
        return np.frombuffer(b"".join(node.name for node in self.nodes), dtype=np.uint8).reshape(-1, NAME_BYTES)

    def restored(self, snapshot: Mapping[str, Any], source: Any = None) -> Self:
        """See `State.restored`: the nodes in use are drawn again."""
        snapshot = self.read(snapshot, source)
        noise, ends = self, reversed(_ends(snapshot["n"]))
        for n, draw, name in zip(ends, snapshot["draws"], snapshot["names"], strict=True):
            noise = noise.with_node(n, source.draws(int(draw), bytes(name)))
        return noise


def _ends(n: int) -> list[int]:
    """The ends of the nodes whose sum is prefix n, the smallest node first."""
    ends = []
    while n:
        ends.append(n)
        n &= n - 1
    return ends


@dataclass(frozen=True)
class ExactTree(BinaryTree):
    """`BinaryTree` for running Gram matrices, in integer arithmetic throughout.

    Every dyadic block of rows is released with discrete Gaussian noise of its own on
    the lattice of the Gram matrix; a prefix is a sum of those integers.

    Notes
    -----
    Privacy: as for `BinaryTree`. A row is in at most L = bit_length(T) nodes, each of them mu/sqrt(L)-GDP with
    continuous noise; with discrete noise of `privacy.discrete_gaussian.lattice_sigma` every probability of
    the whole transcript is that of a post-processing of the continuous
    tree at a mu smaller by a relative 5e-10, up to a factor 1 +- 1e-190, which that
    difference covers (`privacy.discrete_gaussian`). So the sequence meets the same
    (epsilon, delta), for adaptive rows too, with no floating-point gap.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.topped_up:
            raise BadParameterError("topped_up=True is not available with discrete noise")
        lattice_sigma(super().node_std)

    @property
    def node_std(self) -> float:
        """Standard deviation of the noise of one node on the diagonal, as drawn."""
        return lattice_sigma(super().node_std) * 2.0**-UNIT_BITS

    def start(self, size: int, source: NoiseSource | None = None) -> ExactTreeNoise:
        """The integer noise before the first packed Gram matrix of ``size`` = d (d + 1) / 2 entries."""
        sampler = gram_noise(super().node_std, (math.isqrt(8 * size + 1) - 1) // 2)
        return ExactTreeNoise(self, sampler, 0, (), np.zeros(size, dtype=np.int64))


class ExactTreeNoise(TreeNoise):
    """Integer noise of an `ExactTree`, in units of 2**-40 of unscaled entries: an immutable value. Curator only.

    Parameters
    ----------
    sampler : of the noise of a node.
    mechanism, n, nodes, noise : as in `TreeNoise`; the noise is an array of integers.
    """

    __slots__ = ("sampler",)

    mechanism: ExactTree

    def __init__(
        self, mechanism: ExactTree, sampler: DiscreteGaussian, n: int, nodes: tuple[Node, ...], noise: Array
    ) -> None:
        super().__init__(mechanism, n, nodes, noise)
        self.sampler = sampler

    def with_node(self, n: int, draws: Draws) -> ExactTreeNoise:
        """The noise of sum n: that of the node that ends at n, and of the larger nodes of the sum, which are in use."""
        kept = self.nodes[: n.bit_count() - 1]
        noise = self.sampler.draw(draws)
        if kept:
            noise += kept[-1].sum
        return ExactTreeNoise(self.mechanism, self.sampler, n, (*kept, Node(draws.n, draws.name, noise)), noise)
