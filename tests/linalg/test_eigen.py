import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.linalg import subspace_angles

from streampca import _native
from streampca.linalg import eigen
from streampca.linalg.eigen import fix_signs, negative_direction, orthonormal, power_step, ritz_pairs, top_eigh, top_sum
from streampca.linalg.svec import pack_entries


@settings(deadline=None, max_examples=40)
@given(d=st.integers(1, 15), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_top_eigenpairs(d: int, seed: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, d))
    a = np.random.default_rng(seed).standard_normal((d, d))
    a = a + a.T
    values, basis = top_eigh(a, k)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(a)[::-1][:k], atol=1e-9)
    np.testing.assert_allclose(top_sum(a, k), values.sum(), atol=1e-9)
    np.testing.assert_allclose(basis.T @ basis, np.eye(k), atol=1e-12)
    np.testing.assert_allclose(a @ basis, basis * values, atol=1e-9)


def test_ties_and_zero_matrices_give_orthonormal_bases() -> None:
    for matrix in (np.zeros((5, 5)), np.eye(5), np.diag([1.0, 1.0, 0.0, 0.0, 0.0])):
        basis = top_eigh(matrix, 3)[1]
        np.testing.assert_allclose(basis.T @ basis, np.eye(3), atol=1e-12)


def test_signs_are_fixed_by_the_largest_entry() -> None:
    basis = np.array([[0.6, -0.8], [-0.8, -0.6]])
    np.testing.assert_array_equal(fix_signs(basis), [[-0.6, 0.8], [0.8, 0.6]])


def test_orthonormal_spans_the_columns() -> None:
    a = np.random.default_rng(0).standard_normal((7, 3))
    q = orthonormal(a)
    np.testing.assert_allclose(q @ (q.T @ a), a, atol=1e-12)
    assert (np.diagonal(q.T @ a) > 0).all()
    for scale in (1e-3, 1.0, 1e3):
        np.testing.assert_allclose(orthonormal(scale * q), q, atol=1e-14)


@pytest.mark.parametrize(("d", "k"), [(4, 2), (90, 3), (130, 2)])
def test_a_power_step_spans_the_shifted_product(monkeypatch, d, k):
    monkeypatch.setattr(_native, "compiled", None)
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((d, d))
    matrix += matrix.T
    span = np.asfortranarray(np.linalg.qr(rng.standard_normal((d, k)))[0])
    before = span.copy()
    packed = pack_entries(matrix)
    basis = power_step(packed, span, 3.0)
    np.testing.assert_array_equal(span, before)
    np.testing.assert_array_equal(packed, pack_entries(matrix))
    np.testing.assert_allclose(basis.T @ basis, np.eye(k), atol=1e-13)
    assert subspace_angles(basis, orthonormal((matrix + 3.0 * np.eye(d)) @ span)).max() < 1e-12


def symmetric(seed, d, shift):
    a = np.random.default_rng(seed).normal(size=(d, d))
    return a + a.T + shift * np.eye(d)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 90), shift=st.floats(-5.0, 40.0))
def test_a_matrix_is_positive_or_has_a_negative_direction(seed, d, shift):
    matrix = symmetric(seed, d, shift)
    smallest = np.linalg.eigvalsh(matrix)[0]
    x = negative_direction(matrix)
    if abs(smallest) > 1e-9:
        assert (smallest > 0.0) == (x is None)
    if x is not None:
        assert np.linalg.norm(x) == pytest.approx(1.0)
        assert x @ matrix @ x <= 1e-9


def test_a_solver_that_fails_is_replaced(monkeypatch):
    a = np.random.default_rng(0).normal(size=(6, 6))
    a = a + a.T
    span = np.linalg.qr(a)[0][:, :3]
    packed = pack_entries(a)
    expected = top_eigh(a, 2), top_sum(a, 2), ritz_pairs(packed, span, plain=True)

    class Failing:
        @staticmethod
        def dsyevr(matrix, **_):
            return np.zeros(6), np.zeros((6, 6)), 0, None, 1

        @staticmethod
        def dsyev(matrix):
            return np.zeros(3), np.zeros((3, 3)), 1

    monkeypatch.setattr(eigen, "lapack", Failing)
    found = top_eigh(a, 2), ritz_pairs(packed, span, plain=True)
    for (values, basis), (true_values, true_basis) in zip(found, expected[::2], strict=True):
        np.testing.assert_allclose(values, true_values, atol=1e-12)
        np.testing.assert_allclose(basis, true_basis, atol=1e-12)
    assert top_sum(a, 2) == pytest.approx(expected[1])


@pytest.mark.parametrize("refused", ["info", "count", "zero vectors"])
def test_dsyevr_takes_over_where_dstemr_fails(monkeypatch, refused):
    a = np.random.default_rng(0).normal(size=(6, 6))
    a = a + a.T
    real = eigen.lapack.dstemr

    def failing(*given):
        count, values, vectors, info = real(*given)
        if refused == "zero vectors":
            vectors = 0.0 * vectors
        return count - (refused == "count"), values, vectors, info + (refused == "info")

    before = _native.use(False)
    monkeypatch.setattr(eigen.lapack, "dstemr", failing)
    for made, expected in zip(eigen.top_pairs(pack_entries(a), 3), top_eigh(a, 3), strict=True):
        np.testing.assert_array_equal(made, expected)
    _native.use(before)


@pytest.mark.parametrize("values", [np.arange(300.0), np.r_[np.full(290, 1.0), np.full(10, 1.0 + 1e-9)], np.zeros(300)])
@pytest.mark.parametrize("k", [1, 5, 299, 300])
def test_lanczos_sums_the_leading_eigenvalues(values, k):
    q = np.linalg.qr(np.random.default_rng(1).normal(size=(300, 300)))[0]
    expected = np.sort(values)[300 - k :].sum()
    assert eigen.lanczos_sum((q * values) @ q.T, k) == pytest.approx(expected, rel=1e-8, abs=1e-12)
