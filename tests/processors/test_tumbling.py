from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streampca.errors import BadParameter, HorizonReached
from streampca.linalg.lattice import onto_ball
from streampca.mechanisms.exact_subspace import ExactSubspace
from streampca.mechanisms.gaussian import GaussianCovariance
from streampca.mechanisms.matrix_laplace import MatrixLaplaceCovariance
from streampca.mechanisms.subspace_perturbation import SubspacePerturbation
from streampca.privacy.randomness import Randomness
from streampca.processors.tumbling import Tumbling
from streampca.reference.jxz16_wishart import PrintedWishart
from streampca.stream import Stream

GAUSSIAN = GaussianCovariance(n_components=2, epsilon=1.0, delta=1e-6)
ROWS = onto_ball(np.random.default_rng(0).normal(size=(25, 4)))


def releases(stream, rows, sizes=(1000,)):
    found, start = [], 0
    while start < len(rows):
        for size in sizes:
            found += stream.push_many(rows[start : start + size]).releases
            start += size
    return found


def test_each_release_is_the_mechanism_on_its_own_block():
    found = releases(Stream(Tumbling(GAUSSIAN, every=10), seed=3), ROWS)
    assert [r.t for r in found] == [10, 20]
    for i, release in enumerate(found):
        alone = GAUSSIAN.release(ROWS[10 * i : 10 * i + 10], Randomness.from_seed(3), t=10 * i + 10)
        np.testing.assert_array_equal(release.gram, alone.gram)
        assert release.noise_std == GAUSSIAN.sigma


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(1, 12), st.booleans())
def test_block_sizes_change_no_bit(sizes, every, keep_short):
    def made():
        return Stream(Tumbling(GAUSSIAN, every=every, horizon=25, keep_short=keep_short), seed=1)

    at_once, piecewise = releases(made(), ROWS), releases(made(), ROWS, sizes)
    assert [r.to_json() for r in at_once] == [r.to_json() for r in piecewise]
    assert [r.t for r in at_once] == [*range(every, 26, every), *([25] if keep_short and 25 % every else [])]


def test_equal_blocks_get_unlike_noise():
    # Otherwise the releases would show that two blocks are equal, and so that no row differs.
    found = releases(Stream(Tumbling(GAUSSIAN, every=5), seed=1), np.tile(ROWS[:5], (2, 1)))
    assert not np.array_equal(found[0].gram, found[1].gram)


def test_one_row_changes_the_release_of_its_block_only():
    other = ROWS.copy()
    other[12] = 0.0
    pair = [releases(Stream(Tumbling(GAUSSIAN, every=5), seed=1), rows) for rows in (ROWS, other)]
    same = [a.to_json() == b.to_json() for a, b in zip(*pair, strict=True)]
    assert same == [True, True, False, True, True]


@pytest.mark.parametrize("keep_short", [True, False])
def test_the_last_short_block(keep_short):
    processor = Tumbling(GAUSSIAN, every=10, keep_short=keep_short)
    stream = Stream(processor, seed=1)
    releases(stream, ROWS)
    last = processor.finish()
    if keep_short:
        assert last.t == 25
        assert last.details["rows"] == 5
    else:
        assert last is None
    assert processor._held == []
    assert processor.finish() is None
    with pytest.raises(HorizonReached):
        stream.push(ROWS[0])


def test_rows_are_forgotten_once_released_or_dropped():
    processor = Tumbling(GAUSSIAN, every=10, horizon=25)
    stream = Stream(processor, regret=None, seed=1)
    held = [(stream.push(row), len(stream.processor._held))[1] for row in ROWS]
    assert held == [*range(1, 10), 0, *range(1, 10), 0, 1, 2, 3, 4, 0]
    assert stream.processor.rows_left == 0


def test_a_stream_resumes_from_its_state():
    whole = Tumbling(GAUSSIAN, every=10)
    whole.bind(4, Randomness.from_seed(1))
    expected = [whole.absorb(block) for block in (ROWS[:10], ROWS[10:20])]
    first = Tumbling(GAUSSIAN, every=10)
    first.bind(4, Randomness.from_seed(1))
    first.absorb(ROWS[:10])
    assert first.absorb(ROWS[10:13]) is None
    state = first.state()
    first.absorb(ROWS[13:15])
    second = first.clone()
    second.bind(4, Randomness.from_seed(1))
    second.restore(state)
    assert (second.t, second.rows_until_release) == (13, 7)
    assert second.absorb(ROWS[13:20]).to_json() == expected[1].to_json()


def test_the_caller_may_reuse_its_array():
    block = ROWS[:5].copy()
    processor = Tumbling(GAUSSIAN, every=10)
    processor.bind(4, Randomness.from_seed(1))
    processor.absorb(block)
    block[...] = 0.0
    release = processor.absorb(ROWS[5:10])
    alone = GAUSSIAN.release(ROWS[:10], Randomness.from_seed(1))
    np.testing.assert_array_equal(release.gram, alone.gram)


@pytest.mark.parametrize(
    "mechanism",
    [GAUSSIAN, MatrixLaplaceCovariance(n_components=1, epsilon=0.5, adjacency="replace")],
    ids=["gaussian", "matrix laplace"],
)
def test_all_releases_together_cost_one(mechanism):
    stream = Stream(Tumbling(mechanism, every=5), seed=1)
    claim, one = stream.guarantee, mechanism.guarantee
    assert (claim.epsilon, claim.delta, claim.mu, claim.adjacency) == (one.epsilon, one.delta, one.mu, one.adjacency)
    assert "parallel composition" in claim.theorem
    assert "one per block of 5 rows" in claim.scope
    assert releases(stream, ROWS)[0].guarantee == claim
    assert "seeded" in claim.caveat


def test_what_has_no_guarantee_gains_none():
    printed = Tumbling(PrintedWishart(n_components=1, epsilon=1.0), every=5)
    assert not printed.guarantee.is_private


def test_a_mechanism_that_finds_its_own_k():
    rng = np.random.default_rng(0)
    rows = np.zeros((240, 4))
    rows[:, :2] = rng.integers(-9, 10, size=(240, 2))
    rows[80:160] = rng.integers(-9, 10, size=(80, 4))  # no plane holds these
    mechanism = ExactSubspace(epsilon=1.0, delta=1e-6, max_components=2)
    stream = Stream(Tumbling(mechanism, every=80), row_norm=16.0, seed=0)
    assert stream.processor.n_components == 2
    found = releases(stream, rows)
    assert [r.n_components for r in found] == [2, 0, 2]
    assert [r.details["null"] for r in found] == [False, True, False]
    np.testing.assert_allclose(found[0].subspace.projector, np.diag([1.0, 1.0, 0.0, 0.0]), atol=1e-12)


def test_bad_parameters():
    with pytest.raises(BadParameter, match="is not a mechanism"):
        Tumbling("gaussian", every=5)
    with pytest.raises(BadParameter, match="every=0"):
        Tumbling(GAUSSIAN, every=0)
    with pytest.raises(BadParameter, match="n_components=2 exceeds n_features=1"):
        Stream(Tumbling(GAUSSIAN, every=5), seed=0).push([0.5])
    with pytest.raises(BadParameter, match="below the 2 features"):
        Stream(Tumbling(SubspacePerturbation(n_components=2, epsilon=1.0, delta=1e-6), every=5)).push([0.5, 0.5])


def test_add_remove_adjacency_is_refused():
    class Histogram(GaussianCovariance):
        @property
        def guarantee(self):
            return replace(super().guarantee, adjacency="add-remove")

    with pytest.raises(BadParameter, match="moves those after it to other blocks"):
        Tumbling(Histogram(n_components=1, epsilon=1.0, delta=1e-6), every=5)


def test_parameters_and_repr():
    processor = Tumbling(GAUSSIAN, every=10, keep_short=True, seed=4)
    assert processor.parameters() == {
        "mechanism": GAUSSIAN, "every": 10, "horizon": None, "keep_short": True, "n_features": None, "seed": 4,
    }  # fmt: skip
    assert "every=10" in repr(processor)
