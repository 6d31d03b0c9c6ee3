"""AdaptiveCovariance: what one row moves, what it gains, and where it does not adapt."""

import math

import numpy as np
import pytest

from streampca.linalg.lattice import GramSum, onto_ball
from streampca.linalg.svec import entry_weights, svec
from streampca.mechanisms.adaptive import AdaptiveCovariance
from streampca.mechanisms.covariance import GaussianCovariance
from streampca.mechanisms.norm_maps import energy_outside
from streampca.privacy.outlet import LatticeSum, NoiseSource
from streampca.privacy.randomness import Randomness
from streampca.processors.tumbling import Tumbling
from streampca.release.release import Release

BUDGET = {"epsilon": 0.3, "delta": 1e-6}


def spikes(n, d, k, seed=0, height=30.0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) * np.sqrt(np.where(np.arange(d) < k, height, 1.0))
    return rows / np.quantile(np.linalg.norm(rows, axis=1), 0.95)


def outliers(n, d, k, share=0.05, body=0.2, seed=0):
    """Rows that are short and vary alike in all directions, but for a few long ones in a subspace."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, d)) * (body / math.sqrt(d))
    count = int(share * n)
    rows[:count] = 0.0
    long = rng.normal(size=(count, k))
    rows[:count, :k] = long / np.linalg.norm(long, axis=1, keepdims=True)
    return rows


def missed(mechanism, rows, seeds):
    """Share of the best subspace's variance that releases miss: mean and standard error."""
    rows = onto_ball(rows)
    gram = rows.T @ rows
    best = np.linalg.eigvalsh(gram)[-mechanism.n_components :].sum()
    losses = [1.0 - mechanism.release(rows, seed=seed).subspace.captured(gram) / best for seed in range(seeds)]
    return float(np.mean(losses)), float(np.std(losses, ddof=1) / math.sqrt(seeds))


# -- privacy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_the_shares_add_up_to_the_whole_budget(adjacency):
    mechanism = AdaptiveCovariance(n_components=1, adjacency=adjacency, **BUDGET)
    norms, lost, first, second, rest = mechanism.constants(5)
    moves = 1.0 if adjacency == "zero-out" else math.sqrt(2.0)
    spent = math.hypot(moves / norms, 1.0 / lost, moves / first, moves / second)
    assert spent == pytest.approx(mechanism.mu, rel=1e-12)
    assert math.hypot(moves / norms, moves / first, moves / rest) == pytest.approx(spent, rel=1e-12)
    assert mechanism.guarantee.mu == mechanism.mu == GaussianCovariance(n_components=1, **BUDGET).mu


def entries(exact):
    """What an outlet hides as a vector whose Euclidean norm is that of the sensitivity."""
    if isinstance(exact, LatticeSum):
        return exact.values
    assert isinstance(exact, GramSum)
    return exact.packed() / entry_weights(exact.n_features)


def neighbours(rows, adjacency):
    """The rows with one of them changed: long, short, zero and outside the ball."""
    rng = np.random.default_rng(1)
    for place, scale in ((0, 1.0), (1, 0.3), (2, 0.05), (3, 50.0)):
        before, after = rows.copy(), rows.copy()
        before[place] = scale * rng.normal(size=rows.shape[1]) / math.sqrt(rows.shape[1])
        after[place] = 0.0 if adjacency == "zero-out" else np.roll(before[place], 1) * rng.choice([0.2, 1.0, 5.0])
        yield before, after
    long = np.zeros_like(rows[0])
    long[0] = 1.0
    before, after = rows.copy(), rows.copy()
    before[0], after[0] = long, 0.0 if adjacency == "zero-out" else np.roll(long, 1) * 0.9
    yield before, after


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize("rows", [spikes(3000, 6, 2), 0.2 * spikes(3000, 6, 2), outliers(3000, 6, 2)])
def test_no_row_moves_all_vectors_together_by_more_than_mu(adjacency, rows, transcript):
    # Gaussian mechanisms compose adaptively: given equal outputs so far, the squared distances over sds add up.
    mechanism = AdaptiveCovariance(n_components=2, epsilon=1.0, delta=1e-6, adjacency=adjacency)
    norms, lost, *grams = mechanism.constants(6)
    most = 0.0
    for before, after in neighbours(rows, adjacency):
        hidden, released, _ = transcript(mechanism, before)
        other, _, _ = transcript(mechanism, after, released)
        stds = [norms, lost, *grams[:2]] if len(hidden) == 4 else [norms, grams[0], grams[2]]
        assert [std for _, _, std in hidden] == [std for _, _, std in other] == stds
        apart = [entries(one[1]) - entries(two[1]) for one, two in zip(hidden, other, strict=True)]
        parts = [np.linalg.norm(moved) / std for moved, std in zip(apart, stds, strict=True)]
        shares = (np.array(parts) / mechanism.mu) ** 2
        assert (shares <= np.array([0.02, 0.04, 0.30, 0.64] if len(hidden) == 4 else [0.02, 0.30, 0.68]) + 1e-9).all()
        most = max(most, float(shares.sum()))
    assert most > 0.5  # the noise is not much more than privacy needs


def test_what_is_released_depends_on_rows_through_noisy_values_only(transcript):
    mechanism = AdaptiveCovariance(n_components=2, epsilon=1.0, delta=1e-6)
    _, released, first = transcript(mechanism, spikes(3000, 6, 2))
    assert transcript(mechanism, outliers(3000, 6, 2), released)[2].to_json() == first.to_json()


# -- what it gains ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "k", "factor"),
    [(spikes(6000, 40, 3), 3, 0.8), (0.25 * spikes(6000, 40, 3), 3, 0.4), (outliers(10_000, 20, 1), 1, 0.7)],
    ids=["decaying spectrum", "short rows", "outliers"],
)
def test_it_misses_less_than_the_gaussian_mechanism(rows, k, factor):
    adaptive = missed(AdaptiveCovariance(n_components=k, **BUDGET), rows, 6)
    plain = missed(GaussianCovariance(n_components=k, **BUDGET), rows, 6)
    assert adaptive[0] < factor * plain[0]


def test_outliers_that_the_histogram_cannot_show_are_not_clipped_away():
    # 500 of 10 000 rows hold the subspace; at epsilon = 0.1 they do not stand out of the noise of their bin.
    rows = outliers(10_000, 20, 1)
    given = {"n_components": 1, "epsilon": 0.1, "delta": 1e-6}
    adaptive, plain = missed(AdaptiveCovariance(**given), rows, 10), missed(GaussianCovariance(**given), rows, 10)
    assert adaptive[0] <= plain[0] + 2.0 * math.hypot(adaptive[1], plain[1])
    assert adaptive[0] < 0.25


def test_noise_seldom_looks_like_hidden_energy():
    # All rows are in the histogram, so nothing is hidden: an alarm is false, and comes in 1 % of the releases. The
    # noise of the Gaussian mechanism, the least threshold, is half of the standard deviation of the lost energy.
    mechanism = AdaptiveCovariance(n_components=3, **BUDGET)
    rows = spikes(1000, 3, 3, height=1.0)
    rows *= np.where(np.arange(1000) < 100, 0.27, 0.06)[:, None] / np.linalg.norm(rows, axis=1)[:, None]
    found = [mechanism.release(rows, seed=seed).details for seed in range(100)]
    asked = [details for details in found if "lost_energy_radius" in details]
    assert len(asked) > 90
    assert sum(details["clip_radius"] == 1.0 for details in asked) <= 5
    assert not any(details["clip_radius"] == 1.0 for details in asked if details["lost_energy"] < 100.0)


def test_it_does_not_adapt_to_what_it_cannot_see():
    rows = spikes(200, 6, 2)
    few = missed(AdaptiveCovariance(n_components=2, **BUDGET), rows, 12)
    plain = missed(GaussianCovariance(n_components=2, **BUDGET), rows, 12)
    assert few[0] < plain[0] + 2.0 * math.hypot(few[1], plain[1])
    zero = AdaptiveCovariance(n_components=2, **BUDGET).release(np.zeros((5000, 6)), seed=0)
    assert (zero.details["clip_radius"], zero.details["map"]) == (1.0, "radius 1")
    assert zero.details["predicted_loss"] is None  # no histogram, no model


def test_a_direction_that_the_combination_lacks_is_seen():
    first = np.diag([100.0, 90.0, 1.0, 0.0])
    assert energy_outside(np.diag([100.0, 90.0, 1.0, 0.0]), first, 2) == (1.0, 1.0)
    assert energy_outside(np.diag([50.0, 45.0, 1.0, 0.0]), first, 2) == (1.0, 2.0)
    found, expected = energy_outside(np.diag([100.0, 1.0, 2.0, 0.0]), first, 2)
    assert found == 90.0
    assert expected < 1.1


# -- the release -----------------------------------------------------------------------------------


def test_the_release_says_what_was_done_and_claims_no_error_bar():
    rows = 0.25 * spikes(20_000, 10, 2)
    release = AdaptiveCovariance(n_components=2, epsilon=1.0, delta=1e-6).release(rows, seed=0)
    details = release.details
    assert release.noise_std is None
    assert 0.1 < details["clip_radius"] < 0.5
    radius = details["clip_radius"]
    squares = np.vecdot(onto_ball(rows), onto_ball(rows))
    assert abs(details["lost_energy"] - np.maximum(squares - radius**2, 0.0).sum()) < 5.0 * details["lost_energy_std"]
    assert details["released"] in ("combination", "first stage")
    assert 0.0 < details["predicted_loss"] < 0.2
    assert Release.from_json(release.to_json()).details == details
    gram = onto_ball(rows).T @ onto_ball(rows)
    assert np.linalg.norm(release.gram - gram) < 0.2 * np.linalg.norm(gram)


@pytest.mark.parametrize(("d", "k"), [(1, 1), (4, 4)])
def test_the_whole_space(d, k):
    rows = 0.3 * spikes(20_000, d, 1)
    gram, radii = onto_ball(rows).T @ onto_ball(rows), []
    for seed in range(15):
        release = AdaptiveCovariance(n_components=k, epsilon=1.0, delta=1e-6).release(rows, seed=seed)
        assert release.subspace.basis.shape == (d, k)
        assert np.linalg.norm(release.gram - gram) < 0.3 * np.linalg.norm(gram)
        radii.append(release.details["clip_radius"])
    # One radius in eight is .5 or more, of 200 seeds: the median is with probability 1e-4.
    assert np.median(radii) < 0.5


def test_the_standard_deviation_for_the_next_block_is_that_of_the_release():
    # 1800 entries: the ratio is within 8 % of 1 but for a probability of 1e-5.
    mechanism, rows = AdaptiveCovariance(n_components=3, epsilon=1.0, delta=1e-6), np.eye(3)[[0, 1, 2] * 1000]
    terms = mechanism.release(rows, seed=0).terms
    errors, stds = [], []
    for seed in range(300):
        source = NoiseSource(Randomness.from_seed(seed), "test")
        release, past = mechanism.released_after(rows, source.outlet(source.first), terms, 3000, None)
        errors.append(svec(release.gram - rows.T @ rows))
        stds.append(past.std)
    assert np.sqrt(np.mean(np.square(errors))) / np.mean(stds) == pytest.approx(1.0, abs=0.08)


def test_the_map_of_the_block_before_leaves_the_budget_to_the_block():
    mechanism = AdaptiveCovariance(n_components=1, epsilon=0.3, delta=1e-6)
    rng = np.random.default_rng(0)
    rows = onto_ball(rng.normal(size=(24_000, 30)) * np.where(np.arange(30) < 1, 0.25, 0.025))
    blocks, lost = np.split(rows, 4), {}
    for map_from in ("block", "previous"):
        algorithm = Tumbling(mechanism, release_every=6000, map_from=map_from)
        made = []
        for seed in range(6):
            processor = algorithm.start(30, Randomness.from_seed(seed))
            for i, block in enumerate(blocks):
                processor, release = processor.absorb(block)
                best = np.linalg.eigvalsh(block.T @ block)[-1]
                # The first block has none before it, and is released as ever.
                assert (release.details["released"] == "mapped") == (i > 0 and map_from == "previous")
                made += [1.0 - release.subspace.captured(block.T @ block) / best] if i else []
        lost[map_from] = np.mean(made)
    # .69 in the mean of 40 seeds; .075 is the standard deviation with six.
    assert lost["previous"] < 0.9 * lost["block"]
    # What is released is of the block alone: rows of the block before only choose the map.
    sharp = AdaptiveCovariance(n_components=1, epsilon=1e6, delta=1e-6)
    processor = Tumbling(sharp, release_every=6000, map_from="previous").start(30, Randomness.from_seed(0))
    for block in blocks[:2]:
        processor, release = processor.absorb(block)
    assert np.linalg.norm(release.gram - blocks[1].T @ blocks[1]) < 0.2 * np.linalg.norm(blocks[1].T @ blocks[1])
    again = processor.algorithm.start(
        30, Randomness.from_seed(0), start=processor.source.start, snapshot=processor.snapshot()
    )
    (_, one), (_, other) = processor.absorb(blocks[2]), again.absorb(blocks[2])
    assert one.to_json() == other.to_json()


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_a_block_with_the_map_of_another_spends_the_whole_budget(adjacency):
    mechanism = AdaptiveCovariance(n_components=1, adjacency=adjacency, **BUDGET)
    moves = 1.0 if adjacency == "zero-out" else math.sqrt(2.0)
    with_lost, without = mechanism.constants_after()
    norms, lost = mechanism.norms_std, mechanism.lost_std
    assert math.hypot(moves / norms, 1.0 / lost, moves / with_lost) == pytest.approx(mechanism.mu, rel=1e-12)
    assert math.hypot(moves / norms, moves / without) == pytest.approx(mechanism.mu, rel=1e-12)
    tumbling = Tumbling(mechanism, release_every=5, map_from="previous")
    assert tumbling.constants(5)[-2:] == (with_lost, without)
    assert tumbling.guarantee.mu == mechanism.mu
