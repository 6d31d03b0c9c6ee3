"""A store resumes under another BLAS kernel: released matrices are the same bit for bit, and none is refused."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest

import streampca as sp
from streampca import _native
from streampca.errors import StoreCorruptError
from streampca.store import recovery

sys.path.append(str(Path(__file__).parents[1] / "golden"))  # as a script, too
from golden_cases import STREAMS, rows

on_x86 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="kernels of OpenBLAS are chosen by name on x86_64"
)

ROWS, STOP = rows(), 310
#: Kernel of the run that is left alone and of the one that breaks off; and those under which it goes on. A processor
#: without AVX-512 stops at the instructions of SkylakeX.
_CPU = Path("/proc/cpuinfo")
WRITTEN = "SkylakeX" if not _CPU.exists() or "avx512vl" in _CPU.read_text() else "Haswell"
RESUMED = "Prescott", "Sandybridge", "Nehalem"
#: Streams whose releases state a standard deviation that comes from matrix products.
QUICK = ["fpl-bounds-center", "fpl-regret", "window-smoothed-center"]
CASES: dict[str, Any] = STREAMS
#: People need other calls.
LONG = [name for name in CASES if not name.startswith("people")]


def words(releases: list[sp.Release]) -> str:
    found = hashlib.sha256()
    for release in releases:
        private = release.packed is not None
        found.update(b"%d" % release.t)
        found.update(release.packed.tobytes() if private else np.round(release.subspace.projector, 9).tobytes())
    return found.hexdigest()


def write(folder: Path, names: list[str]) -> dict[str, str]:
    alone = {}
    for name in names:
        make, options = CASES[name]
        alone[name] = words(sp.Stream(make(), seed=3, **options).push_many(ROWS).releases)
        store = sp.Store(folder / f"{name}.db", commit_every="1h", snapshot_every="1h")
        sp.Stream(make(), seed=3, store=store, **options).push_many(ROWS[:STOP])
        store.flush()
        store._let_go()  # as a crash does
    return alone


def resume(folder: Path, names: list[str]) -> dict[str, str]:
    found = {}
    for name in names:
        with sp.Store(folder / f"{name}.db") as store:
            stream = sp.Stream.resume(store)
            assert stream.t == STOP
            stream.push_many(ROWS[STOP:])
            store.flush()
            found[name] = words(list(store.releases()))
    return found


def under(kernel: str, what: str, folder: Path, names: list[str], *, compiled: bool = False) -> dict[str, str]:
    environment = os.environ | {"OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, what, str(folder), str(int(compiled)), *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@on_x86
@pytest.mark.parametrize(
    ("names", "switches"),
    [pytest.param(QUICK, [False], marks=pytest.mark.ci), pytest.param(LONG, [False, True], marks=pytest.mark.long)],
)
def test_runs_go_on_under_other_kernels(tmp_path: Path, names: list[str], switches: list[bool]) -> None:
    (tmp_path / "written").mkdir()
    alone = under(WRITTEN, "write", tmp_path / "written", names)
    for kernel in RESUMED:
        for compiled in switches:
            here = tmp_path / f"{kernel}-{compiled}"
            copytree(tmp_path / "written", here)
            assert under(kernel, "resume", here, names, compiled=compiled) == alone


@pytest.mark.parametrize(
    ("name", "factor", "sound"),
    [("own_noise_std", 1.0 + 1e-13, True), ("own_noise_std", 1.0 + 1e-11, False), ("packed", 1.0 + 2.0**-52, False)],
)
def test_figures_of_noise_may_differ_in_the_last_digits_and_words_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, factor: float, sound: bool
) -> None:
    write(tmp_path, ["fpl-bounds-center"])
    compare = recovery._are_same

    def elsewhere(made: sp.Release, stored: sp.Release) -> bool:
        object.__setattr__(made, name, getattr(made, name) * factor)
        return compare(made, stored)

    monkeypatch.setattr(recovery, "_are_same", elsewhere)
    with sp.Store(tmp_path / "fpl-bounds-center.db") as store:
        if sound:
            assert sp.Stream.resume(store).t == STOP
        else:
            with pytest.raises(StoreCorruptError, match="another release at row 10"):
                sp.Stream.resume(store)


if __name__ == "__main__":
    _native.use(sys.argv[3] == "1")
    work = {"write": write, "resume": resume}[sys.argv[1]]
    sys.stdout.write(json.dumps(work(Path(sys.argv[2]), sys.argv[4:])))
