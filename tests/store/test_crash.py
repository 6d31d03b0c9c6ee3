import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("crash.py")


def crash(*options: str) -> str:
    done = subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("commit_every", ["20ms", "500"])
def test_kill_9_at_random_moments(commit_every: str) -> None:
    assert "'interruptions': 10" in crash("--kills", "10", "--rows", "40000", "--commit-every", commit_every)


def test_kill_9_while_snapshots_are_written_in_pieces() -> None:
    assert "'interruptions': 10" in crash("--kills", "10", "--rows", "40000", "--piece", "256")


def test_a_disk_that_fills_up_in_the_middle_of_a_write() -> None:
    done = crash("--kills", "15", "--rows", "20000", "--how", "full", "--piece", "256")
    assert "'interruptions': 15" in done


@pytest.mark.long
@pytest.mark.parametrize("how", ["kill", "full"])
def test_two_hundred_times(how: str) -> None:
    assert "'interruptions': 200" in crash("--how", how)


def test_the_check_rejects_a_changed_and_a_doubled_release(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("crash_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    rows = script.data(300)
    store = script.Store(tmp_path / "run.db")
    stream = script.Stream(script.processor(), seed=11, store=store)
    expected = {release.t: script.digest(release) for release in stream.push_many(rows).releases}
    store.close()
    world = tmp_path / "world"
    world.write_text("".join(f"{t} {seen}\n" for t, seen in expected.items()))
    script.check(tmp_path / "run.db", world, expected, 300)
    with pytest.raises(AssertionError, match="lost, doubled or changed"):
        script.check(tmp_path / "run.db", world, expected | {400: "x"}, 300)
    world.write_text(f"100 {'0' * 32}\n")
    with pytest.raises(AssertionError, match="differs"):
        script.check(tmp_path / "run.db", world, expected, 300)
