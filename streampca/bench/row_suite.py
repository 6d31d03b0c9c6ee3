"""One row at a time: released, and scored on the subspace played before, at every row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Literal

import numpy as np

from streampca.bench.peers import incremental_pca
from streampca.bench.timing import Contender, Result, take_turns
from streampca.linalg import fast
from streampca.linalg.types import FloatArray
from streampca.processors.private_fpl import PrivateFPL
from streampca.regret import RegretLog
from streampca.sources.synthetic import spiked
from streampca.stream import Stream

COMPONENTS = 5
PEER = "scikit-learn IncrementalPCA.partial_fit a row, not private"
TRACKING = "PrivateFPL(solver='tracking'), a release every row"
SPARSE = "PrivateFPL, a release every 100 rows"
# What is asked for: numpy, compiled, and a release every 100 rows.
BARS = {20: (4.0, 10.0, 20.0), 100: (2.0, 4.0, 10.0)}
_FLOOR = (
    "floor: 16 fresh bytes and a keyed hash of the exact sum, AES words and normals for d(d+1)/2 numbers, the buffers "
    "of the noise, the noisy sum and one power step a row. Where every basis is read, the top eigenvectors within the "
    "subspace are computed too"
)


def unit_rows(count: int, n_features: int) -> FloatArray:
    """Rows of norm 1 around a subspace of five dimensions."""
    rows = np.concatenate(list(spiked(count, n_features, COMPONENTS, seed=1).blocks()))
    unit: FloatArray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def run_row(rounds: int, *, small: bool = False) -> list[Result]:
    """The suite at d = 20 and d = 100."""
    return [_at(d, rounds, 200 if small else 1500) for d in BARS]


def _at(d: int, rounds: int, count: int) -> Result:
    rows, many = unit_rows(count, d), unit_rows(10 * count, d)
    peers = find_spec("sklearn") is not None
    found = []
    if peers:
        found.append(Contender(PEER, count, lambda: incremental_pca(rows, COMPONENTS, 1, checks=True)))
        unchecked = PEER.replace("a row", "a row, check_input=False")
        found.append(Contender(unchecked, count, lambda: incremental_pca(rows, COMPONENTS, 1, checks=False)))
    work: Callable[..., None] = push_rows
    found += [
        Contender(f"{TRACKING}, numpy", count, partial(work, rows, "tracking", compiled=False)),
        Contender("the same, each basis read", count, partial(work, rows, "tracking", compiled=False, read=True)),
        Contender("PrivateFPL, a release every row, numpy", count, partial(work, rows, "exact", compiled=False)),
        Contender(f"{SPARSE}, numpy", 10 * count, partial(work, many, "exact", every=100, compiled=False)),
    ]
    compiled = fast.kernels is not None
    if compiled:
        found += [
            Contender(f"{TRACKING}, compiled", count, partial(work, rows, "tracking")),
            Contender("the same, each basis read, compiled", count, partial(work, rows, "tracking", read=True)),
            Contender(f"{SPARSE}, compiled", 10 * count, partial(work, many, "exact", every=100)),
        ]
    result = Result("row", f"{count} rows x {d} features, k = {COMPONENTS}", take_turns(found, rounds))
    missing = "scikit-learn is not installed: pip install 'streampca[bench]'"
    without = "numba is not installed: pip install 'streampca[fast]'"
    for name, bound, there in (
        (f"{TRACKING}, numpy", BARS[d][0], True),
        (f"{TRACKING}, compiled", BARS[d][1], compiled),
        (f"{SPARSE}, numpy", BARS[d][2], True),
    ):
        value = result[name].faster_than(result[PEER]) if peers and there else None
        note = missing if not peers else _FLOOR if there else without
        result.require(f"d = {d}: {name} against IncrementalPCA a row", ">=", bound, value, note)
    return result


def push_rows(
    rows: FloatArray,
    solver: Literal["exact", "tracking"],
    *,
    every: int = 1,
    compiled: bool = True,
    read: bool = False,
) -> None:
    """Push rows one at a time through a stream that scores every one of them."""
    before = fast.use(compiled)
    try:
        algorithm = PrivateFPL(
            n_components=COMPONENTS, epsilon=1.0, delta=1e-6, horizon=len(rows), release_every=every, solver=solver
        )
        stream = Stream(algorithm, regret=RegretLog(every=len(rows)))
        for row in rows:
            step = stream.push(row)
            if read and step.release is not None:
                step.release.subspace  # noqa: B018  computed when read
    finally:
        fast.use(before)
