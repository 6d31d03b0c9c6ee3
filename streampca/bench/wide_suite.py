"""Every row released at d = 500, beside the arithmetic that no such release can do without."""

from __future__ import annotations

from functools import partial

import numpy as np
from scipy.linalg.blas import dsyr

from streampca.bench.row_suite import COMPONENTS, push_rows, unit_rows
from streampca.bench.timing import Contender, Result, take_turns
from streampca.linalg import fast
from streampca.linalg.svec import svec_size
from streampca.linalg.types import FloatArray

FLOOR = "a Gaussian vector, a rank-one update and one product, in numpy"
_NOTE = (
    "beside the floor's work, each row pays for the buffers of correlated noise, for the exact sum with the noise, "
    "for cryptographic words, and for a keyed hash of the sum"
)


def run_wide(rounds: int, *, small: bool = False) -> list[Result]:
    """The suite."""
    d, count = (60, 40) if small else (500, 200)
    rows = unit_rows(count, d)
    found = [
        Contender(FLOOR, count, partial(_floor, rows)),
        Contender("PrivateFPL(solver='tracking'), numpy", count, partial(push_rows, rows, "tracking", compiled=False)),
    ]
    if fast.kernels is not None:
        found.append(Contender("the same, compiled", count, partial(push_rows, rows, "tracking")))
    result = Result("wide", f"{count} rows x {d} features, a release every row, k = 5", take_turns(found, rounds))
    for timed in result.timed[1:]:
        result.require(
            f"d = {d}: {timed.name} against the floor", "<=", 2.0, 1.0 / timed.faster_than(result[FLOOR]), _NOTE
        )
    return [result]


def _floor(rows: FloatArray) -> None:
    d = rows.shape[1]
    generator = np.random.Generator(np.random.PCG64(1))
    gram, span = np.zeros((d, d), order="F"), np.eye(d, COMPONENTS + 5)
    for row in rows:
        generator.standard_normal(svec_size(d))
        gram = dsyr(1.0, row, a=gram, overwrite_a=1, lower=1)
        gram @ span
