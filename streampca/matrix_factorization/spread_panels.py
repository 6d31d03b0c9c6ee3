"""Variance of column-normalised BLT noise over long horizons, on panels of time.

Within a panel the scale of the noise, sqrt(S(T - t + 1)), is taken as constant; everything else
is in closed form. Panels are short beside their distance from either end of
the horizon, where the scale hardly changes, so the sd is right to 5e-6.
"""

from __future__ import annotations

import numpy as np

from streampca.linalg.types import FloatArray, IntArray
from streampca.matrix_factorization.buffers import INFLATION, Buffers

#: A panel is at most this fraction of its distance from the nearer end.
_SHARE = 1.0 / 2048.0


class PanelSpread:
    """Noise sd of the geometric BLT with column normalisation, at mu = sensitivity = 1.

    Parameters
    ----------
    buffers, horizon : the mechanism.
    """

    def __init__(self, buffers: Buffers, horizon: int) -> None:
        self._buffers = buffers
        starts = _panels(horizon)
        self._starts = starts[:-1]
        lengths = np.diff(starts).astype(np.float64)
        middle = horizon + 1.0 - (self._starts + 0.5 * (lengths - 1.0))
        self._scales = np.sqrt(buffers.column_square(middle) * INFLATION)
        # Before each panel: Cov(total, r_i), then Var(total).
        faded, gain = self._of_buffers(lengths)
        self._covariance = np.zeros((lengths.size, buffers.count))
        for p in range(lengths.size - 1):
            self._covariance[p + 1] = faded[p] * self._covariance[p] + self._scales[p] * gain[p]
        self._variance = np.zeros(lengths.size)
        self._variance[1:] = np.cumsum(self._added(slice(None), lengths))[:-1]

    def at(self, n: IntArray) -> FloatArray:
        """Sd of the noise of each of these sums."""
        panel = np.searchsorted(self._starts, n, side="right") - 1
        steps = (n - self._starts[panel] + 1).astype(np.float64)
        stds: FloatArray = np.sqrt(self._variance[panel] + self._added(panel, steps))
        return stds

    def stds(self, n: int) -> FloatArray:
        """Sd of the noise of sums 1..n."""
        return np.concatenate([self.at(np.arange(i, min(i + 2**14, n + 1))) for i in range(1, n + 1, 2**14)])

    def _states(self, starts: IntArray) -> FloatArray:
        """Cov(r_i, r_j) before the step at each start, (panels, count, count)."""
        blt = self._buffers
        logs = blt.log_theta_hat[:, None] + blt.log_theta_hat
        covariance: FloatArray = -np.expm1((starts - 1.0)[:, None, None] * logs) / blt.gaps_hat
        return covariance

    def _of_buffers(self, steps: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Over the panels, at scale 1: what is left of a buffer, and Cov(sum of steps, buffer) at the end."""
        blt = self._buffers
        faded = np.exp(steps[:, None] * blt.log_theta_hat)
        weights = blt.omega_hat * -np.expm1(steps[:, None] * blt.log_theta_hat) / blt.a_hat
        carried = np.einsum("pij,pj->pi", self._states(self._starts), weights)
        pairs = -np.expm1(steps[:, None, None] * (blt.log_theta_hat[:, None] + blt.log_theta_hat)) / blt.gaps_hat
        fresh = blt.level * (1.0 - faded) / blt.a_hat + pairs @ blt.weights
        return faded, faded * carried + fresh

    def _added(self, panel: IntArray | slice, steps: FloatArray) -> FloatArray:
        """Growth of Var(total) over the first steps of panels: 2 Cov(before, added) + Var(added)."""
        blt = self._buffers
        scale = self._scales[panel]
        weights = blt.omega_hat * -np.expm1(steps[:, None] * blt.log_theta_hat) / blt.a_hat
        mixed = np.einsum("pi,pi->p", weights, self._covariance[panel])
        own = np.einsum("pi,pij,pj->p", weights, self._states(self._starts[panel]), weights) + blt.row_square(steps)
        added: FloatArray = scale * (2.0 * mixed + scale * own)
        return added


def _panels(horizon: int) -> IntArray:
    """Starts of the panels, and one past the horizon."""
    starts = [1]
    while starts[-1] <= horizon:
        t = starts[-1]
        starts.append(t + max(1, int(_SHARE * min(t, horizon - t + 1))))
    return np.array(starts, dtype=np.int64)
