"""Compiled eigenpairs beside LAPACK, and the certificate that they are the top ones."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from streampca import _native
from streampca.linalg.eigen import ritz_pairs, top_eigh, top_pairs
from streampca.linalg.svec import pack_entries

pytestmark = pytest.mark.usefixtures("compiled_kernels")


def matrix_of(values, rng):
    q = np.linalg.qr(rng.standard_normal((len(values), len(values))))[0]
    matrix = (q * values) @ q.T
    return 0.5 * (matrix + matrix.T)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(2, 40),
    st.integers(1, 6),
    st.sampled_from(["gaussian", "gap", "near", "equal", "zero", "diagonal", "rank one"]),
    st.sampled_from([1e-9, 1.0, 1e12]),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_top_pairs_are_those_of_a_direct_solver(d, k, kind, scale, seed, compiled):
    """With kernels by `compiled_eigen`, without by ``dstemr``; beside ``dsyevr``."""
    _native.use(compiled)
    rng = np.random.default_rng(seed)
    k = min(k, d)
    spectrum = rng.standard_normal(d)
    if kind == "gap":
        spectrum[:k] += 100.0
    elif kind == "near":  # closer than is told apart
        spectrum[: k + 1] = 5.0 + 1e-11 * spectrum[: k + 1]
    elif kind == "equal":
        spectrum[:] = 1.0
    matrix = matrix_of(spectrum, rng)
    if kind == "zero":
        matrix = np.zeros((d, d))
    elif kind == "diagonal":
        matrix = np.diag(np.round(3.0 * spectrum))
    elif kind == "rank one":
        matrix = np.outer(spectrum, spectrum)
    matrix *= scale
    norm = np.abs(matrix).sum(axis=0).max() + 1e-300
    values, basis = top_pairs(pack_entries(matrix), k)
    expected, plain = top_eigh(matrix, k)
    np.testing.assert_allclose(values, expected, rtol=0.0, atol=1e-12 * norm)
    np.testing.assert_allclose(basis.T @ basis, np.eye(k), atol=1e-11)
    assert np.abs(matrix @ basis - basis * values).max() <= 1e-11 * norm
    assert (basis[np.abs(basis).argmax(axis=0), np.arange(k)] >= 0.0).all()
    gap = 1.0 if k == d else np.linalg.eigvalsh(matrix)[::-1][k - 1 : k + 1] @ [1.0, -1.0] / norm
    if gap > 1e-4:
        np.testing.assert_allclose(basis @ basis.T, plain @ plain.T, atol=1e-10 / gap)


@pytest.mark.parametrize("d", [20, 100, 256, 257])
def test_top_pairs_of_noise_take_no_lapack_where_kernels_are_faster(d, monkeypatch):
    matrix = matrix_of(np.random.default_rng(0).standard_normal(d), np.random.default_rng(1))
    expected = top_eigh(matrix, 5)[0]
    called, name = [], "streampca.linalg.eigen._top_of_tridiagonal"
    monkeypatch.setattr(name, lambda *given: called.append(1) or top_pairs(*given, plain=True))
    np.testing.assert_allclose(top_pairs(pack_entries(matrix), 5)[0], expected, atol=1e-12)
    assert bool(called) == (d > 256)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 30), st.integers(1, 6), st.integers(0, 2**32))
def test_ritz_pairs_are_those_of_lapack(d, k, seed):
    rng = np.random.default_rng(seed)
    k = min(k, d)
    matrix, span = matrix_of(rng.standard_normal(d), rng), np.linalg.qr(rng.standard_normal((d, k)))[0]
    values, basis = ritz_pairs(pack_entries(matrix), span)
    expected, plain = ritz_pairs(pack_entries(matrix), span, plain=True)
    np.testing.assert_allclose(values, expected, atol=1e-12)
    np.testing.assert_allclose(basis @ basis.T, plain @ plain.T, atol=1e-12)
    np.testing.assert_allclose(basis.T @ matrix @ basis, np.diag(values), atol=1e-12)


def tridiagonal(d):
    rng = np.random.default_rng(d)
    diagonal, beside = rng.standard_normal(d), rng.standard_normal(d)
    matrix = np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1)
    values, vectors = np.linalg.eigh(matrix)
    return diagonal, beside, values[::-1].copy(), np.ascontiguousarray(vectors[:, ::-1].T), np.abs(values).max()


@pytest.mark.parametrize("d", [6, 60])
def test_a_wrong_certificate_is_rejected(d):
    diagonal, beside, values, vectors, norm = tridiagonal(d)
    k = 3

    def certified(values, vectors):
        return _native.compiled.certified(diagonal, beside, values.copy(), vectors.copy(), norm)

    assert certified(values[:k], vectors[:k])
    missed = [0, 1, 3]  # the third is not the third
    assert not certified(values[missed], vectors[missed])
    assert not certified(values[1 : k + 1], vectors[1 : k + 1])
    assert not certified(values[[0, 0, 1]], vectors[[0, 0, 1]])
    assert not certified(values[[0, 2, 1]], vectors[[0, 2, 1]])
    off = values[:k].copy()
    off[1] += 1e-10 * norm
    assert not certified(off, vectors[:k])
    turned = vectors[:k].copy()
    turned[0] = np.cos(1e-6) * vectors[0] + np.sin(1e-6) * vectors[k]
    assert not certified(values[:k], turned)
    assert not certified(values[:k], 1.0001 * vectors[:k])
    assert not certified(values[:k], np.full((k, d), np.nan))
    assert not certified(np.full(k, np.nan), vectors[:k])


def test_what_is_not_certified_is_left_to_lapack(monkeypatch):
    matrix = matrix_of(np.arange(12.0), np.random.default_rng(0))
    refused = SimpleNamespace(**{**vars(_native.compiled), "top_pairs": lambda *given: False})
    monkeypatch.setattr(_native, "compiled", refused)
    for made, expected in zip(top_pairs(pack_entries(matrix), 3), top_eigh(matrix, 3), strict=True):
        np.testing.assert_allclose(made, expected, atol=1e-12)
