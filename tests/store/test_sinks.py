"""Releases handed on: each at least once, in order, whatever breaks off."""

from pathlib import Path

import pytest
from runs import ROWS, begin

from streampca.errors import UsageError
from streampca.store.sinks import deliver


def test_a_callable_gets_each_release_once_or_again_after_it_raised(tmp_path: Path) -> None:
    store, stream = begin(tmp_path / "run.db", commit_every=1)
    got = []

    def sink(run: str, release) -> None:
        got.append((run, release.t))
        if len(got) in (3, 4, 9):
            raise OSError("the receiver is away")

    for start in range(0, 200, 50):
        stream.push_many(ROWS[start : start + 50])
        for _ in range(4):
            try:
                assert deliver(tmp_path / "run.db", sink) >= 0
            except OSError:
                continue
    assert got == [(store.run, t) for t in (10, 20, 30, 30, 30, 40, 50, 60, 70, 70, *range(80, 201, 10))]
    assert deliver(tmp_path / "run.db", sink) == 0
    store.close()
    other, _ = begin(tmp_path / "other.db", 100)
    other.close()
    cursor = tmp_path / "run.db.sent"
    with pytest.raises(UsageError, match="releases of run"):
        deliver(tmp_path / "other.db", sink, cursor=cursor)
    cursor.write_text("nonsense")
    with pytest.raises(UsageError, match="not a cursor"):
        deliver(tmp_path / "run.db", sink)


def test_it_follows_a_run_that_goes_on(tmp_path: Path) -> None:
    store, stream = begin(tmp_path / "run.db", 50, commit_every=1)
    got = []

    def sink(_run: str, release) -> None:
        got.append(release.t)
        if release.t == 50:  # what was there is told: more comes while it is followed
            stream.push_many(ROWS[50:200])
        if release.t == 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deliver(tmp_path / "run.db", sink, follow=True)
    assert got == list(range(10, 201, 10))
    store.close()
