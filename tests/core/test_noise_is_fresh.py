"""Two continuations of one run have independent noise from the first leaf on that differs, however they came about.

The noise of a release is what it differs by from the exact matrix. Two continuations share the noise up to the leaf
where they part; the difference of what they release after it, less the exact difference, must be as large as
independent fresh vectors make it. False alarms: with 40 numbers or more a vector, half of the expected norm is at least
4.5 standard deviations away.

Each way is run three times: as it is; with nothing fresh (the system always gives the same bytes, and copies are not
marked), where equal histories then have equal releases; and with a hash that ignores what is hidden besides, where the
difference of two releases is exact.

Forks happen in an interpreter of their own with one thread, where every warning is an error: this file is its script.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import secrets
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from feeding import feed

import streampca as sp
from streampca.linalg.lattice import onto_ball
from streampca.privacy.outlet import NoiseSource, Outlet
from streampca.stream import replay
from streampca.stream.engine import Engine

D, K, EVERY, LEAVES = 20, 2, 3, 8
#: Rows before the two continuations part: three leaves, and a row that waits.
BEFORE = 3 * EVERY + 1
KEY = bytes(range(32))
BUDGET = {"n_components": K, "epsilon": 1.0, "delta": 1e-6}
MODES = ("as it is", "nothing fresh", "nothing fresh and blind")

Noise = tuple[int, np.ndarray]


@dataclass(frozen=True)
class Setup:
    """An algorithm, and what its releases hold: ``weights(n)`` of the leaves, and ``noise(n)`` of the fresh vectors."""

    algorithm: Any
    weights: Callable[[int], np.ndarray]
    noise: Callable[[int], np.ndarray]
    size: int = D * (D + 1) // 2


def fpl(horizon: int = LEAVES * EVERY, **options: Any) -> Setup:
    algorithm = sp.PrivateFPL(center=False, **BUDGET, horizon=horizon, release_every=EVERY, **options)
    return Setup(algorithm, algorithm.mechanism.workload, algorithm.mechanism.reconstruction)


def window(method: str, horizon: int = 0, **options: Any) -> Setup:
    algorithm = sp.SlidingWindowPCA(
        center=False, **BUDGET, window=4 * EVERY, release_every=EVERY, method=method, **options
    )
    return Setup(algorithm, algorithm.mechanism.workload, algorithm.mechanism.reconstruction)


def oja(horizon: int = 0) -> Setup:
    algorithm = sp.PrivateOja(**BUDGET, batch_size=EVERY)
    return Setup(algorithm, np.eye, lambda n: algorithm.noise_std(D) * np.eye(n), D * K)


def blocks(horizon: int = 0) -> Setup:
    mechanism = sp.GaussianCovariance(**BUDGET, center=False)
    return Setup(sp.Tumbling(mechanism, release_every=EVERY), np.eye, lambda n: mechanism.sigma * np.eye(n))


SETUPS: dict[str, Callable[..., Setup]] = {
    "blt": fpl,
    "smoothed": partial(fpl, solver="smoothed"),
    "tree": partial(fpl, noise="tree"),
    "exact": partial(fpl, noise=sp.Tree(discrete=True)),
    "histogram": partial(window, "histogram", checkpoint_every=4 * EVERY, overhang=1.0),
    "ring": partial(window, "ring"),
    "smoothed ring": partial(window, "smoothed"),
    "forgetting": partial(window, "forgetting"),
    "oja": oja,
    "tumbling": blocks,
}


def rows(seed: int, count: int) -> np.ndarray:
    return onto_ball(np.random.default_rng(seed).normal(size=(count, D)) / np.sqrt(D))


def differing() -> tuple[np.ndarray, np.ndarray]:
    """Rows of two continuations, all but the first of them equal."""
    first = rows(1, LEAVES * EVERY - BEFORE)
    second = first.copy()
    second[0] = 0.0
    return first, second


def begun(setup: Setup, **options: Any) -> sp.Stream:
    """A stream that has taken the rows before."""
    stream = sp.Stream(setup.algorithm, row_norm=1.0, features=D, **options)
    stream.push_many(rows(0, BEFORE - 1))
    stream.push(rows(0, BEFORE)[-1])
    return stream


def pushed(stream: sp.Stream, after: np.ndarray) -> list[sp.Release]:
    first = stream.push(after[0]).release
    return [*([first] if first else []), *stream.push_many(after[1:]).releases]


def told(setup: Setup, take: Callable[[np.ndarray], list[sp.Release]], after: np.ndarray) -> list[Noise]:
    """Take rows after those before; the number of each leaf that is released, and the noise in it."""
    heard: list[np.ndarray] = []
    gaussian = Outlet.gaussian

    def overheard(self: Outlet, kind: str, values: np.ndarray, *rest: float) -> np.ndarray:
        released = gaussian(self, kind, values, *rest)
        heard.append(released - values)
        return released

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Outlet, "gaussian", overheard)
        releases = take(after)
    if heard:  # sums of gradients, of which only the basis is released
        return [(r.t // EVERY, noise) for r, noise in zip(releases, heard, strict=True)]
    seen, found = np.concatenate([rows(0, BEFORE), after]), []
    for release in releases:
        n = release.t // EVERY
        leaves = seen[: release.t].reshape(n, EVERY, D)
        found.append((n, release.gram - np.einsum("i,ija,ijb->ab", kept(setup.weights(n), release), leaves, leaves)))
    return found


def kept(table: np.ndarray, release: sp.Release) -> np.ndarray:
    """The line of a release in a table of sums of all leaves, less that of the sum before its window (histogram)."""
    line = table[-1].copy()
    if "checkpoints" in release.details:
        first = (release.details["window"][0] - 1) // EVERY
        line -= table[first - 1] if first else 0.0
    return line


# -- the ways -----------------------------------------------------------------------------------------

Pair = tuple[list[Noise], list[Noise]]
Way = Callable[[Setup, np.ndarray, np.ndarray], Pair]


def copied(setup: Setup) -> tuple[sp.Stream, sp.Stream]:
    text = pickle.dumps(begun(setup))
    return pickle.loads(text), pickle.loads(text)


def restored(setup: Setup) -> tuple[sp.Stream, sp.Stream]:
    stream, other = begun(setup, key=KEY), sp.Stream(setup.algorithm, row_norm=1.0, features=D, key=KEY)
    replay.restore(other.engine, replay.saved(stream.engine)["state"], stream.release)
    return stream, other


def of_streams(make: Callable[[Setup], tuple[sp.Stream, sp.Stream]]) -> Way:
    def way(setup: Setup, first: np.ndarray, second: np.ndarray) -> Pair:
        stream, other = make(setup)
        return told(setup, partial(pushed, stream), first), told(setup, partial(pushed, other), second)

    return way


def steps(setup: Setup, first: np.ndarray, second: np.ndarray) -> Pair:
    """Two continuations of one processor, which is a value."""
    start, _ = feed(setup.algorithm.start(D), rows(0, BEFORE))
    first_noise, second_noise = (told(setup, lambda rows: feed(start, rows)[1], after) for after in (first, second))
    return first_noise, second_noise


def forked(work: Callable[[], None]) -> int:
    """Do something in a child, which ends with 0, or with 1 if it raised."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return child


def os_fork(setup: Setup, first: np.ndarray, second: np.ndarray) -> Pair:
    stream = begun(setup)
    reading, writing = os.pipe()

    def work() -> None:
        with os.fdopen(writing, "wb") as out:
            pickle.dump(told(setup, partial(pushed, stream), second), out)

    child = forked(work)
    os.close(writing)
    mine = told(setup, partial(pushed, stream), first)
    with os.fdopen(reading, "rb") as back:
        theirs = pickle.load(back)
    assert os.waitpid(child, 0)[1] == 0
    return mine, theirs


#: The ways, and how many leaves both runs have in common before they part.
WAYS: dict[str, tuple[Way, int]] = {
    "one key": (of_streams(lambda setup: (begun(setup, key=KEY), begun(setup, key=KEY))), 0),
    "one algorithm": (of_streams(lambda setup: (begun(setup), begun(setup))), 0),
    "deepcopy": (of_streams(lambda setup: (stream := begun(setup), copy.deepcopy(stream))), BEFORE // EVERY),
    "pickle": (of_streams(copied), BEFORE // EVERY),
    "state and restore": (of_streams(restored), BEFORE // EVERY),
    "two steps of one processor": (steps, BEFORE // EVERY),
    "os.fork": (os_fork, BEFORE // EVERY),
}


# -- the three modes ------------------------------------------------------------------------------------


def broken(patch: pytest.MonkeyPatch, mode: str) -> None:
    """Take the defences away: first fresh bytes of every kind, then the hash of what is hidden."""
    if mode != MODES[0]:
        patch.setattr(os, "urandom", bytes)
        patch.setattr(secrets, "token_bytes", bytes)
        patch.setattr(Engine, "mark_copied", lambda self: None)
    if mode == MODES[2]:
        link = NoiseSource.link
        patch.setattr(NoiseSource, "link", lambda self, chain, kind, fresh, tags: link(self, chain, kind, fresh, b""))


def ratios(setup: Setup, way: Way, shared: int, *after: np.ndarray) -> list[float]:
    """For each leaf: the norm of the difference of the noises, over what independent fresh vectors make it."""
    found = []
    for (n, mine), (same, theirs) in zip(*way(setup, *after), strict=True):
        assert n == same
        fresh = setup.noise(n)[-1, shared:]
        found.append(float(np.linalg.norm(mine - theirs) / np.sqrt(2.0 * setup.size * (fresh @ fresh))))
    assert len(found) == LEAVES - BEFORE // EVERY
    return found


def measured(way: str, mode: str, name: str) -> dict[str, list[float]]:
    run, shared = WAYS[way]
    with pytest.MonkeyPatch.context() as patch:
        broken(patch, mode)
        setup, (first, second) = SETUPS[name](), differing()
        return {name: ratios(setup, run, shared, first, x) for name, x in {"differ": second, "equal": first}.items()}


@cache
def measured_in_forks(way: str) -> Any:
    """What was measured, by mode and algorithm."""
    return json.loads(in_an_interpreter_of_its_own(way))


def in_an_interpreter_of_its_own(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", __file__, *arguments], capture_output=True, text=True, check=False, timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def check(mode: str, found: dict[str, list[float]]) -> None:
    if mode == "as it is":
        assert min(found["differ"]) > 0.5
        assert min(found["equal"]) > 0.5
        assert max(found["differ"] + found["equal"]) < 2.0
    elif mode == "nothing fresh":  # rows that differ still have other noise, but equal histories show
        assert min(found["differ"]) > 0.5
        assert max(found["equal"]) == 0.0
    else:  # the difference of two releases is exact
        assert max(found["differ"]) < 1e-3
        assert max(found["equal"]) == 0.0


#: As it is, each way with each algorithm; without a defence, each algorithm in two ways, and each way in turn.
CELLS = [(way, name, MODES[0]) for way in WAYS for name in SETUPS] + [
    (list(WAYS)[(at + 3 * more) % len(WAYS)], name, mode)
    for mode in MODES[1:] for at, name in enumerate(SETUPS) for more in range(2)
]  # fmt: skip


@pytest.mark.parametrize(("way", "name", "mode"), CELLS)
def test_continuations_have_independent_noise(way: str, name: str, mode: str) -> None:
    check(mode, measured_in_forks(way)[mode][name] if way == "os.fork" else measured(way, mode, name))


# -- threads ---------------------------------------------------------------------------------------------

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
@pytest.mark.parametrize("name", SETUPS)
def test_threads_push_in_some_order_and_lose_nothing(name: str, single: bool) -> None:
    count = THREADS * BLOCKS * BLOCK
    algorithm = SETUPS[name](horizon=count).algorithm
    stream = sp.Stream(algorithm, row_norm=1.0, features=D, seed=5)
    given = rows(2, count).reshape(THREADS, BLOCKS, BLOCK, D)
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
    stream = sp.Stream(fpl(horizon=60).algorithm, row_norm=1.0, seed=5)
    refused: list[str] = []

    def push(seed: int) -> None:
        for block in rows(seed, 50).reshape(10, 5, D):
            try:
                stream.push_many(block)
            except sp.errors.HorizonReachedError as problem:
                refused.append(str(problem))

    together(*(partial(push, seed) for seed in range(THREADS)))
    assert stream.t == 60
    assert len(refused) == THREADS * 10 - 12


# -- forks while another thread is at work ---------------------------------------------------------------


def fork_while_a_thread_pushes(forks: int = 20) -> None:
    """The child of a fork finds the stream exactly before or after a piece, and its lock open."""
    loud = sp.PrivateFPL(
        n_components=K, epsilon=1e9, delta=0.1, horizon=10**6, release_every=1, center=False
    )  # next to no noise
    stream, pool, stop = sp.Stream(loud, row_norm=1.0, features=D), rows(3, 4000), threading.Event()

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
    in_an_interpreter_of_its_own("threads")


if __name__ == "__main__":
    warnings.simplefilter("ignore", sp.errors.StreamPCAWarning)  # few rows are what these tests are about
    if sys.argv[1] == "threads":
        fork_while_a_thread_pushes()
    else:
        print(json.dumps({mode: {name: measured(sys.argv[1], mode, name) for name in SETUPS} for mode in MODES}))
