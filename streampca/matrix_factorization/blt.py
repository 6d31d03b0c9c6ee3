"""Buffered linear Toeplitz (BLT) noise in constant memory: its running form, and factorizations of prefix sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack, toeplitz

from streampca import _native
from streampca.linalg.counts import check_count
from streampca.linalg.lattice import sum_of_rows
from streampca.linalg.types import FloatArray, IntArray
from streampca.matrix_factorization.base import LONGEST, InChunks, MatrixFactorization, RunningNoise, next_sum
from streampca.matrix_factorization.buffers import INFLATION, Buffers, fit_buffers
from streampca.privacy.outlet import NoiseSource
from streampca.privacy.randomness import Draws

#: Constants that minimize the worst ratio of std(t) to (0.846 + ln(t)/pi) over 2**8 <= t <= 2**32.
ANYTIME = Buffers(2.384895e-11, 24.89204, 8, 0.44429)
ANYTIME_LIMIT = 2**32
#: The longest horizon whose panels are single steps, so that its table is exact.
LONGEST_IN_STEPS = 2**17
#: Bound on the length of a longer panel over its distance from the nearer end, for a relative error of at most 3e-6.
_SHARE = 1.0 / 2048.0


@dataclass(frozen=True, eq=False)
class Recurrence:
    """The recurrence of a BLT."""

    # With a fresh vector z, step n computes ``y = z + sum_i mix_i r_i``, lets each buffer decay, ``r_i <- r_i - rate_i
    # r_i + z``, and adds to the noise, ``total <- keep total + scale(n) y``.

    mix: FloatArray  # (count,) weights of the buffers
    rate: FloatArray  # (count,) decay rates of the buffers
    scale: float | InChunks  # factor of a step, constant or by n
    keep: float = 1.0  # factor of the noise before
    horizon: int | None = None  # largest number of steps
    restart_after: int | None = None  # period, in steps, at which the buffers are emptied

    def scale_at(self, n: int) -> float:
        return self.scale if isinstance(self.scale, float) else self.scale.at(n)

    def step(
        self, fresh: FloatArray, buffers: FloatArray, total: FloatArray, scale: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return the buffers and the noise after a step, in fresh arrays."""
        # The compiled kernel and NumPy have one order of operations with one rounding each, hence the same bits.
        kernels = _native.compiled
        if kernels is not None:
            after, out = np.empty_like(buffers), np.empty_like(total)
            kernels.buffered_step(fresh, buffers, total, self.mix, self.rate, scale, self.keep, after, out)
            return after, out
        steps = self.mix[:, None] * buffers
        step = sum_of_rows(steps) + fresh
        step *= scale
        out = step + (total if self.keep == 1.0 else total * self.keep)
        np.multiply(self.rate[:, None], buffers, out=steps)
        np.subtract(buffers, steps, out=steps)
        steps += fresh
        return steps, out


@dataclass(eq=False, repr=False, slots=True)  # the noise is as secret as the rows
class BufferedNoise(RunningNoise):
    """Noise of a BLT after n steps of the recurrence ``rule``; ``buffers`` is a (count, size) array."""

    kept = ("n", "buffers", "noise")

    rule: Recurrence
    n: int
    buffers: FloatArray
    noise: FloatArray

    def advance(self, draws: Draws) -> BufferedNoise:
        rule, buffers = self.rule, self.buffers
        n = next_sum(self.n, rule.horizon)
        # A fresh sequence is added to the noise so far, which stays: the sequences are independent.
        if rule.restart_after is not None and (n - 1) % rule.restart_after == 0:
            buffers = np.zeros(buffers.shape)
        fresh = draws.normal(self.noise.size)
        return BufferedNoise(rule, n, *rule.step(fresh, buffers, self.noise, rule.scale_at(n)))


class BufferedFactorization(MatrixFactorization):
    """A BLT: a Toeplitz strategy C whose noise one recurrence computes.

    With a constant scale of the steps, noise ``A C**-1 z scale`` is mu-GDP per input, also for inputs chosen adaptively
    (`streampca.matrix_factorization.base`), because no column of C has a larger norm than that in the scale.
    """

    #: Period, in steps, at which a fresh sequence begins; None for a single one.
    restart_after: int | None = None

    buffers: Buffers  # the fitted factorization
    scale: Any  # factor of a step of the noise: a float, or `InChunks` of one for each step
    recurrence: Recurrence  # of one step

    def _complete(self, buffers: Buffers, scale: Any, lost: float = 0.0) -> None:
        """Set what follows from the parameters, in the constructor. Sums lose the share ``lost`` in each step."""
        keep = 1.0 - lost
        # Buffers decay by keep theta^_i, the noise by keep. The rate is 1 - keep theta^_i, without cancellation.
        mix, rate = keep * buffers.omega_hat, lost + keep * buffers.a_hat
        rule = Recurrence(mix, rate, scale, keep, horizon=self.horizon, restart_after=self.restart_after)
        vars(self).update(buffers=buffers, scale=scale, recurrence=rule)

    def std(self, n: int) -> float:
        self._check(n)
        return self.std_chunks.at(n)

    def constants(self) -> tuple[object, ...]:
        rule = self.recurrence
        scale = rule.scale if isinstance(rule.scale, float) else None
        return tuple(rule.mix.tolist()), tuple(rule.rate.tolist()), rule.keep, scale, rule.restart_after

    def start(self, size: int, source: NoiseSource | None = None) -> RunningNoise:
        rule = self.recurrence
        return BufferedNoise(rule, 0, np.zeros((rule.mix.size, size)), np.zeros(size))

    def products(self, inputs: IntArray, n: int) -> FloatArray:
        weights, logs, square = self._later_column(n)
        lags = n - inputs
        # Not a product of matrices: an entry has the same bits by itself and among others.
        products = sum_of_rows(np.exp(lags * logs[:, None]) * weights[:, None]) / (square * self._growth(inputs, n))
        products[lags == 0] = 1.0
        if self.restart_after is not None:  # sequences are independent
            products[(inputs - 1) // self.restart_after < (n - 1) // self.restart_after] = 0.0
        # The bound of Cauchy and Schwarz, which rounding could exceed.
        return np.minimum(products, 1.0, out=products)

    def _later_column(self, n: int) -> tuple[FloatArray, FloatArray, float]:
        """Return `Buffers.lagged_products` of column n and its squared norm, or an upper and a lower bound on them."""
        # Of a whole column: the exact products are smaller, since all terms are positive.
        return _whole_column(self)

    def _growth(self, inputs: IntArray, n: int) -> FloatArray | float:
        """Return the norms of the columns ``inputs`` over that of column n."""
        return 1.0

    def reconstruction(self, n: int) -> FloatArray:
        self._check(n)
        # B = A D C**-1, D the scales of the steps. Decay fades C**-1, a restart cuts it into blocks.
        rule, step = self.recurrence, np.arange(n)
        lag = step[:, None] - step
        inverse: FloatArray = toeplitz(self.buffers.coefficients(n, inverse=True), np.zeros(n))
        inverse *= rule.keep ** np.maximum(lag, 0)
        if rule.restart_after is not None:
            block = step // rule.restart_after
            inverse *= block[:, None] == block
        scales = np.array([rule.scale_at(i) for i in range(1, n + 1)])
        steps: FloatArray = scales[:, None] * inverse
        return self.workload(n) @ steps

    def difference(self, a: int, b: int) -> FloatArray:
        # Vector l enters step j >= l of its sequence with the coefficient c^_(j - l) of C**-1. With u_j the factor of
        # step j in the difference, r_l = u_l + mix . s, where s <- (1 - rate) s + u_l for l = b, ..., 1.
        self._check(b)
        rule, step = self.recurrence, np.arange(1, b + 1)
        # In parts, which bounds the memory of the column norms.
        parts = (step[first : first + 2**13] for first in range(0, b, 2**13))
        scale = rule.scale
        u = scale * np.ones(b) if isinstance(scale, float) else np.concatenate([scale.make(part) for part in parts])
        # Steps up to a are in both sums, and cancel unless sums decay.
        u *= rule.keep ** (b - step) - np.where(step <= a, rule.keep ** np.maximum(a - step, 0), 0.0)
        out, period = u.copy(), rule.restart_after or b
        for first in range(0, b, period):
            backward = u[first : first + period][::-1]
            for mix, rate in zip(rule.mix.tolist(), rule.rate.tolist(), strict=True):
                band = np.ones((2, backward.size))
                band[1] = rate - 1.0
                s = lapack.dtbtrs(band, backward[:, None], uplo="L")[0].ravel()
                # 1 - rate is rounded, equally in every step, so that errors would add up. Add what that loses.
                lost = (1.0 + band[1, 0]) - rate
                s[1:] += lapack.dtbtrs(band[:, 1:], lost * s[:-1, None], uplo="L")[0].ravel()
                out[first : first + period][::-1][1:] += mix * s[:-1]
        return out


@dataclass(frozen=True)
class GeometricBLT(BufferedFactorization):
    """Geometric BLT with column normalization, for a known horizon.

    Noise ``A D C**-1 z sensitivity / mu``, with C a buffered linear Toeplitz matrix (`Buffers`) fitted to the horizon,
    and D the diagonal matrix of the norms of its columns, sqrt(S(T - t + 1)).

    *Guarantee.* Every column of ``C D**-1`` has norm at most 1 (S is inflated by 1e-6), and B C = A, so the sequence is
    mu-GDP per input, also for inputs chosen adaptively (`streampca.matrix_factorization.base`).
    """

    horizon: int
    mu: float
    sensitivity: float = 1.0

    def __post_init__(self) -> None:
        check_count("horizon", self.horizon, most=LONGEST)
        self._complete(fit_buffers(self.horizon), InChunks(self._scales, self.horizon))  # a method can be pickled

    def _scales(self, n: npt.NDArray[Any]) -> FloatArray:
        """Factors of the steps n: the norms of the columns n of C, at the scale of the noise."""
        return self.sensitivity / self.mu * np.sqrt(self.buffers.column_square(self.horizon + 1.0 - n) * INFLATION)

    def _later_column(self, n: int) -> tuple[FloatArray, FloatArray, float]:
        return _last_column(self.horizon, self.horizon + 1 - n)

    def _growth(self, inputs: IntArray, n: int) -> FloatArray:
        # Every column is divided by its own norm.
        last, own = self.horizon + 1, _last_column(self.horizon, self.horizon + 1 - n)[2]
        growth: FloatArray = np.sqrt(np.array([_last_column(self.horizon, last - i)[2] / own for i in inputs.tolist()]))
        return growth

    def constants(self) -> tuple[object, ...]:
        # A million scales make no label: those of the steps 1, 2, 4, ... and of the last one determine the fit.
        some = np.append(2.0 ** np.arange(int(self.horizon).bit_length()), self.horizon)
        return *super().constants(), *self._scales(some).tolist()

    def stds(self, sums: IntArray) -> FloatArray:
        return self.sensitivity / self.mu * np.interp(sums, *noise_table(self.horizon))


@dataclass(frozen=True)
class AnytimeBLT(BufferedFactorization):
    """BLT for a stream of unknown length: noise ``A C**-1 z`` times a constant.

    The noise is within 22 to 36 % of 0.846 + ln(t)/pi, which is near the noise for a horizon of t, for every t from
    2**8 to 2**32. After ``restart_after`` sums the current noise is kept constant and a fresh sequence is added to it,
    so there is no horizon.

    *Guarantee.* Columns of C have norm at most sqrt(S(restart_after)), and an input is part of one sequence only, so
    the endless sequence is mu-GDP per input, also for inputs chosen adaptively.
    """

    mu: float
    sensitivity: float = 1.0
    restart_after: int = ANYTIME_LIMIT

    horizon = None

    def __post_init__(self) -> None:
        check_count("restart_after", self.restart_after, most=LONGEST)
        square = float(ANYTIME.column_square(self.restart_after))
        self._complete(ANYTIME, self.sensitivity / self.mu * math.sqrt(square * INFLATION))

    def stds(self, sums: IntArray) -> FloatArray:
        # The variances of the completed sequences, and that of the current one.
        # Sequences are independent, so variances add: the noise of a completed one stays in every later sum.
        whole = (sums - 1) // self.restart_after
        squares = whole * float(ANYTIME.row_square(float(self.restart_after)))
        squares += ANYTIME.row_square((sums - whole * self.restart_after).astype(np.float64))
        stds: FloatArray = self.scale * np.sqrt(squares)
        return stds


@lru_cache(maxsize=16)
def _whole_column(factorization: BufferedFactorization) -> tuple[FloatArray, FloatArray, float]:
    """Return `BufferedFactorization._later_column` of a column with the most entries."""
    entries = math.inf if factorization.restart_after is None else factorization.restart_after
    buffers, keep = factorization.buffers, factorization.recurrence.keep
    square = float(buffers.column_square(entries)) if keep == 1.0 else buffers.faded_column_square(1.0 - keep * keep)
    return *buffers.lagged_products(entries, keep), square * INFLATION


@lru_cache(maxsize=2**16)
def _last_column(horizon: int, entries: int) -> tuple[FloatArray, FloatArray, float]:
    """Return `GeometricBLT._later_column` of the column with a number of entries."""
    buffers = fit_buffers(horizon)
    return *buffers.lagged_products(entries), float(buffers.column_square(entries)) * INFLATION


@lru_cache(maxsize=32)
def noise_table(horizon: int) -> tuple[FloatArray, FloatArray]:
    """Return sums and the standard deviations of their noise in the geometric BLT, at mu = sensitivity = 1."""
    # Exact up to rounding for horizons up to `LONGEST_IN_STEPS`. For longer ones, linear interpolation is within 5e-6.
    ends = np.arange(1, horizon + 1) if horizon <= LONGEST_IN_STEPS else panel_ends(horizon)
    return ends.astype(np.float64), np.sqrt(variances(fit_buffers(horizon), horizon, ends))


def panel_ends(horizon: int) -> IntArray:
    """Return the last steps of the panels."""
    ends, start = [], 1
    while start <= horizon:
        # Short near both ends, where the scale, or the variance, changes by the largest share in a step.
        start += max(1, int(_SHARE * min(start, horizon - start + 1)))
        ends.append(start - 1)
    return np.array(ends, dtype=np.int64)


def variances(blt: Buffers, horizon: int, ends: IntArray) -> FloatArray:
    """Noise variance at the ends of panels. The scale on a panel is that of its middle."""
    # Step t adds ``s_t y_t`` to the noise N, with ``s_t = sqrt(S(T - t + 1))`` and ``y_t = z_t + sum_i omega^_i r_i``.
    # On a panel s is constant: Var(N) gains ``2 s Cov(N, Y) + s**2 Var(Y)``, Y the sum of the panel's y, and ``q_i =
    # Cov(N, r_i)`` follows a linear recursion. All other terms are in closed form.
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
