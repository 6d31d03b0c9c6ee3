"""AdaptiveCov of Dong, Liang and Yi ("Differentially Private Covariance Revisited", NeurIPS 2022, arXiv 2205.14324).

For comparisons of accuracy only: floating-point noise, and the formulas with the constants of the authors' code. Two
things favour it here: the noise of the Gram matrix is calibrated to the sensitivity 1 of zero-out adjacency where they
have sqrt(2), and rho is taken as mu**2 / 2 of the exact Gaussian-DP parameter.
"""

import math

import numpy as np

from streampca.linalg.eigen import top_eigh
from streampca.linalg.types import FloatArray

#: Probability that a bound fails.
_BETA = 0.1


def adaptive_cov(rows: FloatArray, n_components: int, mu: float, rng: np.random.Generator) -> FloatArray:
    """Basis (d, k) of the private Gram matrix of rows clipped to a private radius, a power of two."""
    n, d = rows.shape
    norms, rho, beta = np.linalg.norm(rows, axis=1), mu**2 / 2.0, 0.75 * _BETA
    trace = float((norms**2).mean()) + 2.0 / math.sqrt(rho) / n * rng.normal()
    trace = min(max(trace + math.sqrt(8.0 / rho * math.log(8.0 / _BETA)) / n, 1e-16), 1.0)
    kept = 0.75 * rho
    # Error of the two estimators at radius 1: separate (eigenvectors and eigenvalues), and Gaussian.
    first = 2.0**1.25 * math.sqrt(trace / n) / kept**0.25 * math.sqrt(_operator_norm(d, beta / 2.0)) / 6.0
    second = math.sqrt(2.0) * _gaussian_norm(d, beta / 2.0) / math.sqrt(kept) / n
    gaussian = _frobenius_norm(d, beta) / math.sqrt(kept) / n
    power = _radius_power(norms, rho, (first, second, gaussian), rng)
    radius = min(2.0 ** (1 - power), 1.0)
    clipped = rows * np.minimum(1.0, radius / np.maximum(norms, 1e-300))[:, None]
    if 2.0**-power * first + 4.0**-power * second < 4.0**-power * gaussian:
        kept /= 2.0  # the other half goes to eigenvalues, which say nothing of the subspace
    noise = rng.normal(size=(d, d)) * radius**2 / math.sqrt(2.0 * kept)
    return top_eigh(clipped.T @ clipped + (noise + noise.T) / 2.0, n_components)[1]


def _radius_power(norms: FloatArray, rho: float, errors: tuple[float, float, float], rng: np.random.Generator) -> int:
    """Sparse vector technique: the first j at which clipping to 2**(1 - j) loses more than the noise does."""
    first, second, gaussian = errors
    n, last = norms.size, 80
    positive = norms[norms > 0.0]
    bucket = np.maximum(np.floor(-np.log2(positive)).astype(int) + 1, 1)
    counts = np.bincount(bucket[bucket < last], minlength=last)[:last].astype(float)
    squares = 4.0 ** (1.0 - np.arange(last))  # of the upper edges
    epsilon = math.sqrt(rho) / 2.0
    threshold = rng.laplace(scale=2.0 / epsilon)
    for j in range(last):
        lost = counts[: j + 1] @ squares[: j + 1] - counts[: j + 1].sum() * 4.0**-j
        error = min(2.0**-j * gaussian, 2.0**-j * first + 4.0**-j * second)
        if lost - n * error + rng.laplace(scale=4.0 / epsilon) >= threshold:
            return j
    return last


def _gaussian_norm(d: int, beta: float) -> float:
    """Bound on the norm of d standard normals."""
    return math.sqrt(d + 2.0 * math.sqrt(d * math.log(1.0 / beta)) + 2.0 * math.log(1.0 / beta))


def _operator_norm(d: int, beta: float) -> float:
    """Bound on the operator norm of a symmetric Gaussian matrix."""
    theta = min((math.log(d) / d) ** 0.3, 0.5) if d > 1 else 0.5
    spread = 6.0 * math.sqrt(math.log(max(d, 2))) / math.sqrt(math.log1p(theta))
    return (1.0 + theta) * (2.0 * math.sqrt(d) + spread) + math.sqrt(2.0 * math.log(2.0 / beta))


def _frobenius_norm(d: int, beta: float) -> float:
    """Bound on the Frobenius norm of a symmetric Gaussian matrix."""
    log = math.log(2.0 / beta)
    return math.sqrt(d * d + 2.0 * math.sqrt(d * log) * (1.0 + math.sqrt(2.0 * (d - 1))) + 6.0 * log)
