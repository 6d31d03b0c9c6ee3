"""An audit of the noise: how well the best linear test tells neighbouring streams apart.

Neighbours differ in input j. Coordinates are independent repetitions, so one run of
n coordinates gives n transcripts. The test whitens with a covariance learnt from transcripts
of its own, not with what the mechanism claims, so a mechanism that lies about itself is caught.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from streampca.matrix_factorization import blt
from streampca.matrix_factorization.blt import AnytimeBLT, GeometricBLT
from streampca.matrix_factorization.tree import BinaryTree
from streampca.privacy.outlet import NoiseSource
from streampca.privacy.randomness import Randomness

MU, SENSITIVITY, T, SAMPLES = 0.8, 1.5, 16, 20_000


def transcripts(mechanism, seed):
    source = NoiseSource(Randomness.from_seed(seed), "audit")
    outlet, running, rows = source.outlet(source.first), mechanism.start(SAMPLES, source), []
    for _ in range(T):
        running = running.advance(outlet.hide("sum"))
        rows.append(running.noise)
    return np.array(rows)


def measured_mu(mechanism, changed):
    learnt = transcripts(mechanism, 1)
    shift = np.where(np.arange(T) >= changed, SENSITIVITY, 0.0)
    matched = np.linalg.solve(learnt @ learnt.T / SAMPLES, shift)
    without = matched @ transcripts(mechanism, 2)
    having = matched @ (transcripts(mechanism, 3) + shift[:, None])
    return (having.mean() - without.mean()) / np.sqrt((having.var() + without.var()) / 2.0)


HONEST = [
    GeometricBLT(T, MU, SENSITIVITY),
    BinaryTree(T, MU, SENSITIVITY),
    BinaryTree(T, MU, SENSITIVITY, topped_up=True),
    AnytimeBLT(MU, SENSITIVITY, restart_after=8),
]


@pytest.mark.parametrize("mechanism", HONEST, ids=lambda m: type(m).__name__)
def test_neighbours_are_no_further_apart_than_mu(mechanism):
    measured = [measured_mu(mechanism, changed) for changed in (0, 7, 15)]
    assert max(measured) < 1.05 * MU
    if not getattr(mechanism, "topped_up", False):  # the top-up hides part of what the tree itself would show
        assert max(measured) > 0.95 * MU  # the audit is sharp: somewhere the budget is all spent


class HalfNoise:
    def __init__(self, mechanism):
        self.mechanism = mechanism

    def start(self, size, source):
        return Halved(self.mechanism.start(size, source))


class Halved:
    def __init__(self, value):
        self.value, self.noise = value, value.noise

    def advance(self, draws):
        return Halved(self.value.advance(HalfDraws(draws)))


class HalfDraws:
    def __init__(self, draws):
        self.n, self.name, self.normal = draws.n, draws.name, lambda count: 0.5 * draws.normal(count)


@pytest.mark.parametrize("mechanism", HONEST, ids=lambda m: type(m).__name__)
def test_half_the_noise_is_caught(mechanism):
    factor = measured_mu(HalfNoise(mechanism), 0) / measured_mu(mechanism, 0)
    assert factor == pytest.approx(2.0, rel=0.05)
    if not getattr(mechanism, "topped_up", False):
        assert measured_mu(HalfNoise(mechanism), 0) > 1.9 * MU


class ShallowTree(BinaryTree):
    @property
    def node_std(self):
        return np.sqrt(self.levels - 1) * self.sensitivity / self.mu


def test_a_tree_of_the_wrong_depth_is_caught():
    assert measured_mu(ShallowTree(T, MU, SENSITIVITY), 0) > 1.05 * MU


class WithoutColumnNorms(GeometricBLT):
    def _norms(self, n):
        return np.ones(len(n))


def test_missing_column_normalisation_is_caught():
    assert measured_mu(WithoutColumnNorms(T, MU, SENSITIVITY), 0) > 1.3 * MU


def test_an_input_in_two_epochs_is_caught(monkeypatch):
    # Planted bug: an anytime sequence of 8 that keeps its buffers goes on correlating past its calibration.
    monkeypatch.setattr(blt, "ANYTIME", blt.Buffers(1e-3, 8.0, 4))
    honest = AnytimeBLT(MU, SENSITIVITY, restart_after=2)
    careless = dataclasses.replace(honest, restart_after=2**20)
    object.__setattr__(careless, "scale", honest.scale)
    assert measured_mu(honest, 0) < 1.05 * MU
    assert measured_mu(careless, 0) > 1.05 * MU
