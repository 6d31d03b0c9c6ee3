"""DP-PCA: private PCA whose error falls with the data's own noise, in O(dk) memory."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from streampca.errors import BadParameter
from streampca.linalg.eigen import fix_signs
from streampca.linalg.types import FloatArray
from streampca.privacy.budget import Adjacency, Budget
from streampca.privacy.guarantee import Guarantee
from streampca.privacy.randomness import Randomness
from streampca.processors.base import Processor, check_components, check_count
from streampca.processors.dp_pca_deflation import Deflation
from streampca.processors.dp_pca_engine import Engine
from streampca.processors.dp_pca_plan import ENDS, Segment
from streampca.processors.dp_pca_tangent import Tangent
from streampca.processors.oja_steps import Chunks, check_rate
from streampca.release import Release

CITATION = "Liu, Kong, Jain and Oh 2022, Algorithms 3 to 5; Duengler and Sanyal 2025 (arXiv 2508.10879), Algorithm 1"


class DPPCA(Processor):
    """Private PCA by minibatch ascent with noise fitted to the rows' own noise.

    Where rows are signal plus a little noise, `PrivateOja` and the Gaussian
    mechanism add noise for the length of the rows. DP-PCA measures privately
    how far rows differ in a way that matters, clips to that and adds noise in
    proportion to it: its error falls to nothing with the rows' own noise.

    Any rows are private; only accuracy rests on them being alike (independent,
    light-tailed). As a rule its sine is 1.2 to 1.5 times that of PCA without
    privacy. `GaussianCovariance` has ``sqrt(d / 2) / (mu n gap)`` beside the
    sampling error, in squares: it is the better choice where that is less
    than some two thirds of the sampling error, which is so for noisy rows of few
    features. Scenario ``signal_noise`` shows where the lines cross.

    Parameters
    ----------
    n_components : dimension of the subspace, k.
    epsilon, delta : budget for everything that is ever released.
    horizon : number of rows. Needed: minibatches are laid out before any row.
    n_features : number of features, d; taken from the first row if left out.
    method : ``"tangent"``, all components at once, on the part of the gradients
        that moves the subspace (see `dp_pca_tangent`): needs the fewest rows
        and has the least noise; ``"deflation"``, the papers' way, one component
        after another on gradients about a private centre (see `dp_pca_deflation`).
    batch_size : rows to a minibatch; ``"auto"`` lets each be half as long as
        all before it, as far as the mechanisms allow.
    learning_rate : ``"adaptive"`` weighs each step by what private values show
        of its noise; ``(c1, c2)`` takes steps of ``c1 / (c2 + t)`` on the mean
        gradient at minibatch t; ``"search"`` (with deflation) runs
        `dp_pca_plan.CANDIDATES` on rows of their own and keeps the one that privately
        captures most of further rows: the paper's search, at the price of that many
        times the rows.
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
    given what was released before. A row is in one segment, so they compose
    in parallel and each may spend the full budget.

    *No answer* never stops it: every mechanism that may have none has a public
    fallback, and ``release.details["fallbacks"]`` counts them (functions of
    private answers). Eigenvalues are t times private mean rewards of the
    latest minibatch (of each component's last one, with deflation).
    """

    def __init__(
        self,
        *,
        n_components: int = 1,
        epsilon: float,
        delta: float,
        horizon: int,
        n_features: int | None = None,
        method: Literal["tangent", "deflation"] = "tangent",
        batch_size: int | Literal["auto"] = "auto",
        learning_rate: Literal["adaptive", "search"] | tuple[float, float] = "adaptive",
        adjacency: Adjacency = "zero-out",
        seed: int | None = None,
    ) -> None:
        check_components(n_components, n_features)
        self._budget = Budget(epsilon, delta, adjacency)
        _ = self._budget.mu
        check_count("horizon", horizon)
        if method not in ("tangent", "deflation"):
            raise BadParameter(f"method={method!r} is not known; use 'tangent' or 'deflation'")
        if batch_size != "auto":
            check_count("batch_size", batch_size)
        if learning_rate not in ("adaptive", "search"):
            check_rate(learning_rate)
        if learning_rate == "search" and method == "tangent":
            raise BadParameter("learning_rate='search' goes with method='deflation'; use 'adaptive', which needs none")
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.horizon = horizon
        self.n_features = n_features
        self.method = method
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.adjacency = adjacency
        self.seed = seed
        if n_features is not None:
            self._make_engine(n_features, Randomness())  # refuses now rather than at the first row

    def _make_engine(self, n_features: int, randomness: Randomness) -> Engine:
        given = (n_features, self.n_components, self.horizon, self._budget, self.batch_size)
        rate = self.learning_rate
        if rate == "search":
            return Deflation(*given, "search", randomness)
        pair = None if rate == "adaptive" else check_rate(rate)
        return (Tangent if self.method == "tangent" else Deflation)(*given, pair, randomness)

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
        ends = (s.stop for s in self._engine.segments[self._at :] if s.purpose in ENDS)
        return next(ends, self.horizon) - self.t

    def _start(self, n_features: int, randomness: Randomness) -> None:
        self._engine = self._make_engine(n_features, randomness)
        self._at = 0
        self._open(n_features)

    @property
    def _segment(self) -> Segment | None:
        return self._engine.segments[self._at] if self._at < len(self._engine.segments) else None

    def _open(self, n_features: int) -> None:
        if (segment := self._segment) is not None:
            self._chunks = Chunks(self._engine.open(segment), n_features)

    def _absorb(self, rows: FloatArray) -> Release | None:
        t, start, released = self.t - rows.shape[0], 0, False
        while start < rows.shape[0] and (segment := self._segment) is not None:
            take = min(rows.shape[0] - start, segment.stop - t)
            for chunk in self._chunks.feed(rows[start : start + take]):
                self._engine.take(segment, chunk)
            start, t = start + take, t + take
            if t == segment.stop:
                if (rest := self._chunks.flush()).shape[0]:
                    self._engine.take(segment, rest)
                self._engine.close(segment, self._at)
                released = segment.purpose in ENDS
                self._at += 1
                self._open(rows.shape[1])
        return self._release() if released or self.t == self.horizon else None

    def _release(self) -> Release:
        basis, values = self._engine.subspace()
        return Release(
            t=self.t,
            n_components=self.n_components,
            guarantee=self.guarantee,
            basis=fix_signs(basis),
            eigenvalues=values * self.t,
            details={"fallbacks": dict(self._engine.fallbacks)},
        )

    def state(self) -> dict[str, Any]:
        """Arrays and scalars from which `restore` continues. As secret as the rows."""
        segment = self._segment
        waiting = np.zeros((0, 0)) if segment is None else self._chunks.state()
        return {"t": self.t, "at": self._at, "waiting": waiting, "engine": self._engine.state(segment)}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.t, self._at = int(state["t"]), int(state["at"])
        segment = self._segment
        size = self._engine.restore(segment, state["engine"])
        if segment is not None:
            assert self.n_features is not None
            self._chunks = Chunks(size, self.n_features)
            self._chunks.restore(state["waiting"])
