import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streampca.linalg.eigen import fix_signs, orthonormal, power_step, principal_angles, top_eigh, top_sum
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


@pytest.mark.parametrize("angle", [0.0, 1e-12, 1e-4, 0.7, np.pi / 2])
def test_principal_angles_keep_their_digits(angle: float) -> None:
    a = np.eye(4)[:, :2]
    b = np.stack([np.eye(4)[0], np.cos(angle) * np.eye(4)[1] + np.sin(angle) * np.eye(4)[2]], axis=1)
    np.testing.assert_allclose(principal_angles(a, b), [0.0, angle], rtol=1e-6, atol=1e-15)


@pytest.mark.parametrize(("d", "k"), [(4, 2), (40, 1), (90, 3), (89, 3)])
def test_a_power_step_spans_the_shifted_product(d, k):
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
    assert principal_angles(basis, orthonormal((matrix + 3.0 * np.eye(d)) @ span)).max() < 1e-12
