"""Oja's algorithm: streaming PCA in O(dk) memory. Not private."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg.blas import dgemm

from streampca.linalg.eigen import fix_signs
from streampca.linalg.types import FloatArray
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Randomness
from streampca.processors.base import Processor, check_components, check_count
from streampca.processors.oja_steps import Chunks, LearningRate, StepSizes, check_rate, orthonormalise, random_basis
from streampca.release import Release

CITATION = "Oja 1982; Liu, Kong, Jain and Oh 2022, Algorithm 1; Henriksen and Ward 2019"


class Oja(Processor):
    """Streaming PCA by stochastic gradient ascent: the baseline, with no privacy at all.

    Every ``batch_size`` rows the basis W makes one step,
    ``W <- orth(W + eta * sum a a^T W)``, in O(dk) time a row and O(dk) memory.

    Parameters
    ----------
    n_components : dimension of the subspace.
    n_features : number of features; left out, the first row fixes it.
    learning_rate : ``"adaptive"`` needs no scale; ``(c, offset)`` takes steps
        of ``c / (offset + t)`` after t rows, for which c times the eigengap
        (of the mean of a a^T, rows in the unit ball) should exceed 1/2.
    batch_size : rows to a step. Rows wait, so that the bits of a release do
        not depend on how they were pushed.
    release_every : rows from one release to the next; left out, batch_size.
    seed : used by `Stream` for the random start if it is given none itself.

    Notes
    -----
    Guarantee: none. A release is a deterministic function of the rows.
    ``release.eigenvalues`` are the squares collected by each column while it
    learnt, an underestimate of the eigenvalues of the Gram matrix.
    """

    def __init__(
        self,
        *,
        n_components: int = 1,
        n_features: int | None = None,
        learning_rate: LearningRate = "adaptive",
        batch_size: int = 32,
        release_every: int | None = None,
        seed: int | None = None,
    ) -> None:
        check_components(n_components, n_features)
        check_count("batch_size", batch_size)
        check_count("release_every", release_every, optional=True)
        if learning_rate != "adaptive":
            check_rate(learning_rate)
        self.n_components = n_components
        self.n_features = n_features
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.release_every = release_every
        self.seed = seed
        self._every = batch_size if release_every is None else release_every

    @property
    def guarantee(self) -> Guarantee:
        """None."""
        return Guarantee.none("Oja's algorithm adds no noise", CITATION)

    @property
    def rows_until_release(self) -> int:
        """Rows to the next release."""
        return self._every - self.t % self._every

    def _start(self, n_features: int, randomness: Randomness) -> None:
        self._basis = random_basis(n_features, self.n_components, randomness.stream("oja", "start"))
        self._steps = StepSizes(self.learning_rate, self.n_components)
        self._chunks = Chunks(self.batch_size, n_features)
        self._energy = np.zeros(self.n_components)

    def _absorb(self, rows: FloatArray) -> Release | None:
        if rows.shape[0] == 1:
            full = self._chunks.push(rows)
            if full is not None:
                self._step(full, self.t)
            return self._release() if self.t % self._every == 0 else None
        t = (self.t - rows.shape[0]) // self.batch_size * self.batch_size
        for chunk in self._chunks.feed(rows):
            t += self.batch_size
            self._step(chunk, t)
        return self._release() if self.t % self._every == 0 else None

    def _step(self, rows: FloatArray, t: int) -> None:
        columns = rows.T  # (d, b) in column-major order
        scores = dgemm(1.0, columns, self._basis, trans_a=1)
        gradient = dgemm(1.0, columns, scores)
        self._energy += np.einsum("ij,ij->j", scores, scores)
        gradient = self._steps.scale(gradient, t)
        gradient += self._basis
        self._basis = orthonormalise(gradient)

    def _release(self) -> Release:
        order = np.argsort(-self._energy, kind="stable")
        return Release(
            t=self.t,
            n_components=self.n_components,
            guarantee=self.guarantee,
            basis=fix_signs(self._basis[:, order]),
            eigenvalues=self._energy[order],
        )

    def state(self) -> dict[str, Any]:
        """Basis, step sizes and the rows that wait."""
        return {
            "t": self.t,
            "basis": self._basis.copy(),
            "squares": self._steps.state(),
            "waiting": self._chunks.state(),
            "energy": self._energy.copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.t = int(state["t"])
        self._basis = np.asfortranarray(state["basis"], dtype=np.float64)
        self._steps.restore(state["squares"])
        self._chunks.restore(state["waiting"])
        self._energy = np.array(state["energy"], dtype=np.float64)
