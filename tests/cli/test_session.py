"""How rows are handed on, and which regret records are made."""

import numpy as np
import pytest

import streampca as sp
from streampca.cli import live, session
from streampca.cli.run import Options, Outputs, run


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
        self.shown, self.ended = [], None

    def start(self):
        pass

    def add(self, record):
        pass

    def show(self, progress):
        self.shown.append(progress)

    def end(self, progress):
        self.ended = progress


def made(*blocks, view=None, limit=None, every=2**62):
    stream = sp.Stream(
        sp.PrivateFPL(n_components=1, epsilon=1.0, delta=1e-6, release_every=100),
        regret=sp.RegretLog(every=every),
        seed=1,
    )
    return session.Session(stream, Rows(*blocks), releases=None, regret=None, view=view or Seen(), limit=limit)


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
    kept = Seen()
    assert made(rows, view=kept, every=500).run().progress.record == ending.progress.record


@pytest.mark.parametrize("followed", [False, True])
def test_records_are_made_for_those_who_follow(tmp_path, monkeypatch, capsys, followed):
    table = tmp_path / "rows.csv"
    np.savetxt(table, np.random.default_rng(1).normal(size=(300, 4)) / 4, delimiter=",", header="a,b,c,d", comments="")
    count, record = [], sp.RegretLog._record
    monkeypatch.setattr(sp.RegretLog, "_record", lambda log: count.append(log) or record(log))
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
