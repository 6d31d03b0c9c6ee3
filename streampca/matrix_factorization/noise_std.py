"""Standard deviations of the noise of a column-normalized BLT, as a table over time.

Step t adds ``s_t y_t`` to the noise N, with ``s_t = sqrt(S(T - t + 1))`` and ``y_t = z_t + sum_i omega^_i r_i``. Time
is cut into panels on which s is constant. Over a panel Var(N) gains ``2 s Cov(N, Y) + s**2 Var(Y)``, where Y is the sum
of the panel's y, and ``q_i = Cov(N, r_i)`` follows a linear recursion. All other terms are in closed form.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.linalg import lapack

from streampca.linalg.types import FloatArray, IntArray
from streampca.matrix_factorization.buffers import INFLATION, Buffers, fit_buffers

#: The longest horizon whose panels are single steps, so that its table is exact.
LONGEST_IN_STEPS = 2**17
#: Bound on the length of a longer panel over its distance from the nearer end, for a relative error of at most 3e-6.
_SHARE = 1.0 / 2048.0


def noise_std(horizon: int, n: IntArray) -> FloatArray:
    """Standard deviation of the noise in the sums n of the geometric BLT of a horizon, at mu = sensitivity = 1.

    Exact up to rounding for horizons up to `LONGEST_IN_STEPS`. For longer ones, within 5e-6, by linear interpolation.
    """
    return np.interp(n, *_table(horizon))


@lru_cache(maxsize=32)
def _table(horizon: int) -> tuple[FloatArray, FloatArray]:
    ends = np.arange(1, horizon + 1) if horizon <= LONGEST_IN_STEPS else panel_ends(horizon)
    return ends.astype(np.float64), np.sqrt(variances(fit_buffers(horizon), horizon, ends))


def panel_ends(horizon: int) -> IntArray:
    """Return the last steps of the panels."""
    ends, start = [], 1
    while start <= horizon:
        start += max(1, int(_SHARE * min(start, horizon - start + 1)))
        ends.append(start - 1)
    return np.array(ends, dtype=np.int64)


def variances(blt: Buffers, horizon: int, ends: IntArray) -> FloatArray:
    """Noise variance at the ends of panels. The scale on a panel is that of its middle."""
    lengths, before = np.diff(ends, prepend=0), np.append(0, ends[:-1]).astype(np.float64)
    squares = np.empty(ends.size)
    for start in range(0, ends.size, 2**13):  # bounds the memory of `column_square`
        part = slice(start, start + 2**13)
        squares[part] = blt.column_square(horizon - before[part] - 0.5 * (lengths[part] - 1.0))
    scale = np.sqrt(squares * INFLATION)
    # For each length of m steps that occurs: the decay of a buffer, the share of its start in Y, and the covariance of
    # its end with the part of Y that is drawn within the panel.
    distinct, kind = np.unique(lengths, return_inverse=True)
    m = distinct.astype(np.float64)
    decay = np.exp(m[:, None] * blt.log_theta_hat)
    share = blt.omega_hat * (1.0 - decay) / blt.a_hat
    pairs = -np.expm1(m[:, None, None] * (blt.log_theta_hat[:, None] + blt.log_theta_hat)) / blt.gaps_hat
    drawn = blt.level * (1.0 - decay) / blt.a_hat + pairs @ blt.weights
    variance, covariance = blt.row_square(m)[kind], np.zeros(ends.size)  # of Y; of N before and Y
    own = np.zeros((blt.count, ends.size))  # Cov(r_i, Y)
    for i in range(blt.count):
        for j in range(i, blt.count):
            both = np.expm1(before * (blt.log_theta_hat[i] + blt.log_theta_hat[j])) / -blt.gaps_hat[i, j]
            own[i] += share[kind, j] * both
            if j > i:
                own[j] += share[kind, i] * both
        variance += share[kind, i] * own[i]
        # q_i after a panel: decay q_i + s (decay own + drawn), by a bidiagonal solve.
        after = scale * (decay[kind, i] * own[i] + drawn[kind, i])
        band = np.stack([np.ones(ends.size), -decay[kind, i]])
        band[1, :-1] = band[1, 1:]
        q = lapack.dtbtrs(band, after, uplo="L")[0]
        covariance[1:] += share[kind[1:], i] * q[:-1].ravel()
    return np.cumsum(scale * (2.0 * covariance + scale * variance))
