"""The binary tree mechanism, calibrated exactly; with continuous or with discrete noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from streampca.linalg.counts import check_count
from streampca.linalg.lattice import UNIT_BITS
from streampca.linalg.memory import Array
from streampca.linalg.types import FloatArray, IntArray
from streampca.matrix_factorization.base import LONGEST, MatrixFactorization, RunningNoise, next_sum
from streampca.privacy.discrete_gaussian import gram_noise, lattice_sigma
from streampca.privacy.outlet import NoiseSource
from streampca.privacy.randomness import NAME_BYTES, Draws


@dataclass(frozen=True)
class BinaryTree(MatrixFactorization):
    """Binary tree mechanism: a prefix sum is the sum of popcount(n) dyadic blocks with noise.

    *Guarantee.* With T the horizon, the first input is in L = bit_length(T) published blocks and no other input is in
    more, so nodes of standard deviation sqrt(L) sensitivity / mu make the sequence mu-GDP per input, also for inputs
    chosen adaptively (Dwork, Naor, Pitassi and Rothblum 2010; Chan, Shi and Song 2011). Exact calibration makes the
    extra noise of DTTZ14, Algorithm 4, line 6, unnecessary.

    Of the nodes in use, exactly one ends at input n: the block of the last 2**l inputs, with 2**l the largest power of
    two that divides n. Its noise is drawn at input n, so the mechanism is causal.
    """

    horizon: int
    mu: float
    sensitivity: float = 1.0
    dtype: ClassVar[type] = np.float64  # of the noise
    levels: int = field(init=False, repr=False, compare=False)  # largest number of nodes that an input is in, L
    node_std: float = field(init=False, repr=False, compare=False)  # standard deviation of the noise of one node

    def __post_init__(self) -> None:
        check_count("horizon", self.horizon, most=LONGEST)
        levels = int(self.horizon).bit_length()
        vars(self).update(levels=levels, node_std=math.sqrt(levels) * self.sensitivity / self.mu)

    def constants(self) -> tuple[object, ...]:
        # The last is no number of the noise any more, but part of the label of every seeded run.
        return self.node_std, self.levels, False

    def std(self, n: int) -> float:
        self._check(n)
        return self.node_std * math.sqrt(int(n).bit_count())

    def reconstruction(self, n: int) -> FloatArray:
        self._check(n)
        # A column for the node that ends at each input.
        matrix = np.zeros((n, n))
        for t in range(1, n + 1):
            matrix[t - 1, [end - 1 for end in _ends(t)]] = self.node_std
        return matrix

    def products(self, inputs: IntArray, n: int) -> FloatArray:
        # A node of 2**h inputs is published if its number among those of its size is even, from 0, and it is complete
        # at the horizon: of two nodes of one parent, the second is never part of a sum.
        level = np.arange(self.levels)
        own = (n - 1) >> level
        shared = ((np.asarray(inputs)[:, None] - 1) >> level) == own
        is_published = (own % 2 == 0) & ((own + 1) << level <= self.horizon)
        products: FloatArray = (shared & is_published).sum(axis=1) / self.levels
        return products

    def difference(self, a: int, b: int) -> FloatArray:
        self._check(b)
        out = np.zeros(b)
        for n, sign in ((b, self.node_std), (a, -self.node_std)):
            out[[end - 1 for end in _ends(n)]] += sign  # a node of both sums cancels
        return out

    def start(self, size: int, source: NoiseSource | None = None) -> TreeNoise:
        return TreeNoise(self, 0, (), np.zeros(size, self.dtype))

    def draw_node(self, draws: Draws, size: int) -> Array:
        """Return the noise of one node, in fresh memory."""
        return draws.normal(size) * self.node_std


class Node(NamedTuple):
    """A node in use: number and name of its vector, and the sum of its noise and that of all larger nodes in use."""

    n: int
    name: bytes
    sum: npt.NDArray[Any]


@dataclass(eq=False, repr=False, slots=True)  # the noise is as secret as the rows
class TreeNoise(RunningNoise):
    """Noise of a `BinaryTree` after n sums; ``nodes`` are those of the latest sum, the largest first."""

    kept = ("n", "draws", "names")  # numbers and names of the vectors of the nodes in use

    mechanism: BinaryTree
    n: int
    nodes: tuple[Node, ...]
    noise: Array

    def advance(self, draws: Draws) -> TreeNoise:
        return self.with_node(next_sum(self.n, self.mechanism.horizon), draws)

    def with_node(self, n: int, draws: Draws) -> Self:
        """Return the noise of sum n: that of the node that ends at n plus that of the larger nodes of the sum."""
        # The nodes of sum n are those of n without its last bit, and the one that ends at n.
        kept, noise = self.nodes[: n.bit_count() - 1], self.mechanism.draw_node(draws, self.noise.size)
        if kept:
            noise += kept[-1].sum
        return replace(self, n=n, nodes=(*kept, Node(draws.n, draws.name, noise)), noise=noise)

    @property
    def draws(self) -> npt.NDArray[np.int64]:
        return np.array([node.n for node in self.nodes], dtype=np.int64)

    @property
    def names(self) -> npt.NDArray[np.uint8]:
        return np.frombuffer(b"".join(node.name for node in self.nodes), dtype=np.uint8).reshape(-1, NAME_BYTES)

    def restored(self, snapshot: Mapping[str, Any], source: Any = None) -> Self:
        # A snapshot has the names of the nodes in use, whose noise is drawn a second time.
        snapshot = self.read(snapshot, source)
        noise, ends = self, reversed(_ends(snapshot["n"]))
        for n, draw, name in zip(ends, snapshot["draws"], snapshot["names"], strict=True):
            noise = noise.with_node(n, source.draws(int(draw), bytes(name)))
        return noise


def _ends(n: int) -> list[int]:
    """Return the ends of the nodes whose sum is prefix n, the smallest node first."""
    ends = []
    # The node that ends at n has as many inputs as the lowest bit of n; the larger ones end at n without that bit.
    while n:
        ends.append(n)
        n &= n - 1
    return ends


@dataclass(frozen=True)
class ExactTree(BinaryTree):
    """`BinaryTree` for running Gram matrices, in integer arithmetic throughout.

    Every dyadic block of rows is released with its own discrete Gaussian noise on the lattice of the Gram matrix. A
    prefix is a sum of those integers, in units of 2**-40 of unscaled entries.

    *Guarantee.* A row is in at most L = bit_length(T) nodes, each of them mu/sqrt(L)-GDP with continuous noise. With
    noise of `privacy.discrete_gaussian.lattice_sigma` every probability of the whole transcript is that of a
    post-processing of the continuous tree at a mu smaller by a relative 5e-10, up to a factor 1 +- 1e-190, which that
    difference covers. So (epsilon, delta) hold, also for adaptive rows, without floating-point error.
    """

    dtype: ClassVar[type] = np.int64
    _continuous_std: float = field(init=False, repr=False, compare=False)  # of a node, before `lattice_sigma`

    def __post_init__(self) -> None:
        super().__post_init__()
        std = self.node_std
        vars(self).update(_continuous_std=std, node_std=lattice_sigma(std) * 2.0**-UNIT_BITS)

    def draw_node(self, draws: Draws, size: int) -> Array:
        # The sampler is kept by `gram_noise`.
        return gram_noise(self._continuous_std, (math.isqrt(8 * size + 1) - 1) // 2).draw(draws)
