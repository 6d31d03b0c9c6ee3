"""What 10^12 rows cost on 1000 cores, simulated: the curator's share of the time, and how busy the workers are.

    python scenarios/cluster_costs.py

Discrete events: workers take tasks in order, as many are unfinished as `Stream.absorb` allows by default, and the
curator joins their sums as they finish and creates the releases. Costs are CPU seconds, measured at 64 features. It
takes some minutes, most of them for the smallest tasks.
"""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass

import streampca as sp
from streampca.stream.absorb import Open, task_rows

#: Seconds of a row at a worker, and of the curator: to submit a task, to join a sum, to create a release.
ROW, SUBMIT, JOIN, RELEASE = 9e-7, 1e-4, 4.3e-5, 4e-4
#: Seconds to read a footer (16 at a time) and to start a task; files whose footers are a task; bytes of a sum.
FOOTER, START, LOT, BYTES = 0.1, 0.05, 256, 16_920


@dataclass
class Costs:
    """Outcome of a simulation."""

    wall: float
    serial: float  # seconds of the curator
    busy: float  # share of the workers' time
    data: float  # bytes that the curator received


def simulate(
    rows: int, workers: int, task: int, every: int, *, files: int = 10**6, again: float = 0.0, slow: float = 0.002,
    factor: float = 5.0, in_order: bool = False,
) -> Costs:  # fmt: skip
    """Simulate a run with tasks of ``task`` rows and a release every ``every`` rows.

    A share ``again`` of the tasks fails and runs again; a share ``slow`` takes ``factor`` times as long. ``in_order``
    lets the curator wait for the oldest task instead of the next.
    """
    draw, count, most = random.Random(1), math.ceil(rows / task), 2 * workers  # noqa: S311
    busy = FOOTER / 16 * files
    now = serial = files / LOT * SUBMIT  # all footers come first, which takes the workers this long
    now += busy / workers
    free = [now] * workers  # when each worker ends
    ended: list[tuple[float, int]] = []  # of the unfinished tasks
    late: dict[int, float] = {}
    sent = released = 0
    sums = max(1.0, task / every)  # of a task
    for arrived in range(count):
        while sent < count and len(ended) + len(late) < most:
            now, serial = now + SUBMIT, serial + SUBMIT
            seconds = START + task * ROW * draw.uniform(0.9, 1.1) * (factor if draw.random() < slow else 1.0)
            seconds += seconds * draw.random() + 5.0 if draw.random() < again else 0.0
            end = max(free[0], now) + seconds
            heapq.heapreplace(free, end)
            if in_order:
                late[sent] = end
            else:
                heapq.heappush(ended, (end, sent))
            busy, sent = busy + seconds, sent + 1
        now = max(now, late.pop(arrived) if in_order else heapq.heappop(ended)[0])
        due = (arrived + 1) * task // every - released
        released += due
        cost = JOIN * sums + RELEASE * due
        now, serial = now + cost, serial + cost
    return Costs(now, serial, busy / (workers * now), BYTES * sums * count)


def default_task(workers: int, rows: int, every: int) -> int:
    """Rows of a task of `Stream.absorb`, for twice as many unfinished tasks as workers."""
    algorithm = sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-15, release_every=every, center=False)
    cutter = sp.Stream(algorithm, features=[f"x{j}" for j in range(64)], row_norm=1.0).leaves()
    return task_rows(None, 2 * workers, rows, Open(cutter, 0))


def main() -> None:
    """Print the table."""
    rows, workers = 10**12, 1000
    print("rows a task | release_every | wall s | curator s | workers busy | GB to the curator")
    for task, every, options, note in (
        (default_task(workers, rows, 10**9), 10**9, {}, "the default"),
        (2**22, 10**9, {}, ""),
        (2**22, 10**9, {"again": 0.01}, "1 % of the tasks run again"),
        (2**22, 10**9, {"slow": 0.02, "factor": 20.0}, "2 % take 20 times as long"),
        (2**18, 10**9, {}, ""),
        (2**22, 10**6, {}, ""),
        (2**22, 10**5, {}, ""),
        (2**22, 10**9, {"in_order": True}, "joined in the order of the tasks"),
    ):
        made = simulate(rows, workers, task, every, **options)
        print(
            f"2^{math.log2(task):<4.4g} {every:>13,} {made.wall:>8.0f} {made.serial:>8.0f} {made.busy:>8.2f} "
            f"{made.data / 1e9:>8.1f}  {note}",
            flush=True,
        )  # fmt: skip


if __name__ == "__main__":
    main()
