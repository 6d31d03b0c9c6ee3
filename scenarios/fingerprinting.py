"""Fingerprinting attack on a released subspace (Dwork, Talwar, Thakurta and Zhang 2014, Section 5).

The attack, and what it refutes, are in docs/theory/dttz14.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scenario import Context

import streampca as sp
from streampca.auditing.black_box import rates
from streampca.linalg.eigen import top_eigh
from streampca.linalg.types import FloatArray
from streampca.privacy.randomness import NoiseStream, Randomness

#: A mechanism under attack: rows in the unit ball (m, d) -> top direction (d,).
Oracle = Callable[[FloatArray], FloatArray]
#: Makes a fresh mechanism under attack from randomness of its own.
Target = Callable[[Randomness], Oracle]

#: Codewords that nobody holds, drawn in each trial.
DECOYS = 999
_DELTA = 1e-6


@dataclass(frozen=True, eq=False)
class TardosCode:
    """A fingerprinting code: ``biases`` (n,) are the probabilities of +1 at each position, unknown to the pirate."""

    biases: FloatArray

    @classmethod
    def draw(cls, length: int, coalition: int, noise: NoiseStream) -> TardosCode:
        """Draw the biases of a code of ``length`` positions against coalitions of that size."""
        cut = math.asin(math.sqrt(1.0 / (300.0 * coalition)))
        angles = cut + (0.5 * math.pi - 2.0 * cut) * noise.draws(0).uniform(length)
        return cls(np.sin(angles) ** 2)

    def words(self, count: int, noise: NoiseStream, index: int = 0) -> FloatArray:
        """Draw ``count`` codewords, (count, n) of -1 and +1."""
        uniform = noise.draws(index).uniform(count * self.biases.size).reshape(count, -1)
        return np.where(uniform < self.biases, 1.0, -1.0)

    def scores(self, words: FloatArray, pirate: FloatArray) -> FloatArray:
        """Score codewords (m, n) against a pirate word (n,): mean 0 and variance n where the two are independent."""
        std = np.sqrt(self.biases * (1.0 - self.biases))
        scores: FloatArray = (words - (2.0 * self.biases - 1.0)) @ (pirate / (2.0 * std))
        return scores


def unanimous(words: FloatArray) -> FloatArray:
    """Common sign of all codewords at each position, 0 where they differ: c_S of DTTZ14, Section 5."""
    return np.where(np.abs(words.sum(axis=0)) == words.shape[0], words[0], 0.0)


def p_values(scores: FloatArray, innocent: FloatArray) -> FloatArray:
    """Exact p-values of scores, by rank among the scores of codewords that nobody holds.

    A codeword that the pirate word does not depend on is exchangeable with those.
    """
    above = innocent.size - np.searchsorted(np.sort(innocent), scores, side="left")
    return np.asarray((1.0 + above) / (1.0 + innocent.size), dtype=np.float64)


def direction_pirate(words: FloatArray, padding: int, oracle: Oracle, randomness: Randomness) -> FloatArray:
    """Compute a pirate word (n,) from the top direction of codewords (m, n) that are padded with ones (Algorithm 5).

    Positions are permuted and their signs flipped at random before the mechanism is asked.
    """
    m, n = words.shape
    d = n + padding
    order = np.argsort(randomness.stream("permutation").draws(0).words(d), kind="stable")
    signs = np.where(randomness.stream("signs").draws(0).words(d) & np.uint64(1), 1.0, -1.0)
    rows = np.hstack([words, np.ones((m, padding))]) / math.sqrt(d)
    w = np.empty(d)
    w[order] = oracle((rows * signs)[:, order])
    w *= signs
    return np.where((w[:n] if w[n:].sum() > 0.0 else -w[:n]) >= 0.0, 1.0, -1.0)


@dataclass(frozen=True, eq=False)
class Evidence:
    """Outcome of the trials against one target."""

    rate: float  #: false-accusation rate of the accusations
    #: (trials, m) scores of the contributors, over the standard deviation of an innocent score
    contributors: FloatArray
    p_values: FloatArray  #: (trials, m) exact p-values of the contributors
    #: mean share of the positions where all contributors agree at which the pirate word agrees too: 1/2 is chance,
    #: the paper's "valid" is 19/20
    agreement: float

    @property
    def caught(self) -> NDArray[np.bool_]:
        """Contributors that are accused, (trials, m)."""
        return self.p_values <= self.rate

    def refutes(self, guarantee: sp.Guarantee, confidence: float = 0.999) -> bool:
        """Whether contributors are accused more often than a private guarantee allows (Clopper and Pearson).

        Contributors of one trial share a pirate word; the bound takes them as independent.
        """
        # exp overflows where the limit is 1 anyway.
        allowed = math.exp(min(guarantee.epsilon, 700.0)) * self.rate + guarantee.delta
        return rates(int(self.caught.sum()), self.caught.size, 1.0 - confidence)[0] > min(1.0, allowed)


def trace_contributors(
    oracle: Target, *, contributors: int, length: int, padding: int, trials: int = 10, rate: float = 0.01, seed: int = 0
) -> Evidence:
    """Attack a mechanism.

    Parameters
    ----------
    oracle : the mechanism.
    contributors : m, number of rows.
    length, padding : n and the number of ones that codewords are padded with; rows have ``n + padding`` features.
    trials, seed : independent repetitions, and what determines their results.
    rate : false-accusation rate, at least 1 / (`DECOYS` + 1).
    """
    inside, ps, agreements = [], [], []
    base = Randomness.from_seed(seed)
    for trial in range(trials):
        code_noise, word_noise, decoy_noise, own, mechanism = (
            Randomness(base.derived(name, trial)) for name in ("code", "words", "decoys", "pirate", "mechanism")
        )
        code = TardosCode.draw(length, contributors, code_noise.stream("biases"))
        words = code.words(contributors, word_noise.stream("words"))
        pirate = direction_pirate(words, padding, oracle(mechanism), own)
        scores = code.scores(words, pirate)
        inside.append(scores / math.sqrt(length))
        ps.append(p_values(scores, code.scores(code.words(DECOYS, decoy_noise.stream("words")), pirate)))
        common = unanimous(words)
        if common.any():
            agreements.append(float((pirate == common)[common != 0.0].mean()))
    agreement = float(np.mean(agreements)) if agreements else math.nan
    return Evidence(rate, np.array(inside), np.array(ps), agreement)


def exact_pca(_: Randomness) -> Oracle:
    """Target: PCA without privacy."""
    return lambda rows: top_eigh(rows.T @ rows, 1)[1][:, 0]


def algorithm_oracle(algorithm: sp.Algorithm, *, average: int = 1) -> Target:
    """Target: the last release of a stream of the rows.

    If ``average`` is above 1, push so many zero rows after the rows, and attack the sum of the Gram matrices released
    then.
    """

    def fresh(randomness: Randomness) -> Oracle:
        def ask(rows: FloatArray) -> FloatArray:
            d = rows.shape[1]
            stream = sp.Stream(algorithm, row_norm=1.0, regret=None, seed=int.from_bytes(randomness.derived("seed")))
            stream.push_many(rows)
            if average == 1:
                # A mechanism that declines has released no subspace: the first axis says as little.
                return np.column_stack([stream.engine.subspace().basis, np.eye(d, 1)])[:, 0]
            releases = stream.push_many(np.zeros((average, d))).releases
            return top_eigh(sum((release.gram for release in releases), np.zeros((d, d))), 1)[1][:, 0]

        return ask

    return fresh


def run(context: Context) -> dict[str, dict[str, float]]:
    """Trace contributors of PCA without privacy, of leaders and of private algorithms.

    Each trial uses ``contributors`` rows. ``refuted`` is 1 if contributors are
    accused more often than (1, 1e-6)-DP allows, with confidence 0.999.
    """
    params = context.params
    contributors, average = int(params["contributors"]), int(params["average"])
    trials = max(1, context.rows // contributors)

    common: dict[str, Any] = {"n_components": 1, "delta": _DELTA, "release_every": 1}  # trials have two rows

    def leader(epsilon: float, average: int = 1) -> Target:
        return algorithm_oracle(sp.papers.PerturbedLeader(epsilon=epsilon, **common), average=average)

    def private(epsilon: float, average: int = 1) -> Target:
        return algorithm_oracle(sp.PrivateFPL(epsilon=epsilon, center=False, **common), average=average)

    once = sp.GaussianCovariance(n_components=1, epsilon=1.0, delta=_DELTA, center=False)
    few = max(1, trials // 4)
    targets = {
        "exact": (exact_pca, trials),
        "leader_without_noise": (leader(1e6), trials),
        "epsilon_1e6": (private(1e6), trials),
        "leader_averaged": (leader(1.0, average), few),
        "private": (private(1.0), trials),
        "private_averaged": (private(1.0, average), few),
        "tumbling": (algorithm_oracle(sp.Tumbling(once, release_every=contributors)), trials),
    }
    claim = sp.Guarantee(1.0, _DELTA, "zero-out", "one release", "claimed", "", mu=sp.Budget(1.0, _DELTA).mu)
    size = {name: int(params[name]) for name in ("contributors", "length", "padding")}
    found = {}
    for name, (oracle, count) in targets.items():
        evidence = trace_contributors(oracle, trials=count, rate=float(params["rate"]), seed=context.seed, **size)
        found[name] = {
            "traced": float(evidence.caught.mean()), "trials_traced": float(evidence.caught.any(axis=1).mean()),
            "mean_score": float(evidence.contributors.mean()), "agreement": evidence.agreement,
            "refuted": float(evidence.refutes(claim)),
        }  # fmt: skip
    return found
