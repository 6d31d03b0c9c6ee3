"""How much a noisy matrix captures: a small Monte-Carlo with fixed draws, by noise per row.

The leading eigenvectors of ``t diag(lambda) + s Z`` depend on s / t only. So
one curve answers for every t, every number of rows, every mechanism with GOE
noise.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streampca.linalg.eigen import top_eigh
from streampca.linalg.svec import svec_size, unsvec
from streampca.linalg.types import FloatArray
from streampca.privacy.randomness import Randomness

_SEED = 20240607
_POINTS = 33
_TINY = 1e-15


def draws_for(n_features: int) -> int:
    """Number of draws: large matrices concentrate, small ones are cheap."""
    return int(np.clip(2000 // n_features, 2, 60))


class Curve:
    """Captured variance under GOE noise, and the norm of that noise.

    Parameters
    ----------
    spectrum : (d,) eigenvalues of the mean of a a^T, descending.
    n_components : k.
    """

    def __init__(self, spectrum: FloatArray, n_components: int) -> None:
        self._spectrum, self._k = spectrum, n_components
        d = spectrum.size
        noise = Randomness.from_seed(_SEED).stream("goe")
        self._goe = [unsvec(noise.normal(i, svec_size(d)), d) for i in range(draws_for(d))]
        top = float(spectrum[0])
        self._sds = np.geomspace(1e-6 * top, 1e2 * top, _POINTS)
        losses = [self._loss(sd) for sd in self._sds]
        self._log_loss = np.log(np.maximum(losses, _TINY))
        #: E ||Z|| of a GOE matrix with sd 1 on the diagonal.
        self.norm = float(np.mean([np.abs(np.linalg.eigvalsh(z)).max() for z in self._goe]))

    def _loss(self, sd: float) -> float:
        return float(np.mean([1.0 - self.share(np.diag(self._spectrum) + sd * z) for z in self._goe]))

    def share(self, matrix: FloatArray) -> float:
        """Share of the best reward that the top subspace of a matrix captures."""
        basis = top_eigh(matrix, self._k)[1]
        return float(self._spectrum @ (basis**2).sum(axis=1)) / float(self._spectrum[: self._k].sum())

    def captured(self, sd_per_row: float | FloatArray) -> FloatArray:
        """Share captured, by noise sd over rows."""
        logs = np.interp(np.log(np.maximum(sd_per_row, self._sds[0])), np.log(self._sds), self._log_loss)
        loss = np.where(np.asarray(sd_per_row) < self._sds[0], np.exp(self._log_loss[0]), np.exp(logs))
        return np.asarray(1.0 - loss, dtype=np.float64)

    def norm_beside(self, sd: float, matrix: FloatArray) -> float:
        """Mean of ||matrix + sd Z||."""
        return float(np.mean([np.abs(np.linalg.eigvalsh(matrix + sd * z)).max() for z in self._goe]))

    def mean_over(self, noise: Callable[[int], FloatArray], matrix: FloatArray) -> tuple[float, float]:
        """Mean share captured of ``matrix + noise(i)`` and mean ||noise(i)||, over fixed draws of any law."""
        shares, norms = [], []
        for i in range(max(2, draws_for(self._spectrum.size) // 4)):
            z = noise(i)
            shares.append(self.share(matrix + z))
            norms.append(float(np.abs(np.linalg.eigvalsh(z)).max()))
        return float(np.mean(shares)), float(np.mean(norms))

    def rows_for(self, share: float, std: Callable[[int], float], most: int = 2**44) -> int | None:
        """Fewest rows (to a hundredth) after which noise of sd ``std(rows)`` leaves that share; None if too many."""
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
