"""Audits of what happens to a stream: interrupts, copies, stores. Ways in are doors of `tests/neighbours`."""

import math
import pickle
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import copyfile, copytree
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.linalg import block_diag

import streampca as sp
from planted.fixed_cases import CASES, EPSILON, FPL, GAUSSIAN, add
from streampca.auditing.laws import Law, correlated
from streampca.auditing.needs import Pairs
from streampca.auditing.runs import Row, names_of
from streampca.errors import StreamPCAError
from streampca.linalg.types import FloatArray
from streampca.stream import replay
from streampca.stream.engine import Engine

__all__ = ["CASES", "TWO", "continuations"]

Life = Callable[[Any, FloatArray], list[Any]]


def continuations(own: FloatArray, branches: Sequence[tuple[int, int]], shared: int) -> FloatArray:
    parts = np.zeros((len(branches), 1 + max(branch for _, branch in branches), own.shape[1]))
    for part, (leaf, branch) in zip(parts, branches, strict=True):
        part[0, :shared], part[branch, shared:] = own[leaf - 1, :shared], own[leaf - 1, shared:]
    return parts.reshape(len(branches), -1)


def plain_changes(subject: Any, d: int) -> Pairs:
    one, two = np.eye(d)[:2]
    return {"e1": (np.zeros(d), one), "(e1 + e2)/sqrt(2)": (np.zeros(d), (one + two) * math.sqrt(0.5))}


def fed(stream: sp.Stream, rows: FloatArray) -> list[Any]:
    out = list[Any]()
    for row in rows:
        for _ in range(2):
            try:
                out += stream.push_many(row[None]).releases
                break
            except InterruptedError:
                out.append("interrupted")
    return out


def begin(subject: Any, rows: FloatArray, **options: Any) -> tuple[sp.Stream, list[Any]]:
    stream = sp.Stream(subject, row_norm=1.0, features=names_of(list(rows)), regret=None, **options)
    return stream, fed(stream, rows[:2])


def _interrupted(subject: Any, rows: FloatArray) -> list[Any]:
    ends = iter([False, True])

    def append(entry: Any) -> None:
        if next(ends, False):
            raise InterruptedError

    log: Any = SimpleNamespace(
        room=None, check=lambda: False, append=append, appended=lambda: None, hold=lambda t: None
    )  # fmt: skip
    stream = sp.Stream(subject, row_norm=1.0, regret=None)
    stream.engine.attach(log, None, copied=False)
    return fed(stream, rows)


def fork(stream: sp.Stream) -> sp.Stream:
    child = object.__new__(type(stream))
    child.engine = object.__new__(Engine)
    vars(child.engine).update(vars(stream.engine))
    child.engine.after_fork()
    return child


def _restored(stream: sp.Stream) -> sp.Stream:
    other = sp.Stream(
        stream.algorithm, row_norm=1.0, features=stream.features, regret=None, key=stream.engine.randomness.key
    )
    replay.restore(other.engine, replay.saved(stream.engine)["state"], stream.release)
    return other


def _copied(make: Callable[[Any], Any]) -> Life:
    def life(subject: Any, rows: FloatArray) -> list[Any]:
        stream, out = begin(subject, rows)
        other = make(stream)
        return out + fed(stream, rows[2:]) + fed(other, rows[2:])

    return life


def _one_key(subject: Any, rows: FloatArray) -> list[Any]:
    key = sp.Randomness().key
    return [text for _ in range(2) for text in fed(sp.Stream(subject, row_norm=1.0, regret=None, key=key), rows)]


def _stored(way: str) -> Life:
    def life(subject: Any, rows: FloatArray) -> list[Any]:
        store = partial(sp.Store, commit_every=1)
        with TemporaryDirectory() as folder:
            here, there = Path(folder, "a"), Path(folder, "b")
            here.mkdir()
            with store(here / "run.db") as first:
                stream, out = begin(subject, rows, store=first)
                first.flush()
                copytree(here, there)
                if way != "resumed":
                    out += fed(stream, rows[2:])
            if way == "rolled back":
                for name in ("run.db", "run.db-wal", "run.db-shm"):  # and not the witness
                    Path(here, name).unlink(missing_ok=True)
                    if Path(there, name).exists():
                        copyfile(there / name, here / name)
                there = here
                try:
                    with store(there / "run.db") as again:
                        sp.Stream.resume(again)
                except StreamPCAError as problem:
                    out.append(type(problem).__name__)
            with store(there / "run.db") as again:
                return out + fed(sp.Stream.resume(again, moved=way == "rolled back"), rows[2:])

    return life


def _both_claims(subject: Any) -> sp.Guarantee:
    both: sp.Guarantee = subject.guarantee.compose(subject.guarantee)
    return both


#: Leaves of one run of four rows, and of two continuations of its first two rows.
ONE = [(1, 0), (2, 0), (3, 0), (4, 0)]
TWO = [*ONE, (3, 1), (4, 1)]


def life(
    name: str, feed: Life, branches: Sequence[tuple[int, int]] = ONE, shared: int = 4, noise: str = "blt", **more: Any
) -> None:

    def law(subject: sp.PrivateFPL, kind: str) -> Law:
        return correlated(lambda count: continuations(subject.mechanism.reconstruction(4), branches, shared))

    given = {"d": 6, "rows": 4, "feeds": ("one by one",), "positions": (0, 1, 2), "changes": plain_changes, "law": law}
    claim = _both_claims if any(branch for _, branch in branches) else None
    feed_rows = lambda subject, rows, how: feed(subject, np.array(rows))  # noqa: E731
    add(f"life-{name}", FPL, **{"horizon": 4, "noise": noise, "feed": feed_rows, "guarantee": claim, **given, **more})


life("interrupted", _interrupted, unseen=(1,))
life("fork-blt", _copied(fork), TWO, 2)
_nodes = "no row is in three nodes of the tree that both continuations release"
life("fork-tree", _copied(fork), TWO, 2, noise="tree", slack=_nodes)
life("copy", _copied(deepcopy), TWO, 2)
life("pickle", _copied(lambda stream: pickle.loads(pickle.dumps(stream))), TWO, 2)  # its own bytes
life("state", _copied(_restored), TWO, 2)
life("one-key", _one_key, [*ONE, (1, 1), (2, 1), (3, 1), (4, 1)], 0)
life("resume", _stored("resumed"), unseen=(2, 3), cost=20.0)
life("copied-store", _stored("copied"), TWO, 2, unseen=(4, 5), cost=40.0)
life("rolled-back-store", _stored("rolled back"), TWO, 2, unseen=(4, 5), cost=40.0)


def _two(subject: sp.PrivateFPL) -> tuple[sp.PrivateFPL, sp.PrivateFPL]:
    return subject, replace(subject, epsilon=0.5 * EPSILON)


def _two_configurations(subject: Any, rows: FloatArray) -> list[Any]:
    seed = int.from_bytes(sp.Randomness().key)
    return [text for one in _two(subject) for text in fed(sp.Stream(one, row_norm=1.0, regret=None, seed=seed), rows)]


def _law_of_two(subject: sp.PrivateFPL, kind: str) -> Law:
    return correlated(lambda count: block_diag(*(one.mechanism.reconstruction(4) for one in _two(subject))))


def _claim_of_two(subject: sp.PrivateFPL) -> sp.Guarantee:
    one, other = _two(subject)
    return one.guarantee.compose(other.guarantee)


life("two-configurations", _two_configurations, law=_law_of_two, guarantee=_claim_of_two)


def _one_key_mechanism(subject: Any, rows: list[Row], how: str) -> list[Any]:
    randomness = sp.Randomness()
    return [subject.release(np.array(some), randomness, row_norm=1.0) for some in (rows, rows[:-1])]


add("life-mechanism-one-key", GAUSSIAN, d=6, rows=4, positions=(0, 3), feed=_one_key_mechanism, feeds=("twice",),
    guarantee=_both_claims)  # fmt: skip


def _fleet(subject: Any, rows: FloatArray, keys: Sequence[str] = "ij") -> list[Any]:
    # An adversary chooses the rows of tenant j from the releases of tenant i.
    fleet, out = sp.Fleet(subject, features=rows.shape[1], row_norm=1.0), list[Any]()
    for row in rows:
        release = fleet.push(keys[0], row).release
        assert release is not None
        chosen = 0.9 * release.subspace.basis[:, 0]
        out += [release, *(step.release for step in fleet.push_many([keys[1]], chosen[None]))]
    return out


def _law_of_tenants(subject: sp.PrivateFPL, kind: str) -> Law:
    # Vectors of both tenants in turn, independent: rows and columns of either one.
    return correlated(lambda count: np.kron(subject.mechanism.reconstruction(4), np.eye(2)))


life("fleet", _fleet, law=_law_of_tenants)
