"""The compiled kernels give the bits of the numpy code that they stand in for."""

import numpy as np
import pytest

import streampca as sp
from streampca import _native
from streampca.linalg.eigen import power_step
from streampca.linalg.lattice import STEP, GramSum, is_admitted, onto_ball
from streampca.linalg.svec import svec_size
from streampca.release.scoring import Scoring, rewarded
from streampca.rows.admission import Admission

pytestmark = pytest.mark.usefixtures("compiled_kernels")


def both(make):
    """What is made with the kernels, and without."""
    before = _native.use(True)
    try:
        assert _native.compiled is not None
        compiled = make()
        _native.use(False)
        assert _native.compiled is None
        return compiled, make()
    finally:
        _native.use(before)


def same(make):
    compiled, plain = both(make)
    np.testing.assert_array_equal(np.asarray(compiled).view(np.int64), np.asarray(plain).view(np.int64))


@pytest.mark.parametrize("count", [0, 1, 17, 210, 8192, 8193, 20_001])
def test_normals_also_those_that_left_their_rectangle(count):
    draws = [sp.Randomness.from_seed(5).stream("x").draws(index) for index in range(60)]
    compiled, plain = both(lambda: [one.normal(count) for one in draws])
    np.testing.assert_array_equal(compiled, plain)


def test_a_row_is_admitted_alike_by_itself():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((300, 5)) * rng.uniform(0.1, 1.0, (300, 1))
    rows[0], rows[1], rows[2, 0] = 0.0, -0.0, 1e300
    for admission in (Admission(n_features=5), Admission(n_features=5, row_norm=2.5)):
        compiled, plain = both(lambda admission=admission: [admission.row(row, 1)[0] for row in rows])
        np.testing.assert_array_equal(np.array(compiled).view(np.int64), np.array(plain).view(np.int64))
        np.testing.assert_array_equal(np.concatenate(compiled), admission.block(rows, 1)[0])
    for bad in ([np.nan, 0.0], [0.0, np.inf]):
        compiled, plain = both(lambda bad=bad: Admission(n_features=2).row(np.array(bad), 1))
        assert not compiled[0].any()
        assert str(compiled) == str(plain)


@pytest.mark.parametrize("d", [1, 2, 7, 33])
def test_noisy_gram(d):
    rows = onto_ball(np.random.default_rng(0).standard_normal((40, d)))

    def make():
        gram, out = GramSum(d), []
        for i, size in enumerate((0.0, 1e-9, 1.0, 3e5)):
            gram = gram.add(rows[i : i + 1] if i % 2 else rows)
            noise = size * np.random.default_rng(i).standard_normal(svec_size(d))
            out += [gram.noisy(noise, std) for std in (1e-12, 1.0, 4.0, 700.0)]
        return np.array([*out, *gram.parts])

    same(make)


@pytest.mark.parametrize(("d", "k"), [(1, 1), (2, 2), (7, 1), (20, 5), (64, 64), (100, 5), (150, 140), (130, 2)])
def test_power_steps(d, k):
    rng = np.random.default_rng(d)
    packed = rng.standard_normal(svec_size(d))

    def make():
        span = np.asfortranarray(np.linalg.qr(np.random.default_rng(k).standard_normal((d, k)))[0])
        plain = power_step(packed, span, 2.0, plain=True)
        for _ in range(3):
            span = power_step(packed, span, 2.0)
            assert span.flags.f_contiguous
        return span, plain

    (compiled, plain), (expected, same_bits) = both(make)
    np.testing.assert_allclose(compiled, expected, atol=1e-12)  # the signs of LAPACK, too
    np.testing.assert_array_equal(plain, same_bits)


def test_admission_is_judged_alike():
    good = onto_ball(np.random.default_rng(0).standard_normal((5, 4)))
    cases = [good, good[:1], good * 1.5, np.array([[STEP / 2, 0.0]]), np.array([[1.0, STEP]]), -np.eye(2)]
    cases += [np.array([[bad, 0.0]]) for bad in (np.nan, np.inf, -np.inf, 2.0, -2.0)]
    compiled, plain = both(lambda: [is_admitted(np.array(rows)) for rows in cases])
    assert compiled == plain
    assert compiled == [True, True, False, False, False, True] + [False] * 5


@pytest.mark.parametrize(("horizon", "every"), [(40, 1), (41, 7)])
def test_smoothed_sums(horizon, every):
    rows = np.random.default_rng(0).standard_normal((40, 33)) / 5.0

    def make():
        algorithm = sp.PrivateFPL(
            n_components=2, epsilon=1.0, center=False, horizon=horizon, release_every=every, solver="smoothed"
        )
        stream = sp.Stream(algorithm, row_norm=1.0, seed=1, regret=None)
        sums = np.array([r.smoothed for r in stream.push_many(rows).releases])
        state = stream.engine.processor.snapshot()["reading"]["sums"]
        return np.concatenate([sums.ravel(), *(state[name].ravel() for name in ("covariance", "response", "buffers"))])

    same(make)


@pytest.mark.parametrize("d", [1, 3, 20, 1024, 1030])
def test_rows_land_on_the_same_point_of_the_lattice(d):
    """Also at the edge of the ball, far outside it, one by one, and for zeros of either sign."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((90, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[:20] *= 1.0 + rng.uniform(-3e-6, 3e-6, (20, 1))
    rows[20:30] *= 1e200
    rows[30:40] *= -1e-7
    rows[40:50] *= 1.004
    rows[50:60] *= 3.0
    same(lambda: onto_ball(rows))
    compiled, plain = both(lambda: np.concatenate([onto_ball(row[None]) for row in rows]))
    np.testing.assert_array_equal(compiled.view(np.int64), plain.view(np.int64))
    np.testing.assert_array_equal(onto_ball(rows).view(np.int64), plain.view(np.int64))
    assert both(lambda: is_admitted(plain)) == (True, True)
    np.testing.assert_array_equal(onto_ball(plain), plain)


def test_a_subspace_without_directions_rewards_no_row():
    """`ExactSubspace` releases one where no gap stands out."""
    for rewards, reward in both(lambda: rewarded(np.ones((3, 5)), Scoring.of(np.empty((5, 0))), 2.0)):
        assert (rewards.tolist(), reward) == ([0.0] * 3, 2.0)
