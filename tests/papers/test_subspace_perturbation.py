import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import kstest, norm

from streampca.errors import BadParameterError
from streampca.papers.subspace_perturbation import SubspacePerturbation, projector_shift
from streampca.privacy.gaussian import delta_at
from streampca.privacy.randomness import Randomness

MECHANISM = SubspacePerturbation(n_components=1, epsilon=1.0, delta=1e-6)


def projector(gram, k):
    vectors = np.linalg.eigh(gram)[1][:, -k:]
    return vectors @ vectors.T


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["zero-out", "replace"]), st.floats(0.05, 5.0))
def test_no_row_moves_the_projector_further_than_the_bound(seed, adjacency, room):
    rng = np.random.default_rng(seed)
    d, k = 4, int(rng.integers(1, 4))
    moves = 1.0 if adjacency == "zero-out" else 2.0
    gap = moves + room
    values = np.concatenate([gap + rng.uniform(0, 2, k - 1), [gap], [0.0], -rng.uniform(0, 2, d - k - 1)])
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    gram = (basis * values) @ basis.T

    def unit():
        # between the two eigenvectors next to the gap, where the projector moves furthest
        angle = rng.uniform(0, math.pi)
        v = math.cos(angle) * basis[:, k - 1] + math.sin(angle) * basis[:, k] + 0.1 * rng.normal(size=d)
        return v / np.linalg.norm(v)

    a, b = unit(), unit()
    other = gram + np.outer(a, a) - (np.outer(b, b) if adjacency == "replace" else 0.0)
    if adjacency == "zero-out" and seed % 2:
        other = gram - np.outer(a, a)
    moved = np.linalg.norm(projector(gram, k) - projector(other, k))
    assert moved <= projector_shift(gap, adjacency) + 1e-9


def test_the_bound_is_nearly_attained():
    # Otherwise the noise would be more than privacy needs.
    for gap in (2.0, 5.0, 50.0):
        gram = np.diag([gap, 0.0])
        angles = np.linspace(0, math.pi / 2, 2001)
        vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        moved = max(np.linalg.norm(projector(gram, 1) - projector(gram - np.outer(a, a), 1)) for a in vectors)
        assert moved > 0.55 * projector_shift(gap)
    for bound in (1.5, 2.0):
        with pytest.raises(BadParameterError, match="more than 2"):
            projector_shift(bound, "replace")


def test_the_budget_is_split_exactly():
    assert delta_at(MECHANISM.mu, 1.0) + MECHANISM.guarantee.slack == pytest.approx(1e-6, rel=1e-9)
    mu1, mu2 = 1.0 / MECHANISM.gap_std, MECHANISM._mu2
    assert math.hypot(mu1, mu2) == pytest.approx(MECHANISM.mu)
    replace = SubspacePerturbation(n_components=1, epsilon=1.0, delta=1e-6, adjacency="replace")
    assert replace.gap_std == 2.0 * MECHANISM.gap_std
    assert MECHANISM.guarantee.epsilon_at(1e-6) == pytest.approx(1.0, rel=1e-9)
    assert MECHANISM.guarantee.epsilon_at(MECHANISM.guarantee.slack) == math.inf


def spiked(n, gap_share):
    rows = np.zeros((n, 3))
    rows[: int(n * (0.5 + gap_share)), 0] = 1.0
    rows[int(n * (0.5 + gap_share)) :, 1] = 1.0
    return rows


def test_small_gap_falls_back_and_large_gap_does_not():
    randomness = Randomness.from_seed(0)
    small = [MECHANISM.release(spiked(400, 0.01), randomness, t=400 + i, row_norm=1.0) for i in range(50)]
    large = [MECHANISM.release(spiked(4000, 0.45), randomness, t=4000 + i, row_norm=1.0) for i in range(50)]
    assert {r.details["released"] for r in small} == {"gram"}
    assert {r.details["released"] for r in large} == {"projector"}
    assert all(r.packed is not None for r in small)
    assert not any(r.packed is not None for r in large)
    assert small[0].noise_std == pytest.approx(1.0 / MECHANISM._mu2)
    assert all(r.eigenvalues is None for r in large)
    gaps = np.array([r.details["gap"] for r in large])
    assert kstest((gaps - 3600.0) / MECHANISM.gap_std, norm.cdf).pvalue > 1e-3


def test_a_gap_that_replacing_a_row_may_close_falls_back():
    # A gap of 2 and next to no noise: the lower bound is between 1 and 2, the projector might turn by any angle.
    mechanism = SubspacePerturbation(n_components=1, epsilon=1e4, delta=1e-6, adjacency="replace")
    assert mechanism.release(np.eye(3)[[0, 0, 0, 1]], seed=0, row_norm=1.0).details["released"] == "gram"


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_the_projector_is_taken_only_where_it_loses_no_more_whatever_the_spectrum(adjacency):
    # First-order losses, over spectra with this gap whose first eigenvalues add up to n at most.
    mechanism = SubspacePerturbation(n_components=2, epsilon=3.0, delta=1e-6, adjacency=adjacency)
    rng, n, taken = np.random.default_rng(0), 1000, 0
    for gap in np.linspace(100.0, 500.0, 60):
        sigma = projector_shift(gap, adjacency) / mechanism._mu2
        worst = 0.0
        for _ in range(50):
            rest = rng.uniform(0.0, 1.0, 3) * rng.uniform(0.0, 500.0 - gap)
            least = rest.max() + gap
            if 2.0 * least > n:
                continue
            first = np.array([least + rng.uniform(0.0, 1.0) * (n - 2.0 * least), least])
            apart = first[:, None] - rest
            worst = max(worst, sigma**2 * apart.sum() / (mechanism._gram_std**2 * (1.0 / apart).sum()))
        if mechanism.projector_loses_less(sigma, n):
            taken += 1
            assert worst <= 1.0
    assert (taken > 15) if adjacency == "zero-out" else taken == 0


def test_the_whole_space_is_refused():
    with pytest.raises(BadParameterError, match="expected less than n_features=2"):
        SubspacePerturbation(n_components=2, epsilon=1.0, delta=1e-6).release(np.zeros((3, 2)), row_norm=1.0)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("n", [600, 30_000])
def test_the_allowance_for_rounding_widens_the_noise_on_the_projector(k, n):
    rows = np.tile(np.eye(40)[:k], (n // k, 1))
    mechanism = replace(MECHANISM, n_components=k)
    details = mechanism.release(rows, seed=0, row_norm=1.0).details
    rounding = 16.0 * 40 * n * 2.0**-52
    bound = details["gap"] - (norm.isf(1e-7) + 2.0**-19) * details["gap_std"] - rounding
    without = projector_shift(bound) / mechanism._mu2
    allowance = 4.0 * math.sqrt(k) * rounding / (bound - 1.0) / mechanism._mu2  # at most 7e-4 of it
    assert details["projector_noise_std"] - without == pytest.approx(allowance, rel=1e-3, abs=0.0)
