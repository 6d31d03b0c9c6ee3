"""A stream is exactly before or exactly after a piece of rows, whatever interrupts it and wherever.

After each interrupt the stream goes on from row ``t + 1``; every release must be that of an uninterrupted run.
CI does some; `pytest -m long tests/core` does all.
"""

import ast
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden_cases import STREAMS, rows, whose
from interrupts import within

import streampca as sp
from streampca.stream.replay import saved

ROWS = rows()
N = len(ROWS)
NAMES = (
    "fpl", "fpl-endless-replace", "fpl-tree", "fpl-discrete", "fpl-tracking", "fpl-tracking-every-row", "fpl-smoothed",
    "fpl-regret", "fpl-center", "fpl-doubling", "window-histogram", "window-ring", "window-smoothed",
    "window-forgetting", "oja", "private-oja", "sketch", "dp-pca", "tumbling-short", "people", "people-regret",
)  # fmt: skip


class Interrupted(BaseException):
    """Raised from outside, like KeyboardInterrupt."""


class Feed:
    """Feeds the rows to a fresh stream, in random pieces, and keeps every release that it is handed."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name, self.rng = name, rng
        self.stream: Any = sp.Stream(STREAMS[name][0](), row_norm=1.0, seed=3)
        self.seen: dict[int, str] = {}

    def whose(self, start: int, stop: int) -> dict[str, Any]:
        return whose(self.stream.algorithm, start, stop)

    def once(self) -> None:
        """Push something."""
        stream, t = self.stream, self.stream.t
        if t == N:
            last = stream.finish()
            self.keep([last] if last else [])
            raise StopIteration
        count = 1 if self.rng.random() < 0.4 else self.rng.randint(1, 12)
        rows = ROWS[t : t + count]
        if whose := self.whose(t, t + len(rows)):
            if count == 1:
                self.keep([stream.push(rows[0], person=whose["person"][0]).release])
            else:
                self.keep(stream.push_many(rows, **whose).releases)
        elif count == 1:
            self.keep([stream.push(rows[0]).release])
        elif stream.algorithm.absorbs_grams and t and self.rng.random() < 0.5:
            block = next(stream.leaves().blocks([rows], t))
            self.keep([stream.push_block(block).release])
        else:
            self.keep(stream.push_many(rows).releases)

    def end(self) -> None:
        """Push the rows that remain, and compare all releases with those of an uninterrupted run."""
        with suppress(StopIteration):
            while True:
                self.once()
        check(self)

    def keep(self, releases: list[Any]) -> None:
        for release in releases:
            if release is not None:
                text = release.to_json()
                assert self.seen.setdefault(release.t, text) == text


@cache
def expected(name: str) -> tuple[dict[int, str], Any, Any]:
    """Releases, regret and people of an uninterrupted run. The rows of blocks are scored as one."""
    feed = Feed(name, random.Random(0))
    stream = feed.stream
    feed.keep(stream.push_many(ROWS, **feed.whose(0, N)).releases)
    feed.keep([stream.finish()])
    return feed.seen, stream.regret.now(), people_of(stream)


def people_of(stream: Any) -> Any:
    """Return the states of people and their totals; their weights are added in another order."""
    if (people := saved(stream.engine)["people"]) is None:
        return None
    states, totals = people
    return states, totals._replace(weight=round(totals.weight, 6))


def check(feed: Feed) -> None:
    """Compare what a run has shown with an uninterrupted one."""
    seen, regret, people = expected(feed.name)
    assert people_of(feed.stream) == people
    assert feed.stream.t == N
    assert set(feed.seen) <= set(seen)
    different = [t for t, text in feed.seen.items() if text != seen[t]]
    assert not different, f"{feed.name}: other releases at {different[:5]}"
    assert feed.stream.release is not None
    assert feed.stream.release.to_json() == seen[max(seen)]
    now = feed.stream.regret.now()
    assert (now.t, now.opt, now.captured) == (regret.t, regret.opt, regret.captured)
    assert now.reward == pytest.approx(regret.reward, rel=1e-9)


def interrupt() -> None:
    raise Interrupted


def injected(name: str, count: int, seed: int) -> None:
    """Interrupt a stream at this number of random lines."""
    rng, done = random.Random(f"{name}{seed}"), 0
    feed = Feed(name, rng)
    while done < count:
        try:
            within(feed.once, interrupt, int(rng.expovariate(1.0 / rng.choice((40, 200, 1000, 4000)))) + 1)
        except Interrupted:
            done += 1
            feed.keep([feed.stream.release])
        except StopIteration:
            check(feed)
            feed = Feed(name, rng)
        stream = feed.stream
        assert not stream.engine.guard.is_busy
    feed.end()


def signalled(name: str, count: int, seed: int) -> None:
    """Interrupt a stream by this number of real signals, at random moments."""
    rng, done, armed = random.Random(f"{name}{seed}"), 0, False

    def handler(number: int, frame: object) -> None:
        nonlocal armed
        if armed:
            armed = False
            raise Interrupted

    feed, before = Feed(name, rng), signal.signal(signal.SIGALRM, handler)
    try:
        while done < count:
            try:
                armed = True
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 6e-4))
                while True:
                    feed.once()
            except Interrupted:
                done += 1
                assert is_free(feed.stream)
                feed.keep([feed.stream.release])
            except StopIteration:
                armed = False
                signal.setitimer(signal.ITIMER_REAL, 0.0)
                check(feed)
                feed = Feed(name, rng)
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    feed.end()


def is_free(stream: Any) -> bool:
    """True if another thread can take the stream's lock."""
    lock = stream.engine.guard.lock
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: lock.acquire(timeout=5.0) and lock.release() is None).result()


@pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", NAMES)
def test_exceptions_at_random_lines_and_real_signals(name: str, is_long: bool) -> None:
    """The long form has over ten thousand exceptions and three thousand signals."""
    for interrupt, few, many in ((injected, 30, 600), (signalled, 10, 180)):
        interrupt(name, many if is_long else few, int(is_long))


def test_the_harness_sees_a_stream_that_is_changed_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are added to the Gram matrix before the commit, as an interrupt would leave them."""
    from streampca.linalg.lattice import GramSum

    add = GramSum.add

    def in_place(self: GramSum, rows: np.ndarray) -> GramSum:
        self.parts[...] = add(self, rows).parts
        return GramSum(self.n_features, self.parts)

    expected("fpl-smoothed")
    monkeypatch.setattr(GramSum, "add", in_place)
    with pytest.raises(AssertionError):
        injected("fpl-smoothed", 200, 0)


def test_no_loop_runs_directly_under_a_lock() -> None:
    """Python 3.12 and 3.13 leave `with` without `__exit__` if a signal comes at the jump back of some loops.

    The compiler gives those jumps no entry in the exception table (python/cpython issue 130279). So what holds a
    lock calls a function that loops.
    """
    package = Path(sp.__file__).parent
    for file in [
        *(package / name for name in ("exclusive.py", "stream/engine.py", "stream/replay.py", "rows/people.py")),
        *sorted((package / "store").glob("*.py")),
    ]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.With) and any("lock" in ast.unparse(item.context_expr) for item in node.items):
                loops = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp)
                found = [part.lineno for part in ast.walk(node) if isinstance(part, loops)]
                assert not found, f"{file.relative_to(package)}, line {found[0]}: a loop directly under a lock"
