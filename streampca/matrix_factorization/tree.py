"""The binary tree mechanism, calibrated exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import MatrixFactorization, RunningNoise, next_sum
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
        worth, as DTTZ14 Algorithm 4, line 6, does. Post-processing: it buys an even
        noise level, not privacy.

    Notes
    -----
    Privacy: the first input is in L = bit_length(T) published blocks and no other input
    is in more, so nodes of sd sqrt(L) sensitivity / mu make the sequence mu-GDP per
    input (Dwork, Naor, Pitassi and Rothblum 2010; Chan, Shi and Song 2011; exact
    Gaussian calibration instead of DTTZ14's 50 log**3(m/delta)/epsilon**2). Adaptive inputs are covered.

    One node that is ever used ends at each input: the block of the last 2**l inputs, with 2**l the largest
    power of two that divides n. Its noise is drawn there, so the mechanism is causal.

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
        """Sd of the noise of one node."""
        return math.sqrt(self.levels) * self.sensitivity / self.mu

    def constants(self) -> tuple[object, ...]:
        """Sd of a node, how many nodes' worth a prefix carries at most, and whether it always does."""
        return self.node_std, self.levels, self.topped_up

    def top_up_std(self, n: int) -> float:
        """Sd of the fresh noise that is added to prefix n."""
        return self.node_std * math.sqrt(self.levels - n.bit_count()) if self.topped_up else 0.0

    def std(self, n: int) -> float:
        """Exact sd of the noise in the sum of the first n inputs."""
        self._check(n)
        return self.node_std * math.sqrt(self.levels if self.topped_up else int(n).bit_count())

    def decoder(self, n: int) -> FloatArray:
        """Dense B (n, m): a column for the node that ends at each input; topped up, a second one each. For tests."""
        self._check(n)
        matrix = np.zeros((n, n))
        for t in range(1, n + 1):
            matrix[t - 1, [end - 1 for end in _ends(t)]] = self.node_std
        if self.topped_up:
            matrix = np.hstack([matrix, np.diag([self.top_up_std(t) for t in range(1, n + 1)])])
        return matrix

    def encoder(self, n: int) -> FloatArray:
        """Dense C (m, n). For tests."""
        self._check(n)
        matrix = np.zeros((2 * n if self.topped_up else n, n))
        for t in range(1, n + 1):
            matrix[t - 1, t & (t - 1) : t] = 1.0 / self.node_std
        return matrix

    def start(self, size: int, source: NoiseSource | None = None) -> TreeNoise:
        """The noise before the first sum."""
        return TreeNoise(self, 0, (), np.zeros(size))

    def restore(self, size: int, snapshot: Mapping[str, Any], source: NoiseSource) -> TreeNoise:
        """The noise of a snapshot: the nodes in use are drawn again."""
        noise = self.start(size)
        for n, draws in nodes_again(snapshot, source):
            noise = noise.with_node(n, draws)
        return noise


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

    def __init__(self, mechanism: BinaryTree, n: int, nodes: tuple[Node, ...], noise: FloatArray) -> None:
        self.mechanism, self.n, self.nodes, self.noise = mechanism, n, nodes, noise

    def advance(self, draws: Draws) -> TreeNoise:
        """The noise after one sum more."""
        return self.with_node(next_sum(self.n, self.mechanism.horizon), draws)

    def with_node(self, n: int, draws: Draws) -> TreeNoise:
        """The noise of sum n, with the node that ends there; the larger ones of that sum are among those in use."""
        mechanism, size = self.mechanism, self.noise.size
        kept = self.nodes[: n.bit_count() - 1]
        drawn = draws.normal(2 * size if mechanism.topped_up else size)
        noise = drawn[:size] * mechanism.node_std
        if kept:
            noise += kept[-1].sum
        nodes = (*kept, Node(draws.n, draws.name, noise))
        if mechanism.topped_up:
            noise = noise + drawn[size:] * mechanism.top_up_std(n)
        return TreeNoise(mechanism, n, nodes, noise)

    def snapshot(self) -> dict[str, Any]:
        """The step, and the names of the nodes in use."""
        return {"n": self.n, **node_names(self.nodes)}


def node_names(nodes: tuple[Node, ...]) -> dict[str, npt.NDArray[Any]]:
    """What a snapshot says of nodes in use."""
    names = np.frombuffer(b"".join(node.name for node in nodes), dtype=np.uint8)
    return {"draws": np.array([node.n for node in nodes], dtype=np.int64), "names": names.reshape(-1, NAME_BYTES)}


def nodes_again(snapshot: Mapping[str, Any], source: NoiseSource) -> Iterator[tuple[int, Draws]]:
    """Where each node of a snapshot ends, and its vector, drawn again; the largest first."""
    for n, draw, name in zip(reversed(_ends(int(snapshot["n"]))), snapshot["draws"], snapshot["names"], strict=True):
        yield n, source.draws(int(draw), bytes(name))


def _ends(n: int) -> list[int]:
    """Where the nodes end whose sum is prefix n, the smallest node first."""
    ends = []
    while n:
        ends.append(n)
        n &= n - 1
    return ends
