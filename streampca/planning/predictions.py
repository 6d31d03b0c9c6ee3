"""Predictions for each algorithm and mechanism that applies to a question."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from streampca.errors import UsageError
from streampca.linalg.centering import MEAN_WEIGHT
from streampca.linalg.lattice import onto_ball
from streampca.linalg.svec import unsvec
from streampca.linalg.types import FloatArray, IntArray
from streampca.matrix_factorization.smoothing import Smoothing, WindowSmoothing
from streampca.mechanisms.adaptive import AdaptiveLaplaceCovariance, adaptive_mechanism
from streampca.mechanisms.base import Mechanism
from streampca.mechanisms.covariance import GaussianCovariance, MatrixLaplaceCovariance
from streampca.mechanisms.exact_subspace import ExactSubspace
from streampca.planning.curve import Curve
from streampca.planning.question import Question
from streampca.privacy.randomness import Randomness
from streampca.privacy.unit import Person
from streampca.processors.dp_pca import DPPCA
from streampca.processors.oja import orthonormalise, random_basis
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.private_oja import PrivateOja, PrivateStepSizes
from streampca.processors.private_sketch import EXACT_ROWS, PrivateSketch, spiked
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.processors.solvers import Smoothed
from streampca.processors.tumbling import Tumbling
from streampca.state import label_of
from streampca.stream.stream import Stream

_SEED = 20240607
#: Sum of the spectrum beyond the k-th eigenvalue below which rows lie in a subspace exactly.
_NOTHING = 1e-12
#: Releases at which the noise of a stream is computed; others are interpolated.
_TIMES = 60
#: Simulated runs of Oja's recursion, times entries of a basis, and simulated scores of rows.
_RUNS, _SCORES = 800, 400
#: Most numbers (rows times features) on which an algorithm is tried, and most features for an adaptive mechanism.
_TRIED, _WIDEST = 3_000_000, 200
#: Loss of an adaptive mechanism over that of the Gaussian one, about the least on seven tables (docs/utility).
_LEAST_LOSS = 0.25
#: Releases of a smoothed stream, and coordinates of each kind that it is simulated with.
_SMOOTHED, _COORDINATES = 1024, 200
_NOTES = {
    "histogram": "memory grows with log W; covers some rows before the window",
    "ring": "exactly the window",
    "smoothed": "computes the window from its releases over two windows; for rows that change slowly",
    "forgetting": "least noise; old rows fade instead of leaving",
}


@dataclass(frozen=True, eq=False)
class Prediction:
    """Prediction for one algorithm or mechanism with given settings."""

    algorithm: Any  #: an algorithm or a mechanism
    settings: dict[str, Any]  #: its keywords
    #: A subspace of all rows after each release, of the last rows, or one release at the end.
    serves: Literal["stream", "window", "once"]
    #: Expected share of the best subspace's variance that the last release captures: about the mean if the question is,
    #: for every candidate. Without a guess, that of the middle spectrum and the middle norm.
    captured: float
    releases: int
    note: str = ""  #: a limitation, or a condition
    #: Standard deviation of a diagonal entry of the noise in the last released Gram matrix, in units of row_norm**2.
    #: None without a Gram matrix, or for noise of another law.
    noise_std: float | None = None
    #: Expected regret a row due to privacy and to waiting, in the same units; None without a stream of releases.
    regret_per_row: float | None = None
    #: False if `captured` depends on more than the spectrum, so that it may be off several times: the middle of a
    #: range, or that of simulated Gaussian rows.
    is_certain: bool = True
    #: Without a guess, the least and the largest share over all `GUESSES` and `NORMS`; None with one, and if the share
    #: is not certain.
    captured_interval: tuple[float, float] | None = None
    name: str = field(init=False, repr=False)  #: of the class, e.g. ``"PrivateFPL"``
    label: str = field(init=False, repr=False)  #: short text, unique among the candidates for one question
    code: str = field(init=False, repr=False)  #: Python expression that creates the algorithm

    def __post_init__(self) -> None:
        name, settings = type(self.algorithm).__name__, self.settings
        if isinstance(self.algorithm, Tumbling):
            name = f"{name}[{type(self.algorithm.mechanism).__name__}]"
        which = settings.get("noise") or settings.get("method") or ""
        solver = "smoothed" if settings.get("solver") == "smoothed" else ""
        endless = "endless" if "noise" in settings and settings["horizon"] is None else ""
        given = ", ".join(f"{key}={value!r}" for key, value in settings.items())
        label = " ".join(filter(None, (name, which, solver, endless)))
        code = repr(self.algorithm) if isinstance(self.algorithm, Tumbling) else f"{name}({given})"
        vars(self).update(name=name, label=label, code=code)

    @property
    def centers(self) -> bool:
        """Whether releases are about the mean."""
        return bool(getattr(self.algorithm, "center", False))

    @property
    def share_text(self) -> str:
        """The captured share in per cent, with its interval."""
        low, high = self.captured_interval or (self.captured, self.captured)
        return f"{self.captured:.1%}" + (f" ({low:.1%} to {high:.1%} by the spectrum)" if low < high else "")


# -- one release of all rows, or of each window ----------------------------------------


def covariances(question: Question, curve: Curve) -> Iterator[Prediction]:
    """Yield mechanisms on the Gram matrix."""
    rows, d = question.rows, question.n_features
    gaussian = GaussianCovariance(**question.centered_settings)
    std = float(question.spread(gaussian.noise_std(d), rows))
    yield _once(question, gaussian, question.centered_settings, float(curve.captured(std / rows)), std=std)
    # Its noise is not GOE: `Curve` has no law for it, so some of it is drawn.
    pure = {key: value for key, value in question.settings.items() if key != "delta"}
    laplace = MatrixLaplaceCovariance(**pure)
    draws = Randomness.from_seed(_SEED).stream("plan", label_of(laplace))
    noise = (unsvec(laplace.noise(d, draws.draws(i)), d) for i in itertools.count())
    yield _once(
        question, laplace, pure, curve.share_with(noise, rows, question.mean), "pure epsilon: no delta is spent"
    )


def adaptive(question: Question, curve: Curve) -> Iterator[Prediction]:
    """Yield the choice of `adaptive_mechanism`: what it gains depends on the lengths of rows, so a range is stated."""
    if question.delta <= 0.0 or question.n_features > _WIDEST:
        return
    settings = dict(question.centered_settings)
    mechanism = adaptive_mechanism(question.n_features, **settings)
    if isinstance(mechanism, AdaptiveLaplaceCovariance):
        del settings["delta"]
    gaussian = next(covariances(question, curve))
    loss = 1.0 - gaussian.captured
    note = (
        f"cannot tell: between {gaussian.captured:.2%}, as GaussianCovariance, and {1.0 - _LEAST_LOSS * loss:.2%}; the "
        "more uneven the lengths of rows and the shorter they are, the more"
    )
    # The middle of the range of losses, on a scale of ratios.
    share = 1.0 - math.sqrt(_LEAST_LOSS) * loss
    yield replace(_once(question, mechanism, settings, share, note), is_certain=False)


def spans(question: Question, curve: Curve) -> Iterator[Prediction]:
    """Yield `ExactSubspace`, if the guess is that rows lie in a subspace exactly."""
    k, mechanism = question.n_components, ExactSubspace(**question.settings)
    # With a mean, rows lie in a space of one more dimension.
    lies = float(question.spectrum[k:].sum()) + question.mean_square <= _NOTHING and k < question.n_features
    if lies and question.rows >= (needed := mechanism.rows_needed()):
        note = f"exact, if rows lie in a subspace exactly; from {needed} rows"
        yield _once(question, mechanism, question.settings, 1.0, note)


def _once(
    question: Question, mechanism: Mechanism, settings: dict[str, Any], share: float, note: str = "",
    std: float | None = None,
) -> Prediction:  # fmt: skip
    rows = question.rows
    if question.window is None:
        return Prediction(mechanism, settings, "once", share, 1, note, std)
    note = "; ".join(filter(None, ("one release a window, of windows side by side", note)))
    algorithm, settings = Tumbling(mechanism, release_every=rows), {**settings, "release_every": rows}
    return Prediction(algorithm, settings, "once", share, question.n_rows // rows, note, std)


# -- a stream of releases --------------------------------------------------------------


def leaders(question: Question, curve: Curve) -> Iterator[Prediction]:
    """Yield `PrivateFPL` with each of its noises."""
    n, d = question.n_rows, question.n_features

    def leader(noise: str, every: int, horizon: int | None = n, solver: str = "exact") -> Prediction:
        settings: dict[str, Any] = {**question.centered_settings, "noise": noise, "solver": solver}
        settings |= {"release_every": every, "horizon": horizon}
        algorithm = PrivateFPL(**settings)
        leaves, smoothing = -(-n // every), None
        if isinstance(algorithm.solver, Smoothed):
            smoothing = algorithm.solver.smoothing(algorithm.mechanism, d, algorithm.n_components, every)
        # Shares change slowly with log n, so few times suffice. A smoothed one is simulated step by step.
        ends = np.unique(np.geomspace(1, leaves, _TIMES if smoothing is None else _TIMES // 4).astype(np.int64))
        times = np.minimum(ends * every, n)
        stds = np.array([algorithm.noise_std(int(t)) for t in times])
        spreads = question.spread(stds, times)
        if smoothing is None:
            shares, note = curve.captured(spreads / times), "" if horizon else "no horizon to keep to"
        else:
            shares = _smoothed_shares(question, curve, smoothing, every, ends)
            note = "for rows that change slowly if at all; no regret bound is proved"
        regret = _regret(question, every, ends, shares, stds)
        return Prediction(algorithm, settings, "stream", float(shares[-1]), leaves, note, float(spreads[-1]), regret)

    # Rare releases wait, frequent ones have more noise. Powers of ten are tried.
    every = question.release_every or 0
    if not every:
        steps = sorted({min(n, 10**p) for p in range(int(math.log10(n)) + 1)})
        every = min(steps, key=lambda step: (leader("blt", step).regret_per_row or 0.0, step))
    yield leader("blt", every)
    yield leader("tree", every)
    yield leader("blt", every, horizon=None)
    if question.release_every is None:
        every = max(every, -(-n // _SMOOTHED))  # so that few releases are simulated
    if n <= every * 4 * _SMOOTHED:
        yield leader("blt", every, solver="smoothed")


def _smoothed_shares(question: Question, curve: Curve, smoothing: Smoothing, every: int, ends: IntArray) -> FloatArray:
    """Return the shares captured by smoothed sums, for rows of one distribution."""
    # The filter is linear and treats coordinates alike, so three kinds of them suffice: one whose inputs are 1 without
    # noise, some of noise only, and some whose inputs scatter about 0.
    noise, sums = smoothing.mechanism.start(1 + 2 * _COORDINATES), smoothing.start(1 + 2 * _COORDINATES)
    draws = Randomness.from_seed(_SEED).stream("smoothed")
    inputs, shares = np.zeros(1 + 2 * _COORDINATES), []
    of_noise, of_inputs = slice(1, 1 + _COORDINATES), slice(1 + _COORDINATES, None)
    for n in range(1, int(ends[-1]) + 1):
        noise = noise.advance(draws.draws(2 * n))
        inputs[0] += 1.0
        inputs[of_inputs] += draws.normal(2 * n + 1, _COORDINATES)
        released = inputs.copy()
        released[of_noise] += noise.noise[of_noise]
        sums = sums.after(released)
        if n in ends:
            kept = float(sums.sum[0]) / n
            noise_std = float(question.spread(np.sqrt(np.mean(sums.sum[of_noise] ** 2)), n * every)) / (n * every)
            scatter_std = float(np.sqrt(np.mean((sums.sum - inputs)[of_inputs] ** 2) * 2.0 * every)) / (n * every)
            shares.append(curve.share_of(kept, noise_std, scatter_std))
    return np.array(shares)


def _regret(question: Question, every: int, ends: IntArray, shares: FloatArray, stds: FloatArray) -> float:
    """Return the expected regret a row if every leaf is scored by the subspace released before it.

    ``shares`` are those captured by the releases after the leaves ``ends``, and ``stds`` are of their noise.
    """
    n, best, square = question.n_rows, question.best, question.mean_square
    k, d = question.n_components, question.n_features
    # The first leaf is scored by the first axes, which capture k / d of the energy, on average over rotations.
    first = min(every, n) * (best + square - (float(question.spectrum.sum()) + square) * k / d)
    leaves = -(-n // every)
    played = np.arange(1, leaves) if leaves <= 4096 else np.geomspace(1.0, leaves - 1.0, 4096)
    if len(played) == 0:
        return first / n
    losses = 1.0 - np.interp(np.log(played), np.log(ends), shares)
    if square > 0.0:  # the error of the shrunk mean outside the subspace
        std = np.interp(np.log(played), np.log(ends), stds) / (MEAN_WEIGHT * played * every * question.weight**0.5)
        losses += (1.0 - k / d) * square * d * std**2 / (square + d * std**2) / best
    total = losses.sum() if leaves <= 4096 else float(np.trapezoid(losses, played))
    return float(first + best * every * total) / n


def sketch(question: Question) -> Iterator[Prediction]:
    """Yield `PrivateSketch`, by sketches of the mean Gram matrix plus noise."""
    n, d, k = question.n_rows, question.n_features, question.n_components
    if n > EXACT_ROWS:
        return
    settings: dict[str, Any] = {**question.centered_settings, "horizon": n}
    if question.release_every is not None:
        settings["release_every"] = question.release_every
    algorithm = PrivateSketch(**settings)
    m, _, weight = algorithm.shape(d)
    every, leaves = algorithm.release_every, -(-n // algorithm.release_every)
    ends = np.unique(np.geomspace(1, leaves, _TIMES // 4).astype(np.int64))
    stds = algorithm.mechanism(d).stds(ends)
    draws = Randomness.from_seed(_SEED).stream("sketch")
    omega, shares = random_basis(d, m, draws), []
    for i, (end, std) in enumerate(zip(ends.tolist(), stds.tolist(), strict=True)):
        exact = min(end * every, n) * question.spectrum[:, None] * omega
        basis = spiked(exact + std * draws.normal(i + 1, d * m).reshape(d, m), omega, omega, k, std, np.zeros(d))[0]
        shares.append(float(question.spectrum @ (basis**2).sum(axis=1)) / question.best)
    note = "O(d m) memory, with m a few times k; its noise grows with the number of releases"
    if question.purpose == "once":
        yield Prediction(algorithm, settings, "once", shares[-1], 1, note)
        return
    # The weight of a row beside its sketch is not that of `linalg.centering`.
    regret = _regret(question, every, ends, np.array(shares), stds * (MEAN_WEIGHT / (weight or 1.0)))
    yield Prediction(algorithm, settings, "stream", shares[-1], leaves, note, regret_per_row=regret)


def oja(question: Question, curve: Curve | None = None) -> Iterator[Prediction]:
    """Yield `PrivateOja` with steps for the number of rows, by its own recursion on mean gradients plus noise."""
    n, d, k = question.n_rows, question.n_features, question.n_components
    settings: dict[str, Any] = {**question.settings, "horizon": n}
    # Of people, it does not clip below 1.
    algorithm = PrivateOja(**settings, unit=None if question.rows_per_person is None else Person()).resolved(d)
    steps, std = [algorithm.step_end(0)], algorithm.noise_std(d)
    while steps[-1] < n:
        steps.append(algorithm.step_end(steps[-1]))
    # A random basis captures k / d of the energy.
    values, start = question.spectrum, float(question.spectrum.sum()) * k / d / question.best
    lasts, losses = [], []
    for run in range(int(np.clip(_RUNS // (d * k), 8, 100))):
        draws, mean = Randomness.from_seed(_SEED).stream("oja", run), question.mean(run)
        basis, rates = random_basis(d, k, draws), PrivateStepSizes(None, np.zeros(k))
        shares = [start]  # captured before each step, and after the last
        for i, (before, end) in enumerate(itertools.pairwise([0, *steps])):
            rows = end - before
            gradient = values[:, None] * basis + np.outer(mean, mean @ basis)
            clipped, squares = _clipped(basis.T @ gradient, algorithm.clip or 1.0, question.typical_square)
            # Rows are few: their sum has the spread of a sum of independent Gaussian ones.
            spread = np.sqrt(rows * np.outer(values + mean**2, squares))
            z = draws.normal(i + 1, 2 * d * k).reshape(2, d, k)
            noisy = rows * gradient @ clipped + std * z[0] + spread * z[1]
            rates, step = rates.step(noisy, basis, end, std)
            basis = orthonormalise(np.asfortranarray(basis + step))
            shares.append(float(values @ (basis**2).sum(axis=1)) / question.best)
        lasts.append(shares[-1])
        # Rows are scored by the basis before their step.
        losses.append(float(np.diff([0, *steps]) @ (1.0 - np.array(shares[:-1]))))
    note = "O(d k) memory; few releases; for rows in no particular order"
    regret = question.best * float(np.mean(losses)) / n
    yield Prediction(algorithm, settings, "stream", float(np.mean(lasts)), len(steps), note, regret_per_row=regret)


@lru_cache(maxsize=8)
def _scores(k: int) -> FloatArray:
    """Return Gaussian scores, (m, k), whose second moment is the identity matrix exactly."""
    normal = Randomness.from_seed(_SEED).stream("scores").normal(0, _SCORES * k).reshape(_SCORES, k)
    made: FloatArray = np.linalg.solve(np.linalg.cholesky(normal.T @ normal / _SCORES), normal.T).T
    made.flags.writeable = False
    return made


def _clipped(moment: FloatArray, clip: float, square: float) -> tuple[FloatArray, FloatArray]:
    """Return what clipping makes of mean gradients, (k, k), and the mean squares of clipped scores, (k,).

    For Gaussian scores p = W^T a with second moment R, and rows of squared norm ``square``: the mean of ``f a p^T`` is
    that of ``a p^T`` times ``R^-1 E[f p p^T]``.
    """
    values, vectors = np.linalg.eigh(0.5 * (moment + moment.T))
    roots = np.sqrt(np.maximum(values, 0.0))
    # The sample has the second moment exactly, so that nothing changes if nothing is clipped.
    unit = _scores(len(moment))
    scores = unit * roots
    squares = scores**2 @ np.ones(len(moment))
    factors = np.minimum(1.0, clip / np.sqrt(np.maximum(squares * np.maximum(square, squares), 1e-300)))
    kept = (unit.T * factors) @ unit / _SCORES  # E[f u u^T] for p = V diag(roots) u
    again = vectors @ (scores.T * factors**2 @ scores) @ vectors.T / _SCORES
    # R^-1 V r K r V^T = V r^-1 K r V^T
    inverse = 1.0 / np.maximum(roots, 1e-12 * max(float(roots.max()), 1e-300))
    return vectors @ (inverse[:, None] * kept * roots) @ vectors.T, np.maximum(np.diag(again), 0.0)


def dp_pca(question: Question, curve: Curve) -> Iterator[Prediction]:
    """Yield `DPPCA`, from a run on simulated Gaussian rows of the spectrum, if that takes seconds."""
    n, settings = question.n_rows, {**question.settings, "horizon": question.n_rows}
    try:
        algorithm = DPPCA(**settings)
        algorithm.check(question.n_features)
    except UsageError:
        return  # too few rows for a release
    d = question.n_features
    if n * d > _TRIED:
        return  # a trial would be slow, and a shorter one would predict little
    rows = Randomness.from_seed(_SEED).stream("rows").normal(0, n * d).reshape(n, d)
    if n > d + 1:  # the Gram matrix, about the mean of the sample if centered, has the guessed spectrum exactly
        rows -= rows.mean(axis=0) * question.center
        values, vectors = np.linalg.eigh(rows.T @ rows / n)
        rows = (rows @ vectors) / np.sqrt(values)
    rows = onto_ball(rows * np.sqrt(question.spectrum) + question.mean(0))
    stream = Stream(algorithm, row_norm=1.0, regret=None, seed=_SEED)
    releases = len(stream.push_many(rows).releases)
    about = rows - rows.mean(axis=0) * question.center
    gram = about.T @ about
    best = float(np.linalg.eigvalsh(gram)[-question.n_components :].sum())
    share = stream.engine.subspace().captured(gram) / best
    note = f"captures {share:.1%} in one trial on Gaussian rows; better on rows that are alike, far worse on others"
    yield Prediction(algorithm, settings, "stream", share, releases, note, is_certain=False)


# -- windows -----------------------------------------------------------------------------


def windows(question: Question, curve: Curve) -> Iterator[Prediction]:
    """Yield `SlidingWindowPCA` with each of its methods."""
    width, n = question.rows, question.n_rows
    least = -(-width // 100)
    # About 100 releases of a window, if possible with a divisor of its length.
    divisor = next((step for step in range(least, 2 * least + 1) if width % step == 0), max(1, width // 100))
    every = min(question.release_every or divisor, width)
    while width % every:  # some methods accept whole groups of rows only
        every -= 1
    for method, note in _NOTES.items():
        settings: dict[str, Any] = {**question.centered_settings, "window": width, "method": method}
        settings["release_every"] = every
        try:
            algorithm = SlidingWindowPCA(**settings)
        except UsageError:
            continue  # a window too long for this method
        std = algorithm.noise_std(max(n, every))
        # The histogram's sum covers rows before the window, half its overhang on average; a fading sum lacks rows
        # before the first.
        count = float(width)
        if method == "histogram":
            count *= 1.0 + 0.5 * algorithm.overhang
        elif method == "forgetting":
            count *= 1.0 - (1.0 - every / width) ** (n // every)
        if method == "smoothed":
            share = _smoothed_window(question, curve, algorithm, n // every)
        else:
            share = float(curve.captured(question.spread(std, count) / count))
        yield Prediction(algorithm, settings, "window", share, n // every, note, float(question.spread(std, width)))


def _smoothed_window(question: Question, curve: Curve, algorithm: SlidingWindowPCA, releases: int) -> float:
    """Return the share captured by a smoothed window, for rows of one distribution."""
    # Response of the filter to the inputs, to the noise, and to the scatter of the rows.
    every, leaves = algorithm.release_every, algorithm.leaves
    smoothing = WindowSmoothing(algorithm.mechanism, question.n_features, question.n_components, every)
    weights, window = smoothing.solve(releases)[0], np.zeros(min(releases, 2 * leaves))
    window[-leaves:] = 1.0
    rows = every * window.sum()
    std = math.sqrt(weights @ smoothing.noise_covariance(min(releases, 2 * leaves + 1)) @ weights)
    noise_std = float(question.spread(std, rows)) / rows
    scatter_std = math.sqrt(2.0 * every * float(np.sum((weights - window) ** 2))) / rows
    return curve.share_of(float(weights.sum() / window.sum()), noise_std, scatter_std)


Predictor = Callable[[Question, Curve], Iterator[Prediction]]
#: Each yields the predictions that apply to a question, for rows in the unit ball.
ONCE: tuple[Predictor, ...] = (covariances, adaptive, spans)
STREAM: tuple[Predictor, ...] = (leaders, oja, dp_pca)
WINDOW: tuple[Predictor, ...] = (windows,)
