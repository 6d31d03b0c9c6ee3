from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from streampca._native import use
from streampca.errors import BadRowError
from streampca.linalg.lattice import (
    EXACT_ROWS,
    STEP,
    GramInParts,
    GramSum,
    _trim,
    coarsen,
    difference,
    grid_bits,
    grid_step,
    is_admitted,
    is_plausible,
    onto_ball,
)
from streampca.linalg.svec import entry_weights

finite = st.floats(allow_nan=False, allow_infinity=False)
rows_of_anything = arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=finite)


def exact_norm(row: np.ndarray) -> Fraction:
    return sum((Fraction(float(x)) ** 2 for x in row), Fraction(0))


@settings(deadline=None)
@given(rows=rows_of_anything)
def test_admitted_rows_are_inside_the_ball_exactly_and_stay_as_they_are(rows: np.ndarray) -> None:
    admitted = onto_ball(rows)
    assert all(exact_norm(row) <= 1 for row in admitted)
    assert is_admitted(admitted)
    np.testing.assert_array_equal(onto_ball(admitted), admitted)
    assert not np.signbit(admitted[admitted == 0]).any()


@settings(deadline=None)
@given(rows=rows_of_anything)
def test_each_row_is_admitted_by_itself(rows: np.ndarray) -> None:
    one_by_one = np.concatenate([onto_ball(row[None]) for row in rows])
    np.testing.assert_array_equal(onto_ball(rows), one_by_one)


@pytest.mark.parametrize("d", [1000, 1025, 20_000])
def test_many_features_are_inside_the_ball_exactly(d: int) -> None:
    rows = np.random.default_rng(d).standard_normal((20, d))
    rows[10:] = np.ceil(np.abs(rows[10:]) * 2.0**20 / 100) / 2.0**20
    assert is_admitted(onto_ball(rows))


def test_rows_above_the_ball_are_trimmed() -> None:
    rows = np.array([[1.0, STEP, -STEP], [0.0, -1.0, 3 * STEP], [0.5, 0.5, 0.5]])
    _trim(rows)
    assert is_admitted(rows)
    np.testing.assert_allclose(rows, [[1, 0, 0], [0, -1, 0], [0.5, 0.5, 0.5]], atol=4 * STEP)


def test_long_rows_keep_their_direction() -> None:
    rows = np.array([[3.0, 4.0], [3e200, 4e200], [-3e307, 4e307]])
    np.testing.assert_allclose(onto_ball(rows), [[0.6, 0.8], [0.6, 0.8], [-0.6, 0.8]], atol=2 * STEP)


@pytest.mark.parametrize("compiled", [False, True])
def test_rows_outside_or_off_the_lattice_are_told(compiled: bool) -> None:
    before = use(compiled)
    try:
        for bad in ([1.0, STEP], [STEP / 2, 0.0], [np.nan, 0.0]):
            assert not is_admitted(np.array([bad]))
            assert not is_admitted(np.array([bad, [0.5, 0.0]]))
            assert not is_admitted(np.array([[0.5, 0.0], bad]))
        assert not is_admitted(np.array([[0.5], [1.0 + STEP]]))  # two rows of one feature
        assert is_admitted(np.array([[1.0, 0.0], [0.6 // STEP * STEP, 0.5]]))
        assert is_admitted(np.array([[1.0, 0.0]]))
    finally:
        use(before)


def some_rows(n: int, d: int, seed: int = 0) -> np.ndarray:
    return onto_ball(np.random.default_rng(seed).standard_normal((n, d)))


def exact_entries(gram: GramSum) -> list[Fraction]:
    return [Fraction(int(h)) + Fraction(int(w), 2**40) for h, w in zip(*gram.high_low(), strict=True)]


@settings(deadline=None, max_examples=20)
@given(cuts=st.lists(st.integers(1, 400), min_size=1, max_size=30), d=st.integers(1, 9))
def test_gram_has_the_same_bits_for_every_blocking(cuts: list[int], d: int) -> None:
    rows = some_rows(sum(cuts), d)
    whole, blocks = GramSum.of(rows), GramSum(d)
    for end, size in zip(np.cumsum(cuts), cuts, strict=True):
        blocks = blocks.add(rows[end - size : end])
    assert whole.parts.tobytes() == blocks.parts.tobytes()
    assert whole.hidden[0] is whole.parts


def test_gram_is_exact_past_a_block_of_float64() -> None:
    row = np.array([[1.0 - STEP, -STEP]])
    n = 3 * EXACT_ROWS + 5
    gram = GramSum.of(np.repeat(row, n, axis=0))
    unit = [Fraction(float(row[0, a])) * Fraction(float(row[0, b])) * n for a, b in ((0, 0), (0, 1), (1, 1))]
    low = gram.high_low()[1]
    assert exact_entries(gram) == unit
    assert ((low >= 0) & (low < 2**40)).all()


def test_words_are_added_and_kept() -> None:
    rows = some_rows(100, 4)
    first, second = GramSum.of(rows[:60]), GramSum.of(rows[60:])
    both = first.add_high_low(*second.high_low())
    assert both.parts.tobytes() == GramSum.of(rows).parts.tobytes()
    high, low = first.high_low()
    assert both.add_high_low(-high, -low).parts.tobytes() == second.parts.tobytes()
    assert GramSum(4).restored(both.snapshot()).parts.tobytes() == both.parts.tobytes()


#: So small an sd that a release is not made coarser than the lattice.
FINE = 2.0**-30


@pytest.mark.parametrize("size", [1e-3, 1.0, 3.7e6])
def test_noise_is_added_in_integers(size: float) -> None:
    rng = np.random.default_rng(3)
    noise = rng.standard_normal(6) * size
    gram, zero = GramSum.of(some_rows(20, 3)), GramSum(3)
    np.testing.assert_allclose(zero.noisy(noise, FINE), noise * entry_weights(3), rtol=1e-12, atol=2**-40)
    # In lattice units the noisy value differs from the noise alone by the exact integer Gram.
    units = exact_entries(gram)
    if size <= 1.0:
        both, alone = gram.noisy(noise, FINE), zero.noisy(noise, FINE)
        assert [Fraction(float(b)) - Fraction(float(a)) for a, b in zip(alone, both, strict=True)] == units
    coarse = gram.noisy(noise, 8.0)
    assert (coarse * 2.0**17 == np.rint(coarse * 2.0**17)).all()
    np.testing.assert_allclose(coarse, gram.noisy(noise, FINE), atol=2.0**-17)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_never_lands_on_the_lattice(bad: float, compiled: bool) -> None:
    rows = np.full((5, 3), 0.1)
    rows[3, 1] = bad
    before = use(compiled)
    try:
        for given in (rows, rows[3:4]):
            with pytest.raises(BadRowError, match="finite"):
                onto_ball(given)
    finally:
        use(before)


def test_noisy_parts_are_what_a_gram_matrix_releases():
    rng = np.random.default_rng(0)
    exact = GramSum.of(onto_ball(rng.normal(size=(100, 5))))
    gram, nothing = GramInParts(exact), np.zeros((2, 15))
    assert gram.hidden[0] is exact.parts
    before = exact.parts.copy()
    for scale in (1e-6, 1.0, 1e6):
        noise = rng.normal(size=15) * scale
        fine = gram.noisy(noise, 1e-9)  # a grid as fine as the lattice
        np.testing.assert_array_equal(difference(fine, nothing), exact.noisy(noise, 1e-9))
        for std, grid in ((4.0, 2.0**-18), (2.0**30, 1.0)):
            coarse = gram.noisy(noise, std)
            released = difference(coarse, nothing)
            np.testing.assert_array_equal(released, np.rint(released / grid) * grid)
            np.testing.assert_allclose(released, exact.noisy(noise, 1e-9), rtol=0, atol=0.5 * grid + 1e-16 * scale)
            for parts in (fine, coarse):
                np.testing.assert_array_equal(parts[0], np.rint(parts[0]))
                assert (parts[1] >= 0.0).all()
                assert (parts[1] < 1.0).all()
    assert exact.parts.tobytes() == before.tobytes()


def test_differences_of_huge_sums_lose_nothing():
    later, earlier = np.array([[2.0**52 + 3.0], [5 * 2.0**-40]]), np.array([[2.0**52], [7 * 2.0**-40]])
    assert difference(later, earlier)[0] == 3.0 - 2.0 * 2.0**-40


def test_a_released_zero_has_no_sign():
    for zero in (coarsen(np.array([-1e-9]), 1.0), GramSum(1).noisy(np.array([-1e-9]), 1.0)):
        assert zero == 0.0
        assert not np.signbit(zero).any()


def test_sums_that_no_rows_have_are_told():
    zeros = np.zeros(3, dtype=np.int64)
    unit = np.array([1, 0, 0])  # of the packed entries (0, 0), (0, 1), (1, 1)
    assert is_plausible((unit, zeros), 1, 2)
    assert is_plausible((zeros, unit), 1, 2)
    for high, low in ((unit, unit), (2 * unit, zeros), (-unit, zeros), (zeros, -unit), (zeros, unit << 40)):
        assert not is_plausible((high, low), 1, 2)


def test_grids_are_2_to_the_minus_20_of_the_noise_and_no_finer_than_the_lattice():
    stds = (1.0, 1.5, 2.0, 2.0**-20, 2.0**-21, 1e-30)
    assert [grid_bits(std) for std in stds] == [-20, -19, -19, -40, -40, -40]
    assert [grid_step(std) for std in stds] == [2.0 ** grid_bits(std) for std in stds]
