"""Scoring of rows by the subspace, and the mean, of the previous release: the rewards of the curator."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from streampca import _native
from streampca.linalg.centering import CONSTANT
from streampca.linalg.lattice import scoring_basis
from streampca.linalg.types import FloatArray
from streampca.release.release import Release


class Scoring(NamedTuple):
    """Subspace and mean that score admitted rows, rounded by `scoring_basis`.

    The reward of a row a is ``||a||**2`` less its loss, the squared distance ``||(I - V V^T)(a - m)||**2`` from the
    current subspace through the current mean. Without centering, m is 0 and the reward is ``||V^T a||**2``.
    """

    basis: FloatArray  # (d, k), followed by a row of zeros for centered streams
    # For centered streams (d + 1,) such that the reward is ``||V^T a||**2 + 2 linear . y y_last / c`` of y = (a, c), c
    # their constant: of second degree in the row.
    linear: FloatArray | None = None

    @classmethod
    def of(cls, basis: FloatArray, mean: FloatArray | None = None) -> Scoring:
        """Return the scoring of a subspace, and of a mean in units of row_norm = 1 for centered streams."""
        if mean is None:
            return cls(scoring_basis(basis))
        # ||a||^2 - ||(I - V V^T)(a - m)||^2 = ||V^T a||^2 + 2 u . a - ||u||^2 with u = (I - V V^T) m.
        across = mean - basis @ (basis.T @ mean)
        # -||u||^2 is a constant of the row, and rows end with CONSTANT: it becomes their last coefficient.
        linear = np.append(across, float(across @ across) * (-0.5 / CONSTANT))
        return cls(scoring_basis(np.vstack([basis, np.zeros(basis.shape[1])])), scoring_basis(linear))

    @classmethod
    def first(cls, n_features: int, n_components: int, *, center: bool) -> Scoring:
        """Return the scoring before any release: the first axes through 0, for admitted rows of ``n_features``."""
        d = n_features - int(center)
        return cls.of(np.eye(d, n_components), np.zeros(d) if center else None)

    @classmethod
    def of_release(cls, release: Release) -> Scoring:
        return cls.of(release.span, release.mapped_mean / release.row_norm if release.is_centered else None)


def score(rows: FloatArray, scoring: Scoring) -> FloatArray:
    """Return the rewards of admitted rows, (n,), in units of row_norm = 1. Curator only.

    The bits are the same with and without compiled kernels.
    """
    products = rows @ scoring.basis
    # Squares are added one by one, in the order of the compiled kernels. `ExactSubspace` may release no direction.
    squares = np.add.accumulate(products * products, axis=1)
    scores: FloatArray = squares[:, -1] if squares.shape[1] else np.zeros(len(rows))
    if scoring.linear is not None:
        # A row that counts with the weight w is sqrt(w) times as long, with its constant; its reward has the factor w.
        scores += 2.0 * (rows @ scoring.linear) * (rows[:, -1] / CONSTANT)
    return scores


def rewarded(rows: FloatArray, scoring: Scoring, reward: float = 0.0) -> tuple[FloatArray, float]:
    """Return `score` up to rounding, and ``reward`` plus all scores."""
    kernels = _native.compiled
    if kernels is not None and scoring.linear is None:
        scores = np.empty(rows.shape[0])
        return scores, kernels.score(rows, scoring.basis, reward, scores)
    scores = score(rows, scoring)
    # Add one by one: a pairwise sum would depend on the size of the block.
    return scores, float(np.add.accumulate(np.concatenate(([reward], scores)))[-1])
