"""Peak memory of a long stream, in a process of its own: ``python -m streampca.bench.memory ROWS FEATURES``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def peak_memory(rows: int, n_features: int) -> dict[str, float]:
    """Megabytes over the imports after a quarter of the rows, and at the end."""
    command = [sys.executable, "-m", "streampca.bench.memory", str(rows), str(n_features)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603  our own module
    found: dict[str, float] = json.loads(done.stdout)
    return found


def resident() -> float:
    """Most megabytes that this process ever held; nan where the system does not say."""
    try:
        line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))
    except (OSError, StopIteration):
        return float("nan")
    return int(line.split()[1]) / 1024.0


def _main(rows: int, n_features: int) -> None:
    import numpy as np
    from threadpoolctl import threadpool_limits

    from streampca.processors.private_fpl import PrivateFPL
    from streampca.regret import RegretLog
    from streampca.stream import Stream

    threadpool_limits(1)
    block = 1000
    table = np.random.default_rng(0).standard_normal((block, n_features))
    imports, quarter = resident(), 0.0
    algorithm = PrivateFPL(
        n_components=5, epsilon=1.0, delta=1e-6, horizon=rows, release_every=block, solver="tracking"
    )
    stream = Stream(algorithm, regret=RegretLog(every=100 * block))
    for start in range(0, rows, block):
        stream.push_many(table)
        if start >= rows // 4 and not quarter:
            quarter = resident() - imports
    print(json.dumps({"rows": rows, "quarter": quarter, "end": resident() - imports, "imports": imports}))


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
