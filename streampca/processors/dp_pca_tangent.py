"""The tangent ascent of DP-PCA: all components together, on the part of gradients that moves the subspace.

The gradient ``a a^T W`` falls into ``W (W^T a)(a^T W)``, which moves nothing
out of the span of W, and the product of ``(I - W W^T) a`` with ``a^T W``, which
alone moves the subspace. Near the truth the second is as small as the rows'
own noise, whatever the first is: its norm is measured privately, it is clipped
to that, and so is the noise. The first, a k x k matrix, sets the scale of the
step at little cost.

So nothing needs a centre, k components need no deflation and share all rows,
and the noise falls with the rows' own noise also for k > 1, where the gradients of
single rows differ within the span by as much as they are long. Sines of the
largest angle at d = 200, k = 2, epsilon = 1, delta = 0.01, eigenvalues 10 and 5 in
random signs plus noise of sd sigma, n = 100 000, zero-out, mean of 3::

    sigma                    0.1      0.025    0.001
    tangent                  2.5e-03  6.1e-04  2.5e-05
    deflation (k-DP-PCA)     3.8e-03  2.0e-03  1.9e-03
    Private Oja              3.1e-03  2.2e-03  2.1e-03
    Gaussian mechanism       2.0e-03  8.1e-04  6.7e-04
    not private              1.9e-03  4.8e-04  2.0e-05
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.eigen import orthonormal
from streampca.linalg.lattice import coarsen
from streampca.linalg.svec import svec, svec_size, unsvec
from streampca.linalg.types import FloatArray
from streampca.mechanisms.eigenvalue import PrivateEigenvalue
from streampca.mechanisms.mean import ClippedProducts
from streampca.privacy.budget import Budget
from streampca.privacy.randomness import Randomness
from streampca.processors.dp_pca_engine import Engine
from streampca.processors.dp_pca_plan import Purpose, Segment, batches
from streampca.processors.oja_steps import random_basis

#: Fewest minibatches: from a random start to a subspace.
MIN_STEPS = 6
#: Steps are like c / t with c = 4 / lambda, which suits eigengaps above lambda / 8.
_GAIN = 4.0
#: ||(I - W W^T) a|| ||a^T W|| is at most this for rows of the unit ball.
_LARGEST = 0.5
#: Up to this part of all rows every step is one of the power method: early noise is forgotten later anyway.
_EARLY = 8
#: Part of a minibatch that goes to the scale of the step, and to eigenvalues.
_INSIDE = 16
_FINEST = 2.0**-40
_GRID = 2.0**-36
_CHUNK = 64


class Tangent(Engine):
    """See the module. Each segment is one mechanism, (epsilon, delta)-DP in its own rows.

    - ``norm``: votes for the largest squared norm of the moving part (`PrivateEigenvalue`).
    - ``inside``: the sum of ``(W^T a)(a^T W)``, whose svec has norm at most 1,
      plus N(0, (sensitivity / mu)**2): mu-GDP.
    - ``across``: the clipped sum of the moving parts (`ClippedProducts`): mu-GDP.
    """

    def __init__(
        self, n_features: int, n_components: int, horizon: int, budget: Budget, batch_size: int | str,
        rate: tuple[float, float] | None, randomness: Randomness,
    ) -> None:  # fmt: skip
        self.segments, self._votes = _lay_out(n_features, n_components, horizon, budget, batch_size)
        self.fallbacks = {"norm": 0}
        self._budget, self._rate = budget, rate
        self._noise = {p: randomness.stream("DPPCA", p) for p in ("norm", "inside", "across")}
        self._basis = random_basis(n_features, n_components, randomness.stream("DPPCA", "start"))
        self._values = np.zeros(n_components)
        self._inside = np.eye(n_components)
        self._radius, self._floor = _LARGEST, 1.0

    def open(self, segment: Segment) -> int:
        """Ready the segment's mechanism."""
        d, k = self._basis.shape
        if segment.purpose == "norm":
            self._labels = np.zeros(0, dtype=np.int64)
            return 2 * self._votes.pairs
        if segment.purpose == "inside":
            self._sum = np.zeros(svec_size(k))
        else:
            self._mean = ClippedProducts(self._budget.mu, (d, k), self._radius, self._budget.adjacency)
        return _CHUNK

    def take(self, segment: Segment, rows: FloatArray) -> None:
        """Add rows to it."""
        scores = rows @ self._basis
        if segment.purpose == "inside":
            self._sum += np.rint(svec(scores.T @ scores) / _GRID) * _GRID
            return
        rest = rows - scores @ self._basis.T
        if segment.purpose == "across":
            self._mean.add(rest, scores)
        else:
            norms = np.sqrt(np.einsum("ij,ij->i", rest, rest) * np.einsum("ij,ij->i", scores, scores))
            self._labels = np.append(self._labels, self._votes.cast(norms[:, None]))

    def close(self, segment: Segment, at: int) -> None:
        """Release it and act on the answer."""
        noise = self._noise[segment.purpose]
        if segment.purpose == "norm":
            square = self._votes.decide(self._labels, noise, at)
            self.fallbacks["norm"] += square is None
            self._radius = _LARGEST if square is None else min(max(math.sqrt(square), _FINEST), _LARGEST)
        elif segment.purpose == "inside":
            k = self._basis.shape[1]
            drawn = self._inside_std * noise.normal(at, self._sum.size)
            noisy = coarsen(self._sum + np.rint(drawn / _GRID) * _GRID, self._inside_std)
            self._inside = unsvec(noisy / segment.rows, k)
            self._floor = self._inside_std / segment.rows
        else:
            self._move(segment, self._mean.release(noise, at))

    @property
    def _inside_std(self) -> float:
        """Rows of the unit ball; for one component, sums of numbers in [0, 1]."""
        exact = 1.0 if self._basis.shape[1] == 1 else self._budget.gram_sensitivity
        return (exact * (1.0 + 1e-9) + math.sqrt(self._sum.size) * _GRID) / self._budget.mu

    def _move(self, segment: Segment, across: FloatArray) -> None:
        """One step, from private answers alone: post-processing."""
        across = across - self._basis @ (self._basis.T @ across)
        values, turn = np.linalg.eigh(self._inside)
        values, turn = values[::-1], turn[:, ::-1]
        basis, across = self._basis @ turn, across @ turn
        if self._rate is not None:
            step = across * (self._rate[0] / (self._rate[1] + segment.step + 1))
        else:
            step = across * (self._share(segment, across) / np.maximum(values, self._floor))
        self._basis = np.asfortranarray(orthonormal(basis + step))
        self._values = np.maximum(values, 0.0)

    def _share(self, segment: Segment, across: FloatArray) -> float:
        """How far to go: 1 is a step of the power method.

        At least ``c / (1 + c)`` with c = 4 times the minibatch's share of all
        rows so far; and as far as is best for a subspace whose error is what
        the moving part shows beyond the noise in it: that of privacy, and that of
        sampling if squared norms are half of the largest on average.
        """
        if segment.step == 0 or segment.used * _EARLY < self.segments[-1].stop:
            return 1.0
        count = self._mean.count
        noise = across.size * (self._mean.std / count) ** 2 + 0.5 * self._radius**2 / count
        c = _GAIN * count / segment.used
        return max(c / (1.0 + c), 1.0 - noise / max(float(np.sum(across**2)), 1e-300))

    def subspace(self) -> tuple[FloatArray, FloatArray]:
        """Basis and mean rewards."""
        return self._basis, self._values

    def state(self, segment: Segment | None) -> dict[str, Any]:
        """Arrays and scalars; nan for no answer."""
        out: dict[str, Any] = {
            "basis": self._basis.copy(),
            "values": self._values.copy(),
            "inside": self._inside.copy(),
            "radius": self._radius,
            "floor": self._floor,
            "fallbacks": dict(self.fallbacks),
        }
        if segment is not None and segment.purpose == "norm":
            out["labels"] = self._labels.copy()
        elif segment is not None and segment.purpose == "inside":
            out["sum"] = self._sum.copy()
        elif segment is not None:
            out |= {"sum": self._mean.sum.copy(), "count": self._mean.count}
        return out

    def restore(self, segment: Segment | None, state: dict[str, Any]) -> int:
        """Continue from `state`."""
        self._basis = np.asfortranarray(state["basis"], dtype=np.float64)
        self._values = np.array(state["values"], dtype=np.float64)
        self._inside = np.array(state["inside"], dtype=np.float64)
        self._radius, self._floor = float(state["radius"]), float(state["floor"])
        self.fallbacks = {name: int(count) for name, count in state["fallbacks"].items()}
        if segment is None:
            return 0
        size = self.open(segment)
        if segment.purpose == "norm":
            self._labels = np.array(state["labels"], dtype=np.int64)
        elif segment.purpose == "inside":
            self._sum = np.array(state["sum"], dtype=np.float64)
        else:
            self._mean.sum, self._mean.count = np.array(state["sum"], dtype=np.float64), int(state["count"])
        return size


def _lay_out(
    n_features: int, n_components: int, horizon: int, budget: Budget, batch_size: int | str
) -> tuple[tuple[Segment, ...], PrivateEigenvalue]:
    """The schedule, or `BadParameter` if the rows are too few for it to be of use."""
    votes = PrivateEigenvalue(budget.epsilon, budget.delta, pairs=2, statistic="norm", bins_per_octave=1, split=3.0)
    inside = math.ceil(40.0 * n_components / budget.mu)
    fixed = votes.rows + inside
    smallest = 2 * fixed + math.ceil(4.0 * math.sqrt(n_features * n_components) / budget.mu)
    if isinstance(batch_size, int):
        if batch_size < smallest:
            raise BadParameter(
                f"batch_size={batch_size} is too small: at epsilon={budget.epsilon:g}, delta={budget.delta:g} and "
                f"{n_features} features a minibatch needs {votes.rows} rows for the norm, {inside} for the scale and "
                f"at least {smallest} in all; use 'auto'"
            )
        smallest = batch_size
    if horizon < MIN_STEPS * smallest:
        raise BadParameter(
            f"horizon={horizon} rows are too few for DPPCA: {MIN_STEPS} minibatches of {smallest} rows need "
            f"{MIN_STEPS * smallest}. Pass more rows or a larger epsilon, or use GaussianCovariance or PrivateOja, "
            "which work at any n"
        )
    segments, at = [], 0
    for step, (first, last) in enumerate(batches(horizon, smallest, batch_size == "auto", MIN_STEPS)):
        scale = max(inside, (last - first) // _INSIDE)
        parts: dict[Purpose, int] = {
            "norm": first + votes.rows,
            "inside": first + votes.rows + scale,
            "across": last,
        }
        for purpose, stop in parts.items():
            segments.append(Segment(stop, stop - at, purpose, 0, 0, step, last, last == horizon))
            at = stop
    return tuple(segments), votes
