"""Noisy Gram matrices: the Gaussian mechanism, and matrix-variate Laplace noise for pure epsilon."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from streampca.errors import UsageError
from streampca.linalg.lattice import GramSum
from streampca.linalg.svec import svec, svec_size
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import BudgetedMechanism, Mechanism
from streampca.privacy.budget import Adjacency
from streampca.privacy.discrete_gaussian import LatticeGram, gram_noise, lattice_sigma
from streampca.privacy.outlet import Outlet
from streampca.privacy.randomness import Draws
from streampca.privacy.unit import Person
from streampca.release.clear import Kind, NoiseLaw
from streampca.release.release import Release
from streampca.release.terms import Terms, gram_fields

#: Spectral norm of W1 - W2 over d, for iid Wis_d(d + 1, I) and large d: the edge of the free difference of two
#: Marchenko-Pastur laws of rate 1.
EDGE = math.sqrt((11.0 + 5.0 * math.sqrt(5.0)) / 2.0)


class CovarianceMechanism(Mechanism):
    """A mechanism that releases the Gram matrix of the rows plus noise."""

    n_components: int
    discrete_noise: bool = False
    #: Names of methods whose values at the number of features are among the details of a release.
    shown: ClassVar[tuple[str, ...]] = ()
    square_bytes = 50.0  # of the sum, its noise, and the release
    completes = True

    @abstractmethod
    def noise(self, n_features: int, draws: Draws) -> FloatArray:
        """Compute the noise, in svec coordinates, from one vector of random numbers."""

    @abstractmethod
    def noise_std(self, n_features: int) -> float:
        """Standard deviation of a diagonal entry of the noise (rows in the unit ball). Public."""

    def released(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        count = terms.count(t - len(rows) + 1, t)  # without those of a warm-up
        d = rows.shape[1]
        further = (d - int(self.center)) // 2 * int(self.counts_cells)  # a row ends with the cells that are present
        return self.released_gram(GramSum(d - further, further=further).add(rows), count, outlet, terms, t)

    def released_gram(self, gram: GramSum, count: float, outlet: Outlet, terms: Terms, t: int) -> Release:
        """Release the exact sum of ``count`` rows, infinite if their number is private."""
        d, std = gram.n_features, self.noise_std(gram.n_features)
        if self.discrete_noise:
            packed = outlet.release("gram", LatticeGram(gram), gram_noise(std, d).draw, std)
        else:
            packed = outlet.release("gram", gram, partial(self.noise, d), std)
        details: dict[str, Any] = {"mechanism": type(self).__name__} | ({} if math.isinf(count) else {"rows": count})
        details |= {name: getattr(self, name)(d) for name in self.shown}
        # Gaussian noise is independent in svec coordinates, so that one number describes it.
        stated = std if self.is_gaussian else None
        fields = gram_fields(packed, stated, terms, details, count if self.center else None, total=count)
        return Release(t=t, n_components=self.n_components, terms=terms, **fields)


@dataclass(frozen=True, kw_only=True)
class GaussianCovariance(CovarianceMechanism, BudgetedMechanism):
    """Gram matrix plus Gaussian noise: the least noise of all mechanisms, except with few features.

    `MatrixLaplaceCovariance` has less under zero-out where ``d + 1 < (epsilon / mu)**2``: up to 14, 16 and 20 features
    at epsilon .3, 1 and 3 and delta 1e-6.

    Parameters
    ----------
    n_components, epsilon, delta, adjacency : see `Mechanism`.
    discrete_noise : integer arithmetic throughout, with exact discrete Gaussian noise (`privacy.discrete_gaussian`):
        the guarantee holds without floating-point error, at the same noise level.
    center : release the Gram matrix about the mean, with the sum and the number of the rows released jointly
        (`linalg.centering`): 12.5 % more noise, and more along the mean. None means True.
    unit : a `Person`, or the name of its column, to protect all rows of a person together: those of one name count with
        one weight, so that the norm of the sum of their ``y y^T`` is at most that of the budget
        (`streampca.rows.people`). In `Tumbling`, rows count as in `PrivateFPL`.

    Notes
    -----
    *Guarantee.* The whole matrix is released: (epsilon, delta)-DP per row, mu-GDP with the exact ``mu(epsilon, delta)``
    of Balle and Wang (2018, Theorem 8). One row changes the Gram matrix by at most 1 in Frobenius norm under zero-out,
    ``|a a^T| = |a|^2``, and by ``|a a^T - b b^T| <= sqrt(2)`` under replace. ``svec`` is an isometry, so noise N(0,
    sigma**2) in its coordinates with ``sigma = sensitivity / mu`` is mu-GDP: GOE noise of norm ``sigma sqrt(2 d)``.
    """

    discrete_noise: bool = False
    center: bool = None  # type: ignore[assignment]  # None is resolved by `Configuration`
    unit: Person | None = None  # a text is resolved, too

    #: Standard deviation of a diagonal entry of the noise; off the diagonal it is ``sigma / sqrt(2)``.
    sigma: float = field(init=False, repr=False, compare=False)

    is_gaussian = True
    theorem = "Gaussian mechanism on svec of the Gram matrix (Balle and Wang 2018, Theorem 8)"
    citation = "Dwork, Talwar, Thakurta, Zhang, STOC 2014, Algorithm 1"

    def __post_init__(self) -> None:
        super().__post_init__()
        vars(self).update(sigma=self.unit_sensitivity / self.mu, can_count_cells=not self.discrete_noise)
        if self.discrete_noise:
            if self.unit is not None:
                raise UsageError("discrete_noise=True, unit: not supported together. Use discrete_noise=False")
            lattice_sigma(self.sigma)  # raises for a standard deviation out of range
            object.__setattr__(self, "theorem", f"{self.theorem}; exact discrete Gaussian noise on integers")

    def constants(self, n_features: int) -> tuple[object, ...]:
        return self.sigma, lattice_sigma(self.sigma) if self.discrete_noise else None

    def noise(self, n_features: int, draws: Draws) -> FloatArray:
        further = (n_features - int(self.center)) * int(self.counts_cells)
        return self.sigma * draws.normal(svec_size(n_features) + further)

    def noise_std(self, n_features: int) -> float:
        return self.sigma


@dataclass(frozen=True, kw_only=True)
class PureCovariance(CovarianceMechanism):
    """A covariance mechanism with delta 0, whose noise has one scale."""

    n_components: int
    epsilon: float
    adjacency: Adjacency = "zero-out"

    kind: ClassVar[Kind] = "matrix-laplace"

    @abstractmethod
    def scale(self, n_features: int) -> float:
        """Return the scale of the noise."""

    def noise_law(self, n_features: int) -> NoiseLaw | None:
        return NoiseLaw(self.kind, self.scale(n_features))

    def constants(self, n_features: int) -> tuple[object, ...]:
        return (self.scale(n_features),)


@dataclass(frozen=True, kw_only=True)
class MatrixLaplaceCovariance(PureCovariance):
    """Gram matrix plus the difference of two Wishart matrices: pure epsilon, the least noise at delta 0.

    Notes
    -----
    *Guarantee.* The whole matrix is released: (epsilon, 0)-DP per row. The density of ``N = W1 - W2``, with W1, W2 iid
    ``Wis_d(d + 1, c I)``, changes by a factor of at most ``exp(tr D / 2c)`` where a PSD ``D`` is added. A row adds a D
    of trace at most 1: c = 1/(2 epsilon) gives exactly (epsilon, 0)-DP under zero-out. Replacing one is two such steps:
    c = 1/epsilon (for d = 1 they cannot both be full, and c = 1/(2 epsilon) stays). For d = 1 the noise is
    Laplace(1/epsilon). Proof, and why the noise of JXZ16 is not pure: ``docs/theory/jxz16.md``.
    """

    theorem = "matrix-variate Laplace mechanism: log-density changes by at most the trace norm over 2c"
    citation = "after Jiang, Xie, Zhang, AAAI 2016, Algorithm 2"

    def scale(self, n_features: int) -> float:
        steps = 2.0 if self.adjacency == "replace" and n_features > 1 else 1.0
        return steps / (2.0 * self.epsilon)

    def noise(self, n_features: int, draws: Draws) -> FloatArray:
        d = n_features
        plus, minus = draws.normal(2 * d * (d + 1)).reshape(2, d, d + 1)
        return svec(self.scale(d) * (np.dot(plus, plus.T) - np.dot(minus, minus.T)))

    def noise_std(self, n_features: int) -> float:
        # A diagonal entry is a difference of two chi-squares of d + 1 degrees, each of variance 2 (d + 1).
        return 2.0 * self.scale(n_features) * math.sqrt(n_features + 1.0)

    def spectral_error(self, n_features: int) -> float:
        """Expected spectral norm of the noise, to leading order in n_features. Public."""
        # 3.330 c d; under zero-out 1.665 d / epsilon.
        return EDGE * self.scale(n_features) * n_features if n_features > 1 else 2.0 * self.scale(1)
