"""Real disks that are full or read-only: one clear sentence, nothing is lost, and all goes on once that is mended."""

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import streampca as sp
from streampca.cli import main
from streampca.errors import StoreUnwritableError, StreamPCAWarning
from streampca.store.store import Store, room_warnings

ROWS = np.random.default_rng(3).normal(size=(4000, 4)) / 3.0


def algorithm() -> sp.PrivateFPL:
    return sp.PrivateFPL(n_components=2, epsilon=1.0, delta=1e-6, release_every=50)


@pytest.fixture(scope="module")
def whole() -> list[str]:
    return [release.to_json() for release in sp.Stream(algorithm(), seed=5).push_many(ROWS).releases]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        words = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
        made = subprocess.run(words, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        made = False
    if not made:
        pytest.skip("needs the right to mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def finish(path: Path) -> list[str]:
    with Store(path) as store:
        stream = sp.Stream.resume(store)
        stream.push_many(ROWS[stream.t :])
        store.flush()
        return [release.to_json() for release in store.releases()]


def test_a_full_disk(disk: Path, tmp_path: Path, whole: list[str]) -> None:
    path, filler = disk / "run.db", disk / "filler"
    read: list[sp.Release] = []
    store = Store(path, commit_every=100, snapshot_every="1h")
    stream = sp.Stream(algorithm(), seed=5, store=store)

    def feed() -> None:
        for start in range(0, len(ROWS), 100):
            if start == 1000:  # somebody else takes all the room
                with pytest.raises(OSError, match="No space"):
                    filler.write_bytes(bytes(2**22))
            read.extend(stream.push_many(ROWS[start : start + 100]).releases)

    with pytest.raises(StoreUnwritableError, match=r"the disk is full\. Repair that") as told:
        feed()
    assert 20 <= len(read) < len(whole)
    assert len(str(told.value).splitlines()) == 1
    assert main(["status", str(path)]) == 0
    assert [release.to_json() for release in store.releases()][: len(read)] == whole[: len(read)]
    filler.unlink()
    stream.push_many(ROWS[stream.t : 1500])
    store.close()
    shutil.move(path, tmp_path / "run.db")  # it has grown beyond this disk
    for end in (".key", ".witness"):
        shutil.move(f"{path}{end}", tmp_path / f"run.db{end}")
    assert main(["verify", str(tmp_path / "run.db")]) == 0
    assert finish(tmp_path / "run.db") == whole


@pytest.mark.parametrize("crashed", [False, True])
def test_a_read_only_disk(
    disk: Path, tmp_path: Path, whole: list[str], crashed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(tmp_path / "run.db", commit_every=100)
    sp.Stream(algorithm(), seed=5, store=store).push_many(ROWS[:300])
    if not crashed:
        store.close()
    for file in tmp_path.glob("run.db*"):
        if not file.name.endswith("-shm"):
            shutil.copy2(file, disk)
    store.close()
    path = disk / "run.db"
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(StoreUnwritableError, match=r"[Rr]ead-only") as told:
        finish(path)
    assert len(str(told.value).splitlines()) == 1
    lines = tmp_path / "all.jsonl"
    for words in (["status"], ["verify"], ["export", "--out", str(lines)]):
        assert main([words[0], str(path), *words[1:]]) == (2 if crashed else 0), words
    if crashed:
        assert capsys.readouterr().err.count("Copy all of its files") == 3
    else:
        assert [release.to_json() for release in sp.read_releases(lines)] == whole[:6]
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    assert finish(path)[: len(whole)] == whole


def test_a_run_that_will_not_fit_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    long = replace(algorithm(), n_features=4, horizon=10**9, release_every=1)
    warned = pytest.warns(StreamPCAWarning, match=r"1000000000 releases take about 1.4e\+02 GB, and 1 GB are free")
    with Store(tmp_path / "run.db") as store, warned:
        sp.Stream(long, store=store)
    assert room_warnings(tmp_path, replace(long, release_every=10**6), 4, 10**9) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**3))
    table = tmp_path / "rows.csv"
    np.savetxt(table, ROWS[:10], delimiter=",", header="a,b,c,d", comments="")
    words = ["-k", "1", "--epsilon", "1", "--delta", "1e-10", "--row-norm", "1"]
    durable = ["--store", str(tmp_path / "cli.db"), "--out", str(tmp_path / "releases.jsonl")]
    assert main(["run", str(table), *words, *durable, "--release-every", "1", "--horizon", "10"]) == 0
    assert "Use a larger disk" in capsys.readouterr().err
