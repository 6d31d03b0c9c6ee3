"""The binary tree mechanism with exact discrete noise at every node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.memory import Array
from streampca.matrix_factorization.base import next_sum
from streampca.matrix_factorization.tree import BinaryTree, Node, node_names, nodes_again
from streampca.privacy.discrete_gaussian import DiscreteGaussian
from streampca.privacy.exact import UNIT_BITS, gram_noise, lattice_sigma
from streampca.privacy.outlet import NoiseSource
from streampca.privacy.randomness import Draws


@dataclass(frozen=True)
class ExactTree(BinaryTree):
    """`BinaryTree` for running Gram matrices, in integers from end to end.

    Every dyadic block of rows is released with discrete Gaussian noise of its own on
    the lattice of the Gram matrix; a prefix is a sum of those integers.

    Notes
    -----
    Privacy: as for `BinaryTree`. A row is in at most L = bit_length(T) nodes, each of them mu/sqrt(L)-GDP with
    continuous noise; with discrete noise of `privacy.exact.lattice_sigma` every probability of
    the whole transcript is that of a post-processing of the continuous
    tree at a mu smaller by a relative 5e-10, up to a factor 1 +- 1e-190, which that
    difference pays for (`privacy.discrete_gaussian`). So the sequence meets the same
    (epsilon, delta), for adaptive rows too, with no floating-point gap.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.topped_up:
            raise BadParameter("topped_up=True is not available with exact noise")
        lattice_sigma(super().node_std)

    @property
    def node_std(self) -> float:
        """Sd of the noise of one node on the diagonal, as drawn."""
        return lattice_sigma(super().node_std) * 2.0**-UNIT_BITS

    def begin(self, n_features: int) -> ExactTreeNoise:
        """The integer noise before the first Gram matrix of so many features."""
        sampler = gram_noise(super().node_std, n_features)
        size = n_features * (n_features + 1) // 2
        return ExactTreeNoise(self, sampler, 0, (), np.zeros(size, dtype=np.int64))

    def restore_exact(self, n_features: int, snapshot: Mapping[str, Any], source: NoiseSource) -> ExactTreeNoise:
        """The integer noise of a snapshot: the nodes in use are drawn again."""
        noise = self.begin(n_features)
        for n, draws in nodes_again(snapshot, source):
            noise = noise.with_node(n, draws)
        return noise


class ExactTreeNoise:
    """Integer noise of an `ExactTree`, in units of 2**-40 of unscaled entries: an immutable value. Curator only.

    Parameters
    ----------
    mechanism : the configuration.
    sampler : of the noise of a node.
    n : sums so far.
    nodes : whose noise is in the latest sum, the largest first.
    noise : of the latest sum, (size,) integers.
    """

    __slots__ = ("mechanism", "n", "nodes", "noise", "sampler")

    def __init__(
        self, mechanism: ExactTree, sampler: DiscreteGaussian, n: int, nodes: tuple[Node, ...], noise: Array
    ) -> None:
        self.mechanism, self.sampler, self.n, self.nodes, self.noise = mechanism, sampler, n, nodes, noise

    def advance(self, draws: Draws) -> ExactTreeNoise:
        """The noise after one sum more; `HorizonReached` if it is calibrated for no more."""
        return self.with_node(next_sum(self.n, self.mechanism.horizon), draws)

    def with_node(self, n: int, draws: Draws) -> ExactTreeNoise:
        """The noise of sum n, with the node that ends there; the larger ones of that sum are among those in use."""
        kept = self.nodes[: n.bit_count() - 1]
        noise = self.sampler.draw(draws)
        if kept:
            noise += kept[-1].sum
        return ExactTreeNoise(self.mechanism, self.sampler, n, (*kept, Node(draws.n, draws.name, noise)), noise)

    def snapshot(self) -> dict[str, Any]:
        """The step, and the names of the nodes in use."""
        return {"n": self.n, **node_names(self.nodes)}
