from functools import partial

import numpy as np
import pytest

import streampca as sp
from streampca.errors import BadParameterError

fpl = partial(sp.PrivateFPL, n_components=1, epsilon=1.0, release_every=1, center=False)


def test_the_last_short_block_is_released() -> None:
    processor = fpl(horizon=25, release_every=10)
    assert processor.noise_std(25) == fpl(horizon=3).noise_std(3)
    assert processor.noise_std(24) == processor.noise_std(20)
    stream = sp.Stream(processor, row_norm=1.0, seed=0)
    assert [r.t for r in stream.push_many(np.zeros((25, 3))).releases] == [10, 20, 25]


def test_tracking_follows_the_exact_leader_with_less_regret() -> None:
    """On two seeds the tracked subspace captures as much, loses less, and is the Ritz basis of its span."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((4000, 12)) * np.concatenate([[3, 2], np.full(10, 0.3)])
    regrets: dict[str, list[float]] = {"exact": [], "tracking": []}
    for seed in range(2):
        for solver, kept in regrets.items():
            stream = sp.Stream(fpl(n_components=2, horizon=4000, solver=solver), row_norm=4.0, seed=seed)
            release = stream.push_many(rows).releases[-1]
            record = stream.regret.now()
            assert record.captured > 0.99
            if solver == "exact":
                assert record.bound is not None
                assert record.bound < record.opt
            else:
                assert record.bound is None
            kept.append(record.regret)
            basis, values = release.subspace.basis, release.eigenvalues
            inside = basis.T @ release.gram @ basis
            np.testing.assert_allclose(inside, np.diag(values), atol=1e-6 * values[0])  # type: ignore[index]
            assert values[0] > values[1]  # type: ignore[index]
            best = np.linalg.eigvalsh(release.gram)[::-1][:2].sum()
            assert 0.97 * best < values.sum() <= best * (1 + 1e-12)  # type: ignore[union-attr]
    assert np.mean(regrets["tracking"]) < np.mean(regrets["exact"])


def test_noise_before_the_first_release_and_past_the_horizon() -> None:
    with pytest.raises(BadParameterError, match="expected at least 10"):
        fpl(release_every=10).noise_std(9)
    with pytest.raises(BadParameterError, match="expected at most horizon=5"):
        fpl(horizon=5).noise_std(6)
