"""Publish every day, and lose nothing: ``python scenarios/every_day.py``.

A file has rows with a person and a time. One command releases components for each day into a durable store. It is
killed twice with SIGKILL, and resumed. Its releases are those of a run that nothing interrupted, and every day has one.
`streampca registry` then writes the record of the run. The guide is ``docs/howto/publish_every_day.md``.
"""

import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from streampca.errors import StreamPCAError
from streampca.views.run_files import RunFiles

START, DAYS, COLUMNS = datetime(2026, 1, 1, tzinfo=UTC), 40, ("steps", "sleep", "pulse")
BOUNDS = "steps=0:20000,sleep=0:12,pulse=40:120"


def write_rows(path: Path, rows: int = 8000, people: int = 300) -> None:
    """Write rows of three columns in the order of their times; the last day has none, and some times are missing."""
    rng = np.random.default_rng(2026)
    days = np.sort(rng.uniform(0.0, DAYS - 1.0, rows))
    active = rng.normal(size=rows)
    values = np.array([8000.0, 7.0, 70.0]) + active[:, None] * [3000.0, 0.5, 8.0]
    values += rng.normal(size=(rows, 3)) * [1000.0, 1.0, 5.0]
    with path.open("w", encoding="utf-8") as file:
        print("person", "at", *COLUMNS, sep=",", file=file)
        for i, day in enumerate(days):
            at = "" if i % 500 == 7 else (START + timedelta(days=float(day))).isoformat()
            print(rng.integers(people), at, *(f"{value:.1f}" for value in values[i]), sep=",", file=file)


def command(*words: object) -> list[str]:
    """Return a streampca command in this interpreter."""
    return [sys.executable, "-m", "streampca", *map(str, words)]


def done(words: list[str]) -> str:
    """Run a command to its end; return its output."""
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout  # noqa: S603  # its own words


def run_command(rows: Path, store: Path) -> list[str]:
    """Return the command that begins a durable run of the file."""
    end = START + timedelta(days=DAYS)
    return command(
        "run", rows, "-k", 2, "--epsilon", 1, "--bounds", BOUNDS, "--release-every", "1d",
        "--start", START.isoformat(), "--read", f"end={end.isoformat()}", "--read", "time=at",
        "--unit", "person", "--seed", 7, "--store", store,
        "--set", "store.commit_every=1", "--out", store.with_suffix(".jsonl"), "--no-live", "--quiet",
    )  # fmt: skip


def released(store: Path) -> int:
    """Return the number of durable releases of a run that another process writes."""
    try:
        return len(RunFiles(store).new_releases())
    except (StreamPCAError, OSError):  # not begun yet
        return 0


def killed_at(words: list[str], store: Path, count: int) -> int:
    """Run a command, kill it once the store has ``count`` releases, and return its exit status."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(words, stdout=quiet, stderr=quiet) as process:  # noqa: S603  # its own words
        while process.poll() is None and released(store) < count:
            time.sleep(0.002)
        process.kill()
    return process.returncode


def exported(store: Path) -> list[str]:
    """Return the lines of all releases of a store."""
    out = store.with_suffix(".all.jsonl")
    done(command("export", store, "--out", out))
    return out.read_text(encoding="utf-8").splitlines()


def main(folder: Path) -> dict[str, object]:
    """Run everything in a folder; return what was measured."""
    rows, whole, broken = folder / "rows.csv", folder / "whole.db", folder / "run.db"
    write_rows(rows)
    done(run_command(rows, whole))
    statuses = [killed_at(run_command(rows, broken), broken, 5)]
    first = released(broken)
    again = command("resume", broken, "--no-live", "--set", "store.commit_every=1")
    statuses.append(killed_at(again, broken, first + 5))
    second = released(broken)
    done(again)
    lines = exported(broken)
    record = done(command("registry", broken))
    return {
        "statuses": statuses, "releases at the kills": [first, second], "releases": len(lines) - 1,
        "equal": lines == exported(whole), "record": record,
    }  # fmt: skip


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for name, value in main(Path(place)).items():
            print(f"{name}: {value}")
