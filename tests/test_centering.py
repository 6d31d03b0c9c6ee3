"""Gram matrices about the mean: joint sensitivity, post-processing, regret by losses, and who refuses."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from golden_cases import STREAMS
from hypothesis import given, settings, strategies as st

import streampca as sp
from streampca.errors import BadRowError
from streampca.linalg.centering import (
    CONSTANT,
    JOINT_FACTOR,
    MEAN_WEIGHT,
    MeanNoise,
    centered,
    counted,
    least_count,
    with_constant,
)
from streampca.linalg.lattice import STEP, GramSum, onto_ball
from streampca.linalg.svec import pack_entries, svec, svec_size, unpack_entries, unsvec
from streampca.privacy.budget import Budget
from streampca.processors.private_fpl import RewardSum, reward_scale
from streampca.release.scoring import Scoring, score
from streampca.rows.people import NOBODY
from streampca.stream import replay

BUDGET: dict[str, Any] = {"n_components": 2, "epsilon": 1.0, "delta": 1e-6}


def some_rows(n: int, d: int = 5) -> np.ndarray:
    """Rows whose mean is longer than their deviations from it."""
    shift = np.array([0.1, 0.0, -0.2, 0.0, 0.45])[:d]
    return np.random.default_rng(3).normal(size=(n, d)) * np.array([0.3, 0.2, 0.1, 0.05, 0.05])[:d] + shift


def outer(row: np.ndarray | None, c: float = CONSTANT) -> np.ndarray:
    """svec of the outer product of a longer row; zeros for an absent one."""
    longer = np.zeros(4) if row is None else np.append(row, c)
    return svec(np.outer(longer, longer))


# -- sensitivity ------------------------------------------------------------------------


def test_the_sensitivity_is_met_and_never_exceeded() -> None:
    """By search over pairs of rows: absent, inside the ball and on it."""
    rng, worst = np.random.default_rng(0), np.zeros(3)
    for pair in rng.normal(size=(3000, 2, 3)):
        x, y = (row / np.linalg.norm(row) * rng.uniform() ** 0.1 for row in pair)
        moves = outer(x), outer(x) - outer(np.zeros(3)), outer(x) - outer(y)
        worst = np.maximum(worst, [np.linalg.norm(move) for move in moves])
    bounds = JOINT_FACTOR, (1.0 + 2.0 * CONSTANT**2) ** 0.5, 2.0**0.5 * JOINT_FACTOR
    assert (worst <= np.array(bounds) + 1e-12).all()
    first, other = np.array([1.0, 0.0, 0.0]), np.array([-(CONSTANT**2), (1.0 - CONSTANT**4) ** 0.5, 0.0])
    met = outer(first), outer(first) - outer(np.zeros(3)), outer(first) - outer(other)
    assert [np.linalg.norm(move) for move in met] == pytest.approx(bounds, rel=1e-12)
    # A sensitivity without the share of the count is refuted: 1.118 for 1.125.
    assert np.linalg.norm(outer(first)) > 1.006 * bounds[1]


def test_algorithms_calibrate_for_it() -> None:
    """The noise of rows with the constant, against that of rows alone."""
    assert pytest.approx(0.25, rel=1e-5) == MEAN_WEIGHT**2
    assert pytest.approx(1.125, rel=1e-6) == JOINT_FACTOR
    assert int(CONSTANT / STEP) == CONSTANT / STEP
    for adjacency in ("zero-out", "replace"):
        given: dict[str, Any] = {**BUDGET, "adjacency": adjacency, "release_every": 1, "center": False}
        window = {**given, "window": 20, "release_every": 5}
        for algorithm in (
            sp.PrivateFPL(**given, horizon=100),
            sp.PrivateFPL(**given),
            sp.PrivateFPL(**given, horizon=100, noise=sp.Tree(discrete=True)),
            *(sp.SlidingWindowPCA(**window, method=method) for method in ("ring", "histogram", "smoothed")),
        ):
            ratio = replace(algorithm, center=True).noise_std(20) / algorithm.noise_std(20)  # type: ignore[attr-defined]
            assert ratio == pytest.approx(JOINT_FACTOR, rel=1e-5), algorithm
        gaussian: dict[str, Any] = {**BUDGET, "adjacency": adjacency}
        ratio = sp.GaussianCovariance(**gaussian).sigma / sp.GaussianCovariance(**gaussian, center=False).sigma
        assert ratio == pytest.approx(JOINT_FACTOR, rel=1e-5)
        assert Budget(1.0, 1e-6, adjacency).sensitivity(center=False) == Budget(1.0, 1e-6, adjacency).sensitivity()


# -- absent rows ------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    places=st.sets(st.integers(0, 59), max_size=59), cut=st.integers(1, 59), every=st.sampled_from([1, 3, 20]),
    bad=st.sampled_from([np.nan, np.inf, -np.inf]),
)  # fmt: skip
def test_bad_rows_leave_the_sums_equal_to_the_bit(places: set[int], cut: int, every: int, bad: float) -> None:
    """Anywhere among the rows, and under the same horizon: the exact sum is that of the others."""
    rows = some_rows(60)
    rows[sorted(places), 1] = bad
    given: dict[str, Any] = {"seed": 1, "row_norm": 1.0, "features": list("abcde")}
    algorithm = sp.PrivateFPL(**BUDGET, horizon=60, release_every=every, center=True)
    whole, others = sp.Stream(algorithm, **given), sp.Stream(algorithm, **given)
    for part in (rows[:cut], rows[cut:]):
        whole.push_many(part)
    kept = np.delete(rows, sorted(places), axis=0)
    others.push_many(kept)
    sums = [stream.engine.processor.curator_gram() for stream in (whole, others)]
    assert sums[0].parts.tobytes() == sums[1].parts.tobytes()  # type: ignore[union-attr]
    assert sums[0].packed()[-1] == (60 - len(places)) * CONSTANT**2  # type: ignore[union-attr]


def test_every_kind_of_absent_row_is_the_zero_vector() -> None:
    """Bad rows one by one and in blocks, rows past a budget, and of a warm-up; a row in the middle is present."""
    rows, names = some_rows(12), list("abcde")
    fpl = sp.PrivateFPL(**BUDGET, horizon=12, release_every=4, center=True)

    def corner(stream: Any) -> float:
        return float(stream.engine.processor.curator_gram().packed()[-1] / CONSTANT**2)

    for push in ("push", "push_many"):
        stream = sp.Stream(fpl, row_norm=1.0, seed=1, features=names)
        given: list[Any] = [*rows.tolist()[:9], ["x"] * 5, [None] * 5, [0.0] * 5]
        _ = stream.push_many(given) if push == "push_many" else [stream.push(row) for row in given]
        assert corner(stream) == 10
        assert stream.admission.bad_rows == 2
    for kind in (np.ndarray, list, pd.DataFrame):
        people = sp.Stream(replace(fpl, unit=sp.Person(budget=9.0, max_rows=2)), row_norm=1.0, seed=1, features=names)
        table = {np.ndarray: rows, list: rows.tolist(), pd.DataFrame: pd.DataFrame(rows, columns=names)}[kind]
        people.push_many(table, person=["one"] * 6 + ["two"] * 6)
        assert corner(people) == 4
        assert people.admission.bad_rows == 0
    people = sp.Stream(replace(fpl, unit=sp.Person()), row_norm=1.0, seed=1, features=names)
    for row in rows:
        people.push(row, "one")
    assert 1.0 < corner(people) == pytest.approx(people.engine.now.people.weight, abs=1e-4)
    assert people.engine.now.people.refused > 0
    warm = sp.Stream(replace(fpl, horizon=40), seed=1, features=names, bounds="private", warmup=16)
    warm.push_many(some_rows(40))
    assert corner(warm) == 24


def test_the_count_is_bounded_by_the_public_number_of_rows_and_by_its_noise() -> None:
    std, unit = 2.0, CONSTANT**2
    assert counted(120 * unit, 100, std) == (120.0, 100.0)
    assert counted(90 * unit, 100, std) == (90.0, 90.0)
    assert counted(-5 * unit, 100, std) == (-5.0, 32.0)
    assert counted(5 * unit, 20, std) == (5.0, 20.0)  # fewer rows than the least count: an early release
    assert counted(0.0, 3, 0.0) == (0.0, 1.0)
    assert least_count(std) == 32.0


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3])
def test_the_count_of_a_release_is_that_of_the_good_rows(share: float) -> None:
    """Of 60 counts the mean of the noisy one is off by 5 standard errors with probability 6e-7."""
    n, found = 4000, []
    bad = np.arange(n) < share * n
    rows = np.where(bad[:, None], np.nan, [0.5, 0.0, 0.3])
    algorithm = sp.PrivateFPL(**BUDGET, horizon=n, release_every=n, center=True)
    for seed in range(60):
        stream = sp.Stream(algorithm, row_norm=1.0, seed=seed, features=3, regret=None)
        details = stream.push_many(rows).releases[-1].details
        found.append(details["noisy_count"])
        assert details["count"] == min(n, details["noisy_count"])
        std = details["joint_noise_std"]
        assert np.abs(np.array(details["sums"]) - (~bad).sum() * np.array([0.5, 0.0, 0.3])).max() < 10.0 * std
    assert abs(np.mean(found) - (~bad).sum()) < 5.0 * 8.0 * std / 60**0.5
    assert 5.0 < np.std(found) / std < 11.0  # 8; outside with probability 3e-4


def captured(rows: np.ndarray, seed: int) -> float:
    """Share of the best subspace of the good rows that one release of all rows captures."""
    n, d = rows.shape
    algorithm = sp.PrivateFPL(**BUDGET, horizon=n, release_every=n, center=True)
    stream = sp.Stream(algorithm, row_norm=1.0, seed=seed, features=d, regret=None)
    release = stream.push_many(rows).releases[-1]
    about = onto_ball(rows[~np.isnan(rows).any(axis=1)])
    about -= about.mean(axis=0)
    return release.subspace.captured(about.T @ about) / float(np.linalg.eigvalsh(about.T @ about)[-2:].sum())


def test_missing_rows_do_not_bend_the_components() -> None:
    """20 000 rows of 6 columns with a mean of length .39, of which 8.7 % miss a value: as if they were not there."""
    rng = np.random.default_rng(0)
    turned = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    mean = 0.39 * np.array([0.0, 0.0, 1.0, -1.0, 1.0, 0.5]) / 3.25**0.5
    rows = rng.normal(size=(20_000, 6)) * 0.16 * np.array([1.0, 0.7, 0.35, 0.3, 0.25, 0.2]) @ turned + mean
    missing = rng.uniform(size=20_000) < 0.087
    with_missing, in_the_middle = rows.copy(), rows.copy()
    with_missing[missing, 2], in_the_middle[missing] = np.nan, 0.0
    assert np.median([captured(with_missing, seed) for seed in range(21)]) >= 0.995
    assert np.median([captured(rows[~missing], seed) for seed in range(21)]) >= 0.995
    # Rows in the middle of the ranges, with the constant, pull a component toward the mean.
    algorithm = sp.PrivateFPL(**BUDGET, horizon=20_000, release_every=20_000, center=True)
    about = rows[~missing] - rows[~missing].mean(axis=0)
    exact = about.T @ about
    bent = [
        sp.Stream(algorithm, row_norm=1.0, seed=seed, regret=None).push_many(in_the_middle).releases[-1]
        for seed in range(21)
    ]
    shares = [release.subspace.captured(exact) / np.linalg.eigvalsh(exact)[-2:].sum() for release in bent]
    assert np.median(shares) < 0.96


def test_missing_flights_do_not_move_the_mean() -> None:
    """Canceled flights miss their times; the mean distance of all 336 776 is 1040, that of the complete ones 1048."""
    source = sp.sources.flights.rows(("distance", "air_time", "arr_delay", "dep_delay"))
    rows, close = np.concatenate(list(source.blocks())), 0
    algorithm = sp.PrivateFPL(**BUDGET, horizon=len(rows), release_every=len(rows), center=True)
    for seed in range(8):
        given = {"bounds": source.bounds, "features": source.features, "regret": None}
        release = sp.Stream(algorithm, seed=seed, **given).push_many(rows).releases[-1]  # type: ignore[arg-type]
        second = release.components[1]
        close += abs(release.mean[0] - 1048.4) < 5.0 and bool((second[2:] * second[1] > 0.0).all())
    assert close >= 7


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
    for each in noise:
        each[-1] = 0.0  # the noise of the count has a bias of its own, of second order
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
        assert all(std <= each.noise_std <= std * (1.0 + 2.0 / MEAN_WEIGHT**2) for each in found)
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
    mean = np.array([0.5, 0.3, 0.0, 0.0])
    rows = with_constant(np.tile(mean, (n, 1)))
    exact, rng = pack_entries(rows.T @ rows), np.random.default_rng(2)
    drawn = [exact + pack_entries(unsvec(std * rng.normal(size=15), 5)) for _ in range(4000)]
    found = [centered(each, 2 * n, std) for each in drawn]  # half of the rows are absent
    entries = np.array([unpack_entries(each.packed, d) for each in found])
    unit, ratio = mean / np.linalg.norm(mean), mean / MEAN_WEIGHT
    along = (entries @ unit @ unit).std()
    assert entries[:, 2, 2].std() == pytest.approx(std, rel=0.05)
    assert along == pytest.approx(std * (1.0 + 8.0 * mean @ mean), rel=0.05)
    assert found[0].noise_std == pytest.approx(along, rel=0.05)
    a, b = ratio[:2] ** 2
    assert entries[:, 0, 0].std() == pytest.approx(std * (1.0 + 2.0 * a), rel=0.05)
    assert entries[:, 0, 1].std() == pytest.approx(std * (0.5 + a + b + 4.0 * a * b) ** 0.5, rel=0.05)
    # Of good rows only, the count is cut off at their public number: less noise.
    capped = np.array([unpack_entries(centered(each, n, std).packed, d) for each in drawn])
    assert (capped @ unit @ unit).std() < 0.9 * along


# -- streams ----------------------------------------------------------------------------

CENTERED = [
    pytest.param(made(), id=name)
    for name, (made, options) in STREAMS.items()
    if "center" in name and options == {"row_norm": 1.0} and not name.startswith("people")
]


@pytest.mark.parametrize("algorithm", CENTERED)
def test_rows_one_by_one_and_in_blocks_give_the_same_bits(algorithm: Any) -> None:
    rows = some_rows(100)
    rows[11, 2] = np.nan
    given = {"seed": 1, "row_norm": 1.5, "features": list("abcde")}
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


@pytest.mark.parametrize("algorithm", [one for one in CENTERED if not one.id.startswith(("fpl", "sketch"))])
def test_every_algorithm_centers_what_it_sums(algorithm: Any) -> None:
    """With hardly any noise, against the rows themselves (of a sketch: tests/processors)."""
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
        expected = {"PerturbedLeader": 200, "Tumbling": 40}.get(type(algorithm).__name__, round(count))
        weights[-expected:] = 1.0
    assert release.details["count"] == pytest.approx(weights.sum(), abs=0.05)
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
        for row in (None, [0.0, 1.0, 0.0], [0.0, -1.0, 0.0], [0.7, 0.7, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]):
            rows = with_constant(onto_ball(np.array([row or [0.0] * 3])), np.array([row is None]))
            sums = RewardSum(0, scoring, reward_scale(center=True, replace=adjacency == "replace")).add(rows)
            moves.append(sums.total / 2.0**30)
            exact = score(rows, scoring)[0]
            assert row or exact == sums.total == 0
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
    """Of which some are bad; rows without the right constant are refused."""
    rows = some_rows(60)
    rows[[3, 30, 31, 59], 2] = np.nan
    algorithm = sp.PrivateFPL(**BUDGET, release_every=20, center=True)
    one, other = (sp.Stream(algorithm, row_norm=1.0, seed=1, features=list("abcde")) for _ in range(2))
    single = one.push_many(rows)
    steps = [other.push_block(block) for block in other.leaves().blocks([rows], 0)]
    assert [step.release.to_json() for step in steps] == [each.to_json() for each in single.releases]  # type: ignore[union-attr]
    assert sum(step.reward for step in steps) == pytest.approx(single.rewards.sum(), rel=1e-9)
    assert other.regret.now().opt == one.regret.now().opt
    about = onto_ball(rows[np.isfinite(rows).all(axis=1)])
    about = about - about.mean(axis=0)
    np.testing.assert_allclose(other.regret.exact_gram(), about.T @ about, atol=1e-9)
    record = other.regret.now()
    assert (record.t, record.count, record.average) == (60, 56, record.regret / 56)
    without = np.append(onto_ball(rows[:1]), [[0.0]], axis=1)  # its constant
    twice = np.zeros((1, 6))
    twice[0, -1] = 2.0 * CONSTANT
    for wrong in (without, twice):
        with pytest.raises(BadRowError):
            one.engine.processor.absorb(wrong)
        with pytest.raises(BadRowError):
            one.engine.processor.absorb_gram(1, *GramSum.of(wrong).high_low())
    one.engine.processor.absorb(np.zeros((1, 6)))  # an absent row


def test_people_are_centered_with_the_weights_of_their_rows() -> None:
    algorithm = sp.PrivateFPL(release_every=1, center=False, **BUDGET, horizon=40, unit=sp.Person(), noise="tree")
    ratio = replace(algorithm, center=True).noise_std(40) / algorithm.noise_std(40)
    assert ratio == pytest.approx(JOINT_FACTOR, rel=1e-5)
    rows, names = some_rows(40), [f"u{i % 10}" for i in range(40)]
    people = sp.Stream(replace(algorithm, center=True), row_norm=1.0, seed=1)
    people.push_many(rows, person=names)
    longer = np.hstack([onto_ball(rows), np.full((40, 1), CONSTANT)])
    budgets = replace(algorithm, center=True).budgets(b"key")
    assert budgets is not None
    counted, _ = budgets.weighted(NOBODY, longer, [name.encode() for name in names], range(1, 41))
    weights = counted[:, -1] ** 2 / CONSTANT**2
    assert weights.min() < 0.9
    mean = np.average(onto_ball(rows), axis=0, weights=weights)
    about = (onto_ball(rows) - mean) * np.sqrt(weights)[:, None]
    np.testing.assert_allclose(people.regret.exact_gram(), about.T @ about, atol=1e-4)
