"""One audit: a claim against what an attacker achieves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from streampca.auditing.confidence import epsilon_bound, mu_bound
from streampca.auditing.experiment import Experiment, derived_seed, neighbours, of_algorithm, of_mechanism, smaller
from streampca.auditing.statistic import Transcript, as_table, columns_of, matched_filter
from streampca.errors import BadParameter
from streampca.linalg.counts import check_count
from streampca.linalg.types import FloatArray
from streampca.mechanisms.base import Mechanism
from streampca.privacy.guarantee import Guarantee
from streampca.processors.base import Algorithm

_THRESHOLDS = 64
_LEARNT_SHARE = 0.25
_DEFAULT_ROWS = 8


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes
    ----------
    name : what was audited.
    measure : ``"mu"`` for Gaussian claims, else ``"epsilon"`` (at the claim's delta).
    claim : the claimed value; ``inf`` if nothing is claimed.
    bound : the true value is at least this, with confidence ``confidence``.
    confidence : one minus the probability that a true claim fails this audit.
    runs : runs of each of the two neighbouring data sets, those that taught the attacker included.
    guarantee : the claim in full.
    """

    name: str
    measure: str
    claim: float
    bound: float
    confidence: float
    runs: int
    guarantee: Guarantee

    @property
    def holds(self) -> bool:
        """False if the claim is refuted."""
        return self.bound <= self.claim

    @property
    def tightness(self) -> float:
        """Bound over claim: how much of the budget an attacker was shown to get."""
        return self.bound / self.claim

    def __str__(self) -> str:
        verdict = "not refuted" if self.holds else "REFUTED"
        at = "" if self.measure == "mu" else f" at delta = {self.guarantee.delta:g}"
        return (
            f"{self.name}: {verdict}. {self.measure} is at least {self.bound:.4g}{at}, claimed {self.claim:.4g} "
            f"({self.runs} runs of each neighbour, confidence {self.confidence:g})"
        )


def audit(
    subject: Algorithm | Mechanism | Experiment,
    *,
    runs: int = 3000,
    confidence: float = 0.999,
    rows: FloatArray | int | None = None,
    position: int = 0,
    seed: int | None = None,
) -> Audit:
    """Try to refute a privacy claim.

    Neighbouring data sets are run many times through the ordinary code. An
    attacker learns on a quarter of the runs how to tell them apart, and the
    rest shows how well it does, from which follows a lower confidence bound
    on mu (Gaussian claims) or epsilon (others).

    Parameters
    ----------
    subject : an algorithm, a mechanism, or an `Experiment`.
    runs : runs of each of the two data sets. At 3000 a Gaussian claim with mu
        near 2.5 is met to within a tenth; smaller mu need runs as 1/mu**2.
    confidence : one minus the probability that a true claim is called refuted.
    rows : number of rows of each data set, or the rows themselves, (n, d),
        public and harmless. Left out: up to 8 zero rows (one block of a
        mechanism). An algorithm with a longer horizon is audited at this horizon instead.
    position : which row differs, from 0.
    seed : for a reproducible audit; left out, all noise is fresh from the system.

    Returns
    -------
    Audit : prints as one sentence.

    Notes
    -----
    An audit never proves a claim. It can refute one, and a bound close to the
    claim shows that the noise is no larger than it needs to be.
    """
    check_count("runs", runs)
    if runs < 40:
        raise BadParameter(f"runs={runs} shows nothing; use at least 40, or the default 3000")
    if not 0.5 <= confidence < 1.0:
        raise BadParameter(f"confidence={confidence!r} must be in [0.5, 1), e.g. 0.999")
    experiment = subject if isinstance(subject, Experiment) else _experiment(subject, rows, position)

    def sample(stage: str, changed: bool, count: int) -> Sequence[Transcript]:
        return experiment.sample(changed, count, derived_seed(seed, stage, changed))

    learnt = max(20, round(_LEARNT_SHARE * runs))
    counted = runs - learnt
    lessons = sample("learn", False, learnt), sample("learn", True, learnt)
    score = _attacker(experiment, *lessons)
    guarantee = experiment.guarantee
    gaussian = guarantee.mu is not None or not guarantee.is_private
    bound_of = partial(mu_bound, slack=guarantee.slack) if gaussian else partial(epsilon_bound, delta=guarantee.delta)
    event = _best_event(score(lessons[0]), score(lessons[1]), lambda hits: bound_of(hits, learnt, 1.0 - confidence))
    hits = event(score(sample("test", False, counted)), score(sample("test", True, counted)))
    return Audit(
        name=experiment.name,
        measure="mu" if gaussian else "epsilon",
        claim=guarantee.epsilon if guarantee.mu is None else guarantee.mu,
        bound=bound_of(hits, counted, 1.0 - confidence),
        confidence=confidence,
        runs=runs,
        guarantee=guarantee,
    )


def _experiment(subject: Algorithm | Mechanism, rows: FloatArray | int | None, position: int) -> Experiment:
    if not isinstance(subject, (Algorithm, Mechanism)):
        raise BadParameter(f"subject={subject!r} is not an algorithm, a mechanism or an Experiment")
    adjacency = subject.guarantee.adjacency
    given = None if rows is None or isinstance(rows, int) else np.asarray(rows, dtype=np.float64)
    if given is not None and given.ndim != 2:
        raise BadParameter(f"rows of shape {given.shape} given; (n, d), or a number of rows, expected")
    n_features = subject.n_features or (given.shape[1] if given is not None else max(subject.n_components or 1, 2))
    n_rows = rows if isinstance(rows, int) else _DEFAULT_ROWS if given is None else given.shape[0]
    check_count("rows", n_rows)
    if isinstance(subject, Algorithm):
        horizon = subject.parameters().get("horizon")
        if rows is None and horizon is not None:
            n_rows = min(n_rows, horizon)
        subject = smaller(subject, n_rows)
    if not -n_rows <= position < n_rows:
        raise BadParameter(f"position={position} is not one of the {n_rows} rows")
    pair = neighbours(n_rows, n_features, adjacency=adjacency, position=position, rows=given)
    return of_algorithm(subject, pair) if isinstance(subject, Algorithm) else of_mechanism(subject, pair)


def _attacker(
    experiment: Experiment, without: Sequence[Transcript], having: Sequence[Transcript]
) -> Callable[[Sequence[Transcript]], FloatArray]:
    """A score for transcripts, fixed or learnt; higher speaks for the change."""
    if experiment.score is not None:
        fixed = experiment.score
        return lambda transcripts: np.array([fixed(one) for one in transcripts])
    columns = columns_of(without, having)
    if not columns:
        raise BadParameter(f"{experiment.name} released nothing; give it more rows")
    learnt = matched_filter(as_table(without, columns), as_table(having, columns))
    return lambda transcripts: learnt(as_table(transcripts, columns))


def _best_event(
    without: FloatArray, having: FloatArray, value: Callable[[tuple[int, int]], float]
) -> Callable[[FloatArray, FloatArray], tuple[int, int]]:
    """The half-line of scores that tells the two samples apart best, and which of them it speaks for.

    Returns a function from scores of both kinds to (hits of the other, hits of
    the one that the event speaks for).
    """

    def above(low: FloatArray, high: FloatArray, threshold: float) -> tuple[int, int]:
        return int((low > threshold).sum()), int((high > threshold).sum())

    def below(low: FloatArray, high: FloatArray, threshold: float) -> tuple[int, int]:
        return int((high <= threshold).sum()), int((low <= threshold).sum())

    both = np.concatenate([without, having])
    thresholds = np.unique(np.quantile(both, np.linspace(0.0, 1.0, _THRESHOLDS)))
    thresholds = np.unique(np.append(thresholds, 0.5 * (thresholds[1:] + thresholds[:-1])))
    choices = [(side, float(threshold)) for threshold in thresholds for side in (above, below)]
    worth = [value(side(without, having, threshold)) for side, threshold in choices]
    side, threshold = choices[int(np.argmax(worth))]
    # For two normals of equal spread the middle is near the best; the empirical best is kept only where it is
    # clearly better, since the best of many noisy figures is mostly lucky.
    middle = 0.5 * float(without.mean() + having.mean())
    if value(above(without, having, middle)) > 0.85 * max(worth):
        side, threshold = above, middle
    return lambda low, high: side(low, high, threshold)
