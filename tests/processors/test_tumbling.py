from dataclasses import replace

import numpy as np
import pytest
from feeding import feed

import streampca as sp
from streampca.errors import BadParameterError, HorizonReachedError
from streampca.linalg.lattice import onto_ball
from streampca.processors.base import Setting

GAUSSIAN = sp.GaussianCovariance(n_components=2, epsilon=1.0, center=False)
ROWS = onto_ball(np.random.default_rng(0).normal(size=(25, 4)))
SEED = sp.Randomness.from_seed(1)


def releases(algorithm, rows=ROWS, sizes=(), randomness=SEED):
    return feed(algorithm.start(rows.shape[1], randomness), rows, *sizes)[1]


def texts(found):
    return [release.to_json() for release in found]


def test_each_release_is_the_mechanism_on_its_own_block():
    processor = sp.Tumbling(GAUSSIAN, release_every=10).start(4, SEED)
    for i in range(2):
        block = ROWS[10 * i : 10 * i + 10]
        alone = GAUSSIAN.released(block, processor.outlet(), processor.terms, 10 * i + 10)
        processor, (release,) = feed(processor, block)
        assert release.t == 10 * i + 10
        assert release.to_json() == alone.to_json()
        assert release.noise_std == GAUSSIAN.sigma


@pytest.mark.parametrize("keep_short", [True, False])
def test_the_last_short_block(keep_short):
    algorithm = sp.Tumbling(GAUSSIAN, release_every=10, keep_short=keep_short)
    processor, _ = feed(algorithm.start(4, SEED), ROWS)
    ended, last = processor.finish(processor.outlet())
    if keep_short:
        assert last.t == 25
        assert last.details["rows"] == 5
        assert last.terms is processor.terms
    else:
        assert last is None
    assert (ended.held.count, ended.rows_left, processor.held.count) == (0, 0, 5)
    again, nothing = ended.finish(ended.outlet())
    assert nothing is None
    assert again.snapshot().keys() == ended.snapshot().keys()
    assert (again.chain, again.t, again.finished) == (ended.chain, 25, True)
    with pytest.raises(HorizonReachedError):
        ended.absorb(ROWS[:1])


def test_rows_are_forgotten_once_released_or_dropped():
    processor, held = sp.Tumbling(GAUSSIAN, release_every=10, horizon=25).start(4, SEED), []
    for row in ROWS:
        processor, _ = processor.absorb(row[None])
        held.append(processor.held.count)
    assert held == [*range(1, 10), 0, *range(1, 10), 0, 1, 2, 3, 4, 0]
    assert (processor.rows_left, processor.rows_until_release) == (0, 0)
    assert not processor.snapshot()["held"]["array"].size
    with pytest.raises(HorizonReachedError):
        processor.absorb(ROWS[:1])


@pytest.mark.parametrize(
    "mechanism",
    [GAUSSIAN, sp.MatrixLaplaceCovariance(n_components=1, epsilon=0.5, adjacency="replace")],
    ids=["gaussian", "matrix laplace"],
)
def test_all_releases_together_cost_one(mechanism):
    algorithm = sp.Tumbling(mechanism, release_every=5)
    claim, one = algorithm.guarantee, mechanism.guarantee
    assert (claim.epsilon, claim.delta, claim.mu, claim.adjacency) == (one.epsilon, one.delta, one.mu, one.adjacency)
    assert "parallel composition" in claim.theorem
    assert "one per block of 5 rows" in claim.scope
    assert {release.guarantee for release in releases(algorithm, randomness=sp.Randomness())} == {claim}
    assert {release.guarantee for release in releases(algorithm)} == {claim.seeded()}
    terms = sp.Terms(claim, row_norm=2.0, features=tuple("abcd"))
    processor = algorithm.start(4, SEED, Setting(terms))
    assert all(release.terms is terms for release in feed(processor, ROWS)[1])


def test_a_mechanism_that_finds_its_own_k():
    rng = np.random.default_rng(0)
    rows = np.zeros((240, 4))
    rows[:, :2] = rng.integers(-9, 10, size=(240, 2))
    rows[80:160] = rng.integers(-9, 10, size=(80, 4))  # no plane holds these
    algorithm = sp.Tumbling(sp.ExactSubspace(epsilon=1.0, delta=1e-6, max_components=2), release_every=80)
    assert algorithm.n_components == 2
    found = releases(algorithm, onto_ball(rows / 32.0))
    assert [r.n_components for r in found] == [2, 0, 2]
    assert [r.details["null"] for r in found] == [False, True, False]
    np.testing.assert_allclose(found[0].subspace.projector, np.diag([1.0, 1.0, 0.0, 0.0]), atol=1e-12)


def test_bad_parameters():
    with pytest.raises(BadParameterError, match="expected a mechanism"):
        sp.Tumbling("gaussian", release_every=5)
    for name in ("release_every", "horizon"):
        with pytest.raises(BadParameterError, match=f"{name}=0"):
            sp.Tumbling(GAUSSIAN, **{"release_every": 5, name: 0})
    with pytest.raises(TypeError):
        sp.Tumbling(GAUSSIAN, 5)
    with pytest.raises(BadParameterError, match="expected less than n_features=2"):
        sp.Tumbling(sp.papers.SubspacePerturbation(n_components=2, epsilon=1.0, delta=1e-6), release_every=5).start(2)


def test_add_remove_adjacency_is_refused():
    class Histogram(sp.GaussianCovariance):
        @property
        def guarantee(self):
            return replace(super().guarantee, adjacency="add-remove")

    with pytest.raises(BadParameterError, match="expected adjacency='zero-out' or 'replace'"):
        sp.Tumbling(Histogram(n_components=1, epsilon=1.0, delta=1e-6), release_every=5)
