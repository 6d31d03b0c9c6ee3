"""The centred ascent of DP-PCA: one component after another, on gradients about a private centre.

Algorithms 3 to 5 of Liu, Kong, Jain and Oh 2022, and Algorithm 1 of Duengler
and Sanyal 2025 (k-DP-PCA) for more than one component.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from streampca.linalg.eigen import orthonormal
from streampca.linalg.lattice import coarsen
from streampca.linalg.types import FloatArray
from streampca.mechanisms.centre import CentreVotes
from streampca.mechanisms.mean import ClippedMean
from streampca.privacy.budget import Budget
from streampca.privacy.randomness import Randomness
from streampca.processors.dp_pca_ascent import Ascent
from streampca.processors.dp_pca_engine import Engine
from streampca.processors.dp_pca_plan import CANDIDATES, Plan, Segment
from streampca.processors.oja_steps import random_basis

_CHUNK = 64
#: Scores of finalists live on this lattice: low bits tell nothing.
_GRID = 2.0**-36


class Deflation(Engine):
    """See the module. Each segment is one mechanism, (epsilon, delta)-DP in its own rows.

    - ``top``, ``range``: votes for the spread of gradients (`PrivateEigenvalue`).
    - ``centre``: votes for where they gather (`PrivateCentre`).
    - ``mean``: their clipped mean (`ClippedMean`): mu-GDP.
    - ``compare``: scores of the search's finalists: mu-GDP.

    A component has horizon / k rows of its own; rows are projected off the
    components before it. (The paper splits a minibatch in half and its budget
    in two; four disjoint parts spend it in full each, and the first three do
    not grow with n.)
    """

    def __init__(
        self, n_features: int, n_components: int, horizon: int, budget: Budget, batch_size: int | Literal["auto"],
        rate: tuple[float, float] | Literal["search"] | None, randomness: Randomness,
    ) -> None:  # fmt: skip
        candidates = len(CANDIDATES) if rate == "search" else 1
        self._plan = Plan.make(n_features, n_components, horizon, budget, batch_size, candidates)
        self.segments = self._plan.segments
        self.fallbacks = {"spread": 0, "range": 0, "centre_coordinates": 0}
        self._budget, self._rate = budget, rate
        self._noise = {p: randomness.stream("DPPCA", p) for p in ("top", "range", "centre", "mean", "compare")}
        self._random = random_basis(n_features, n_components, randomness.stream("DPPCA", "start"))
        self._found = np.zeros((n_features, 0))
        self._values = np.zeros(n_components)
        self._finalists: list[FloatArray] = []
        self._begin_run()

    def _begin_run(self) -> None:
        """A fresh start for one component and one learning rate."""
        if self._found.shape[1] < self._values.size:
            start = self._deflated(self._random[:, self._found.shape[1]][None])[0]
            self._ascent = Ascent(start / np.linalg.norm(start))

    def open(self, segment: Segment) -> int:
        """Ready the segment's mechanism."""
        ascent, plan = self._ascent, self._plan
        self._labels = np.zeros(0, dtype=np.int64)
        if segment.purpose in ("top", "range"):
            return 2 * (plan.top if segment.purpose == "top" else plan.range).pairs
        if segment.purpose == "centre":
            self._votes = CentreVotes(plan.centre, ascent.width, ascent.guess)
        elif segment.purpose == "mean":
            # Gradients a (a^T w) of the unit ball fill a ball of diameter 1.
            self._mean = ClippedMean(
                self._budget.mu, ascent.centre, ascent.radius, self._budget.adjacency, diameter=1.0
            )
        else:
            self._scores = np.zeros(len(self._finalists))
        return _CHUNK

    def take(self, segment: Segment, rows: FloatArray) -> None:
        """Add rows to it."""
        rows = self._deflated(rows)
        if segment.purpose == "compare":
            scores = rows @ np.column_stack(self._finalists)
            self._scores += np.rint((scores**2).sum(axis=0) / _GRID) * _GRID
            return
        vectors = rows * (rows @ self._ascent.direction)[:, None]
        if segment.purpose in ("top", "range"):
            mechanism = self._plan.top if segment.purpose == "top" else self._plan.range
            self._labels = np.append(self._labels, mechanism.cast(vectors))
        elif segment.purpose == "centre":
            self._votes.add(vectors)
        else:
            self._mean.add(vectors)

    def _deflated(self, rows: FloatArray) -> FloatArray:
        """Rows without their part in the components found. Never longer than before."""
        if not self._found.shape[1]:
            return rows
        rest: FloatArray = rows - (rows @ self._found) @ self._found.T
        return rest

    def close(self, segment: Segment, at: int) -> None:
        """Release it and act on the answer."""
        noise, ascent = self._noise[segment.purpose], self._ascent
        if segment.purpose == "top":
            ascent.spread = self._plan.top.decide(self._labels, noise, at)
            self.fallbacks["spread"] += ascent.spread is None
        elif segment.purpose == "range":
            ascent.range = self._plan.range.decide(self._labels, noise, at)
            self.fallbacks["range"] += ascent.range is None
        elif segment.purpose == "centre":
            centre, found = self._votes.release(noise, at)
            ascent.place(centre, found)
            self.fallbacks["centre_coordinates"] += int((~found).sum())
        elif segment.purpose == "mean":
            gradient = self._deflated(self._mean.release(noise, at)[None])[0]
            rate = CANDIDATES[segment.candidate] if self._rate == "search" else self._rate
            ascent.move(gradient, self._mean, segment.step, segment.used, rate)
            self._values[segment.component] = ascent.value
            if segment.last:
                self._end_run()
        else:
            self._choose(segment, noise.normal(at, len(self._finalists)))

    def _end_run(self) -> None:
        if self._rate == "search":
            self._finalists.append(self._ascent.direction)
        else:
            self._keep(self._ascent.direction)
        self._begin_run()

    def _choose(self, segment: Segment, normals: FloatArray) -> None:
        """Keep the finalist that captures most of further rows, by noisy scores: mu-GDP.

        A row adds a score in [0, 1] to each of C finalists: sensitivity
        sqrt(C), under zero-out and replacement.
        """
        count = len(self._finalists)
        std = math.sqrt(count) * (1.0 + 1e-9) / self._budget.mu
        scores = coarsen(self._scores + np.rint(std * normals / _GRID) * _GRID, std)
        best = int(np.argmax(scores))
        self._values[segment.component] = float(scores[best]) / segment.rows
        self._keep(self._finalists[best])
        self._finalists = []
        self._begin_run()

    def _keep(self, direction: FloatArray) -> None:
        self._found = orthonormal(np.column_stack([self._found, direction]))

    def subspace(self) -> tuple[FloatArray, FloatArray]:
        """Basis and mean rewards."""
        columns, done = [self._found], self._found.shape[1]
        if done < self._values.size:
            columns += [self._ascent.direction[:, None], self._random[:, done + 1 :]]
        order = np.argsort(-self._values, kind="stable")
        return orthonormal(np.column_stack(columns))[:, order], np.maximum(self._values[order], 0.0)

    def state(self, segment: Segment | None) -> dict[str, Any]:
        """Arrays and scalars; nan for no answer."""
        out: dict[str, Any] = {
            "found": self._found.copy(),
            "values": self._values.copy(),
            "fallbacks": dict(self.fallbacks),
            "finalists": np.array(self._finalists).reshape(-1, self._random.shape[0]),
            "ascent": self._ascent.state(),
        }
        if segment is None:
            return out
        out["labels"] = self._labels.copy()
        if segment.purpose == "centre":
            out["counts"] = self._votes.counts.copy()
        elif segment.purpose == "mean":
            out |= {"sum": self._mean.sum, "count": self._mean.count}
        elif segment.purpose == "compare":
            out["scores"] = self._scores.copy()
        return out

    def restore(self, segment: Segment | None, state: dict[str, Any]) -> int:
        """Continue from `state`."""
        self._found = np.array(state["found"], dtype=np.float64)
        self._values = np.array(state["values"], dtype=np.float64)
        self.fallbacks = {name: int(count) for name, count in state["fallbacks"].items()}
        self._finalists = list(np.array(state["finalists"], dtype=np.float64))
        self._ascent = Ascent.restored(state["ascent"])
        if segment is None:
            return 0
        size = self.open(segment)
        self._labels = np.array(state["labels"], dtype=np.int64)
        if segment.purpose == "centre":
            self._votes.counts = np.array(state["counts"], dtype=np.int64)
        elif segment.purpose == "mean":
            self._mean.restore(state["sum"], state["count"])
        elif segment.purpose == "compare":
            self._scores = np.array(state["scores"], dtype=np.float64)
        return size
