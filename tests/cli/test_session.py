"""How rows are handed on, and which regret records are made."""

from dataclasses import replace

import numpy as np
from runs import Blocks

import streampca as sp
from streampca.cli import live, session


class Seen(live.View):
    """A view that shows after every push and keeps what it was shown."""

    period = -1.0

    def __init__(self):
        self.shown, self.added = [], []

    def add(self, record):
        self.added.append(record)

    def show(self, progress):
        super().show(progress)
        self.shown.append(progress)


ALGORITHM = sp.PrivateFPL(n_components=1, epsilon=1.0, center=False, release_every=100)


def made(*blocks, files=None, view=None, limit=None, algorithm=ALGORITHM, **more):
    stream = sp.Stream(algorithm, row_norm=1.0, regret=sp.RegretLog(every=session.NEVER), seed=1)
    return session.Session(stream, Blocks(*blocks), files or session.Files(), [view or Seen()], limit=limit, **more)


def test_views_get_the_records_that_a_stream_keeps_and_that_of_the_moment():
    rows = np.random.default_rng(2).normal(size=(2600, 2)) / 3
    seen, plain = Seen(), Seen()
    run = made(rows[:1100], rows[1100:], view=seen, every=500, followed=True).run()
    kept = sp.Stream(ALGORITHM, row_norm=1.0, regret=sp.RegretLog(every=500), seed=1)
    kept.push_many(rows)
    assert seen.added == [*kept.regret.history, kept.regret.now()]
    assert run.stream.regret.history == []
    assert made(rows, view=plain).run().progress.record == run.progress.record
    assert [record.t for record in plain.added] == [2600]
    for shown in (seen.shown, plain.shown):
        assert len(shown) >= 2
        assert all(progress.record.t == progress.t for progress in shown)


def test_publishable_records_are_made_of_the_releases(tmp_path):
    rows = np.random.default_rng(3).normal(size=(2000, 2)) / 3
    algorithm = replace(ALGORITHM, publish_regret=True, release_every=300)
    files = session.Files(private_regret=tmp_path / "private.jsonl")
    ending = made(rows, algorithm=algorithm, files=files, every=500).run()
    stream = sp.Stream(algorithm, row_norm=1.0, private_regret=sp.PrivateRegret(every=500), regret=None, seed=1)
    stream.push_many(rows)
    records = [sp.PrivateRegretRecord.from_json(line) for line in (tmp_path / "private.jsonl").read_text().splitlines()]
    assert [record.t for record in records] == [600, 1200, 1500, 1800]
    assert records[:3] == stream.private_regret.history
    assert records[3] == stream.private_regret.now() == ending.progress.private


def test_skipped_rows_do_not_count_towards_the_limit():
    blocks = [np.arange(2.0 * n).reshape(n, 2) / 1e4 for n in (700, 900, 800)]
    assert made(*blocks, skip=1000, limit=1200).run().progress.t == 1200
    assert "has 2400 rows, but the run has absorbed 2401" in str(made(*blocks, skip=2401).run().problem)


def test_a_file_that_is_read_is_never_overwritten(tmp_path, command):
    table = tmp_path / "rows.csv"
    table.write_text("a,b\n" + "0.1,0.2\n" * 5, encoding="utf-8")
    before = table.read_bytes()
    link = table.with_name("link.csv")
    link.symlink_to(table)
    words = ["-k", "1", "--epsilon", "1", "--delta", "1e-6", "--row-norm", "1", "--columns", "all", "--force", "--out"]
    for source in (table, link, table.with_name("*.csv")):
        for argv in (
            ["run", source, *words, table], ["run", table, *words, link],
            ["pca", source, "--mechanism", "gaussian", *words, table],
        ):  # fmt: skip
            said = command(*argv)
            assert (said.status, "is read, and would be overwritten" in said.err) == (2, True)
    assert table.read_bytes() == before


def test_a_release_is_in_the_file_before_the_next_rows_come(tmp_path):
    class Waiting(Blocks):
        def blocks(self):
            for n in range(3):
                yield np.full((100, 2), 0.5)
                assert len(path.read_text().splitlines()) == n + 2  # with the header

    path, quiet = tmp_path / "releases.jsonl", Seen()
    quiet.due = np.inf
    stream = sp.Stream(ALGORITHM, row_norm=1.0, seed=1)
    assert session.Session(stream, Waiting(), session.Files(path), [quiet]).run().exit_code() == 0


def test_a_limit_is_the_number_of_rows_that_are_expected(monkeypatch):
    monkeypatch.setattr(Blocks, "expected_rows", 1234, raising=False)
    seen = Seen()
    made(np.zeros((5000, 2)), view=seen, limit=4500).run()
    assert {progress.expected for progress in seen.shown} == {4500}
