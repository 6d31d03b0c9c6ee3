"""Share of the variance that a noisy matrix captures: a small Monte-Carlo with fixed draws, by noise per row.

The leading eigenvectors of ``t diag(lambda) + s Z`` depend on s / t only. So one curve serves every number of rows t
and every mechanism with GOE noise.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from copy import copy
from typing import Self

import numpy as np

from streampca.linalg.eigen import top_eigh
from streampca.linalg.svec import svec_size, unsvec
from streampca.linalg.types import FloatArray
from streampca.privacy.randomness import Randomness

_SEED = 20240607
_POINTS = 33
#: Draws for a share that is computed at some points only.
_FEW = 64
#: Number of features up to which the eigenvectors of all draws are computed in one call.
_STACKED = 32
_TINY = 1e-15


class Curve:
    """Captured variance under GOE noise, for (d,) eigenvalues of the mean of a a^T, descending.

    ``norm`` is the mean spectral norm of GOE noise with standard deviation 1 on the diagonal.
    """

    def __init__(self, spectrum: FloatArray, n_components: int) -> None:
        self._spectrum, self._k = spectrum, n_components
        d = spectrum.size
        # Large matrices concentrate, and small ones are cheap.
        draws = int(np.clip(max(2000 // d, 20_000 // d**2), 2, 200))
        noise = Randomness.from_seed(_SEED).stream("goe")
        self._goe = np.array([unsvec(noise.normal(i, svec_size(d)), d) for i in range(draws)])
        top = float(spectrum[0])
        self._stds = np.geomspace(1e-6 * top, 1e2 * top, _POINTS)
        losses = [1.0 - self._mean_share(np.diag(spectrum) + std * self._goe) for std in self._stds]
        self._log_loss = np.log(np.maximum(losses, _TINY))
        self.norm = float(np.abs(np.linalg.eigvalsh(self._goe)).max(axis=1).mean())

    def _mean_share(self, matrices: FloatArray) -> float:
        """Return the mean of `share` over matrices, (m, d, d)."""
        if self._spectrum.size > _STACKED:
            return float(np.mean([self.share(matrix) for matrix in matrices]))
        top = np.linalg.eigh(matrices)[1][:, :, -self._k :]
        return float((self._spectrum @ (top**2).sum(axis=2).T).mean()) / float(self._spectrum[: self._k].sum())

    def share(self, matrix: FloatArray) -> float:
        """Return the share of the best reward that the top subspace of a matrix captures."""
        basis = top_eigh(matrix, self._k)[1]
        return float(self._spectrum @ (basis**2).sum(axis=1)) / float(self._spectrum[: self._k].sum())

    def captured(self, std_per_row: float | FloatArray) -> FloatArray:
        """Return the captured share by standard deviation of the noise divided by the number of rows."""
        # Losses are near a power of the noise: interpolation is linear in both logarithms.
        logs = np.interp(np.log(np.maximum(std_per_row, self._stds[0])), np.log(self._stds), self._log_loss)
        return np.asarray(1.0 - np.exp(logs), dtype=np.float64)

    def scaled(self, factor: float) -> Self:
        """Return the curve of eigenvalues that are larger by a factor."""
        curve = copy(self)
        vars(curve).update(_spectrum=factor * self._spectrum, _stds=factor * self._stds)
        return curve

    def noise_of(self, share: float) -> float:
        """Return the standard deviation of the noise per row at which that share is captured: `captured`, inverted."""
        logs = np.maximum.accumulate(self._log_loss)
        return float(np.exp(np.interp(math.log(max(1.0 - share, _TINY)), logs, np.log(self._stds))))

    def share_of(self, kept: float, noise_std: float, scatter_std: float) -> float:
        """Return the mean share captured by ``kept`` times a mean Gram matrix, with GOE noise and scatter."""
        # As for Gaussian rows, entry (i, j) of the scatter has the deviation scatter_std * sqrt(lambda_i lambda_j).
        roots, few = np.sqrt(self._spectrum), self._goe[:_FEW]
        scatter = roots[:, None] * np.roll(few, 1, axis=0) * roots
        return self._mean_share(kept * np.diag(self._spectrum) + noise_std * few + scatter_std * scatter)

    def share_with(self, noise: Iterator[FloatArray], rows: int, mean: Callable[[int], FloatArray]) -> float:
        """Return the mean share of the variance about a drawn ``mean`` that ``rows`` rows capture, with any noise."""
        drawn = enumerate(itertools.islice(noise, max(2, len(self._goe) // 2)))
        gram = np.diag(self._spectrum)
        return float(np.mean([self.share(rows * (gram + np.outer(mean(i), mean(i))) + z) for i, z in drawn]))

    def rows_for(self, share: float, std: Callable[[int], float], most: int = 2**44) -> int | None:
        """Return the fewest rows (to 1 %) for which noise of ``std(rows)`` leaves that share; None beyond ``most``."""
        # Noise per row falls with the number of rows, so the share rises: double, then bisect.
        low, high = 1, 2
        while float(self.captured(std(high) / high)) < share:
            low, high = high, 2 * high
            if high > most:
                return None
        while high - low > max(1, low // 100):
            middle = (low + high) // 2
            if float(self.captured(std(middle) / middle)) < share:
                low = middle
            else:
                high = middle
        return high
