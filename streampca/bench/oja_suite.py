"""Oja's algorithm row by row, beside others row by row. None is private.

proSVD takes part where it is installed: ``pip install proSVD``.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec

from streampca.bench.peers import grouse, incremental_pca, pro_svd
from streampca.bench.row_suite import COMPONENTS, PEER, unit_rows
from streampca.bench.timing import Contender, Result, take_turns
from streampca.linalg.types import FloatArray
from streampca.processors.oja import Oja
from streampca.regret import RegretLog
from streampca.stream import Stream


def run_oja(rounds: int, *, small: bool = False) -> list[Result]:
    """The suite."""
    count = 200 if small else 1000
    rows, many = unit_rows(count, 100), unit_rows(10 * count, 100)
    peers = find_spec("sklearn") is not None
    found = [Contender(PEER, count, partial(incremental_pca, rows, COMPONENTS, 1, checks=True))] if peers else []
    oja = "Oja, rows pushed one at a time"
    found += [
        Contender(oja, 10 * count, partial(_learn, many, False)),
        Contender(f"{oja}, each scored", 10 * count, partial(_learn, many, True)),
        Contender("GROUSE, in lean numpy", 10 * count, partial(grouse, many, COMPONENTS)),
    ]
    if find_spec("proSVD") is not None:
        found.append(Contender("proSVD, a row at a time", count, partial(pro_svd, rows, COMPONENTS)))
    result = Result("oja", f"rows x 100 features, k = {COMPONENTS}", take_turns(found, rounds))
    value = result[oja].faster_than(result[PEER]) if peers else None
    note = "" if peers else "scikit-learn is not installed: pip install 'streampca[bench]'"
    result.require(f"{oja}, against IncrementalPCA a row", ">=", 8.0, value, note)
    return [result]


def _learn(rows: FloatArray, regret: bool) -> None:
    stream = Stream(Oja(n_components=COMPONENTS, seed=1), regret=RegretLog(every=len(rows)) if regret else None)
    for row in rows:
        stream.push(row)
    stream.state()  # rows that still wait are absorbed
