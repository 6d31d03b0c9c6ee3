"""Private eigenvalue: accuracy, votes, and the vote that moves."""

from __future__ import annotations

import numpy as np
import pytest

from streampca.mechanisms.eigenvalue import PrivateEigenvalue
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.privacy.randomness import Randomness


def outlet(seed: int) -> Outlet:
    source = NoiseSource(Randomness.from_seed(seed), "eigenvalue")
    return source.outlet(source.first)


def test_top_eigenvalue_of_spread_vectors_far_from_the_origin() -> None:
    """Vectors with a large mean: the estimate is of their covariance, to within a bin and sampling error."""
    rng = np.random.default_rng(0)
    mechanism = PrivateEigenvalue(1.0, 1e-6, pairs=200)
    vectors = 5.0 + 0.01 * rng.normal(size=(mechanism.rows, 4)) * np.sqrt([4.0, 1.0, 1.0, 0.5])
    estimate = mechanism.decide(mechanism.cast(vectors), outlet(1), "votes")
    assert estimate is not None
    assert 0.7 < estimate / 4e-4 < 1.4
    assert mechanism.votes == 71


def test_range_covers_most_vectors() -> None:
    rng = np.random.default_rng(0)
    mechanism = PrivateEigenvalue(1.0, 1e-6, pairs=8, statistic="range", bins_per_octave=2)
    vectors = 3.0 + rng.normal(size=(mechanism.rows, 50))
    estimate = mechanism.decide(mechanism.cast(vectors), outlet(1), "votes")
    assert estimate is not None
    assert np.mean(np.sum((vectors - 3.0) ** 2, axis=1) <= estimate) > 0.9
    assert estimate < 2.0 * 50


def test_norm_takes_no_differences() -> None:
    mechanism = PrivateEigenvalue(1.0, 1e-6, pairs=2, statistic="norm", bins_per_octave=1)
    estimate = mechanism.decide(mechanism.cast(np.full((mechanism.rows, 1), 0.3)), outlet(1), "votes")
    assert estimate == 0.125  # the upper end of the bin of 0.09


def test_zero_and_disagreement() -> None:
    mechanism = PrivateEigenvalue(1.0, 1e-6, pairs=2)
    assert mechanism.decide(mechanism.cast(np.ones((mechanism.rows, 3))), outlet(1), "votes") == 0.0
    scales = np.repeat(4.0 ** np.arange(mechanism.votes), 4)[:, None]
    apart = np.random.default_rng(0).normal(size=(mechanism.rows, 3)) * scales
    assert mechanism.decide(mechanism.cast(apart), outlet(1), "votes") is None
    assert mechanism.decide(mechanism.cast(np.ones((3, 3))), outlet(1), "votes") is None


@pytest.mark.parametrize("statistic", ["top", "range", "norm"])
def test_one_row_moves_at_most_one_vote(statistic: str) -> None:
    """The claim that the calibration rests on; a zeroed-out row does move one."""
    rng = np.random.default_rng(0)
    mechanism = PrivateEigenvalue(1.0, 1e-6, pairs=3, statistic=statistic)  # type: ignore[arg-type]
    vectors = rng.normal(size=(mechanism.rows, 4))
    votes = mechanism.cast(vectors)
    moved = 0
    for i in range(0, mechanism.rows, 7):
        for other in (np.zeros(4), 100.0 * rng.normal(size=4)):
            changed = vectors.copy()
            changed[i] = other
            differ = np.flatnonzero(mechanism.cast(changed) != votes)
            assert differ.size <= 1
            moved += differ.size
    assert moved > 20


def test_a_failing_solver_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: np.ndarray) -> np.ndarray:
        raise np.linalg.LinAlgError("no convergence")

    monkeypatch.setattr(np.linalg, "eigvalsh", fail)
    mechanism = PrivateEigenvalue(1.0, 1e-6, pairs=2)
    vectors = np.random.default_rng(0).normal(size=(mechanism.rows, 3))
    assert mechanism.decide(mechanism.cast(vectors), outlet(1), "votes") == 0.0


def test_what_overflows_votes_for_the_bin_of_zeros():
    mechanism = PrivateEigenvalue(1.0, 1e-6, pairs=2, statistic="norm")
    with np.errstate(over="ignore"):
        labels = mechanism.cast(np.full((8, 3), 1e200))
    assert labels.tolist() == [np.iinfo(np.int64).min] * 2
