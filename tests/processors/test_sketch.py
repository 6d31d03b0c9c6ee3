"""PrivateSketch: exact sensitivity, exact sums, estimates, captured shares."""

import math
from typing import Any

import numpy as np
import pytest
import threadpoolctl
from feeding import Overheard, feed
from hypothesis import given, settings, strategies as st

import streampca as sp
from streampca.errors import BadParameterError
from streampca.linalg.centering import CONSTANT, with_constant
from streampca.linalg.lattice import onto_ball
from streampca.processors.private_sketch import (
    GRID,
    ROUNDING,
    PrivateSketch,
    SketchProcessor,
    sketch_sensitivity,
    sketched,
    spiked,
)

BUDGET: dict[str, Any] = {"n_components": 2, "epsilon": 1.0, "delta": 1e-6}


def added(row: np.ndarray | None, omega: np.ndarray, clip: float, weight: float) -> np.ndarray:
    """What a row adds, by the definition; None for an absent row."""
    d, m = omega.shape
    if row is None:
        return np.zeros((d + 1, m + 1))
    out, p = np.zeros((d + 1, m + 1)), omega.T @ row
    factor = min(1.0, clip / max(float(np.linalg.norm(row) * np.linalg.norm(p)), 1e-300))
    out[:d, :m] = factor * np.outer(row, p)
    out[:, m] = factor * weight * np.append(row, CONSTANT)
    return out


@given(
    seed=st.integers(0, 10**6),
    m=st.integers(1, 3),
    clip=st.floats(0.05, 1.0),
    share=st.sampled_from([0.0, 0.25, 0.5]),
    adjacency=st.sampled_from(["zero-out", "replace"]),
)
@settings(deadline=None, max_examples=150)
def test_no_pair_of_rows_exceeds_the_sensitivity(seed: int, m: int, clip: float, share: float, adjacency: str) -> None:
    rng = np.random.default_rng(seed)
    omega, weight = np.linalg.qr(rng.normal(size=(4, m)))[0], share * clip
    pairs = rng.normal(size=(60, 2, 4)) * rng.exponential(size=4)
    pairs[::3, 1] = pairs[::3, 0] @ (2.0 * omega @ omega.T - np.eye(4))  # mirrored: the worst of replacements
    pairs /= np.maximum(np.linalg.norm(pairs, axis=2, keepdims=True), 1e-9) / rng.uniform(size=(60, 2, 1)) ** 0.1
    bound = sketch_sensitivity(clip, weight, adjacency)  # type: ignore[arg-type]
    for a, b in pairs:
        other = None if adjacency == "zero-out" or rng.uniform() < 0.1 else b
        moved = np.linalg.norm(added(a, omega, clip, weight) - added(other, omega, clip, weight))
        assert moved <= bound * (1.0 + 1e-12)


@pytest.mark.parametrize("share", [0.0, 0.25])
@pytest.mark.parametrize("clip", [0.1, 0.45])
def test_the_sensitivity_is_attained(clip: float, share: float) -> None:
    omega, weight, across = np.eye(4)[:, :2], share * clip, math.sqrt(1.0 - clip**2)
    a, b = np.array([clip, 0.0, across, 0.0]), np.array([clip, 0.0, -across, 0.0])
    for adjacency, other in (("zero-out", None), ("replace", b)):
        moved = np.linalg.norm(added(a, omega, clip, weight) - added(other, omega, clip, weight))
        assert moved == pytest.approx(sketch_sensitivity(clip, weight, adjacency), rel=1e-9)  # type: ignore[arg-type]


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("clip", [None, 0.2])
def test_what_is_hidden_is_the_exact_sum(center: bool, clip: float | None) -> None:
    rng = np.random.default_rng(0)
    rows = onto_ball(rng.normal(size=(700, 30)) * np.linspace(0.4, 0.1, 30))
    absent = np.arange(700) % 7 == 0
    given_rows = with_constant(rows, absent) if center else np.where(absent[:, None], 0.0, rows)
    algorithm = PrivateSketch(**BUDGET, sketch_size=5, clip=clip, horizon=700, release_every=700, center=center)
    first = algorithm.start(30 + center, sp.Randomness.from_seed(1))
    assert isinstance(first, SketchProcessor)
    middle, _ = feed(first, given_rows[:300], 77)
    outlet = Overheard(middle)
    after, release = middle.absorb(given_rows[300:], outlet)
    assert [kind for kind, _ in outlet.hidden] == ["sketch"]
    exact, (_, bound, weight) = outlet.hidden[0][1][0], algorithm.shape(30)
    expected = sum(added(row, first.omega, bound, weight) for row in rows[~absent])
    expected = expected if center else expected[:-1, :-1]
    assert np.abs(exact - expected).max() < 1e-4  # single precision
    assert np.array_equal(exact, np.rint(exact / GRID) * GRID)
    assert release is not None
    assert after.chain == outlet.chain
    assert release.is_centered == center
    if center:  # the number of rows is that of those present, shortened ones in part
        noise = algorithm.mechanism(30).std(1) / (CONSTANT * weight)
        assert abs(release.details["count"] - expected[-1, -1] / (CONSTANT * weight)) < 6.0 * noise


@pytest.mark.parametrize("weight", [0.0, 0.1])
def test_rounding_of_whole_chunks_is_within_its_allowance(weight: float) -> None:
    """256 rows along one line, of which one is gone: errors of single precision are the same way then."""
    d, clip, rng = 500, 0.4, np.random.default_rng(2)
    omega = np.linalg.qr(rng.normal(size=(d, 10)))[0]
    for line in (omega[:, 0], np.full(d, d**-0.5), rng.normal(size=d)):
        rows = onto_ball(np.tile(line / np.linalg.norm(line), (256, 1)) * rng.uniform(0.9, 1.0, (256, 1)))
        gone = np.arange(256) == 100
        both = [with_constant(rows, absent) if weight else rows * ~absent[:, None] for absent in (gone, 0 * gone == 1)]
        padded = np.vstack([omega, np.zeros((int(weight > 0.0), 10))]).astype(np.float32)
        sums = [sketched(one, padded, clip, weight) for one in both]
        moved = np.linalg.norm(sums[1] - sums[0])
        assert moved <= sketch_sensitivity(clip, weight, "zero-out") * ROUNDING + math.sqrt(sums[0].size) * GRID


def spectrum(d: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Directions, and eigenvalues of a sum of n unit rows: 1/j over 200 of them with .8, the rest alike."""
    values = np.full(d, 0.2 / d)
    values[:200] += 0.8 / np.arange(1.0, 201.0) / (1.0 / np.arange(1.0, 201.0)).sum()
    return np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))[0], n * values


@pytest.mark.parametrize("std", [0.05, 1.0, 2.5])
def test_estimates_of_a_noisy_sketch(std: float) -> None:
    """Over 8 draws the means of the relative errors have a spread of .02; left out, a debiasing costs .1 and more."""
    d, m, k, found = 700, 80, 10, []
    directions, values = spectrum(d, 20_000)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        omega = np.linalg.qr(rng.normal(size=(d, m)))[0]
        z = directions @ (values[:, None] * (directions.T @ omega)) + std * rng.normal(size=(d, m))
        basis, eigenvalues, details = spiked(z, omega, omega, k, std, np.zeros(d))
        captured = float(values @ ((directions.T @ basis) ** 2).sum(axis=1)) / values[:k].sum()
        found.append((
            np.mean(eigenvalues[:5] / values[:5]) - 1.0, details["predicted_captured"] - captured,
            details["total"] / 20_000 - 1.0,
        ))  # fmt: skip
        assert np.abs(basis.T @ basis - np.eye(k)).max() < 1e-10
    assert np.abs(np.mean(found, axis=0)).max() < 0.06


@pytest.mark.parametrize("center", [False, True])
def test_a_complete_sketch_without_noise_is_exact(center: bool) -> None:
    rows = onto_ball(np.random.default_rng(0).normal(size=(400, 6)) * [0.3, 0.2, 0.1, 0.05, 0.02, 0.01] + 0.2)
    algorithm = PrivateSketch(**BUDGET | {"epsilon": 1e9}, sketch_size=6, clip=1.0, horizon=400, center=center)
    release = sp.Stream(algorithm, row_norm=1.0, seed=0, regret=None).push_many(rows).releases[-1]
    exact = np.cov(rows.T, bias=True) * 400 if center else rows.T @ rows
    values = np.linalg.eigvalsh(exact)
    np.testing.assert_allclose(release.eigenvalues, values[:-3:-1], rtol=0.02)
    assert release.subspace.captured(exact) > 0.998 * values[-2:].sum()
    assert release.details["predicted_captured"] == pytest.approx(1.0, abs=1e-3)
    if center:
        np.testing.assert_allclose(release.mean, rows.mean(axis=0), atol=1e-3)


def test_releases_are_few_and_say_what_they_cannot() -> None:
    algorithm = PrivateSketch(**BUDGET, horizon=1000)
    assert (algorithm.release_every, PrivateSketch(**BUDGET).release_every) == (63, 1024)
    rows = np.random.default_rng(0).normal(size=(1000, 40)) / 10.0
    releases = sp.Stream(algorithm, row_norm=1.0, seed=0).push_many(rows).releases
    assert len(releases) == 16
    assert releases[-1].n_clear is None
    assert "direction_quality" in releases[-1].details["approximate"]
    endless = PrivateSketch(**BUDGET).start(40 + 1, sp.Randomness())
    assert endless.rows_left == 2**29  # up to which sums are exact


def test_releases_do_not_depend_on_the_number_of_threads() -> None:
    rows, found = np.random.default_rng(0).normal(size=(300, 600)) / 25.0, []
    for threads, single in ((1, False), (4, False), (4, True)):
        with threadpoolctl.threadpool_limits(threads, user_api="blas"):
            algorithm = PrivateSketch(**BUDGET, release_every=300)
            stream = sp.Stream(algorithm, row_norm=1.0, seed=1, regret=None)
            for block in rows[:, None] if single else (rows,):
                stream.push_many(block)
        assert stream.release is not None
        found.append(stream.release.subspace.basis.tobytes())
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"sketch_size": 2}, "sketch_size=2"), ({"sketch_size": 0}, "sketch_size=0"), ({"clip": 1.5}, "clip=1.5"),
        ({"clip": 0.0}, "clip=0"), ({"horizon": 2**29 + 1}, "horizon="), ({"center": "no"}, "center='no'"),
    ],
)  # fmt: skip
def test_parameters_outside_their_domain(parameters: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadParameterError, match=problem):
        PrivateSketch(**BUDGET, **parameters)


def test_a_sketch_has_at_most_all_features() -> None:
    with pytest.raises(BadParameterError, match=r"sketch_size=9: expected at most the number of features, 8"):
        PrivateSketch(**BUDGET, sketch_size=9).start(9)
    assert PrivateSketch(**BUDGET).shape(8)[0] == 8


@pytest.mark.ci
@pytest.mark.parametrize("center", [False, True])
def test_captured_shares_of_many_features(center: bool) -> None:
    """768 features at epsilon = 1. Shares of five draws differ by less than .01."""
    d, k = 768, 10
    directions, values = spectrum(d, 1)
    rng = np.random.default_rng(1)
    rows = (rng.normal(size=(20_000, d)) * np.sqrt(values)) @ directions.T
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    for releases, least in ((1, 0.92), (16, 0.86)):
        algorithm = PrivateSketch(
            n_components=k, epsilon=1.0, horizon=20_000, release_every=20_000 // releases, center=center
        )
        release = sp.Stream(algorithm, row_norm=1.0, seed=1, regret=None).push_many(rows).releases[-1]
        shares = (directions.T @ release.subspace.basis) ** 2
        captured = float(values @ shares.sum(axis=1)) / values[:k].sum()
        assert captured >= least
        assert release.details["predicted_captured"] == pytest.approx(captured, abs=0.02)
