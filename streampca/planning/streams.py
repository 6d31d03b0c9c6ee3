"""Predictions for algorithms that follow all rows so far."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.types import FloatArray, IntArray
from streampca.planning import costs
from streampca.planning.curve import Curve
from streampca.planning.predictions import Prediction, common, predictor
from streampca.planning.question import Question
from streampca.privacy.randomness import Randomness
from streampca.processors.dp_pca import DPPCA
from streampca.processors.oja_steps import PrivateStepSizes, orthonormalise, random_basis
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.private_oja import PrivateOja
from streampca.stream import Stream

_TIMES = 60
_RUNS = 8
_SEED = 20240607
#: Numbers (rows times features) that DP-PCA is tried on.
_TRIED = 3_000_000


@predictor
def leaders(question: Question, curve: Curve) -> Iterator[Prediction]:
    """`PrivateFPL` with each of its noises."""
    if question.window is not None:
        return
    n = question.n_rows
    if question.release_every is not None:
        every = question.release_every
    else:
        steps = sorted({min(n, 10**p) for p in range(0, int(math.log10(n)) + 1)})
        every = min(steps, key=lambda b: (_leader(question, curve, "blt", b, n).regret_per_row or 0.0, b))
    for noise in ("blt", "tree"):
        yield _leader(question, curve, noise, every, n)
    yield _leader(question, curve, "blt", every, None)


def _leader(question: Question, curve: Curve, noise: str, every: int, horizon: int | None) -> Prediction:
    settings: dict[str, Any] = {**common(question), "noise": noise, "release_every": every}
    settings["horizon"] = horizon
    algorithm = PrivateFPL(**settings)
    n, d = question.n_rows, question.n_features
    leaves = -(-n // every)
    ends = np.unique(np.geomspace(1, leaves, _TIMES).astype(np.int64))
    times = np.minimum(ends * every, n)
    stds = np.array([algorithm.noise_std(int(t)) for t in times])
    shares = curve.captured(stds / times)
    last = float(stds[-1])
    return Prediction(
        "PrivateFPL", settings, "stream", float(shares[-1]), last * question.row_norm**2,
        last * curve.norm * question.row_norm**2, _regret(question, every, ends, shares) * question.row_norm**2, leaves,
        costs.gram_bytes(d, noise), costs.gram_seconds(n, d) + costs.release_seconds(leaves, d, noise),
        "no horizon to keep to" if horizon is None else "", algorithm,
    )  # fmt: skip


def _regret(question: Question, every: int, ends: IntArray, shares: FloatArray) -> float:
    """Expected regret a row of playing, on every leaf, the subspace released before it."""
    n, best, k, d = question.n_rows, question.best, question.n_components, question.n_features
    # Nothing is known of the first leaf: the first axes capture k / d of all there is, on average over rotations.
    first = min(every, n) * (best - float(question.spectrum.sum()) * k / d)
    leaves = -(-n // every)
    played = np.arange(1, leaves) if leaves <= 4096 else np.geomspace(1.0, leaves - 1.0, 4096)
    if len(played) == 0:
        return first / n
    losses = 1.0 - np.interp(np.log(played), np.log(ends), shares)
    total = losses.sum() if leaves <= 4096 else float(np.trapezoid(losses, played))
    return float(first + best * every * total) / n


@predictor
def oja(question: Question, curve: Curve) -> Iterator[Prediction]:
    """`PrivateOja` with steps laid out for the number of rows: its own recursion on mean gradients plus noise."""
    if question.window is not None:
        return
    n, d, k = question.n_rows, question.n_features, question.n_components
    settings: dict[str, Any] = {**common(question), "horizon": n}
    algorithm = PrivateOja(**settings)
    steps, std = _ends(algorithm, n), algorithm.noise_std(d)
    lasts, losses = [], []
    for run in range(_RUNS):
        shares = _ascend(question, steps, std, run)
        lasts.append(shares[-1])
        played = np.concatenate(([float(question.spectrum.sum()) * k / d / question.best], shares[:-1]))
        losses.append(float(np.diff([0, *steps]) @ (1.0 - played)))
    yield Prediction(
        "PrivateOja", settings, "stream", float(np.mean(lasts)), None, None,
        question.best * float(np.mean(losses)) / n * question.row_norm**2, len(steps),
        costs.oja_bytes(d, k), costs.oja_seconds(n, d),
        "O(d k) memory; few releases; for rows in no particular order", algorithm,
    )  # fmt: skip


def _ends(algorithm: PrivateOja, horizon: int) -> list[int]:
    """Rows after which steps end: public, known before any row."""
    ends = [0]
    while ends[-1] < horizon:
        ends.append(algorithm.step_end(ends[-1]))
    return ends[1:]


def _ascend(question: Question, ends: list[int], std: float, run: int) -> list[float]:
    """Shares captured after each step of one run."""
    d, k, values = question.n_features, question.n_components, question.spectrum
    draws = Randomness.from_seed(_SEED).stream("oja", run)
    basis = random_basis(d, k, draws)
    rates = PrivateStepSizes(None, np.zeros(k))
    shares, before = [], 0
    for i, end in enumerate(ends):
        rows = end - before
        gradient = rows * values[:, None] * basis
        # Rows are few: their sum has the spread of a sum of independent Gaussian ones.
        rayleigh = np.maximum(values @ basis**2, 0.0)
        spread = np.sqrt(rows * np.outer(values, rayleigh))
        z = draws.normal(i + 1, 2 * d * k).reshape(2, d, k)
        rates, step = rates.step(gradient + std * z[0] + spread * z[1], basis, end, std)
        basis = orthonormalise(np.asfortranarray(basis + step))
        shares.append(float(values @ (basis**2).sum(axis=1)) / question.best)
        before = end
    return shares


@predictor
def dp_pca(question: Question, curve: Curve) -> Iterator[Prediction]:
    """`DPPCA`, by running it on made-up Gaussian rows of the spectrum, where that takes seconds."""
    if question.window is not None:
        return
    n, d, k = question.n_rows, question.n_features, question.n_components
    settings: dict[str, Any] = {**common(question), "horizon": n}
    try:
        algorithm = DPPCA(**settings)
        algorithm.check(d)
    except BadParameter:
        return  # too few rows for it to say anything
    if n * d > _TRIED:
        return  # a trial would take long, and a shorter one would say little
    stream = Stream(algorithm, regret=None, seed=_SEED)
    normals = Randomness.from_seed(_SEED).stream("rows").normal(0, n * d).reshape(n, d)
    releases = len(stream.push_many(normals * np.sqrt(question.spectrum)).releases)
    basis = stream.subspace.basis
    share = float(question.spectrum @ (basis**2).sum(axis=1)) / question.best
    yield Prediction(
        "DPPCA", settings, "stream", share, None, None, None, releases,
        costs.oja_bytes(d, k), 3.0 * costs.oja_seconds(n, d),
        "one trial on Gaussian rows in no particular order; better on rows that are alike",
        algorithm,
    )  # fmt: skip
