"""Theorems 4 to 9 of DTTZ14, and Lemma 1 and Theorems 5 and 7 of JXZ16, with every constant written out.

The papers bound errors by O() of the spectral norm of the noise. Here that norm is an argument, so each bound holds for
any noise, and deterministically. Gram matrices are sums, not means.
"""

from __future__ import annotations

import math


def rows_needed(noise_norm: float, rho: float, gap: float) -> int:
    """Count the rows after which ``|<v, v_hat>| >= rho``, for noise of spectral norm at most ``noise_norm``.

    The argument of JXZ16 Theorem 7 with any noise: ``n >= noise_norm / ((1 - rho**2) gap)``, for rho of at least
    sqrt(1/2).
    """
    return math.ceil(noise_norm / ((1.0 - rho * rho) * gap))


def wishart_noise_norm(n_features: int, degrees: int, scale: float, failure: float = 0.05) -> float:
    """Bound the spectral norm of ``c * Wis_d(m, I)``; fails with probability at most ``failure``.

    JXZ16 Lemma 1 (Zhu 2012): ``c (m + sqrt(2 m (d + 2) theta) + 2 d theta)`` with ``theta = ln(d / failure)``. Loose:
    the norm is near ``c (sqrt(m) + sqrt(d))**2``.
    """
    theta = math.log(n_features / failure)
    return scale * (degrees + math.sqrt(2.0 * degrees * theta * (n_features + 2)) + 2.0 * theta * n_features)


def jxz16_theorem5(n_features: int, max_l1: float, max_nuclear: float) -> str:
    """Choose between Laplace and Wishart noise by JXZ16 Theorem 5: ``"wishart"`` or ``"laplace"``.

    Notes
    -----
    Wishart noise is smaller where ``max_l1 / max_nuclear`` grows faster than ``sqrt(d log d)``; the constant is taken
    as 1. For a Gram matrix that ratio is d, so Wishart is chosen from d = 2 on. The rule compares two mechanisms by
    their rates; `CovarianceMechanism.noise_std` is their actual noise.
    """
    return "wishart" if max_l1 / max_nuclear >= math.sqrt(n_features * math.log(n_features)) else "laplace"


def jxz16_theorem7(n_features: int, epsilon: float, rho: float, failure: float, gap: float) -> int:
    """Count the rows after which the top eigenvector of JXZ16 Algorithm 2 is within rho of the true one.

    With that many rows, ``P(|<v, v_hat>| >= rho) >= 1 - failure``. (Algorithm 2 is not private at the epsilon it
    states; for others use `rows_needed`. The printed numerator multiplies only its first term by 3; the proof needs all
    three.)
    """
    return rows_needed(wishart_noise_norm(n_features, n_features + 1, 1.5 / epsilon, failure), rho, gap)


def dttz14_theorem4(noise_norm: float, n_components: int) -> float:
    """Bound the reward lost to the noise, whatever the spectrum: ``2 k |E|``."""
    return 2.0 * n_components * noise_norm


def dttz14_theorem5(noise_norm: float, n_components: int, gap: float) -> float:
    """Bound the reward lost to the noise, given a gap: ``2 k |E|**2 / (gap - |E|)``.

    Notes
    -----
    The printed proof covers k' = k only; that of ``docs/theory/dttz14.md`` covers k' > k too.
    """
    worst = dttz14_theorem4(noise_norm, n_components)
    return min(worst, 2.0 * n_components * noise_norm**2 / (gap - noise_norm)) if gap > noise_norm else worst


def dttz14_theorem7(noise_norm: float, gap: float) -> float:
    """Bound the distance of the projectors in spectral norm: ``|E| / (gap - |E|)``, at most 1."""
    return min(1.0, noise_norm / (gap - noise_norm)) if gap > noise_norm else 1.0


def dttz14_theorem9(noise_norm: float, n_components: int) -> tuple[float, float]:
    """Bound how much worse than the best rank-k approximation that of the noisy matrix is."""
    return (4.0 * n_components + math.sqrt(n_components)) * noise_norm, 2.0 * noise_norm
