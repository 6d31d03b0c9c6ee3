"""Break a durable run off at random moments until it is done, and compare it with one that was left alone.

    python tests/store/crash.py --times 200 --rows 100000 --how kill

A child process begins or resumes the run and feeds it rows; after a random time it is killed with SIGKILL
(``--how kill``), or meets a file-size limit in the middle of a write, as on a full disk (``full``). With ``begin``,
runs are killed in their first moments. With ``stop`` they are stopped (SIGSTOP) for ``--pause`` seconds, during which
another process must not get the run. With ``fsync``, the clock of the child runs backwards, and after a few flushes to
the disk one fails (needs a C compiler). Each child reports every release it reads, at once, to a file of its own that
stands for the world: no two reports may differ, and each must be that of the uninterrupted run. With ``--chunk 256``,
snapshots are kept in several chunks, as very large ones are. Interrupts are in ``test_interrupts.py``, at every line.
"""

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import numpy as np
from cyclopts import App
from interrupts import forked

import streampca as sp
from streampca.errors import StoreCorruptError, StoreLockedError, StoreUnwritableError, UsageError
from streampca.store import log
from streampca.store.reading import status

FEATURES, EVERY, SEED, PAUSE = 5, 100, 11, 0.05
How = Literal["kill", "full", "begin", "stop", "fsync"]


def algorithm() -> sp.PrivateFPL:
    return sp.PrivateFPL(n_components=2, epsilon=1.0, center=False, release_every=EVERY)


def data(count: int) -> np.ndarray:
    return np.random.default_rng(7).normal(size=(count, FEATURES)) / 3.0


def digest(release: sp.Release) -> str:
    return blake2b(release.to_json().encode(), digest_size=16).hexdigest()


class Run:
    """One run with its files in a folder, fed by children."""

    def __init__(self, folder: Path, rows: np.ndarray, commit_every: int | str) -> None:
        self.path, self.world, self.ledger = folder / "run.db", folder / "world", folder / "ledger.db"
        self.rows, self.commit_every = rows, commit_every
        self.world.touch()
        with sp.Ledger(self.ledger) as ledger:
            ledger.set_budget("rows", sp.Budget(1.0, 1e-6))

    def store(self) -> sp.Store:
        return sp.Store(self.path, commit_every=self.commit_every, snapshot_every="50ms")

    def stream(self, store: sp.Store) -> sp.Stream:
        try:
            return sp.Stream.resume(store)
        except UsageError:
            given = {"account": sp.Ledger(self.ledger).account("rows"), "store": store}
            return sp.Stream(algorithm(), row_norm=1.0, features=FEATURES, seed=SEED, **given)

    def feed(self, stream: sp.Stream, pieces: random.Random) -> None:
        world = os.open(self.world, os.O_WRONLY | os.O_APPEND)
        try:
            while stream.t < len(self.rows):
                if pieces.random() < 0.5:
                    took = stream.push_many(self.rows[stream.t : stream.t + pieces.randrange(1, 3000)]).releases
                else:
                    steps = [stream.push(row) for row in self.rows[stream.t : stream.t + pieces.randrange(1, 400)]]
                    took = [step.release for step in steps if step.release is not None]
                for release in took:
                    os.write(world, f"{release.t} {digest(release)}\n".encode())
        finally:
            os.close(world)

    def live(self, choice: int) -> None:
        store = self.store()
        self.feed(self.stream(store), random.Random(choice))
        store.close()

    def check(self, expected: dict[int, str]) -> None:
        for line in self.world.read_text().splitlines():
            t, _, seen = line.partition(" ")
            assert expected[int(t)] == seen, f"the release at row {t} differs from that of the uninterrupted run"
        with sp.Store(self.path) as store:
            stream = sp.Stream.resume(store)
            stored = [(release.t, digest(release)) for release in store.releases()]
        assert stream.t == len(self.rows)
        assert stored == sorted(expected.items()), "a release was lost, doubled or changed"
        with sp.Ledger(self.ledger) as ledger:
            assert len(ledger.balance("rows").entries) == 1, "the ledger was not debited once"


def ended(work: Callable[[], object]) -> int:
    try:
        work()
    except StoreUnwritableError as problem:
        sys.stderr.write(f"{problem}\n")
        return 3
    except BaseException as problem:
        sys.stderr.write(f"{type(problem).__name__}: {problem}\n")
        return 1
    return 0


#: Loaded before the C library: one flush fails, and the wall clock runs backwards.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>
static long flushes, looks;
static int flush(const char *name, int file) {
    if (__sync_add_and_fetch(&flushes, 1) == atol(getenv("FAILING_FLUSH"))) { errno = EIO; return -1; }
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(file);
}
int fsync(int file) { return flush("fsync", file); }
int fdatasync(int file) { return flush("fdatasync", file); }
int clock_gettime(clockid_t clock, struct timespec *now) {
    int done = ((int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime"))(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec -= 60 * __sync_add_and_fetch(&looks, 1);
    return done;
}
"""


def shimmed(run: Run, flush: int, choice: int) -> int:
    library = run.world.with_name("shim.so")
    if not library.exists():
        words = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library), "-ldl"]
        subprocess.run(words, input=SHIM, text=True, check=True)
    return subprocess.run(
        [sys.executable, __file__, "--live", str(run.path), "--rows", str(len(run.rows)), "--seed", str(choice)],
        env={**os.environ, "LD_PRELOAD": str(library), "FAILING_FLUSH": str(flush)}, stderr=subprocess.DEVNULL,
        check=False,
    ).returncode  # fmt: skip


def stopped(run: Run, pid: int, draw: random.Random, left: int, pause: float) -> int:
    held = 0
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if held < left:
            time.sleep(draw.uniform(0.0, 0.05))
            os.kill(pid, signal.SIGSTOP)
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            time.sleep(pause)
            with contextlib.suppress(UsageError, StoreCorruptError, StoreLockedError):  # it is only beginning
                if status(run.path)["running"]:
                    held += 1
                    try:
                        sp.Stream.resume(run.store())
                    except StoreLockedError:
                        pass
                    else:
                        raise AssertionError("two processes had the run")
            os.kill(pid, signal.SIGCONT)
        else:
            time.sleep(0.01)
    return held


def until_done(run: Run, how: str, draw: random.Random, left: int, pause: float) -> int:
    done = 0
    while how == "fsync":
        code = shimmed(run, draw.randrange(5, 40) if done < left else 0, draw.randrange(2**30))
        if code == 0:
            return done
        assert code == 3, f"a child ended with {code}"
        done += 1
    while True:
        if how == "stop":
            return stopped(run, forked(partial(run.live, draw.randrange(2**30))), draw, left, pause)
        size = max(p.stat().st_size for p in run.path.parent.iterdir())
        limit, last, choice = size + draw.randrange(1, 400_000), done >= left, draw.randrange(2**30)

        def work(limit: int = limit, last: bool = last, choice: int = choice) -> None:
            if how == "full" and not last:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            run.live(choice)

        pid = forked(lambda work=work: os._exit(ended(work)))
        if how in ("kill", "begin") and not last:
            time.sleep(draw.uniform(0.0, 0.12 if how == "kill" else 0.04))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code == 0:
            return done
        if code != (3 if how == "full" else -signal.SIGKILL):
            raise AssertionError(f"a child ended with {code} after {done} interruptions")
        done += 1


def break_off(
    times: int, count: int, commit_every: int | str, how: str, seed: int, pause: float = PAUSE
) -> dict[str, int]:
    draw = random.Random(seed)
    rows = data(count)
    expected = {
        release.t: digest(release)
        for release in sp.Stream(algorithm(), row_norm=1.0, seed=SEED).push_many(rows).releases
    }
    done = runs = 0
    while done < times:
        with tempfile.TemporaryDirectory() as folder:
            run = Run(Path(folder), rows, commit_every)
            done += until_done(run, how, draw, min(5, times - done) if how == "begin" else times - done, pause)
            run.check(expected)
            runs += 1
    return {"interruptions": done, "runs": runs, "releases": len(expected)}


def main(
    *,
    times: int = 200,
    rows: int = 100_000,
    commit_every: str = "20ms",
    how: How = "kill",
    chunk: int | None = None,
    seed: int = 0,
    pause: float = PAUSE,
    live: Path | None = None,
) -> None:
    """Break runs off and compare; with ``live``, be the child of the run at that path."""
    every = int(commit_every) if commit_every.isdigit() else commit_every
    if chunk is not None:
        log.CHUNK = chunk
    if live is not None:
        os._exit(ended(lambda: Run(live.parent, data(rows), every).live(seed)))
    began = time.perf_counter()
    try:
        print(break_off(times, rows, every, how, seed, pause), f"{time.perf_counter() - began:.1f} s")
    except StoreCorruptError as problem:
        sys.exit(f"corrupt: {problem}")


if __name__ == "__main__":
    App(default_command=main)()
