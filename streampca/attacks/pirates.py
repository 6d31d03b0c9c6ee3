"""Pirates of DTTZ14 Section 5: they turn a released subspace back into a word of the code.

Algorithm 5 hides the words behind a signed permutation of their positions,
asks a mechanism for the top direction, and reads the word off its signs.
Algorithm 6 mixes k such sets, each rotated, and finds the word in the top k-dimensional subspace.
The words are padded with ones, which give the direction a gap and the pirate a sign.

The paper pads with 15 times the length of the words, for the sake of its
constants; here the length of the padding is a parameter, because a matrix over
16 n features is a lot to ask of a mechanism. Everything after the mechanism is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from streampca.linalg.eigen import orthonormal
from streampca.linalg.types import FloatArray, IntArray
from streampca.privacy.randomness import Randomness

#: A mechanism under attack: rows in the unit ball (m, d) and k -> basis (d, k).
Oracle = Callable[[FloatArray, int], FloatArray]

#: Directions of the subspace that Algorithm 6 tries.
NET = 2000


def direction_pirate(words: FloatArray, padding: int, oracle: Oracle, randomness: Randomness) -> FloatArray:
    """Algorithm 5: a word from the top direction of the padded words.

    Parameters
    ----------
    words : (m, n) of -1 and +1, the contributors' words.
    padding : number of ones appended to each, 15 n in the paper.
    oracle : mechanism for the top direction.
    randomness : for the signed permutation.

    Returns
    -------
    numpy.ndarray
        (n,) of -1 and +1.
    """
    n = words.shape[1]
    order, signs = _signed_permutation(n + padding, randomness, 0)
    basis = oracle((_padded(words, padding) * signs)[:, order], 1)
    w = np.empty(n + padding)
    w[order] = basis[:, 0]
    w *= signs
    return _signs(w[:n] if w[n:].sum() > 0.0 else -w[:n])


def subspace_pirate(
    words: FloatArray,
    padding: int,
    n_components: int,
    sample: Callable[[int], FloatArray],
    oracle: Oracle,
    randomness: Randomness,
) -> FloatArray:
    """Algorithm 6: a word from the top subspace of k sets of words, one of them the contributors'.

    Parameters
    ----------
    words, padding, oracle, randomness : as in `direction_pirate`.
    n_components : k.
    sample : draws the i-th further set of words, of a code like that of ``words``.

    Notes
    -----
    The best of all unit vectors of the subspace cannot be found by search; the
    best of `NET` random ones and of the direction nearest to the padding is taken.
    """
    m, n = words.shape
    d, k = n + padding, n_components
    place = int(randomness.stream("place").words(0, 1)[0] % np.uint64(k))
    order, signs = _signed_permutation(d, randomness, place)
    turn, blocks = np.empty(0), []
    for i in range(k):
        own_order, own_signs = _signed_permutation(d, randomness, i)
        rotation = orthonormal(randomness.stream("rotation").normal(i, d * d).reshape(d, d))
        members = words if i == place else sample(i)
        blocks.append((_padded(members, padding) * own_signs)[:, own_order] @ rotation)
        if i == place:
            turn = rotation
    shuffled = randomness.stream("order").permutation(0, k * m)
    basis = oracle(np.concatenate(blocks)[shuffled], k)
    back = np.empty((d, k))
    back[order] = turn @ basis
    back *= signs[:, None]
    w = _most_agreeing(back, d - padding // 2, randomness)
    return _signs(w[:n])


def _most_agreeing(basis: FloatArray, first: int, randomness: Randomness) -> FloatArray:
    """The direction of the span whose entries from ``first`` on reach the threshold most often."""
    d, k = basis.shape
    threshold = 1.0 / (20.0 * math.sqrt(d))  # 1 / (80 sqrt(n)) at the paper's d = 16 n
    pad = basis[first:].sum(axis=0)
    tries = np.vstack([pad, randomness.stream("net").normal(0, NET * k).reshape(NET, k)])
    lengths = np.linalg.norm(tries, axis=1)
    tries = tries[lengths > 0.0] / lengths[lengths > 0.0, None]
    agreeing = (tries @ basis[first:].T >= threshold).sum(axis=1)
    w: FloatArray = basis @ tries[int(agreeing.argmax())]
    return w


def _padded(words: FloatArray, padding: int) -> FloatArray:
    m, n = words.shape
    rows: FloatArray = np.hstack([words, np.ones((m, padding))]) / math.sqrt(n + padding)
    return rows


def _signed_permutation(d: int, randomness: Randomness, i: int) -> tuple[IntArray, FloatArray]:
    order = randomness.stream("permutation").permutation(i, d)
    signs = np.where(randomness.stream("signs").words(i, d) & np.uint64(1), 1.0, -1.0)
    return order, signs


def _signs(w: FloatArray) -> FloatArray:
    return np.where(w >= 0.0, 1.0, -1.0)
