"""The printed sliding-window algorithms give rows away: read off, and neighbours told apart."""

import math

import numpy as np
import pytest
from printed_windows import PrintedSlidingSketch, PrintedSlidingWishart

from streampca.linalg.lattice import onto_ball

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def rows(n, d, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, d))
    return onto_ball(x / np.linalg.norm(x, axis=1, keepdims=True) * 0.9)


def recovered(difference):
    """The row whose outer product this is, up to sign, or None if it is not one."""
    values, vectors = np.linalg.eigh(difference)
    others = np.abs(values[:-1]).max() if values.size > 1 else 0.0
    return None if others > 1e-7 or values[-1] < 0.0 else math.sqrt(values[-1]) * vectors[:, -1]


def is_row(guess, row):
    return guess is not None and min(np.abs(guess - row).max(), np.abs(guess + row).max()) < 1e-6


def test_wishart_outputs_differ_by_the_rows():
    """Without the ordering step, in a window that still fills: every row is read off."""
    x = rows(400, 4)
    printed = PrintedSlidingWishart(1000, **BUDGET, keep_order=False, rng=np.random.default_rng(1))
    outputs = [printed.push(row) for row in x]
    hits = sum(is_row(recovered(b - a), row) for a, b, row in zip(outputs, outputs[1:], x[1:], strict=False))
    assert hits == 399


def test_wishart_as_printed_loses_rows_or_gives_them_away():
    """With step 10 the window collapses to the latest rows; whenever it does not, the row is read off."""
    x = rows(400, 4)
    printed = PrintedSlidingWishart(1000, **BUDGET, rng=np.random.default_rng(1))
    starts, outputs = [], []
    for row in x:
        outputs.append(printed.push(row))
        starts.append(printed.starts[0])
    kept = [i for i in range(1, 400) if starts[i] == starts[i - 1]]
    assert np.mean([i + 1 - start for i, start in enumerate(starts)]) < 10  # a "window" of 1000 rows
    assert all(is_row(recovered(outputs[i] - outputs[i - 1]), x[i]) for i in kept)


def test_wishart_releases_the_largest_of_many_noises():
    """One release only: the noise in it is larger than a fresh draw's, as the kept start was chosen by it."""
    kept, fresh = [], []
    for seed in range(100):
        printed = PrintedSlidingWishart(100, **BUDGET, rng=np.random.default_rng(seed))
        for _ in range(30):
            output = printed.push(np.zeros(1))
        kept.append(float(output[0, 0]))
        first = PrintedSlidingWishart(100, **BUDGET, rng=np.random.default_rng(seed + 10_000))
        fresh.append(float(first.push(np.zeros(1))[0, 0]))
    error = math.sqrt((np.var(kept) + np.var(fresh)) / 100)
    assert np.mean(kept) - np.mean(fresh) > 6.0 * error


def test_sketch_gives_away_directions_and_zero_rows():
    x = rows(200, 5)
    x[77] = 0.0
    printed = PrintedSlidingSketch(5, 1000, rank=2, **BUDGET, rng=np.random.default_rng(3))
    starts, outputs = [], []
    for row in x:
        outputs.append(printed.push(row))
        starts.append(printed.starts[0])
    assert starts[-1] == 1
    for i in range(1, 200):
        difference = outputs[i] - outputs[i - 1]
        if i == 77:
            assert not difference.any()
            continue
        _, values, directions = np.linalg.svd(difference, full_matrices=False)
        assert values[1] < 1e-9
        assert abs(directions[0] @ x[i]) / np.linalg.norm(x[i]) > 1.0 - 1e-9
        assert values[0] == pytest.approx(np.linalg.norm(x[i]), rel=0.3)  # |g| is 1 up to 1/sqrt(2 * 128)
