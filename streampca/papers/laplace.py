"""Laplace noise on the entries of a Gram matrix: Algorithm 1 of JXZ16."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from streampca.linalg.svec import entry_weights, svec_size
from streampca.linalg.types import FloatArray
from streampca.mechanisms.covariance import PureCovariance
from streampca.privacy.guarantee import Guarantee, laplace_delta
from streampca.privacy.randomness import Draws


@dataclass(frozen=True, kw_only=True)
class LaplaceCovariance(PureCovariance):
    """Gram matrix plus independent Laplace noise on its upper triangle: pure epsilon.

    `MatrixLaplaceCovariance` has the same parameters and guarantee, with about ``0.85 * sqrt(d)`` times less noise.

    Notes
    -----
    *Guarantee.* The whole matrix is released: (epsilon, 0)-DP per row by the Laplace mechanism, scale
    ``sensitivity / epsilon``, where `sensitivity` is the l1 sensitivity of the upper triangle. In floating point, up to
    the guarantee's ``floating_delta``, because a row changes every entry. The scale of JXZ16 is ``2 d / epsilon``.
    """

    theorem = "Laplace mechanism, l1 sensitivity of the upper triangle"
    citation = "Jiang, Xie, Zhang, AAAI 2016, Algorithm 1"
    kind = "laplace"
    floating_delta = None  # it depends on the number of features

    def guarantee_for(self, n_features: int) -> Guarantee:
        return replace(self.guarantee, floating_delta=laplace_delta(svec_size(n_features), self.epsilon))

    def sensitivity(self, n_features: int) -> float:
        """Return the l1 sensitivity of the upper triangle.

        Zero-out: the sum of ``|a_i a_j|`` over i <= j is ``(|a|_1^2 + |a|^2)/2``, at most ``(d + 1)/2`` and attained.
        Replace: by Cauchy-Schwarz against ``|a a^T - b b^T|_F <= sqrt(2)``, at most ``sqrt(d (d + 3) / 2)``, attained
        at d = 2 and within 5 % for larger d; 1 if d = 1.
        """
        if self.adjacency == "zero-out":
            return (n_features + 1) / 2.0
        return math.sqrt(n_features * (n_features + 3) / 2.0) if n_features > 1 else 1.0

    def scale(self, n_features: int) -> float:
        return self.sensitivity(n_features) / self.epsilon

    def noise(self, n_features: int, draws: Draws) -> FloatArray:
        # The noise is on entries of the triangle; svec coordinates off the diagonal are sqrt(2) times these.
        entries = self.scale(n_features) * draws.laplace(svec_size(n_features))
        return entries / entry_weights(n_features)

    def noise_std(self, n_features: int) -> float:
        return math.sqrt(2.0) * self.scale(n_features)
