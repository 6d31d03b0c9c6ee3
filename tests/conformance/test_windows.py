"""Every mechanism for windows: it is what its matrices say, and its noise is that of the published table."""

from __future__ import annotations

import numpy as np
import pytest

from streampca.matrix_factorization.blt import GeometricBLT
from streampca.matrix_factorization.window import ForgettingBLT, StationaryBLT, WindowDifference

MU, SENSITIVITY, N = 0.7, 1.5, 40
KINDS = {"stationary": StationaryBLT, "twin": WindowDifference, "forgetting": ForgettingBLT}


@pytest.mark.parametrize("kind", KINDS)
def test_the_workload_is_what_is_promised(kind):
    mechanism = KINDS[kind](8, MU)
    lag = np.arange(N)[:, None] - np.arange(N)
    if kind == "twin":
        expected = (lag >= 0) & (lag < 8)
    elif kind == "forgetting":
        expected = np.where(lag >= 0, 0.875 ** np.abs(lag), 0.0)
    else:
        expected = lag >= 0
    np.testing.assert_allclose(mechanism.workload(N), expected, rtol=1e-14)


@pytest.mark.parametrize("window", [1, 2, 3, 8, 13])
def test_lag_std_bounds_every_difference(window):
    mechanism, n = StationaryBLT(window, MU, SENSITIVITY), 120
    reconstruction = np.vstack([np.zeros((1, n)), mechanism.reconstruction(n)])
    for lag in (1, window, 2 * window):
        measured = np.linalg.norm(reconstruction[lag:] - reconstruction[:-lag], axis=1)
        assert measured.max() <= mechanism.lag_std(lag) * (1.0 + 1e-12)
        assert measured[-1] == pytest.approx(mechanism.lag_std(lag), rel=1e-3)  # and reaches it


def a_fresh_mechanism_each_block(block):
    reconstruction = np.vstack([np.zeros(block.horizon), block.reconstruction(block.horizon)])
    start = np.linalg.norm(reconstruction, axis=1)
    rest = np.linalg.norm(reconstruction[-1] - reconstruction, axis=1)
    return np.hypot(start.max(), rest.max())


def test_window_noise_table():
    for log_w, lagged, faded in [(8, 3.52, 2.43), (10, 4.14, 2.87), (14, 5.39, 3.75), (16, 6.01, 4.19)]:
        w = 2**log_w
        assert WindowDifference(w, 1.0).std(100 * w) == pytest.approx(lagged, rel=0.01)
        assert StationaryBLT(w, 1.0).lag_std(w) == pytest.approx(lagged, rel=0.01)
        assert ForgettingBLT(w, 1.0).limit_std == pytest.approx(faded, rel=0.01)
    for log_w, block in [(8, 4.12), (10, 4.81)]:
        assert a_fresh_mechanism_each_block(GeometricBLT(2**log_w, 1.0)) == pytest.approx(block, rel=0.01)
