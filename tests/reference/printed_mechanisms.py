"""Mechanisms as printed in three papers, none of them private as claimed: attacked in the tests beside them.

Dwork, Talwar, Thakurta and Zhang (STOC 2014), Algorithm 2; Jiang, Xie and Zhang (AAAI 2016), Algorithm 2; Singhal and
Steinke (NeurIPS 2021), Algorithm 1.
"""

import math
from collections import Counter

import numpy as np

from streampca.linalg.eigen import top_eigh
from streampca.linalg.svec import svec_size, unsvec
from streampca.linalg.types import FloatArray
from streampca.mechanisms.exact_subspace import Line, lines_of


def perturbed_subspace(rows: FloatArray, k: int, epsilon: float, delta: float, rng: np.random.Generator) -> FloatArray:
    """Basis of the projector with noise, with no refusal: claims (2 epsilon, 2 delta). Use `SubspacePerturbation`.

    The standard deviation ``D / (d_hat - 2 (1 + ln(1/delta) / epsilon))`` with ``D = (1 + sqrt(2 ln(1/delta))) /
    epsilon`` is used whatever its sign: it is squared. A small gap makes it small and negative, where it should be
    infinite. So one row that swaps the two largest eigenvalues is detected almost surely.
    """
    d, log = rows.shape[1], math.log(1.0 / delta)
    values, basis = top_eigh(rows.T @ rows, k + 1)
    gap = values[k - 1] - values[k] + rng.laplace(scale=2.0 / epsilon)
    std = (1.0 + math.sqrt(2.0 * log)) / epsilon / (gap - 2.0 * (1.0 + log / epsilon))
    top = basis[:, :k]
    return top_eigh(top @ top.T + unsvec(std * rng.normal(size=svec_size(d)), d), k)[1]


def wishart_gram(rows: FloatArray, epsilon: float, rng: np.random.Generator) -> FloatArray:
    """Gram matrix plus ``3 / (2 epsilon) * Wis_d(d + 1, I)``: claims (epsilon, 0).

    One-sided noise has a support that moves with the data. Say G and G + a a^T are the Gram matrices of neighbours, |a|
    = 1. The number ``1 / (a^T (release - G)^-1 a)`` is at least 1 for the second always, and below 1 for the first with
    probability ``1 - exp(-epsilon / 3)``: 0.28 at epsilon = 1. That is its exact delta. Use `MatrixLaplaceCovariance`
    for pure epsilon and `WishartCovariance` for PSD releases.
    """
    return rows.T @ rows + 1.5 / epsilon * wishart(rng, rows.shape[1], rows.shape[1] + 1)


def wishart(rng: np.random.Generator, d: int, degrees: int) -> FloatArray:
    """Draw from ``Wis_d(m, I)`` as Z Z^T, Z standard normal (d, m)."""
    normals = rng.normal(size=(d, degrees))
    return normals @ normals.T


def true_delta(epsilon: float) -> float:
    """Delta of `wishart_gram` at its own epsilon, under zero-out: ``1 - exp(-epsilon / 3)``."""
    return -math.expm1(-epsilon / 3.0)


def exact_line(rows: FloatArray, epsilon: float, delta: float, rng: np.random.Generator) -> Line | None:
    """GAP-MAX over the lines through rows (k = 1), in exact arithmetic: claims (epsilon, delta). Use `ExactSubspace`.

    Scores less the second largest and 1 are all 0 when the two largest tie, and then the noise alone picks the winner,
    from all lines of the data, every one with equal probability. A line that one row brought in is released with
    probability 1 over the number of candidates, and never without that row: delta is at least 0.25 with two tied lines,
    one odd row and NULL (None). The score of a line is the number of its rows that are not zero.
    """
    counts = Counter(line for line in lines_of(rows) if any(line))
    scores = np.array([4.0 * math.log(1.0 / delta) / epsilon + 1.0, *counts.values()])
    # TLap(2, epsilon, delta) by inversion.
    scale, side = 2.0 / epsilon, rng.uniform(-1.0, 1.0, size=scores.size)
    reach = scale * math.log1p(math.expm1(epsilon) / (2.0 * delta))
    noise = -np.sign(side) * scale * np.log1p(np.abs(side) * math.expm1(-reach / scale))
    winner = int(np.argmax(np.maximum(0.0, scores - np.sort(scores)[-2] - 1.0) + noise))
    return list(counts)[winner - 1] if winner else None
