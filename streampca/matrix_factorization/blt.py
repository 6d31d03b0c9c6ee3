"""Prefix sums with buffered linear Toeplitz (BLT) noise, in constant memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.linalg import lapack

from streampca.linalg.lazy import cached_property
from streampca.linalg.types import FloatArray, IntArray
from streampca.matrix_factorization.base import InChunks, check_length
from streampca.matrix_factorization.buffered_noise import BufferedFactorization, Recurrence
from streampca.matrix_factorization.buffers import INFLATION, Buffers, fit_buffers

#: Constants that minimize the worst ratio of std(t) to (0.846 + ln(t)/pi) over 2**8 <= t <= 2**32.
ANYTIME = Buffers(2.384895e-11, 24.89204, 8, 0.44429)
ANYTIME_LIMIT = 2**32
#: The longest horizon whose panels are single steps, so that its table is exact.
LONGEST_IN_STEPS = 2**17
#: Bound on the length of a longer panel over its distance from the nearer end, for a relative error of at most 3e-6.
_SHARE = 1.0 / 2048.0


class _BLT(BufferedFactorization):
    """A BLT whose standard deviations are computed in chunks, by `stds`."""

    def std(self, n: int) -> float:
        self._check(n)
        return self.std_chunks.at(n)


@dataclass(frozen=True)
class GeometricBLT(_BLT):
    """Geometric BLT with column normalization, for a known horizon.

    Noise ``A D C**-1 z sensitivity / mu``, with C a buffered linear Toeplitz matrix (`Buffers`) fitted to the horizon,
    and D the diagonal matrix of the norms of its columns, sqrt(S(T - t + 1)).

    Notes
    -----
    *Guarantee.* Every column of ``C D**-1`` has norm at most 1 (S is inflated by 1e-6), and B C = A, so the sequence is
    mu-GDP per input, also for inputs chosen adaptively (`streampca.matrix_factorization.base`).
    """

    horizon: int
    mu: float
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        check_length("horizon", self.horizon)

    @cached_property
    def buffers(self) -> Buffers:
        return fit_buffers(self.horizon)

    @property
    def unit(self) -> float:
        """Standard deviation of the noise of a single input, sensitivity / mu."""
        return self.sensitivity / self.mu

    def _norms(self, n: FloatArray) -> FloatArray:
        """Norms of the columns n of C, which multiply the steps of the noise."""
        return np.sqrt(self.buffers.column_square(self.horizon + 1.0 - n) * INFLATION)

    @cached_property
    def recurrence(self) -> Recurrence:
        scale = InChunks(self._scales, self.horizon)  # a method, because streams are pickled
        return Recurrence(self.buffers.omega_hat, self.buffers.a_hat, scale, horizon=self.horizon)

    def _scales(self, first: int, last: int) -> FloatArray:
        return self.unit * self._norms(np.arange(first, last + 1, dtype=np.float64))

    def constants(self) -> tuple[object, ...]:
        # A million scales make no label: those of the steps 1, 2, 4, ... and of the last one determine the fit.
        some = np.append(2.0 ** np.arange(int(self.horizon).bit_length()), self.horizon)
        return *super().constants(), *(self.unit * self._norms(some)).tolist()

    def stds(self, first: int, last: int) -> FloatArray:
        return self.unit * np.interp(np.arange(first, last + 1), *noise_table(self.horizon))


@dataclass(frozen=True)
class AnytimeBLT(_BLT):
    """BLT for a stream of unknown length: noise ``A C**-1 z`` times a constant.

    The noise is within 22 to 36 % of 0.846 + ln(t)/pi, which is near the noise for a horizon of t, for every t from
    2**8 to 2**32. After ``restart_after`` sums the current noise is kept constant and a fresh sequence is added to it,
    so there is no horizon.

    Notes
    -----
    *Guarantee.* Columns of C have norm at most sqrt(S(restart_after)), and an input is part of one sequence only, so
    the endless sequence is mu-GDP per input, also for inputs chosen adaptively.
    """

    mu: float
    sensitivity: float = 1.0
    restart_after: int = ANYTIME_LIMIT

    horizon = None

    def __post_init__(self) -> None:
        check_length("restart_after", self.restart_after)

    @cached_property
    def buffers(self) -> Buffers:
        return ANYTIME

    @cached_property
    def scale(self) -> float:
        """Factor of every step of the noise."""
        return self._scale(float(ANYTIME.column_square(self.restart_after)))

    @cached_property
    def recurrence(self) -> Recurrence:
        return Recurrence(ANYTIME.omega_hat, ANYTIME.a_hat, self.scale, restart_after=self.restart_after)

    def stds(self, first: int, last: int) -> FloatArray:
        n = np.arange(first, last + 1)
        # The variances of the completed sequences, and that of the current one.
        # Sequences are independent, so variances add: the noise of a completed one stays in every later sum.
        whole = (n - 1) // self.restart_after
        squares = whole * float(ANYTIME.row_square(float(self.restart_after)))
        squares += ANYTIME.row_square((n - whole * self.restart_after).astype(np.float64))
        stds: FloatArray = self.scale * np.sqrt(squares)
        return stds


@lru_cache(maxsize=32)
def noise_table(horizon: int) -> tuple[FloatArray, FloatArray]:
    """Return sums and the standard deviations of their noise in the geometric BLT, at mu = sensitivity = 1.

    Exact up to rounding for horizons up to `LONGEST_IN_STEPS`. For longer ones, linear interpolation is within 5e-6.
    """
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
    """Noise variance at the ends of panels. The scale on a panel is that of its middle.

    Step t adds ``s_t y_t`` to the noise N, with ``s_t = sqrt(S(T - t + 1))`` and ``y_t = z_t + sum_i omega^_i r_i``. On
    a panel s is constant: Var(N) gains ``2 s Cov(N, Y) + s**2 Var(Y)``, Y the sum of the panel's y, and ``q_i = Cov(N,
    r_i)`` follows a linear recursion. All other terms are in closed form.
    """
    lengths, before = np.diff(ends, prepend=0), np.append(0, ends[:-1]).astype(np.float64)
    squares = np.empty(ends.size)
    for start in range(0, ends.size, 2**13):  # bounds the memory of `column_square`
        part = slice(start, start + 2**13)
        squares[part] = blt.column_square(horizon - before[part] - 0.5 * (lengths[part] - 1.0))
    # The inflation of the column norms is in the noise as drawn, so it is in its standard deviation, too.
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
