"""Tracing contributors of a released subspace: the attack as an experiment.

A trial draws a code, gives a word to each of m contributors, lets a pirate
turn what the mechanism releases of their rows back into a word, and accuses
every contributor whose score is in the top share of those of innocent words.

For an algorithm that is (epsilon, delta)-DP for one row under zero-out or
replace adjacency, each contributor is accused with probability at most
``exp(epsilon) * rate + delta``: without that contributor's row the pirate
word would not depend on the contributor's word, and the probability would be
at most ``rate``. Whoever is traced more often than that refutes the claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

from streampca.attacks.pirates import Oracle, direction_pirate, subspace_pirate
from streampca.attacks.tardos import TardosCode, p_values, unanimous
from streampca.errors import BadParameter
from streampca.linalg.eigen import top_eigh
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Randomness
from streampca.processors.base import Algorithm
from streampca.stream import Stream

#: Innocent words that scores are ranked among.
DECOYS = 999


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the trials against one target showed.

    Attributes
    ----------
    rate : false-accusation rate that accusations were made at.
    contributors : (trials, m) scores of those whose rows were used, in units of an innocent score's sd.
    innocents : (trials, `DECOYS`) scores of words that were not.
    p_values : (trials, m) exact p-values of the contributors.
    agreement : mean share of the positions where all contributors agree at
        which the pirate word agrees too: 1/2 is chance, the paper's "valid" is 19/20.
    """

    rate: float
    contributors: FloatArray
    innocents: FloatArray
    p_values: FloatArray
    agreement: float

    @property
    def accused(self) -> int:
        """Contributors accused, over all trials."""
        return int((self.p_values <= self.rate).sum())

    @property
    def traced(self) -> float:
        """Share of contributors accused."""
        return self.accused / self.p_values.size

    @property
    def trials_traced(self) -> float:
        """Share of trials in which somebody was accused, always rightly."""
        return float((self.p_values <= self.rate).any(axis=1).mean())

    def lower_bound(self, confidence: float = 0.999) -> float:
        """Lower confidence bound on the probability that a contributor is accused (Clopper and Pearson).

        Contributors of one trial share a pirate word; the bound takes them as independent.
        """
        hits, count = self.accused, self.p_values.size
        return float(beta.ppf(1.0 - confidence, hits, count - hits + 1)) if hits else 0.0

    def refutes(self, guarantee: Guarantee, confidence: float = 0.999) -> bool:
        """True if contributors are accused more often than the guarantee allows, at that confidence."""
        return self.lower_bound(confidence) > allowed(guarantee, self.rate)


def allowed(guarantee: Guarantee, rate: float) -> float:
    """Largest probability of accusing a contributor at a false-accusation rate, under a guarantee."""
    if not guarantee.is_private:
        return 1.0
    return min(1.0, math.exp(min(guarantee.epsilon, 700.0)) * rate + guarantee.delta)


def trace_contributors(
    oracle: Callable[[Randomness], Oracle],
    *,
    contributors: int,
    length: int,
    padding: int,
    n_components: int = 1,
    trials: int = 10,
    rate: float = 0.01,
    seed: int = 0,
) -> Evidence:
    """Attack a mechanism.

    Parameters
    ----------
    oracle : makes a fresh mechanism under attack from randomness of its own.
    contributors : m, rows that the pirate has (for ``n_components > 1``: m in each of k sets).
    length, padding : n and the number of ones that words are padded with; rows have their sum of features.
    n_components : 1 for Algorithm 5 of DTTZ14, more for Algorithm 6.
    trials : independent repetitions.
    rate : false-accusation rate, at least 1 / (`DECOYS` + 1).
    seed : everything is a function of it.
    """
    if not 1.0 / (DECOYS + 1) <= rate < 1.0:
        raise BadParameter(f"rate={rate} must be in [{1.0 / (DECOYS + 1)}, 1)")
    inside, outside, ps, agreements = [], [], [], []
    base = Randomness.from_seed(seed)
    for trial in range(trials):
        code_noise, word_noise, decoy_noise, own, mechanism = (
            Randomness(base.derived(name, trial)) for name in ("code", "words", "decoys", "pirate", "mechanism")
        )
        code = TardosCode.draw(length, contributors, code_noise.stream("biases"))
        words = code.words(contributors, word_noise.stream("words"))
        ask = oracle(mechanism)
        if n_components == 1:
            pirate = direction_pirate(words, padding, ask, own)
        else:

            def further(i: int, noise: Randomness = own) -> FloatArray:
                other = TardosCode.draw(length, contributors, noise.stream("biases", i))
                return other.words(contributors, noise.stream("words", i))

            pirate = subspace_pirate(words, padding, n_components, further, ask, own)
        scores = code.scores(words, pirate)
        innocent = code.scores(code.words(DECOYS, decoy_noise.stream("words")), pirate)
        inside.append(scores / math.sqrt(length))
        outside.append(innocent / math.sqrt(length))
        ps.append(p_values(scores, innocent))
        common = unanimous(words)
        if common.any():
            agreements.append(float((pirate == common)[common != 0.0].mean()))
    agreement = float(np.mean(agreements)) if agreements else math.nan
    return Evidence(rate, np.array(inside), np.array(outside), np.array(ps), agreement)


def exact_pca(_: Randomness) -> Oracle:
    """PCA without privacy, as a target."""
    return lambda rows, k: top_eigh(rows.T @ rows, k)[1]


def algorithm_oracle(
    make: Callable[[int], Algorithm], *, average: int = 1, zeros: int = 0
) -> Callable[[Randomness], Oracle]:
    """An algorithm as a target: a stream of it is fed the rows, and its last release is attacked.

    Parameters
    ----------
    make : builds the algorithm, from the number of components.
    average : feed zero rows after the others until there are so many
        releases more, and attack the average of their Gram matrices.
    zeros : zero rows fed after the others, for algorithms that need many rows.
    """

    def fresh(randomness: Randomness) -> Oracle:
        def ask(rows: FloatArray, k: int) -> FloatArray:
            stream = Stream(make(k), regret=None, seed=int.from_bytes(randomness.derived("seed")))
            stream.push_many(rows)
            stream.push_many(np.zeros((zeros, rows.shape[1])))
            if average == 1:
                # A release without a subspace (of a mechanism that declines) tells as little as the first axes.
                found = stream.subspace.basis
                return found if found.shape[1] == k else np.eye(rows.shape[1], k)
            total = np.zeros((rows.shape[1],) * 2)
            zero = np.zeros(rows.shape[1])
            for _ in range(average):
                release = stream.push(zero).release
                if release is not None:
                    total += release.gram
            return top_eigh(total, k)[1]

        return ask

    return fresh
