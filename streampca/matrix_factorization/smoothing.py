"""Estimates of exact sums from noisy ones: post-processing of the releases of a matrix factorization.

A matrix factorization releases Y_n = G_n + N_n, where G_n = H_1 + ... + H_n is the exact
sum and the covariance of the noise N over time is public. Successive releases
are correlated, so all of them together determine G_n better than Y_n alone. The
estimates here are linear in the releases with public weights, the same for all
coordinates, which are independent and have equal variance in svec coordinates.
They use nothing but releases and public constants: no privacy is spent.

The weights are those of the best linear unbiased predictor under a model of the
inputs (`InputModel`) in which their mean is a random walk. If the model is wrong,
weights are not optimal; the guarantee of privacy does not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streampca.errors import BadParameterError
from streampca.linalg import fast
from streampca.linalg.counts import check_count
from streampca.linalg.lazy import cached_property
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray
from streampca.matrix_factorization.blt import AnytimeBLT, GeometricBLT
from streampca.matrix_factorization.window import WindowDifference
from streampca.state import State

#: Mean squared norm of a mean leaf, over the square of its rows; and of the rest of a leaf, over its rows.
_SIGNAL, _SCATTER = 0.5, 0.3
#: Relative drift of a window's mean, times the window's rows.
_WINDOW_DRIFT = 0.04
#: Leaves in the longest window that is smoothed: its weights come from a dense solve.
MOST_LEAVES = 100


@dataclass(frozen=True)
class InputModel:
    """A model of the inputs of a running sum, for each coordinate in svec coordinates. Public constants.

    Input n is H_n = M_n + (independent, variance `scatter`), and M_n a random walk that starts with
    variance `prior` and gains variance ``walk(n)`` before input n.

    Attributes
    ----------
    prior : variance of M before the first input.
    scatter : variance of an input around M.
    drift : variance that M gains before input 1; before input n it is ``drift / n``.
    """

    prior: float
    scatter: float
    drift: float

    def __post_init__(self) -> None:
        for name in ("prior", "scatter", "drift"):
            value = getattr(self, name)
            if not 0.0 <= value < np.inf:
                raise BadParameterError(f"{name}={value!r} must be a finite number, at least 0")

    @classmethod
    def of_grams(cls, n_features: int, n_components: int, rows: int, drift: float = 1.0) -> InputModel:
        """The model of Gram matrices of so many rows of norm at most 1.

        Parameters
        ----------
        n_features, n_components : d and k.
        rows : rows in an input, b.
        drift : relative variance per row that M gains, times the number of rows before it.

        Notes
        -----
        A sum of b rows has ``||E H||_F**2 <= b**2``. The prior distributes half of that evenly over all d(d+1)/2
        coordinates; drift and scatter are concentrated in the p = kd - k(k-1)/2 coordinates of a matrix of rank k.
        """
        effective = _effective_coordinates(n_features, n_components)
        return cls(
            prior=_SIGNAL * rows**2 / svec_size(n_features),
            scatter=_SCATTER * rows / effective,
            drift=drift * rows**2 / effective,
        )


def _effective_coordinates(d: int, k: int) -> float:
    return k * d - k * (k - 1) / 2


@dataclass(frozen=True)
class Smoothing:
    """Kalman filter for the exact sums of `GeometricBLT` and `AnytimeBLT`.

    Parameters
    ----------
    mechanism : what releases the sums.
    model : of the inputs.

    Notes
    -----
    With D_n = Y_n - Y_{n-1} = H_n + s_n (C^-1 z)_n, s_n the public scale of a step of the noise,
    C turns e_n = D_n / s_n into w_n = (C H/s)_n + z_n, whose noise is white with variance 1. C is
    computed by as many buffers as it has exponentials: ``w = e + sum_i omega_i v_i``, then
    ``v_i <- theta_i v_i + e``. The state (M, H, u, G) has the mean of the inputs, the latest input, the
    buffers u of ``C H/s``, and the sum. Its covariance P, one for all coordinates, does not depend on the
    releases. An input: ``P_MM += drift/n``, ``H := M`` with variance + scatter; ``h = (0, 1/s, omega, 0)``,
    ``K = P h / (h^T P h + 1)``, ``x += K (w - h^T x)``, ``P -= K (P h)^T``; then ``u_i <- theta_i u_i + H/s`` and
    ``G += H``. This gives E[G_n | Y_1, ..., Y_n] for Gaussian inputs and the best linear
    predictor for any others with these moments. Time and memory are O(buffers) per coordinate.
    """

    mechanism: GeometricBLT | AnytimeBLT
    model: InputModel

    @cached_property
    def omega(self) -> FloatArray:
        """Weights of the exponentials of C, (buffers,)."""
        return self.mechanism.buffers.omega

    @cached_property
    def theta(self) -> FloatArray:
        """Decay factors of the exponentials of C, (buffers,)."""
        return 1.0 - self.mechanism.buffers.a

    def start(self, size: int) -> SmoothedSum:
        """The estimate before the first release of vectors of so many coordinates."""
        count = self.omega.size
        covariance = np.zeros((count + 3, count + 3))
        covariance[0, 0] = self.model.prior
        zeros = np.zeros(size)
        return SmoothedSum(self, 0, covariance, np.zeros_like(covariance), zeros, np.zeros((count, size)), zeros, zeros)


class SmoothedSum(State):
    """Estimate of the exact sum after n releases: an immutable value, publishable like the releases.

    Attributes
    ----------
    smoothing : the filter.
    n : releases seen.
    covariance : P, (buffers + 3, buffers + 3), in the order M, H, u, G.
    response : covariance of that part of the estimate x which the noise of the releases makes, in the same order.
    mean : estimate of M, (size,).
    buffers : v - u, (buffers, size): estimate of the buffers of the noise.
    sum : estimate of the exact sum G_n, (size,).
    released : Y_n, (size,).
    """

    __slots__ = ("buffers", "covariance", "mean", "n", "released", "response", "smoothing", "sum")
    kept = ("n", "covariance", "response", "mean", "buffers", "sum", "released")

    def __init__(
        self,
        smoothing: Smoothing,
        n: int,
        covariance: FloatArray,
        response: FloatArray,
        mean: FloatArray,
        buffers: FloatArray,
        sum: FloatArray,  # noqa: A002 the field's name
        released: FloatArray,
    ) -> None:
        self.smoothing, self.n, self.covariance, self.response = smoothing, n, covariance, response
        self.mean, self.buffers, self.sum, self.released = mean, buffers, sum, released

    def after(self, released: FloatArray, share: float = 1.0) -> SmoothedSum:
        """The estimate after one release more.

        Parameters
        ----------
        released : Y_{n+1}, (size,), in svec coordinates or packed entries: all coordinates are treated alike.
        share : rows of this input over those of a full one; below 1 for the last one before a horizon.
        """
        rule, n = self.smoothing, self.n + 1
        scale, after = rule.mechanism.recurrence.scale_at(n), rule.mechanism.recurrence.restart_after
        covariance, response, buffers = self.covariance.copy(), self.response.copy(), self.buffers
        if after is not None and n > 1 and (n - 1) % after == 0:
            for matrix in (covariance, response):
                matrix[2:-1], matrix[:, 2:-1] = 0.0, 0.0
            buffers = np.zeros_like(buffers)
        kernels = fast.kernels
        if kernels is not None and len(covariance) <= 128:
            gain, decayed, out = np.empty(len(covariance)), np.empty(buffers.shape), np.empty((2, released.size))
            omega, theta, drift = rule.omega, rule.theta, rule.model.drift / n
            kernels.filter_gain(covariance, response, omega, theta, drift, rule.model.scatter, scale, share, gain)
            kernels.smoothed_sums(
                released, self.released, self.mean, self.sum, buffers, omega, theta, gain, scale, share, decayed, out
            )
            return SmoothedSum(rule, n, covariance, response, out[0], decayed, out[1], released)
        gain = _step(covariance, response, rule, n, scale, share)
        expected = self.mean * share
        # The noise of this step if the input is as expected, over its scale.
        step = (released - self.released - expected) / scale
        decayed, work = rule.theta[:, None] * buffers, rule.omega[:, None] * buffers
        innovation = fast.sum_of_rows(work) + step
        decayed += step
        decayed -= np.multiply(gain[2:-1, None], innovation, out=work)
        total = self.sum + expected + gain[-1] * innovation
        return SmoothedSum(rule, n, covariance, response, self.mean + gain[0] * innovation, decayed, total, released)

    @property
    def std(self) -> float:
        """Standard deviation of the error of `sum` in each svec coordinate, if the model holds."""
        return float(np.sqrt(self.covariance[-1, -1]))

    @property
    def noise_std(self) -> float:
        """Exact standard deviation of the noise of the releases in each svec coordinate of `sum`.

        The rest of its error is its bias, which depends on how the inputs change and cannot be known.
        """
        return float(np.sqrt(max(float(self.response[-1, -1]), 0.0)))


def _step(
    covariance: FloatArray, response: FloatArray, rule: Smoothing, n: int, scale: float, share: float
) -> FloatArray:
    """Advance both covariances, in place, by input n; return the gain, by which the innovation changes the state.

    The noise reaches the estimate through w alone, where it is white: ``x = (I - K h^T) x + K w``.
    """
    model, theta = rule.model, rule.theta
    covariance[0, 0] += model.drift / n
    for matrix in (covariance, response):
        matrix[1] = share * matrix[0]
        matrix[:, 1] = share * matrix[:, 0]
        matrix[1, 1] = share**2 * matrix[0, 0]
    covariance[1, 1] = share**2 * covariance[0, 0] + share * model.scatter
    h = np.concatenate(([0.0, 1.0 / scale], rule.omega, [0.0]))
    product = (covariance * h).sum(axis=1)
    variance = float((h * product).sum()) + 1.0
    covariance -= product[:, None] * product / variance
    gain: FloatArray = product / variance
    left = response - gain[:, None] * np.add.reduce(h[:, None] * response, axis=0)
    response[:] = left - (left * h).sum(axis=1)[:, None] * gain + gain[:, None] * gain
    for across in (covariance, covariance.T, response, response.T):
        across[2:-1] = theta[:, None] * across[2:-1] + across[1] / scale
        across[-1] += across[1]
    gain[2:-1] = theta * gain[2:-1] + gain[1] / scale
    gain[-1] += gain[1]
    return gain


@dataclass(frozen=True)
class WindowSmoothing:
    """Weights for the exact sum of a window, from the last increments of the running sum (a FIR filter).

    Parameters
    ----------
    mechanism : what releases the windows; at most `MOST_LEAVES` inputs each.
    n_features, n_components : d and k.
    rows : rows in an input, b.

    Notes
    -----
    The increments D of the private running sums have covariance K_H + K_N, K_H that of the inputs and K_N that of
    their noise. The last m = min(n, 2W) of them give the estimate ``a^T D`` of the sum of the last W inputs, with
    ``a = (K_H + K_N)^-1 K_H g`` and g ones on the last W: the best linear predictor. Inputs are modelled by

        K_H[i, j] = (.5 b**2 + b**3 kappa min(i, j)) / p + [i = j] .3 b / p,    kappa = .04 / (W b), i, j >= 0,

    p = kd - k(k-1)/2, oldest first. K_N is exact up to n = 2W, and that of the stationary noise from then on.
    """

    mechanism: WindowDifference
    n_features: int
    n_components: int
    rows: int = 1

    def __post_init__(self) -> None:
        for name in ("n_features", "n_components", "rows"):
            check_count(name, getattr(self, name))
        if self.mechanism.window > MOST_LEAVES:
            raise BadParameterError(
                f"window={self.mechanism.window} releases in a window; smoothing takes at most {MOST_LEAVES}"
            )

    @cached_property
    def length(self) -> int:
        """The number of increments in use, at most: 2W."""
        return 2 * self.mechanism.window

    @cached_property
    def _weights(self) -> dict[int, FloatArray]:
        return {}

    def weights(self, n: int) -> FloatArray:
        """Weights of the last increments after n releases, oldest first, (min(n, 2W),)."""
        m = min(n, self.length + 1)
        found = self._weights.get(m)
        if found is None:
            found = self._weights[m] = self._solved(m)
        return found

    def input_covariance(self, m: int) -> FloatArray:
        """K_H of m increments, (m, m), for each svec coordinate."""
        b = self.rows
        effective = _effective_coordinates(self.n_features, self.n_components)
        order = np.arange(m, dtype=np.float64)
        drift = b**3 * _WINDOW_DRIFT / (self.mechanism.window * b)
        mean = (_SIGNAL * b**2 + drift * np.minimum(order[:, None], order)) / effective
        return mean + np.eye(m) * (_SCATTER * b / effective)

    def noise_covariance(self, n: int) -> FloatArray:
        """K_N of the last increments after n releases, (min(n, 2W), min(n, 2W))."""
        buffers, scale = self.mechanism.buffers, self.mechanism.scale
        if n <= self.length:
            inverse = buffers.inverse(n)
            return scale**2 * (inverse @ inverse.T)
        lags = np.arange(1.0, self.length)
        decayed = np.exp((lags[:, None] - 1.0) * buffers.log_theta_hat)
        pairs = (buffers.omega_hat[:, None] * buffers.omega_hat / buffers.gaps_hat).sum(axis=0)
        first = 1.0 + float((buffers.omega_hat[:, None] * buffers.omega_hat / buffers.gaps_hat).sum())
        following = decayed @ (buffers.omega_hat + np.exp(buffers.log_theta_hat) * pairs)
        column = np.concatenate(([first], following))
        lag = np.abs(np.arange(self.length)[:, None] - np.arange(self.length))
        covariance: FloatArray = scale**2 * column[lag]
        return covariance

    def noise_std(self, n: int) -> float:
        """Exact standard deviation of the noise of the releases in each svec coordinate of the estimate."""
        m = min(n, self.length + 1)
        if m not in self._stds:
            weights = self.weights(m)
            self._stds[m] = float(np.sqrt(weights @ self.noise_covariance(m) @ weights))
        return self._stds[m]

    @cached_property
    def _stds(self) -> dict[int, float]:
        return {}

    def _solved(self, n: int) -> FloatArray:
        noise = self.noise_covariance(n)
        inputs = self.input_covariance(len(noise))
        window = np.zeros(len(noise))
        window[-self.mechanism.window :] = 1.0
        weights = np.asarray(np.linalg.solve(inputs + noise, inputs @ window), dtype=np.float64)
        weights.flags.writeable = False
        return weights
