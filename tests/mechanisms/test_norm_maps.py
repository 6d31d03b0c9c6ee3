"""The model of rows behind AdaptiveCovariance: histogram of norms, spectrum, maps."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from streampca.linalg.lattice import onto_ball
from streampca.mechanisms.adaptive import AdaptiveCovariance
from streampca.mechanisms.norm_maps import BINS, Map, Model, Norms, combined, entry_std, norm_counts
from streampca.privacy.randomness import Randomness

QUIET = (1e-6, 1e-6)


def rows_of_norms(norms, d=4, seed=0):
    rows = np.random.default_rng(seed).normal(size=(len(norms), d))
    return onto_ball(rows / np.linalg.norm(rows, axis=1, keepdims=True) * np.asarray(norms)[:, None])


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_a_row_moves_one_count_and_a_zero_row_none(seed):
    rng = np.random.default_rng(seed)
    rows = onto_ball(rng.normal(size=(20, 3)) * 10.0 ** rng.uniform(-8, 1, size=(20, 1)))
    counts = norm_counts(rows)
    zeroed, replaced = rows.copy(), rows.copy()
    zeroed[3], replaced[3] = 0.0, onto_ball(rng.normal(size=(1, 3)))[0]
    assert counts.sum() == (rows != 0.0).any(axis=1).sum()
    assert np.linalg.norm(counts - norm_counts(zeroed)) <= 1.0
    assert np.linalg.norm(counts - norm_counts(replaced)) <= np.sqrt(2.0)


def test_counts_are_of_eighths_of_octaves():
    norms = np.array([1.0, 0.99, 0.9, 0.49, 2.0**-5, 2.0**-19])
    counts = norm_counts(rows_of_norms(norms * (1.0 - 1e-4), d=1))
    assert np.flatnonzero(counts).tolist() == [0, 1, 8, 40, BINS - 1]
    assert norm_counts(np.zeros((7, 3))).sum() == 0.0


def test_quantiles_median_and_lost_energy_are_those_of_the_norms():
    norms = np.random.default_rng(0).uniform(0.05, 0.9, 20_000)
    seen = Norms.read(norm_counts(rows_of_norms(norms)), 1.0, norms.size)
    ordered = np.sort(norms)[::-1][10::20]
    np.testing.assert_allclose(seen.quantiles(1000), ordered, rtol=0.05)
    assert 1.0 <= seen.median / np.median(norms) <= 2.0**0.125
    assert seen.lost_energy(0.5)[0] == pytest.approx(np.maximum(norms**2 - 0.25, 0.0).sum(), rel=0.05)
    assert seen.lost_energy(1.0)[0] == 0.0


@pytest.mark.parametrize("octaves", [0.125, 0.5])
def test_the_noise_of_the_lost_energy_is_that_of_the_counts(octaves):
    upper, std = np.exp2(-octaves * np.arange(6)), 7.0
    noise = np.random.default_rng(0).normal(size=(4000, 6)) * std * np.sqrt(8.0 * octaves)  # of so many counts a bin
    lost = [Norms(upper, 1e3 + counts, octaves).lost_energy(0.6)[0] for counts in noise]
    assert Norms(upper, np.full(6, 1e3), octaves).lost_energy(0.6, std)[1] == pytest.approx(np.std(lost), rel=0.05)


def test_bins_are_widened_until_they_stand_out_of_the_noise():
    counts = norm_counts(rows_of_norms(np.random.default_rng(0).uniform(0.3, 0.9, 2000)))
    widths = []
    for std in (1.0, 50.0, 100.0, 1e4):
        seen = Norms.read(counts, std, 2000)
        widths.append(seen and seen.octaves)
    assert widths[0] == 0.125 < widths[1] <= widths[2]
    assert widths[3] is None


def model(values, k, norms=0.5, noise=QUIET, hidden=0.0, radius=1.0):
    seen = Norms.read(norm_counts(rows_of_norms(np.full(5000, norms))), 1.0, 5000)
    return Model(np.asarray(values), k, radius, seen, noise, hidden)


def test_a_spectrum_without_noise_is_kept():
    values = np.array([0.1, 0.05, 0.02, 0.01, 0.01, 0.01])
    made = model(values, 3)
    np.testing.assert_allclose(made.spectrum, values, rtol=1e-3)
    assert made.resolved == 3
    assert model(values, 3, noise=(1.0, 1.0)).resolved == 0


def test_the_inflation_of_a_spike_by_noise_is_undone():
    # A spike of height y in noise of spectral radius 2 tau shows at y + tau**2 / y.
    d, height, std = 200, 0.05, 0.001
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(d, d))
    truth = np.full(d, 0.001)
    truth[0] += height
    values = np.linalg.eigvalsh(np.diag(truth) + std * (noise + noise.T) / 2.0)[::-1]
    assert values[0] - truth[0] > 0.5 * std**2 * d / 2.0 / height
    assert model(values, 1, noise=(std, std)).spectrum[0] == pytest.approx(truth[0], rel=0.03)


def test_what_clipping_leaves():
    made = model([0.1, 0.05, 0.02, 0.01], 2)
    np.testing.assert_allclose(made.kept(np.full(4, 1.0)), 1.0)
    np.testing.assert_allclose(made.kept(np.full(4, 16.0)), 0.25, rtol=0.15)  # radius 1/4, rows of norm 1/2


def test_scalars_come_first_and_maps_need_directions_that_stand_out():
    loud = list(model([0.1, 0.05, 0.02, 0.01], 2, noise=(1.0, 1.0)).maps())
    assert [one.radius for one in loud] == [1.0]  # that of stage one
    quiet = model([0.1, 0.05, 0.02, 0.01, 0.01], 2)
    named = {one.name.split(",")[0] for one in quiet.maps() if one.radius is None}
    assert {"power 1/4", "power 1/2", "two blocks 0.5", "quarter blocks 0.15"} <= named
    for one in quiet.maps():
        if one.radius is None:
            c = float(one.name.rsplit(", ")[1])
            assert one.weights @ quiet.spectrum == pytest.approx(1.0 / c)
    partly = model([0.1, 0.011, 0.01, 0.01, 0.01], 2, noise=(0.003, 0.003))
    assert partly.resolved == 1
    assert {one.name.split()[0] for one in partly.maps() if one.radius is None} == {"two"}


def test_energy_that_may_be_hidden_speaks_against_clipping():
    values, noise = np.full(20, 0.002), (2e-3, 2e-3)
    values[0] = 0.03
    small = Map("radius 0.1", np.full(20, 100.0), 0.1)
    plain = Map("radius 1", np.full(20, 1.0), 1.0)
    apart = []
    for hidden in (0.0, 0.05):
        made = model(values, 1, norms=0.1, noise=noise, hidden=hidden)
        apart.append(made.losses(small)[0] - made.losses(plain)[0])
    assert apart[0] < apart[1]
    assert apart[1] > 0.0


def test_estimates_are_combined_by_inverse_variance():
    rng = np.random.default_rng(0)
    weights = np.array([1.0, 4.0])
    std = entry_std(weights, 0.2)
    np.testing.assert_allclose(std, 0.2 / np.sqrt(np.outer(weights, weights)))
    truth, first_std, factor = np.array([[2.0, 0.5], [0.5, 1.0]]), 0.3, 0.8

    def goe():
        z = rng.normal(size=(2, 2))
        return (z + z.T) / 2.0

    made = np.array([
        combined(truth + std * goe(), std, truth / factor + first_std * goe(), first_std, factor) for _ in range(4000)
    ])  # fmt: skip
    np.testing.assert_allclose(made.mean(axis=0), truth, atol=0.02)
    best = 1.0 / (1.0 / std**2 + 1.0 / (factor * first_std) ** 2)
    np.testing.assert_allclose(made.var(axis=0) * np.array([[1, 2], [2, 1]]), best, rtol=0.1)
    np.testing.assert_array_equal(combined(truth, std, 2.0 * truth, first_std, 0.0), truth)


@pytest.mark.parametrize(
    ("longest", "n", "d", "k", "epsilon", "seed", "chosen", "values"),
    [
        (0.3, 4000, 8, 2, 2.0, 5, ("radius 0.2973", 0.29730177875068026, 7.630836580269344e-05),
         [51.54356757762187, 31.362580854235965]),
        (1.0, 3000, 10, 3, 1.0, 12, ("quarter blocks 0.5, 2.5", 1.0, 0.0005752516844723192),
         [382.7576983163429, 246.68666710408382, 153.66082523068414]),
        (0.6, 1500, 6, 2, 0.5, 8, ("power 1/2, 2.5", 0.5, 0.0013916993056336561),
         [89.06203707379801, 41.84852606243285]),
    ],
)  # fmt: skip
def test_seeded_choices_do_not_change(longest, n, d, k, epsilon, seed, chosen, values):
    noise = Randomness.from_seed(5).stream("rows")
    rows = noise.normal(0, n * d).reshape(n, d) * np.geomspace(1.0, 0.05, d)
    rows *= (longest * noise.draws(1).uniform(n) / np.linalg.norm(rows, axis=1))[:, None]
    release = AdaptiveCovariance(n_components=k, epsilon=epsilon, delta=1e-6).release(rows, seed=seed, row_norm=1.0)
    name, *numbers = (release.details[key] for key in ("map", "clip_radius", "predicted_loss"))
    assert (name, *numbers) == (chosen[0], *(pytest.approx(number, rel=1e-6) for number in chosen[1:]))
    assert release.eigenvalues == pytest.approx(values, rel=1e-9)
