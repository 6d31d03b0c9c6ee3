"""Runs by the calendar on the command line."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

import streampca as sp
from streampca.cli.options import RunOptions
from streampca.stream import periods

START = datetime(2026, 1, 1, tzinfo=UTC)
RUN = ["-k", "1", "--epsilon", "1", "--row-norm", "1", "--columns", "a,b", "--no-live", "--release-every", "1d"]
END = f"end={(START + timedelta(days=5)).isoformat()}"
GRID = ["--start", START.isoformat(), "--read", END, "--read", "time=at"]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "rows.csv"
    rng = np.random.default_rng(3)
    lines = [
        f"{(START + timedelta(days=float(day))).isoformat()},{a:.3f},{b:.3f}"
        for day, (a, b) in zip(np.linspace(0.0, 4.99, 500), rng.normal(size=(500, 2)) / 3.0, strict=True)
    ]
    path.write_text("\n".join(["at,a,b", *lines, ""]))
    return path


def releases(path):
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def test_a_file_is_released_up_to_the_end(table, command):
    out = table.with_name("out.jsonl")
    said = command("run", table, *RUN, *GRID, "--out", out, "--seed", 1)
    assert said.status == 0, said.err
    assert "5 periods, 5 releases" in said.err
    assert [line["period"][0] for line in releases(out)] == [
        (START + timedelta(days=i)).isoformat() for i in range(5)
    ]  # fmt: skip
    # The horizon is the time to the end.
    stream = sp.Stream(
        sp.PrivateFPL(n_components=1, epsilon=1.0, horizon="5d", release_every="1d"), row_norm=1.0, seed=1, start=START
    )
    rows = sp.sources.open_rows(table, columns=["a", "b"])
    assert [json.loads(s.release.to_json(terms=False)) for s in stream.run(rows, time="at")] == releases(out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (GRID[:4], "all rows of a file arrive at once. Name the column of their times"),
        (GRID[2:], "--start None: expected a time with its time zone"),
        (GRID[:2] + GRID[4:], "--read end=None: expected a public time"),
        ([*GRID, "10"], "--start: it goes with a calendar"),
        (["--read", "time=at", "10"], "--read time: it goes with a calendar"),
        ([*GRID, "--read", "follow=yes"], "is live, and its rows count on arrival"),
        ([*GRID[:4], "--read", "time=when"], "no column 'when'"),
        ([*GRID, "--bounds", "private"], "bounds"),
        ([*GRID, "--horizon", "30h"], "--horizon 30h: expected a number of periods"),
        ([*GRID, "--algorithm", "private-oja"], "not supported by PrivateOja"),
    ],
)
def test_what_does_not_go_together_is_refused(words, message, table, command):
    out = table.with_name("out.jsonl")
    every = words.pop() if words[-1] == "10" else "1d"
    said = command("run", table, *RUN[:-1], every, *words, "--out", out)
    assert said.status == 2 or message.startswith("no column"), said.err
    assert message in said.words, said.err
    assert not out.exists()


def test_a_row_out_of_order_stops_the_run(table, command):
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[:200], lines[100], *lines[200:], ""]))
    said = command("run", table, *RUN, *GRID, "--out", table.with_name("out.jsonl"))
    assert said.status == 3
    assert "a row is out of order: sort the rows by at" in said.words


def test_a_person_in_a_period_is_in_the_card_and_in_the_record(table, command):
    lines = table.read_text().splitlines()
    table.write_text("\n".join(["who," + lines[0], *(f"p{i % 7},{line}" for i, line in enumerate(lines[1:])), ""]))
    out = table.with_name("out.jsonl")
    said = command("run", table, *RUN, *GRID, "--unit", "who", "--set", "unit.period=1d", "--out", out, "--seed", 1)
    assert said.status == 0, said.err
    assert "for one person in one day" in said.err
    figures = "1 × 1d: mu 0.237, rho 0.028 · 7 × 1d: mu 1.66, rho 1.37 · 30 × 1d: mu 7.1, rho 25.2"
    assert figures in said.words
    record = command("registry", out).out
    assert 'privacy_unit: "one person in one day"' in record
    assert f"Over several periods: {figures}." in record
    unit = sp.Person(column="who", period="1d")
    algorithm = sp.PrivateFPL(n_components=1, epsilon=1.0, horizon="5d", release_every="1d", unit=unit)
    stream = sp.Stream(algorithm, row_norm=1.0, seed=1, start=START)
    rows = sp.sources.open_rows(table, columns=["a", "b"])
    assert [json.loads(s.release.to_json(terms=False)) for s in stream.run(rows, time="at")] == releases(out)


def test_run_has_at_most_thirty_options():
    names = {name for kind in RunOptions.__mro__ for name in vars(kind).get("__annotations__", ())}
    assert len(names) <= 30


def test_a_durable_run_resumes_at_its_row_and_its_period(table, command):
    store, whole = table.with_name("run.db"), table.with_name("out.jsonl")
    assert command("run", table, *RUN, *GRID, "--seed", 1, "--out", whole).status == 0
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join([*lines[:250], lines[100]]))  # damaged: a row out of order
    assert command("run", table, *RUN, *GRID, "--seed", 1, "--store", store, "--out", "-").status == 3
    table.write_text("".join(lines))
    said = command("resume", store, "--no-live")
    assert said.status == 0, said.err
    assert "Resumed after 2 periods." in said.err
    assert "3 periods more, 5 in all" in said.err
    out = table.with_name("all.jsonl")
    assert command("export", store, "--out", out).status == 0
    assert releases(out) == releases(whole)
    assert command("verify", store).status == 0
    assert "add-remove" in command("registry", store).out


def test_a_followed_file_is_released_while_no_row_arrives(table, command, monkeypatch):
    # Every look at the file is half a day later; the run stops on the fifth day.
    looks = iter(range(10**6))

    def clock():
        look = next(looks)
        if look == 12:
            threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
            time.sleep(0.1)
        return round((START + timedelta(hours=12 * look)).timestamp()) * 10**6

    monkeypatch.setattr(periods, "clock", clock)
    out = table.with_name("out.jsonl")
    said = command("run", table, *RUN, "--start", START.isoformat(), "--read", "follow=yes", "--out", out)
    assert said.status == 130, said.err
    times = [line["t"] for line in releases(out)]
    assert times == list(range(1, len(times) + 1))
    assert len(times) >= 5


@pytest.mark.ci
def test_a_live_pipe_is_released_by_the_clock(tmp_path):
    out, now = tmp_path / "out.jsonl", datetime.now(UTC).replace(microsecond=0)
    words = ["run", "-", *RUN[:-1], "1s", "--start", now.isoformat(), "--read", "follow=no", "--out", out]
    with subprocess.Popen([sys.executable, "-m", "streampca", *map(str, words)], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"a,b\n" + b"0.1,0.2\n" * 50)
        process.stdin.flush()
        time.sleep(3.5)
        process.stdin.write(b"0.3,0.1\n")
        process.stdin.close()
        assert process.wait(60) == 0
    assert [line["t"] for line in releases(out)][:3] == [1, 2, 3]
