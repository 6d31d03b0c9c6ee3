"""The algebra of buffered linear Toeplitz factorisations (BLT).

``C`` is the lower-triangular Toeplitz matrix of the rational function

    C(x) = prod_i (1 - theta^_i x) / prod_i (1 - theta_i x),

with ``a_i = 1 - theta_i`` and ``a^_i = 1 - theta^_i`` interlaced,
``a_1 < a^_1 < a_2 < a^_2 < ...``, so that C(x) imitates (1 - x)**-1/2 (Dvijotham,
McMahan, Pillutla, Steinke and Thakurta 2024, "Efficient and near-optimal noise
generation for streaming differential privacy"). Both C and its inverse are sums
of as many exponentials as there are buffers, so noise ``C**-1 z`` needs only
that many running vectors. With interlacing, every sum below has terms of
one sign: nothing cancels.
"""

from __future__ import annotations

import math

import numpy as np

from streampca.linalg.lazy import cached_property
from streampca.linalg.types import FloatArray

#: Squared column norms are taken this much larger than computed, so that rounding never costs privacy.
INFLATION = 1.0 + 1e-6


class Buffers:
    """A BLT with geometric decay rates ``a_i = alpha r**(i-1)``, ``a^_i = alpha r**(i-1+q)``.

    Parameters
    ----------
    alpha : smallest rate, in (0, 1).
    ratio : r, above 1.
    count : number of buffers.
    shift : q, in (0, 1).
    """

    def __init__(self, alpha: float, ratio: float, count: int, shift: float = 0.5) -> None:
        self.alpha, self.ratio, self.count, self.shift = alpha, ratio, count, shift
        powers: FloatArray = np.arange(count, dtype=np.float64)
        self.a: FloatArray = alpha * np.power(ratio, powers)
        self.a_hat: FloatArray = self.a * ratio**shift
        across = self.a_hat[None, :] - self.a[:, None]  # [i, j] = a^_j - a_i
        self.omega = np.diagonal(across) * _others(across, self.a)
        self.omega_hat = -np.diagonal(across) * _others(-across.T, self.a_hat)
        #: b_k = level + sum_i weights_i theta^_i**k: the coefficients of A C**-1.
        self.level = math.prod(self.a / self.a_hat)
        self.weights = -self.omega_hat / self.a_hat

    @property
    def is_proper(self) -> bool:
        """True if all rates are below 1, so that every coefficient is positive and decreasing."""
        return self.alpha > 0.0 and self.ratio > 1.0 and float(self.a_hat[-1]) < 1.0

    @cached_property
    def _log_theta(self) -> FloatArray:
        return np.log1p(-self.a)

    @cached_property
    def log_theta_hat(self) -> FloatArray:
        """Logarithms of the decay factors of C**-1."""
        return np.log1p(-self.a_hat)

    @cached_property
    def gaps_hat(self) -> FloatArray:
        """1 - theta^_i theta^_j, (count, count)."""
        return self.a_hat[:, None] + self.a_hat - self.a_hat[:, None] * self.a_hat

    def column_square(self, n: FloatArray | float) -> FloatArray:
        """S(n): the squared norm of the first n coefficients of C, for each n."""
        steps = np.asarray(n, dtype=np.float64)[..., None, None] - 1.0
        gaps = self.a[:, None] + self.a - self.a[:, None] * self.a
        faded = -np.expm1(steps * (self._log_theta[:, None] + self._log_theta))
        squares: FloatArray = 1.0 + (faded * (self.omega[:, None] * self.omega / gaps)).sum(axis=(-2, -1))
        return squares

    def column_square_limit(self) -> float:
        """S(infinity)."""
        gaps = self.a[:, None] + self.a - self.a[:, None] * self.a
        return 1.0 + float((self.omega[:, None] * self.omega / gaps).sum())

    def row_square(self, n: FloatArray | float) -> FloatArray:
        """The squared norm of the first n coefficients of A C**-1, for each n."""
        steps = np.asarray(n, dtype=np.float64)
        single = -np.expm1(steps[..., None] * self.log_theta_hat)
        pairs = -np.expm1(steps[..., None, None] * (self.log_theta_hat[:, None] + self.log_theta_hat))
        squares: FloatArray = (
            self.level**2 * steps
            + 2.0 * self.level * (single * (self.weights / self.a_hat)).sum(axis=-1)
            + (pairs * (self.weights[:, None] * self.weights / self.gaps_hat)).sum(axis=(-2, -1))
        )
        return squares

    def lagged_square(self, lag: int, n: FloatArray | float = math.inf) -> FloatArray:
        """Squared row norm n of (A - A shifted by lag) C**-1: noise of a difference of prefix sums.

        The rows n <= lag are those of A C**-1; n may be infinite.
        """
        steps = np.asarray(n, dtype=np.float64)
        past = np.maximum(steps - lag, 0.0)
        q = self.weights * -np.expm1(lag * self.log_theta_hat)
        faded = -np.expm1(past[..., None, None] * (self.log_theta_hat[:, None] + self.log_theta_hat))
        squares: FloatArray = self.row_square(np.minimum(steps, lag)) + (faded * (q[:, None] * q / self.gaps_hat)).sum(
            axis=(-2, -1)
        )
        return squares

    def faded_column_square(self, fade: float) -> float:
        """Sum of gamma**2k c_k**2 with gamma**2 = 1 - fade."""
        gaps = self.a[:, None] + self.a - self.a[:, None] * self.a
        kept = 1.0 - fade
        return 1.0 + kept * float((self.omega[:, None] * self.omega / (fade + kept * gaps)).sum())

    def faded_row_square(self, fade: float, n: float = math.inf) -> float:
        """Sum over k < n of gamma**2k b_k**2 with gamma**2 = 1 - fade, b_k the coefficients of A C**-1."""
        kept, logs = 1.0 - fade, self.log_theta_hat
        log_kept = math.log1p(-fade) if fade < 1.0 else -math.inf

        def geometric(log_ratio: FloatArray, gap: FloatArray) -> FloatArray:
            return -np.expm1(n * (log_kept + log_ratio)) / (fade + kept * gap)

        level = geometric(np.zeros(1), np.zeros(1))[0]
        single = (geometric(logs, self.a_hat) * self.weights).sum()
        pairs = (geometric(logs[:, None] + logs, self.gaps_hat) * self.weights[:, None] * self.weights).sum()
        return float(self.level**2 * level + 2.0 * self.level * single + pairs)

    def encoder_coefficients(self, n: int) -> FloatArray:
        """The first n coefficients of C."""
        return _series(self.omega, self._log_theta, n)

    def inverse_coefficients(self, n: int) -> FloatArray:
        """The first n coefficients of C**-1."""
        return _series(self.omega_hat, self.log_theta_hat, n)

    def encoder(self, n: int) -> FloatArray:
        """Dense C, (n, n)."""
        return toeplitz(self.encoder_coefficients(n))

    def inverse(self, n: int) -> FloatArray:
        """Dense C**-1, (n, n)."""
        return toeplitz(self.inverse_coefficients(n))


def toeplitz(column: FloatArray) -> FloatArray:
    """The lower-triangular Toeplitz matrix with this first column."""
    n = column.size
    lag = np.arange(n)[:, None] - np.arange(n)
    return np.where(lag >= 0, column[lag], 0.0)


def _others(across: FloatArray, own: FloatArray) -> FloatArray:
    """For each i, the product over j != i of across[i, j] / (own_j - own_i)."""
    factors = across / (own[None, :] - own[:, None] + np.eye(own.size))
    np.fill_diagonal(factors, 1.0)
    products: FloatArray = factors.prod(axis=1)
    return products


def _series(weights: FloatArray, log_decay: FloatArray, n: int) -> FloatArray:
    out = np.ones(n)
    out[1:] = np.exp(np.arange(n - 1.0)[:, None] * log_decay) @ weights
    return out
