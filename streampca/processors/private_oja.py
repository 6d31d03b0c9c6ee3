"""Private Oja: noisy stochastic gradient ascent in O(dk) memory."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from scipy.linalg.blas import dgemm

from streampca.errors import BadParameter
from streampca.linalg.eigen import fix_signs
from streampca.linalg.lattice import coarsen
from streampca.linalg.types import FloatArray
from streampca.privacy import shuffling
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.guarantee import Guarantee, gaussian_guarantee
from streampca.privacy.randomness import Randomness
from streampca.processors.base import Processor, check_components, check_count
from streampca.processors.oja_steps import (
    Chunks,
    LearningRate,
    PrivateStepSizes,
    check_rate,
    orthonormalise,
    random_basis,
)
from streampca.release import Release

CITATION = "Liu, Kong, Jain and Oh 2022, Algorithm 2, with the exact transcript argument"
#: Sums of gradients and noise live on this lattice: low bits tell nothing.
GRID = 2.0**-36
#: Covers rounding in the gradients of one row and in the basis.
ROUNDING = 1.0 + 1e-9
_CHUNK = 64
_FIRST_BATCH = 256
#: A step is one part in so many of all rows before it.
_GROWTH = 2


def gradient_sensitivity(n_components: int, clip: float, adjacency: Adjacency) -> float:
    """How far one row moves a sum of clipped gradients ``a a^T W``, in Frobenius norm.

    For rows of the unit ball and W with orthonormal columns. Zero-out: the
    gradient itself, at most ``clip``. Replace: at most twice that, and at most
    the diameter of the set of all gradients, which is 1 for one component and
    sqrt(2) for more: with D = a a^T - b b^T, one component gives ||D w|| <=
    ||D||_2 <= 1, and more give ||D W||_F <= ||D||_F <= sqrt(2). Clipping is a
    projection onto a ball and moves no two gradients apart. All are attained
    (replace with one component: a and b at 45 degrees to w on either side).
    """
    clip = min(clip, 1.0)
    if adjacency == "zero-out":
        return clip
    return min(2.0 * clip, 1.0 if n_components == 1 else math.sqrt(2.0))


class PrivateOja(Processor):
    """Streaming private PCA in O(dk) memory: Oja's algorithm on clipped, noisy gradients.

    Parameters
    ----------
    n_components : dimension of the subspace, k.
    epsilon, delta : budget for everything that is ever released.
    n_features : number of features, d; taken from the first row if left out.
    horizon : number of rows, if known. No more are taken.
    batch_size : rows to a step; ``"auto"`` makes each step half as long as
        all before it, and the last one end at a known horizon. Every step
        adds the same noise, whatever its length, so few long steps have the
        least: 16 equal ones have twice the error, steps of one row are all noise.
    learning_rate : ``"adaptive"`` (see `oja_steps.PrivateStepSizes`), or
        ``(c, offset)`` for steps of ``c / (offset + t)`` on the sum of gradients.
    clip : bound on a row's gradient, in units of row_norm**2; left out, 1, at
        which nothing is clipped. Gradients are shorter than 1 where the basis
        explains little of a row: a smaller clip lowers the noise there.
    shuffle : number of rows to collect and shuffle secretly before a pass over
        them, one row to a step. Holds that many rows in memory. For
        ``adjacency="replace"`` only; minibatches have less noise.
    adjacency : ``"zero-out"`` or ``"replace"``.
    release_every : rows from one release to the next; left out, a release
        after every step (or every shuffled pass).
    seed : for tests and scenarios; see `Stream`.

    Raises
    ------
    BadParameter
        If a parameter is outside its domain, or ``shuffle`` is outside the
        range in which its bound is proved and of use.

    Notes
    -----
    *Guarantee.* Step j releases ``S_j + N(0, s^2)`` with S_j the (d, k) sum of
    the clipped gradients ``a a^T W_{j-1}`` of its rows, and s = sensitivity /
    mu (`gradient_sensitivity`). A row is in one step, whose place in the
    stream is public; all later steps see it only through what was released.
    So the sequence of all noisy sums, shown to someone who knows every other
    row, is N(0, 1) against N(mu, 1): mu-GDP, whatever the number of steps,
    under zero-out or replacement of one row. Bases, eigenvalues and step
    sizes are post-processing. Noise and sums are rounded to multiples of
    2**-36, which the sensitivity allows for.

    *Shuffled.* Each step is a mechanism on one row at mu_0; the pass is
    (epsilon, delta)-DP by `privacy.shuffling`. A row is in one pass.

    *Differences from the paper.* LKJO22 state their noise multiplier up to a
    constant and by amplification: about 25 at (1, 1e-6), where 1/mu = 4.2
    suffices. They take 2 * clip for the sensitivity; the exact one is half of
    that for one component, or under zero-out.
    """

    def __init__(
        self,
        *,
        n_components: int = 1,
        epsilon: float,
        delta: float,
        n_features: int | None = None,
        horizon: int | None = None,
        batch_size: int | Literal["auto"] = "auto",
        learning_rate: LearningRate = "adaptive",
        clip: float | None = None,
        shuffle: int | None = None,
        adjacency: Adjacency = "zero-out",
        release_every: int | None = None,
        seed: int | None = None,
    ) -> None:
        check_components(n_components, n_features)
        budget = Budget(epsilon, delta, adjacency)
        check_count("horizon", horizon, optional=True)
        check_count("release_every", release_every, optional=True)
        check_count("shuffle", shuffle, optional=True)
        if batch_size != "auto":
            check_count("batch_size", batch_size)
        if learning_rate != "adaptive":
            check_rate(learning_rate)
        if clip is not None and not 0.0 < clip <= 1.0:
            raise BadParameter(f"clip={clip!r} must be in (0, 1], in units of row_norm**2, or None for 1")
        self.n_components = n_components
        self.n_features = n_features
        self.epsilon = epsilon
        self.delta = delta
        self.horizon = horizon
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.clip = clip
        self.shuffle = shuffle
        self.adjacency = adjacency
        self.release_every = release_every
        self.seed = seed
        self._clip = 1.0 if clip is None else clip
        self._mu = budget.mu if shuffle is None else self._shuffled_mu(shuffle)

    def _shuffled_mu(self, rows: int) -> float:
        if self.adjacency != "replace":
            raise BadParameter("shuffle= is proved for adjacency='replace' only; set that, or leave shuffle out")
        if self.batch_size not in ("auto", 1):
            raise BadParameter(f"batch_size={self.batch_size!r} does not go with shuffle=: a shuffled row is a step")
        if self.horizon is not None and self.horizon % rows:
            raise BadParameter(f"shuffle={rows} must divide horizon={self.horizon}: only full passes are proved")
        return shuffling.shuffled_mu(self.epsilon, self.delta, rows)

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta)-DP for all releases together, and mu-GDP unless shuffled. Known before any row."""
        scope = "all releases of the stream, and every step in between"
        if self.shuffle is not None:
            return Guarantee(
                self.epsilon, self.delta, "replace", scope,
                f"amplification by shuffling {self.shuffle} Gaussian steps of {self._mu:.6g}-GDP",
                f"{CITATION}; {shuffling.CITATION}",
            )  # fmt: skip
        return gaussian_guarantee(
            self._mu, self.epsilon, self.delta, adjacency=self.adjacency, scope=scope,
            theorem="a row is in one Gaussian step; the rest is post-processing", citation=CITATION,
        )  # fmt: skip

    def noise_std(self, n_features: int | None = None) -> float:
        """Sd of each entry of the noise in one step's sum of gradients, in units of row_norm**2."""
        d = n_features or self.n_features or 1
        exact = gradient_sensitivity(self.n_components, self._clip, self.adjacency)
        return (exact * ROUNDING + math.sqrt(d * self.n_components) * GRID) / self._mu

    @property
    def rows_left(self) -> int | None:
        """Rows until the horizon; None if endless."""
        return None if self.horizon is None else self.horizon - self.t

    @property
    def rows_until_release(self) -> int:
        """Rows until the next release; 0 at the horizon."""
        due = self._end - self.t if self._bound else self._next_end(self.t) - self.t
        if self.release_every is not None:
            due = self.release_every - self.t % self.release_every
        return due if self.horizon is None else min(due, self.horizon - self.t)

    def _next_end(self, t: int) -> int:
        """Rows at which the step (or pass) that begins after t rows ends. Public."""
        if self.shuffle is not None:
            return t + self.shuffle
        if self.batch_size != "auto":
            end = t + self.batch_size
        elif self.horizon is None:
            end = t + max(_FIRST_BATCH, t // _GROWTH)
        else:
            # Counted back from the horizon, so that the last step is a full one.
            end = self.horizon
            while (shorter := end * _GROWTH // (_GROWTH + 1)) > t and shorter >= _FIRST_BATCH:
                end = shorter
        return end if self.horizon is None else min(end, self.horizon)

    def _start(self, n_features: int, randomness: Randomness) -> None:
        self._noise = randomness.stream("PrivateOja", "noise")
        self._secret = randomness.stream("PrivateOja", "shuffle")
        self._basis = random_basis(n_features, self.n_components, randomness.stream("PrivateOja", "start"))
        self._rates = PrivateStepSizes(self.learning_rate, self.n_components)
        self._chunks = Chunks(_CHUNK if self.shuffle is None else self.shuffle, n_features)
        self._std = self.noise_std(n_features)
        self._sum = np.zeros((n_features, self.n_components), order="F")
        self._steps = 0
        self._end = self._next_end(0)

    def _absorb(self, rows: FloatArray) -> Release | None:
        t = self.t - rows.shape[0]
        start = 0
        stepped = False
        while start < rows.shape[0]:
            take = min(rows.shape[0] - start, self._end - t)
            for chunk in self._chunks.feed(rows[start : start + take]):
                self._take(chunk, t)
            start += take
            t += take
            stepped = t == self._end
            if stepped:
                if self.shuffle is None:
                    self._add(self._chunks.flush())
                    self._step(t)
                self._end = self._next_end(t)
        if self.release_every is not None:
            stepped = self.t % self.release_every == 0 or self.horizon == self.t
        return self._release() if stepped and self._steps else None

    def _take(self, chunk: FloatArray, t: int) -> None:
        """Absorb a full chunk: part of a sum of gradients, or a whole pass to shuffle."""
        if self.shuffle is None:
            self._add(chunk)
            return
        order = self._secret.permutation(self._steps // self.shuffle, self.shuffle)
        for i in range(self.shuffle):
            self._add(chunk[order[i] : order[i] + 1])
            self._step(self._steps + 1)

    def _add(self, rows: FloatArray) -> None:
        """Add the clipped gradients of rows to the step's sum, on the lattice."""
        if not rows.shape[0]:
            return
        columns = rows.T
        scores = dgemm(1.0, columns, self._basis, trans_a=1)
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows) * np.einsum("ij,ij->i", scores, scores))
        if norms.max() > self._clip:
            scores *= np.minimum(1.0, self._clip / np.maximum(norms, self._clip))[:, None]
        self._sum += np.rint(dgemm(1.0, columns, scores) * (1.0 / GRID)) * GRID

    def _step(self, t: int) -> None:
        shape = self._sum.shape
        noise = self._std * self._noise.normal(self._steps, self._sum.size).reshape(shape)
        released = coarsen(self._sum + np.rint(noise * (1.0 / GRID)) * GRID, self._std)
        step = self._rates.scale(released, self._basis, t, self._std)
        self._basis = orthonormalise(np.asfortranarray(self._basis + step))
        self._sum[...] = 0.0
        self._steps += 1

    def _release(self) -> Release:
        values = self._rates.collected
        order = np.argsort(-values, kind="stable")
        return Release(
            t=self.t,
            n_components=self.n_components,
            guarantee=self.guarantee,
            basis=fix_signs(self._basis[:, order]),
            eigenvalues=values[order],
            details={"steps": self._steps},
        )

    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the rows."""
        return {
            "t": self.t,
            "basis": self._basis.copy(),
            "rates": self._rates.state(),
            "waiting": self._chunks.state(),
            "sum": self._sum.copy(),
            "steps": self._steps,
            "end": self._end,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.t = int(state["t"])
        self._basis = np.asfortranarray(state["basis"], dtype=np.float64)
        self._rates.restore(state["rates"])
        self._chunks.restore(state["waiting"])
        self._sum = np.array(state["sum"], dtype=np.float64, order="F")
        self._steps = int(state["steps"])
        self._end = int(state["end"])
