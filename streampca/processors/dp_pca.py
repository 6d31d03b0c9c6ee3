"""DP-PCA: private PCA whose error falls with the data's own noise, in O(dk) memory."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from streampca.linalg.eigen import fix_signs, orthonormal
from streampca.linalg.types import FloatArray
from streampca.mechanisms.centre import CentreVotes
from streampca.mechanisms.mean import ClippedMean
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Randomness
from streampca.processors.base import Processor, check_components, check_count
from streampca.processors.dp_pca_ascent import Ascent
from streampca.processors.dp_pca_plan import CANDIDATES, Plan, Segment
from streampca.processors.oja_steps import Chunks, check_rate, random_basis
from streampca.release import Release

CITATION = "Liu, Kong, Jain and Oh 2022, Algorithms 3 to 5; Duengler and Sanyal 2025 (arXiv 2508.10879), Algorithm 1"
_CHUNK = 64
#: Scores of finalists live on this lattice: low bits tell nothing.
_GRID = 2.0**-36


class DPPCA(Processor):
    """Private PCA by minibatch ascent with noise fitted to the spread of the gradients.

    Where rows are signal plus a little noise, gradients ``a a^T w`` of
    different rows are nearly equal. DP-PCA measures their spread privately,
    centres and clips them to it, and adds noise in proportion to it, where
    `PrivateOja` adds noise in proportion to their length.

    Any rows are private; only accuracy rests on them being alike (independent,
    light-tailed). At moderate n and small d the Gaussian mechanism on the Gram
    matrix (`GaussianCovariance`) is more accurate unless the rows' own noise is small
    indeed: see `streampca.scenarios.signal_noise` for where the lines cross.

    Parameters
    ----------
    n_components : dimension of the subspace, k.
    epsilon, delta : budget for everything that is ever released.
    horizon : number of rows. Needed: minibatches are laid out before any row.
    n_features : number of features, d; taken from the first row if left out.
    batch_size : rows to a minibatch; ``"auto"`` lets each be half as long as
        all before it, as far as the mechanisms allow.
    learning_rate : ``"adaptive"`` starts with a power step and goes on with
        steps of ``4 / (rayleigh * t)``, from private values alone; ``(c1, c2)``
        takes steps of ``c1 / (c2 + t)`` on the mean gradient at minibatch t;
        ``"search"`` runs `dp_pca_plan.CANDIDATES` on rows of their own and keeps
        the one that privately captures most of further rows: the paper's
        search, at the price of that many times the rows.
    adjacency : ``"zero-out"`` or ``"replace"``.
    seed : for tests and scenarios; see `Stream`.

    Raises
    ------
    BadParameter
        If a parameter is outside its domain, or, at the first row at the
        latest, if the horizon is too short to be of use. No row is absorbed.

    Notes
    -----
    *Guarantee.* (epsilon, delta)-DP under the stated adjacency for all
    releases and all steps together. Rows are laid out in public segments, one
    mechanism each, and each mechanism is (epsilon, delta)-DP in its own rows
    given what was released before: votes for the top eigenvalue and for the
    range (`PrivateEigenvalue`), votes for the centre (`PrivateCentre`), and the
    clipped mean (`ClippedMean`). A row is in one segment, so they compose in
    parallel and each may spend the full budget. (The paper splits a minibatch
    in half and the budget over it in two.)

    *Components* are found one after another on disjoint rows, each orthogonal
    to those before (k-DP-PCA): horizon / k rows and the full budget each.

    *No answer* never stops it: without an estimate of the spread, bins are as
    wide as the range allows; without the range, gradients are clipped to the
    ball that holds all of them; a coordinate without a popular bin keeps the
    centre predicted from earlier releases. ``release.details["fallbacks"]``
    counts them (they are functions of private answers). Eigenvalues are t
    times the last private estimate of each component's mean reward.
    """

    def __init__(
        self,
        *,
        n_components: int = 1,
        epsilon: float,
        delta: float,
        horizon: int,
        n_features: int | None = None,
        batch_size: int | Literal["auto"] = "auto",
        learning_rate: Literal["adaptive", "search"] | tuple[float, float] = "adaptive",
        adjacency: Adjacency = "zero-out",
        seed: int | None = None,
    ) -> None:
        check_components(n_components, n_features)
        self._budget = Budget(epsilon, delta, adjacency)
        self._mu = self._budget.mu
        check_count("horizon", horizon)
        if batch_size != "auto":
            check_count("batch_size", batch_size)
        if learning_rate not in ("adaptive", "search"):
            check_rate(learning_rate)
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.horizon = horizon
        self.n_features = n_features
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.adjacency = adjacency
        self.seed = seed
        if n_features is not None:
            self._lay_out(n_features)

    def _lay_out(self, n_features: int) -> Plan:
        candidates = len(CANDIDATES) if self.learning_rate == "search" else 1
        return Plan.make(n_features, self.n_components, self.horizon, self._budget, self.batch_size, candidates)

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta)-DP for everything released. Known before any row."""
        return Guarantee(
            self.epsilon, self.delta, self.adjacency, "all releases of the stream, and every step in between",
            "parallel composition of votes, centres and means on disjoint rows", CITATION,
        )  # fmt: skip

    @property
    def rows_left(self) -> int:
        """Rows until the horizon."""
        return self.horizon - self.t

    @property
    def rows_until_release(self) -> int:
        """Rows until the end of the minibatch; 0 at the horizon."""
        if not self._bound:
            return self.horizon
        ends = (s.stop for s in self._plan.segments[self._at :] if s.purpose in ("mean", "compare"))
        return next(ends, self.horizon) - self.t

    def _start(self, n_features: int, randomness: Randomness) -> None:
        self._plan = self._lay_out(n_features)
        self._noise = {p: randomness.stream("DPPCA", p) for p in ("top", "range", "centre", "mean", "compare")}
        self._random = random_basis(n_features, self.n_components, randomness.stream("DPPCA", "start"))
        self._found = np.zeros((n_features, 0))
        self._values = np.zeros(self.n_components)
        self._fallbacks = {"spread": 0, "range": 0, "centre_coordinates": 0}
        self._finalists: list[FloatArray] = []
        self._at = 0
        self._begin_run()
        self._begin_segment()

    # -- runs and segments ----------------------------------------------------------

    def _begin_run(self) -> None:
        """A fresh start for one component and one learning rate."""
        if self._found.shape[1] < self.n_components:
            start = self._deflated(self._random[:, self._found.shape[1]][None])[0]
            self._ascent = Ascent(start / np.linalg.norm(start))

    def _begin_segment(self) -> None:
        segment, ascent, plan = self._segment, self._ascent, self._plan
        if segment is None:
            return
        self._labels = np.zeros(0, dtype=np.int64)
        sizes = {"top": 2 * plan.top.pairs, "range": 2 * plan.range.pairs}
        self._chunks = Chunks(sizes.get(segment.purpose, _CHUNK), ascent.direction.size)
        if segment.purpose == "centre":
            self._votes = CentreVotes(plan.centre, ascent.width, ascent.guess)
        elif segment.purpose == "mean":
            # Gradients a (a^T w) of the unit ball fill a ball of diameter 1.
            self._mean = ClippedMean(self._mu, ascent.centre, ascent.radius, self.adjacency, diameter=1.0)
        elif segment.purpose == "compare":
            self._scores = np.zeros(len(self._finalists))

    @property
    def _segment(self) -> Segment | None:
        return self._plan.segments[self._at] if self._at < len(self._plan.segments) else None

    def _absorb(self, rows: FloatArray) -> Release | None:
        t, start, released = self.t - rows.shape[0], 0, False
        while start < rows.shape[0] and (segment := self._segment) is not None:
            take = min(rows.shape[0] - start, segment.stop - t)
            for chunk in self._chunks.feed(rows[start : start + take]):
                self._take(segment, chunk)
            start, t = start + take, t + take
            if t == segment.stop:
                if (rest := self._chunks.flush()).shape[0]:
                    self._take(segment, rest)
                self._finish(segment)
                released = segment.purpose in ("mean", "compare")
                self._at += 1
                self._begin_segment()
        return self._release() if released or self.t == self.horizon else None

    def _take(self, segment: Segment, rows: FloatArray) -> None:
        """Absorb a chunk whose bounds are public."""
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

    def _finish(self, segment: Segment) -> None:
        """Spend the segment's budget and act on the answer."""
        noise, ascent = self._noise[segment.purpose], self._ascent
        if segment.purpose == "top":
            ascent.spread = self._plan.top.decide(self._labels, noise, self._at)
            self._fallbacks["spread"] += ascent.spread is None
        elif segment.purpose == "range":
            ascent.range = self._plan.range.decide(self._labels, noise, self._at)
            self._fallbacks["range"] += ascent.range is None
        elif segment.purpose == "centre":
            centre, found = self._votes.release(noise, self._at)
            ascent.place(centre, found)
            self._fallbacks["centre_coordinates"] += int((~found).sum())
        elif segment.purpose == "mean":
            gradient = self._deflated(self._mean.release(noise, self._at)[None])[0]
            ascent.move(gradient, self._mean, segment.step, segment.used, self._rate(segment))
            self._values[segment.component] = ascent.value
            if segment.last:
                self._end_run()
        else:
            self._choose(segment, noise.normal(self._at, len(self._finalists)))

    def _rate(self, segment: Segment) -> tuple[float, float] | None:
        if self.learning_rate == "adaptive":
            return None
        return CANDIDATES[segment.candidate] if self.learning_rate == "search" else check_rate(self.learning_rate)

    def _end_run(self) -> None:
        if self.learning_rate == "search":
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
        std = math.sqrt(count) * (1.0 + 1e-9) / self._mu
        scores = self._scores + np.rint(std * normals / _GRID) * _GRID
        best = int(np.argmax(scores))
        self._values[segment.component] = float(scores[best]) / segment.rows
        self._keep(self._finalists[best])
        self._finalists = []
        self._begin_run()

    def _keep(self, direction: FloatArray) -> None:
        self._found = orthonormal(np.column_stack([self._found, direction]))

    # -- release and state ----------------------------------------------------------

    def _release(self) -> Release:
        done = self._found.shape[1]
        columns = [self._found]
        if done < self.n_components:
            columns += [self._ascent.direction[:, None], self._random[:, done + 1 :]]
        order = np.argsort(-self._values, kind="stable")
        basis = orthonormal(np.column_stack(columns))[:, order]
        return Release(
            t=self.t,
            n_components=self.n_components,
            guarantee=self.guarantee,
            basis=fix_signs(basis),
            eigenvalues=np.maximum(self._values[order], 0.0) * self.t,
            details={"components_done": done, "fallbacks": dict(self._fallbacks)},
        )

    def regret_bound(self, t: int, opt: float) -> float:
        """The trivial bound, ``opt``: nothing is proved on arbitrary rows."""
        return opt

    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the rows."""
        out: dict[str, Any] = {
            "t": self.t,
            "at": self._at,
            "found": self._found.copy(),
            "values": self._values.copy(),
            "fallbacks": dict(self._fallbacks),
            "finalists": np.array(self._finalists).reshape(-1, self._random.shape[0]),
            "ascent": self._ascent.state(),
        }
        segment = self._segment
        if segment is None:
            return out
        out |= {"waiting": self._chunks.state(), "labels": self._labels.copy()}
        if segment.purpose == "centre":
            out["counts"] = self._votes.counts.copy()
        elif segment.purpose == "mean":
            out |= {"sum": self._mean.sum, "count": self._mean.count}
        elif segment.purpose == "compare":
            out["scores"] = self._scores.copy()
        return out

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.t, self._at = int(state["t"]), int(state["at"])
        self._found = np.array(state["found"], dtype=np.float64)
        self._values = np.array(state["values"], dtype=np.float64)
        self._fallbacks = {name: int(count) for name, count in state["fallbacks"].items()}
        self._finalists = list(np.array(state["finalists"], dtype=np.float64))
        self._ascent = Ascent.restored(state["ascent"])
        self._begin_segment()
        segment = self._segment
        if segment is None:
            return
        self._chunks.restore(state["waiting"])
        self._labels = np.array(state["labels"], dtype=np.int64)
        if segment.purpose == "centre":
            self._votes.counts = np.array(state["counts"], dtype=np.int64)
        elif segment.purpose == "mean":
            self._mean.restore(state["sum"], state["count"])
        elif segment.purpose == "compare":
            self._scores = np.array(state["scores"], dtype=np.float64)
