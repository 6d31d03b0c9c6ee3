"""Audits of users, sliding windows, Oja's algorithm, DP-PCA and subspaces found exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from streampca.auditing.cases import DELTA, EPSILON, case
from streampca.auditing.experiment import Experiment, neighbours, of_mechanism, of_processor, run_key, transcript
from streampca.auditing.statistic import Transcript
from streampca.linalg.lattice import onto_ball
from streampca.linalg.types import FloatArray
from streampca.mechanisms.approximate_subspace import ApproximateSubspace
from streampca.mechanisms.exact_subspace import ExactSubspace
from streampca.privacy.randomness import Randomness
from streampca.processors.dp_pca import DPPCA
from streampca.processors.private_fpl import PrivateFPL
from streampca.processors.private_oja import PrivateOja
from streampca.processors.sliding_window import SlidingWindowPCA
from streampca.users import UserStream


def _window(name: str, method: str, position: int, rows: int = 6, **options: Any) -> None:
    @case(name, tight=method == "once", runs=1.0 if method == "once" else 0.5)
    def build() -> Experiment:
        processor = SlidingWindowPCA(
            window=4, n_components=1, n_features=1, epsilon=EPSILON, delta=DELTA, method=method, **options  # type: ignore[arg-type]
        )  # fmt: skip
        return of_processor(processor, neighbours(rows, 1, position=position), name=name)


_window("SlidingWindowPCA", "histogram", 3)
_window("SlidingWindowPCA-ring", "ring", 1)
_window("SlidingWindowPCA-forgetting", "forgetting", 1)
_window("SlidingWindowPCA-once", "once", -1, rows=3, horizon=3)


@case("PrivateFPL-user", tight=False)
def _user() -> Experiment:
    # One user has all four rows, of which two count. At best 95 % of mu: no row of four is in all nodes but the first.
    processor = PrivateFPL(
        n_components=1, n_features=1, epsilon=EPSILON, delta=DELTA, horizon=4, noise="tree", max_rows_per_user=2
    )

    def run(changed: bool, key: bytes) -> Transcript:
        stream = UserStream(processor.clone(), key=key, regret=None)
        steps = stream.push_many(np.full((4, 1), float(changed)), users=["she"] * 4)
        return transcript(steps.releases, np.eye(1))

    def sample(changed: bool, count: int, key: bytes) -> Sequence[Transcript]:
        return [run(changed, run_key(key, i)) for i in range(count)]

    return Experiment("PrivateFPL-user", processor.guarantee, sample)


@case("PrivateOja", tight=False)
def _oja() -> Experiment:
    processor = PrivateOja(n_components=1, n_features=2, epsilon=EPSILON, delta=DELTA, batch_size=2)
    rows = np.tile([[0.6, 0.8]], (4, 1))
    return of_processor(processor, neighbours(4, 2, rows=rows), name="PrivateOja")


@case("PrivateOja-transcript")
def _oja_transcript() -> Experiment:
    # The strongest that is promised: the noisy sums themselves are seen, and the row is chosen knowing the basis.
    processor = PrivateOja(n_components=1, n_features=2, epsilon=EPSILON, delta=DELTA, batch_size=1)

    def run(changed: bool, key: bytes) -> Transcript:
        learner = processor.clone()
        learner.bind(2, Randomness(key))
        basis, seen, scale = learner._basis.copy(), [], learner._rates.scale

        def overheard(gradient: FloatArray, *rest: Any) -> Any:
            seen.append(gradient.copy())
            return scale(gradient, *rest)

        learner._rates.scale = overheard  # type: ignore[method-assign, assignment]
        row = onto_ball(basis.T) if changed else np.zeros((1, 2))
        learner.absorb(row)
        return {"along": float(np.sum(seen[0] * basis))}

    def sample(changed: bool, count: int, key: bytes) -> Sequence[Transcript]:
        return [run(changed, run_key(key, i)) for i in range(count)]

    return Experiment("PrivateOja-transcript", processor.guarantee, sample)


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
    processor = DPPCA(n_components=1, n_features=2, epsilon=EPSILON, delta=DELTA, horizon=700)
    rows = np.tile([[0.8, 0.0]], (700, 1))
    return of_processor(processor, neighbours(700, 2, rows=rows, position=-1, canary=[0.0, 1.0]), name="DPPCA")
