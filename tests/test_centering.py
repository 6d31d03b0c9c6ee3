"""Gram matrices about the mean: joint sensitivity, post-processing, regret by losses, and who refuses."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from golden_cases import STREAMS

import streampca as sp
from streampca.errors import BadRowError
from streampca.linalg.centering import CONSTANT, MEAN_WEIGHT, MeanNoise, centered, joint_factor, with_constant
from streampca.linalg.lattice import STEP, GramSum, onto_ball
from streampca.linalg.svec import pack_entries, svec, svec_size, unpack_entries, unsvec
from streampca.privacy.budget import Budget
from streampca.processors.rewards import RewardSum, reward_scale
from streampca.release.scoring import Scoring, score
from streampca.stream import replay

BUDGET: dict[str, Any] = {"n_components": 2, "epsilon": 1.0, "delta": 1e-6}


def some_rows(n: int, d: int = 5) -> np.ndarray:
    """Rows whose mean is longer than their deviations from it."""
    shift = np.array([0.1, 0.0, -0.2, 0.0, 0.45])[:d]
    return np.random.default_rng(3).normal(size=(n, d)) * np.array([0.3, 0.2, 0.1, 0.05, 0.05])[:d] + shift


def moved(a: np.ndarray, b: np.ndarray, weight: float) -> float:
    """How far replacing a row by another moves what is released jointly."""
    return float(np.hypot(np.linalg.norm(np.outer(a, a) - np.outer(b, b)), weight * np.linalg.norm(a - b)))


# -- sensitivity ------------------------------------------------------------------------


@pytest.mark.parametrize("weight", [0.1, MEAN_WEIGHT, 1.0, 2.0**0.5, 1.7, 3.0])
def test_the_joint_sensitivity_is_met_and_never_exceeded(weight: float) -> None:
    zero_out, replaced = joint_factor(replace=False, weight=weight), 2**0.5 * joint_factor(replace=True, weight=weight)
    rng = np.random.default_rng(0)
    for a, b in rng.normal(size=(2000, 2, 3)):
        lengths = rng.uniform(size=2) ** 0.1
        x, y = a / np.linalg.norm(a) * lengths[0], b / np.linalg.norm(b) * lengths[1]
        assert moved(x, 0 * x, weight) <= zero_out + 1e-12
        assert moved(x, y, weight) <= replaced + 1e-12
    unit, cosine = np.array([1.0, 0.0]), max(-1.0, -0.5 * weight**2)
    assert moved(unit, 0 * unit, weight) == pytest.approx(zero_out, rel=1e-12)
    assert moved(unit, np.array([cosine, (1.0 - cosine**2) ** 0.5]), weight) == pytest.approx(replaced, rel=1e-12)


def test_algorithms_calibrate_for_it() -> None:
    """The noise of rows with the constant, against that of rows alone; and the constant's own entry never moves."""
    assert pytest.approx(0.25, rel=1e-5) == MEAN_WEIGHT**2
    assert int(CONSTANT / STEP) == CONSTANT / STEP
    for adjacency, factor in (("zero-out", 1.25**0.5), ("replace", 1.125)):
        given: dict[str, Any] = {**BUDGET, "adjacency": adjacency, "release_every": 1, "center": False}
        window = {**given, "window": 20, "release_every": 5}
        for algorithm in (
            sp.PrivateFPL(**given, horizon=100),
            sp.PrivateFPL(**given),
            sp.PrivateFPL(**given, horizon=100, noise=sp.Tree(discrete=True)),
            *(sp.SlidingWindowPCA(**window, method=method) for method in ("ring", "histogram", "smoothed")),
        ):
            ratio = replace(algorithm, center=True).noise_std(20) / algorithm.noise_std(20)  # type: ignore[attr-defined]
            assert ratio == pytest.approx(factor, rel=1e-5), algorithm
        gaussian: dict[str, Any] = {**BUDGET, "adjacency": adjacency}
        mechanism = sp.GaussianCovariance(**gaussian, center=False)
        assert sp.GaussianCovariance(**gaussian, center=True).sigma == pytest.approx(factor * mechanism.sigma, rel=1e-5)
        assert Budget(1.0, 1e-6, adjacency).sensitivity(center=False) == Budget(1.0, 1e-6, adjacency).sensitivity()
    a, b = (with_constant(onto_ball(row[None])) for row in (np.array([0.6, 0.8]), np.zeros(2)))
    change = svec(a.T @ a) - svec(b.T @ b)
    assert np.linalg.norm(change) == pytest.approx(1.25**0.5, rel=1e-5)
    assert change[-1] == 0.0


# -- the matrix about the mean ----------------------------------------------------------


def test_the_bias_of_the_mean_is_taken_off() -> None:
    d, n, std = 3, 40, 9.0
    rows = with_constant(some_rows(n, d))
    exact, size = pack_entries(rows.T @ rows), svec_size(d + 1)
    plain = centered(exact, n, 0.0)
    np.testing.assert_allclose(unpack_entries(plain.packed, d), n * np.cov(rows[:, :d].T, bias=True), atol=1e-12)
    np.testing.assert_allclose(plain.mean, rows[:, :d].mean(axis=0), atol=1e-12)
    rng = np.random.default_rng(1)
    noise = [pack_entries(unsvec(std * rng.normal(size=size), d + 1)) for _ in range(4000)]
    errors = np.array([centered(exact + each, n, std).packed - plain.packed for each in noise])
    assert np.abs(errors.mean(axis=0) / (errors.std(axis=0) / 4000**0.5)).max() < 4.5
    bias = (std / MEAN_WEIGHT) ** 2 / n  # what is left without the correction
    assert bias > 10.0 * errors.std(axis=0).max() / 4000**0.5


def test_the_mean_in_play_is_shrunk_and_stays_in_the_ball() -> None:
    d, n = 20, 50
    rng, rows = np.random.default_rng(0), with_constant(np.zeros((n, d)))
    exact = pack_entries(rows.T @ rows)
    lengths = []
    for std in (0.0, 1.0, 300.0):
        found = [centered(exact + pack_entries(unsvec(std * rng.normal(size=231), 21)), n, std) for _ in range(50)]
        lengths.append(np.mean([np.linalg.norm(each.mean) for each in found]))
        assert max(np.linalg.norm(each.mean) for each in found) <= 1.0 + 1e-12
        assert all(std <= each.noise_std <= std * (1.0 + 4.0 / MEAN_WEIGHT**2) ** 0.5 for each in found)
    raw = np.sqrt(d) / MEAN_WEIGHT / n  # length of the noise of a mean that is not shrunk, at std = 1
    assert lengths[0] == 0.0
    assert 0.0 < lengths[1] < 0.3 * raw


@pytest.mark.parametrize("length", [0.0, 0.2, 0.6, 1.2])
def test_the_noise_of_the_mean_is_that_of_its_length_before_it_was_shrunk(length: float) -> None:
    d, own, n = 9, 0.05, 400  # standard deviation of each entry of the mean
    raw = length * np.array([0.6, 0.8, *[0.0] * (d - 2)])
    mean = raw * max(0.0, 1.0 - d * own**2 / length**2) if length else raw  # as `centered` shrinks it
    std, noise = MeanNoise.of(mean, own * MEAN_WEIGHT * n, n)
    bias = d * own**2
    unbiased = min(1.0, max(0.0, length**2 - bias) ** 0.5) if length else 0.0
    np.testing.assert_allclose(noise.ratio, unbiased / MEAN_WEIGHT * raw / (length or 1.0), atol=1e-12)
    most = max(length, bias**0.5)  # a mean shrunk to zero was at most as long as its noise
    assert noise.most == pytest.approx(min(1.0, most + 2.0 * own) / MEAN_WEIGHT)
    assert std == pytest.approx(np.hypot(own * MEAN_WEIGHT * n, 2**0.5 * own**2 * n))


def test_the_stated_noise_covers_every_direction() -> None:
    d, n, std = 4, 10_000, 1.0
    rows = with_constant(np.tile([0.5, 0.0, 0.0, 0.0], (n, 1)))
    exact, rng = pack_entries(rows.T @ rows), np.random.default_rng(2)
    found = [centered(exact + pack_entries(unsvec(std * rng.normal(size=15), 5)), n, std) for _ in range(4000)]
    entries = np.array([unpack_entries(each.packed, d) for each in found])
    across, along = entries[:, 1, 1].std(), entries[:, 0, 0].std()
    assert across == pytest.approx(std, rel=0.05)
    assert along == pytest.approx(std * (1.0 + 4.0 * 0.25 / MEAN_WEIGHT**2) ** 0.5, rel=0.05)
    assert found[0].noise_std == pytest.approx(along, rel=0.05)


# -- streams ----------------------------------------------------------------------------

CENTERED = [
    pytest.param(made(), id=name)
    for name, (made, options) in STREAMS.items()
    if "center" in name and options == {"row_norm": 1.0} and not name.startswith("users")
]


@pytest.mark.parametrize("algorithm", CENTERED)
def test_rows_one_by_one_and_in_blocks_give_the_same_bits(algorithm: Any) -> None:
    rows = some_rows(100)
    rows[11, 2] = np.nan
    given = {"seed": 1, "on_bad_row": "zero", "row_norm": 1.5, "features": list("abcde")}
    one, many, restored = (sp.Stream(algorithm, **given) for _ in range(3))  # type: ignore[arg-type]
    steps = [one.push(row) for row in rows]
    blocks = [many.push_many(rows[start : start + 30]) for start in range(0, 100, 30)]
    assert [step.reward for step in steps] == np.concatenate([block.rewards for block in blocks]).tolist()
    made = [step.release for step in steps if step.release is not None]
    again = [release for block in blocks for release in block.releases]
    assert [each.to_json() for each in made] == [each.to_json() for each in again]
    assert one.regret.now() == many.regret.now()
    replay.restore(restored.engine, replay.saved(many.engine)["state"], many.release, copied=False)
    assert restored.regret.now() == many.regret.now()
    assert restored.push(rows[0]).reward == one.push(rows[0]).reward


@pytest.mark.parametrize("algorithm", [one for one in CENTERED if not one.id.startswith("fpl")])
def test_every_algorithm_centers_what_it_sums(algorithm: Any) -> None:
    """With hardly any noise, against the rows themselves."""
    every, loud = algorithm.release_every, {"epsilon": 1e7}
    if isinstance(algorithm, sp.Tumbling):
        loud = {"mechanism": replace(algorithm.mechanism, **loud)}
    rows = onto_ball(some_rows(200))
    release = sp.Stream(replace(algorithm, **loud), row_norm=1.0, seed=1).push_many(rows).releases[-1]
    weights = np.zeros(200)
    if "decay_per_release" in release.details:
        weights = np.repeat((1.0 - every / 20) ** np.arange(200 / every)[::-1], every)
    else:
        count = release.details["count"]
        assert count == {"PerturbedLeader": 200, "Tumbling": 40}.get(type(algorithm).__name__, count)
        weights[-count:] = 1.0
    assert release.details["count"] == pytest.approx(weights.sum())
    about = rows - weights @ rows / weights.sum()
    np.testing.assert_allclose(release.gram, (about.T * weights) @ about, atol=0.05)
    np.testing.assert_allclose(release.mean, weights @ rows / weights.sum(), atol=0.01)
    if release.smoothed is not None:
        np.testing.assert_allclose(release.smoothed, release.gram, atol=0.05)


def test_regret_is_by_losses() -> None:
    rows = some_rows(120)
    stream = sp.Stream(sp.PrivateFPL(**BUDGET, release_every=3, center=True), seed=2, row_norm=2.0)
    rows_seen, losses, basis, mean = onto_ball(rows / 2.0) * 2.0, [], np.eye(5, 2), np.zeros(5)
    for row, seen in zip(rows, rows_seen, strict=True):
        step = stream.push(row)
        about = seen - mean
        losses.append(np.sum((about - basis @ (basis.T @ about)) ** 2))
        assert step.reward == pytest.approx(seen @ seen - losses[-1], abs=1e-6)
        if step.release is not None:
            basis, mean = step.release.subspace.basis, step.release.mean
    record, about = stream.regret.now(), rows_seen - rows_seen.mean(axis=0)
    least = np.linalg.eigvalsh(about.T @ about)[:-2].sum()
    assert record.opt == pytest.approx(np.sum(rows_seen**2) - least, rel=1e-9)
    assert record.regret == pytest.approx(sum(losses) - least, rel=1e-6)
    assert record.bound is None
    assert record.captured == pytest.approx(
        stream.engine.subspace().captured(about.T @ about) / (np.sum(about**2) - least)
    )
    np.testing.assert_allclose(stream.regret.exact_gram() * 4.0, about.T @ about, atol=1e-9)
    plain = sp.Stream(sp.PrivateFPL(center=False, **BUDGET, release_every=3), seed=2, row_norm=2.0)
    kept = plain.push_many(rows).rewards
    assert plain.regret.now().opt == pytest.approx(np.linalg.eigvalsh(rows_seen.T @ rows_seen)[-2:].sum())
    assert kept[0] == pytest.approx(np.sum(rows_seen[0, :2] ** 2), abs=1e-6)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_published_rewards_move_by_no_more_than_one_part(adjacency: Any) -> None:
    """Over rows and means at their worst: what the weight of a reward rests on, and that no less would do."""
    moves = []
    for length in (1.0, 0.4):
        scoring = Scoring.of(np.eye(3, 1), np.array([0.3, length, 0.0]) / np.hypot(1.0, 0.3))
        for row in ([0.0, 1.0, 0.0], [0.0, -1.0, 0.0], [0.7, 0.7, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]):
            rows = with_constant(onto_ball(np.array([row])))
            sums = RewardSum(0, scoring, reward_scale(center=True, replace=adjacency == "replace")).add(rows)
            moves.append(sums.total / 2.0**30)
            exact = score(rows, scoring)[0]
            assert sums.noisy(0.0, 1e-9)["sum"] == pytest.approx(exact, abs=1e-8)
    if adjacency == "zero-out":
        assert 0.9 < np.abs(moves).max() <= 1.0
    else:
        assert 0.85 < max(moves) - min(moves) <= 1.0
    algorithm = sp.PrivateFPL(
        release_every=1, **BUDGET, adjacency=adjacency, horizon=9, noise="tree", publish_regret=True, center=True
    )
    joint = Budget(1.0, 1e-6, adjacency).sensitivity(center=True)
    plain = sp.PrivateFPL(release_every=1, **BUDGET, adjacency=adjacency, horizon=9, noise="tree", center=True)
    assert algorithm.noise_std(9) / plain.noise_std(9) == pytest.approx((joint**2 + 0.25) ** 0.5 / joint)


def test_blocks_of_centered_rows() -> None:
    rows = some_rows(60)
    algorithm = sp.PrivateFPL(**BUDGET, release_every=20, center=True)
    one, other = (sp.Stream(algorithm, row_norm=1.0, seed=1, features=list("abcde")) for _ in range(2))
    single = one.push_many(rows)
    steps = [other.push_block(block) for block in other.leaves().blocks([rows], 0)]
    assert [step.release.to_json() for step in steps] == [each.to_json() for each in single.releases]  # type: ignore[union-attr]
    assert sum(step.reward for step in steps) == pytest.approx(single.rewards.sum(), rel=1e-9)
    assert other.regret.now().opt == one.regret.now().opt
    without = np.append(onto_ball(rows[:1]), [[0.0]], axis=1)  # its constant
    with pytest.raises(BadRowError):
        one.engine.processor.absorb(without)
    with pytest.raises(BadRowError):
        one.engine.processor.absorb_gram(1, *GramSum.of(without).high_low())


def test_users_are_centered_with_their_capped_rows_as_zeros() -> None:
    algorithm = sp.PrivateFPL(release_every=1, center=False, **BUDGET, horizon=40, max_rows_per_user=2, noise="tree")
    ratio = replace(algorithm, center=True).noise_std(40) / algorithm.noise_std(40)
    assert ratio == pytest.approx(1.25**0.5, rel=1e-5)
    rows, names = some_rows(40), [f"u{i % 10}" for i in range(40)]
    users = sp.UserStream(replace(algorithm, center=True), row_norm=1.0, seed=1)
    users.push_many(rows, users=names)
    kept = onto_ball(rows) * (np.arange(40) < 20)[:, None]  # two rows of each of ten users
    about = kept - kept.mean(axis=0)
    np.testing.assert_allclose(users.regret.exact_gram(), about.T @ about, atol=1e-9)
