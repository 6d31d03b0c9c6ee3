"""The binary tree mechanism with exact discrete noise at every node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streampca.errors import BadParameter, HorizonReached
from streampca.linalg.types import IntArray
from streampca.prefix_sums.tree import BinaryTree
from streampca.privacy.discrete_gaussian import DiscreteGaussian
from streampca.privacy.exact import UNIT_BITS, gram_noise, lattice_sigma
from streampca.privacy.randomness import NoiseStream

_LEVEL_BITS = 57


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

    def begin(self, n_features: int, noise: NoiseStream) -> ExactTreeNoise:
        """A fresh noise sequence for running Gram matrices of so many features."""
        return ExactTreeNoise(self, gram_noise(super().node_std, n_features), noise)


class ExactTreeNoise:
    """Running noise of an `ExactTree`: integers, in units of 2**-40 of unscaled entries. Curator only."""

    def __init__(self, mechanism: ExactTree, sampler: DiscreteGaussian, noise: NoiseStream) -> None:
        self.n = 0
        self._horizon = mechanism.horizon
        self._sampler = sampler
        self._noise = noise
        # The partial sums of the current prefix, from the largest node down, with their levels.
        self._sums: list[tuple[int, IntArray]] = []

    def advance(self) -> IntArray:
        """The noise of the next prefix sum."""
        if self.n >= self._horizon:
            raise HorizonReached(f"the horizon of {self._horizon} sums is reached: the noise is calibrated for no more")
        n = self.n + 1
        lowest = (n & -n).bit_length() - 1
        while self._sums and self._sums[-1][0] < lowest:
            self._sums.pop()
        self._push(lowest, n >> lowest)
        self.n = n
        return self._sums[-1][1]

    def _push(self, level: int, index: int) -> None:
        node = self._sampler.draw(self._noise, level << _LEVEL_BITS | index)
        if self._sums:
            node += self._sums[-1][1]
        self._sums.append((level, node))

    def state(self) -> dict[str, Any]:
        """The step alone: the nodes are addressed by the key."""
        return {"n": self.n}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        n = int(state["n"])
        self._sums = []
        for level in reversed(range(n.bit_length())):
            if n >> level & 1:
                self._push(level, n >> level)
        self.n = n
