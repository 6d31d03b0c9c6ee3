"""The compiled kernels give the bits of the numpy code that they stand in for."""

import sys

import numpy as np
import pytest

from streampca.linalg import fast
from streampca.linalg.eigen import power_step
from streampca.linalg.lattice import STEP, GramAccumulator, is_admitted, onto_ball
from streampca.linalg.svec import svec_size
from streampca.prefix_sums.blt import AnytimeBLT, GeometricBLT
from streampca.privacy.randomness import Randomness
from streampca.processors.private_fpl import PrivateFPL
from streampca.regret import RegretLog
from streampca.stream import Stream

pytest.importorskip("numba", reason="the extra 'fast' is not installed: pip install 'streampca[fast]'")


def both(make):
    """What is made with the kernels, and without."""
    before = fast.use(True)
    try:
        assert fast.compiled() is not None
        compiled = make()
        fast.use(False)
        assert fast.compiled() is None
        return compiled, make()
    finally:
        fast.use(before)


def same(make):
    compiled, plain = both(make)
    np.testing.assert_array_equal(np.asarray(compiled).view(np.int64), np.asarray(plain).view(np.int64))


@pytest.mark.parametrize("count", [0, 1, 17, 8192, 8193, 200_000])
def test_normals(count):
    same(lambda: Randomness.from_seed(5).stream("x").normal(3, count))


@pytest.mark.parametrize("count", [210, 5050, 8193, 20_001])
def test_normals_that_left_their_rectangle(count):
    fast.use(True)
    compiled = Randomness.from_seed(5).stream("x")
    kernels, short = compiled._compiled, []

    class TooFewWords:
        ziggurat = staticmethod(kernels.ziggurat)

        @staticmethod
        def settle(words, outside, more, *rest):
            short.append(kernels.settle(words, outside, more[: outside.size], *rest))
            return short[-1]

    plain = Randomness.from_seed(5).stream("x")
    plain._compiled = None
    for few in (False, True):
        compiled._compiled = TooFewWords if few else kernels
        for index in range(60):
            np.testing.assert_array_equal(compiled.normal(index, count), plain.normal(index, count))
    assert min(short) < 0  # the words did not suffice, and the draws were finished one by one


@pytest.mark.parametrize("mechanism", [GeometricBLT(40, 0.7), AnytimeBLT(0.7)], ids=["horizon", "endless"])
def test_running_noise(mechanism):
    def make():
        running = mechanism.start(55, Randomness.from_seed(5).stream("x"))
        return np.array([running.advance().copy() for _ in range(40)])

    same(make)


@pytest.mark.parametrize("d", [1, 2, 7, 33])
def test_noisy_gram(d):
    rows = onto_ball(np.random.default_rng(0).standard_normal((40, d)))

    def make():
        gram, out = GramAccumulator(d), []
        for i, size in enumerate((0.0, 1e-9, 1.0, 3e5)):
            gram.add(rows[i : i + 1] if i % 2 else rows)
            out.append(gram.plus(size * np.random.default_rng(i).standard_normal(svec_size(d))))
        return np.array(out)

    same(make)


@pytest.mark.parametrize(("d", "k"), [(1, 1), (2, 2), (7, 1), (20, 5), (64, 64), (100, 5), (150, 140), (130, 2)])
def test_power_steps(d, k):
    rng = np.random.default_rng(d)
    packed = rng.standard_normal(svec_size(d))

    def make():
        span = np.asfortranarray(np.linalg.qr(np.random.default_rng(k).standard_normal((d, k)))[0])
        for _ in range(3):
            span = power_step(packed, span, 2.0)
            assert span.flags.f_contiguous
        return span

    same(make)


def test_admission_is_judged_alike():
    good = onto_ball(np.random.default_rng(0).standard_normal((5, 4)))
    cases = [good, good[:1], good * 1.5, np.array([[STEP / 2, 0.0]]), np.array([[1.0, STEP]]), -np.eye(2)]
    cases += [np.array([[bad, 0.0]]) for bad in (np.nan, np.inf, -np.inf, 2.0, -2.0)]
    compiled, plain = both(lambda: [is_admitted(np.array(rows)) for rows in cases])
    assert compiled == plain
    assert compiled == [True, True, False, False, False, True] + [False] * 5


@pytest.mark.parametrize("solver", ["exact", "tracking"])
@pytest.mark.parametrize("d", [3, 30])
def test_releases_and_rewards_of_a_stream(d, solver):
    rows = np.random.default_rng(0).standard_normal((60, d))

    def make():
        processor = PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, horizon=60, solver=solver, seed=1)
        stream = Stream(processor, regret=RegretLog(every=7))
        releases = []
        for row in rows[:20]:
            release = stream.push(row).release
            assert release is not None
            releases.append(release)
        releases += stream.push_many(rows[20:]).releases
        parts = [part.ravel() for r in releases for part in (r.gram, r.subspace.basis)]
        return np.concatenate([*parts, [stream.regret.now().reward]])

    same(make)


def test_without_numba_numpy_does_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "streampca.linalg.compiled", raising=False)
    fast._load.cache_clear()
    try:
        assert fast.compiled() is None
        assert Randomness.from_seed(0).stream("x").normal(0, 3).shape == (3,)
    finally:
        fast._load.cache_clear()


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
