"""Buffered linear Toeplitz factorizations (BLT): their algebra, and the one with the least noise for a length.

``C`` is the lower-triangular Toeplitz matrix of the rational function

    C(x) = prod_i (1 - theta^_i x) / prod_i (1 - theta_i x),

with ``a_i = 1 - theta_i`` and ``a^_i = 1 - theta^_i`` interlaced, ``a_1 < a^_1 < a_2 < a^_2 < ...``, so that C(x)
approximates (1 - x)**-1/2 (Dvijotham, McMahan, Pillutla, Steinke and Thakurta 2024, "Efficient and near-optimal noise
generation for streaming differential privacy"). C and its inverse are sums of one exponential per buffer, so the noise
``C**-1 z`` needs one running vector per buffer. Because of the interlacing no sum below has cancellation.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from streampca.linalg.types import FloatArray

#: Factor of computed squared column norms, so that rounding never weakens the guarantee.
INFLATION = 1.0 + 1e-6


class Buffers:
    """A BLT with ``count`` decay rates ``a_i = alpha ratio**(i-1)``, ``a^_i = alpha ratio**(i-1+shift)``, below 1."""

    def __init__(self, alpha: float, ratio: float, count: int, shift: float = 0.5) -> None:
        self.alpha, self.ratio, self.count, self.shift = alpha, ratio, count, shift
        powers: FloatArray = np.arange(count, dtype=np.float64)
        self.a: FloatArray = alpha * np.power(ratio, powers)
        self.a_hat: FloatArray = self.a * ratio**shift
        # Residues of C(x) and 1 / C(x): differences of the rates, of which interlacing fixes the signs.
        across = self.a_hat[None, :] - self.a[:, None]  # [i, j] = a^_j - a_i
        self.omega = np.diagonal(across) * _others(across, self.a)
        self.omega_hat = -np.diagonal(across) * _others(-across.T, self.a_hat)
        # b_k = level + sum_i weights_i theta^_i**k are the coefficients of A C**-1.
        self.level = math.prod(self.a / self.a_hat)
        self.weights = -self.omega_hat / self.a_hat
        self.theta: FloatArray = 1.0 - self.a
        self.log_theta: FloatArray = np.log1p(-self.a)
        self.log_theta_hat: FloatArray = np.log1p(-self.a_hat)
        #: 1 - theta_i theta_j and 1 - theta^_i theta^_j, (count, count).
        self.gaps: FloatArray = self.a[:, None] + self.a - self.a[:, None] * self.a
        self.gaps_hat: FloatArray = self.a_hat[:, None] + self.a_hat - self.a_hat[:, None] * self.a_hat

    def column_square(self, n: FloatArray | float) -> FloatArray:
        """S(n), the squared norm of the first n coefficients of C, for each n, also infinity."""
        # c_0 = 1 and c_k = sum_i omega_i theta_i**(k - 1), so that each pair of buffers adds a geometric series,
        # omega_i omega_j (1 - (theta_i theta_j)**(n - 1)) / (1 - theta_i theta_j).
        steps = np.asarray(n, dtype=np.float64)[..., None, None] - 1.0
        faded = -np.expm1(steps * (self.log_theta[:, None] + self.log_theta))
        squares: FloatArray = 1.0 + (faded * (self.omega[:, None] * self.omega / self.gaps)).sum(axis=(-2, -1))
        return squares

    def row_square(self, n: FloatArray | float) -> FloatArray:
        """Squared norm of the first n coefficients of A C**-1, for each n."""
        steps = np.asarray(n, dtype=np.float64)
        single = -np.expm1(steps[..., None] * self.log_theta_hat)
        pairs = -np.expm1(steps[..., None, None] * (self.log_theta_hat[:, None] + self.log_theta_hat))
        squares: FloatArray = (
            self.level**2 * steps
            + 2.0 * self.level * (single * (self.weights / self.a_hat)).sum(axis=-1)
            + (pairs * (self.weights[:, None] * self.weights / self.gaps_hat)).sum(axis=(-2, -1))
        )
        return squares

    def lagged_square(self, lag: int) -> FloatArray:
        """Largest squared row norm of (A - A shifted by lag) C**-1, the noise of a difference of prefix sums."""
        # Beyond the lag, coefficient b_{k + lag} - b_k: what the exponentials lose in ``lag`` steps.
        q = self.weights * -np.expm1(lag * self.log_theta_hat)
        squares: FloatArray = self.row_square(lag) + (q[:, None] * q / self.gaps_hat).sum(axis=(-2, -1))
        return squares

    def faded_column_square(self, fade: float) -> float:
        """Sum of gamma**2k c_k**2 with gamma**2 = 1 - fade."""
        kept = 1.0 - fade
        return 1.0 + kept * float((self.omega[:, None] * self.omega / (fade + kept * self.gaps)).sum())

    def faded_row_square(self, fade: float, n: float = math.inf) -> float:
        """Sum over k < n of gamma**2k b_k**2 with gamma**2 = 1 - fade, b_k the coefficients of A C**-1."""
        kept, logs = 1.0 - fade, self.log_theta_hat
        # A memory of 1 forgets at once: fade = 1.
        log_kept = math.log1p(-fade) if fade < 1.0 else -math.inf

        def geometric(log_ratio: FloatArray, gap: FloatArray) -> FloatArray:
            return -np.expm1(n * (log_kept + log_ratio)) / (fade + kept * gap)

        level = geometric(np.zeros(1), np.zeros(1))[0]
        single = (geometric(logs, self.a_hat) * self.weights).sum()
        pairs = (geometric(logs[:, None] + logs, self.gaps_hat) * self.weights[:, None] * self.weights).sum()
        return float(self.level**2 * level + 2.0 * self.level * single + pairs)

    def lagged_products(self, n: float, kept: float = 1.0) -> tuple[FloatArray, FloatArray]:
        """Return weights v and logs l: two columns of C, ``lag`` > 0 apart, have product ``sum(v exp(l lag))``."""
        # The later column has n entries, also infinity; coefficient k is multiplied by ``kept**k``.
        # c_0 = 1 and c_k = sum_i omega_i theta_i**(k - 1), so that c_(k + lag) c_k adds, for k = 0, omega_i / theta_i,
        # and for each pair of buffers a geometric series from k = 1 on, all times theta_i**lag.
        # Without memory, kept = 0, all terms are 0.
        logs, omega = self.log_theta + math.log(max(kept, 1e-300)), kept * self.omega
        gaps = (1.0 - kept * kept) + kept * kept * self.gaps
        faded = -np.expm1((n - 1.0) * (logs[:, None] + logs))
        return omega / np.exp(logs) + omega * (faded * omega / gaps).sum(axis=1), logs

    def coefficients(self, n: int, *, inverse: bool = False) -> FloatArray:
        """First n coefficients of C, or of C**-1."""
        weights, logs = (self.omega_hat, self.log_theta_hat) if inverse else (self.omega, self.log_theta)
        series = np.ones(n)
        # Not a product of matrices: these set the scale of the noise, which must have the same bits under every BLAS.
        series[1:] = (np.exp(np.arange(n - 1.0)[:, None] * logs) * weights).sum(axis=1)
        return series


def _others(across: FloatArray, own: FloatArray) -> FloatArray:
    """For each i, the product over j != i of across[i, j] / (own_j - own_i)."""
    # The identity avoids a division by zero on the diagonal, which is replaced below.
    factors = across / (own[None, :] - own[:, None] + np.eye(own.size))
    np.fill_diagonal(factors, 1.0)
    products: FloatArray = factors.prod(axis=1)
    return products


@lru_cache(maxsize=256)
def fit_buffers(horizon: int) -> Buffers:
    """Return the geometric BLT with the least noise in the last of ``horizon`` sums, before column normalization."""
    # More buffers would reduce the noise by less than about 0.5 %.
    count = min(8, max(1, (2 * horizon.bit_length() + 3) // 5))
    return _fit(lambda blt: float(blt.column_square(horizon)) * float(blt.row_square(horizon)), horizon, count)


@lru_cache(maxsize=256)
def fit_lagged(window: int) -> Buffers:
    """Return the geometric BLT with the least noise in differences of prefix sums ``window`` apart, at any time."""
    count = max(1, (window.bit_length() + 2) // 3)
    return _fit(lambda blt: float(blt.column_square(math.inf)) * float(blt.lagged_square(window)), window, count)


@lru_cache(maxsize=256)
def fit_forgetting(memory: int) -> Buffers:
    """Return the geometric BLT with the least noise in sums that decay by 1 - 1/memory a step."""
    fade = 2.0 / memory - 1.0 / memory**2  # 1 - (1 - 1/memory)**2
    count = max(1, (memory.bit_length() + 3) // 3)
    return _fit(lambda blt: blt.faded_column_square(fade) * blt.faded_row_square(fade), memory, count)


def _fit(square: Callable[[Buffers], float], length: int, count: int) -> Buffers:
    """Minimize 0.5 log of the squared noise over (log alpha, log ratio)."""

    def loss(x: tuple[float, float]) -> float:
        alpha, ratio = math.exp(x[0]), math.exp(x[1])
        if not (1.0 + 1e-6 < ratio < 1e9 and alpha * ratio ** (count - 0.5) < 0.999):
            return math.inf
        return 0.5 * math.log(square(Buffers(alpha, ratio, count)))

    start = math.log(0.2 / length), math.log((2.0 * length) ** (1.0 / count))
    # Four digits of each change the noise by less than 2e-8. At seven, the exponentials of machines with and without
    # AVX-512 led to different constants, hence to different noise under one seed.
    alpha, ratio = (float(f"{math.exp(x):.4g}") for x in simplex_search(loss, start))
    return Buffers(alpha, ratio, count)


def simplex_search(loss: Callable[[tuple[float, float]], float], start: tuple[float, float]) -> tuple[float, float]:
    """Minimize in two dimensions by the method of Nelder and Mead."""
    # Not `scipy.optimize`, whose results differ between versions: fitted constants are part of the label of the noise.
    points = list(np.array(start) + np.array([[0.0, 0.0], [0.5, 0.0], [0.0, 0.2]]))
    values = [loss((p[0], p[1])) for p in points]
    for _ in range(200):
        order = sorted(range(3), key=values.__getitem__)
        points, values = [points[i] for i in order], [values[i] for i in order]
        if values[2] - values[0] < 1e-12 and float(np.abs(points[2] - points[0]).max()) < 1e-7:
            break
        center = 0.5 * (points[0] + points[1])
        step = center - points[2]

        def at(scale: float, center: np.ndarray = center, step: np.ndarray = step) -> tuple[np.ndarray, float]:
            p = center + scale * step
            return p, loss((float(p[0]), float(p[1])))

        p, value = at(1.0)
        if value < values[0]:
            further = at(2.0)
            p, value = further if further[1] < value else (p, value)
        elif value >= values[1]:
            p, value = at(0.5) if value < values[2] else at(-0.5)
        if value < values[2]:
            points[2], values[2] = p, value
        else:
            for i in (1, 2):
                points[i] = 0.5 * (points[0] + points[i])
                values[i] = loss((float(points[i][0]), float(points[i][1])))
    return float(points[0][0]), float(points[0][1])
