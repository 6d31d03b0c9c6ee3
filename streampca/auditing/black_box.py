"""Black-box audit of processors from other packages: the power of an attacker who sees releases only.

An attacker learns from a quarter of the runs to distinguish two neighbors, and the other runs measure its power. It
reports "changed" on an event E of probabilities p0 and p1 for the two neighbors. For every E, a mechanism that is
mu-GDP except for an event of probability s has p1 <= Phi(Phi^-1(p0) + mu) + s, and one that is (epsilon, delta)-DP has
p1 <= e^epsilon p0 + delta. So an upper bound on p0 and a lower bound on p1 (Clopper and Pearson 1934, exact for every
number of runs) bound mu and epsilon from below.

For Gaussian transcripts with a common covariance S and means that differ by m, the matched filter ``S^-1 m`` is the
most powerful test (Neyman and Pearson). S and m are learned from transcripts, not computed from the claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
from scipy.special import betaincinv, ndtri

from streampca.auditing.instrument import Audit, Verdict
from streampca.errors import UsageError
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import Mechanism
from streampca.privacy.guarantee import Guarantee
from streampca.processors.base import Algorithm
from streampca.release.release import Release
from streampca.stream.stream import Stream

Transcript = Mapping[str, float]
#: ``run(changed, seed)``: a transcript of the data set without or with the change; fresh noise if the seed is None.
Run = Callable[[bool, int | None], Transcript]
_THRESHOLDS = 64
_FLOOR = 1e-10


def audit_outside(
    subject: Algorithm | Mechanism, pair: tuple[FloatArray, FloatArray], *, runs: int, error: float, seed: int | None
) -> Audit:
    """Try to refute a claim from releases of two neighboring data sets, (n, d) arrays, with probability ``error``."""

    def run(changed: bool, one: int | None) -> Transcript:
        rows = pair[int(changed)]
        if isinstance(subject, Mechanism):
            return transcript([subject.release(rows, row_norm=1.0, seed=one)])
        return transcript(Stream(subject, row_norm=1.0, seed=one, regret=None).push_many(rows).releases)

    return attack(type(subject).__name__, subject.guarantee, run, runs=runs, error=error, seed=seed)


def attack(name: str, guarantee: Guarantee, run: Run, *, runs: int, error: float, seed: int | None = None) -> Audit:
    """Audit a function that returns a transcript of each run."""
    # The event is chosen on other runs than those that count its hits, or the Clopper-Pearson bounds would not hold.
    learned = max(20, runs // 4)
    counted = max(20, runs - learned)

    def sample(stage: str, changed: bool, count: int) -> list[Transcript]:
        labels = [repr((seed, stage, changed, i)).encode() for i in range(count)]
        seeds = [None if seed is None else int.from_bytes(blake2b(x, digest_size=16).digest()) for x in labels]
        return [run(changed, one) for one in seeds]

    stages = ("learn", learned), ("test", counted)
    samples = [[sample(stage, changed, n) for changed in (False, True)] for stage, n in stages]
    columns = list(dict.fromkeys(key for group in samples[0] for one in group for key in one))
    if not columns:
        raise UsageError(f"{name} released nothing. Supply more rows")
    # A name that a transcript lacks is 0.
    lessons, tests = (
        [np.array([[float(one.get(key, 0.0)) for key in columns] for one in group]) for group in groups]
        for groups in samples
    )
    score = matched_filter(*lessons)
    gaussian = guarantee.mu is not None or not guarantee.is_private
    measure: Literal["mu", "epsilon"] = "mu" if gaussian else "epsilon"
    bound_of = partial(lower_bound, measure=measure, slack=guarantee.slack if gaussian else guarantee.delta)
    event = _best_event(score(lessons[0]), score(lessons[1]), lambda hits: bound_of(hits, learned, error))
    bound = bound_of(event(score(tests[0]), score(tests[1])), counted, error)
    claim = guarantee.epsilon if guarantee.mu is None else guarantee.mu
    verdict: Verdict = "refuted" if bound > claim else "holds" if bound else "cannot see"
    witness = f"at least {bound:.4g} from {runs} runs of each neighbor"
    return Audit(name, "releases", verdict, measure, claim, bound / claim, witness=witness)


def transcript(releases: Sequence[Release]) -> dict[str, float]:
    """Return everything that was released as named numbers: the matrices, and all details."""
    out: dict[str, float] = {}
    for i, release in enumerate(releases):
        matrix = release.gram if release.packed is not None else release.subspace.projector
        out |= {f"{i}/{a}{b}": float(matrix[a, b]) for a in range(len(matrix)) for b in range(a, len(matrix))}
        if release.packed is None and release.eigenvalues is not None:
            out |= {f"{i}/value{j}": float(value) for j, value in enumerate(release.eigenvalues)}
        out.update(_numbers(release.details, f"{i}"))
    return out


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """Yield the numbers of nested JSON values by path; a text is 1 under its own name."""
    if isinstance(value, (Mapping, list, tuple)):
        for key, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            yield from _numbers(inner, f"{path}/{key}")
    elif isinstance(value, str):
        yield f"{path}={value}", 1.0
    elif value is not None:
        yield path, float(value)


def matched_filter(without: FloatArray, having: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return the best linear score that distinguishes two samples of transcripts, (n, m) each.

    Coordinates are scaled by their spread; directions with less than 1e-10 of it in both samples count as noiseless.
    """
    middle = 0.5 * (without.mean(axis=0) + having.mean(axis=0))
    spread = np.concatenate([without, having]).std(axis=0)
    alive = spread > 1e-12 * (1.0 + np.abs(middle))
    scale = np.where(alive, spread, 1.0)
    a, b = (np.where(alive, (table - middle) / scale, 0.0) for table in (without, having))
    within = 0.5 * (np.cov(a, rowvar=False) + np.cov(b, rowvar=False))
    values, vectors = np.linalg.eigh(np.atleast_2d(within))
    shift = vectors.T @ (b.mean(axis=0) - a.mean(axis=0))
    weights = vectors @ (shift / np.maximum(values, _FLOOR))
    return lambda table: np.where(alive, (table - middle) / scale, 0.0) @ weights


def _best_event(
    without: FloatArray, having: FloatArray, value: Callable[[tuple[int, int]], float]
) -> Callable[[FloatArray, FloatArray], tuple[int, int]]:
    """Return the half-line of scores that distinguishes the two samples best, as a function from scores to hits."""

    def hits(low: FloatArray, high: FloatArray, threshold: float, above: bool) -> tuple[int, int]:
        # Hits of the other neighbor, and of the one that the event indicates.
        mine, its = (low > threshold, high > threshold) if above else (high <= threshold, low <= threshold)
        return int(mine.sum()), int(its.sum())

    thresholds = np.unique(np.quantile(np.concatenate([without, having]), np.linspace(0.0, 1.0, _THRESHOLDS)))
    thresholds = np.append(thresholds, 0.5 * (thresholds[1:] + thresholds[:-1]))
    choices = [(float(threshold), above) for threshold in np.unique(thresholds) for above in (True, False)]
    best = max(choices, key=lambda choice: value(hits(without, having, *choice)))
    # For two normals of equal spread the middle is nearly optimal. The empirical optimum is preferred only if it is
    # clearly better, since the best of many noisy figures is mostly luck.
    middle = 0.5 * float(without.mean() + having.mean()), True
    if value(hits(without, having, *middle)) > 0.85 * value(hits(without, having, *best)):
        best = middle
    return lambda low, high: hits(low, high, *best)


def rates(hits: int, runs: int, error: float) -> tuple[float, float]:
    """Return Clopper-Pearson bounds: the true rate is below, or above, with probability at most ``error`` each."""
    low = 0.0 if hits <= 0 else float(betaincinv(hits, runs - hits + 1.0, error))
    high = 1.0 if hits >= runs else float(betaincinv(hits + 1.0, runs - hits, 1.0 - error))
    return low, high


def lower_bound(
    hits: tuple[int, int], runs: int, error: float, measure: Literal["mu", "epsilon"], slack: float = 0.0
) -> float:
    """Return a lower bound on mu or epsilon, wrong with probability at most ``error``.

    Hits count the event in ``runs`` runs without the change, and with it; the claim fails with probability ``slack``.
    """
    (_, p0), (p1, _) = (rates(count, runs, 0.5 * error) for count in hits)
    p1 -= slack
    if p1 <= p0:
        return 0.0
    return float(ndtri(p1) - ndtri(p0)) if measure == "mu" else math.log(p1 / p0)
