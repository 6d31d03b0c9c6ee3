"""Share that a noisy matrix captures: a small Monte-Carlo with fixed draws, by noise per row.

The leading eigenvectors of ``t diag(lambda) + s Z`` depend on s / t only. So
one curve answers for every t, every number of rows, every mechanism with GOE
noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from streampca.linalg.centering import MEAN_WEIGHT
from streampca.linalg.eigen import top_eigh
from streampca.linalg.svec import svec_size, unsvec
from streampca.linalg.types import FloatArray
from streampca.privacy.randomness import Randomness

_SEED = 20240607
_POINTS = 33
#: Draws for what is asked at some points only.
_FEW = 64
#: Number of features up to which eigenvectors of all draws are computed together.
_STACKED = 32
_TINY = 1e-15


def draws_for(n_features: int) -> int:
    """Number of draws: large matrices concentrate, small ones are cheap."""
    return int(np.clip(max(2000 // n_features, 20_000 // n_features**2), 2, 200))


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
        self._goe = np.array([unsvec(noise.normal(i, svec_size(d)), d) for i in range(draws_for(d))])
        self._vectors = noise.normal(len(self._goe), len(self._goe) * d).reshape(-1, d)
        top = float(spectrum[0])
        self._stds = np.geomspace(1e-6 * top, 1e2 * top, _POINTS)
        losses = [self._loss(std) for std in self._stds]
        self._log_loss = np.log(np.maximum(losses, _TINY))
        #: E ||Z|| of a GOE matrix with sd 1 on the diagonal.
        self.norm = float(np.abs(np.linalg.eigvalsh(self._goe)).max(axis=1).mean())

    def _loss(self, std: float) -> float:
        return 1.0 - self._mean_share(np.diag(self._spectrum) + std * self._goe)

    def _mean_share(self, matrices: FloatArray) -> float:
        """Mean of `share` over matrices, (m, d, d)."""
        if self._spectrum.size > _STACKED:
            return float(np.mean([self.share(matrix) for matrix in matrices]))
        top = np.linalg.eigh(matrices)[1][:, :, -self._k :]
        return float((self._spectrum @ (top**2).sum(axis=2).T).mean()) / float(self._spectrum[: self._k].sum())

    def share(self, matrix: FloatArray) -> float:
        """Share of the best reward that the top subspace of a matrix captures."""
        basis = top_eigh(matrix, self._k)[1]
        return float(self._spectrum @ (basis**2).sum(axis=1)) / float(self._spectrum[: self._k].sum())

    def captured(self, std_per_row: float | FloatArray) -> FloatArray:
        """Share captured, by noise std over rows."""
        logs = np.interp(np.log(np.maximum(std_per_row, self._stds[0])), np.log(self._stds), self._log_loss)
        return np.asarray(1.0 - np.exp(logs), dtype=np.float64)

    def share_of(self, kept: float, noise_std: float, scatter_std: float) -> float:
        """Mean share captured by an estimate of a mean Gram matrix.

        Parameters
        ----------
        kept : factor of the exact matrix in it.
        noise_std : sd of GOE noise in it.
        scatter_std : sd of an error that is larger in coordinates of large eigenvalues, as that of Gaussian rows is:
            entry (i, j) has GOE noise of sd scatter_std * sqrt(lambda_i * lambda_j).
        """
        roots, few = np.sqrt(self._spectrum), self._goe[:_FEW]
        scatter = roots[:, None] * np.roll(few, 1, axis=0) * roots
        return self._mean_share(kept * np.diag(self._spectrum) + noise_std * few + scatter_std * scatter)

    def norm_of(self, std: float, beside: FloatArray | None = None, mean: tuple[float, float] | None = None) -> float:
        """Mean spectral norm of noise of sd ``std``.

        Parameters
        ----------
        beside : (d, d) matrix that is added.
        mean : of noise about the mean: the length of the mean and the number of rows (`linalg.centering.MeanNoise`).
            The mean may point anywhere.
        """
        if beside is None and mean is None:
            return std * self.norm
        d = self._spectrum.size
        noise = std * self._goe if beside is None else std * self._goe + beside
        if mean is not None:
            e, unit = self._vectors, np.full(d, d**-0.5)
            cross = std * mean[0] / MEAN_WEIGHT * unit[:, None] * e[:, None, :]
            square = e[:, :, None] * e[:, None, :] - np.eye(d)
            noise = noise - cross - cross.transpose(0, 2, 1) - (std / MEAN_WEIGHT) ** 2 / mean[1] * square
        return float(np.abs(np.linalg.eigvalsh(noise)).max(axis=1).mean())

    def mean_over(self, noise: Iterator[FloatArray], matrix: FloatArray) -> tuple[float, float]:
        """Mean share captured of ``matrix`` plus noise and mean norm of noise, over fixed draws of any law."""
        shares, norms = [], []
        for z in itertools.islice(noise, max(2, draws_for(self._spectrum.size) // 2)):
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
