import subprocess
import sys
from pathlib import Path

import crash as script
import pytest


def crash(*options: str) -> str:
    done = subprocess.run([sys.executable, script.__file__, *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize(
    ("times", "options"),
    [
        *(("5", f"--rows 20000 {more}") for more in ("--commit-every 20ms", "--commit-every 500", "--chunk 256")),
        ("10", "--rows 2000 --how begin"),
        ("4", "--rows 20000 --how full --chunk 256"),
        pytest.param("40", "--rows 5000 --how fsync", marks=pytest.mark.long),
        pytest.param("3", "--rows 20000 --how stop --pause 120", marks=pytest.mark.long),
        *(
            pytest.param("200", f"--rows {rows} --how {how} {chunk}", marks=pytest.mark.long)
            for how, rows in (("kill", 10**5), ("full", 10**5), ("begin", 20_000), ("stop", 20_000))
            for chunk in ("", "--chunk 256")
        ),
    ],
)
def test_runs_that_break_off_at_random_moments(times: str, options: str) -> None:
    assert f"'interruptions': {times}," in crash("--times", times, *options.split())


def test_a_stopped_writer_keeps_its_run() -> None:
    assert script.break_off(3, 3000, "20ms", "stop", 0)["interruptions"] == 3


def test_the_check_rejects_a_changed_and_a_doubled_release(tmp_path: Path) -> None:
    run = script.Run(tmp_path, script.data(300), "20ms")
    with run.store() as store:
        stream = run.stream(store)
        expected = {release.t: script.digest(release) for release in stream.push_many(run.rows).releases}
    run.world.write_text("".join(f"{t} {seen}\n" for t, seen in expected.items()))
    run.check(expected)
    with pytest.raises(AssertionError, match="lost, doubled or changed"):
        run.check(expected | {400: "x"})
    run.world.write_text(f"100 {'0' * 32}\n")
    with pytest.raises(AssertionError, match="differs"):
        run.check(expected)
