"""A black-box audit, for processors from elsewhere: what an attacker learns from releases alone.

An attacker learns on a quarter of the runs how to tell two neighbors apart, and the rest shows how well it does. It
says "changed" on an event E of probabilities p0 and p1 on the two neighbors. Whatever E is, a mechanism that is mu-GDP
but for an event of probability s has p1 <= Phi(Phi^-1(p0) + mu) + s, and one that is (epsilon, delta)-DP has
p1 <= e^epsilon p0 + delta. So estimates of p0 from above and of p1 from below (Clopper and Pearson 1934, exact for any
number of runs) bound mu and epsilon from below.

For Gaussian transcripts with a common covariance S and means apart by m, no test beats the matched filter ``S^-1 m``
(Neyman and Pearson). Here S and m are learned from transcripts, not taken from what the mechanism says of itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtri

from streampca.auditing.instrument import Audit, Verdict
from streampca.errors import BadParameterError
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
    subject: Algorithm | Mechanism,
    pair: tuple[FloatArray, FloatArray],
    *,
    runs: int,
    error: float,
    seed: int | None = None,
) -> Audit:
    """Try to refute a claim from releases of two neighboring data sets, (n, d) arrays, with probability ``error``.

    At 3000 runs of each of them, a claim with mu near 2.5 is met to within a tenth.
    """
    probes = np.eye(pair[0].shape[1])

    def run(changed: bool, one: int | None) -> Transcript:
        rows = pair[int(changed)]
        if isinstance(subject, Mechanism):
            return transcript([subject.release(rows, seed=one)], probes)
        return transcript(Stream(subject, seed=one, regret=None).push_many(rows).releases, probes)

    return attack(type(subject).__name__, subject.guarantee, run, runs=runs, error=error, seed=seed)


def attack(name: str, guarantee: Guarantee, run: Run, *, runs: int, error: float, seed: int | None = None) -> Audit:
    """Audit anything that is run once for each transcript."""
    learned = max(20, runs // 4)
    counted = max(20, runs - learned)

    def sample(stage: str, count: int) -> tuple[list[Transcript], list[Transcript]]:
        kinds = [[run(changed, _seed(seed, stage, changed, i)) for i in range(count)] for changed in (False, True)]
        return kinds[0], kinds[1]

    lessons, tests = sample("learn", learned), sample("test", counted)
    columns = list(dict.fromkeys(key for group in lessons for one in group for key in one))
    if not columns:
        raise BadParameterError(f"{name} released nothing; give it more rows")
    score = matched_filter(as_table(lessons[0], columns), as_table(lessons[1], columns))
    gaussian = guarantee.mu is not None or not guarantee.is_private
    bound_of = partial(mu_bound, slack=guarantee.slack) if gaussian else partial(epsilon_bound, delta=guarantee.delta)
    without, having = (score(as_table(group, columns)) for group in lessons)
    event = _best_event(without, having, lambda hits: bound_of(hits, learned, error))
    bound = bound_of(event(*(score(as_table(group, columns)) for group in tests)), counted, error)
    claim = guarantee.epsilon if guarantee.mu is None else guarantee.mu
    verdict: Verdict = "refuted" if bound > claim else "holds" if bound else "cannot see"
    witness = f"at least {bound:.4g} from {runs} runs of each neighbor"
    return Audit(name, "releases", verdict, "mu" if gaussian else "epsilon", claim, bound / claim, witness=witness)


def _seed(seed: int | None, *label: object) -> int | None:
    return None if seed is None else int.from_bytes(blake2b(repr((seed, *label)).encode(), digest_size=16).digest())


def smaller(algorithm: Algorithm, n_rows: int) -> Algorithm:
    """The algorithm calibrated for a stream of ``n_rows`` rows, where it has a horizon; itself otherwise."""
    if algorithm.parameters().get("horizon") in (None, n_rows):
        return algorithm
    try:
        return replace(algorithm, horizon=n_rows)  # type: ignore[type-var]
    except BadParameterError as problem:
        raise BadParameterError(f"rows={n_rows} does not suit {type(algorithm).__name__}: {problem}") from problem


def transcript(releases: Sequence[Release], probes: FloatArray) -> dict[str, float]:
    """Everything that left, as named numbers: the matrices on the probes, and all details."""
    out: dict[str, float] = {}
    for i, release in enumerate(releases):
        matrix = release.gram if release.has_gram else release.subspace.projector
        forms = probes @ matrix @ probes.T
        for a in range(len(probes)):
            for b in range(a, len(probes)):
                out[f"{i}/{a}{b}"] = float(forms[a, b])
        if not release.has_gram and release.eigenvalues is not None:
            out.update((f"{i}/value{j}", float(v)) for j, v in enumerate(release.eigenvalues))
        out.update(_numbers(release.details, f"{i}"))
    return out


def _numbers(value: Any, path: str) -> Iterator[tuple[str, float]]:
    """Numbers in nested JSON values; texts count as 1 under their own name."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _numbers(inner, f"{path}/{key}")
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            yield from _numbers(inner, f"{path}/{i}")
    elif isinstance(value, str):
        yield f"{path}={value}", 1.0
    elif value is not None:
        yield path, float(value)


def as_table(transcripts: Sequence[Transcript], columns: Sequence[str]) -> FloatArray:
    """Transcripts as an (n, m) array; what a transcript lacks is 0."""
    rows = [[float(one.get(name, 0.0)) for name in columns] for one in transcripts]
    return np.array(rows).reshape(len(transcripts), len(columns))


def matched_filter(without: FloatArray, having: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """The best linear score for telling two samples of transcripts apart, (n, m) each.

    Coordinates are scaled by their spread; directions with less than 1e-10 of it in both samples count as noiseless.
    """
    middle = 0.5 * (without.mean(axis=0) + having.mean(axis=0))
    spread = np.concatenate([without, having]).std(axis=0)
    alive = spread > 1e-12 * (1.0 + np.abs(middle))
    scale = np.where(alive, spread, 1.0)

    def standard(table: FloatArray) -> FloatArray:
        return np.where(alive, (table - middle) / scale, 0.0)

    a, b = standard(without), standard(having)
    within = 0.5 * (np.cov(a, rowvar=False) + np.cov(b, rowvar=False))
    values, vectors = np.linalg.eigh(np.atleast_2d(within))
    shift = vectors.T @ (b.mean(axis=0) - a.mean(axis=0))
    weights = vectors @ (shift / np.maximum(values, _FLOOR))
    return lambda table: standard(table) @ weights


def _best_event(
    without: FloatArray, having: FloatArray, value: Callable[[tuple[int, int]], float]
) -> Callable[[FloatArray, FloatArray], tuple[int, int]]:
    """The half-line of scores that tells the two samples apart best, and which of them it speaks for.

    Returns a function from scores of both kinds to (hits of the other, hits of the one that the event speaks for).
    """

    def hits(low: FloatArray, high: FloatArray, threshold: float, above: bool = True) -> tuple[int, int]:
        mine, its = (low > threshold, high > threshold) if above else (high <= threshold, low <= threshold)
        return int(mine.sum()), int(its.sum())

    both = np.concatenate([without, having])
    thresholds = np.unique(np.quantile(both, np.linspace(0.0, 1.0, _THRESHOLDS)))
    thresholds = np.unique(np.append(thresholds, 0.5 * (thresholds[1:] + thresholds[:-1])))
    choices = [(float(threshold), above) for threshold in thresholds for above in (True, False)]
    worth = [value(hits(without, having, *choice)) for choice in choices]
    choice = choices[int(np.argmax(worth))]
    # For two normals of equal spread the middle is near the best; the empirical best is kept only where it is
    # clearly better, since the best of many noisy figures is mostly lucky.
    middle = 0.5 * float(without.mean() + having.mean())
    if value(hits(without, having, middle)) > 0.85 * max(worth):
        choice = middle, True
    return lambda low, high: hits(low, high, *choice)


def highest_rate(hits: int, runs: int, error: float) -> float:
    """Upper Clopper-Pearson bound: the true rate is above it with probability at most ``error``."""
    return 1.0 if hits >= runs else float(betaincinv(hits + 1.0, runs - hits, 1.0 - error))


def lowest_rate(hits: int, runs: int, error: float) -> float:
    """Lower Clopper-Pearson bound: the true rate is below it with probability at most ``error``."""
    return 0.0 if hits <= 0 else float(betaincinv(hits, runs - hits + 1.0, error))


def mu_bound(hits: tuple[int, int], runs: int, error: float, slack: float = 0.0) -> float:
    """Lower bound on mu, wrong with probability at most ``error``; mu does not hold with probability ``slack``.

    Hits are how often the event happened in so many runs without the change, and in as many with it.
    """
    p0, p1 = _rates(hits, runs, error, slack)
    return 0.0 if p1 <= p0 else float(ndtri(p1) - ndtri(p0))


def epsilon_bound(hits: tuple[int, int], runs: int, error: float, delta: float = 0.0) -> float:
    """Lower bound on epsilon at ``delta``, wrong with probability at most ``error``. See `mu_bound`."""
    p0, p1 = _rates(hits, runs, error, delta)
    return 0.0 if p1 <= p0 else math.log(p1 / p0)


def _rates(hits: tuple[int, int], runs: int, error: float, slack: float) -> tuple[float, float]:
    return highest_rate(hits[0], runs, 0.5 * error), lowest_rate(hits[1], runs, 0.5 * error) - slack
