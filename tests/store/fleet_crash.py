"""Kill a durable fleet at random moments until it is done, and compare it with one that was left alone.

    python tests/store/fleet_crash.py --times 100

A child process begins or resumes the fleet and feeds it from a source with positions; after a random time it is killed.
Each child reports every release it sees to a file that stands for the world: no two reports of a release may differ.
At the end the exact sums and the number of rows must be those of a fleet that was left alone.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from hashlib import blake2b
from pathlib import Path

import numpy as np
from cyclopts import App

import streampca as sp
from streampca.errors import UsageError
from streampca.rows.protocol import PositionedBlock, PositionedSource

NAMES = ("a", "b", "c")
FPL = sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, release_every=5)
OJA = sp.PrivateOja(n_components=1, epsilon=1.0, batch_size=5)
app = App()


class Numbers(PositionedSource):
    """Rows of 40 shops, in blocks of random sizes."""

    name, features, bounds = "numbers", NAMES, None

    def __init__(self, count: int, seed: int = 0) -> None:
        rng = np.random.default_rng(7)
        self.rows, self.shops = rng.normal(size=(count, 3)) / 3.0, rng.integers(0, 40, count).tolist()
        self.sizes = random.Random(seed)

    def blocks_from(self, at=None, beside=()):
        start = at or 0
        while start < len(self.rows):
            block = self.rows[start : start + self.sizes.randrange(1, 60)]
            yield PositionedBlock(block, start.__add__, [self.shops[start : start + len(block)]])
            start += len(block)


def opened(path: Path | None, *, oja: bool = False) -> sp.Fleet:
    try:
        return sp.Fleet.resume(path)
    except UsageError:
        # With a seed, because the sums of a step depend on the noise of those before.
        one, seed = (OJA, 1) if oja else (FPL, None)
        return sp.Fleet(one, features=NAMES, row_norm=1.0, store=path, totals={"": one}, seed=seed)


def digest(step: sp.FleetStep) -> str:
    return blake2b(step.release.to_json().encode(), digest_size=8).hexdigest()


def sums(fleet: sp.Fleet) -> list[tuple[dict, list[bytes]]]:
    # The places of tenants depend on their first rows only.
    kept = "t", "sum", "basis", "total"
    return [
        (r.places, [r.all[n][: len(r.places)].tobytes() for n in kept if n in r.dtype.names]) for r in fleet._levels
    ]


@app.command
def live(folder: Path, rows: int, seed: int, *, oja: bool = False) -> None:
    from streampca import fleet as module

    module._REPLAY = 0.02  # records replace the log often
    print("ready", flush=True)
    with opened(folder / "fleet.db", oja=oja) as fleet, open(folder / "world", "a") as world:
        for step in fleet.run(Numbers(rows, seed), key="shop"):
            world.write(f"{step.number} {step.key} {step.t} {digest(step)}\n")
            world.flush()


def break_off(folder: Path, times: int, rows: int, *, oja: bool) -> int:
    """Kill children until they are done; return how many were killed."""
    draw, killed = random.Random(times), 0
    while True:
        command = [sys.executable, __file__, "live", str(folder), str(rows), str(killed), *["--oja"] * oja]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if killed < times:
            assert child.stdout is not None
            child.stdout.readline()  # everything is imported
            time.sleep(draw.expovariate(1 / 0.2))
            if child.poll() is None:
                os.kill(child.pid, signal.SIGKILL)
        _, text = child.communicate()
        if child.returncode == 0:
            return killed
        assert child.returncode == -signal.SIGKILL, text.decode()[-2000:]
        killed += 1


def check(folder: Path, rows: int, *, oja: bool = False) -> None:
    alone = opened(None, oja=oja)
    for _ in alone.run(Numbers(rows), key="shop"):
        pass
    with sp.Fleet.resume(folder / "fleet.db") as fleet:
        assert sums(fleet) == sums(alone), "lost or doubled rows"
        assert fleet._now["releases"] == alone._now["releases"]
        kept = {step.number: f"{step.number} {step.key} {step.t} {digest(step)}" for step in fleet.releases()}
    assert list(kept) == list(range(1, len(kept) + 1))
    for line in (folder / "world").read_text().splitlines():
        if len(line.split()) >= 4:  # a kill may cut the last line
            assert line == kept[int(line.split()[0])], "a release differs from the one that was seen"


@app.default
def main(times: int = 5, rows: int = 5_000, *, oja: bool = False) -> None:
    with tempfile.TemporaryDirectory() as name:
        killed = break_off(Path(name), times, rows, oja=oja)
        check(Path(name), rows, oja=oja)
    print({"killed": killed, "times": times})


if __name__ == "__main__":
    app()
