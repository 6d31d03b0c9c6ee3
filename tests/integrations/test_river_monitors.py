from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
from scipy.stats import binom

import streampca as sp
from streampca.errors import BadParameterError, UsageError
from streampca.river import PrivateBlockPCA, PrivatePCA
from streampca.river_monitors import SubspaceAnomaly, SubspaceDrift

SCALES = np.array([0.5, 0.3, 0.07, 0.07, 0.07, 0.07, 0.07, 0.07])


def releases(seed: int, turn: float, n: int) -> list[sp.Release]:
    X = np.random.default_rng(seed).normal(size=(3 * n, 8)) * SCALES
    last, (c, s) = X[-n:].copy(), (np.cos(turn), np.sin(turn))
    X[-n:, 0], X[-n:, 7] = c * last[:, 0] - s * last[:, 7], s * last[:, 0] + c * last[:, 7]
    mechanism = sp.GaussianCovariance(n_components=2, epsilon=1.0, delta=1e-6, center=True)
    stream = sp.Stream(sp.Tumbling(mechanism, release_every=n), row_norm=1.0, regret=None, seed=seed)
    return stream.push_many(X).releases


@dataclass(frozen=True)
class Unchanged:
    """Independent rows whose covariance stays: ``ratio`` is the eigenvalue k over the next, all others equal."""

    d: int
    k: int
    ratio: float
    n: int
    epsilon: float
    law: Literal["gaussian", "uniform"] = "gaussian"

    def count(self, runs: int, false_alarm: float, simulations: int) -> int:
        found, size = 0, (2 * self.n, self.d)
        scales = np.where(np.arange(self.d) < self.k, 1.0, self.ratio**-0.5)
        mechanism = sp.GaussianCovariance(n_components=self.k, epsilon=self.epsilon, center=False)
        for seed in range(runs):
            rng = np.random.default_rng(seed)
            X = rng.normal(size=size) if self.law == "gaussian" else rng.uniform(-(3.0**0.5), 3.0**0.5, size=size)
            detector = SubspaceDrift(false_alarm, simulations=simulations, seed=seed)
            stream = sp.Stream(sp.Tumbling(mechanism, release_every=self.n), row_norm=1.0, regret=None, seed=seed)
            for release in stream.push_many(X * (0.6 * scales / np.linalg.norm(scales))).releases:
                detector.update(release)
            found += detector.drift_detected
        return found


UNCHANGED = [
    Unchanged(8, 2, 1.0, 1000, 100.0), Unchanged(8, 4, 1.0, 5000, 100.0), Unchanged(12, 2, 1.0, 1000, 100.0),
    Unchanged(12, 4, 1.0, 5000, 1.0), Unchanged(20, 2, 1.0, 1000, 100.0), Unchanged(20, 4, 1.0, 5000, 100.0),
    Unchanged(20, 1, 1.0, 1000, 1.0), Unchanged(8, 2, 1.5, 5000, 100.0), Unchanged(20, 4, 3.0, 5000, 100.0),
    Unchanged(12, 2, 1.2, 500, 100.0), Unchanged(8, 2, 10.0, 1000, 10.0), Unchanged(12, 4, 1.0, 1000, 100.0, "uniform"),
]  # fmt: skip


@pytest.mark.parametrize("setting", [UNCHANGED[4], UNCHANGED[5]], ids=str)
def test_without_a_gap_alarms_are_as_rare_as_stated(setting: Unchanged) -> None:
    # More than 10 of 60 have probability 1.3e-4 at a rate of .05; a gap less one standard deviation gave 13 and 25.
    assert binom.sf(10, 60, 0.05) < 2e-4
    assert setting.count(60, 0.05, 99) <= 10


@pytest.mark.long
@pytest.mark.parametrize(("false_alarm", "simulations"), [(0.05, 99), (0.01, 399)])
@pytest.mark.parametrize("setting", UNCHANGED, ids=str)
def test_alarms_are_as_rare_as_stated(setting: Unchanged, false_alarm: float, simulations: int) -> None:
    """500 runs. Without a gap the test is exact, so the count is above its mean in half of all settings."""
    found = setting.count(500, false_alarm, simulations)
    print(f"{setting}: {found / 5:.1f} % at {false_alarm:.0%}")
    assert found <= binom.isf(1e-3, 500, false_alarm)


def test_a_turned_subspace_raises_an_alarm() -> None:
    found = np.zeros(3)
    for seed in range(20):
        detector = SubspaceDrift(0.01, simulations=99)
        for i, release in enumerate(releases(seed, 0.6, 1_000)):
            detector.update(release)
            found[i] += detector.drift_detected
            detector.update(release)  # seen before
            assert not detector.drift_detected
    assert found[1] <= 2
    assert found[2] >= 15  # measured at an angle of 0.5: 40 of 40


def test_after_an_alarm_the_new_rows_are_the_reference() -> None:
    first, second = releases(1, 0.0, 5_000), releases(2, 1.2, 5_000)
    detector = SubspaceDrift(0.02, simulations=99)
    for release in (first[0], second[2]):
        detector.update(release)
    assert detector.drift_detected
    assert detector.p_value <= 0.02
    detector.update(releases(3, 1.2, 5_000)[2].replaced(t=30_000))
    assert not detector.drift_detected
    detector.update(first[1].replaced(t=40_000))
    assert detector.drift_detected


def test_what_cannot_be_tested_is_refused() -> None:
    with pytest.raises(BadParameterError, match="Increase simulations="):
        SubspaceDrift(0.01, simulations=50)
    detector, model = SubspaceDrift(), PrivatePCA(n_components=1, row_norm=1.0, release_every=1)
    detector.update(model.release)  # nothing yet
    model.learn_one({"a": 0.5, "b": 0.1})
    with pytest.raises(UsageError, match="disjoint blocks"):
        detector.update(model.release)


def test_scores_are_distances_from_the_released_subspace() -> None:
    model = SubspaceAnomaly(PrivateBlockPCA(n_components=1, block=500, bounds={"a": (0, 4), "b": (-1, 1), "c": (0, 1)}))
    x = {"a": 3.0, "b": 0.2, "c": 0.9}
    assert model.score_one(x) == 0.0
    source = np.random.default_rng(0)
    for a, b, c in source.uniform([0, -0.1, 0.45], [4, 0.1, 0.55], size=(500, 3)).tolist():
        model.learn_one({"a": a, "b": b, "c": c})
    release = model.pca.release
    assert release is not None
    away = release.transform([[3.0, 0.2, 0.9]])
    row = (np.array([3.0, 0.2, 0.9]) - [2.0, 0.0, 0.5]) / [2.0, 1.0, 0.5] / np.sqrt(3.0)
    centered = row - release.mapped_mean
    assert model.score_one(x) == pytest.approx(float(centered @ centered - np.sum(away**2)))
    assert model.score_one(x) > model.score_one(x | {"c": 0.5})
