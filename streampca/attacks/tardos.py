"""Fingerprinting codes of Tardos (J. ACM 2008), with symmetric scores, and tracing.

Each of n positions has a bias p_j drawn from the arcsine law, cut off near 0
and 1; each word has independent signs, +1 with probability p_j. A pirate word
that follows a coalition of c words where they agree correlates with them: with the
scores below (Skoric, Katzenbeisser and Celik 2008) their scores sum to about
2 n / pi, however the pirate decides elsewhere, while the score of an innocent word has
mean 0 and variance n. So about c**2 positions are needed, and suffice up to logarithms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.types import FloatArray
from streampca.privacy.randomness import NoiseStream


@dataclass(frozen=True, eq=False)
class TardosCode:
    """A fingerprinting code: the biases, from which words are drawn.

    Attributes
    ----------
    biases : (n,) array, probability of +1 at each position. Secret to the pirate.
    """

    biases: FloatArray

    @classmethod
    def draw(cls, length: int, coalition: int, noise: NoiseStream) -> TardosCode:
        """Draw the biases of a code of ``length`` positions against coalitions of that size."""
        if length < 1 or coalition < 1:
            raise BadParameter(f"length={length} and coalition={coalition} must be at least 1")
        cut = math.asin(math.sqrt(1.0 / (300.0 * coalition)))
        angles = cut + (0.5 * math.pi - 2.0 * cut) * noise.uniform(0, length)
        return cls(np.sin(angles) ** 2)

    @property
    def length(self) -> int:
        """Number of positions."""
        return int(self.biases.size)

    def words(self, count: int, noise: NoiseStream, index: int = 0) -> FloatArray:
        """Draw ``count`` words, (count, n) of -1 and +1."""
        uniform = noise.uniform(index, count * self.length).reshape(count, self.length)
        return np.where(uniform < self.biases, 1.0, -1.0)

    def scores(self, words: FloatArray, pirate: FloatArray) -> FloatArray:
        """Score words (m, n) against a pirate word (n,): mean 0 and variance n for words it does not depend on."""
        spread = np.sqrt(self.biases * (1.0 - self.biases))
        scores: FloatArray = (words - (2.0 * self.biases - 1.0)) @ (pirate / (2.0 * spread))
        return scores


def unanimous(words: FloatArray) -> FloatArray:
    """Where all words agree their common sign, elsewhere 0: c_S of DTTZ14 Section 5."""
    return np.where(np.abs(words.sum(axis=0)) == words.shape[0], words[0], 0.0)


def p_values(scores: FloatArray, innocent: FloatArray) -> FloatArray:
    """Exact p-values of scores, by their ranks among those of innocent words drawn afresh.

    A word that the pirate word does not depend on is exchangeable with the
    innocent ones, so its p-value is at most x with probability at most x: no
    asymptotics, whatever the pirate did.
    """
    above = innocent.size - np.searchsorted(np.sort(innocent), scores, side="left")
    return np.asarray((1.0 + above) / (1.0 + innocent.size), dtype=np.float64)
