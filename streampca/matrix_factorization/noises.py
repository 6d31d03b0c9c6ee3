"""Noise of `PrivateFPL`: the matrix factorization by which the running sums are released."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from streampca.linalg.counts import use_plain_numbers
from streampca.linalg.lattice import GramSum
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.base import MatrixFactorization
from streampca.matrix_factorization.blt import AnytimeBLT, GeometricBLT
from streampca.matrix_factorization.tree import BinaryTree, ExactTree
from streampca.privacy.discrete_gaussian import LatticeGram
from streampca.privacy.outlet import Exact


class Noise(ABC):
    """A family of matrix factorizations. To add one, subclass this as a frozen dataclass.

    It is part of the trusted code: columns of the strategy C times the sensitivity must have norm at most mu, and B C
    must be the matrix of prefix sums (`matrix_factorization.base`).
    """

    citation: ClassVar[str]
    #: Whether the standard deviation varies slowly with n, which the regret bound needs.
    smooth: ClassVar[bool] = False
    remark: str = ""  #: addition to the theorem of the guarantee
    #: Converts an exact Gram matrix to the arithmetic of the noise; None for floating point.
    arithmetic: Callable[[GramSum], Exact[FloatArray]] | None = None
    #: Options of `PrivateFPL` that it does not support.
    unsupported: frozenset[str] = frozenset()

    @abstractmethod
    def mechanism(self, leaves: int | None, mu: float, sensitivity: float) -> MatrixFactorization:
        """Return the factorization for a number of releases; None for an endless stream."""


@dataclass(frozen=True)
class BLT(Noise):
    """Buffered linear Toeplitz noise: the least noise known for prefix sums, with or without a horizon."""

    citation: ClassVar[str] = "Dvijotham, McMahan, Pillutla, Steinke, Thakurta, FOCS 2024 (buffered linear Toeplitz)"
    smooth: ClassVar[bool] = True

    def mechanism(self, leaves: int | None, mu: float, sensitivity: float) -> MatrixFactorization:
        return AnytimeBLT(mu, sensitivity) if leaves is None else GeometricBLT(leaves, mu, sensitivity)


@dataclass(frozen=True)
class Tree(Noise):
    """The binary tree of the paper, exactly calibrated. It needs a horizon.

    Parameters
    ----------
    discrete : integer arithmetic throughout, with exact discrete Gaussian noise of the same level, so that the
        guarantee holds without floating-point error (`privacy.discrete_gaussian`).
    """

    citation: ClassVar[str] = "Dwork, Naor, Pitassi, Rothblum, STOC 2010; Chan, Shi, Song, ICALP 2010 (binary tree)"
    unsupported = frozenset({"horizon=None", "solver=Smoothed()"})

    discrete: bool = False

    def __post_init__(self) -> None:
        use_plain_numbers(self)
        if self.discrete:
            object.__setattr__(self, "remark", "; exact discrete Gaussian noise on integers")
            object.__setattr__(self, "arithmetic", LatticeGram)
            # Integer noise is drawn node by node, without rewards.
            object.__setattr__(self, "unsupported", self.unsupported | {"publish_regret=True"})

    def mechanism(self, leaves: int | None, mu: float, sensitivity: float) -> MatrixFactorization:
        assert leaves is not None, "an endless stream is refused"
        return (ExactTree if self.discrete else BinaryTree)(leaves, mu, sensitivity)


#: Factorizations of running sums by name, as `Terms.run` holds them.
FACTORIZATIONS = {kind.__name__: kind for kind in (GeometricBLT, AnytimeBLT, BinaryTree, ExactTree)}
#: Strings that are short for a noise.
NOISES: dict[str, type[Noise]] = {"blt": BLT, "tree": Tree}
