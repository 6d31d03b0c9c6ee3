"""The curator is a small share of a run on 1000 cores, and workers do not wait for it."""

from __future__ import annotations

import pytest
from cluster_costs import default_task, simulate


@pytest.mark.ci
def test_workers_are_busy_at_the_default_size_of_a_task() -> None:
    rows, workers, every = 10**12, 1000, 10**9
    made = simulate(rows, workers, default_task(workers, rows, every), every)
    assert made.busy >= 0.95
    assert made.serial <= 0.15 * made.wall


def test_what_makes_workers_wait() -> None:
    rows, workers, size = 10**11, 1000, 2**22
    assert simulate(rows, workers, size, 10**5).busy < 0.5  # releases
    assert simulate(rows, workers, size, 10**9, in_order=True).busy < 0.7
    small = simulate(rows, workers, 2**18, 10**9)
    assert small.serial > 0.3 * small.wall
