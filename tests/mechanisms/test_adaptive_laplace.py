"""AdaptiveLaplaceCovariance: what one row moves, what it gains, and when it is taken."""

import math

import numpy as np
import pytest

from streampca.linalg.lattice import GramSum, onto_ball
from streampca.mechanisms.adaptive import AdaptiveCovariance, AdaptiveLaplaceCovariance, adaptive_mechanism
from streampca.mechanisms.covariance import GaussianCovariance, MatrixLaplaceCovariance
from streampca.privacy.outlet import Outlet
from streampca.privacy.randomness import Randomness

BUDGET = {"n_components": 2, "epsilon": 1.0}


def short(n=3000, d=5, norm=0.3, seed=0):
    """Rows of one norm that vary most in two directions."""
    rows = np.random.default_rng(seed).normal(size=(n, d)) * np.where(np.arange(d) < 2, 3.0, 1.0)
    return norm * rows / np.linalg.norm(rows, axis=1, keepdims=True)


def outliers(n=5000, d=5):
    """Rows that are short and alike in all directions, but for some of norm 1 along two axes."""
    rows = short(n, d, 0.05)[:, ::-1].copy()
    rows[:70] = np.eye(d)[np.arange(70) % 2]
    return rows


def missed(mechanism, rows, seeds=12):
    gram = onto_ball(rows).T @ onto_ball(rows)
    best = np.linalg.eigvalsh(gram)[-mechanism.n_components :].sum()
    return float(np.mean([1.0 - mechanism.release(rows, seed=i).subspace.captured(gram) / best for i in range(seeds)]))


def spent(mechanism, before, after):
    """Epsilon that two neighbors spend on each vector, given equal outputs."""
    for (kind, one, _), (_, other, _) in zip(before, after, strict=True):
        if isinstance(one, GramSum):
            d = one.n_features
            apart = np.zeros((d, d))
            apart[np.triu_indices(d)] = one.packed() - other.packed()
            apart += np.triu(apart, 1).T
            # The density of the noise changes by at most the trace norm over 2c.
            yield (
                kind,
                float(np.abs(np.linalg.eigvalsh(apart)).sum()) / (2.0 * mechanism.on_gram(len(before) - 1).scale(d)),
            )
        else:
            scale = mechanism.norms_scale if kind == "norms" else mechanism.lost_scale
            yield kind, float(np.abs(one.values - other.values).sum()) / scale


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize(
    ("rows", "shares"),
    [
        (short(), {"norms": 0.03, "lost": 0.08, "gram": 0.89}),
        (short(norm=1.0), {"norms": 0.03, "gram": 0.97}),
        (short(499), {"gram": 1.0}),
    ],
)
def test_no_row_spends_more_than_epsilon_on_all_vectors_together(adjacency, rows, shares, transcript):
    mechanism = AdaptiveLaplaceCovariance(adjacency=adjacency, **BUDGET)
    most = 0.0
    for first in (np.eye(5)[0], 0.1 * np.eye(5)[1], 40.0 * np.ones(5)):
        for second in (np.eye(5)[2], 0.6 * np.eye(5)[3]) if adjacency == "replace" else (np.zeros(5),):
            before, after = rows.copy(), rows.copy()
            before[7], after[7] = first, second
            hidden, released, _ = transcript(mechanism, before)
            other, _, _ = transcript(mechanism, after, released)
            parts = dict(spent(mechanism, hidden, other))
            assert list(parts) == list(shares)
            assert all(parts[kind] <= share * mechanism.epsilon * (1.0 + 1e-9) for kind, share in shares.items())
            most = max(most, sum(parts.values()))
    assert most > 0.95 * mechanism.epsilon  # the noise is not more than privacy needs
    assert (mechanism.guarantee.epsilon, mechanism.guarantee.delta, mechanism.guarantee.mu) == (1.0, 0.0, None)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_the_shares_add_up_to_epsilon(epsilon, adjacency):
    mechanism = AdaptiveLaplaceCovariance(n_components=2, epsilon=epsilon, adjacency=adjacency)
    norms, lost, *grams = mechanism.constants(5)
    moves = 1.0 if adjacency == "zero-out" else 2.0
    alone, after_norms, after_both = (moves / (2.0 * scale) for scale in grams)  # a trace norm over 2c
    assert alone == pytest.approx(epsilon, rel=1e-12)
    assert moves / norms + after_norms == pytest.approx(epsilon, rel=1e-12)
    assert moves / norms + 1.0 / lost + after_both == pytest.approx(epsilon, rel=1e-12)


@pytest.mark.parametrize(("rows", "stages"), [(short(), 2), (short(norm=1.0), 1), (short(499), 0)])
def test_each_vector_has_the_noise_of_its_stage(rows, stages, monkeypatch):
    mechanism, release = AdaptiveLaplaceCovariance(**BUDGET), Outlet.release
    numbers = Randomness.from_seed(0).stream("test").draws(0)
    made = {}

    def noted(self, kind, exact, draw, std=0.0):
        made[kind] = draw(numbers)
        return release(self, kind, exact, draw, std)

    monkeypatch.setattr(Outlet, "release", noted)
    mechanism.release(rows, seed=0)
    expected = {"gram": mechanism.on_gram(stages).noise(5, numbers)}
    if stages > 0:
        expected["norms"] = mechanism.norms_scale * numbers.laplace(96)
    if stages > 1:
        expected["lost"] = mechanism.lost_scale * numbers.laplace(1)
    assert made.keys() == expected.keys()
    assert all(np.array_equal(made[kind], expected[kind]) for kind in made)


def test_short_rows_get_less_noise_and_long_ones_hardly_more():
    plain, adaptive = MatrixLaplaceCovariance(**BUDGET), AdaptiveLaplaceCovariance(**BUDGET)
    # .13 and .11 in the mean of 200 seeds; of 60, the standard deviation is .06.
    assert missed(adaptive, short(), 60) < 0.5 * missed(plain, short(), 60)
    assert missed(adaptive, short(20_000), 60) < 0.5 * missed(plain, short(20_000), 60)
    # .97 of epsilon: 1.06 times the variance, and the loss.
    assert missed(adaptive, short(norm=1.0), 60) < 1.4 * missed(plain, short(norm=1.0), 60)


def test_long_rows_that_hold_the_subspace_are_not_clipped_away():
    rows, mechanism = outliers(), AdaptiveLaplaceCovariance(**BUDGET)
    found = [mechanism.release(rows, seed=i).details for i in range(20)]
    # The histogram, whose noise has a standard deviation of 47, shows 70 rows in some of the releases only.
    unseen = [made for made in found if made.get("lost_energy_radius", 1.0) < 0.5]
    assert len(unseen) > 5
    assert sum(made["clip_radius"] == 1.0 for made in unseen) > 0.7 * len(unseen)
    others = [mechanism.release(0.05 * np.sign(rows), seed=i).details["clip_radius"] for i in range(20)]
    assert sum(radius == 1.0 for radius in others) <= 2  # false alarms


def test_details_say_what_was_clipped():
    rows = short()
    rows[:300] *= 3.0
    details = AdaptiveLaplaceCovariance(**BUDGET).release(rows, seed=0).details
    squares = np.vecdot(onto_ball(rows), onto_ball(rows))
    exact = np.maximum(squares - details["lost_energy_radius"] ** 2, 0.0).sum()
    assert abs(details["lost_energy"] - exact) < 6.0 * details["lost_energy_std"]
    assert details["clip_radius"] < 1.0


@pytest.mark.parametrize(("adjacency", "most"), [("zero-out", (7, 9, 10, 13)), ("replace", (3, 4, 4, 6))])
def test_the_rule_compares_variances_and_reads_no_row(adjacency, most):
    for epsilon, limit in zip((0.1, 0.3, 1.0, 3.0), most, strict=True):
        given = {"n_components": 1, "epsilon": epsilon, "adjacency": adjacency}
        for d in (1, limit, limit + 1, 100):
            taken = adaptive_mechanism(d, delta=1e-6, **given)
            assert isinstance(taken, AdaptiveLaplaceCovariance if d <= limit else AdaptiveCovariance)
            laplace = MatrixLaplaceCovariance(**given).noise_std(d)
            gaussian = GaussianCovariance(delta=1e-6, **given).noise_std(d)
            assert (d <= limit) == (laplace < math.sqrt(2.0 / 3.0) * gaussian)
    assert isinstance(adaptive_mechanism(100, delta=0.0, **given), AdaptiveLaplaceCovariance)
