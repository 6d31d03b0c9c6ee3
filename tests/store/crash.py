"""Kill a durable run at random moments until it is done, and compare it with one that was left alone.

    python tests/store/crash.py --kills 200 --rows 100000

A child process resumes the run and feeds it rows; it is killed with SIGKILL
after a random time (``--how kill``), or meets a file-size limit in the middle
of a write, as on a full disk (``--how full``). Each child reports every
release it reads, at once, to a file of its own that stands for the world: no
two reports may differ, and each must be that of the uninterrupted run. With
``--piece 256``, snapshots are written in several transactions, as large ones are.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import signal
import sys
import tempfile
import time
from hashlib import blake2b
from pathlib import Path

import numpy as np

from streampca.errors import StoreCorrupt, StoreUnwritable
from streampca.privacy.budget import Budget
from streampca.processors.base import Processor
from streampca.processors.private_fpl import PrivateFPL
from streampca.release import Release
from streampca.store import batch, fold, writer
from streampca.store.ledger import Ledger
from streampca.store.store import Store
from streampca.stream import Stream

FEATURES, EVERY = 5, 100


def processor() -> Processor:
    return PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, n_features=FEATURES, release_every=EVERY)


def data(count: int) -> np.ndarray:
    return np.random.default_rng(7).normal(size=(count, FEATURES)) / 3.0


def digest(release: Release) -> str:
    return blake2b(release.to_json().encode(), digest_size=16).hexdigest()


def live(path: Path, world: Path, rows: np.ndarray, commit_every: int | str, choice: int) -> None:
    """What one child does: begin or resume, feed rows, report releases."""
    store = Store(path, commit_every=commit_every, snapshot_every="50ms")
    stream = Stream.resume(store)
    pieces = random.Random(choice)
    with world.open("a", buffering=1) as out:
        while stream.t < len(rows):
            if pieces.random() < 0.5:
                took = stream.push_many(rows[stream.t : stream.t + pieces.randrange(1, 3000)]).releases
            else:
                steps = [stream.push(row) for row in rows[stream.t : stream.t + pieces.randrange(1, 400)]]
                took = [step.release for step in steps if step.release is not None]
            for release in took:
                out.write(f"{release.t} {digest(release)}\n")
    store.close()


def child(how: str, limit: int, *fed: object) -> int:
    """Start one child in a process of its own; return its id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if how == "full":
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            live(*fed)  # type: ignore[arg-type]
            code = 0
        except StoreUnwritable:
            code = 3
        except BaseException as problem:
            sys.stderr.write(f"{type(problem).__name__}: {problem}\n")
        finally:
            os._exit(code)
    return pid


def run(kills: int, count: int, commit_every: int | str, how: str, seed: int) -> dict[str, int]:
    """Kill until the number is reached, over as many whole runs as that takes; check each."""
    draw = random.Random(seed)
    rows = data(count)
    whole = Stream(processor(), seed=11)
    expected = {release.t: digest(release) for release in whole.push_many(rows).releases}
    done = runs = 0
    while done < kills:
        with tempfile.TemporaryDirectory() as folder:
            path, world = Path(folder, "run.db"), Path(folder, "world")
            with Ledger(Path(folder, "ledger.db")) as ledger:
                ledger.set_budget("rows", Budget(1.0, 1e-6))
            with Ledger(Path(folder, "ledger.db")) as ledger, Store(path) as store:
                Stream(processor(), seed=11, store=store, ledger=ledger.account("rows"))
            while True:
                size = max(p.stat().st_size for p in Path(folder).iterdir())
                limit = size + draw.randrange(1, 400_000)
                last = done >= kills
                fed = (path, world, rows, commit_every, draw.randrange(2**30))
                pid = child("none" if last else how, limit, *fed)
                if how == "kill" and not last:
                    time.sleep(draw.uniform(0.0, 0.12))
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                if code == 0:
                    break
                if code not in ((-signal.SIGKILL,) if how == "kill" else (3,)):
                    raise AssertionError(f"a child ended with {code} after {done} interruptions")
                done += 1
            check(path, world, expected, count)
            with Ledger(Path(folder, "ledger.db")) as ledger:
                assert len(ledger.balance("rows").entries) == 1, "the ledger was not debited once"
            runs += 1
    return {"interruptions": done, "runs": runs, "releases": len(expected)}


def check(path: Path, world: Path, expected: dict[int, str], count: int) -> None:
    """All that was ever read is that of the uninterrupted run, and the store holds each release once."""
    for line in world.read_text().splitlines():
        t, _, seen = line.partition(" ")
        if len(seen) == 32:  # the last line of a killed child may be cut short
            assert expected[int(t)] == seen, f"the release at row {t} differs from that of the uninterrupted run"
    store = Store(path)
    stream = Stream.resume(store)
    stored = [(release.t, digest(release)) for release in store.releases()]
    store.close()
    assert stream.t == count
    assert stored == sorted(expected.items()), "a release was lost, doubled or changed"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--commit-every", default="20ms")
    parser.add_argument("--how", choices=("kill", "full"), default="kill")
    parser.add_argument("--piece", type=int, help="write snapshots in pieces of so many bytes")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    every = int(given.commit_every) if given.commit_every.isdigit() else given.commit_every
    if given.piece is not None:
        for module in (batch, fold, writer):
            module.PIECE = given.piece
    began = time.perf_counter()
    try:
        print(run(given.kills, given.rows, every, given.how, given.seed), f"{time.perf_counter() - began:.1f} s")
    except StoreCorrupt as problem:
        sys.exit(f"corrupt: {problem}")
