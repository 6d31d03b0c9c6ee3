"""Real disks that are full or read-only: one clear sentence, nothing is lost, and all goes on once that is mended."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from runs import ROWS, begin, copied, fpl, texts

import streampca as sp
from streampca.cli import main
from streampca.errors import StoreUnwritableError
from streampca.store.store import Store

MANY = np.vstack([ROWS] * 5)


@pytest.fixture(scope="module")
def whole() -> list[str]:
    return texts(sp.Stream(fpl(), row_norm=1.0, seed=5).push_many(MANY).releases)


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
        stream.push_many(MANY[stream.t :])
        store.flush()
        return texts(store.releases())


def test_a_full_disk(disk: Path, tmp_path: Path, whole: list[str]) -> None:
    path, filler = disk / "run.db", disk / "filler"
    read: list[sp.Release] = []
    store, stream = begin(path, commit_every=100)

    def feed() -> None:
        for start in range(0, len(MANY), 100):
            if start == 1000:  # somebody else takes all the room
                with pytest.raises(OSError, match="No space"):
                    filler.write_bytes(bytes(2**22))
            read.extend(stream.push_many(MANY[start : start + 100]).releases)

    with pytest.raises(StoreUnwritableError, match=r"the disk is full\. Repair that"):
        feed()
    assert 100 <= len(read) < len(whole)
    assert main(["status", str(path)]) == 0
    assert texts(store.releases())[: len(read)] == whole[: len(read)]
    filler.unlink()
    stream.push_many(MANY[stream.t : 1500])
    store.close()
    elsewhere = copied(path, ".key", ".witness", to="../run.db")  # it has grown beyond this disk
    assert main(["verify", str(elsewhere)]) == 0
    assert finish(elsewhere) == whole


@pytest.mark.parametrize("crashed", [False, True])
def test_a_read_only_disk(
    disk: Path, tmp_path: Path, whole: list[str], crashed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    store, _ = begin(tmp_path / "run.db", 300, commit_every=100)
    if not crashed:
        store.close()
    for file in tmp_path.glob("run.db*"):
        if not file.name.endswith("-shm"):
            shutil.copy2(file, disk)
    store.close()
    path, lines = disk / "run.db", tmp_path / "all.jsonl"
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    with pytest.raises(StoreUnwritableError, match=r"[Rr]ead-only"):
        finish(path)
    for words in (["status"], ["verify"], ["export", "--out", str(lines)]):
        assert main([words[0], str(path), *words[1:]]) == (2 if crashed else 0), words
    if crashed:
        assert capsys.readouterr().err.count("Copy all of its files") == 3
    else:
        assert texts(sp.read_releases(lines)) == whole[:30]
    subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
    assert finish(path)[:30] == whole[:30]
