"""Threads push in some order and lose nothing; a fork finds a stream before or after a piece of rows.

Forks happen in an interpreter of their own, where every warning is an error: this file is its script.
"""

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from golden_cases import BUDGET, STREAMS, D, ball
from interrupts import forked

import streampca as sp

NAMES = (
    "fpl", "fpl-smoothed", "fpl-tree", "fpl-discrete", "window-histogram", "window-ring", "window-smoothed",
    "window-forgetting", "private-oja", "tumbling",
)  # fmt: skip

THREADS, BLOCKS, BLOCK = 4, 6, 7


@pytest.fixture
def eager() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*work: Callable[[], None], meanwhile: Callable[[], None] = lambda: None) -> None:
    """Run in threads of their own, and something else over and over; raise what any of them raises."""
    with ThreadPoolExecutor(len(work)) as pool:
        running = [pool.submit(one) for one in work]
        while not all(one.done() for one in running):
            meanwhile()
        for one in running:
            one.result()


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("single", [False, True], ids=["blocks", "rows and blocks"])
@pytest.mark.parametrize("name", NAMES)
def test_threads_push_in_some_order_and_lose_nothing(name: str, single: bool) -> None:
    count = THREADS * BLOCKS * BLOCK
    algorithm = STREAMS[name][0]()
    stream = sp.Stream(algorithm, row_norm=1.0, features=D, seed=5)
    given = ball(count).reshape(THREADS, BLOCKS, BLOCK, D)
    taken: list[tuple[int, np.ndarray]] = []
    releases: list[sp.Release] = []
    start, seen = threading.Barrier(THREADS), [0]

    def push(mine: np.ndarray, one_by_one: bool) -> None:
        start.wait()
        for block in mine:
            if one_by_one:
                made = [stream.push(row) for row in block]
                taken.extend((step.t, row[None]) for step, row in zip(made, block, strict=True))
                releases.extend(step.release for step in made if step.release)
            else:
                steps = stream.push_many(block)
                taken.append((steps.first, block))
                releases.extend(steps.releases)

    def read() -> None:
        latest, stands = stream.release, stream.t
        assert latest is None or latest.t <= stands
        assert stands >= seen[0]
        seen[0] = stands
        assert not stands or stream.regret.now().t >= stands

    together(*(partial(push, mine, single and i % 2 == 0) for i, mine in enumerate(given)), meanwhile=read)
    assert stream.t == count
    taken.sort(key=lambda pair: pair[0])
    sizes = [len(block) for _, block in taken]
    assert [first for first, _ in taken] == [1, *(1 + np.cumsum(sizes[:-1])).tolist()]  # each row once, none twice
    serial = sp.Stream(algorithm, row_norm=1.0, features=D, seed=5)
    expected = serial.push_many(np.concatenate([block for _, block in taken])).releases
    assert [r.to_json() for r in sorted(releases, key=lambda r: r.t)] == [r.to_json() for r in expected]
    assert stream.regret.now() == serial.regret.now()


@pytest.mark.usefixtures("eager")
def test_threads_at_the_horizon_get_a_clear_error() -> None:
    stream = sp.Stream(sp.PrivateFPL(**BUDGET, horizon=60, release_every=3), row_norm=1.0, seed=5)
    refused: list[str] = []

    def push(seed: int) -> None:
        for block in ball(50 + seed)[:50].reshape(10, 5, D):
            try:
                stream.push_many(block)
            except sp.errors.HorizonReachedError as problem:
                refused.append(str(problem))

    together(*(partial(push, seed) for seed in range(THREADS)))
    assert stream.t == 60
    assert len(refused) == THREADS * 10 - 12


# -- forks while another thread is at work ---------------------------------------------------------------


def fork_while_a_thread_pushes(forks: int = 10) -> None:
    """The child of a fork finds the stream exactly before or after a piece, and its lock open."""
    loud = sp.PrivateFPL(
        n_components=2, epsilon=1e9, delta=0.1, horizon=10**6, release_every=1, center=False
    )  # next to no noise
    stream, pool, stop = sp.Stream(loud, row_norm=1.0, features=D), ball(4000), threading.Event()

    def push() -> None:
        at = 0
        while not stop.is_set():
            stream.push_many(pool[np.arange(at, at + 3) % len(pool)])
            at += 3

    def child() -> None:
        t = stream.t
        stream.push_many(pool[np.arange(t, t + 5) % len(pool)])
        taken = pool[np.arange(t + 5) % len(pool)]
        assert stream.t == t + 5
        assert stream.release is not None
        assert np.abs(stream.release.gram - taken.T @ taken).max() < 1e-2

    thread = threading.Thread(target=push)
    thread.start()
    try:
        for _ in range(forks):
            assert os.waitpid(forked(child), 0)[1] == 0
    finally:
        stop.set()
        thread.join()


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="Python warns of forks of a process with threads")
def test_a_fork_while_a_thread_pushes() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", __file__], capture_output=True, text=True, check=False, timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


if __name__ == "__main__":
    warnings.simplefilter("ignore", sp.errors.StreamPCAWarning)  # few rows are what these tests are about
    fork_while_a_thread_pushes()
