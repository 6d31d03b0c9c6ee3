"""Durable runs for the tests of stores: one algorithm, its rows, and what an uninterrupted run releases."""

import shutil
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import streampca as sp
from streampca.store.log import Writer

ROWS = np.random.default_rng(3).normal(size=(900, 4)) / 3.0


class Blocks(sp.RowSource):
    """A source of these blocks of two features."""

    features, bounds = ("a", "b"), None

    def __init__(self, *blocks: np.ndarray) -> None:
        self._blocks = blocks

    def blocks(self) -> Iterator[np.ndarray]:
        yield from self._blocks


def fpl(**options: Any) -> sp.PrivateFPL:
    return sp.PrivateFPL(**{"n_components": 2, "epsilon": 1.0, "center": False, "release_every": 10} | options)


def texts(releases: Iterable[sp.Release]) -> list[str]:
    return [release.to_json() for release in releases]


def of_steps(steps: Iterable[Any]) -> list[str]:
    return texts(step.release for step in steps if step.release is not None)


@cache
def whole() -> list[str]:
    """Return the releases of all rows, without a store."""
    return texts(sp.Stream(fpl(), row_norm=1.0, seed=5).push_many(ROWS).releases)


def begin(path: str | Path, rows: int = 0, *, stream: Any = (), **options: Any) -> tuple[sp.Store, sp.Stream]:
    """Begin the run, by default with commits on demand only."""
    store = sp.Store(path, **{"commit_every": "1h", "snapshot_every": "1h"} | options)
    made = sp.Stream(fpl(), store=store, **{"seed": 5, "row_norm": 1.0} | dict(stream))
    made.push_many(ROWS[:rows])
    return store, made


def proceed(path: Path, rows: int = len(ROWS), *, moved: bool = False, **options: Any) -> list[str]:
    """Resume a run up to a row, close it, and return all its releases."""
    with sp.Store(path, **options) as store:
        stream = sp.Stream.resume(store, moved=moved)
        stream.push_many(ROWS[stream.t : rows])
        store.flush()
        return texts(store.releases())


def rows_of(path: Path) -> int:
    """Resume a run, and return the number of its rows. Its releases are those of an uninterrupted run."""
    with sp.Store(path) as store:
        t = sp.Stream.resume(store).t
        assert texts(store.releases()) == whole()[: t // 10]
    return t


def writer_of(store: sp.Store) -> Writer:
    assert store._writer is not None
    return store._writer


def copied(path: Path, *ends: str, to: str = "twin.db") -> Path:
    """Copy a database with files beside it, by default its key."""
    twin = path.parent / to
    for end in ("", *(ends or (".key",))):
        shutil.copy2(f"{path}{end}", f"{twin}{end}")
    return twin


def payments(ledger: Path, data_set: str = "rows") -> int:
    with sp.Ledger(ledger) as opened:
        return len(opened.balance(data_set).entries)
