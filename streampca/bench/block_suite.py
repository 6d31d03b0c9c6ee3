"""Blocks of rows, beside the BLAS calls alone that add up the same blocks."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec

from streampca.bench.peers import bare_dsyrk, incremental_pca
from streampca.bench.row_suite import COMPONENTS, unit_rows
from streampca.bench.timing import Contender, Result, take_turns
from streampca.linalg import fast
from streampca.linalg.types import FloatArray
from streampca.processors.private_fpl import PrivateFPL
from streampca.regret import RegretLog
from streampca.stream import Stream

BLOCK = 1000
FLOOR = f"bare dsyrk on blocks of {BLOCK}"
_NOTE = (
    "beside dsyrk, all rows are looked through for what is not finite before the first is taken, then a piece at a "
    "time is put on the lattice (four passes over it, or one where compiled), measured, and scored; each release "
    "draws its noise and takes a power step"
)


def run_block(rounds: int, *, small: bool = False, rows: int | None = None) -> list[Result]:
    """The suite."""
    count = rows or (4000 if small else 200_000)
    table = unit_rows(count, 64)
    shorter = 0.7 * table
    found = [Contender(FLOOR, count, partial(bare_dsyrk, table, BLOCK))]
    for compiled in (False, True) if fast.kernels is not None else (False,):
        how = "compiled" if compiled else "numpy"
        found += [
            Contender(f"push_many, {how}", count, partial(push_block, shorter, False, compiled)),
            Contender(f"push_many, rows of norm 1, {how}", count, partial(push_block, table, False, compiled)),
            Contender(f"push_many with live regret, {how}", count, partial(push_block, shorter, True, compiled)),
        ]
    if find_spec("sklearn") is not None:
        peer = f"IncrementalPCA.partial_fit, {BLOCK} rows at a time, not private"
        found.append(Contender(peer, count, partial(incremental_pca, table, COMPONENTS, BLOCK, checks=True)))
    title = f"{count} rows x 64 features, a release every {BLOCK} rows"
    result = Result("block", title, take_turns(found, rounds))
    for timed in result.timed[1:]:
        if timed.name.startswith("push_many"):
            value = 1.0 / timed.faster_than(result[FLOOR])
            result.require(f"{timed.name}, against {FLOOR}", "<=", 3.0, value, _NOTE)
    return [result]


def push_block(rows: FloatArray, regret: bool, compiled: bool) -> None:
    """One block through a stream."""
    before = fast.use(compiled)
    try:
        algorithm = PrivateFPL(
            n_components=COMPONENTS, epsilon=1.0, delta=1e-6, horizon=len(rows), release_every=BLOCK, solver="tracking"
        )
        Stream(algorithm, regret=RegretLog(every=len(rows)) if regret else None).push_many(rows)
    finally:
        fast.use(before)
