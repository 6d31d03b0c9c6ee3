"""Audits of users, forks, interrupts, sliding windows, Oja's algorithm, DP-PCA and subspaces found exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from streampca.auditing.cases import DELTA, EPSILON, case
from streampca.auditing.experiment import Experiment, neighbours, of_algorithm, of_mechanism, of_runs, transcript
from streampca.auditing.statistic import Transcript
from streampca.linalg.lattice import onto_ball
from streampca.linalg.types import FloatArray
from streampca.mechanisms.approximate_subspace import ApproximateSubspace
from streampca.mechanisms.exact_subspace import ExactSubspace
from streampca.privacy.outlet import Outlet
from streampca.privacy.randomness import Randomness
from streampca.processors.dp_pca import DPPCA
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.private_oja import PrivateOja
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.release import Release
from streampca.stream import Entry, Stream
from streampca.users import UserStream


def _window(name: str, method: str, position: int, rows: int = 6, **options: Any) -> None:
    @case(name, tight=method == "once", runs=1.0 if method == "once" else 0.5)
    def build() -> Experiment:
        algorithm = SlidingWindowPCA(
            window=4, n_components=1, n_features=1, epsilon=EPSILON, delta=DELTA, method=method, **options  # type: ignore[arg-type]
        )  # fmt: skip
        return of_algorithm(algorithm, neighbours(rows, 1, position=position), name=name)


_window("SlidingWindowPCA", "histogram", 3)
_window("SlidingWindowPCA-ring", "ring", 1)
_window("SlidingWindowPCA-forgetting", "forgetting", 1)
_window("SlidingWindowPCA-once", "once", -1, rows=3, horizon=3)


def _fpl(**options: Any) -> PrivateFPL:
    return PrivateFPL(n_components=1, n_features=1, epsilon=EPSILON, delta=DELTA, horizon=4, **options)


@case("PrivateFPL-user", tight=False)
def _user() -> Experiment:
    # One user has all four rows, of which two count. At best 95 % of mu: no row of four is in all nodes but the first.
    algorithm = _fpl(noise="tree", max_rows_per_user=2)

    def run(changed: bool, seed: int | None) -> Transcript:
        stream = UserStream(algorithm, seed=seed, regret=None)
        steps = stream.push_many(np.full((4, 1), float(changed)), users=["she"] * 4)
        return transcript(steps.releases, np.eye(1))

    return of_runs("PrivateFPL-user", algorithm.guarantee, run)


def _forked(name: str, position: int, **options: Any) -> None:
    @case(name, tight=False)
    def build() -> Experiment:
        # Two continuations of one run after its first row, the second with zero rows: two runs, sqrt(2) mu. Noise is
        # fresh whatever the seed, for equal rows of seeded continuations have equal noise.
        algorithm = _fpl(**options)

        def run(changed: bool, _: int | None) -> Transcript:
            rows = np.zeros((4, 1, 1))
            rows[position] = float(changed)
            start, release = algorithm.start(1).absorb(rows[0])
            both: list[list[Release]] = [[], []]
            for releases, following in zip(both, (rows[1:], np.zeros((3, 1, 1))), strict=True):
                processor = start
                for row in following:
                    processor, release = processor.absorb(row)
                    releases += [release] if release else []
            same = {f"same/{a.t}": float((a.gram == b.gram).all()) for a, b in zip(*both, strict=True)}
            return transcript([*both[0], *both[1]], np.eye(1)) | same

        return of_runs(name, algorithm.guarantee.compose(algorithm.guarantee), run)


_forked("PrivateFPL-row-then-fork", 0)
_forked("PrivateFPL-row-then-fork-tree", 0, noise="tree")
_forked("PrivateFPL-fork-then-row", 1)
_forked("PrivateFPL-fork-then-row-tree", 1, noise="tree")


class _BreaksOff:
    """A commit log that breaks the second piece off once, after it was computed and before it is taken."""

    room = None

    def __init__(self) -> None:
        self.pieces = 0

    def check(self) -> bool:
        return False

    def append(self, entry: Entry) -> None:
        self.pieces += 1
        if self.pieces == 2:
            raise InterruptedError

    def appended(self) -> None:
        pass

    def hold(self, t: int) -> None:
        pass


@case("PrivateFPL-interrupted")
def _interrupted() -> Experiment:
    # Absorbing the row that differs is broken off, and it is pushed again.
    algorithm = _fpl()

    def run(changed: bool, seed: int | None) -> Transcript:
        stream, releases = Stream(algorithm, seed=seed, regret=None), []
        stream.attach(_BreaksOff(), None, copied=False)
        for value in (0.0, float(changed), 0.0, 0.0):
            try:
                releases += stream.push_many([[value]]).releases
            except InterruptedError:
                releases += stream.push_many([[value]]).releases
        return transcript(releases, np.eye(1))

    return of_runs("PrivateFPL-interrupted", algorithm.guarantee, run)


@case("PrivateOja", tight=False)
def _oja() -> Experiment:
    algorithm = PrivateOja(n_components=1, n_features=2, epsilon=EPSILON, delta=DELTA, batch_size=2)
    rows = np.tile([[0.6, 0.8]], (4, 1))
    return of_algorithm(algorithm, neighbours(4, 2, rows=rows), name="PrivateOja")


class Overheard(Outlet):
    """An outlet that keeps what it releases with Gaussian noise: what a guarantee for every private value is about."""

    __slots__ = ("heard",)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.heard: list[FloatArray] = []

    def gaussian(self, kind: str, values: FloatArray, std: float, grid: float) -> FloatArray:
        """See `Outlet.gaussian`."""
        released = super().gaussian(kind, values, std, grid)
        self.heard.append(released.copy())
        return released


@case("PrivateOja-transcript")
def _oja_transcript() -> Experiment:
    # The strongest that is promised: the noisy sums themselves are seen, and the row is chosen knowing the basis.
    algorithm = PrivateOja(n_components=1, n_features=2, epsilon=EPSILON, delta=DELTA, batch_size=1)

    def run(changed: bool, seed: int | None) -> Transcript:
        learner = algorithm.start(2, Randomness() if seed is None else Randomness.from_seed(seed))
        basis, outlet = learner.basis, Overheard(learner.source, learner.chain)  # type: ignore[attr-defined]
        learner.absorb(onto_ball(basis.T) if changed else np.zeros((1, 2)), outlet)
        return {"along": float(np.sum(outlet.heard[0] * basis))}

    return of_runs("PrivateOja-transcript", algorithm.guarantee, run)


@case("ExactSubspace", tight=False)
def _exact_subspace() -> Experiment:
    # All rows on one line, about as many as are needed: each counts.
    mechanism = ExactSubspace(n_components=1, epsilon=1.0, delta=0.05, method="all")
    rows = np.tile([[1.0, 0.0]], (4, 1))
    return of_mechanism(mechanism, neighbours(4, 2, rows=rows), name="ExactSubspace")


@case("ExactSubspace-lone-row", tight=False, runs=0.5)
def _exact_subspace_lone() -> Experiment:
    # The line of a single row must never be shown.
    mechanism = ExactSubspace(n_components=1, epsilon=1.0, delta=0.05, method="blocks")
    return of_mechanism(mechanism, neighbours(4, 2), name="ExactSubspace-lone-row")


@case("ApproximateSubspace", tight=False, runs=0.5)
def _approximate_subspace() -> Experiment:
    # Three blocks on one line; in one of them, the row that differs is all there is.
    mechanism = ApproximateSubspace(n_components=1, epsilon=1.0, delta=0.05, widths=(0.5,), block_rows=4)
    rows = np.repeat([[0.0, 0.0], [1.0, 0.0]], [4, 8], axis=0)
    return of_mechanism(mechanism, neighbours(12, 2, rows=rows, canary=[0.0, 1.0]), name="ApproximateSubspace")


@case("DPPCA", tight=False, runs=0.2)
def _dp_pca() -> Experiment:
    algorithm = DPPCA(n_components=1, n_features=2, epsilon=EPSILON, delta=DELTA, horizon=700)
    rows = np.tile([[0.8, 0.0]], (700, 1))
    return of_algorithm(algorithm, neighbours(700, 2, rows=rows, position=-1, canary=[0.0, 1.0]), name="DPPCA")
