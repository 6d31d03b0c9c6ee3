"""Exact variance of column-normalised BLT noise at every step.

The state (buffers, running noise) is a linear recursion with a scale
that changes with t, so the variance is a scan; it is run in chunks, once, and
remembered at the ends of chunks.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.linalg import lapack

from streampca.linalg.types import FloatArray, IntArray
from streampca.matrix_factorization.buffers import INFLATION
from streampca.matrix_factorization.fitting import fit_buffers
from streampca.matrix_factorization.spread_panels import PanelSpread

_CHUNK = 2**13
#: The longest horizon that is scanned step by step.
LONGEST = 2**20


@lru_cache(maxsize=32)
def spread_of(horizon: int) -> Spread | PanelSpread:
    """The spread of the geometric BLT of a horizon, shared by all who ask."""
    return Spread(horizon) if horizon <= LONGEST else PanelSpread(fit_buffers(horizon), horizon)


class Spread:
    """Noise sd of the geometric BLT with column normalisation, at mu = sensitivity = 1."""

    def __init__(self, horizon: int) -> None:
        self._horizon = horizon
        self._buffers = blt = fit_buffers(horizon)
        # Per chunk, before its first step: Cov(total, r_i) and Var(total).
        self._starts: dict[int, tuple[FloatArray, float]] = {0: (np.zeros(blt.count), 0.0)}
        self._chunk = (-1, np.empty(0))
        # Decays of all pairs of buffers within a chunk: later chunks only rescale them.
        size = np.arange(min(_CHUNK, horizon), dtype=np.float64)
        log_theta = np.log1p(-blt.a)
        self._log_pairs = (log_theta[:, None] + log_theta).ravel()
        self._log_pairs_hat = (blt.log_theta_hat[:, None] + blt.log_theta_hat).ravel()
        self._decay = np.exp(self._log_pairs[:, None] * size)
        self._decay_hat = np.exp(self._log_pairs_hat[:, None] * size)

    def at(self, n: IntArray) -> FloatArray:
        """Sd of the noise of consecutive sums, (m,), all of one chunk."""
        index, place = divmod(int(n[0]) - 1, _CHUNK)
        return np.sqrt(self._variances(index)[place : place + n.size])

    def stds(self, n: int) -> FloatArray:
        """Sd of the noise of sums 1..n."""
        chunks = [self._variances(index) for index in range((n - 1) // _CHUNK + 1)]
        return np.sqrt(np.concatenate(chunks)[:n])

    def _variances(self, index: int) -> FloatArray:
        for earlier in range(len(self._starts) - 1, index):
            self._scan(earlier)
        known, variances = self._chunk  # one object, so that threads see a pair that belongs together
        return variances if known == index else self._scan(index)

    def _scan(self, index: int) -> FloatArray:
        """Variances of one chunk, and the start of the next.

        With y the step before scaling and s its scale: the total N gains s y, so
        Var(N) gains 2 s Cov(N, y) + s**2 Var(y), where Cov(N, y) = sum_i
        omega^_i q_i and q_i = Cov(N, r_i) obeys q_i <- theta^_i q_i + s (1 + theta^_i Cov(y, r_i)).
        """
        blt = self._buffers
        first, last = index * _CHUNK + 1, min((index + 1) * _CHUNK, self._horizon)
        count = last - first + 1
        # S(T - t + 1) falls from S(T - first + 1): read the decays backwards from the chunk's last step.
        gaps = blt.a[:, None] + blt.a - blt.a[:, None] * blt.a
        weights = (blt.omega[:, None] * blt.omega / gaps).ravel()
        faded = (weights * np.exp((self._horizon - last) * self._log_pairs)) @ self._decay[:, :count]
        scale = np.sqrt((1.0 + weights.sum() - faded[::-1]) * INFLATION)
        shares = blt.omega_hat / blt.gaps_hat  # [i, j]
        gone = (shares.ravel() * np.exp((first - 1.0) * self._log_pairs_hat)).reshape(blt.count, -1)
        decays = self._decay_hat[:, :count].reshape(blt.count, blt.count, count)
        cov_yr = np.stack([shares[i].sum() - gone[i] @ decays[i] for i in range(blt.count)])
        before, variance = self._starts[index]
        cov_ny, after = np.zeros(count), np.empty(blt.count)
        for i in range(blt.count):
            decay = 1.0 - blt.a_hat[i]
            gain = scale * (1.0 + decay * cov_yr[i])
            # q before step t, t = first..last+1: a bidiagonal solve runs the recursion.
            q = np.concatenate([[before[i]], gain])
            band = np.ones((2, q.size))
            band[1] = -decay
            q, _ = lapack.dtbtrs(band, q, uplo="L")
            cov_ny += blt.omega_hat[i] * q[:-1]
            after[i] = q[-1]
        var_y = 1.0 + blt.omega_hat @ cov_yr
        variances: FloatArray = variance + np.cumsum(scale * (2.0 * cov_ny + scale * var_y))
        self._starts[index + 1] = after, float(variances[-1])
        self._chunk = (index, variances)
        return variances
