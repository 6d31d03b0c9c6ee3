"""Noise for Gram matrices without floating point: exact integers plus exact discrete Gaussians.

Admitted rows are multiples of 2**-20, so Gram matrices are multiples of 2**-40
and known exactly. Discrete Gaussian noise on the same lattice
(`discrete_gaussian`) makes the release an exact sample of the mechanism that the
theorem is about: there is no gap between the claim and the machine's arithmetic. Turning
the integers into floats comes after, and is post-processing.

The default noise is a float64 Gaussian, rounded to the lattice before it is added
exactly. What it does not guarantee is that the float sampler follows the normal law
to the last bit: its 52-bit uniforms miss values that a real normal has, an error of
some 2**-52 per draw, which no theorem covers but none has been able to use.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from streampca.errors import BadParameter
from streampca.linalg.lattice import BITS, GramSum
from streampca.linalg.types import FloatArray, IntArray
from streampca.privacy.discrete_gaussian import DiscreteGaussian

#: Gram matrices of admitted rows are multiples of 2**-UNIT_BITS.
UNIT_BITS = 2 * BITS
#: Sigma is enlarged by this much, which pays for everything that tells discrete from continuous noise.
INFLATION = 1 + Fraction(1, 10**9)
_LARGEST, _SMALLEST = 2.0**14, 1e-6


def lattice_sigma(std: float) -> int:
    """Sigma of diagonal entries, in units of 2**-40, that is as private as continuous noise of this sd.

    Raises
    ------
    BadParameter
        If the noise does not fit 64-bit integers, or is too fine for the lattice.
    """
    if not _SMALLEST <= std <= _LARGEST:
        raise BadParameter(
            f"exact=True with noise of sd {std:.3g}: it must be in [{_SMALLEST:g}, {_LARGEST:g}] to fit the integer "
            "lattice; choose another epsilon"
        )
    exact: Fraction = Fraction(std) * 2**UNIT_BITS * INFLATION
    return -(-exact.numerator // exact.denominator)


@lru_cache(maxsize=16)
def gram_noise(std: float, n_features: int) -> DiscreteGaussian:
    """Discrete noise for the packed upper triangle of a Gram matrix, in units of 2**-40.

    Parameters
    ----------
    std : sd on the diagonal; off it, the sd is this over sqrt(2), as for svec-GOE noise.
    n_features : d.

    Notes
    -----
    With sigma_i as drawn, a row that moves the matrix by D has ``sum over i <= j of
    D_ij**2 / sigma_ij**2 <= |D|_F**2 / std**2``: mu-GDP with mu = sensitivity / std
    (see `discrete_gaussian` for what the discreteness costs, which `INFLATION` covers).
    """
    diagonal = lattice_sigma(std)
    off = isqrt(diagonal * diagonal // 2) + 1
    rows, columns = np.triu_indices(n_features)
    return DiscreteGaussian([diagonal, off], (rows != columns).astype(np.int64))


def exact_sum(gram: GramSum, noise: IntArray) -> FloatArray:
    """Packed entries of the Gram matrix plus integer noise in units of 2**-40, summed in integers.

    The sum is rounded to float64 once, at the end.
    """
    high, low = gram.words()
    low = low + noise
    high = high + (low >> UNIT_BITS)
    low &= (1 << UNIT_BITS) - 1
    return high + low * 2.0**-UNIT_BITS


class LatticeGram:
    """An exact Gram matrix that takes integer noise, as an outlet hides it (`outlet.Exact`).

    Parameters
    ----------
    gram : the exact Gram matrix.
    """

    __slots__ = ("gram",)

    def __init__(self, gram: GramSum) -> None:
        self.gram = gram

    @property
    def hidden(self) -> Sequence[Any]:
        """What an outlet hides."""
        return self.gram.hidden

    def noisy(self, noise: npt.NDArray[Any], std: float) -> FloatArray:
        """Packed entries plus integer noise in units of 2**-40; its standard deviation is not needed."""
        return exact_sum(self.gram, noise)
