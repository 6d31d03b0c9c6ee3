"""Fingerprinting attack on a released subspace (Dwork, Talwar, Thakurta and Zhang 2014, Section 5).

A trial puts one codeword of a fingerprinting code into the row of each of m contributors, asks the mechanism for a
subspace of the rows, and computes a *pirate word* from it (Algorithms 5 and 6). A contributor is accused if the score
of the codeword against the pirate word is among the top share ``rate`` of the scores of codewords that nobody holds.

Under (epsilon, delta)-DP for one row, zero-out or replace, each contributor is accused with probability at most
``exp(epsilon) * rate + delta``: without that row the pirate word does not depend on the codeword, and the probability
is at most ``rate``. A higher frequency of accusations refutes the claim.

The code is Tardos's (J. ACM 2008) with symmetric scores (Skoric, Katzenbeisser and Celik 2008): each of n positions
has a bias p_j from the arcsine law, cut off near 0 and 1, and each codeword has independent signs, +1 with probability
p_j. If the pirate word follows c codewords where they agree, their scores sum to about 2 n / pi, while the score of any
other codeword has mean 0 and variance n. So about c**2 positions are needed, and suffice up to logarithms.

Rows are codewords padded with ones, which give the top direction a gap and a sign. The paper pads with 15 n ones for
the sake of its constants; here ``padding`` is a parameter, because mechanisms are slow at 16 n features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scenario import Context

from streampca.auditing.black_box import rates
from streampca.linalg.eigen import orthonormal, top_eigh
from streampca.linalg.types import FloatArray, IntArray
from streampca.mechanisms.covariance import GaussianCovariance
from streampca.papers.perturbed_leader import PerturbedLeader
from streampca.privacy.budget import Budget
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import NoiseStream, Randomness
from streampca.processors.base import Algorithm
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.tumbling import Tumbling
from streampca.stream.stream import Stream

#: A mechanism under attack: rows in the unit ball (m, d) and k -> basis (d, k).
Oracle = Callable[[FloatArray, int], FloatArray]
#: Makes a fresh mechanism under attack from randomness of its own.
Target = Callable[[Randomness], Oracle]

#: Codewords that nobody holds, drawn in each trial, and directions of the subspace that Algorithm 6 tries.
DECOYS, NET = 999, 2000
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
    n = words.shape[1]
    order, signs = _signed_permutation(n + padding, randomness, 0)
    w = np.empty(n + padding)
    w[order] = oracle((_padded(words, padding) * signs)[:, order], 1)[:, 0]
    w *= signs
    return np.where((w[:n] if w[n:].sum() > 0.0 else -w[:n]) >= 0.0, 1.0, -1.0)


def subspace_pirate(
    words: FloatArray, padding: int, k: int, sample: Callable[[int], FloatArray], oracle: Oracle, randomness: Randomness
) -> FloatArray:
    """Compute a pirate word from the top subspace of k sets of codewords, one of them the contributors' (Algorithm 6).

    Each set has a signed permutation and a rotation of its own; ``sample(i)`` draws the i-th further set. The best of
    all unit vectors of the subspace cannot be found by search; the best of `NET` random ones and of the direction
    nearest to the padding is taken.
    """
    m, n = words.shape
    d = n + padding
    place = int(randomness.stream("place").draws(0).words(1)[0] % np.uint64(k))
    blocks = []
    for i in range(k):
        order, signs = _signed_permutation(d, randomness, i)
        rotation = orthonormal(randomness.stream("rotation").normal(i, d * d).reshape(d, d))
        members = words if i == place else sample(i)
        blocks.append((_padded(members, padding) * signs)[:, order] @ rotation)
        if i == place:
            turn, own_order, own_signs = rotation, order, signs
    shuffled = np.argsort(randomness.stream("order").draws(0).words(k * m), kind="stable")
    basis = np.empty((d, k))
    basis[own_order] = turn @ oracle(np.concatenate(blocks)[shuffled], k)
    basis *= own_signs[:, None]

    # The direction of the span with most entries of the padding above a threshold, 1 / (80 sqrt(n)) at d = 16 n.
    padded = basis[d - padding // 2 :]
    tries = np.vstack([padded.sum(axis=0), randomness.stream("net").normal(0, NET * k).reshape(NET, k)])
    lengths = np.linalg.norm(tries, axis=1)
    tries = tries[lengths > 0.0] / lengths[lengths > 0.0, None]
    agreeing = (tries @ padded.T >= 1.0 / (20.0 * math.sqrt(d))).sum(axis=1)
    return np.where((basis @ tries[int(agreeing.argmax())])[:n] >= 0.0, 1.0, -1.0)


def _padded(words: FloatArray, padding: int) -> FloatArray:
    m, n = words.shape
    rows: FloatArray = np.hstack([words, np.ones((m, padding))]) / math.sqrt(n + padding)
    return rows


def _signed_permutation(d: int, randomness: Randomness, i: int) -> tuple[IntArray, FloatArray]:
    order = np.argsort(randomness.stream("permutation").draws(i).words(d), kind="stable")
    signs = np.where(randomness.stream("signs").draws(i).words(d) & np.uint64(1), 1.0, -1.0)
    return order, signs


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
    def accused(self) -> int:
        """Contributors accused, over all trials."""
        return int((self.p_values <= self.rate).sum())

    @property
    def trials_traced(self) -> float:
        """Share of trials in which a contributor was accused."""
        return float((self.p_values <= self.rate).any(axis=1).mean())

    def refutes(self, guarantee: Guarantee, confidence: float = 0.999) -> bool:
        """Whether contributors are accused more often than a private guarantee allows (Clopper and Pearson).

        Contributors of one trial share a pirate word; the bound takes them as independent.
        """
        # exp overflows where the limit is 1 anyway.
        allowed = math.exp(min(guarantee.epsilon, 700.0)) * self.rate + guarantee.delta
        return rates(self.accused, self.p_values.size, 1.0 - confidence)[0] > min(1.0, allowed)


def trace_contributors(
    oracle: Target, *, contributors: int, length: int, padding: int, n_components: int = 1,
    trials: int = 10, rate: float = 0.01, seed: int = 0,
) -> Evidence:  # fmt: skip
    """Attack a mechanism.

    Parameters
    ----------
    oracle : the mechanism.
    contributors : m, number of rows (for ``n_components > 1``: m in each of k sets).
    length, padding : n and the number of ones that codewords are padded with; rows have ``n + padding`` features.
    n_components : 1 for Algorithm 5 of DTTZ14, more for Algorithm 6.
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
        words, ask = code.words(contributors, word_noise.stream("words")), oracle(mechanism)

        def further(i: int, noise: Randomness = own) -> FloatArray:
            other = TardosCode.draw(length, contributors, noise.stream("biases", i))
            return other.words(contributors, noise.stream("words", i))

        if n_components == 1:
            pirate = direction_pirate(words, padding, ask, own)
        else:
            pirate = subspace_pirate(words, padding, n_components, further, ask, own)
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
    return lambda rows, k: top_eigh(rows.T @ rows, k)[1]


def algorithm_oracle(make: Callable[[int], Algorithm], *, average: int = 1, zeros: int = 0) -> Target:
    """Target: the last release of a stream of the rows.

    Parameters
    ----------
    make : builds the algorithm, from the number of components.
    average : if above 1, push ``average`` zero rows after the rows, and attack the sum of the Gram matrices released
        then.
    zeros : zero rows pushed after the rows, for algorithms that need many.
    """

    def fresh(randomness: Randomness) -> Oracle:
        def ask(rows: FloatArray, k: int) -> FloatArray:
            d = rows.shape[1]
            stream = Stream(make(k), regret=None, seed=int.from_bytes(randomness.derived("seed")))
            stream.push_many(rows)
            stream.push_many(np.zeros((zeros, d)))
            if average == 1:
                # A mechanism that declines has released no subspace: the first axes say as little.
                found = stream.engine.subspace.basis
                return found if found.shape[1] == k else np.eye(d, k)
            releases = stream.push_many(np.zeros((average, d))).releases
            return top_eigh(sum((release.gram for release in releases), np.zeros((d, d))), k)[1]

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

    def of(kind: type[PrivateFPL | PerturbedLeader], epsilon: float, average: int = 1) -> Target:
        return algorithm_oracle(lambda k: kind(n_components=k, epsilon=epsilon, delta=_DELTA), average=average)

    def tumbling(k: int) -> Tumbling:
        return Tumbling(GaussianCovariance(n_components=k, epsilon=1.0, delta=_DELTA), release_every=contributors)

    few = max(1, trials // 4)
    targets = {
        "exact": (exact_pca, 1, trials),
        "leader_without_noise": (of(PerturbedLeader, 1e6), 1, trials),
        "epsilon_1e6": (of(PrivateFPL, 1e6), 1, trials),
        "leader_averaged": (of(PerturbedLeader, 1.0, average), 1, few),
        "private": (of(PrivateFPL, 1.0), 1, trials),
        "private_averaged": (of(PrivateFPL, 1.0, average), 1, few),
        "tumbling": (algorithm_oracle(tumbling), 1, trials),
        "exact_subspace": (exact_pca, 2, few),
        "private_subspace": (of(PrivateFPL, 1.0), 2, few),
    }
    claim = Guarantee(1.0, _DELTA, "zero-out", "one release", "claimed", "", mu=Budget(1.0, _DELTA).mu)
    size = {name: int(params[name]) for name in ("contributors", "length", "padding")}
    found = {}
    for name, (oracle, k, count) in targets.items():
        evidence = trace_contributors(
            oracle, n_components=k, trials=count, rate=float(params["rate"]), seed=context.seed, **size
        )
        found[name] = {
            "traced": evidence.accused / evidence.p_values.size, "trials_traced": evidence.trials_traced,
            "mean_score": float(evidence.contributors.mean()), "agreement": evidence.agreement,
            "refuted": float(evidence.refutes(claim)),
        }  # fmt: skip
    return found
