"""Matrix-variate Laplace noise that adapts to short rows: pure epsilon, for few features."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from streampca.linalg.lattice import GramSum, coarsen, onto_ball
from streampca.linalg.types import FloatArray
from streampca.mechanisms.adaptive_covariance import AdaptiveCovariance
from streampca.mechanisms.base import Mechanism
from streampca.mechanisms.matrix_laplace import MatrixLaplaceCovariance
from streampca.mechanisms.norm_maps import GRID, NormEstimate
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.guarantee import Guarantee, laplace_delta
from streampca.privacy.outlet import LatticeSum, Outlet
from streampca.release.release import Release, Terms

#: Shares of epsilon: histogram of norms, lost energy; the Gram matrix has the rest.
NORMS_SHARE, LOST_SHARE = 0.03, 0.08
#: Rows, times epsilon, below which norms are not estimated: the noise in a count would exceed a tenth of the rows.
_FEWEST = 500
#: `adaptive_mechanism` selects Laplace noise where its variance is below this share of that of Gaussian noise. Maps
#: gain about the rest.
_LESS = 2.0 / 3.0


@dataclass(frozen=True, kw_only=True)
class AdaptiveLaplaceCovariance(Mechanism):
    """Gram matrix of rows clipped to an estimated norm, plus the noise of `MatrixLaplaceCovariance`: pure epsilon.

    A part of epsilon is spent on the lengths of the rows. They are then clipped to a radius rho, which multiplies the
    noise by rho**2.

    Parameters
    ----------
    n_components, epsilon, adjacency, n_features : see `Mechanism`.

    Notes
    -----
    *Theorem.* All releases together are (epsilon, 0)-DP per row. The Laplace noise of 1 and 2 below is drawn in
    floating point, at a delta of the guarantee's ``floating_delta``.

    *Proof.* Up to three parts, each with a share of epsilon in brackets; each is pure given those before it (basic
    adaptive composition). Under zero-out:

    1. The histogram of row norms with Laplace noise [.03]. A row adds 1 to one count, a zero row to none: l1
       sensitivity 1.
    2. The lost energy, the sum of ``max(|x|**2 - rho**2, 0)``, with Laplace noise [.08]: a row moves it by at most 1.
       rho is a function of 1.
    3. The Gram matrix of rows divided by rho, a function of 1 and 2, and clipped onto the unit ball, with the noise of
       `MatrixLaplaceCovariance` [.89, or .97 without 2].

    If 1 gives rho = 1, there is no 2. Below 500 / epsilon rows, a public number, there is only 3, with all of epsilon.
    Under replace the sensitivities are 2 in 1 and 1 in 2, and the noise in 3 is that for replace. All else is
    post-processing.

    *rho, error bars and details*: as in `AdaptiveCovariance`, without maps. Long rows with about 40 / epsilon of
    energy, or less, may stay hidden, and are then clipped: do not use it where a few rows matter most.

    *When.* With few features (`adaptive_mechanism`).

    Citation: basic composition; Laplace mechanism (Dwork, McSherry, Nissim and Smith 2006); the noise is the
    symmetrised form of Jiang, Xie and Zhang, AAAI 2016, Algorithm 2.
    """

    n_components: int
    epsilon: float
    adjacency: Adjacency = "zero-out"
    n_features: int | None = None

    @property
    def guarantee(self) -> Guarantee:
        guarantee = self._promise(
            "composition of Laplace mechanisms: norms, lost energy and the clipped Gram matrix",
            "Dwork, McSherry, Nissim, Smith 2006; after Jiang, Xie, Zhang, AAAI 2016, Algorithm 2",
        )
        # A row changes one count of the histogram, under replace two, and the lost energy.
        numbers, share = 3 if self.adjacency == "replace" else 2, NORMS_SHARE + LOST_SHARE
        return replace(guarantee, floating_delta=laplace_delta(numbers, share * self.epsilon))

    @property
    def norms_scale(self) -> float:
        """Scale of the noise in each count of the histogram of norms."""
        return (2.0 if self.adjacency == "replace" else 1.0) / (NORMS_SHARE * self.epsilon)

    @property
    def lost_scale(self) -> float:
        """Scale of the noise in the lost energy."""
        return 1.0 / (LOST_SHARE * self.epsilon)

    def on_gram(self, stages: int) -> MatrixLaplaceCovariance:
        """Return the mechanism for the Gram matrix of the clipped rows over rho, after 0, 1 or 2 earlier releases."""
        share = 1.0 - (0.0, NORMS_SHARE, NORMS_SHARE + LOST_SHARE)[stages]
        return MatrixLaplaceCovariance(
            n_components=self.n_components, epsilon=share * self.epsilon, adjacency=self.adjacency
        )

    def constants(self, n_features: int) -> tuple[object, ...]:
        # The last three are the scales for the Gram matrix, by the number of stages before it.
        return self.norms_scale, self.lost_scale, *(self.on_gram(stages).scale(n_features) for stages in range(3))

    def released(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        (n_rows, d), stages = rows.shape, 0
        estimate = NormEstimate(None, 1.0, 0.0, {"rows": n_rows, "lost_energy": 0.0})
        if n_rows * self.epsilon >= _FEWEST:
            scales = {"norms": self.norms_scale, "lost": self.lost_scale}
            norms_std, lost_std = (math.sqrt(2.0) * scale for scale in scales.values())
            noise_norm = self.on_gram(2).spectral_error(d)

            def release(kind: str, values: FloatArray) -> FloatArray:
                scale, exact = scales[kind], LatticeSum(values, GRID)
                std = math.sqrt(2.0) * scale
                return outlet.release(kind, exact, lambda draws: scale * draws.laplace(values.size), std)

            estimate = NormEstimate.of(rows, release, norms_std, lost_std, noise_norm, noise_norm)
            stages = 2 if estimate.has_lost_energy else 1
        radius = estimate.radius
        matrix = self.on_gram(stages)
        clipped = GramSum.of(onto_ball(rows / radius))
        packed = outlet.release("gram", clipped, lambda draws: matrix.noise(d, draws), matrix.noise_std(d))
        packed = coarsen(radius**2 * packed, radius**2 * matrix.noise_std(d))
        details = {"mechanism": type(self).__name__, **estimate.details, "clip_radius": radius}
        return Release(t=t, n_components=self.n_components, terms=terms, packed_gram=packed, details=details)


def adaptive_mechanism(
    n_features: int, *, n_components: int, epsilon: float, delta: float, adjacency: Adjacency = "zero-out"
) -> AdaptiveCovariance | AdaptiveLaplaceCovariance:
    """Return the adaptive mechanism with less noise for a number of features. A public rule: it reads no row.

    It is `AdaptiveLaplaceCovariance`, which spends no delta, where the noise of `MatrixLaplaceCovariance` has less than
    2/3 of the variance of that of `GaussianCovariance`, under zero-out ``d + 1 < 2/3 (epsilon / mu)**2``: up to 7, 9,
    10 and 13 features at delta = 1e-6 and epsilon = .1, .3, 1 and 3; also where delta is 0. Otherwise it is
    `AdaptiveCovariance`, whose maps gain about the third.
    """
    budget = Budget(epsilon, delta, adjacency)
    pure = AdaptiveLaplaceCovariance(n_components=n_components, epsilon=epsilon, adjacency=adjacency)
    laplace = MatrixLaplaceCovariance(n_components=n_components, epsilon=epsilon, adjacency=adjacency)
    if delta == 0.0 or laplace.noise_std(n_features) ** 2 < _LESS * (budget.sensitivity() / budget.mu) ** 2:
        return pure
    return AdaptiveCovariance(n_components=n_components, epsilon=epsilon, delta=delta, adjacency=adjacency)
