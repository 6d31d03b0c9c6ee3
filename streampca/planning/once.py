"""Predictions for mechanisms that release once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.special import ndtri

from streampca.linalg.svec import unsvec
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import Mechanism
from streampca.mechanisms.covariance import CovarianceMechanism
from streampca.mechanisms.exact_subspace import ExactSubspace
from streampca.mechanisms.gaussian import GaussianCovariance
from streampca.mechanisms.laplace import LaplaceCovariance
from streampca.mechanisms.matrix_laplace import MatrixLaplaceCovariance
from streampca.mechanisms.subspace_perturbation import SubspacePerturbation, projector_shift
from streampca.mechanisms.wishart import WishartCovariance
from streampca.planning import costs
from streampca.planning.curve import Curve
from streampca.planning.predictions import Prediction, common, predictor
from streampca.planning.question import Question
from streampca.privacy.randomness import Randomness
from streampca.processors.tumbling import Tumbling

_SEED = 20240607
#: What is left of the spectrum beyond the k-th eigenvalue where rows lie in a subspace exactly.
_NOTHING = 1e-12


@predictor
def covariances(question: Question, curve: Curve) -> Iterator[Prediction]:
    """Mechanisms on the Gram matrix: of all rows once, or of each window once."""
    given = common(question)
    pure = {key: value for key, value in given.items() if key != "delta"}
    kinds: list[tuple[type[CovarianceMechanism], dict[str, Any]]] = [
        (GaussianCovariance, given), (WishartCovariance, given),
        (MatrixLaplaceCovariance, pure), (LaplaceCovariance, pure),
    ]  # fmt: skip
    rows, d = question.rows, question.n_features
    for kind, settings in kinds:
        mechanism = kind(**settings)
        scale = mechanism.noise_scale(d)
        note = "pure epsilon: no delta is spent" if settings is pure else ""
        if kind is GaussianCovariance:
            share, norm = float(curve.captured(scale / rows)), scale * curve.norm
            std: float | None = scale * question.row_norm**2
        else:
            share, norm = curve.mean_over(_noise_of(mechanism, d), rows * np.diag(question.spectrum))
            std = None
        yield _once(question, mechanism, settings, share, std, norm * question.row_norm**2, note)


def _noise_of(mechanism: CovarianceMechanism, d: int) -> Callable[[int], FloatArray]:
    stream = Randomness.from_seed(_SEED).stream("plan", repr(mechanism))
    return lambda i: unsvec(mechanism.noise(d, stream.draws(i)), d)


@predictor
def projectors(question: Question, curve: Curve) -> Iterator[Prediction]:
    """`SubspacePerturbation`: noise on the projector if the gap is wide, else on the Gram matrix."""
    if question.n_components >= question.n_features or question.delta <= 0.0:
        return
    settings = common(question)
    mechanism = SubspacePerturbation(**settings)
    rows, d, k = question.rows, question.n_features, question.n_components
    moves = 1.0 if question.adjacency == "zero-out" else 2.0
    bound = rows * question.gap + float(ndtri(mechanism.failure)) * mechanism.gap_std
    mu = mechanism.mu * math.sqrt(1.0 - mechanism.gap_share)
    if bound > 2.0 * moves:
        std = projector_shift(bound, question.adjacency) / mu
        projector = np.diag((np.arange(d) < k).astype(np.float64))
        goe = Randomness.from_seed(_SEED).stream("projector")
        share = curve.mean_over(lambda i: unsvec(std * goe.normal(i, d * (d + 1) // 2), d), projector)[0]
        yield _once(question, mechanism, settings, share, None, None, "the gap is wide: noise on the projector")
    else:
        std = question.budget.gram_sensitivity / mu
        unit = question.row_norm**2
        yield _once(
            question, mechanism, settings, float(curve.captured(std / rows)), std * unit, std * curve.norm * unit,
            "the gap is narrow: falls back on the Gram matrix",
        )  # fmt: skip


@predictor
def spans(question: Question, curve: Curve) -> Iterator[Prediction]:
    """`ExactSubspace`, if the guess is that rows lie in a subspace exactly."""
    k = question.n_components
    if float(question.spectrum[k:].sum()) > _NOTHING or k >= question.n_features:
        return
    settings = common(question)
    mechanism = ExactSubspace(**settings)
    needed = mechanism.rows_needed()
    if question.rows >= needed:
        note = f"exact, where rows lie in a subspace exactly; from {needed} rows"
        yield _once(question, mechanism, settings, 1.0, None, None, note)


def _once(
    question: Question, mechanism: Mechanism, settings: dict[str, Any], share: float, std: float | None,
    error: float | None, note: str,
) -> Prediction:  # fmt: skip
    d, rows = question.n_features, question.rows
    if question.window is None:
        return Prediction(
            type(mechanism).__name__, settings, "once", share, std, error, None, 1, costs.gram_bytes(d, "one"),
            costs.gram_seconds(rows, d) + costs.release_seconds(1, d, "one"), note, mechanism,
        )  # fmt: skip
    blocks = question.n_rows // rows
    return Prediction(
        f"Tumbling[{type(mechanism).__name__}]", {**settings, "every": rows}, "once", share, std, error, None, blocks,
        8 * rows * d + costs.gram_bytes(d, "one"),
        costs.gram_seconds(question.n_rows, d) + costs.release_seconds(blocks, d, "one"),
        "; ".join(filter(None, ("one release a window, of windows side by side", note))),
        Tumbling(mechanism, every=rows),
    )  # fmt: skip
