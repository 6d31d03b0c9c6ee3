import numpy as np
import pytest
from hypothesis import given, strategies as st

from streampca.linalg.svec import pack_entries, svec, svec_size, unpack_entries, unsvec


def symmetric(d: int, seed: int) -> np.ndarray:
    a = np.random.default_rng(seed).standard_normal((d, d))
    return a + a.T


@given(d=st.integers(1, 12), seed=st.integers(0, 2**32 - 1))
def test_svec_is_an_isometry_with_an_inverse(d: int, seed: int) -> None:
    a, b = symmetric(d, seed), symmetric(d, seed + 1)
    assert svec(a).shape == (svec_size(d),)
    assert svec(a) @ svec(b) == pytest.approx(np.sum(a * b), abs=1e-9)
    np.testing.assert_allclose(unsvec(svec(a), d), a, rtol=1e-15)
    np.testing.assert_array_equal(unpack_entries(pack_entries(a), d), a)
