"""Releases handed on: each at least once, in order, whatever breaks off."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from streampca.errors import BadParameterError
from streampca.processors.private_fpl import PrivateFPL
from streampca.store.sinks import JsonLines, deliver
from streampca.store.store import Store
from streampca.stream.stream import Stream

ROWS = np.random.default_rng(0).normal(size=(200, 3))


Begun = Callable[[Path], tuple[Store, Stream]]


@pytest.fixture
def begun() -> Iterator[Begun]:
    with ExitStack() as opened:

        def begin(path: Path) -> tuple[Store, Stream]:
            store = opened.enter_context(Store(path, commit_every=1))
            return store, Stream(PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, release_every=10), store=store)

        yield begin


def test_a_callable_gets_each_release_once_or_again_after_it_raised(tmp_path: Path, begun: Begun) -> None:
    store, stream = begun(tmp_path / "run.db")
    got = []

    def sink(run: str, release) -> None:
        got.append((run, release.t))
        if len(got) in (3, 4, 9):
            raise OSError("the receiver is away")

    for part in np.split(ROWS, 4):
        stream.push_many(part)
        store.flush()
        for _ in range(4):
            try:
                assert deliver(tmp_path / "run.db", sink) >= 0
            except OSError:
                continue
    assert got == [(store.run, t) for t in (10, 20, 30, 30, 30, 40, 50, 60, 70, 70, *range(80, 201, 10))]
    assert deliver(tmp_path / "run.db", sink) == 0
    other, more = begun(tmp_path / "other.db")
    more.push_many(ROWS)
    other.flush()
    with pytest.raises(BadParameterError, match="releases of run"):
        deliver(tmp_path / "other.db", sink, cursor=tmp_path / "run.db.sent")


def test_a_file_of_lines_holds_each_release_once_after_a_line_broke_off(tmp_path: Path, begun: Begun) -> None:
    store, stream = begun(tmp_path / "run.db")
    path = tmp_path / "out.jsonl"
    stream.push_many(ROWS[:100])
    store.flush()
    assert deliver(tmp_path / "run.db", JsonLines(path)) == 10
    with path.open("rb+") as file:  # killed in the middle of a line
        file.truncate(path.stat().st_size - 20)
    stream.push_many(ROWS[100:])
    store.flush()
    assert deliver(tmp_path / "run.db", JsonLines(path)) == 11
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["run"], line["t"]) for line in lines] == [(store.run, t) for t in range(10, 201, 10)]
    stored = [json.loads(release.to_json()) for release in store.releases()]
    assert [{k: v for k, v in line.items() if k != "run"} for line in lines] == stored
    for other in ("something else\n", "something else", "x,y\n1,2", '{"run":"r","t":10}\nsomething else'):
        path.write_text(other)
        with pytest.raises(BadParameterError, match="not a file of this sink"):
            JsonLines(path)
        assert path.read_text() == other


def test_it_follows_a_run_that_goes_on(tmp_path: Path, begun: Begun) -> None:
    store, stream = begun(tmp_path / "run.db")
    stream.push_many(ROWS[:50])
    store.flush()
    got = []

    def sink(_run: str, release) -> None:
        got.append(release.t)
        if release.t == 50:  # what was there is told: more comes while it is followed
            stream.push_many(ROWS[50:])
            store.flush()
        if release.t == 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deliver(tmp_path / "run.db", sink, follow=True)
    assert got == list(range(10, 201, 10))
