"""How rows are handed on, and which regret records are made."""

from dataclasses import replace

import numpy as np
import pytest

import streampca as sp
from streampca.cli import live, session
from streampca.cli.run import Options, Outputs, run
from streampca.regret import RegretSums


class Rows:
    features, bounds = ("a", "b"), None

    def __init__(self, *blocks):
        self._blocks = blocks

    def blocks(self):
        return iter(self._blocks)


class Seen:
    """A view that shows after every push and keeps what it was shown."""

    due = True

    def __init__(self):
        self.shown, self.added, self.ended = [], [], None

    def start(self):
        pass

    def add(self, record):
        self.added.append(record)

    def show(self, progress):
        self.shown.append(progress)

    def end(self, progress):
        self.ended = progress


ALGORITHM = sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, release_every=100)


def made(*blocks, view=None, limit=None, algorithm=ALGORITHM, **more):
    stream = sp.Stream(algorithm, regret=sp.RegretLog(every=session.NEVER), seed=1)
    return session.Session(
        stream, Rows(*blocks), releases=None, regret=None, view=view or Seen(), limit=limit, **more
    )  # fmt: skip


@pytest.mark.parametrize(("seconds", "largest"), [(0.0, 8192), (0.01, 1024), (1.0, 1024)])
def test_pieces_grow_while_they_are_quick(monkeypatch, seconds, largest):
    clock = [0.0]
    monkeypatch.setattr(session.time, "perf_counter", lambda: clock[0])
    blocks = [np.arange(2.0 * n).reshape(n, 2) for n in (20_000, 5, 30_000)]
    pieces = []
    for piece in made(*blocks, limit=45_000)._pieces():
        pieces.append(piece)
        clock[0] += seconds
    np.testing.assert_array_equal(np.concatenate(pieces), np.concatenate(blocks)[:45_000])
    assert max(map(len, pieces)) == largest


def test_pieces_shrink_when_they_are_slow(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(session.time, "perf_counter", lambda: clock[0])
    sizes = []
    for piece in made(np.zeros((100_000, 2)))._pieces():
        sizes.append(len(piece))
        clock[0] += 0.0 if len(sizes) < 5 else 0.5
    assert sizes[:9] == [1024, 2048, 4096, 8192, 8192, 4096, 2048, 1024, 1024]
    assert sum(sizes) == 100_000


def test_whoever_looks_is_shown_the_regret_of_the_moment():
    rows = np.random.default_rng(0).normal(size=(3000, 2)) / 3
    seen = Seen()
    ending = made(rows, view=seen).run()
    assert len(seen.shown) >= 2
    assert all(progress.record.t == progress.t for progress in (*seen.shown, seen.ended))
    assert [record.t for record in seen.added] == [3000]
    kept = Seen()
    assert made(rows, view=kept, every=700, followed=True).run().progress.record == ending.progress.record
    assert [record.t for record in kept.added] == [700, 1400, 2100, 2800, 3000]


def test_the_records_are_those_that_a_stream_keeps_and_none_are_held():
    rows = np.random.default_rng(2).normal(size=(2600, 2)) / 3
    seen = Seen()
    run = made(rows[:1100], rows[1100:], view=seen, every=500, followed=True)
    run.run()
    kept = sp.Stream(ALGORITHM, regret=sp.RegretLog(every=500), seed=1)
    kept.push_many(rows)
    assert seen.added == [*kept.regret.history, kept.regret.now()]
    assert run._stream.regret.history == []


def test_publishable_records_are_made_of_the_releases():
    rows = np.random.default_rng(3).normal(size=(2000, 2)) / 3
    algorithm = replace(ALGORITHM, publish_regret=True, release_every=300)
    file = Kept()
    ending = made(rows, algorithm=algorithm, private_regret=file, every=500).run()
    stream = sp.Stream(algorithm, private_regret=sp.PrivateRegret(every=500), regret=None, seed=1)
    stream.push_many(rows)
    assert [record.t for record in file.records] == [600, 1200, 1500, 1800]
    assert file.records[:3] == stream.private_regret.history
    assert file.records[3] == stream.private_regret.now() == ending.progress.private


class Kept:
    """A file that keeps what it is given."""

    def __init__(self):
        self.records = []

    def write(self, records):
        self.records += records

    def flush(self):
        pass


@pytest.mark.parametrize("followed", [False, True])
def test_records_are_made_for_those_who_follow(tmp_path, monkeypatch, capsys, followed):
    table = tmp_path / "rows.csv"
    np.savetxt(table, np.random.default_rng(1).normal(size=(300, 4)) / 4, delimiter=",", header="a,b,c,d", comments="")
    count, record = [], RegretSums.record
    monkeypatch.setattr(RegretSums, "record", lambda sums, *given: count.append(sums) or record(sums, *given))
    options = Options(
        processor="fpl", common={"n_components": 2, "epsilon": 1.0, "delta": 1e-5}, release_every=100, extra=(),
        columns=None, bounds=None, row_norm=1.0, on_bad_row="raise", center=False, seed=3,
    )  # fmt: skip
    regret = tmp_path / "regret.csv" if followed else None
    outputs = Outputs(tmp_path / "releases.jsonl", regret=regret, regret_every=50)
    assert run(table, options=options, outputs=outputs, live=False) == 0
    assert len(count) == (6 if followed else 1)
    assert "curator only: captured 9" in capsys.readouterr().err


def test_a_live_view_needs_a_terminal():
    assert not live.is_live(None)
    assert not live.is_live(True)
    assert not live.is_live(False)
