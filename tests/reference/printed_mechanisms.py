"""Mechanisms as printed in three papers, none of them private as claimed: attacked in the tests beside them.

Dwork, Talwar, Thakurta and Zhang (STOC 2014), Algorithm 2; Jiang, Xie and Zhang (AAAI 2016), Algorithm 2; Singhal and
Steinke (NeurIPS 2021), Algorithm 1.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from streampca.linalg.eigen import orthonormal, top_eigh
from streampca.linalg.lattice import GramSum
from streampca.linalg.svec import svec, svec_size, unpack_entries
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import Mechanism
from streampca.mechanisms.covariance import CovarianceMechanism
from streampca.mechanisms.exact_subspace import lines_of
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.outlet import Outlet
from streampca.privacy.randomness import Draws
from streampca.release.release import Release, Terms


@dataclass(frozen=True, kw_only=True)
class PrintedSubspacePerturbation(Mechanism):
    """Noise on the projector with no refusal: claims (2 epsilon, 2 delta), has no guarantee.

    The standard deviation ``D / (d_hat - 2 (1 + ln(1/delta) / epsilon))`` with ``D = (1 + sqrt(2 ln(1/delta))) /
    epsilon`` is used whatever its sign: it is squared. A small gap makes it small and negative, where it should be
    infinite. So one row that swaps the two largest eigenvalues is detected almost surely. Use `SubspacePerturbation`.
    """

    n_components: int
    epsilon: float
    delta: float
    n_features: int | None = None
    adjacency = "zero-out"

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.none(
            "a small eigengap is not refused: it makes the noise scale negative, and the sign is squared away",
            "Dwork, Talwar, Thakurta, Zhang, STOC 2014, Algorithm 2 and Theorem 11",
        )

    def constants(self, n_features: int) -> tuple[object, ...]:
        return ()

    def released(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        d, k = rows.shape[1], self.n_components
        gram = GramSum.of(rows)
        values, basis = top_eigh(unpack_entries(gram.packed(), d), min(k + 1, d))
        following = values[k] if k < d else 0.0
        gap = values[k - 1] - following + 2.0 / self.epsilon * outlet.hide("gap", *gram.hidden).laplace(1)[0]
        log = math.log(1.0 / self.delta)
        std = (1.0 + math.sqrt(2.0 * log)) / self.epsilon / (gap - 2.0 * (1.0 + log / self.epsilon))
        noise = unpack_entries(std * outlet.hide("projector", *gram.hidden).normal(svec_size(d)), d)
        top = basis[:, :k]
        return Release(t=t, n_components=k, terms=terms, basis=top_eigh(top @ top.T + noise, k)[1])


@dataclass(frozen=True, kw_only=True)
class PrintedWishart(CovarianceMechanism):
    """Gram matrix plus ``3 / (2 epsilon) * Wis_d(d + 1, I)``: claims (epsilon, 0), has no guarantee.

    One-sided noise has a support that moves with the data. Say G and G + a a^T are the Gram matrices of neighbours, |a|
    = 1. The number ``1 / (a^T (release - G)^-1 a)`` is at least 1 for the second always, and below 1 for the first with
    probability ``1 - exp(-epsilon / 3)``: 0.28 at epsilon = 1. That is its exact delta. Use `MatrixLaplaceCovariance`
    for pure epsilon and `WishartCovariance` for PSD releases.
    """

    n_components: int
    epsilon: float
    n_features: int | None = None
    adjacency = "zero-out"

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.none(
            f"the noise is one-sided, so supports differ: true delta {true_delta(self.epsilon):.3g} where 0 is claimed",
            "Jiang, Xie, Zhang, AAAI 2016, Algorithm 2 and Theorem 4",
        )

    def scale(self, n_features: int) -> float:
        return 3.0 / (2.0 * self.epsilon)

    def noise(self, n_features: int, draws: Draws) -> FloatArray:
        return svec(self.scale(n_features) * wishart(draws, n_features, n_features + 1))

    def constants(self, n_features: int) -> tuple[object, ...]:
        return (self.scale(n_features),)

    def noise_std(self, n_features: int) -> float:
        return self.scale(n_features) * math.sqrt(2.0 * (n_features + 1))


def wishart(draws: Draws, n_features: int, degrees: int) -> FloatArray:
    """Draw from ``Wis_d(m, I)`` as Z Z^T, Z standard normal (d, m)."""
    normals = draws.normal(n_features * degrees).reshape(n_features, degrees)
    return normals @ normals.T


def true_delta(epsilon: float) -> float:
    """Delta of the printed algorithm at its own epsilon, under zero-out: ``1 - exp(-epsilon / 3)``."""
    return -math.expm1(-epsilon / 3.0)


@dataclass(frozen=True, kw_only=True)
class PrintedExactLine(Mechanism):
    """GAP-MAX over the lines through rows (k = 1), in exact arithmetic: claims (epsilon, delta), has no guarantee.

    Scores less the second largest and 1 are all 0 when the two largest tie, and then the noise alone picks the winner,
    from all lines of the data, every one with equal probability. A line that one row brought in is released with
    probability 1 over the number of candidates, and never without that row: delta is at least 0.25 with two tied lines,
    one odd row and NULL. Use `ExactSubspace`.

    Notes
    -----
    Rows are taken as they are. The score of a line is the number of its rows that are not zero, since zero rows are in
    the proper subspace {0}. NULL is a basis of no columns.
    """

    epsilon: float
    delta: float
    n_components: int = 1
    n_features: int | None = None
    adjacency = "zero-out"
    is_exact = True

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee.none(
            "a tie of the two largest scores makes every span of the data equally likely: true delta at least 0.25",
            "Singhal, Steinke, NeurIPS 2021, Algorithm 1 and Lemma 2.3",
        )

    def constants(self, n_features: int) -> tuple[object, ...]:
        return (2.0 / self.epsilon,)

    def released(self, rows: FloatArray, outlet: Outlet, terms: Terms, t: int) -> Release:
        counts = Counter(line for line in lines_of(rows) if any(line))
        null = 4.0 * math.log(1.0 / self.delta) / self.epsilon + 1.0
        scores = np.array([null, *counts.values()])
        uniform = outlet.hide("scores", rows).uniform(scores.size)
        # TLap(2, epsilon, delta) by inversion.
        scale = 2.0 / self.epsilon
        reach = scale * math.log1p(math.expm1(self.epsilon) / (2.0 * self.delta))
        side = 2.0 * uniform - 1.0
        noise = -np.sign(side) * scale * np.log1p(np.abs(side) * math.expm1(-reach / scale))
        winner = int(np.argmax(np.maximum(0.0, scores - np.sort(scores)[-2] - 1.0) + noise))
        basis = np.zeros((rows.shape[1], 0))
        if winner:
            basis = orthonormal(np.array(list(counts)[winner - 1], dtype=float)[:, None])
        return Release(t=t, n_components=basis.shape[1], terms=terms, basis=basis, details={"null": not winner})
