import itertools
from typing import Any

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from streampca.errors import UsageError
from streampca.linalg.eigen import top_eigh
from streampca.rows.protocol import RowSource
from streampca.sources.synthetic import adversarial, drift, spiked


def rows_of(source: Any) -> np.ndarray:
    return np.concatenate(list(source.blocks()))


@pytest.mark.parametrize("make", [spiked, drift, adversarial])
def test_conformance(make: Any) -> None:
    shape = {"n_features": 12, "n_components": 3}
    source = make(n_rows=10_000, seed=7, **shape)
    assert isinstance(source, RowSource)
    assert source.features == tuple(f"x{i}" for i in range(12))
    assert source.bounds is None
    rows = rows_of(source)
    assert rows.shape == (10_000, 12)
    assert np.isfinite(rows).all()
    for truth in (source.truth_at(10_000), source.truth_at(1)):
        np.testing.assert_allclose(truth.T @ truth, np.eye(3), atol=1e-12)
    # The same rows again, one at a time, from an equal source, and at the head of a longer one.
    assert rows_of(source).tobytes() == rows.tobytes()
    assert np.array(list(itertools.islice(source, 50))).tobytes() == rows[:50].tobytes()
    assert rows_of(make(n_rows=10_000, seed=7, **shape)).tobytes() == rows.tobytes()
    assert rows_of(make(n_rows=10_000, seed=8, **shape)).tobytes() != rows.tobytes()
    pace = {"quarter_turn": 10_000} if make is drift else {}  # n_rows by default
    assert rows_of(make(n_rows=10_007, seed=7, **shape, **pace))[:10_000].tobytes() == rows.tobytes()


def test_the_spectrum_and_the_truth_of_spiked_rows_are_those_asked_for() -> None:
    source = spiked(200_000, 10, 2, seed=5, signal=0.8, norm=0.6)
    rows = rows_of(source)
    signal, noise = 0.36 * 0.8, 0.36 * 0.02
    expected = [signal / 1.8 + noise, signal * 0.8 / 1.8 + noise] + [noise] * 8
    # A sample eigenvalue has a relative sd of sqrt(2/n) = 0.3 %: 2 % is over six of them.
    np.testing.assert_allclose(np.linalg.eigvalsh(rows.T @ rows / len(rows))[::-1], expected, rtol=0.02)
    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)  # as admitted
    _, basis = top_eigh(rows.T @ rows, 2)
    assert subspace_angles(basis, source.truth_at(1)).max() < 0.03
    assert subspace_angles(np.eye(10)[:, :2], source.truth_at(1)).max() > 0.5


def test_drift_turns_as_it_says() -> None:
    source = drift(40_000, 12, 3, seed=2)
    angles = [subspace_angles(source.truth_at(1), source.truth_at(t)) for t in (1, 20_001, 40_001)]
    np.testing.assert_allclose(angles, [[0] * 3, [np.pi / 4] * 3, [np.pi / 2] * 3], atol=1e-7)
    rows = rows_of(source)
    for t in (0, 20_000, 38_000):
        _, basis = top_eigh(rows[t : t + 2000].T @ rows[t : t + 2000], 3)
        assert subspace_angles(basis, source.truth_at(t + 1000)).max() < 0.2
        assert subspace_angles(basis, source.truth_at((t + 20_000) % 40_000)).max() > 0.6


@pytest.mark.parametrize(("d", "k"), [(2, 1), (5, 3), (8, 7)])
def test_the_leader_earns_nothing_from_the_adversary(d: int, k: int) -> None:
    source = adversarial(300, d, k, seed=1)
    rows, gram = rows_of(source), np.zeros((d, d))
    np.testing.assert_allclose(np.linalg.norm(rows[k:], axis=1), 1.0, atol=1e-12)
    assert np.linalg.norm(rows, axis=1).max() <= 1 + 1e-12
    for t, row in enumerate(rows):
        before = gram.copy()
        gram += np.outer(row, row)
        if t >= k:
            assert np.linalg.norm(top_eigh(before, k)[1].T @ row) < 1e-6
            values, basis = top_eigh(gram, k)
            assert subspace_angles(basis, source.truth_at(t + 1)).max() < 1e-6
    assert values.sum() == pytest.approx(300 * k / (k + 1), abs=k)


def test_bad_options() -> None:
    for make, options, message in (
        (spiked, {"signal": 1.5}, "signal=1.5: expected a number between 0 and 1"),
        (spiked, {"norm": 0}, "norm=0: expected a positive finite number"),
        (drift, {"n_features": 5}, "6 directions exceed n_features=5"),
        (adversarial, {"n_features": 3}, "4 directions exceed n_features=3"),
        (drift, {"quarter_turn": 0}, "quarter_turn=0"),
        (spiked, {"n_rows": 0}, "n_rows=0"),
        (drift, {"n_features": 2, "n_components": 3}, "n_components=3 exceeds n_features=2"),
        (spiked, {"seed": -1}, "seed=-1: expected a non-negative integer"),
        (adversarial, {"seed": 0.5}, "seed=0.5"),
    ):
        with pytest.raises(UsageError, match=message):
            make(**options)  # type: ignore[operator]
