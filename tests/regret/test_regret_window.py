"""Dynamic regret: each window of rows has a best subspace of its own."""

from __future__ import annotations

import numpy as np
import pytest

from streampca.linalg.lattice import onto_ball
from streampca.processors.private_fpl import PrivateFPL
from streampca.regret.regret import RegretLog
from streampca.stream.stream import Stream

D, K, W, N = 4, 2, 50, 230


def rows(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, D)) * 0.05
    x[np.arange(N), (np.arange(N) // W) % D] += 0.8  # a new direction every window
    return onto_ball(x)


def best(x):
    return float(np.linalg.eigvalsh(x.T @ x)[-K:].sum())


def stream(log, **given):
    processor = PrivateFPL(n_components=K, epsilon=5.0, delta=1e-6, **given)
    return Stream(processor, regret=log, row_norm=2.0, seed=1)


@pytest.mark.parametrize("every", [None, 1, 70])
def test_opt_is_the_sum_over_windows(every):
    x = rows()
    s = stream(RegretLog(window=W, every=every))
    rewards = np.array([step.reward for step in s.run(2.0 * x)])
    for record in [*s.regret.history, s.regret.now()]:
        t = record.t
        opt = 4.0 * sum(best(x[start : min(start + W, t)]) for start in range(0, t, W))
        assert record.opt == pytest.approx(opt, rel=1e-9)
        assert record.reward == pytest.approx(rewards[:t].sum(), rel=1e-9)
        assert record.regret == pytest.approx(opt - record.reward, rel=1e-9)
        assert record.bound is None
    # captured is of the window under way: rows 201 to 230
    basis = s.engine.subspace.basis
    last = x[200:]
    assert s.regret.now().captured == pytest.approx(np.sum((last @ basis) ** 2) / best(last))


def test_dynamic_regret_is_larger_and_blocks_change_nothing():
    x = 2.0 * rows()
    fixed, moving, blocks = map(stream, (RegretLog(), *[RegretLog(window=W, every=7)] * 2))
    for s in (fixed, moving):
        for row in x:
            s.push(row)
    blocks.push_many(x[:33])
    blocks.push_many(x[33:])
    assert moving.regret.now().opt > fixed.regret.now().opt
    assert blocks.regret.history == moving.regret.history
    np.testing.assert_array_equal(moving.regret.exact_gram(), fixed.regret.exact_gram())
