"""The model of rows behind AdaptiveCovariance: histogram of norms, spectrum, maps."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from streampca.linalg.lattice import onto_ball
from streampca.mechanisms.adaptive import AdaptiveCovariance
from streampca.mechanisms.norm_maps import Model, Norms, combined, entry_std, norm_counts
from streampca.privacy.randomness import Randomness


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


@pytest.mark.parametrize("octaves", [0.125, 0.5])
def test_the_noise_of_the_lost_energy_is_that_of_the_counts(octaves):
    upper, std = np.exp2(-octaves * np.arange(6)), 7.0
    noise = np.random.default_rng(0).normal(size=(4000, 6)) * std * np.sqrt(8.0 * octaves)  # of so many counts a bin
    lost = [Norms(upper, 1e3 + counts, octaves).lost_energy(0.6)[0] for counts in noise]
    assert Norms(upper, np.full(6, 1e3), octaves).lost_energy(0.6, std)[1] == pytest.approx(np.std(lost), rel=0.05)


def test_the_inflation_of_a_spike_by_noise_is_undone():
    # A spike of height y in noise of spectral radius 2 tau shows at y + tau**2 / y.
    d, height, std = 200, 0.05, 0.001
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(d, d))
    truth = np.full(d, 0.001)
    truth[0] += height
    values = np.linalg.eigvalsh(np.diag(truth) + std * (noise + noise.T) / 2.0)[::-1]
    assert values[0] - truth[0] > 0.5 * std**2 * d / 2.0 / height
    seen = Norms.read(norm_counts(rows_of_norms(np.full(5000, 0.5))), 1.0, 5000)
    assert Model(values, 1, 1.0, seen, (std, std), 0.0).spectrum[0] == pytest.approx(truth[0], rel=0.03)


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
        (0.3, 4000, 8, 2, 2.0, 7, ("radius 0.2973", 0.29730177875068026, 7.507188877657482e-05),
         [51.35245188053117, 31.739432908252592]),
        (1.0, 3000, 10, 3, 1.0, 12, ("power 1/2, 2.5", 1.0, 0.0005880936166426262),
         [367.0360731500462, 237.75553949704826, 147.15811456757865]),
        (0.6, 1500, 6, 2, 0.5, 9, ("quarter blocks 0.5, 2.5", 0.5, 0.0016831551170607103),
         [91.52804048649817, 40.07655829415765]),
    ],
)  # fmt: skip
def test_seeded_choices_do_not_change(longest, n, d, k, epsilon, seed, chosen, values):
    noise = Randomness.from_seed(5).stream("rows")
    rows = noise.normal(0, n * d).reshape(n, d) * np.geomspace(1.0, 0.05, d)
    rows *= (longest * noise.draws(1).uniform(n) / np.linalg.norm(rows, axis=1))[:, None]
    release = AdaptiveCovariance(n_components=k, epsilon=epsilon, center=False).release(rows, seed=seed, row_norm=1.0)
    name, *numbers = (release.details[key] for key in ("map", "clip_radius", "predicted_loss"))
    assert (name, *numbers) == (chosen[0], *(pytest.approx(number, rel=1e-6) for number in chosen[1:]))
    assert release.eigenvalues == pytest.approx(values, rel=1e-9)
