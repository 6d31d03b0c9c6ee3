from pathlib import Path

import crash as script
import pytest

from streampca.store import log

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.mark.parametrize("chunk", [None, 256])
@pytest.mark.parametrize(
    ("times", "rows", "how", "commit_every"),
    [
        (3, 10_000, "kill", "20ms"),
        (3, 10_000, "kill", 500),
        (5, 2000, "begin", "20ms"),
        (3, 10_000, "full", "20ms"),
        pytest.param(40, 5000, "fsync", "20ms", marks=pytest.mark.long),
        *(
            pytest.param(200, rows, how, "20ms", marks=pytest.mark.long)
            for how, rows in (("kill", 10**5), ("full", 10**5), ("begin", 20_000), ("stop", 20_000))
        ),
    ],
)
def test_runs_that_break_off_at_random_moments(
    times: int, rows: int, how: str, commit_every: int | str, chunk: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chunk is not None:
        monkeypatch.setattr(log, "CHUNK", chunk)
    assert script.break_off(times, rows, commit_every, how, 0)["interruptions"] == times


@pytest.mark.long
def test_a_writer_that_is_stopped_for_two_minutes_keeps_its_run() -> None:
    assert script.break_off(3, 20_000, "20ms", "stop", 0, pause=120.0)["interruptions"] == 3


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
