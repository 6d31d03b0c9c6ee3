"""Estimates of exact sums from noisy ones: post-processing of the releases of a matrix factorization.

A matrix factorization releases Y_n = G_n + N_n, where G_n = H_1 + ... + H_n is the exact sum and the covariance of the
noise N over time is public. Successive releases are correlated, so all of them together determine G_n better than Y_n
alone. The estimates are linear in the releases with public weights, equal for all coordinates, which are independent
and have equal variance in svec coordinates.

The weights are those of the best linear unbiased predictor under a model of the inputs (`Smoothing`) in which their
mean is a random walk. The guarantee does not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import toeplitz

from streampca import _native
from streampca.linalg.lattice import sum_of_rows
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.blt import AnytimeBLT, GeometricBLT
from streampca.matrix_factorization.window import WindowDifference
from streampca.state import State

#: Mean squared norm of a mean leaf, over the square of its rows; and of the rest of a leaf, over its rows.
_SIGNAL, _SCATTER = 0.5, 0.3
#: Relative drift of a window's mean, times the window's rows.
_WINDOW_DRIFT = 0.04
#: Largest number of leaves in a window, because the weights come from a dense solve.
MOST_LEAVES = 100


@dataclass(frozen=True)
class Smoothing:
    """Kalman filter for the exact sums of `GeometricBLT` and `AnytimeBLT`, by a model of the inputs.

    For each coordinate in svec coordinates, input n is H_n = M_n + (independent, variance `scatter`). The mean M_n is a
    random walk. The variances are public constants.

    With D_n = Y_n - Y_{n-1} = H_n + s_n (C^-1 z)_n, s_n the public scale of a step of the noise, C turns
    e_n = D_n / s_n into w_n = (C H/s)_n + z_n, whose noise is white with variance 1. C is computed by one buffer per
    exponential: ``w = e + sum_i omega_i v_i``, then ``v_i <- theta_i v_i + e``. The state (M, H, u, G) has the mean of
    the inputs, the latest input, the buffers u of ``C H/s``, and the sum. Its covariance P, one for all coordinates,
    does not depend on the releases. An input: ``P_MM += drift/n``, ``H := M`` with variance + scatter;
    ``h = (0, 1/s, omega, 0)``, ``K = P h / (h^T P h + 1)``, ``x += K (w - h^T x)``, ``P -= K (P h)^T``; then
    ``u_i <- theta_i u_i + H/s`` and ``G += H``. This gives E[G_n | Y_1, ..., Y_n] for Gaussian inputs and the best
    linear predictor for any others with these moments. Time and memory are O(buffers) per coordinate.
    """

    mechanism: GeometricBLT | AnytimeBLT
    prior: float  # variance of M before the first input
    scatter: float  # variance of an input around M
    drift: float  # variance that M gains before input n, times n

    @classmethod
    def of_grams(
        cls, mechanism: GeometricBLT | AnytimeBLT, n_features: int, n_components: int, rows: int, drift: float = 1.0
    ) -> Smoothing:
        """Return the filter for Gram matrices of ``rows`` rows of norm at most 1."""
        # ``drift`` is the relative variance per row that M gains, times the number of rows before it.
        # A sum of b rows has ||E H||_F**2 <= b**2. The prior distributes half of that evenly over all d(d+1)/2
        # coordinates. Drift and scatter are concentrated in the p = kd - k(k-1)/2 coordinates of a matrix of rank k.
        effective = n_components * n_features - n_components * (n_components - 1) / 2
        prior, scatter = _SIGNAL * rows**2 / svec_size(n_features), _SCATTER * rows / effective
        return cls(mechanism, prior, scatter, drift * rows**2 / effective)

    def start(self, size: int) -> SmoothedSum:
        count = self.mechanism.buffers.count
        # Before the first input only M is unknown; the buffers and the sum are 0.
        covariance = np.zeros((count + 3, count + 3))
        covariance[0, 0] = self.prior
        zeros = np.zeros(size)
        return SmoothedSum(self, 0, covariance, np.zeros_like(covariance), zeros, np.zeros((count, size)), zeros, zeros)


@dataclass(eq=False, slots=True)
class SmoothedSum(State):
    """Estimate of the exact sum after n releases: an immutable value, publishable like the releases."""

    kept = ("n", "covariance", "response", "mean", "buffers", "sum", "released")

    smoothing: Smoothing
    n: int
    covariance: FloatArray  # P, (buffers + 3, buffers + 3), in the order M, H, u, G
    response: FloatArray  # covariance of the noise of the releases in the estimate x, in the same order
    mean: FloatArray  # estimate of M, (size,)
    buffers: FloatArray  # v - u, (buffers, size): estimate of the buffers of the noise
    sum: FloatArray  # estimate of the exact sum G_n, (size,)
    released: FloatArray  # Y_n, (size,)

    def after(self, released: FloatArray, share: float = 1.0) -> SmoothedSum:
        """Return the estimate after one more release, Y_{n+1}."""
        # In svec coordinates or packed entries, because all coordinates have equal weights. ``share`` is the rows of
        # this input over those of a full one; below 1 for the last one before a horizon.
        rule, n = self.smoothing, self.n + 1
        omega, theta = rule.mechanism.buffers.omega, rule.mechanism.buffers.theta
        scale, after = rule.mechanism.recurrence.scale_at(n), rule.mechanism.recurrence.restart_after
        covariance, response, buffers = self.covariance.copy(), self.response.copy(), self.buffers
        if after is not None and n > 1 and (n - 1) % after == 0:
            for matrix in (covariance, response):
                matrix[2:-1], matrix[:, 2:-1] = 0.0, 0.0
            buffers = np.zeros_like(buffers)
        kernels = _native.compiled
        if kernels is not None and len(covariance) <= 128:
            gain, decayed, out = np.empty(len(covariance)), np.empty(buffers.shape), np.empty((2, released.size))
            kernels.filter_gain(covariance, response, omega, theta, rule.drift / n, rule.scatter, scale, share, gain)
            kernels.smoothed_sums(
                released, self.released, self.mean, self.sum, buffers, omega, theta, gain, scale, share, decayed, out
            )
            return SmoothedSum(rule, n, covariance, response, out[0], decayed, out[1], released)
        gain = _step(covariance, response, rule, n, scale, share)
        expected = self.mean * share
        # The noise of this step if the input is as expected, over its scale.
        step = (released - self.released - expected) / scale
        decayed, work = theta[:, None] * buffers, omega[:, None] * buffers
        innovation = sum_of_rows(work) + step
        decayed += step
        decayed -= np.multiply(gain[2:-1, None], innovation, out=work)
        total = self.sum + expected + gain[-1] * innovation
        return SmoothedSum(rule, n, covariance, response, self.mean + gain[0] * innovation, decayed, total, released)


def _step(
    covariance: FloatArray, response: FloatArray, rule: Smoothing, n: int, scale: float, share: float
) -> FloatArray:
    """Advance both covariances, in place, by input n; return the gain, by which the innovation changes the state."""
    # The noise reaches the estimate through w only, where it is white: ``x = (I - K h^T) x + K w``.
    omega, theta = rule.mechanism.buffers.omega, rule.mechanism.buffers.theta
    # Predict: M drifts, and H is M times the share of the input, plus its own scatter.
    covariance[0, 0] += rule.drift / n
    for matrix in (covariance, response):
        matrix[1] = share * matrix[0]
        matrix[:, 1] = share * matrix[:, 0]
        matrix[1, 1] = share**2 * matrix[0, 0]
    covariance[1, 1] = share**2 * covariance[0, 0] + share * rule.scatter
    h = np.concatenate(([0.0, 1.0 / scale], omega, [0.0]))
    # Update: h picks the innovation w - h^T x out of the state; its noise is white with variance 1. Sums in NumPy, not
    # products of BLAS: the gains have the same bits on every machine.
    product = (covariance * h).sum(axis=1)
    variance = float((h * product).sum()) + 1.0
    covariance -= product[:, None] * product / variance
    gain: FloatArray = product / variance
    left = response - gain[:, None] * np.add.reduce(h[:, None] * response, axis=0)
    response[:] = left - (left * h).sum(axis=1)[:, None] * gain + gain[:, None] * gain
    # Advance: u_i <- theta_i u_i + H / s and G <- G + H, as rows and columns of both symmetric matrices.
    for across in (covariance, covariance.T, response, response.T):
        across[2:-1] = theta[:, None] * across[2:-1] + across[1] / scale
        across[-1] += across[1]
    gain[2:-1] = theta * gain[2:-1] + gain[1] / scale
    gain[-1] += gain[1]
    return gain


@dataclass(frozen=True)
class WindowSmoothing:
    """Weights for the exact sum of a window, from the last increments of the running sum (a FIR filter).

    The increments D of the private running sums have covariance K_H + K_N, K_H that of the inputs and K_N that of
    their noise. The last m = min(n, 2W) of them give the estimate ``a^T D`` of the sum of the last W inputs, with
    ``a = (K_H + K_N)^-1 K_H g`` and g ones on the last W: the best linear predictor. Inputs of b rows have

        K_H[i, j] = (.5 b**2 + b**3 kappa min(i, j)) / p + [i = j] .3 b / p,    kappa = .04 / (W b), i, j >= 0,

    p = kd - k(k-1)/2, oldest first. K_N is exact up to n = 2W, and that of the stationary noise from then on.
    """

    mechanism: WindowDifference
    n_features: int
    n_components: int
    rows: int = 1
    #: Results of `solve`, which are constant from n = 2W + 1 on.
    _solved: dict[int, tuple[FloatArray, float]] = field(init=False, repr=False, compare=False, default_factory=dict)

    def solve(self, n: int) -> tuple[FloatArray, float]:
        """Return the weights of the last increments after n releases, oldest first, and the noise of the estimate."""
        # The second is the exact standard deviation of the noise of the releases in each svec coordinate.
        m = min(n, 2 * self.mechanism.window + 1)
        if m not in self._solved:
            noise = self.noise_covariance(m)
            inputs = self.input_covariance(len(noise))
            window = np.zeros(len(noise))
            window[-self.mechanism.window :] = 1.0
            weights = np.asarray(np.linalg.solve(inputs + noise, inputs @ window), dtype=np.float64)
            weights.flags.writeable = False
            self._solved[m] = weights, float(np.sqrt(weights @ noise @ weights))
        return self._solved[m]

    def input_covariance(self, m: int) -> FloatArray:
        """K_H of m increments, (m, m), for each svec coordinate."""
        b, k = self.rows, self.n_components
        effective = k * self.n_features - k * (k - 1) / 2
        order = np.arange(m, dtype=np.float64)
        drift = b**3 * _WINDOW_DRIFT / (self.mechanism.window * b)
        mean = (_SIGNAL * b**2 + drift * np.minimum(order[:, None], order)) / effective
        return mean + np.eye(m) * (_SCATTER * b / effective)

    def noise_covariance(self, n: int) -> FloatArray:
        """K_N of the last increments after n releases, (min(n, 2W), min(n, 2W))."""
        buffers, scale = self.mechanism.buffers, self.mechanism.scale
        longest = 2 * self.mechanism.window
        if n <= longest:
            inverse = toeplitz(buffers.coefficients(n, inverse=True), np.zeros(n))
            return scale**2 * (inverse @ inverse.T)
        # From n = 2W on: the stationary autocovariance of C^-1 z, by lag.
        lags = np.arange(1.0, longest)
        decayed = np.exp((lags[:, None] - 1.0) * buffers.log_theta_hat)
        pairs = buffers.omega_hat[:, None] * buffers.omega_hat / buffers.gaps_hat
        following = decayed @ (buffers.omega_hat + np.exp(buffers.log_theta_hat) * pairs.sum(axis=0))
        return scale**2 * toeplitz(np.append(1.0 + pairs.sum(), following))
